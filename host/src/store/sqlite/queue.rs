//! What waits for the writer.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::channel::oneshot;

use super::gather::Batch;
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
    /// How long transactions took that were committed, with the time for which they stayed open.
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
    /// From so many writes on the writer is to be woken.
    wakes: usize,
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
        let wakes = state.writes.len() == state.wakes;
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
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

    /// Whether no write waits.
    pub(super) fn is_empty(&self) -> bool {
        self.state().writes.is_empty()
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

    /// Looks for a write without sleeping, for so long at most: to be woken takes as long.
    pub(super) fn look_out(&self, most: Duration) {
        let begun = Instant::now();
        while self.is_empty() && begun.elapsed() < most {
            std::thread::yield_now();
        }
    }

    /// What has come for a batch in which there is room for it, at once or within that time. So many are expected.
    pub(super) fn more(&self, expected: usize, within: Duration, batch: &Batch) -> Vec<Queued> {
        let mut state = self.state();
        if state.writes.is_empty() && !state.closing && !within.is_zero() {
            // Not for each of them: whoever is woken costs those who come.
            state.wakes = expected.div_ceil(2);
            let waited = self.changed.wait_timeout(state, within);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.wakes = 0;
        }
        state.batch(batch.writes.len(), batch.bytes)
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
                state.wakes = 0;
                state.fresh = false;
                return Next::Batch(state.batch(0, 0));
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
            state.wakes = state.writes.len() + 1;
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

    /// A batch of that many bytes has been committed, with so many writes that were not refused. Says how many wait now.
    pub(super) fn done(&self, bytes: u64, written: u64) -> usize {
        let mut state = self.state();
        let health = &mut state.health;
        health.queued_bytes -= bytes;
        health.commits += 1;
        health.writes += written;
        state.writes.len()
    }

    /// A batch was not taken. What is owed goes back to the front, in its order; all promises that wait are given back to
    /// be refused, those that were queued behind the batch among them: the store takes none now.
    pub(super) fn put_back(&self, batch: Batch) -> Vec<Queued> {
        let mut state = self.state();
        let behind = std::mem::take(&mut state.writes);
        let mut refused = Vec::new();
        let batch = batch.writes.into_iter().map(|(queued, _)| queued);
        for queued in batch.chain(behind) {
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
    /// Takes what fits in a batch in which there is so much already.
    fn batch(&mut self, writes: usize, mut bytes: u64) -> Vec<Queued> {
        let mut batch = Vec::new();
        while let Some(queued) = self.writes.front() {
            bytes += queued.bytes;
            let writes = writes + batch.len();
            if writes > 0 && (bytes > BATCH_BYTES || writes >= BATCH_WRITES) {
                break;
            }
            batch.extend(self.writes.pop_front());
        }
        batch
    }
}
