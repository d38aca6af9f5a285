//! Sessions that leave a profile and come into one, and the room that they take.

use std::io;
use std::sync::Arc;

use serde::Serialize;

use super::profile::{Profile, unreadable};
use crate::error::{Error, ErrorKind};
use crate::ids::SessionId;
use crate::session::{readable, recover};
use crate::store::{Archive, ArchiveError, RunningTurn, Store, StoreError};
use crate::work::blocking;

/// What came of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Compacted {
    /// Bytes of the database before it.
    pub before: u64,
    /// Bytes of it now.
    pub after: u64,
}

impl Profile {
    /// Takes a session out, to be kept or read in elsewhere. The profile keeps it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when there is none, [`ErrorKind::Refused`] while a turn of it goes on and `running` does not say
    /// otherwise, [`ErrorKind::Store`] when it cannot be read.
    pub async fn export(&self, id: &SessionId, running: RunningTurn) -> Result<Archive, Error> {
        export(&**self.store(), id, running).await
    }

    /// Takes in a session that was exported, under a new name. What was going on in it when it was exported has ended as
    /// unknown.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`] when it cannot be written.
    pub async fn import(&self, archive: Archive) -> Result<SessionId, Error> {
        let first_unit = self.host().inner.slots.take_numbers(archive.units().len() as u64);
        let id = put(&**self.store(), archive, self.next_number(), first_unit).await?;
        self.bring(vec![id.clone()]);
        Ok(id)
    }

    /// Takes in a session from its lines, at most that many bytes of them. They are read on a thread for such work.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when they are not a whole session, and those of [`Profile::import`].
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before it is ready may have taken it in.
    pub async fn import_lines(
        &self,
        lines: impl AsRef<[u8]> + Send + 'static,
        most_bytes: u64,
    ) -> Result<SessionId, Error> {
        let inner = &self.host().inner;
        let refused = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::because(ErrorKind::Refused, "could not import a session", error)
        };
        let place = Arc::clone(&inner.reads).acquire_owned().await;
        let place = place.map_err(|error| refused(error.into()))?;
        let read = move || Archive::read_from(io::Cursor::new(lines), most_bytes);
        let control = inner.sandbox.control();
        let read = blocking(control, self.node(), "a session is read in", place, read);
        let read = read.map_err(|error| refused(error.into()))?.await;
        let read = read.map_err(|error| refused(error.into()))?;
        self.import(read.map_err(|error| of_archive("could not import a session", error))?).await
    }

    /// Drops what may be dropped from the store, and gives room back to the disk.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`].
    pub async fn compact(&self) -> Result<Compacted, Error> {
        compact(&**self.store()).await.map_err(|error| unreadable(self.name(), error))
    }
}

pub(super) async fn export(
    store: &dyn Store,
    id: &SessionId,
    running: RunningTurn,
) -> Result<Archive, Error> {
    let archive = Archive::of(store, id, running).await;
    archive.map_err(|error| of_archive(&format!("could not export the session {id}"), error))
}

/// Puts a session into a store as one in which nothing is going on.
pub(super) async fn put(
    store: &dyn Store,
    archive: Archive,
    number: u64,
    first_unit: u64,
) -> Result<SessionId, Error> {
    let id = SessionId::new(format!("s{number}"));
    let attempt = "could not import a session";
    readable(&archive).map_err(|words| Error::because(ErrorKind::Usage, attempt, words))?;
    let put = archive.put(store, id.clone(), first_unit).await;
    put.map_err(|error| of_archive(attempt, error))?;
    let recovered = recover(store, &id).await;
    recovered.map_err(|error| Error::because(ErrorKind::Store, attempt, error))?;
    Ok(id)
}

pub(super) async fn compact(store: &dyn Store) -> Result<Compacted, StoreError> {
    let before = store.health().bytes;
    store.compact().await?;
    Ok(Compacted { before, after: store.health().bytes })
}

fn of_archive(attempt: &str, error: ArchiveError) -> Error {
    match error {
        ArchiveError::Store(error) => {
            let missing = matches!(error, StoreError::NoSession(_));
            let kind = if missing { ErrorKind::NotFound } else { ErrorKind::Store };
            Error::because(kind, attempt, error)
        }
        ArchiveError::Running(_) | ArchiveError::Changing(_) => {
            Error::because(ErrorKind::Refused, attempt, error)
        }
        ArchiveError::Io(_) | ArchiveError::TooLong(_) | ArchiveError::Line { .. } => {
            Error::because(ErrorKind::Usage, attempt, error)
        }
    }
}
