//! A profile: sessions that outlive the process, with a setting of their own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use super::host::Host;
use super::loaded::Loaded;
use super::open::{Home, Place, SessionBuilder};
use super::schedules::{Owner, Schedules};
use super::setting::{Given, Setting};
use crate::error::{Error, ErrorKind};
use crate::ids::{SessionId, WorkId};
use crate::plugin::{Catalogue, Configuration, NoPlugin};
use crate::profile::Places;
use crate::session::{Delivery, Session, recover};
use crate::store::{self, Change, Health, SessionRow, Store, StoreError};
use crate::work::{Grace, Kind, Work, spawn_charged};

/// Awake sessions above which those that rest are put to sleep whenever another one is opened or asked for.
const AWAKE: usize = 64;

/// What a profile is opened with.
pub struct ProfileSettings {
    /// Its name.
    pub name: String,
    /// Its folder. Guests never write there.
    pub home: PathBuf,
    /// What the operator configured for it.
    pub configuration: Configuration,
    /// Where its sessions are kept.
    pub store: Arc<dyn Store>,
}

impl fmt::Debug for ProfileSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileSettings")
            .field("name", &self.name)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

/// A profile that is open. Cheap to clone; every clone is the same profile.
///
/// Its sessions are read when they are asked for, and put to sleep when nobody has anything of them: what sleeps takes no
/// memory beyond the store.
#[derive(Clone)]
pub struct Profile {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    host: Host,
    name: String,
    home: PathBuf,
    node: Arc<Work>,
    store: Arc<dyn Store>,
    /// The number of the next session.
    numbers: Arc<AtomicU64>,
    /// What decides now, and what was loaded under it.
    setting: Mutex<(Arc<Setting>, Arc<Loaded>)>,
    /// The sessions that somebody asked for. One that is being read has an empty cell.
    awake: Mutex<BTreeMap<SessionId, Arc<OnceCell<Session>>>>,
    /// Not bound where the profile is not served from its home.
    schedules: Arc<Owner>,
}

/// What a session was opened with, as the store keeps it.
#[derive(Deserialize)]
struct Settings {
    #[serde(default)]
    delivery: Delivery,
}

impl Host {
    /// Opens a profile below the host. Plugins and models that were given to the builder in code are there in all profiles.
    ///
    /// Whatever was going on in it when the host that had it ended is recorded as
    /// `unknown` first; nothing is started again. Completions that nobody has read are brought to their sessions.
    ///
    /// Only one host at a time may have a home open: hold its lock.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Configuration`] for a configuration that cannot be used, [`ErrorKind::Store`] when the store cannot be
    /// read or written, [`ErrorKind::Refused`] when the host takes no new work.
    pub async fn profile(&self, settings: ProfileSettings) -> Result<Profile, Error> {
        let node = self.profile_node(&settings.name)?;
        self.profile_on(Arc::new(node), settings).await
    }

    /// The same, and completions that nobody has read wait until their sessions are asked for: nothing runs by itself.
    ///
    /// # Errors
    ///
    /// Those of [`Host::profile`].
    pub async fn profile_at_rest(&self, settings: ProfileSettings) -> Result<Profile, Error> {
        let node = Arc::new(self.profile_node(&settings.name)?);
        Ok(self.recovered(node, settings).await?.0)
    }

    fn profile_node(&self, name: &str) -> Result<Work, Error> {
        self.inner.root.open(Kind::Profile, name).map_err(|error| {
            let attempt = format!("could not open the profile `{name}`");
            Error::because(ErrorKind::Refused, attempt, error)
        })
    }

    /// The same, on a node that somebody holds.
    pub(super) async fn profile_on(
        &self,
        node: Arc<Work>,
        settings: ProfileSettings,
    ) -> Result<Profile, Error> {
        let (profile, unfinished) = self.recovered(node, settings).await?;
        profile.bring(unfinished);
        Ok(profile)
    }

    /// A profile in which nothing is going on any more, and the sessions that may have something to read.
    async fn recovered(
        &self,
        node: Arc<Work>,
        settings: ProfileSettings,
    ) -> Result<(Profile, Vec<SessionId>), Error> {
        let ProfileSettings { name, home, configuration, store } = settings;
        let setting = self.setting_of(&home, configuration)?;
        let start = store.start();
        self.inner.slots.number_from(start.next_unit);
        let unfinished = store.unfinished().await;
        let unfinished = unfinished.map_err(|error| unreadable(&name, error))?;
        for id in &unfinished {
            let recovered = match recover(&*store, id).await {
                Ok(recovered) => recovered,
                Err(error @ (StoreError::Corrupt(_) | StoreError::Invalid(_))) => {
                    tracing::error!(profile = name, session = %id, %error, "the session cannot be read; the others can");
                    continue;
                }
                Err(error) => return Err(unreadable(&name, error)),
            };
            if recovered.turn || recovered.units > 0 || recovered.runs > 0 {
                tracing::warn!(
                    profile = name,
                    session = %id,
                    turn = recovered.turn,
                    units = recovered.units,
                    runs = recovered.runs,
                    "work was going on when the host ended; it is recorded as unknown"
                );
            }
        }
        let schedules = Owner::new(&home, Arc::clone(&self.inner.clock));
        let shared = Shared {
            host: self.clone(),
            name,
            home,
            node,
            numbers: Arc::new(AtomicU64::new(start.next_session)),
            store,
            setting: Mutex::new((Arc::new(setting), Arc::default())),
            awake: Mutex::default(),
            schedules,
        };
        let profile = Profile { shared: Arc::new(shared) };
        self.inner.read.opened(Arc::downgrade(&profile.shared));
        Ok((profile, unfinished))
    }

    fn setting_of(&self, home: &Path, configuration: Configuration) -> Result<Setting, Error> {
        if let Some(key) = configuration.key_of_workers()
            && !self.inner.sandbox.has_workers()
        {
            let attempt = "the configuration cannot be used";
            let refused = configuration.refuse(&key, &"this host has no program to run guests in");
            return Err(Error::because(ErrorKind::Configuration, attempt, refused));
        }
        let mut given = Given { configuration, ..self.inner.pattern.clone() };
        given.guarded.push(("the home of a profile".to_owned(), home.to_owned()));
        Setting::new(given)
    }
}

impl From<Arc<Shared>> for Profile {
    fn from(shared: Arc<Shared>) -> Profile {
        Profile { shared }
    }
}

impl Profile {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its folder.
    pub fn home(&self) -> &Path {
        &self.shared.home
    }

    /// The name of its node in the tree of work.
    pub fn work(&self) -> WorkId {
        self.shared.node.id()
    }

    /// Its node.
    pub(super) fn node(&self) -> &Work {
        &self.shared.node
    }

    /// Its schedules, and what came of them. A profile that is served from its home has those of its configuration.
    pub fn schedules(&self) -> Schedules {
        Schedules { owner: Arc::clone(&self.shared.schedules) }
    }

    /// Where its tasks run.
    pub(super) fn control(&self) -> Handle {
        self.shared.host.sandbox().control().clone()
    }

    /// The host that has it open.
    pub fn host(&self) -> &Host {
        &self.shared.host
    }

    /// How long a soft stop stays soft in it: as its configuration says, or else that of the host.
    pub fn grace(&self) -> Grace {
        self.shared.setting().0.grace
    }

    /// How its store is.
    pub fn health(&self) -> Health {
        self.shared.store.health()
    }

    /// Its store, for whoever reads what sleeps.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Calls `look` with its plugins and its configuration, as they are now.
    pub fn look<T>(&self, look: impl FnOnce(&Catalogue, &Configuration) -> T) -> T {
        let (setting, _) = self.shared.setting();
        look(&setting.catalogue, &setting.configuration)
    }

    /// Opens a new session with an agent.
    ///
    /// # Errors
    ///
    /// Those of [`SessionBuilder::open`].
    pub async fn open(&self, agent: &str, delivery: Delivery) -> Result<Session, Error> {
        self.open_with(agent, |opening| opening.delivery(delivery)).await
    }

    /// Opens a new session with an agent, and with what `say` gives to it. Directories and a sink for log lines are kept
    /// nowhere: they count until the session is put to sleep, or until the profile takes another configuration.
    ///
    /// # Errors
    ///
    /// Those of [`SessionBuilder::open`].
    pub async fn open_with(
        &self,
        agent: &str,
        say: impl FnOnce(SessionBuilder) -> SessionBuilder,
    ) -> Result<Session, Error> {
        self.make_room();
        let builder = say(self.shared.builder(agent));
        let id = builder.next_name();
        // Its place is taken before it is there: who finds it in the store waits for this one.
        let cell = Arc::clone(self.shared.awake().entry(id.clone()).or_default());
        let open = || async {
            let setting = self.shared.setting().0;
            let session = builder.clone().open_as(id.clone()).await?;
            self.shared.up_to_date(&setting, session).await
        };
        let opened = cell.get_or_try_init(open).await.cloned();
        self.shared.forget_failed(&id, &cell, &opened);
        opened
    }

    /// A session of the profile; it is read if it sleeps.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when there is no such session, and those of [`SessionBuilder::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn session(&self, id: &SessionId) -> Result<Session, Error> {
        self.make_room();
        let cell = Arc::clone(self.shared.awake().entry(id.clone()).or_default());
        self.wake(id, &cell, |opening| opening).await
    }

    /// A session of the profile that sleeps, with what `say` gives to it, as [`Profile::open_with`] does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when the session is awake, and those of [`Profile::session`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn session_with(
        &self,
        id: &SessionId,
        say: impl FnOnce(SessionBuilder) -> SessionBuilder,
    ) -> Result<Session, Error> {
        self.rest();
        let taken = || {
            let words = format!("somebody works with the session {id} already");
            Error::new(ErrorKind::Usage, words)
        };
        let cell = match self.shared.awake().entry(id.clone()) {
            Entry::Occupied(_) => return Err(taken()),
            Entry::Vacant(place) => Arc::clone(place.insert(Arc::default())),
        };
        let mut is_ours = false;
        let woken = self.wake(id, &cell, |opening| {
            is_ours = true;
            say(opening)
        });
        let session = woken.await?;
        if is_ours { Ok(session) } else { Err(taken()) }
    }

    async fn wake(
        &self,
        id: &SessionId,
        cell: &Arc<OnceCell<Session>>,
        say: impl FnOnce(SessionBuilder) -> SessionBuilder,
    ) -> Result<Session, Error> {
        let opened = cell.get_or_try_init(|| self.shared.wake(id, say)).await.cloned();
        self.shared.forget_failed(id, cell, &opened);
        opened
    }

    /// What the store says of a session.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when there is no such session, [`ErrorKind::Store`] when it cannot be read.
    pub async fn row(&self, id: &SessionId) -> Result<SessionRow, Error> {
        self.shared.store.session(id).await.map_err(|error| of_session(id, error))
    }

    /// The sessions after that one in the order of their creation, at most `limit`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`] when they cannot be read.
    pub async fn sessions(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let named = after.clone();
        let rows = self.shared.store.sessions(after, limit).await;
        rows.map_err(|error| match named {
            Some(named) => of_session(&named, error),
            None => unreadable(&self.shared.name, error),
        })
    }

    /// Deletes a session with all that belongs to it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when there is none, [`ErrorKind::Usage`] while somebody holds it, a turn of it runs or a
    /// completion of it is not read; [`ErrorKind::Store`] when it cannot be written.
    pub async fn delete(&self, id: &SessionId) -> Result<(), Error> {
        self.rest();
        if self.shared.awake().contains_key(id) {
            let words = format!("the session {id} cannot be deleted while somebody works with it");
            return Err(Error::new(ErrorKind::Usage, words));
        }
        let deleted = store::record(&*self.shared.store, id.clone(), vec![Change::Deleted]).await;
        deleted.map(drop).map_err(|error| of_session(id, error))
    }

    /// Waits until the ends of all turns and side runs that were going on are recorded, and all that was said until now. It
    /// stops nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn recorded(&self) {
        let awake: Vec<Session> =
            self.shared.awake().values().filter_map(|cell| cell.get().cloned()).collect();
        for session in awake {
            session.recorded().await;
        }
    }

    /// Whether no turn or side run of it goes on, and all that has happened in it is recorded.
    pub fn is_recorded(&self) -> bool {
        let awake = self.shared.awake();
        awake.values().filter_map(|cell| cell.get()).all(Session::is_recorded)
            && self.shared.store.health().queued_bytes == 0
    }

    fn make_room(&self) {
        if self.shared.awake().len() > AWAKE {
            self.rest();
        }
    }

    /// Puts those sessions to sleep that nobody has anything of, and returns how many are awake.
    pub fn rest(&self) -> usize {
        let mut awake = self.shared.awake();
        awake.retain(|_, cell| {
            // Who looks for one has a hold on its cell. An empty one that nobody holds is of somebody who gave up.
            Arc::strong_count(cell) > 1 || cell.get().is_some_and(|session| !session.is_at_rest())
        });
        awake.len()
    }

    /// Takes another configuration, or the same one with what it names now: plugins, and the keys of models. Runs that are
    /// going on keep what they began with; what begins after this has the new. A session whose agent is not there any more
    /// takes no new turns. Where nothing but plugins has changed, and one of them cannot be used, sessions that have it
    /// loaded go on with that.
    ///
    /// Returns, in words, which plugins and keys are others than before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Configuration`] for one that cannot be used; the old one stays.
    pub async fn reload(&self, configuration: Configuration) -> Result<Vec<String>, Error> {
        let setting = Arc::new(self.shared.host.setting_of(&self.shared.home, configuration)?);
        let before = self.shared.setting().0;
        let is_same = setting.configuration == before.configuration;
        if !is_same {
            self.shared.schedules.rebind(&setting.configuration);
        }
        *self.shared.lock() = (Arc::clone(&setting), Arc::default());
        // Who sleeps is woken with what counts then.
        self.rest();
        let awake: Vec<Session> =
            self.shared.awake().values().filter_map(|cell| cell.get().cloned()).collect();
        for session in awake {
            let agent = session.agent_name();
            let is_gone = matches!(setting.catalogue.get(&agent), Err(NoPlugin::Unknown { .. }));
            match self.shared.builder(&agent).agent(session.node()).await {
                Ok(agent) => session.renew(agent),
                // A plugin that is half written, most of the time. What it is given has not changed.
                Err(error) if is_same && !is_gone => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(session = %session.id(), error, "the session keeps the agent that it has");
                }
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(session = %session.id(), error, "the session has lost its agent");
                    session.node().close("its agent cannot be loaded under the new configuration");
                }
            }
        }
        Ok(setting.beside.since(&before.beside))
    }

    /// Whether plugins or keys that its configuration names are others than those that were taken over. Blocks on the disk.
    pub(super) fn is_outdated(&self) -> bool {
        let taken = self.shared.setting().0;
        !taken.beside.again().is_as(&taken.beside)
    }

    /// The places beside its configuration whose changes may matter.
    pub(super) fn places(&self) -> Places {
        self.shared.setting().0.beside.places()
    }

    /// The number of a new session.
    pub(super) fn next_number(&self) -> u64 {
        self.shared.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Brings completions that nobody has read to their sessions, in the background.
    pub(super) fn bring(&self, unfinished: Vec<SessionId>) {
        if unfinished.is_empty() {
            return;
        }
        let profile = self.clone();
        let control = self.shared.host.sandbox().control().clone();
        let wake = async move {
            for id in unfinished {
                let unread = profile.row(&id).await.is_ok_and(|row| row.units_unread > 0);
                // Opening it brings them.
                if unread && let Err(error) = profile.session(&id).await {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(session = %id, error, "its completions wait until it can be opened");
                }
            }
        };
        let _detached = spawn_charged(&control, self.shared.node.share(), wake);
    }
}

impl Shared {
    /// Takes the place of a session that was not opened away, if nobody else is at it or has had more luck.
    fn forget_failed(
        &self,
        id: &SessionId,
        cell: &Arc<OnceCell<Session>>,
        opened: &Result<Session, Error>,
    ) {
        let mut awake = self.awake();
        let is_ours = |kept: &Arc<OnceCell<Session>>| {
            Arc::ptr_eq(kept, cell) && Arc::strong_count(kept) == 2 && !kept.initialized()
        };
        if opened.is_err() && awake.get(id).is_some_and(is_ours) {
            awake.remove(id);
        }
    }

    /// A session that was opened under a setting, with the agent of the one that counts now: that may be another since.
    async fn up_to_date(&self, opened: &Arc<Setting>, session: Session) -> Result<Session, Error> {
        let mut opened = Arc::clone(opened);
        loop {
            let now = self.setting().0;
            if Arc::ptr_eq(&opened, &now) {
                return Ok(session);
            }
            let agent = self.builder(&session.agent_name()).agent(session.node()).await?;
            session.renew(agent);
            opened = now;
        }
    }

    async fn wake(
        &self,
        id: &SessionId,
        say: impl FnOnce(SessionBuilder) -> SessionBuilder,
    ) -> Result<Session, Error> {
        let setting = self.setting().0;
        let row = self.store.session(id).await.map_err(|error| of_session(id, error))?;
        let settings: Settings = serde_json::from_str(&row.settings).map_err(|error| {
            let words = StoreError::Corrupt(format!("the settings of session {id}: {error}"));
            of_session(id, words)
        })?;
        let builder = say(self.builder(&row.agent).delivery(settings.delivery));
        let session = builder.reopen(id.clone(), Arc::clone(&self.store)).await?;
        self.up_to_date(&setting, session).await
    }

    fn builder(&self, agent: &str) -> SessionBuilder {
        let (setting, loaded) = self.setting();
        let home = Home {
            profile: self.name.as_str().into(),
            store: Arc::clone(&self.store),
            numbers: Arc::clone(&self.numbers),
            loaded,
        };
        let place = Place { setting, node: Arc::clone(&self.node), home: Some(home) };
        SessionBuilder::new(self.host.clone(), place, agent.to_owned())
    }

    fn setting(&self) -> (Arc<Setting>, Arc<Loaded>) {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, (Arc<Setting>, Arc<Loaded>)> {
        self.setting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn awake(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<OnceCell<Session>>>> {
        self.awake.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn unreadable(profile: &str, error: StoreError) -> Error {
    let attempt = format!("the store of the profile `{profile}` does not do its work");
    Error::because(ErrorKind::Store, attempt, error)
}

pub(super) fn of_session(id: &SessionId, error: StoreError) -> Error {
    let kind = if let StoreError::NoSession(_) = error {
        ErrorKind::NotFound
    } else if let StoreError::InUse { .. } = error {
        ErrorKind::Usage
    } else {
        ErrorKind::Store
    };
    Error::because(kind, format!("could not do that with the session {id}"), error)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("name", &self.shared.name).finish_non_exhaustive()
    }
}
