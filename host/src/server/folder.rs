//! Profiles from a directory: each folder with a `profile.toml` is a home.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;

use super::served::{Listed, NotServed, Reconciled, Served};
use crate::host::{Host, Profile, ProfileSettings};
use crate::plugin::{Configuration, ServeTable};
use crate::store::{Memory, Retention, Store};

/// The configuration of a profile, in its home.
const CONFIGURATION: &str = "profile.toml";

/// The profiles of a directory. Cheap to clone; every clone is the same.
#[derive(Clone)]
pub struct Folder {
    shared: Arc<Shared>,
}

struct Shared {
    host: Host,
    directory: PathBuf,
    /// By name: the profile, or why it is not served.
    state: Mutex<BTreeMap<String, Result<Profile, String>>>,
    /// Held while somebody looks at the directory.
    looking: tokio::sync::Mutex<()>,
}

impl Folder {
    /// The profiles of that directory; none is served before it is [reconciled](Served::reconcile).
    pub fn new(host: Host, directory: impl Into<PathBuf>) -> Folder {
        let (state, looking) = (Mutex::default(), tokio::sync::Mutex::default());
        Folder { shared: Arc::new(Shared { host, directory: directory.into(), state, looking }) }
    }

    /// Writes what the stores have queued, and closes them. Returns the profiles whose store could not write all.
    pub async fn close(&self) -> BTreeMap<String, String> {
        let mut failed = BTreeMap::new();
        for listed in self.list() {
            if let Ok(profile) = listed.state
                && let Err(error) = profile.store().close().await
            {
                failed.insert(listed.name, error.to_string());
            }
        }
        failed
    }
}

impl Served for Folder {
    fn list(&self) -> Vec<Listed> {
        let state = self.shared.lock();
        let listed = state.iter().map(|(name, state)| Listed {
            name: name.clone(),
            home: self.shared.directory.join(name),
            state: state.clone(),
        });
        listed.collect()
    }

    fn get(&self, name: &str) -> Result<Profile, NotServed> {
        match self.shared.lock().get(name) {
            Some(Ok(profile)) => Ok(profile.clone()),
            Some(Err(why)) => Err(NotServed::Parked { name: name.to_owned(), why: why.clone() }),
            None => Err(NotServed::Unknown(name.to_owned())),
        }
    }

    fn reconcile(&self) -> BoxFuture<'static, Reconciled> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.reconcile().await })
    }
}

impl Shared {
    async fn reconcile(&self) -> Reconciled {
        let _alone = self.looking.lock().await;
        let mut done = Reconciled::default();
        let names = match homes(&self.directory) {
            Ok(names) => names,
            Err(error) => {
                let shown = self.directory.display().to_string();
                done.parked.insert(shown, format!("the directory cannot be read: {error}"));
                return done;
            }
        };
        for name in names {
            let there = self.lock().get(&name).cloned();
            let before = there.and_then(Result::ok);
            match self.look(&name, before.clone()).await {
                Ok(profile) => {
                    let list = if before.is_some() { &mut done.kept } else { &mut done.added };
                    list.push(name.clone());
                    self.lock().insert(name, Ok(profile));
                }
                Err(why) => {
                    tracing::warn!(profile = name, why, "the profile is not as configured");
                    done.parked.insert(name.clone(), why.clone());
                    self.lock().insert(name, before.ok_or(why));
                }
            }
        }
        done
    }

    async fn look(&self, name: &str, before: Option<Profile>) -> Result<Profile, String> {
        let home = self.directory.join(name);
        let file = home.join(CONFIGURATION);
        let configuration = Configuration::load(&file).map_err(|error| words(&error))?;
        if configuration.serve != ServeTable::default() {
            let file = file.display();
            return Err(format!("{file}: [serve] belongs into the configuration of the host"));
        }
        match before {
            Some(profile) => {
                profile.reload(configuration).await.map_err(|error| words(&error))?;
                Ok(profile)
            }
            None => {
                let store = open_store(&home);
                let name = name.to_owned();
                let settings = ProfileSettings { name, home, configuration, store };
                self.host.profile(settings).await.map_err(|error| words(&error))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Result<Profile, String>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The store of a home.
fn open_store(_home: &Path) -> Arc<dyn Store> {
    Arc::new(Memory::new(Retention::memory()))
}

/// The names of the homes in a directory.
fn homes(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && !name.starts_with('.')
            && entry.path().join(CONFIGURATION).is_file()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// An error with its causes, in one line.
fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut words: Vec<String> = causes.map(|error| error.to_string()).collect();
    words.dedup();
    words.join(": ")
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}
