//! The one thread that carries stops through when they cannot be carried through at once: it asks again while a
//! guest is on a processor, ends what is past its time, and gives the guests a tick by which they share processors.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::tree::{Body, Cutting, Shared, attempt};

#[cfg(test)]
mod tests;

/// How long the warden sleeps between two attempts at a guest that is on a processor. It sleeps and does not
/// spin: the guest may need this very processor to unwind.
const BETWEEN_ATTEMPTS: Duration = Duration::from_micros(30);

/// How often guests that compute change places, and how late a deadline may be noticed.
const TICK: Duration = Duration::from_millis(5);

/// How many ticks without a guest on a processor before the warden sleeps until it is called.
const IDLE_TICKS: u32 = 40;

/// How the warden is called. Part of the tree, so that stops work also before a warden has started.
#[derive(Default)]
pub(super) struct Alarm {
    calls: Mutex<Calls>,
    called: Condvar,
    /// The warden sleeps without a tick. Read by whoever puts a guest on a processor.
    asleep: AtomicBool,
    /// How many guests are on a processor at this instant.
    on_processor: AtomicUsize,
}

#[derive(Default)]
struct Calls {
    claimed: bool,
    /// Bodies to be cut.
    pursued: Vec<Arc<dyn Body>>,
    /// When the warden wakes by itself; none when it sleeps until it is called.
    wakes_at: Option<Instant>,
    called: bool,
    ended: bool,
}

impl Alarm {
    /// Makes the caller the one warden. False when there is one, or was one.
    pub(super) fn claim(&self) -> bool {
        !std::mem::replace(&mut self.lock().claimed, true)
    }

    /// Asks for attempts at bodies until they are cut.
    pub(super) fn pursue(&self, mut bodies: Vec<Arc<dyn Body>>) {
        if bodies.is_empty() {
            return;
        }
        let mut calls = self.lock();
        calls.pursued.append(&mut bodies);
        calls.called = true;
        self.called.notify_one();
    }

    /// A time was set that may be the next one due.
    pub(super) fn look_again_before(&self, due: Instant) {
        let mut calls = self.lock();
        if calls.wakes_at.is_none_or(|wakes| due < wakes) {
            calls.called = true;
            self.called.notify_one();
        }
    }

    /// A guest goes onto a processor until the value is dropped.
    pub(super) fn on_processor(&self) -> OnProcessor<'_> {
        self.on_processor.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.look_again_before(Instant::now());
        }
        OnProcessor { alarm: self }
    }

    /// The tree is gone.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.called.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until called or until `at`; takes what was asked for meanwhile. False when the warden shall end.
    fn sleep(&self, at: Option<Instant>, pursued: &mut Vec<Arc<dyn Body>>) -> bool {
        let mut calls = self.lock();
        calls.wakes_at = at;
        while !calls.called && !calls.ended {
            calls = match at.map(|at| at.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => break,
                Some(left) => {
                    self.called.wait_timeout(calls, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.called.wait(calls).unwrap_or_else(PoisonError::into_inner),
            };
        }
        calls.called = false;
        // Until it sleeps again every time that is set calls it: it may have looked at the times already.
        calls.wakes_at = None;
        pursued.append(&mut calls.pursued);
        !calls.ended
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").finish_non_exhaustive()
    }
}

/// A guest is on a processor.
pub(super) struct OnProcessor<'a> {
    alarm: &'a Alarm,
}

impl Drop for OnProcessor<'_> {
    fn drop(&mut self) {
        self.alarm.on_processor.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the warden's thread runs. It keeps no tree alive: it ends when the tree is gone.
pub(super) fn watch(tree: &Weak<Shared>, alarm: &Alarm, tick: &(dyn Fn() + Send + Sync)) {
    let mut pursued: Vec<Arc<dyn Body>> = Vec::new();
    let mut next_tick = Instant::now() + TICK;
    let mut idle = 0_u32;
    loop {
        let late = cut(&mut pursued);
        let now = Instant::now();
        if now >= next_tick {
            next_tick = now + TICK;
            if alarm.on_processor.load(Ordering::SeqCst) > 0 {
                idle = 0;
                tick();
            } else {
                idle = idle.saturating_add(1);
            }
        }
        let Some(due) = tree.upgrade().map(|shared| shared.expire(now)) else { return };
        alarm.asleep.store(idle > IDLE_TICKS, Ordering::SeqCst);
        // A guest that came onto a processor before the line above did not call, so look once more.
        if alarm.on_processor.load(Ordering::SeqCst) > 0 {
            idle = 0;
        }
        let mut at = due;
        if idle <= IDLE_TICKS {
            at = Some(at.map_or(next_tick, |at| at.min(next_tick)));
        }
        if !pursued.is_empty() {
            at = Some(if late { now } else { now + BETWEEN_ATTEMPTS });
        }
        if !alarm.sleep(at, &mut pursued) {
            return;
        }
        // Called by a guest: more of them are likely to follow, so tick again for a while.
        if !alarm.asleep.swap(false, Ordering::SeqCst) && idle > IDLE_TICKS {
            idle = 0;
            next_tick = Instant::now() + TICK;
        }
    }
}

/// An attempt at each body that is pursued; less when they are so many that the next tick would be late, which is
/// what it returns.
fn cut(pursued: &mut Vec<Arc<dyn Body>>) -> bool {
    let until = Instant::now() + TICK / 2;
    let mut late = false;
    pursued.retain(|body| {
        let stays = late || attempt(&**body) == Cutting::Busy;
        late = late || Instant::now() >= until;
        stays
    });
    late
}
