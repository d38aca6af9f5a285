//! A store that can die with its process, and fail.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use checkrein::ids::SessionId;
use checkrein::store::{
    Change, Class, EventPage, Health, Memory, MessageRow, Read, Retention, SessionRow, Sqlite,
    Start, Store, StoreError, Then, UnitRow, Write,
};

/// A store of a process that ends when the test says so, over one that outlives it. What is written after the end never
/// happened, and nobody hears of it.
pub struct Mortal {
    under: Arc<dyn Store>,
    /// Where it is on the disk, if it is.
    path: Option<PathBuf>,
    state: Mutex<State>,
    /// The numbers that are free: what the store beneath says only when it is opened.
    free: Mutex<Start>,
}

enum State {
    Alive,
    /// Those who wait for it wait for ever, as in a process that has ended.
    Dead(Vec<Then>),
    /// Takes no writes: what is owed waits.
    Failing(StoreError, VecDeque<Write>),
    /// Answers nobody: all that is written waits.
    Stalled(VecDeque<Write>),
}

impl fmt::Debug for Mortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mortal").finish_non_exhaustive()
    }
}

impl Mortal {
    /// A life on a new store in memory that keeps everything.
    pub fn new() -> Arc<Mortal> {
        Mortal::over(Arc::new(Memory::new(Retention::default())), None)
    }

    /// A life on a database, which the next life opens anew.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn on_disk(path: impl Into<PathBuf>) -> Result<Arc<Mortal>, StoreError> {
        let path = path.into();
        let under = Sqlite::open(&path, Retention::default())?;
        Ok(Mortal::over(Arc::new(under), Some(path)))
    }

    fn over(under: Arc<dyn Store>, path: Option<PathBuf>) -> Arc<Mortal> {
        let free = Mutex::new(under.start());
        Arc::new(Mortal { under, path, state: Mutex::new(State::Alive), free })
    }

    /// The process ends.
    pub fn dies(&self) {
        *self.lock() = State::Dead(Vec::new());
    }

    /// Another process opens what this one has left.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn next_life(&self) -> Result<Arc<Mortal>, StoreError> {
        if let Some(path) = &self.path {
            return Mortal::on_disk(path);
        }
        let next = Mortal::over(Arc::clone(&self.under), None);
        *lock(&next.free) = *lock(&self.free);
        Ok(next)
    }

    /// Takes no writes from now on.
    pub fn fails(&self, error: StoreError) {
        *self.lock() = State::Failing(error, VecDeque::new());
    }

    /// Is slow from now on: whatever is written waits.
    pub fn stalls(&self) {
        *self.lock() = State::Stalled(VecDeque::new());
    }

    /// Takes writes again, and first those that it owes.
    pub fn heals(&self) {
        loop {
            let next = {
                let mut state = self.lock();
                let (State::Failing(_, owed) | State::Stalled(owed)) = &mut *state else { return };
                let next = owed.pop_front();
                if next.is_none() {
                    *state = State::Alive;
                }
                next
            };
            match next {
                Some(write) => self.pass(write),
                None => return,
            }
        }
    }

    /// How many writes it owes.
    pub fn owes(&self) -> usize {
        match &*self.lock() {
            State::Failing(_, owed) | State::Stalled(owed) => owed.len(),
            State::Alive | State::Dead(_) => 0,
        }
    }

    fn pass(&self, write: Write) {
        let mut free = lock(&self.free);
        for change in &write.changes {
            if let Change::UnitAccepted { unit, .. } = change {
                free.next_unit = free.next_unit.max(unit + 1);
            } else if let Change::Created { .. } = change {
                free.next_session += 1;
            }
        }
        drop(free);
        self.under.write(write);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for Mortal {
    fn start(&self) -> Start {
        *lock(&self.free)
    }

    fn write(&self, write: Write) {
        let refused = match &mut *self.lock() {
            State::Alive => None,
            State::Dead(waiting) => {
                waiting.extend(write.then);
                return;
            }
            State::Stalled(owed) => {
                owed.push_back(write);
                return;
            }
            State::Failing(_, owed) if write.class == Class::Owed => {
                owed.push_back(write);
                return;
            }
            State::Failing(error, _) => Some(error.clone()),
        };
        match refused {
            None => self.pass(write),
            Some(error) => write.then.into_iter().for_each(|then| then(Err(error.clone()))),
        }
    }

    fn sessions(&self, after: Option<SessionId>, limit: usize) -> Read<Vec<SessionRow>> {
        self.under.sessions(after, limit)
    }

    fn session(&self, id: &SessionId) -> Read<SessionRow> {
        self.under.session(id)
    }

    fn events(&self, id: &SessionId, after: u64, limit: usize, bytes: usize) -> Read<EventPage> {
        self.under.events(id, after, limit, bytes)
    }

    fn messages(&self, id: &SessionId, limit: usize, bytes: usize) -> Read<Vec<MessageRow>> {
        self.under.messages(id, limit, bytes)
    }

    fn memory(&self, id: &SessionId) -> Read<Vec<(String, Vec<u8>)>> {
        self.under.memory(id)
    }

    fn units(&self, id: &SessionId, read: usize) -> Read<Vec<UnitRow>> {
        self.under.units(id, read)
    }

    fn kept(&self, id: &SessionId, run: &str) -> Read<Vec<String>> {
        self.under.kept(id, run)
    }

    fn open_runs(&self, id: &SessionId) -> Read<Vec<(String, String)>> {
        self.under.open_runs(id)
    }

    fn unfinished(&self) -> Read<Vec<SessionId>> {
        self.under.unfinished()
    }

    fn retain(&self, retention: Retention) {
        self.under.retain(retention);
    }

    fn compact(&self) -> Read<()> {
        self.under.compact()
    }

    fn health(&self) -> Health {
        self.under.health()
    }

    fn close(&self) -> Read<()> {
        self.under.close()
    }
}
