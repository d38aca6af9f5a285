//! The profiles that a host serves from homes: what each holds while it is served.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::host::Host;
use super::profile::{Profile, ProfileSettings};
use super::schedules::SCHEDULES;
use crate::error::{Error, ErrorKind};
use crate::plugin::{Configuration, ConfigurationError};
use crate::profile::{Held, NotClosed, NotOpened, Opens, Profiles, Wanted};
use crate::store::{Retention, Sqlite, Store, StoreError};
use crate::work::{Drained, Work, blocking};

/// The database in a home.
pub const DATABASE: &str = "sessions.db";

/// How long the end of a turn may take to reach the store when that is to be closed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a look at what a configuration names may take; what is not seen by then counts as unchanged.
const LOOK: Duration = Duration::from_secs(2);

/// Opens profiles from their homes: the configuration that lies there, and the database beside it.
#[derive(Debug, Clone)]
pub struct Homes {
    host: Host,
}

/// A profile that is served from its home.
#[derive(Clone)]
pub struct Served {
    profile: Profile,
    looking: Arc<Semaphore>,
    /// Set when the store is closed, where that failed.
    unwritten: Arc<OnceLock<StoreError>>,
}

impl Host {
    /// The profiles that this host serves from homes: none yet. Reconcile it with a directory.
    pub fn profiles(&self) -> Profiles<Homes> {
        Profiles::new(self.inner.root.share(), Homes { host: self.clone() })
    }
}

impl Served {
    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Why its store was closed with something unwritten; none while it is open, and where all was written.
    pub fn unwritten(&self) -> Option<&StoreError> {
        self.unwritten.get()
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl Opens for Homes {
    type Held = Served;

    async fn open(&self, wanted: &Wanted, work: &Work) -> Result<Served, NotOpened> {
        let configuration = self.read(wanted, work).await?;
        let retention = retention(&configuration);
        let database = wanted.home.join(DATABASE);
        let open = move || Sqlite::open(database, retention);
        let store = self.apart(work, "the database is opened", open).await?;
        let store = store.map_err(|error| NotOpened::Unusable {
            words: format!("could not open {}: {error}", wanted.home.join(DATABASE).display()),
        })?;
        let settings = ProfileSettings {
            name: wanted.name.clone(),
            home: wanted.home.clone(),
            configuration,
            store: Arc::new(store) as Arc<dyn Store>,
        };
        let opened = self.host.profile_on(Arc::new(work.share()), settings).await;
        let profile = opened.map_err(|error| not_opened(&wanted.configuration, &error))?;
        let (owner, home) = (profile.schedules().owner, wanted.home.clone());
        let read = {
            let owner = Arc::clone(&owner);
            move || owner.read(&home)
        };
        let read = self.apart(work, "what schedules have decided is read", read).await?;
        read.map_err(|error| NotOpened::Unusable {
            words: format!("could not read {}: {error}", wanted.home.join(SCHEDULES).display()),
        })?;
        owner.bind(&profile);
        Ok(Served { profile, unwritten: Arc::default(), looking: Arc::new(Semaphore::new(1)) })
    }

    async fn is_outdated(&self, held: &Served) -> bool {
        let look = async {
            // One look at a time: where a disk hangs, no more than one thread does.
            let place = Arc::clone(&held.looking).acquire_owned().await.ok()?;
            let profile = held.profile.clone();
            let (what, look) = ("plugins and keys are looked at", move || profile.is_outdated());
            let control = self.host.sandbox().control();
            blocking(control, held.profile.node(), what, place, look).ok()?.await.ok()
        };
        tokio::time::timeout(LOOK, look).await.ok().flatten().unwrap_or(false)
    }

    async fn reload(&self, wanted: &Wanted, held: &Served) -> Result<Vec<String>, NotOpened> {
        let configuration = self.read(wanted, held.profile.node()).await?;
        let retention = retention(&configuration);
        let reloaded = held.profile.reload(configuration).await;
        if reloaded.is_ok() {
            held.profile.store().retain(retention);
        }
        reloaded.map_err(|error| not_opened(&wanted.configuration, &error))
    }
}

impl Homes {
    async fn read(&self, wanted: &Wanted, work: &Work) -> Result<Configuration, NotOpened> {
        let file = wanted.configuration.clone();
        let read = self.apart(work, "a configuration is read", move || Configuration::load(&file));
        let read = read.await?.map_err(|error| wrong(&wanted.configuration, &error))?;
        match read.host_wide() {
            None => Ok(read),
            Some(key) => {
                let words = "this is set for the whole host, in the configuration of the host";
                Err(wrong(&wanted.configuration, &read.refuse(&[key], &words)))
            }
        }
    }

    /// Does something that waits for a disk, on a thread for such calls.
    async fn apart<T: Send + 'static>(
        &self,
        work: &Work,
        what: &str,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotOpened> {
        let inner = &self.host.inner;
        let unusable = |words: String| NotOpened::Unusable { words };
        let place = Arc::clone(&inner.reads).acquire_owned().await;
        let place = place.map_err(|error| unusable(error.to_string()))?;
        let begun = blocking(inner.sandbox.control(), work, what, place, call);
        let begun = begun.map_err(|refused| unusable(refused.to_string()))?;
        begun.await.map_err(|_| unusable(format!("the host failed while {what}")))
    }
}

impl Held for Served {
    fn handles(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(Arc::clone(self.profile.store()))
    }

    fn unpublish(&self) {}

    fn unbind_schedule(&self) {
        self.profile.schedules().owner.unbind();
    }

    async fn close(&self, _drained: Drained) -> Result<(), NotClosed> {
        // The last of what came of scheduled runs is written then.
        self.profile.schedules().owner.ended().await;
        // The last words of what was stopped a moment ago. A store that fails has had its time by then.
        tokio::time::timeout(LAST_WORDS, self.profile.recorded()).await.ok();
        self.profile.rest();
        if let Err(error) = self.profile.store().close().await {
            // It stays so: what could not be written is told, and counts as unknown when the home is opened again.
            tracing::error!(profile = self.profile.name(), %error, "the store was closed with something unwritten");
            // The first error is the one that counts: closing what is closed is none.
            self.unwritten.set(error).ok();
        }
        Ok(())
    }
}

/// A configuration that is wrong.
fn wrong(file: &Path, error: &ConfigurationError) -> NotOpened {
    let place = error.place();
    NotOpened::Configuration {
        file: file.to_owned(),
        line: place.map(|place| place.line),
        key: place.and_then(|place| place.key.clone()),
        words: error.words(),
    }
}

fn not_opened(file: &Path, error: &Error) -> NotOpened {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        // It says more than what was attempted with it.
        if let Some(error) = next.downcast_ref::<ConfigurationError>() {
            return wrong(file, error);
        }
        words = format!("{words}: {next}");
        cause = next.source();
    }
    if error.kind() == ErrorKind::Configuration {
        return NotOpened::Configuration { file: file.to_owned(), line: None, key: None, words };
    }
    NotOpened::Unusable { words }
}

/// How much of its sessions a profile keeps.
pub(super) fn retention(configuration: &Configuration) -> Retention {
    let (usual, table) = (Retention::default(), &configuration.store);
    let size = |size: Option<crate::plugin::Size>, usual: u64| size.map_or(usual, |size| size.0);
    Retention {
        events_per_session: table.events_per_session.unwrap_or(usual.events_per_session),
        event_bytes_per_session: size(table.event_bytes_per_session, usual.event_bytes_per_session),
        transcript_bytes_per_session: size(
            table.transcript_bytes_per_session,
            usual.transcript_bytes_per_session,
        ),
        read_units_per_session: table
            .read_units_per_session
            .unwrap_or(usual.read_units_per_session),
        bytes: size(table.bytes, usual.bytes),
        ..usual
    }
}
