//! The book of one session: which units it has out, and which have ended and wait to be read.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::id::DelegationId;
use super::outcome::{ChildStatus, Completion, TaskOutcome, UnitStatus};
use super::slots::Child;
use crate::ids::{SessionId, WorkId};
use crate::work::{Stop, StopSignal, Tree};

/// How many units that have been read are remembered, so that asking for one gets a terminal answer (W7).
const REMEMBERED: usize = 1_024;

/// The units of one session, from the line to the acknowledged completion. Cheap to clone; every clone is the same
/// book. It holds no work: what runs is in the tree, and is stopped there.
#[derive(Clone, Default)]
pub struct Completions {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Protects the book. Nothing is called under it.
    book: Mutex<Book>,
    /// Woken whenever a unit has ended or is no longer there.
    changed: Notify,
}

#[derive(Default)]
struct Book {
    /// In line, or accepted and not ended.
    open: BTreeMap<DelegationId, Open>,
    /// Ended and not acknowledged, in the order of ending. Never shortened but by an acknowledgement.
    pending: VecDeque<Arc<Completion>>,
    /// Acknowledged, oldest first.
    read: VecDeque<(DelegationId, UnitStatus)>,
}

struct Open {
    progress: Arc<Progress>,
    /// The unit's node once it is accepted; none while it is in line.
    work: Option<WorkId>,
}

impl Completions {
    /// A book with nothing in it.
    pub fn new() -> Completions {
        Completions::default()
    }

    /// The book of a session as it was written down: what has ended and is not acknowledged, in the order of ending, and what was
    /// acknowledged, the oldest first.
    pub fn restored(
        pending: impl IntoIterator<Item = Completion>,
        read: impl IntoIterator<Item = (DelegationId, UnitStatus)>,
    ) -> Completions {
        let pending = pending.into_iter().map(Arc::new).collect();
        let mut read: VecDeque<_> = read.into_iter().collect();
        read.drain(..read.len().saturating_sub(REMEMBERED));
        let book = Mutex::new(Book { open: BTreeMap::new(), pending, read });
        Completions { shared: Arc::new(Shared { book, changed: Notify::new() }) }
    }

    /// Those that have ended and are not acknowledged, in the order of ending.
    pub fn list(&self) -> Vec<Arc<Completion>> {
        self.lock().pending.iter().cloned().collect()
    }

    /// The oldest that is not acknowledged, as soon as there is one. The same one again until it is acknowledged:
    /// delivery is at least once (C6).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken out.
    pub async fn next(&self) -> Arc<Completion> {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            let first = self.lock().pending.front().cloned();
            match first {
                Some(completion) => return completion,
                None => changed.await,
            }
        }
    }

    /// One that has ended and is not acknowledged.
    pub fn pending(&self, id: DelegationId) -> Option<Arc<Completion>> {
        self.lock().pending.iter().find(|completion| completion.id == id).cloned()
    }

    /// The completion has been delivered. Gives it back once, and then never again.
    pub fn acknowledge(&self, id: DelegationId) -> Option<Arc<Completion>> {
        let mut book = self.lock();
        let place = book.pending.iter().position(|completion| completion.id == id)?;
        let completion = book.pending.remove(place)?;
        if book.read.len() == REMEMBERED {
            book.read.pop_front();
        }
        book.read.push_back((id, completion.status));
        Some(completion)
    }

    /// How those units stand; with no names, all that are open or not acknowledged.
    ///
    /// # Errors
    ///
    /// [`UnknownUnit`] for a name that this session does not own.
    pub fn status(&self, ids: &[DelegationId]) -> Result<Vec<UnitView>, UnknownUnit> {
        let book = self.lock();
        if ids.is_empty() {
            let ended = book.pending.iter().map(|completion| UnitView::ended(completion));
            return Ok(book.open.iter().map(|(id, open)| open.view(*id)).chain(ended).collect());
        }
        ids.iter().map(|id| book.view(*id)).collect()
    }

    /// How many bytes of text [`status`](Completions::status) would give.
    ///
    /// # Errors
    ///
    /// [`UnknownUnit`] for a name that this session does not own.
    pub fn weight(&self, ids: &[DelegationId]) -> Result<usize, UnknownUnit> {
        let book = self.lock();
        if ids.is_empty() {
            let ended = book.pending.iter().map(|completion| weight(&completion.entries));
            return Ok(book.open.values().map(|open| open.progress.weight()).chain(ended).sum());
        }
        ids.iter().map(|id| book.weight(*id)).sum()
    }

    /// Waits until one of those units has ended, and says how. Acknowledges nothing.
    ///
    /// # Errors
    ///
    /// [`UnknownUnit`] for a name that this session does not own, at once (W7).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken out.
    pub async fn ended(&self, ids: &[DelegationId]) -> Result<UnitView, UnknownUnit> {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if ids.is_empty() {
                return Err(UnknownUnit { id: None });
            }
            let ended = {
                let book = self.lock();
                let states = ids.iter().map(|id| Ok((*id, book.state(*id)?)));
                let states: Vec<(DelegationId, UnitState)> = states.collect::<Result<_, _>>()?;
                let ended = states.into_iter().find(|(_, state)| state.is_terminal());
                ended.map(|(id, _)| book.view(id)).transpose()?
            };
            match ended {
                Some(view) => return Ok(view),
                None => changed.await,
            }
        }
    }

    /// Stops those units, and returns how many of their children the stop changed. A unit in line leaves the line by
    /// it; one that has ended is left alone.
    ///
    /// # Errors
    ///
    /// [`UnknownUnit`] for a name that this session does not own; then nothing was stopped.
    pub fn stop(
        &self,
        tree: &Tree,
        ids: &[DelegationId],
        stop: &Stop,
    ) -> Result<usize, UnknownUnit> {
        let targets: Vec<(Option<WorkId>, Arc<Progress>)> = {
            let book = self.lock();
            for id in ids {
                book.state(*id)?;
            }
            let open = ids.iter().filter_map(|id| book.open.get(id));
            open.map(|open| (open.work, Arc::clone(&open.progress))).collect()
        };
        let mut reached = 0;
        for (unit, progress) in targets {
            // The children by name: they may change their owner at this very moment. Who is gone has ended.
            for child in progress.children() {
                reached += usize::from(tree.stop(child, stop).is_ok_and(|changed| changed > 0));
            }
            if let Some(unit) = unit {
                tree.stop(unit, stop).ok();
            }
        }
        Ok(reached)
    }

    /// How many units are in line or have not ended.
    pub fn running(&self) -> usize {
        self.lock().open.len()
    }

    /// How many units are open or unread.
    pub fn unread(&self) -> usize {
        let book = self.lock();
        book.open.len() + book.pending.len()
    }

    /// Enters a unit that waits in line or is about to be accepted. It is gone again when the value is dropped
    /// before the unit was accepted.
    pub(super) fn enter(&self, progress: Arc<Progress>, bound: u64) -> Option<Entered> {
        let mut book = self.lock();
        let unread = book.open.len() + book.pending.len();
        if u64::try_from(unread).unwrap_or(u64::MAX) >= bound {
            return None;
        }
        let id = progress.id;
        book.open.insert(id, Open { progress, work: None });
        Some(Entered { completions: self.clone(), id, accepted: false })
    }

    /// A unit has ended. Only the first word on it counts.
    pub(super) fn complete(&self, completion: Arc<Completion>) {
        let mut book = self.lock();
        if book.open.remove(&completion.id).is_none() {
            return;
        }
        book.pending.push_back(completion);
        drop(book);
        self.shared.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.shared.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions").finish_non_exhaustive()
    }
}

impl Book {
    fn state(&self, id: DelegationId) -> Result<UnitState, UnknownUnit> {
        if let Some(open) = self.open.get(&id) {
            return Ok(open.state());
        }
        let ended = self.pending.iter().find(|completion| completion.id == id);
        let ended = ended.map(|completion| completion.status);
        let read = || self.read.iter().find(|(read, _)| *read == id).map(|(_, status)| *status);
        ended.or_else(read).map(UnitState::from).ok_or(UnknownUnit { id: Some(id) })
    }

    fn weight(&self, id: DelegationId) -> Result<usize, UnknownUnit> {
        self.state(id)?;
        let open = self.open.get(&id).map(|open| open.progress.weight());
        let ended = || self.pending.iter().find(|completion| completion.id == id);
        Ok(open.or_else(|| ended().map(|completion| weight(&completion.entries))).unwrap_or(0))
    }

    fn view(&self, id: DelegationId) -> Result<UnitView, UnknownUnit> {
        if let Some(open) = self.open.get(&id) {
            return Ok(open.view(id));
        }
        if let Some(completion) = self.pending.iter().find(|completion| completion.id == id) {
            return Ok(UnitView::ended(completion));
        }
        let read =
            self.read.iter().find(|(read, _)| *read == id).ok_or(UnknownUnit { id: Some(id) })?;
        Ok(UnitView { id, state: read.1.into(), entries: Vec::new() })
    }
}

/// Bytes of the texts of entries.
fn weight(entries: &[TaskOutcome]) -> usize {
    entries.iter().map(|entry| entry.output.len() + entry.detail.len()).sum()
}

impl Open {
    fn view(&self, id: DelegationId) -> UnitView {
        UnitView { id, state: self.state(), entries: self.progress.so_far() }
    }

    fn state(&self) -> UnitState {
        if self.work.is_some() { UnitState::Running } else { UnitState::Queued }
    }
}

/// A unit's line in the book before it is accepted.
#[derive(Debug)]
pub(super) struct Entered {
    completions: Completions,
    id: DelegationId,
    accepted: bool,
}

impl Entered {
    /// The unit is accepted: from now on only its completion ends the entry.
    pub(super) fn accept(mut self, work: WorkId) {
        if let Some(open) = self.completions.lock().open.get_mut(&self.id) {
            open.work = Some(work);
        }
        self.accepted = true;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.accepted {
            self.completions.lock().open.remove(&self.id);
            self.completions.shared.changed.notify_waiters();
        }
    }
}

/// What is known of a unit's children so far.
pub(super) struct Progress {
    pub(super) id: DelegationId,
    pub(super) origin: SessionId,
    /// In task order.
    seats: Mutex<Vec<Seat>>,
}

struct Seat {
    task: u32,
    goal: String,
    child: WorkId,
    signal: StopSignal,
    outcome: Option<TaskOutcome>,
}

impl Progress {
    pub(super) fn new(id: DelegationId, origin: SessionId, children: &[Child]) -> Progress {
        let seat = |child: &Child| Seat {
            task: child.task,
            goal: child.goal.clone(),
            child: child.work.id(),
            signal: child.work.signal(),
            outcome: None,
        };
        Progress { id, origin, seats: Mutex::new(children.iter().map(seat).collect()) }
    }

    /// The first outcome of a task stays; one that is not the unit's is left out.
    pub(super) fn record(&self, outcome: TaskOutcome) {
        let mut seats = self.lock();
        let open = |seat: &&mut Seat| seat.task == outcome.task && seat.outcome.is_none();
        if let Some(seat) = seats.iter_mut().find(open) {
            seat.outcome = Some(outcome);
        }
    }

    /// The completion, as far as it is known: a child of which nothing was recorded was stopped, or lost.
    pub(super) fn completion(&self) -> Completion {
        let (entries, goals): (Vec<TaskOutcome>, Vec<String>) =
            self.lock().iter().map(|seat| (seat.entry(), seat.goal.clone())).unzip();
        let status = UnitStatus::of(&entries);
        Completion { id: self.id, origin: self.origin.clone(), status, entries, goals }
    }

    pub(super) fn signals(&self) -> Vec<StopSignal> {
        self.lock().iter().map(|seat| seat.signal.clone()).collect()
    }

    fn weight(&self) -> usize {
        let texts = |outcome: &TaskOutcome| outcome.output.len() + outcome.detail.len();
        self.lock().iter().filter_map(|seat| seat.outcome.as_ref()).map(texts).sum()
    }

    fn so_far(&self) -> Vec<TaskOutcome> {
        self.lock().iter().filter_map(|seat| seat.outcome.clone()).collect()
    }

    fn children(&self) -> Vec<WorkId> {
        self.lock().iter().map(|seat| seat.child).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    fn entry(&self) -> TaskOutcome {
        let lost =
            |status, detail| TaskOutcome { task: self.task, status, output: String::new(), detail };
        match (&self.outcome, self.signal.stop()) {
            (Some(outcome), _) => outcome.clone(),
            (None, Some(stop)) => {
                let words = format!("stopped by {}: {}", stop.issuer(), stop.message());
                lost(ChildStatus::Interrupted, words)
            }
            (None, None) => lost(
                ChildStatus::Unknown,
                "the host lost this task before it had a result".to_owned(),
            ),
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("id", &self.id).finish_non_exhaustive()
    }
}

/// How a unit stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitView {
    /// Its name.
    pub id: DelegationId,
    /// Where it stands.
    pub state: UnitState,
    /// What became of the tasks that have ended, in task order. Empty for a unit that has been acknowledged.
    pub entries: Vec<TaskOutcome>,
}

impl UnitView {
    fn ended(completion: &Completion) -> UnitView {
        UnitView {
            id: completion.id,
            state: completion.status.into(),
            entries: completion.entries.clone(),
        }
    }
}

/// Where a unit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnitState {
    /// It waits in line for a slot, and is still the turn's.
    Queued,
    /// It is accepted and has not ended.
    Running,
    /// See [`UnitStatus::Completed`].
    Completed,
    /// See [`UnitStatus::Interrupted`].
    Interrupted,
    /// See [`UnitStatus::Unknown`].
    Unknown,
}

impl UnitState {
    /// The name, as guests read it.
    pub fn as_str(self) -> &'static str {
        match self {
            UnitState::Queued => "queued",
            UnitState::Running => "running",
            UnitState::Completed => "completed",
            UnitState::Interrupted => "interrupted",
            UnitState::Unknown => "unknown",
        }
    }

    /// Whether it stays so.
    pub fn is_terminal(self) -> bool {
        !matches!(self, UnitState::Queued | UnitState::Running)
    }
}

impl From<UnitStatus> for UnitState {
    fn from(status: UnitStatus) -> UnitState {
        match status {
            UnitStatus::Completed => UnitState::Completed,
            UnitStatus::Interrupted => UnitState::Interrupted,
            UnitStatus::Unknown => UnitState::Unknown,
        }
    }
}

/// This session has no such unit: it never had, it was rejected, or it was read long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownUnit {
    /// The name; none when no unit was named where one is needed.
    pub id: Option<DelegationId>,
}

impl std::error::Error for UnknownUnit {}

impl fmt::Display for UnknownUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(
                f,
                "this session has no delegation {id}: it was never accepted, or was read long ago"
            ),
            None => f.write_str("no delegation was named; name at least one"),
        }
    }
}
