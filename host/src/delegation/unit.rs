//! A unit that was accepted: what its supervisor holds, and how exactly one completion comes of it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::completions::{Completions, Progress};
use super::id::DelegationId;
use super::outcome::{Completion, TaskOutcome};
use super::recorder::{Recorder, Seen};
use super::slots::{Child, Slot};
use crate::ids::SessionId;
use crate::work::{Body, Cutting, Work};

/// A unit in the background. Take its children, start them, [`record`](Unit::record) how each ended, and
/// [`finish`](Unit::finish).
///
/// Dropping it ends the children that were not taken. Its completion comes all the same, once the others have ended:
/// with what was recorded, and `interrupted` or `unknown` for the rest.
#[must_use = "its supervisor has to start the children and finish it"]
pub struct Unit {
    // Teardown order: the children go before the node that owns them.
    children: Vec<Child>,
    ending: Arc<Ending>,
    work: Work,
}

impl Unit {
    pub(super) fn new(children: Vec<Child>, ending: Ending, work: Work) -> Unit {
        let ending = Arc::new(ending);
        work.set_body(Arc::clone(&ending) as Arc<dyn Body>);
        Unit { children, ending, work }
    }

    /// Its name.
    pub fn id(&self) -> DelegationId {
        self.ending.progress.id
    }

    /// The session that gets its completion.
    pub fn origin(&self) -> &SessionId {
        &self.ending.progress.origin
    }

    /// Its node, which owns the children. Charge the supervisor to a share of it.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The children that have not been taken, in task order. Each holds what is needed to start it.
    pub fn take_children(&mut self) -> Vec<Child> {
        std::mem::take(&mut self.children)
    }

    /// How a child ended. The first word on a task stays, and one on a task of another unit is not heard.
    pub fn record(&self, outcome: TaskOutcome) {
        self.ending.progress.record(outcome);
    }

    /// Waits until nothing of the children is left, gives the slot back, writes the end down, and completes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is dropping the unit: the completion still comes.
    pub async fn finish(self) -> Arc<Completion> {
        let Unit { children, ending, work } = self;
        drop(children);
        // The bound has no end, so that only the first answer can come.
        while work.drain("the unit has ended", Duration::MAX).await.is_err() {}
        let completion = Arc::new(ending.progress.completion());
        if let Some(seen) = ending.end(&completion) {
            // Dropped where nobody can be told.
            seen.await.ok();
        }
        // Whoever sees the node go finds the completion.
        drop(work);
        completion
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unit")
            .field("id", &self.id())
            .field("work", &self.work)
            .finish_non_exhaustive()
    }
}

/// Completes a unit once. The unit's node carries it as its body and drops it when it is gone, which is after the
/// last child: so there is a completion also when the supervisor is lost. After a stop of many units the warden may
/// have the body too, until it has looked at it; then such a completion comes when it has.
pub(super) struct Ending {
    pub(super) progress: Arc<Progress>,
    completions: Completions,
    recorder: Arc<dyn Recorder>,
    /// None once it has been given back.
    slot: Mutex<Option<Slot>>,
}

impl Ending {
    pub(super) fn new(
        progress: Arc<Progress>,
        completions: Completions,
        recorder: Arc<dyn Recorder>,
        slot: Slot,
    ) -> Ending {
        Ending { progress, completions, recorder, slot: Mutex::new(Some(slot)) }
    }

    /// Ends the unit, once. What is given back is told when its completion can be seen.
    fn end(&self, completion: &Arc<Completion>) -> Option<oneshot::Receiver<()>> {
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        // The slot first: who has seen the completion finds it free.
        drop(slot);
        let (told, seen) = oneshot::channel();
        let (completions, shown) = (self.completions.clone(), Arc::clone(completion));
        let show = Seen::new(move || {
            completions.complete(shown);
            told.send(()).ok();
        });
        // A recorder that panics drops what would have let the completion be seen, and so lets it.
        let recorded = AssertUnwindSafe(|| self.recorder.ended(completion, show));
        if catch_unwind(recorded).is_err() {
            tracing::error!(unit = %completion.id, "the recorder panicked at the end of a unit");
        }
        Some(seen)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let held = self.slot.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if held {
            // It comes when it is recorded; here nobody waits for it.
            drop(self.end(&Arc::new(self.progress.completion())));
        }
    }
}

impl Body for Ending {
    /// A unit runs nothing itself.
    fn cut(&self) -> Cutting {
        Cutting::Done
    }
}
