//! A database that is only looked at, whoever else has it open.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures::FutureExt as _;
use rusqlite::{InterruptHandle, Transaction};

use super::fault::fault;
use super::open;
use super::reads::{self, Reads};
use super::schema;
use super::tables::Tables;
use crate::ids::SessionId;
use crate::store::{
    EventPage, Health, MessageRow, Read, Retention, SessionRow, Start, Store, StoreError, UnitRow,
    Write,
};

/// A store that is only read: beside the process that has it, or while nobody has it. It creates no file and changes
/// none but, where somebody has it or was killed with it, the index that SQLite keeps in memory beside its log.
///
/// Writes fail with [`StoreError::ReadOnly`].
pub struct Look {
    path: PathBuf,
    start: Start,
    bytes: u64,
    reads: Arc<Reads>,
    reader: Option<JoinHandle<()>>,
    still: Still,
    interrupt: InterruptHandle,
}

/// What a check of a database has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// It is whole.
    Whole,
    /// It is damaged: the first of what was found.
    Damaged(String),
    /// It was not read to its end in time, and nothing wrong was found.
    Unfinished,
}

/// Whether a file that nobody writes is still what it was. There is no log beside it, so SQLite need not look for one, and
/// does not create one.
#[derive(Debug, Clone)]
struct Still(Option<Arc<Unwritten>>);

#[derive(Debug)]
struct Unwritten {
    path: PathBuf,
    file: Stamp,
}

/// Which file it was, and when it was changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl Look {
    /// Opens a database that is there, for reading.
    ///
    /// # Errors
    ///
    /// The file is not there, cannot be read, is damaged, is no store of this program, or has another schema.
    pub fn open(path: impl AsRef<Path>) -> Result<Look, StoreError> {
        let path = path.as_ref();
        let failed = |why: &str| Err(StoreError::Failed(format!("{}: {why}", path.display())));
        match fs::metadata(path) {
            Ok(found) if found.is_file() => {}
            Ok(_) => return failed("it is no file"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return failed("it is not there, so nothing was ever recorded here");
            }
            Err(error) => return failed(&error.to_string()),
        }
        let still = Still::of(path);
        let connection = match still.0 {
            Some(_) => open::unwritten_reader(path)?,
            None => open::reader(path)?,
        };
        match schema::found(&connection)? {
            0 => return failed("it is empty, so nothing was ever recorded here"),
            version if version < schema::known() => {
                return failed(
                    "it is from an earlier version of this program: serve its home once, and it is brought to this one",
                );
            }
            _ => {}
        }
        let interrupt = connection.get_interrupt_handle();
        let tables = Tables(&connection);
        let (start, (bytes, _)) = (tables.start()?, tables.bytes()?);
        still.check()?;
        let reads = Arc::new(Reads::default());
        let serving = Arc::clone(&reads);
        let reader = super::thread::start("store-reader", move || serving.serve(connection))
            .map_err(|error| StoreError::Failed(format!("no thread: {error}")))?;
        let reader = Some(reader);
        Ok(Look { path: path.to_owned(), start, bytes, reads, reader, still, interrupt })
    }

    /// The version of its schema.
    pub fn version(&self) -> u32 {
        // Of any other it is not opened.
        schema::known()
    }

    /// Reads all of it, and says whether it is whole. It takes no longer than `bound`.
    ///
    /// # Errors
    ///
    /// It cannot be read, or somebody has begun to write it meanwhile.
    pub async fn check(&self, bound: Duration) -> Result<Checked, StoreError> {
        let check: Read<String> = self.ask(|database: &Transaction<'_>| {
            let first = database.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
            first.map_err(fault)
        });
        match tokio::time::timeout(bound, check).await {
            Ok(Ok(said)) if said == "ok" => Ok(Checked::Whole),
            Ok(Ok(damage)) => Ok(Checked::Damaged(damage)),
            Ok(Err(StoreError::Corrupt(words))) => Ok(Checked::Damaged(words)),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.interrupt.interrupt();
                Ok(Checked::Unfinished)
            }
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Read<T> {
        let still = self.still.clone();
        self.reads.ask(move |database| {
            let found = read(database);
            // What was read while somebody wrote may be anything.
            still.check()?;
            found
        })
    }
}

impl Still {
    fn of(path: &Path) -> Still {
        let file = stamp(path).filter(|_| !has_log(path));
        Still(file.map(|file| Arc::new(Unwritten { path: path.to_owned(), file })))
    }

    fn check(&self) -> Result<(), StoreError> {
        let Some(unwritten) = &self.0 else { return Ok(()) };
        match stamp(&unwritten.path) {
            Some(now) if now == unwritten.file && !has_log(&unwritten.path) => Ok(()),
            _ => Err(StoreError::Locked("somebody has begun to write it meanwhile".to_owned())),
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    let changed = (found.mtime(), found.mtime_nsec());
    Some(Stamp { inode: found.ino(), length: found.len(), changed })
}

/// Whether somebody has it open for writing, or was killed with it.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    fs::symlink_metadata(log).is_ok()
}

/// The name of a file as SQLite reads it in an address.
pub(super) fn address(path: &Path) -> String {
    let mut out = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
                out.push(char::from(*byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

impl Store for Look {
    fn start(&self) -> Start {
        self.start
    }

    fn write(&self, write: Write) {
        if let Some(then) = write.then {
            then(Err(StoreError::ReadOnly(format!("{} is only read", self.path.display()))));
        }
    }

    fn sessions(&self, after: Option<SessionId>, limit: usize) -> Read<Vec<SessionRow>> {
        self.ask(move |database| reads::sessions(database, after.as_ref(), limit))
    }

    fn session(&self, id: &SessionId) -> Read<SessionRow> {
        let id = id.clone();
        self.ask(move |database| reads::session(database, &id))
    }

    fn events(&self, id: &SessionId, after: u64, limit: usize, bytes: usize) -> Read<EventPage> {
        let id = id.clone();
        self.ask(move |database| reads::events(database, &id, after, limit, bytes))
    }

    fn messages(&self, id: &SessionId, limit: usize, bytes: usize) -> Read<Vec<MessageRow>> {
        let id = id.clone();
        self.ask(move |database| reads::messages(database, &id, limit, bytes))
    }

    fn memory(&self, id: &SessionId) -> Read<Vec<(String, Vec<u8>)>> {
        let id = id.clone();
        self.ask(move |database| reads::memory(database, &id))
    }

    fn units(&self, id: &SessionId, read: usize) -> Read<Vec<UnitRow>> {
        let id = id.clone();
        self.ask(move |database| reads::units(database, &id, read))
    }

    fn kept(&self, id: &SessionId, run: &str) -> Read<Vec<String>> {
        let (id, run) = (id.clone(), run.to_owned());
        self.ask(move |database| reads::kept(database, &id, &run))
    }

    fn open_runs(&self, id: &SessionId) -> Read<Vec<(String, String)>> {
        let id = id.clone();
        self.ask(move |database| reads::open_runs(database, &id))
    }

    fn unfinished(&self) -> Read<Vec<SessionId>> {
        self.ask(|database: &Transaction<'_>| reads::unfinished(database))
    }

    fn retain(&self, _retention: Retention) {}

    fn compact(&self) -> Read<()> {
        let error = StoreError::ReadOnly(format!("{} is only read", self.path.display()));
        async move { Err(error) }.boxed()
    }

    fn health(&self) -> Health {
        Health { bytes: self.bytes, ..Health::default() }
    }

    fn close(&self) -> Read<()> {
        self.reads.close();
        async { Ok(()) }.boxed()
    }
}

impl Drop for Look {
    /// The thread is joined, so that nothing of the database is open afterwards.
    fn drop(&mut self) {
        self.reads.close();
        if let Some(reader) = self.reader.take()
            && reader.thread().id() != std::thread::current().id()
        {
            drop(reader.join());
        }
    }
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_path_is_the_same_file_as_an_address() {
        assert_eq!(address(Path::new("/a b/c?d%#é")), "file:/a%20b/c%3Fd%25%23%C3%A9");
        assert_eq!(address(Path::new(OsStr::from_bytes(b"x\xff"))), "file:x%FF");
    }
}
