//! The one trait behind which every model stands, and every way in which it can fail.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use thiserror::Error;

use super::answer::Delta;
use super::limits::TimeLimit;
use super::request::Request;
use crate::message::{Failure, FailureCode};

/// The deltas of one answer.
///
/// # Cancel safety
///
/// Nothing happens before the first poll. Dropping the stream, at any time, ends the request and closes its connection;
/// no task is left behind.
pub type ResponseStream = Pin<Box<dyn Stream<Item = Result<Delta, ModelError>> + Send>>;

/// A model that can be asked.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The name under which the operator configured it.
    fn name(&self) -> &str;

    /// Begins a request. The work is done by whoever polls the stream.
    fn start(&self, request: Request) -> ResponseStream;
}

/// Why a model did not answer. One variant for each thing that a caller may do about it.
///
/// No text in here holds a key, whatever the endpoint sent back.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The request can never be answered as it is.
    #[error("the request to the model `{model}` makes no sense: {reason}")]
    Invalid {
        /// The name of the provider.
        model: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The endpoint refused this request and would refuse it again.
    #[error("the model `{model}` refused the request (status {status}): {reason}")]
    Rejected {
        /// The name of the provider.
        model: String,
        /// The HTTP status.
        status: u16,
        /// What the endpoint said.
        reason: String,
    },
    /// The endpoint did not accept the key, or the account behind it has nothing left.
    #[error(
        "the model `{model}` is not open to us (status {status}): {reason}; check its key and its account"
    )]
    Unauthorized {
        /// The name of the provider.
        model: String,
        /// The HTTP status.
        status: u16,
        /// What the endpoint said.
        reason: String,
    },
    /// Too many requests, also after all retries.
    #[error(
        "the model `{model}` was asked {attempts} times and is still too busy: {reason}; try again later"
    )]
    RateLimited {
        /// The name of the provider.
        model: String,
        /// How often it was asked.
        attempts: u32,
        /// When to try again, if the endpoint said so.
        retry_after: Option<Duration>,
        /// What the endpoint said.
        reason: String,
    },
    /// The endpoint failed, also after all retries.
    #[error(
        "the model `{model}` was asked {attempts} times and failed (status {status}): {reason}; try again later"
    )]
    ServerFailed {
        /// The name of the provider.
        model: String,
        /// The HTTP status.
        status: u16,
        /// How often it was asked.
        attempts: u32,
        /// What the endpoint said.
        reason: String,
    },
    /// There was no connection, or it ended before the answer began, also after all retries.
    #[error(
        "the model `{model}` could not be reached in {attempts} attempts: {reason}; check its address and the network"
    )]
    Unreachable {
        /// The name of the provider.
        model: String,
        /// How often it was tried.
        attempts: u32,
        /// What went wrong.
        reason: String,
    },
    /// A time limit was reached.
    #[error(
        "the model `{model}` took longer than {limit} allows ({after:?}); raise that limit of the model, or ask for less"
    )]
    TimedOut {
        /// The name of the provider.
        model: String,
        /// Which limit.
        limit: TimeLimit,
        /// Its value.
        after: Duration,
    },
    /// The stream ended before the answer did.
    #[error("the answer of the model `{model}` broke off: {reason}; try again")]
    Broken {
        /// The name of the provider.
        model: String,
        /// What went wrong.
        reason: String,
    },
    /// The endpoint sent something that is not of its protocol.
    #[error("the answer of the model `{model}` cannot be understood: {reason}")]
    Malformed {
        /// The name of the provider.
        model: String,
        /// What and where.
        reason: String,
    },
    /// The endpoint sent more than is kept.
    #[error("the answer of the model `{model}` is too large: {what} may have {most}")]
    TooLarge {
        /// The name of the provider.
        model: String,
        /// What is bounded.
        what: String,
        /// The bound, with its unit.
        most: String,
    },
    /// A script has no reply for this request.
    #[error("the script `{script}` has no reply for request {number}: {reason}")]
    Unscripted {
        /// The name of the script.
        script: String,
        /// Which request it was, counted from 1.
        number: usize,
        /// Why none of its replies fits.
        reason: String,
    },
    /// A failure that a script asked for.
    #[error("{message} (so says the script `{script}`)")]
    Scripted {
        /// The name of the script.
        script: String,
        /// The code that a guest sees.
        code: FailureCode,
        /// The words of the script.
        message: String,
    },
}

impl ModelError {
    /// Whether the request was refused, or never arrived, so that no endpoint charges for it.
    pub fn is_refusal(&self) -> bool {
        match self {
            ModelError::Invalid { .. }
            | ModelError::Rejected { .. }
            | ModelError::Unauthorized { .. }
            | ModelError::RateLimited { .. }
            | ModelError::ServerFailed { .. }
            | ModelError::Unreachable { .. }
            | ModelError::Unscripted { .. }
            | ModelError::Scripted { .. } => true,
            ModelError::TimedOut { .. }
            | ModelError::Broken { .. }
            | ModelError::Malformed { .. }
            | ModelError::TooLarge { .. } => false,
        }
    }

    /// The code under which a guest sees this.
    pub fn code(&self) -> FailureCode {
        match self {
            ModelError::Invalid { .. } | ModelError::Rejected { .. } => FailureCode::Invalid,
            ModelError::Unauthorized { .. }
            | ModelError::Unreachable { .. }
            | ModelError::ServerFailed { .. } => FailureCode::Unavailable,
            ModelError::RateLimited { .. } => FailureCode::Busy,
            ModelError::TooLarge { .. } => FailureCode::TooLarge,
            ModelError::TimedOut { .. }
            | ModelError::Broken { .. }
            | ModelError::Malformed { .. }
            | ModelError::Unscripted { .. } => FailureCode::Failed,
            ModelError::Scripted { code, .. } => *code,
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}
