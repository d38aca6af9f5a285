//! What waits for the writer.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::channel::oneshot;

use crate::metrics::Histogram;
use crate::store::{Change, Class, Health, Recorded, Retention, StoreError, Write};

/// Writes in one transaction at most.
const BATCH_WRITES: usize = 1_024;

/// Bytes in one transaction at most, unless one write has more.
const BATCH_BYTES: u64 = 4 << 20;

/// Nothing came for that long: there is time to tidy up.
const IDLE: Duration = Duration::from_millis(200);

/// A write that waits.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) write: Write,
    pub(super) bytes: u64,
}

impl Queued {
    /// Tells whoever waits for it. A panic of theirs is theirs alone.
    pub(super) fn tell(mut self, recorded: Result<Recorded, StoreError>) {
        let then = self.write.then.take();
        let told = catch_unwind(AssertUnwindSafe(|| {
            drop(self);
            if let Some(then) = then {
                then(recorded);
            }
        }));
        if told.is_err() {
            tracing::error!("what was to hear of a write panicked");
        }
    }
}

/// Who waits for an order to be carried out.
pub(super) type Waiter = oneshot::Sender<Result<(), StoreError>>;

/// What the writer does next.
#[derive(Debug)]
pub(super) enum Next {
    /// Writes them. With none of them it sees whether the store takes writes.
    Batch(Vec<Queued>),
    /// Keeps that much from now on.
    Retain(Retention),
    /// Drops all that may be dropped, and tells the waiter.
    Compact(Waiter),
    /// Uses the time.
    Tidy,
    /// Ends: the queue is empty, and nothing comes after it.
    End,
}

/// What else the writer has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Else {
    /// Nothing.
    Nothing,
    /// Something that can wait until nobody writes.
    WhenIdle,
    /// Something that somebody waits for.
    Now,
}

/// What waits for the writer, and how the store is.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The lock protects what is in it, and is held for moments only.
    state: Mutex<State>,
    changed: Condvar,
    /// How long transactions took that were committed.
    commits: Histogram,
}

#[derive(Debug, Default)]
struct State {
    writes: VecDeque<Queued>,
    /// How much is to be kept, where that has changed.
    retention: Option<Retention>,
    compact: VecDeque<Waiter>,
    closers: Vec<Waiter>,
    closing: bool,
    /// How it ended, once it has.
    ended: Option<Result<(), StoreError>>,
    /// Something was queued since the last attempt.
    fresh: bool,
    health: Health,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a write. Gives it back when the store is closed.
    pub(super) fn push(&self, write: Write) -> Result<(), Queued> {
        let bytes = 64 + write.changes.iter().map(Change::weight).sum::<usize>() as u64;
        let queued = Queued { write, bytes };
        let mut state = self.state();
        if state.closing {
            return Err(queued);
        }
        state.health.queued_bytes += bytes;
        state.writes.push_back(queued);
        state.fresh = true;
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Says how much is kept from now on, before anything that is queued after this is written.
    pub(super) fn retain(&self, retention: Retention) {
        self.state().retention = Some(retention);
        self.changed.notify_one();
    }

    /// Asks for a compaction.
    pub(super) fn compact(&self) -> oneshot::Receiver<Result<(), StoreError>> {
        let (waiter, told) = oneshot::channel();
        let mut state = self.state();
        if state.closing {
            drop(waiter.send(Err(StoreError::Closed)));
        } else {
            state.compact.push_back(waiter);
            self.changed.notify_one();
        }
        told
    }

    /// Asks for the end. Who waits is told when the writer has ended.
    pub(super) fn close(&self) -> oneshot::Receiver<Result<(), StoreError>> {
        let (waiter, told) = oneshot::channel();
        let mut state = self.state();
        match &state.ended {
            Some(ended) => drop(waiter.send(ended.clone())),
            None => state.closers.push(waiter),
        }
        state.closing = true;
        self.changed.notify_one();
        told
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state().closing
    }

    pub(super) fn commits(&self) -> &Histogram {
        &self.commits
    }

    pub(super) fn health(&self) -> Health {
        self.state().health.clone()
    }

    pub(super) fn set_health(&self, set: impl FnOnce(&mut Health)) {
        set(&mut self.state().health);
    }

    /// Waits for the next thing to do. `again` is when a batch that was not taken is tried again.
    pub(super) fn next(&self, again: Option<Instant>, other: Else) -> Next {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if state.closing && state.writes.is_empty() {
                return Next::End;
            }
            if let Some(retention) = state.retention.take() {
                return Next::Retain(retention);
            }
            // While the store takes no writes, an empty batch tries whether it does again.
            let due = match again {
                None => !state.writes.is_empty(),
                Some(again) => again <= now || state.fresh || state.closing,
            };
            if due {
                state.fresh = false;
                return Next::Batch(state.batch());
            }
            if let Some(waiter) = state.compact.pop_front() {
                return Next::Compact(waiter);
            }
            if other == Else::Now {
                return Next::Tidy;
            }
            let wait = match (again, other) {
                (Some(again), _) => Some(again.saturating_duration_since(now)),
                (None, Else::WhenIdle) => Some(IDLE),
                (None, Else::Nothing | Else::Now) => None,
            };
            match wait {
                None => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Some(wait) => {
                    let (after, waited) = self
                        .changed
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner);
                    state = after;
                    let nothing_came = waited.timed_out() && state.writes.is_empty();
                    if nothing_came && other == Else::WhenIdle {
                        return Next::Tidy;
                    }
                }
            }
        }
    }

    /// A batch has been written, or its writes were refused one by one.
    pub(super) fn done(&self, batch: &[Queued]) {
        let bytes: u64 = batch.iter().map(|queued| queued.bytes).sum();
        self.state().health.queued_bytes -= bytes;
    }

    /// A batch was not taken. What is owed goes back to the front, in its order; all promises that wait are given back to
    /// be refused, those that were queued behind the batch among them: the store takes none now.
    pub(super) fn put_back(&self, batch: Vec<Queued>) -> Vec<Queued> {
        let mut state = self.state();
        let behind = std::mem::take(&mut state.writes);
        let mut refused = Vec::new();
        for queued in batch.into_iter().chain(behind) {
            match queued.write.class {
                Class::Promise => {
                    state.health.queued_bytes -= queued.bytes;
                    refused.push(queued);
                }
                Class::Owed => state.writes.push_back(queued),
            }
        }
        refused
    }

    /// Takes all that is left. After it nothing is queued.
    pub(super) fn give_up(&self) -> Vec<Queued> {
        let mut state = self.state();
        state.health.queued_bytes = 0;
        std::mem::take(&mut state.writes).into()
    }

    /// The writer is lost: all that waits is told so, and nothing can be queued after it.
    pub(super) fn abandon(&self, error: &StoreError) {
        let waiters = self.ended(&Err(error.clone()));
        for queued in self.give_up() {
            queued.tell(Err(error.clone()));
        }
        for waiter in waiters {
            drop(waiter.send(Err(error.clone())));
        }
    }

    /// The writer has ended. Gives back whom to tell.
    pub(super) fn ended(&self, how: &Result<(), StoreError>) -> Vec<Waiter> {
        let mut state = self.state();
        state.closing = true;
        state.ended = Some(how.clone());
        let compact = std::mem::take(&mut state.compact);
        let mut waiters = std::mem::take(&mut state.closers);
        waiters.extend(compact);
        waiters
    }
}

impl State {
    fn batch(&mut self) -> Vec<Queued> {
        let mut bytes = 0;
        let mut batch = Vec::new();
        while let Some(queued) = self.writes.front() {
            bytes += queued.bytes;
            if !batch.is_empty() && (bytes > BATCH_BYTES || batch.len() >= BATCH_WRITES) {
                break;
            }
            batch.extend(self.writes.pop_front());
        }
        batch
    }
}
