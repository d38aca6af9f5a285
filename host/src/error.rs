//! The one error that callers of a [`Host`](crate::Host) see.

use std::fmt;

/// Something that was asked of the host was not done. It says what was attempted, on what, why it failed and what
/// to do; the causes are its sources.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    attempt: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What a caller can decide by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request makes no sense as it stands.
    Usage,
    /// There is no such plugin, model, session or piece of work.
    NotFound,
    /// A configuration or a manifest is wrong.
    Configuration,
    /// A component cannot be loaded.
    Component,
    /// The host takes no such work now.
    Refused,
    /// The machine does not give what is needed.
    Machine,
    /// Something cannot be recorded, or what was recorded cannot be read.
    Store,
}

impl Error {
    /// An error of that kind with no deeper cause.
    pub fn new(kind: ErrorKind, words: impl Into<String>) -> Error {
        Error { kind, attempt: words.into(), source: None }
    }

    /// An error with the cause beside what was attempted.
    pub fn because(
        kind: ErrorKind,
        attempt: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error { kind, attempt: attempt.into(), source: Some(source.into()) }
    }

    /// What a caller can decide by.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.attempt)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
