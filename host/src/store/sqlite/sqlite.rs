//! The store, as its holder has it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use futures::FutureExt as _;

use super::books::Books;
use super::fault::Faults;
use super::gather::Gathering;
use super::open::{self, Options};
use super::queue::Queue;
use super::reads::{self, Reads};
use super::tables::Tables;
use super::tidy::Chores;
use super::writer::Writer;
use crate::ids::SessionId;
use crate::metrics::Times;
use crate::store::{
    EventPage, Health, MessageRow, Read, Retention, SessionRow, Start, Store, StoreError, UnitRow,
    Write,
};

/// Threads that read.
const READERS: usize = 2;

/// A store in one SQLite database.
///
/// One process may have it open at a time; who sees to that is whoever owns the folder. Dropping the store writes what is
/// queued, as [`Store::close`] does, and waits for its threads, unless it is one of them that drops it.
pub struct Sqlite {
    path: PathBuf,
    start: Start,
    queue: Arc<Queue>,
    reads: Arc<Reads>,
    /// Who must not wait for the threads.
    threads: Vec<ThreadId>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Sqlite {
    /// Opens the database, or creates it for its owner alone. An older schema is brought to this one.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written, is damaged, is no store of this program, or is from a later version of it
    /// ([`StoreError::Newer`]). It is left as it was then.
    pub fn open(path: impl AsRef<Path>, retention: Retention) -> Result<Sqlite, StoreError> {
        Sqlite::open_with(path.as_ref(), Options { retention, faults: Faults::default() })
    }

    pub(in crate::store) fn open_with(path: &Path, options: Options) -> Result<Sqlite, StoreError> {
        let connection = open::writer(path)?;
        let tables = Tables(&connection);
        let start = tables.start()?;
        let (file, used) = tables.bytes()?;
        let queue = Arc::new(Queue::default());
        queue.set_health(|health| health.bytes = file);
        let reads = Arc::new(Reads::default());
        let mut readers = Vec::new();
        let failed = |error: std::io::Error| StoreError::Failed(format!("no thread: {error}"));
        let mut start_all = || {
            for _ in 0..READERS {
                let connection = open::reader(path)?;
                let serving = Arc::clone(&reads);
                let run = move || serving.serve(connection);
                readers.push(super::thread::start("store-reader", run).map_err(failed)?);
            }
            Ok(())
        };
        if let Err(error) = start_all() {
            reads.close();
            for reader in readers {
                drop(reader.join());
            }
            return Err(error);
        }
        let mut threads: Vec<ThreadId> =
            readers.iter().map(|reader| reader.thread().id()).collect();
        let writer = Writer {
            connection,
            queue: Arc::clone(&queue),
            reads: Arc::clone(&reads),
            readers,
            retention: options.retention,
            faults: options.faults,
            books: Books::default(),
            chores: Chores::left(),
            gathering: Gathering::default(),
            used,
            pages: 0,
            since: (0, 0),
            failing: None,
        };
        let (waits, serves) = (Arc::clone(&queue), Arc::clone(&reads));
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                // A defect. Whoever waits is told, and nobody else has to wait.
                serves.close();
                waits.abandon(&StoreError::Failed("the thread that writes panicked".to_owned()));
            }
        };
        let writer = super::thread::start("store-writer", run).map_err(|error| {
            reads.close();
            failed(error)
        })?;
        threads.push(writer.thread().id());
        Ok(Sqlite {
            path: path.to_owned(),
            start,
            queue,
            reads,
            threads,
            writer: Mutex::new(Some(writer)),
        })
    }
}

impl Store for Sqlite {
    fn start(&self) -> Start {
        self.start
    }

    fn write(&self, write: Write) {
        if let Err(queued) = self.queue.push(write) {
            queued.tell(Err(StoreError::Closed));
        }
    }

    fn sessions(&self, after: Option<SessionId>, limit: usize) -> Read<Vec<SessionRow>> {
        self.reads.ask(move |database| reads::sessions(database, after.as_ref(), limit))
    }

    fn session(&self, id: &SessionId) -> Read<SessionRow> {
        let id = id.clone();
        self.reads.ask(move |database| reads::session(database, &id))
    }

    fn events(&self, id: &SessionId, after: u64, limit: usize, bytes: usize) -> Read<EventPage> {
        let id = id.clone();
        self.reads.ask(move |database| reads::events(database, &id, after, limit, bytes))
    }

    fn messages(&self, id: &SessionId, limit: usize, bytes: usize) -> Read<Vec<MessageRow>> {
        let id = id.clone();
        self.reads.ask(move |database| reads::messages(database, &id, limit, bytes))
    }

    fn memory(&self, id: &SessionId) -> Read<Vec<(String, Vec<u8>)>> {
        let id = id.clone();
        self.reads.ask(move |database| reads::memory(database, &id))
    }

    fn units(&self, id: &SessionId, read: usize) -> Read<Vec<UnitRow>> {
        let id = id.clone();
        self.reads.ask(move |database| reads::units(database, &id, read))
    }

    fn kept(&self, id: &SessionId, run: &str) -> Read<Vec<String>> {
        let (id, run) = (id.clone(), run.to_owned());
        self.reads.ask(move |database| reads::kept(database, &id, &run))
    }

    fn open_runs(&self, id: &SessionId) -> Read<Vec<(String, String)>> {
        let id = id.clone();
        self.reads.ask(move |database| reads::open_runs(database, &id))
    }

    fn unfinished(&self) -> Read<Vec<SessionId>> {
        self.reads.ask(|database| reads::unfinished(database))
    }

    fn retain(&self, retention: Retention) {
        self.queue.retain(retention);
    }

    fn compact(&self) -> Read<()> {
        let told = self.queue.compact();
        async move { told.await.unwrap_or(Err(StoreError::Closed)) }.boxed()
    }

    fn health(&self) -> Health {
        self.queue.health()
    }

    fn commit_times(&self) -> Option<Times> {
        Some(self.queue.commits().read())
    }

    fn close(&self) -> Read<()> {
        let told = self.queue.close();
        async move { told.await.unwrap_or(Err(StoreError::Closed)) }.boxed()
    }
}

impl Drop for Sqlite {
    /// The threads are joined, so that nothing of the database is open afterwards.
    fn drop(&mut self) {
        drop(self.queue.close());
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(writer), false) = (writer, self.threads.contains(&thread::current().id())) {
            drop(writer.join());
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("path", &self.path)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
