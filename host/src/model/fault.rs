//! What went wrong in one attempt, before it is clear whether there will be another.

use std::time::Duration;

use super::limits::TimeLimit;
use super::provider::ModelError;

/// Status of Anthropic for an endpoint that has too much to do.
pub(super) const OVERLOADED: u16 = 529;

/// What went wrong in one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The request can never be answered.
    Invalid(String),
    /// The endpoint answered with an error: as a status, or as an event that stands for one.
    Status { status: u16, reason: String, retry_after: Option<Duration>, account: Account },
    /// No connection, or none any more before the endpoint answered.
    Unreachable(String),
    /// A time limit was reached.
    TimedOut { limit: TimeLimit, after: Duration },
    /// The answer ended before its end.
    Broken(String),
    /// The answer is not of the protocol.
    Malformed(String),
    /// The answer is larger than what is kept.
    TooLarge { what: &'static str, most: String },
}

/// Whether a refusal is about the account. Some endpoints send the status of a busy server for an empty account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    Fine,
    Empty,
}

impl Fault {
    /// Whether the same request may well succeed a little later.
    pub(super) fn passes(&self) -> bool {
        match self {
            Fault::Status { account: Account::Empty, .. } => false,
            Fault::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Fault::Unreachable(_) | Fault::Broken(_) => true,
            Fault::Invalid(_)
            | Fault::TimedOut { .. }
            | Fault::Malformed(_)
            | Fault::TooLarge { .. } => false,
        }
    }

    /// How long the endpoint wants us to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        if let Fault::Status { retry_after, .. } = self { *retry_after } else { None }
    }

    /// In a few words, for who watches the retries.
    pub(super) fn brief(&self) -> String {
        match self {
            Fault::Status { status, reason, .. } => format!("status {status}: {reason}"),
            Fault::Invalid(reason)
            | Fault::Unreachable(reason)
            | Fault::Broken(reason)
            | Fault::Malformed(reason) => reason.clone(),
            Fault::TimedOut { limit, .. } => format!("{limit} was reached"),
            Fault::TooLarge { what, most } => format!("{what} has more than {most}"),
        }
    }

    /// The same with every text passed through `clean`.
    pub(super) fn cleaned(self, clean: impl Fn(&str) -> String) -> Fault {
        match self {
            Fault::Invalid(reason) => Fault::Invalid(clean(&reason)),
            Fault::Status { status, reason, retry_after, account } => {
                Fault::Status { status, reason: clean(&reason), retry_after, account }
            }
            Fault::Unreachable(reason) => Fault::Unreachable(clean(&reason)),
            Fault::Broken(reason) => Fault::Broken(clean(&reason)),
            Fault::Malformed(reason) => Fault::Malformed(clean(&reason)),
            bare @ (Fault::TimedOut { .. } | Fault::TooLarge { .. }) => bare,
        }
    }

    /// What the caller gets to know when there is no further attempt.
    pub(super) fn into_error(self, model: &str, attempts: u32) -> ModelError {
        let model = model.to_owned();
        match self {
            Fault::Invalid(reason) => ModelError::Invalid { model, reason },
            Fault::Status { status, reason, account: Account::Empty, .. } => {
                ModelError::Unauthorized { model, status, reason }
            }
            Fault::Status { status, reason, retry_after, account: Account::Fine } => match status {
                401..=403 => ModelError::Unauthorized { model, status, reason },
                429 => ModelError::RateLimited { model, attempts, retry_after, reason },
                408 | 500..=599 => ModelError::ServerFailed { model, status, attempts, reason },
                _ => ModelError::Rejected { model, status, reason },
            },
            Fault::Unreachable(reason) => ModelError::Unreachable { model, attempts, reason },
            Fault::TimedOut { limit, after } => ModelError::TimedOut { model, limit, after },
            Fault::Broken(reason) => ModelError::Broken { model, reason },
            Fault::Malformed(reason) => ModelError::Malformed { model, reason },
            Fault::TooLarge { what, most } => {
                ModelError::TooLarge { model, what: what.to_owned(), most }
            }
        }
    }
}
