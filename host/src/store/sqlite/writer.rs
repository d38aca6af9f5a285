//! The thread that writes.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};

use super::books::{Books, Draft, Standing};
use super::fault::{Faults, Point, fault};
use super::gather::{Batch, Gathering};
use super::journal::Append;
use super::queue::{Else, Next, Queue, Queued, Waiter};
use super::reads::Reads;
use super::tables::{Stands, Tables};
use super::tidy::{Chores, Slack};
use crate::store::memory::now_ms;
use crate::store::rules::{Bounds, Step, number_after, of_the_write, plan};
use crate::store::{Recorded, Retention, StoreError};

/// Between two attempts, at first and at last.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(2);

/// Pages in the write-ahead log from which they are brought home when nobody writes, and in any case.
const CHECKPOINT: u64 = 1_000;
const CHECKPOINT_NOW: u64 = 4_000;

/// While writes wait it is looked how large the database is after so many commits, after so many bytes of them, and after
/// each commit when it is that near to its bound.
const LOOK_COMMITS: u32 = 16;
const LOOK_BYTES: u64 = 256 << 10;
const NEAR: u64 = 1 << 20;

/// The writer's own.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) queue: Arc<Queue>,
    pub(super) reads: Arc<Reads>,
    pub(super) readers: Vec<JoinHandle<()>>,
    pub(super) retention: Retention,
    pub(super) faults: Faults,
    pub(super) books: Books,
    pub(super) chores: Chores,
    pub(super) gathering: Gathering,
    /// Bytes that are in use, and pages that wait in the write-ahead log, as it was looked last.
    pub(super) used: u64,
    pub(super) pages: u64,
    /// Commits since then, and their bytes.
    pub(super) since: (u32, u64),
    pub(super) failing: Option<Failure>,
}

/// Why nothing can be written, and when it is tried again.
#[derive(Debug)]
pub(super) struct Failure {
    error: StoreError,
    again: Instant,
    wait: Duration,
}

/// What became of each write of a batch, once the commit is there.
type Outcomes = Vec<Result<Recorded, StoreError>>;

impl Writer {
    /// Until the store is closed and nothing is left to be written.
    pub(super) fn run(mut self) {
        let mut waiting: Vec<Waiter> = Vec::new();
        let mut ended = Ok(());
        loop {
            let other = self.other(&waiting);
            match self.queue.next(self.failing.as_ref().map(|failing| failing.again), other) {
                Next::Batch(batch) => {
                    self.batch(batch);
                    // Once the store is closing one attempt has to do.
                    if let (Some(failing), true) = (&self.failing, self.queue.is_closing()) {
                        let error = failing.error.clone();
                        let left = self.queue.give_up();
                        if !left.is_empty() {
                            ended = Err(error.clone());
                        }
                        tell(left, &error);
                    }
                }
                Next::Retain(retention) => {
                    self.retention = retention;
                    self.chores.all();
                }
                Next::Compact(waiter) => {
                    self.chores.all();
                    waiting.push(waiter);
                }
                Next::Tidy => self.tidy(&mut waiting),
                Next::End => break,
            }
        }
        self.end(&ended, waiting);
    }

    fn other(&self, waiting: &[Waiter]) -> Else {
        if !waiting.is_empty() {
            Else::Now
        } else if self.failing.is_none() && (self.chores.any() || self.pages >= CHECKPOINT) {
            Else::WhenIdle
        } else {
            Else::Nothing
        }
    }

    fn batch(&mut self, first: Vec<Queued>) {
        let mut batch = Batch::default();
        batch.add(first);
        let begun = Instant::now();
        match self.commit(&mut batch) {
            Ok(outcomes) => {
                let took = begun.elapsed();
                self.queue.commits().took(took);
                self.recovered();
                self.chores.go_on();
                let written = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
                let waiting = self.queue.done(batch.bytes, written);
                self.since = (self.since.0 + 1, self.since.1 + batch.bytes);
                let told = batch.promises();
                for ((queued, _), outcome) in batch.writes.into_iter().zip(outcomes) {
                    queued.tell(outcome);
                }
                self.gathering.told(told, waiting, took, &self.queue);
                if self.has_to_look() || self.queue.is_empty() {
                    self.measure();
                }
                if self.pages >= CHECKPOINT_NOW {
                    self.checkpoint();
                }
            }
            Err(error) => {
                self.failed(error.clone());
                tell(self.queue.put_back(batch), &error);
            }
        }
    }

    fn has_to_look(&self) -> bool {
        let (commits, bytes) = self.since;
        commits >= LOOK_COMMITS
            || bytes >= LOOK_BYTES
            || self.used.saturating_add(NEAR) >= self.retention.bytes
    }

    /// Writes a batch in one transaction. A write that does not fit is left out, and the others are written. An error is
    /// one of the whole store, and nothing is written.
    fn commit(&mut self, batch: &mut Batch) -> Result<Outcomes, StoreError> {
        loop {
            match self.attempt(batch) {
                Ok((outcomes, draft)) => {
                    self.books.commit(draft);
                    return Ok(outcomes);
                }
                // The database itself did not take one write: it goes, and the others are tried again.
                Err((Some(index), error)) if of_the_write(&error) => {
                    match batch.writes.get_mut(index) {
                        Some((_, refused)) => *refused = Some(error),
                        None => return Err(error),
                    }
                }
                Err((_, error)) => {
                    // A commit that failed half-way is looked at anew.
                    self.books.forget();
                    return Err(match error {
                        error if of_the_write(&error) => StoreError::Failed(error.to_string()),
                        error => error,
                    });
                }
            }
        }
    }

    /// One attempt, and at which write it failed.
    fn attempt(
        &mut self,
        batch: &mut Batch,
    ) -> Result<(Outcomes, Draft), (Option<usize>, StoreError)> {
        let whole = |error| (None, error);
        self.faults.at(Point::Begin, &self.connection).map_err(whole)?;
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK").map_err(|error| whole(fault(error)))?;
        }
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| whole(fault(error)))?;
        let tables = Tables(&transaction);
        let mut draft = self.books.draft(&tables).map_err(whole)?;
        let mut journal = Append::new(tables).map_err(whole)?;
        let mut stands = Stands::new(tables).map_err(whole)?;
        let mut outcomes = Vec::with_capacity(batch.writes.len());
        let at_ms = now_ms();
        while outcomes.len() < batch.writes.len() || self.gathering.more(batch, &self.queue) {
            let index = outcomes.len();
            let Some((queued, refused)) = batch.writes.get(index) else { break };
            if let Some(error) = refused {
                outcomes.push(Err(error.clone()));
                continue;
            }
            let here = |error| (Some(index), error);
            let id = &queued.write.session;
            let known = self.books.known(&draft, &tables, id).map_err(whole)?;
            let bounds = Bounds { retention: &self.retention, used: self.used };
            let mut facts = tables;
            let planned = match plan(id, &queued.write.changes, known, &bounds, &mut facts) {
                Ok(planned) => planned,
                Err(error) if of_the_write(&error) => {
                    outcomes.push(Err(error));
                    continue;
                }
                Err(error) => return Err(whole(error)),
            };
            let mut head = planned.head;
            let mut standing = Standing::Here(head.clone(), true);
            let mut happened_ms = at_ms;
            for step in &planned.steps {
                self.faults.at(Point::Step, &transaction).map_err(here)?;
                tables.carry_out(id, &mut head, step, happened_ms, &mut journal).map_err(here)?;
                match step {
                    Step::Create { .. } => draft.counters.created(head.key, id),
                    Step::AddUnit { unit, .. } => draft.counters.added(*unit),
                    Step::Delete => standing = Standing::Gone,
                    Step::At { ms } => happened_ms = *ms,
                    Step::CreatedBefore { .. }
                    | Step::Event { .. }
                    | Step::Message { .. }
                    | Step::Remember { .. }
                    | Step::OpenRun { .. }
                    | Step::CloseRun { .. }
                    | Step::Keep { .. }
                    | Step::DropKept { .. }
                    | Step::RemoveUnit { .. }
                    | Step::Child { .. }
                    | Step::EndUnit { .. }
                    | Step::ReadUnit { .. }
                    | Step::Deliver { .. } => {}
                }
            }
            outcomes.push(Ok(Recorded::new(head.last_seq, at_ms)));
            match &mut standing {
                Standing::Here(stands, _) => *stands = head,
                Standing::Gone => stands.write(&head, None, Some(at_ms)).map_err(here)?,
            }
            draft.heads.insert(id.clone(), standing);
        }
        self.faults.at(Point::Heads, &transaction).map_err(whole)?;
        for (id, standing) in &mut draft.heads {
            match standing {
                Standing::Here(head, true) => {
                    let more = Slack::Some.trim(&tables, head, &self.retention).map_err(whole)?;
                    stands.write(head, self.books.committed(id), Some(at_ms)).map_err(whole)?;
                    self.chores.look_at(id, head, &self.retention, more);
                }
                Standing::Here(_, false) => {}
                Standing::Gone => self.chores.sweep(),
            }
        }
        tables.count(&draft.before, &draft.counters).map_err(whole)?;
        // Only what writes something shows that the store takes writes.
        if (batch.writes.is_empty() || self.failing.is_some())
            && outcomes.iter().all(Result::is_err)
        {
            tables.touch().map_err(whole)?;
        }
        self.faults.at(Point::Commit, &transaction).map_err(whole)?;
        drop((journal, stands));
        transaction.commit().map_err(|error| whole(fault(error)))?;
        Ok((outcomes, draft))
    }

    /// Looks how large the database is now, and says so.
    pub(super) fn measure(&mut self) {
        self.since = (0, 0);
        let tables = Tables(&self.connection);
        let (bytes, pages) = (tables.bytes(), tables.checkpoint("NOOP"));
        // What cannot be told now is told after the next commit.
        self.pages = pages.unwrap_or(self.pages);
        self.queue.set_health(|health| {
            if let Ok((file, used)) = bytes {
                health.bytes = file;
                self.used = used;
            }
        });
    }

    fn recovered(&mut self) {
        if self.failing.take().is_some() {
            tracing::info!("the store takes writes again");
            self.queue.set_health(|health| health.failing = None);
        }
    }

    fn failed(&mut self, error: StoreError) {
        let now = Instant::now();
        let said = error.to_string();
        let wait = match &self.failing {
            // An attempt that came early, because something was queued, does not count.
            Some(before) if before.again > now => before.wait,
            Some(before) => (before.wait * 2).min(BACKOFF_MOST),
            None => BACKOFF,
        };
        if self.failing.as_ref().is_none_or(|before| before.error != error) {
            tracing::warn!(why = %said, "the store takes no writes");
        }
        self.queue.set_health(|health| health.failing = Some(said));
        self.failing = Some(Failure { error, again: now + wait, wait });
    }

    /// Brings pages home from the write-ahead log. What fails here is tried again later, and loses nothing.
    pub(super) fn checkpoint(&mut self) {
        self.pages = 0;
        if let Err(error) = Tables(&self.connection).checkpoint("PASSIVE") {
            tracing::debug!(%error, "the write-ahead log stays");
        }
    }

    /// Readers first, so that the last connection is this one: it brings everything home and takes the log away.
    fn end(mut self, ended: &Result<(), StoreError>, waiting: Vec<Waiter>) {
        self.reads.close();
        for reader in self.readers.drain(..) {
            drop(reader.join());
        }
        if let Err(error) = Tables(&self.connection).checkpoint("TRUNCATE") {
            tracing::warn!(%error, "the write-ahead log stays beside the database");
        }
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the database was not closed in order");
        }
        for waiter in waiting {
            drop(waiter.send(Err(StoreError::Closed)));
        }
        for waiter in self.queue.ended(ended) {
            drop(waiter.send(ended.clone()));
        }
    }
}

impl super::tables::Counters {
    fn created(&mut self, key: u64, id: &crate::ids::SessionId) {
        self.last_key = self.last_key.max(key);
        self.next_session = self.next_session.max(number_after(key, id));
    }

    fn added(&mut self, unit: u64) {
        self.next_unit = self.next_unit.max(unit + 1);
    }
}

fn tell(refused: Vec<Queued>, error: &StoreError) {
    for queued in refused {
        queued.tell(Err(error.clone()));
    }
}
