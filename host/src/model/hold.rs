//! A place in a scripted reply at which its stream waits until somebody opens it.

use std::sync::Arc;

use tokio::sync::watch;

/// A place at which streams of a scripted model wait. Clones are the same place.
///
/// A test that wants to act in the middle of an answer waits for [`Hold::reached`], acts, and calls [`Hold::open`].
/// That a stream was really dropped shows in [`Hold::dropped`].
#[derive(Debug, Clone)]
pub struct Hold {
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    open: bool,
    /// Streams that ever came here. Only grows.
    reached: usize,
    /// Streams that went away while they waited. Only grows.
    dropped: usize,
}

impl Hold {
    /// A place that is shut.
    pub fn new() -> Hold {
        Hold { state: Arc::new(watch::Sender::new(State::default())) }
    }

    /// Lets every stream pass, those that wait and those to come.
    pub fn open(&self) {
        self.state.send_modify(|state| state.open = true);
    }

    /// Waits until that many streams have come here.
    pub async fn reached(&self, count: usize) {
        self.until(|state| state.reached >= count).await;
    }

    /// Waits until that many streams were dropped while they waited here.
    pub async fn dropped(&self, count: usize) {
        self.until(|state| state.dropped >= count).await;
    }

    /// Comes here and waits until it is open.
    pub(super) async fn pass(&self) {
        self.state.send_modify(|state| state.reached += 1);
        let mut waiting = Waiting { hold: self, passed: Passed::No };
        self.until(|state| state.open).await;
        waiting.passed = Passed::Yes;
    }

    async fn until(&self, wanted: impl FnMut(&State) -> bool) {
        let mut state = self.state.subscribe();
        // Never an error: the sender lives in `self`, so that the channel cannot close.
        let _closed = state.wait_for(wanted).await.is_err();
    }
}

impl Default for Hold {
    fn default() -> Self {
        Hold::new()
    }
}

/// A stream at the place.
struct Waiting<'a> {
    hold: &'a Hold,
    passed: Passed,
}

#[derive(PartialEq)]
enum Passed {
    No,
    Yes,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.passed == Passed::No {
            self.hold.state.send_modify(|state| state.dropped += 1);
        }
    }
}
