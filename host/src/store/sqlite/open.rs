//! From a path to connections that are fit for use.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::fault::{Faults, fault};
use super::schema;
use crate::store::{Retention, StoreError};

/// What a store is opened with.
#[derive(Debug, Clone)]
pub(in crate::store) struct Options {
    pub(in crate::store) retention: Retention,
    pub(in crate::store) faults: Faults,
}

/// How long a statement waits for another process.
const BUSY: Duration = Duration::from_millis(250);

/// Prepared statements that a connection keeps.
const STATEMENTS: usize = 64;

/// A connection that writes, with the schema of this version.
pub(super) fn writer(path: &Path) -> Result<Connection, StoreError> {
    let version = look(path)?;
    let mut connection = opened(path)?;
    connection.busy_timeout(BUSY).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // SQLite opens what may not be written for reading, and says nothing.
    if connection.is_readonly("main").map_err(fault)? {
        return Err(StoreError::ReadOnly(path.display().to_string()));
    }
    if version == 0 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(fault)?;
    }
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(fault)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(StoreError::Failed(format!(
            "its file system takes no write-ahead log (journal mode {mode}): use a local one"
        )));
    }
    connection.pragma_update(None, "synchronous", "FULL").map_err(fault)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(fault)?;
    // The writer checkpoints when it has nothing better to do.
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(fault)?;
    let _bytes: i64 = connection
        .pragma_update_and_check(None, "journal_size_limit", 64 << 20, |row| row.get(0))
        .map_err(fault)?;
    schema::migrate(&mut connection, version)?;
    Ok(connection)
}

fn opened(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(fault)
}

/// Whether there is a journal of the time before there is a write-ahead log: only who may write can undo what it began, and
/// nobody can read before.
fn killed_in_creation(path: &Path) -> bool {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    fs::symlink_metadata(journal).is_ok()
}

/// A connection that cannot write.
pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    connection.busy_timeout(BUSY).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// A connection to a file that nobody writes. SQLite takes no lock then, and creates no file beside it.
pub(super) fn unwritten_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let address = format!("{}?immutable=1", super::look::address(path));
    let connection = Connection::open_with_flags(address, flags).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Looks at what is there, and changes nothing of a file that is not ours or too new. Creates an empty file for its owner
/// only where there is none; SQLite gives the files beside it the same permissions.
fn look(path: &Path) -> Result<u32, StoreError> {
    let said = |what: &str, todo: &str| {
        Err(StoreError::Failed(format!("{}: {what}: {todo}", path.display())))
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => said("it is a folder", "give the path of a file"),
        Ok(found) if !found.is_file() => said("it is no file", "give the path of a file"),
        Ok(found) => {
            let version = match killed_in_creation(path) {
                true => schema::found(&opened(path)?)?,
                false => schema::found(&reader(path)?)?,
            };
            let mode = found.permissions().mode();
            if mode & 0o077 != 0 {
                // Who does not own the file cannot, and the store works all the same.
                drop(fs::set_permissions(path, Permissions::from_mode(mode & 0o700)));
            }
            Ok(version)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let created =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop);
            match created {
                Ok(()) => Ok(0),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    said("its folder is not there", "create it first")
                }
                Err(error) => refused(path, &error),
            }
        }
        Err(error) => refused(path, &error),
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "whatever else there is is one decision")]
fn refused<T>(path: &Path, error: &io::Error) -> Result<T, StoreError> {
    let said = format!("{}: {error}", path.display());
    Err(match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly(said)
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full(said),
        _ => StoreError::Failed(said),
    })
}
