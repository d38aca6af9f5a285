//! Where it is written down that a unit was accepted, and how it ended.

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};

use super::id::DelegationId;
use super::outcome::Completion;
use super::scheduler::UnitRequest;

/// Writes down what was promised. A panic in it counts as an error.
pub trait Recorder: Send + Sync {
    /// A unit is about to be accepted: it has its slot, and its children are still the turn's. They are the turn's until
    /// the future is ready; it is dropped when the delegating call is, and the unit is then withdrawn.
    ///
    /// # Errors
    ///
    /// When it is not written; the unit is then rejected (A2).
    fn accepted(&self, unit: &UnitRequest) -> BoxFuture<'static, Result<(), RecordError>>;

    /// A unit that was written down as accepted, or was about to be, has been rejected after all.
    fn withdrawn(&self, unit: DelegationId);

    /// A unit has ended, and nobody has seen it yet. It is seen when `seen` is called or dropped, so whoever keeps it until
    /// the end is written down shows nothing that is not.
    fn ended(&self, completion: &Arc<Completion>, seen: Seen);
}

/// Lets a completion be seen, when it is called or dropped.
pub struct Seen {
    show: Option<Box<dyn FnOnce() + Send>>,
}

impl Seen {
    /// What is called when it may be seen.
    pub fn new(show: impl FnOnce() + Send + 'static) -> Seen {
        Seen { show: Some(Box::new(show)) }
    }

    /// Now.
    pub fn now(self) {
        drop(self);
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if let Some(show) = self.show.take() {
            show();
        }
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").finish_non_exhaustive()
    }
}

/// Writes nothing down: what is in memory is all there is.
#[derive(Debug, Clone, Copy, Default)]
pub struct InMemory;

impl Recorder for InMemory {
    fn accepted(&self, _unit: &UnitRequest) -> BoxFuture<'static, Result<(), RecordError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn withdrawn(&self, _unit: DelegationId) {}

    fn ended(&self, _completion: &Arc<Completion>, seen: Seen) {
        seen.now();
    }
}

/// Something was not written down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct RecordError {
    /// Why, in words.
    pub words: String,
}
