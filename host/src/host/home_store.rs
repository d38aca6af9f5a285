//! The sessions of a home that no host serves.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::carry::{self, Compacted};
use super::homes::{DATABASE, retention};
use super::profile::of_session;
use crate::error::{Error, ErrorKind};
use crate::ids::SessionId;
use crate::plugin::Configuration;
use crate::profile::{CONFIGURATION, HomeLock, LockError};
use crate::session::recover;
use crate::store::{self, Archive, Change, Look, RunningTurn, Sqlite, Store, StoreError};

/// A home that this process has for itself, with its database. No agent runs in it. What was going on in it when its last
/// host ended is recorded as unknown as soon as the session is touched.
pub struct HomeStore {
    // Teardown order: the database is closed before somebody else can have the home.
    store: Sqlite,
    lock: HomeLock,
    next_session: AtomicU64,
    next_unit: AtomicU64,
}

impl HomeStore {
    /// Takes the lock of a home and opens its database, or creates it. What is kept in it is bounded as its configuration
    /// says, if there is one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`] while somebody serves the home; [`ErrorKind::Configuration`] for a home or a configuration that
    /// cannot be used; [`ErrorKind::Store`] for a database that cannot.
    pub fn take(home: &Path) -> Result<HomeStore, Error> {
        let file = home.join(CONFIGURATION);
        let configuration = match file.is_file() {
            true => Configuration::load(&file).map_err(|error| {
                let attempt = format!("could not use the configuration {}", file.display());
                Error::because(ErrorKind::Configuration, attempt, error)
            })?,
            false => Configuration::default(),
        };
        HomeStore::take_as(home, &configuration)
    }

    /// The same, with the bounds of another configuration.
    ///
    /// # Errors
    ///
    /// Those of [`HomeStore::take`].
    pub fn take_as(home: &Path, configuration: &Configuration) -> Result<HomeStore, Error> {
        let lock = HomeLock::take(home).map_err(|error| {
            let kind = match &error {
                LockError::Held { .. } => ErrorKind::Refused,
                LockError::Unusable { .. } => ErrorKind::Configuration,
            };
            Error::because(kind, format!("could not take the home {}", home.display()), error)
        })?;
        let database = home.join(DATABASE);
        let store = Sqlite::open(&database, retention(configuration));
        let store = store.map_err(|error| unopened(&database, error))?;
        let start = store.start();
        let (session, unit) = (start.next_session.into(), start.next_unit.into());
        Ok(HomeStore { store, lock, next_session: session, next_unit: unit })
    }

    /// Looks into a home without taking anything of it, whether or not somebody serves it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when nothing was ever recorded there, [`ErrorKind::Store`] when it cannot be read.
    pub fn look(home: &Path) -> Result<Look, Error> {
        let database = home.join(DATABASE);
        if !database.exists() {
            let words = format!(
                "there are no sessions in {}: it has no {DATABASE}; name the folder of a profile",
                home.display()
            );
            return Err(Error::new(ErrorKind::NotFound, words));
        }
        Look::open(&database).map_err(|error| unopened(&database, error))
    }

    /// Takes a session out of whatever store. The store keeps it.
    ///
    /// # Errors
    ///
    /// Those of [`Profile::export`](super::Profile::export).
    pub async fn export(
        from: &dyn Store,
        id: &SessionId,
        running: RunningTurn,
    ) -> Result<Archive, Error> {
        carry::export(from, id, running).await
    }

    /// Takes in a session that was exported, under a new name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`] when it cannot be written.
    pub async fn import(&self, archive: Archive) -> Result<SessionId, Error> {
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        let units = archive.units().len() as u64;
        let first_unit = self.next_unit.fetch_add(units, Ordering::Relaxed);
        carry::put(&self.store, archive, number, first_unit).await
    }

    /// Deletes a session with all that belongs to it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when there is none, [`ErrorKind::Refused`] when a completion of it is not read;
    /// [`ErrorKind::Store`] when it cannot be written.
    pub async fn delete(&self, id: &SessionId) -> Result<(), Error> {
        let of = |error| of_session(id, error);
        recover(&self.store, id).await.map_err(of)?;
        let deleted = store::record(&self.store, id.clone(), vec![Change::Deleted]).await;
        deleted.map(drop).map_err(|error| {
            if !matches!(error, StoreError::InUse { .. }) {
                return of(error);
            }
            let attempt = format!("could not delete the session {id}");
            Error::because(ErrorKind::Refused, attempt, error)
        })
    }

    /// Drops what may be dropped, and gives room back to the disk.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`].
    pub async fn compact(&self) -> Result<Compacted, Error> {
        carry::compact(&self.store).await.map_err(|error| {
            let attempt = format!("could not compact {}", self.lock.home().display());
            Error::because(ErrorKind::Store, attempt, error)
        })
    }

    /// The lock and the database, for whoever opens a profile with them. Let go of the database first.
    pub fn into_parts(self) -> (Sqlite, HomeLock) {
        (self.store, self.lock)
    }
}

fn unopened(database: &Path, error: StoreError) -> Error {
    let attempt = format!("could not open {}", database.display());
    Error::because(ErrorKind::Store, attempt, error)
}

impl fmt::Debug for HomeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomeStore").field("home", &self.lock.home()).finish_non_exhaustive()
    }
}
