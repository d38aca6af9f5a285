//! What the daemon has acknowledged to its clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use serde_json::Value;

/// The books of all sessions, over all lives of the daemon.
#[derive(Default)]
pub(super) struct Book {
    /// By the path of the session.
    sessions: Mutex<BTreeMap<String, Account>>,
    numbers: AtomicU64,
    /// When the last daemon was dead for certain.
    died_ms: AtomicU64,
    /// Requests to open a session that nobody has answered.
    pub(super) unanswered: AtomicU64,
    seen: Mutex<BTreeMap<String, u64>>,
}

/// The account of one session.
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    pub(super) delivery: String,
    /// So many requests to delete it have no answer yet.
    pub(super) deleting: u32,
    /// That was acknowledged.
    pub(super) deleted: bool,
    /// The text of each event that was seen.
    pub(super) events: BTreeMap<u64, String>,
    pub(super) turns: BTreeMap<u64, Acknowledged>,
    /// The completions that were read, by unit.
    pub(super) completions: BTreeMap<String, Value>,
    /// Somebody has asked to acknowledge them.
    pub(super) acknowledging: BTreeSet<String>,
    pub(super) acknowledged: BTreeSet<String>,
    pub(super) memory: BTreeMap<String, Remembered>,
}

impl Account {
    fn may_be_gone(&self) -> bool {
        self.deleted || self.deleting > 0
    }
}

/// What was acknowledged of a turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Acknowledged {
    pub(super) goal: String,
    /// Its status and its output.
    pub(super) ended: Option<(String, String)>,
}

/// A value that only counts up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Remembered {
    /// The highest that is known to be recorded.
    pub(super) known: u64,
    /// The highest that anybody has asked for.
    pub(super) asked: u64,
}

impl Book {
    /// A number that was not given before.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn died(&self, at_ms: u64) {
        self.died_ms.store(at_ms, Ordering::SeqCst);
    }

    pub(super) fn died_ms(&self) -> u64 {
        self.died_ms.load(Ordering::SeqCst)
    }

    /// A session was opened. Its name must be new.
    pub(super) fn opened(&self, path: &str, delivery: &str) -> Result<()> {
        let account = Account { delivery: delivery.to_owned(), ..Account::default() };
        let before = self.lock().insert(path.to_owned(), account);
        ensure!(before.is_none(), "the name of {path} was used before");
        Ok(())
    }

    /// Writes something in the account of a session.
    pub(super) fn note<T>(&self, path: &str, write: impl FnOnce(&mut Account) -> T) -> T {
        write(self.lock().entry(path.to_owned()).or_default())
    }

    /// The sessions that nobody has asked to delete, in their order.
    pub(super) fn living(&self) -> Vec<String> {
        let sessions = self.lock();
        let living = sessions.iter().filter(|(_, account)| !account.may_be_gone());
        living.map(|(path, _)| path.clone()).collect()
    }

    /// Whether somebody has asked to delete it.
    pub(super) fn may_be_gone(&self, path: &str) -> bool {
        self.lock().get(path).is_some_and(Account::may_be_gone)
    }

    pub(super) fn account(&self, path: &str) -> Account {
        self.lock().get(path).cloned().unwrap_or_default()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Something of interest has happened.
    pub(super) fn saw(&self, what: &str) {
        *lock(&self.seen).entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn summary(&self) -> String {
        let seen = lock(&self.seen);
        let seen: Vec<String> =
            seen.iter().map(|(what, count)| format!("{what} {count}")).collect();
        format!("{} sessions; {}", self.lock().len(), seen.join(", "))
    }

    /// A test in which nothing happens shows nothing.
    pub(super) fn has_seen_everything(&self) -> Result<()> {
        let seen = lock(&self.seen);
        for what in [
            "session opened",
            "session deleted",
            "turn recorded",
            "turn ended",
            "completion read",
            "completion acknowledged",
            "turn lost",
            "unit lost",
            "completion brought",
            "stop",
        ] {
            ensure!(seen.contains_key(what), "never seen: {what}; {seen:?}");
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        lock(&self.sessions)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
