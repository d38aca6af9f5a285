//! Why a unit was not accepted, when to try again, and what becomes of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::id::DelegationId;
use super::limits::DelegationLimit;
use super::policy::Policy;
use super::scheduler::SchedulerRefusal;
use super::slots::Child;
use crate::work::Refused;

/// A unit that was not accepted. It gives no completion (C1).
#[derive(Debug)]
pub struct Rejected {
    /// The name that it would have had. Nothing goes by it.
    pub id: DelegationId,
    /// Why.
    pub reason: Reason,
    /// What becomes of its tasks, by the policy of the call.
    pub then: Then,
    /// Its children, in task order. They are still the turn's, with every stop that has reached them (H2).
    pub children: Vec<Child>,
}

/// What becomes of a unit that was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Then {
    /// It runs inside the call.
    RunInline,
    /// It does not run.
    Refuse,
}

impl Then {
    pub(super) fn by(policy: Policy) -> Then {
        match policy {
            Policy::Inline | Policy::Queue => Then::RunInline,
            Policy::Refuse => Then::Refuse,
        }
    }
}

/// Why a unit was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// All that a limit allows is taken.
    Capacity {
        /// The limit.
        limit: DelegationLimit,
        /// How much it allows.
        allowed: u64,
    },
    /// The embedder's scheduler said no.
    Scheduler(SchedulerRefusal),
    /// The host, the profile or the session takes no new work.
    Draining {
        /// Which of them, and why.
        words: Arc<str>,
    },
    /// It could not be written down.
    Store {
        /// Why not.
        words: Arc<str>,
    },
    /// All its children were stopped while it waited in line.
    Stopped,
    /// The session is over when the call is, so nobody would read a completion (A11).
    OneShot,
    /// The children could not change their owner.
    Ownership(Refused),
}

impl Reason {
    /// One word for events and results.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Capacity { .. } => "capacity",
            Reason::Scheduler(_) => "scheduler",
            Reason::Draining { .. } => "draining",
            Reason::Store { .. } => "store",
            Reason::Stopped => "stopped",
            Reason::OneShot => "one-shot",
            Reason::Ownership(_) => "ownership",
        }
    }

    /// When it makes sense to try again, where that is known.
    pub fn retry(&self) -> Option<Retry> {
        match self {
            Reason::Capacity { limit, .. } => match limit {
                DelegationLimit::UnitsPerHost => Some(Retry::UnitOfHostEnds),
                DelegationLimit::UnitsPerSession => Some(Retry::UnitOfSessionEnds),
                DelegationLimit::QueuedUnits => Some(Retry::LineMoves),
                DelegationLimit::UnreadCompletions => Some(Retry::CompletionsRead),
                DelegationLimit::Depth
                | DelegationLimit::ChildrenPerCall
                | DelegationLimit::DescendantsPerTree => None,
            },
            Reason::Scheduler(refusal) => refusal.after.map(Retry::After),
            Reason::Draining { .. }
            | Reason::Store { .. }
            | Reason::Stopped
            | Reason::OneShot
            | Reason::Ownership(_) => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Capacity { limit, allowed } => {
                let full = match limit {
                    DelegationLimit::QueuedUnits => {
                        "the line for a place in the background is full"
                    }
                    DelegationLimit::UnreadCompletions => {
                        "too many results of this session are unread"
                    }
                    DelegationLimit::UnitsPerSession => {
                        "this session holds all its places in the background"
                    }
                    DelegationLimit::UnitsPerHost
                    | DelegationLimit::Depth
                    | DelegationLimit::ChildrenPerCall
                    | DelegationLimit::DescendantsPerTree => {
                        "there is no free place in the background"
                    }
                };
                write!(f, "{full} (the limit `{limit}` is {allowed})")
            }
            Reason::Scheduler(refusal) => write!(f, "the scheduler said no: {refusal}"),
            Reason::Draining { words } => write!(f, "no new work is taken: {words}"),
            Reason::Store { words } => write!(f, "it could not be written down: {words}"),
            Reason::Stopped => {
                write!(f, "it was stopped while it waited for a place in the background")
            }
            Reason::OneShot => {
                write!(f, "this session ends with this run and could not receive a later result")
            }
            Reason::Ownership(refused) => {
                write!(f, "it could not be moved into the background: {refused}")
            }
        }
    }
}

/// When it makes sense to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// When a unit of the host ends.
    UnitOfHostEnds,
    /// When a unit of this session ends.
    UnitOfSessionEnds,
    /// When a unit leaves the line.
    LineMoves,
    /// When this session has read results.
    CompletionsRead,
    /// After that time.
    After(Duration),
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retry::UnitOfHostEnds => f.write_str("when a unit of this host ends"),
            Retry::UnitOfSessionEnds => f.write_str("when a unit of this session ends"),
            Retry::LineMoves => f.write_str("when a unit that waits in line has started"),
            Retry::CompletionsRead => f.write_str("when results of this session have been read"),
            Retry::After(time) => write!(f, "after {time:?}"),
        }
    }
}
