//! What a plugin can read of a call that did not do what was asked, and of a stop.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A stop, as the run that it reached sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// `soft`: finish and return; calls work again until the grace period ends. A guest never sees a hard
    /// stop, because it ends the guest.
    pub kind: String,
    /// The exact words of whoever asked for the stop.
    pub message: String,
    /// Who asked: `user`, `parent`, `operator`, `host`, or a name that an embedder chose.
    pub issuer: String,
}

/// Why a call did not do what was asked, or why a plugin does not do what it was asked.
///
/// The guest goes on after a failure; what ends a guest never comes back as a value. Write `message` for people
/// and for models: what was attempted, on what, why it failed and what to do.
///
/// Errors of `std::io` and `serde_json` become failures with `?`. [`Context`] puts a few words in front of any
/// error.
///
/// ```
/// use checkrein_guest::prelude::*;
///
/// fn read(path: &str) -> Result<String, Failure> {
///     std::fs::read_to_string(path).context(format!("cannot read {path}"))
/// }
///
/// let failure = read("/no/such/file").unwrap_err();
/// assert_eq!(failure.code, Failure::NOT_FOUND);
/// assert!(failure.message.starts_with("cannot read /no/such/file: "));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure: one of the constants of this type. Expect others too: a later host may know more.
    pub code: String,
    /// What was attempted, on what, why it failed and what to do.
    pub message: String,
    /// The stop, when the code is [`Failure::INTERRUPTED`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
}

impl Failure {
    /// A soft stop arrived; see [`Failure::stop`].
    pub const INTERRUPTED: &str = "interrupted";
    /// There is no grant for it.
    pub const DENIED: &str = "denied";
    /// There is no such thing.
    pub const NOT_FOUND: &str = "not-found";
    /// The request makes no sense.
    pub const INVALID: &str = "invalid";
    /// More bytes than may cross at once.
    pub const TOO_LARGE: &str = "too-large";
    /// A budget is used up.
    pub const LIMIT: &str = "limit";
    /// No capacity now; try again later.
    pub const BUSY: &str = "busy";
    /// The part of the host that serves this is not there.
    pub const UNAVAILABLE: &str = "unavailable";
    /// Anything else.
    pub const FAILED: &str = "failed";

    /// A failure of that kind.
    pub fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.to_owned(), message: message.into(), stop: None }
    }

    /// The request makes no sense; the message says what would.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(Failure::INVALID, message)
    }

    /// Something went wrong that has no kind of its own.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure::new(Failure::FAILED, message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure::new(Failure::NOT_FOUND, message)
    }

    /// There is no grant for it.
    pub fn denied(message: impl Into<String>) -> Failure {
        Failure::new(Failure::DENIED, message)
    }

    /// More bytes than may be handled at once.
    pub fn too_large(message: impl Into<String>) -> Failure {
        Failure::new(Failure::TOO_LARGE, message)
    }

    /// A soft stop arrived.
    pub fn interrupted(stop: Stop) -> Failure {
        let message = format!("stopped by {}: {}", stop.issuer, stop.message);
        Failure { code: Failure::INTERRUPTED.to_owned(), message, stop: Some(stop) }
    }

    /// Whether this is the arrival of a soft stop: time to wrap up.
    pub fn is_interrupted(&self) -> bool {
        self.code == Failure::INTERRUPTED
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        use std::io::ErrorKind;
        let kind = error.kind();
        let code = if is_quota(&error) {
            Failure::LIMIT
        } else if kind == ErrorKind::NotFound {
            Failure::NOT_FOUND
        } else if kind == ErrorKind::PermissionDenied || kind == ErrorKind::ReadOnlyFilesystem {
            Failure::DENIED
        } else if kind == ErrorKind::InvalidInput {
            Failure::INVALID
        } else {
            Failure::FAILED
        };
        Failure::new(code, error.to_string())
    }
}

/// Whether the host refused another open file, as it does at the limit `open-files`. The standard library has no kind
/// for that in components.
fn is_quota(error: &std::io::Error) -> bool {
    const DQUOT: i32 = 19;
    error.kind() == std::io::ErrorKind::QuotaExceeded
        || (cfg!(target_family = "wasm") && error.raw_os_error() == Some(DQUOT))
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::invalid(error.to_string())
    }
}

/// Puts words in front of an error on its way out: `fs::read(path).context("cannot read the list")?`.
pub trait Context<T> {
    /// Turns the error into a [`Failure`] whose message starts with `words`; the code and the stop stay.
    ///
    /// # Errors
    /// The error that was there, with words in front.
    fn context(self, words: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> Context<T> for Result<T, E> {
    fn context(self, words: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| {
            let failure = error.into();
            Failure { message: format!("{words}: {}", failure.message), ..failure }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_keeps_code_and_stop() {
        let stop = Stop { kind: "soft".into(), message: "enough".into(), issuer: "user".into() };
        let failed: Result<(), _> = Err(Failure::interrupted(stop.clone()));
        let failure = failed.context("while reading").unwrap_err();
        assert!(failure.is_interrupted());
        assert_eq!(failure.message, "while reading: stopped by user: enough");
        assert_eq!(failure.stop, Some(stop));
    }

    #[test]
    fn errors_of_the_file_system_keep_their_meaning() {
        let code = |kind: std::io::ErrorKind| Failure::from(std::io::Error::from(kind)).code;
        assert_eq!(code(std::io::ErrorKind::NotFound), "not-found");
        assert_eq!(code(std::io::ErrorKind::PermissionDenied), "denied");
        assert_eq!(code(std::io::ErrorKind::InvalidInput), "invalid");
        assert_eq!(code(std::io::ErrorKind::QuotaExceeded), "limit");
        assert_eq!(code(std::io::ErrorKind::Other), "failed");
    }
}
