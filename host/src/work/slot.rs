//! The place in which a guest's execution is kept, so that a stop can take it out and drop it there and then.
//!
//! ```text
//!   occupied ──returned, or panicked──────────────► empty
//!      │                                              ▲
//!      └──cut: taken out by the stopper, or by the────┘
//!              executor when it finds a hard stop
//! ```
//!
//! Emptying is one procedure whoever does it: the execution is dropped first, then its hold on the tree, and
//! then the owner is told. So whoever has been told finds nothing left.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use super::stop::Stop;
use super::tree::{Body, Cutting, Work};
use super::view::BudgetUse;

type Execution<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One execution, polled through the slot and dropped through the slot.
pub(super) struct Slot<T> {
    /// Held while the guest runs, for up to a tick. A stopper only ever tries it.
    occupant: Mutex<Option<Occupant<T>>>,
    /// Makes a guest that is on a processor notice that it is wanted.
    nudge: Arc<dyn Fn() + Send + Sync>,
    gauge: Arc<dyn Gauge>,
}

/// What can be read off an execution while it runs.
pub trait Gauge: Send + Sync {
    /// What it has used of its budgets.
    fn budgets(&self) -> Vec<BudgetUse>;
    /// What it is doing, as far as the work itself has not said.
    fn doing(&self) -> Option<&'static str>;
}

/// Field order is teardown order: the execution, then the hold on the tree.
struct Occupant<T> {
    execution: Execution<T>,
    work: Work,
    told: oneshot::Sender<Ended<T>>,
    waker: Option<Waker>,
}

/// How an execution ended.
#[derive(Debug)]
pub struct Ended<T> {
    /// What it gave.
    pub ending: Ending<T>,
    /// The highest stop that its work carried at the end.
    pub stop: Option<Stop>,
    /// The soft stop that it carried, also when a hard one has followed.
    pub soft: Option<Stop>,
    /// The hard stop came from the work's own deadline.
    pub expired: bool,
}

/// What an execution gave.
#[derive(Debug)]
pub enum Ending<T> {
    /// It returned.
    Returned(T),
    /// A stop took it out of its slot.
    Cut,
    /// The host's own code panicked in it, with these words.
    Panicked(String),
}

impl<T: Send + 'static> Slot<T> {
    pub(super) fn new(
        work: Work,
        execution: Execution<T>,
        nudge: Arc<dyn Fn() + Send + Sync>,
        gauge: Arc<dyn Gauge>,
    ) -> (Arc<Slot<T>>, oneshot::Receiver<Ended<T>>) {
        let (told, ended) = oneshot::channel();
        let occupant = Mutex::new(Some(Occupant { execution, work, told, waker: None }));
        (Arc::new(Slot { occupant, nudge, gauge }), ended)
    }

    /// One step of the execution. Ready when the slot is empty.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut place = self.occupant.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(occupant) = place.as_mut() else { return Poll::Ready(()) };
        let mut step = Ok(Poll::Pending);
        // With many to be cut, the executor may get here before the stopper. The guest runs no further.
        if !occupant.work.is_hard() {
            step = catch_unwind(AssertUnwindSafe(|| occupant.execution.as_mut().poll(cx)));
        }
        let ending = match step {
            // Stopped while it ran: who tried to cut it found it busy, and need not come again.
            Ok(Poll::Pending) if occupant.work.is_hard() => Ending::Cut,
            Ok(Poll::Pending) => {
                if !occupant.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    occupant.waker = Some(cx.waker().clone());
                }
                return Poll::Pending;
            }
            Ok(Poll::Ready(value)) => Ending::Returned(value),
            Err(panic) => Ending::Panicked(words(&*panic)),
        };
        let occupant = place.take();
        drop(place);
        if let Some(occupant) = occupant {
            occupant.leave(ending);
        }
        Poll::Ready(())
    }
}

impl<T> Occupant<T> {
    fn leave(self, ending: Ending<T>) {
        let Occupant { execution, work, told, waker } = self;
        // What a guest left behind is dropped here; should that panic, it must not take the stopper along.
        let dropped = catch_unwind(AssertUnwindSafe(move || drop(execution)));
        let ending = match dropped {
            Ok(()) => ending,
            Err(panic) => Ending::Panicked(words(&*panic)),
        };
        let signal = work.signal();
        drop(work);
        // Where nobody waits, what it gave goes here.
        drop(told.send(Ended {
            ending,
            stop: signal.stop(),
            soft: signal.soft(),
            expired: signal.expired(),
        }));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T: Send + 'static> Body for Slot<T> {
    fn cut(&self) -> Cutting {
        let mut place = match self.occupant.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                (self.nudge)();
                return Cutting::Busy;
            }
        };
        let occupant = place.take();
        drop(place);
        if let Some(occupant) = occupant {
            occupant.leave(Ending::Cut);
        }
        Cutting::Done
    }

    fn budgets(&self) -> Vec<BudgetUse> {
        self.gauge.budgets()
    }

    fn doing(&self) -> Option<&'static str> {
        self.gauge.doing()
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    said.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}
