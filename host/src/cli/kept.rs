//! The home in which a run is recorded.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkrein::plugin::Configuration;
use checkrein::profile::{CONFIGURATION, HomeLock};
use checkrein::store::{Sqlite, Store};
use checkrein::{HomeStore, Host, Profile, ProfileSettings};

use super::code::Code;
use super::problem::Problem;

/// A home that this command has for itself.
pub(super) struct Kept {
    // Teardown order: the database is closed before somebody else can have the home.
    store: Arc<Sqlite>,
    lock: HomeLock,
    configuration: Configuration,
}

impl Kept {
    /// The configuration that lies in a home, if there is one.
    pub(super) fn configuration(home: &Path) -> Option<PathBuf> {
        Some(home.join(CONFIGURATION)).filter(|file| file.is_file())
    }

    /// Takes a home, and makes its folder if that is not there.
    pub(super) fn take(home: &Path, configuration: Configuration) -> Result<Kept, Problem> {
        if !home.exists() {
            // What people say to agents is for them alone.
            DirBuilder::new().mode(0o700).create(home).map_err(|error| {
                let attempt = format!("could not make the home {}", home.display());
                Problem::because(Code::Usage, attempt, error)
            })?;
        }
        let (store, lock) = HomeStore::take_as(home, &configuration)?.into_parts();
        Ok(Kept { store: Arc::new(store), lock, configuration })
    }

    /// Opens it as a profile of the host. Nothing but what the command asks for runs in it.
    pub(super) async fn profile(&self, host: &Host) -> Result<Profile, Problem> {
        let home = std::path::absolute(self.lock.home()).map_err(|error| {
            Problem::because(Code::Refused, "could not find the folder of this process", error)
        })?;
        let name = home.file_name().map_or("home".into(), |name| name.to_string_lossy());
        let settings = ProfileSettings {
            name: name.into_owned(),
            configuration: self.configuration.clone(),
            store: Arc::clone(&self.store) as Arc<dyn Store>,
            home,
        };
        Ok(host.profile_at_rest(settings).await?)
    }

    /// Waits until everything is written, and gives the home back.
    pub(super) async fn close(self) -> Result<(), Problem> {
        self.store.close().await.map_err(|error| {
            let attempt = format!("not all could be recorded in {}", self.lock.home().display());
            Problem::because(Code::Failed, attempt, error)
        })
    }
}
