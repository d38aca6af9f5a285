//! Names for things that outlive the code that made them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of one piece of work. Never used twice in the life of a tree.
///
/// It is written `w<place>-<generation>`: places are used again, generations are not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId {
    pub(crate) place: u32,
    pub(crate) generation: u64,
}

impl fmt::Display for WorkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}-{}", self.place, self.generation)
    }
}

impl fmt::Debug for WorkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for WorkId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let parse = || {
            let (place, generation) = text.strip_prefix('w')?.split_once('-')?;
            Some(WorkId { place: place.parse().ok()?, generation: generation.parse().ok()? })
        };
        parse().ok_or(NotAnId)
    }
}

/// The name of one session. Cheap to clone.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct SessionId(pub(crate) Arc<str>);

impl SessionId {
    /// The name that a session had, as somebody wrote it down.
    pub fn new(name: impl Into<Arc<str>>) -> SessionId {
        SessionId(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is not the name of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not the id of a piece of work; one looks like w3-18")]
pub struct NotAnId;
