//! The say of an embedder in who is admitted.

use std::fmt;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};

use super::id::{CallId, DelegationId};
use super::policy::Policy;
use crate::ids::SessionId;

/// A unit that is to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnitRequest {
    /// Its name; fixed before it can start (C3).
    pub id: DelegationId,
    /// The call that it is part of.
    pub call: CallId,
    /// The session that gets its completion.
    pub origin: SessionId,
    /// The places of its tasks in the call, in order.
    pub tasks: Vec<u32>,
    /// What each of them is, in a few words.
    pub goals: Vec<String>,
    /// What becomes of it when it is not accepted.
    pub policy: Policy,
}

/// Has a say before capacity is asked for.
///
/// While the answer is out the admission is open: the turn still owns the children and its stops reach them (H2).
/// A stop does not end the wait. Whatever goes wrong here, a panic included, is a rejection of that unit.
pub trait Scheduler: Send + Sync {
    /// Whether a unit may go into the background. The future is dropped when the delegating call is.
    fn admit(&self, unit: &UnitRequest) -> BoxFuture<'static, Result<(), SchedulerRefusal>>;
}

/// Lets everybody in.
#[derive(Debug, Clone, Copy, Default)]
pub struct AtOnce;

impl Scheduler for AtOnce {
    fn admit(&self, _unit: &UnitRequest) -> BoxFuture<'static, Result<(), SchedulerRefusal>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// Why a scheduler does not let a unit in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerRefusal {
    /// In words.
    pub words: String,
    /// When it may be otherwise, if that is known.
    pub after: Option<Duration>,
}

impl SchedulerRefusal {
    /// A refusal of which nobody knows how long it holds.
    pub fn new(words: impl Into<String>) -> SchedulerRefusal {
        SchedulerRefusal { words: words.into(), after: None }
    }
}

impl fmt::Display for SchedulerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
