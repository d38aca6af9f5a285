//! What went wrong, for clients: one form, and one table from errors to statuses.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gate::Denied;
use super::served::NotServed;
use crate::delegation::UnknownUnit;
use crate::error::{Error, ErrorKind};
use crate::profile::NoTicket;
use crate::session::{PromptError, SideError, StopError, TakeInError};
use crate::store::StoreError;
use crate::work::{Gone, Refused};

/// When it makes sense to try again what was refused for want of room.
const SOON: Duration = Duration::from_secs(1);

/// What a client can decide by.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The request makes no sense as it stands.
    BadRequest,
    /// It does not say who asks, or that is not believed.
    Unauthenticated,
    /// Who asks may not do that.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// The work has ended, or there never was any.
    Gone,
    /// The path is there, and not for this method.
    MethodNotAllowed,
    /// The request did not come to its end in time.
    TooSlow,
    /// A turn is going on.
    Busy,
    /// The execution that a stop names is over.
    Stale,
    /// Somebody works with it.
    InUse,
    /// A bound of what is kept would be passed.
    Limit,
    /// The body is too large.
    TooLarge,
    /// The body is not JSON.
    NotJson,
    /// A configuration or a component cannot be used.
    Unusable,
    /// Somebody asks too often, or has too many connections.
    TooMany,
    /// A defect of the host. Its log says more.
    Internal,
    /// No such work is taken now.
    Refused,
    /// Something cannot be recorded or read.
    Store,
    /// The machine does not give what is needed.
    Machine,
}

impl ProblemKind {
    /// Every kind.
    pub const ALL: [ProblemKind; 19] = [
        ProblemKind::BadRequest,
        ProblemKind::Unauthenticated,
        ProblemKind::Forbidden,
        ProblemKind::NotFound,
        ProblemKind::Gone,
        ProblemKind::MethodNotAllowed,
        ProblemKind::TooSlow,
        ProblemKind::Busy,
        ProblemKind::Stale,
        ProblemKind::InUse,
        ProblemKind::Limit,
        ProblemKind::TooLarge,
        ProblemKind::NotJson,
        ProblemKind::Unusable,
        ProblemKind::TooMany,
        ProblemKind::Internal,
        ProblemKind::Refused,
        ProblemKind::Store,
        ProblemKind::Machine,
    ];

    /// The name, as answers spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            ProblemKind::BadRequest => "bad-request",
            ProblemKind::Unauthenticated => "unauthenticated",
            ProblemKind::Forbidden => "forbidden",
            ProblemKind::NotFound => "not-found",
            ProblemKind::Gone => "gone",
            ProblemKind::MethodNotAllowed => "method-not-allowed",
            ProblemKind::TooSlow => "too-slow",
            ProblemKind::Busy => "busy",
            ProblemKind::Stale => "stale",
            ProblemKind::InUse => "in-use",
            ProblemKind::Limit => "limit",
            ProblemKind::TooLarge => "too-large",
            ProblemKind::NotJson => "not-json",
            ProblemKind::Unusable => "unusable",
            ProblemKind::TooMany => "too-many",
            ProblemKind::Internal => "internal",
            ProblemKind::Refused => "refused",
            ProblemKind::Store => "store",
            ProblemKind::Machine => "machine",
        }
    }

    /// The status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            ProblemKind::BadRequest => 400,
            ProblemKind::Unauthenticated => 401,
            ProblemKind::Forbidden => 403,
            ProblemKind::NotFound | ProblemKind::Gone => 404,
            ProblemKind::MethodNotAllowed => 405,
            ProblemKind::TooSlow => 408,
            ProblemKind::Busy | ProblemKind::Stale | ProblemKind::InUse | ProblemKind::Limit => 409,
            ProblemKind::TooLarge => 413,
            ProblemKind::NotJson => 415,
            ProblemKind::Unusable => 422,
            ProblemKind::TooMany => 429,
            ProblemKind::Internal => 500,
            ProblemKind::Refused | ProblemKind::Store | ProblemKind::Machine => 503,
        }
    }
}

/// An answer that is not the wanted one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Problem {
    /// What a client can decide by.
    pub kind: ProblemKind,
    /// What was attempted, for people.
    pub message: String,
    /// Why it failed, the nearest cause first.
    pub causes: Vec<String>,
    /// Seconds after which the same may be taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// The body of an answer that is not the wanted one.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct Failed {
    /// What went wrong.
    pub(super) error: Problem,
}

impl Problem {
    /// One with the words alone.
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Problem {
        Problem { kind, message: message.into(), causes: Vec::new(), retry_after: None }
    }

    /// One with the words of an error and its causes.
    pub(super) fn of(kind: ProblemKind, error: &(dyn std::error::Error + 'static)) -> Problem {
        let mut causes: Vec<String> = Vec::new();
        let mut cause = error.source();
        while let Some(error) = cause {
            let words = error.to_string();
            if causes.last() != Some(&words) {
                causes.push(words);
            }
            cause = error.source();
        }
        Problem { causes, ..Problem::new(kind, error.to_string()) }
    }

    /// The same, which may be taken later.
    pub(super) fn later(self, after: Duration) -> Problem {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        Problem { retry_after: Some(seconds.max(1)), ..self }
    }

    /// Whoever asks has too much already.
    pub(super) fn greedy(what: &str) -> Problem {
        Problem::new(ProblemKind::TooMany, format!("{what}; end one of them")).later(SOON)
    }

    /// There is no room now.
    pub(super) fn crowded(what: &str) -> Problem {
        Problem::new(ProblemKind::Refused, format!("{what}; try again")).later(SOON)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (kind, retry_after) = (self.kind, self.retry_after);
        let mut response = (status, axum::Json(Failed { error: self })).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if kind == ProblemKind::Unauthenticated {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

impl From<ErrorKind> for ProblemKind {
    fn from(kind: ErrorKind) -> ProblemKind {
        match kind {
            ErrorKind::Usage => ProblemKind::BadRequest,
            ErrorKind::NotFound => ProblemKind::NotFound,
            ErrorKind::Configuration | ErrorKind::Component => ProblemKind::Unusable,
            ErrorKind::Refused => ProblemKind::Refused,
            ErrorKind::Machine => ProblemKind::Machine,
            ErrorKind::Store => ProblemKind::Store,
        }
    }
}

impl From<&StoreError> for ProblemKind {
    fn from(error: &StoreError) -> ProblemKind {
        match error {
            StoreError::NoSession(_) => ProblemKind::NotFound,
            StoreError::Exists(_) | StoreError::InUse { .. } => ProblemKind::InUse,
            StoreError::TooLarge { .. } => ProblemKind::Limit,
            StoreError::Full(_)
            | StoreError::ReadOnly(_)
            | StoreError::Locked(_)
            | StoreError::Corrupt(_)
            | StoreError::Newer { .. }
            | StoreError::Failed(_)
            | StoreError::Closed => ProblemKind::Store,
            StoreError::Invalid(_) => ProblemKind::Internal,
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        // What the store says is more exact than that it was the store.
        let cause = std::error::Error::source(&error);
        let store = cause.and_then(|cause| cause.downcast_ref::<StoreError>());
        let kind = store.map_or_else(|| error.kind().into(), ProblemKind::from);
        Problem::of(kind, &error)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        Problem::of((&error).into(), &error)
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        let kind = match refused {
            Refused::Closed { .. } => ProblemKind::Refused,
            Refused::Gone { .. } => ProblemKind::Gone,
            Refused::Cycle { .. } => ProblemKind::Internal,
        };
        Problem::of(kind, &refused)
    }
}

impl From<PromptError> for Problem {
    fn from(error: PromptError) -> Problem {
        match error {
            PromptError::Busy { .. } => Problem::of(ProblemKind::Busy, &error),
            PromptError::Quiet => Problem::of(ProblemKind::Busy, &error),
            PromptError::Refused(refused) => refused.into(),
        }
    }
}

impl From<SideError> for Problem {
    fn from(error: SideError) -> Problem {
        match error {
            SideError::TooMany { .. } => Problem::of(ProblemKind::Busy, &error),
            SideError::Refused(refused) => refused.into(),
            SideError::Model { .. } => Problem::of(ProblemKind::BadRequest, &error),
        }
    }
}

impl From<TakeInError> for Problem {
    fn from(error: TakeInError) -> Problem {
        match error {
            TakeInError::Busy { .. } => Problem::of(ProblemKind::Busy, &error),
            TakeInError::Store(error) => error.into(),
        }
    }
}

impl From<StopError> for Problem {
    fn from(error: StopError) -> Problem {
        match error {
            StopError::Stale => Problem::of(ProblemKind::Stale, &error),
        }
    }
}

impl From<Gone> for Problem {
    fn from(gone: Gone) -> Problem {
        Problem::of(ProblemKind::Gone, &gone)
    }
}

impl From<UnknownUnit> for Problem {
    fn from(unknown: UnknownUnit) -> Problem {
        Problem::of(ProblemKind::NotFound, &unknown)
    }
}

impl From<NotServed> for Problem {
    fn from(error: NotServed) -> Problem {
        let kind = match error {
            NotServed::Unknown(_) => ProblemKind::NotFound,
            NotServed::Parked { .. } => ProblemKind::Refused,
        };
        Problem::of(kind, &error)
    }
}

impl From<NoTicket> for Problem {
    fn from(error: NoTicket) -> Problem {
        match &error {
            NoTicket::NotServed => Problem::of(ProblemKind::Refused, &error),
            NoTicket::TooMany { retry_after } => {
                Problem::of(ProblemKind::TooMany, &error).later(*retry_after)
            }
            NoTicket::NoRandomness(_) => Problem::of(ProblemKind::Machine, &error),
        }
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Problem {
        match &denied {
            Denied::Unauthenticated(_) => Problem::of(ProblemKind::Unauthenticated, &denied),
            Denied::Forbidden(_) => Problem::of(ProblemKind::Forbidden, &denied),
            Denied::TooMany { retry_after } => {
                Problem::of(ProblemKind::TooMany, &denied).later(*retry_after)
            }
        }
    }
}
