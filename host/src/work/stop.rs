//! What a stop says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A request to end a piece of work. A state, not an event: it stays on the work until the work ends.
///
/// Cheap to clone: message and issuer are shared.
#[derive(Clone, PartialEq, Eq)]
pub struct Stop {
    kind: StopKind,
    message: Arc<str>,
    issuer: Arc<str>,
    grace: Grace,
}

impl Stop {
    /// "Please leave": visible to the guest, wakes every host call that can be left early.
    pub fn soft(issuer: impl Into<Arc<str>>, message: impl Into<Arc<str>>, grace: Grace) -> Stop {
        Stop { kind: StopKind::Soft, message: message.into(), issuer: issuer.into(), grace }
    }

    /// "You end now": no guest instruction runs after it takes effect.
    pub fn hard(issuer: impl Into<Arc<str>>, message: impl Into<Arc<str>>) -> Stop {
        Stop {
            kind: StopKind::Hard,
            message: message.into(),
            issuer: issuer.into(),
            grace: Grace::Never,
        }
    }

    /// Soft or hard.
    pub fn kind(&self) -> StopKind {
        self.kind
    }

    /// The exact words of whoever asked.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Who asked.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// When a soft stop becomes hard. A hard stop has nothing to wait for.
    pub fn grace(&self) -> Grace {
        self.grace
    }

    /// The same words, as a hard stop: what a soft stop becomes when its grace period ends (S10).
    pub(super) fn risen(&self) -> Stop {
        Stop { kind: StopKind::Hard, grace: Grace::Never, ..self.clone() }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stop by {}: {}", self.kind, self.issuer, self.message)
    }
}

/// The two kinds of stop. Soft may rise to hard; hard never falls back (S5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopKind {
    /// The guest is asked to finish.
    Soft,
    /// The guest is ended.
    Hard,
}

impl fmt::Display for StopKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StopKind::Soft => "soft",
            StopKind::Hard => "hard",
        })
    }
}

/// How long a soft stop waits before it becomes hard (S10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// This long, from the moment of the stop.
    After(Duration),
    /// It stays soft until somebody stops the work hard.
    Never,
}
