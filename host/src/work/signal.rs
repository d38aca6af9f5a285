//! How a stop is noticed: a signal that can be asked, waited for, and kept after the work has ended.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::stop::{Stop, StopKind};
use super::sync::Notify;
use super::view::Activity;

/// What a node shares with everybody who watches it. Written under the lock of the tree, read without it.
#[derive(Debug, Default)]
pub(super) struct Cell {
    /// 0: no stop, 1: soft, 2: hard. Written after the stop itself, so that who sees a level can read its words.
    level: AtomicU8,
    soft: OnceLock<Stop>,
    hard: OnceLock<Stop>,
    /// The hard stop came from the node's own deadline.
    expired: AtomicBool,
    raised: Notify,
    /// What the work waits for, as it says itself.
    activity: Mutex<Option<Activity>>,
}

impl Cell {
    pub(super) fn mark(&self, stop: &Stop) {
        match stop.kind() {
            StopKind::Soft => {
                self.soft.get_or_init(|| stop.clone());
                let _ = self.level.fetch_max(1, Ordering::SeqCst);
            }
            StopKind::Hard => {
                self.hard.get_or_init(|| stop.clone());
                let _ = self.level.fetch_max(2, Ordering::SeqCst);
            }
        }
    }

    pub(super) fn is_hard(&self) -> bool {
        self.level.load(Ordering::SeqCst) >= 2
    }

    pub(super) fn mark_expired(&self) {
        self.expired.store(true, Ordering::SeqCst);
    }

    pub(super) fn wake(&self) {
        self.raised.notify_waiters();
    }

    pub(super) fn activity(&self) -> Option<Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_activity(&self, activity: Option<Activity>) {
        *self.activity.lock().unwrap_or_else(PoisonError::into_inner) = activity;
    }
}

/// Notices a stop of one piece of work, without owning the work. Stays valid after the work has ended.
#[derive(Clone)]
pub struct StopSignal {
    pub(super) cell: Arc<Cell>,
}

impl StopSignal {
    /// The highest stop that the work carries now.
    pub fn stop(&self) -> Option<Stop> {
        match self.cell.level.load(Ordering::SeqCst) {
            0 => None,
            1 => self.cell.soft.get().cloned(),
            _ => self.cell.hard.get().cloned(),
        }
    }

    /// The soft stop that the work carries, also when a hard one has followed.
    pub fn soft(&self) -> Option<Stop> {
        self.cell.soft.get().cloned()
    }

    /// Whether the work carries a hard stop. One load: cheap enough for every host call.
    pub fn is_hard(&self) -> bool {
        self.cell.is_hard()
    }

    /// Whether the work carries any stop. One load.
    pub fn is_raised(&self) -> bool {
        self.cell.level.load(Ordering::SeqCst) >= 1
    }

    /// Whether the work was ended by its own deadline.
    pub fn expired(&self) -> bool {
        self.cell.expired.load(Ordering::SeqCst)
    }

    /// Waits until the work carries a stop of at least that kind. Never returns if the work ends without one.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the stop stays on the work.
    pub async fn raised(&self, at_least: StopKind) -> Stop {
        loop {
            let mut waiting = std::pin::pin!(self.cell.raised.notified());
            waiting.as_mut().enable();
            if let Some(stop) = self.stop().filter(|stop| stop.kind() >= at_least) {
                return stop;
            }
            waiting.await;
        }
    }
}

impl fmt::Debug for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StopSignal").field(&self.stop()).finish()
    }
}
