//! Telling connections that the listeners end.

use tokio::sync::watch;

/// How far the end of the listeners is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Requests are taken.
    Open,
    /// The host goes; requests are still taken.
    Leaving,
    /// No new requests; answers that are under way are finished, and streams of events end.
    Ending,
    /// Connections are cut.
    Cut,
}

/// The end of all listeners of a host. Cheap to clone; every clone is the same.
#[derive(Debug, Clone)]
pub struct Closing {
    phase: watch::Sender<Phase>,
}

impl Default for Closing {
    fn default() -> Closing {
        Closing { phase: watch::Sender::new(Phase::Open) }
    }
}

impl Closing {
    /// Nothing ends yet.
    pub fn new() -> Closing {
        Closing::default()
    }

    /// Tells those who follow events that the host goes: no new work is taken, and what runs may come to its end.
    pub fn leave(&self) {
        self.raise(Phase::Leaving);
    }

    /// Lets streams of events end, and connections with them. Events that are recorded by now are still sent.
    pub fn end(&self) {
        self.raise(Phase::Ending);
    }

    pub(super) fn cut(&self) {
        self.raise(Phase::Cut);
    }

    pub(super) fn watch(&self) -> Watch {
        Watch { phase: self.phase.subscribe() }
    }

    fn raise(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let higher = to > *phase;
            *phase = to.max(*phase);
            higher
        });
    }
}

/// Hears of the end.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    phase: watch::Receiver<Phase>,
}

impl Watch {
    /// Whether it has come so far.
    pub(super) fn has(&self, at_least: Phase) -> bool {
        *self.phase.borrow() >= at_least
    }

    /// Waits until it has come so far; for ever, where nobody is left who could bring it on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn raised(&mut self, at_least: Phase) {
        if self.phase.wait_for(|phase| *phase >= at_least).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until it has come so far, or nobody is left who could bring it on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn reached(&mut self, at_least: Phase) {
        // An error is the loss of the sender, with the whole server.
        drop(self.phase.wait_for(|phase| *phase >= at_least).await);
    }
}
