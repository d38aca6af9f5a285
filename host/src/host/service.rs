//! A host that runs for months: the profiles of a directory, kept as the directory says, until it is shut down.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, SetOnce};
use tokio::task::AbortHandle;

use super::homes::{Homes, Served};
use super::host::Host;
use super::profile::Profile;
use super::report::keep as keep_report;
use crate::error::{Error, ErrorKind};
use crate::profile::{Authority, Places, Profiles, Reconciled, Wanted, Watcher, listing};
use crate::work::shutdown::{Bounds, Request, Requested, Settled, Shutdown, StepError, Steps};
use crate::work::{Work, apart, spawn_awaited, spawn_charged};

/// How often sessions that nobody needs are put to sleep.
const REST: Duration = Duration::from_secs(30);

/// How often it is looked whether stores that cannot be closed have written what was queued.
const GLANCE: Duration = Duration::from_millis(10);

/// What a service is started with.
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// The directory of the profiles: each folder in it that has a `profile.toml` is one.
    pub profiles: PathBuf,
    /// How long a reconciliation waits for profiles that are to be released. What is not released in time is tried again.
    pub retire: Duration,
    /// How long each step of the shutdown may take.
    pub bounds: Bounds,
}

/// A host with the profiles of a directory. Cheap to clone; every clone is the same service.
///
/// When the last one goes without a shutdown, everything in its profiles is stopped hard, and each home is free when its work has
/// ended and nobody has a handle of its profile any more. Nobody hears how that goes: ask for a shutdown where it matters.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    _last: Arc<Last>,
}

/// Goes with the last handle of a service, and ends the task that keeps the profiles.
struct Last(Weak<Shared>);

impl Drop for Last {
    fn drop(&mut self) {
        let keeper = self.0.upgrade().and_then(|shared| lock(&shared.keeper).take());
        if let Some(keeper) = keeper {
            keeper.abort();
        }
    }
}

struct Shared {
    host: Host,
    profiles: Profiles<Homes>,
    directory: PathBuf,
    retire: Duration,
    bounds: Bounds,
    /// What was done to the profiles last.
    last: Mutex<Reconciled>,
    /// What was wanted then, and that there is something new.
    acted: (Mutex<Vec<Wanted>>, Notify),
    keeper: Mutex<Option<AbortHandle>>,
    shutdown: SetOnce<Shutdown>,
}

impl Service {
    /// A service that serves nothing yet. It can be asked for the shutdown from now on.
    pub fn new(host: &Host, settings: ServiceSettings) -> Service {
        let ServiceSettings { profiles: directory, retire, bounds } = settings;
        let shared = Shared {
            host: host.clone(),
            profiles: host.profiles(),
            directory,
            retire,
            bounds,
            last: Mutex::default(),
            acted: Default::default(),
            keeper: Mutex::default(),
            shutdown: SetOnce::new(),
        };
        let shared = Arc::new(shared);
        let last = Last(Arc::downgrade(&shared));
        Service { shared, _last: Arc::new(last) }
    }

    /// Serves what is in the directory, and from then on whatever it says: it is watched. A profile that cannot be served is
    /// parked with its reason and keeps none of the others from being served. Returns what was done. To be called once.
    ///
    /// A request for the shutdown gives it up. What is served by then is ended in the steps of the shutdown.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Machine`] when the directory cannot be read, [`ErrorKind::Refused`] when the shutdown has begun.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before it is ready leaves what is served by then, and nothing that watches the directory.
    pub async fn start(&self) -> Result<Reconciled, Error> {
        let shared = Arc::clone(&self.shared);
        let first = async move {
            // Before the first look, so that nothing falls between the two.
            let watcher = Watcher::new(&shared.directory);
            let done = shared.look().await?;
            Ok((watcher, done))
        };
        let (watcher, done) = self.unless_ending(first).await?;
        let keep = keep(Arc::downgrade(&self.shared), watcher);
        let keeper = spawn_charged(self.host().sandbox().control(), self.root().share(), keep);
        *lock(&self.shared.keeper) = Some(keeper.abort_handle());
        Ok(done)
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.shared.host
    }

    /// The directory of the profiles.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// The profiles: served, parked and retiring.
    pub fn profiles(&self) -> &Profiles<Homes> {
        &self.shared.profiles
    }

    /// A profile that is served.
    pub fn profile(&self, name: &str) -> Option<Profile> {
        let held = self.shared.profiles.get(name)?.held()?;
        Some(held.profile().clone())
    }

    /// Makes the served profiles those of the directory, now, with their configurations and what those name: plugins, and the
    /// keys of models. A request for the shutdown gives it up.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Machine`] when the directory cannot be read; nothing is changed then. [`ErrorKind::Refused`] when the
    /// shutdown has begun.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is done stays done.
    pub async fn reconcile(&self) -> Result<Reconciled, Error> {
        let shared = Arc::clone(&self.shared);
        self.unless_ending(async move { shared.look().await }).await
    }

    /// Does that in a task of its own, until the shutdown is asked for: a disk that hangs does not hold the thread of the
    /// caller, who may have signals to hear.
    async fn unless_ending<T: Send + 'static>(
        &self,
        doing: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let control = self.host().sandbox().control();
        let task = spawn_awaited(control, self.root().share(), doing);
        let begun = async { self.shared.shutdown.wait().await.begun().await };
        tokio::select! {
            biased;
            () = begun => {
                let words = "the host is shutting down; it looks at its profiles no more";
                Err(Error::new(ErrorKind::Refused, words))
            }
            done = task => done.unwrap_or_else(|| {
                let words = "the host failed while it looked at its profiles";
                Err(Error::new(ErrorKind::Machine, words))
            }),
        }
    }

    /// The figures of the host and its profiles, as [`Host::metrics`] has them, with the profiles that are parked.
    pub fn metrics(&self) -> String {
        self.host().figures(self.shared.profiles.parked().len() as u64).finish()
    }

    /// What the last reconciliation did.
    pub fn reconciled(&self) -> Reconciled {
        lock(&self.shared.last).clone()
    }

    /// Says what else is done in a shutdown: how clients are told, listeners stopped, the report shown. To be called once,
    /// before the first request; a later call changes nothing. Steps that have a handle of the service keep it alive until they
    /// were taken.
    ///
    /// Tickets are revoked, stores closed and the report kept (as `shutdown.json`, beside the profiles) without being
    /// told. Whoever ends with the service has a watchdog, too: [`Shutdown::watched`].
    pub fn on_shutdown(&self, steps: Steps) {
        if self.shared.shutdown.get().is_none() {
            // Somebody else may have been the first.
            self.shared.shutdown.set(self.shutdown_with(steps)).ok();
        }
    }

    /// Asks for the shutdown. A second request joins the first, and may send it straight to the hard stop (D5, D8).
    pub fn request(&self, request: &Request) -> Requested {
        let requested = self.shutdown().request(request);
        if let Requested::Began = requested {
            // Its steps need the profiles, whoever lets go of the service meanwhile.
            let (service, shutdown) = (self.clone(), self.shutdown().clone());
            let kept = async move {
                drop(shutdown.ended().await);
                drop(service);
            };
            let control = self.host().sandbox().control();
            let _detached = spawn_charged(control, self.root().share(), kept);
        }
        requested
    }

    /// The shutdown, whether or not it has been asked for. Ask by [`Service::request`]: it keeps the service until the end.
    pub fn shutdown(&self) -> &Shutdown {
        loop {
            if let Some(shutdown) = self.shared.shutdown.get() {
                return shutdown;
            }
            self.on_shutdown(Steps::new());
        }
    }

    /// Waits until the ends of all turns that were going on are recorded, so that whoever follows them hears of it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn recorded(&self) {
        let profiles = self.shared.profiles.served().into_iter();
        for authority in profiles.chain(self.shared.profiles.retiring()) {
            if let Some(held) = authority.possession() {
                held.profile().recorded().await;
            }
        }
    }

    /// The profiles, also those that are being retired, in which something has happened that is not recorded yet.
    pub fn unrecorded(&self) -> Vec<String> {
        let profiles = self.shared.profiles.served().into_iter();
        let open = profiles.chain(self.shared.profiles.retiring()).filter(|authority| {
            authority.possession().is_some_and(|held| !held.profile().is_recorded())
        });
        open.map(|authority| authority.name().to_owned()).collect()
    }

    /// How long each step of the shutdown may take.
    pub fn bounds(&self) -> Bounds {
        self.shared.bounds
    }

    fn shutdown_with(&self, steps: Steps) -> Shutdown {
        // The service has the shutdown; the shutdown must not have the service.
        let [revokes, flushes] = [(); 2].map(|()| Arc::downgrade(&self.shared));
        let (host, directory) = (self.host().clone(), self.directory().to_owned());
        let steps = steps
            .revoke_tickets(move || async move {
                if let Some(shared) = revokes.upgrade() {
                    shared.profiles.served().iter().for_each(Authority::unpublish);
                }
                Ok(())
            })
            .flush(move |settled| async move {
                match flushes.upgrade() {
                    Some(shared) => shared.flush(settled).await,
                    None => Ok(()),
                }
            })
            .also_report(move |report| async move {
                let (control, root) = (host.sandbox().control(), host.node().share());
                apart(control, root, move || keep_report(&directory, &report)).await?
            });
        self.host().shutdown_in_steps(self.shared.bounds, steps)
    }

    fn root(&self) -> &Work {
        self.shared.host.node()
    }
}

impl Shared {
    /// Reads the directory, and makes the served profiles those in it.
    async fn look(&self) -> Result<Reconciled, Error> {
        let wanted = listing(&self.directory).map_err(|error| {
            let attempt = format!("could not read the profiles in {}", self.directory.display());
            Error::because(ErrorKind::Machine, attempt, error)
        })?;
        Ok(self.reconcile(&wanted).await)
    }

    async fn reconcile(&self, wanted: &[Wanted]) -> Reconciled {
        let done = self.profiles.reconcile(wanted, self.retire).await;
        let nothing = Reconciled { kept: done.kept.clone(), ..Reconciled::default() };
        if done != nothing {
            tracing::info!(
                added = ?done.added,
                reloaded = ?done.changed,
                removed = ?done.removed,
                released = ?done.released,
                parked = ?done.parked.keys(),
                "the profiles were looked at"
            );
        }
        for (name, parked) in &done.parked {
            tracing::warn!(profile = name, reason = %parked, "the profile is parked");
        }
        for (name, wrong) in &done.not_reloaded {
            tracing::warn!(profile = name, reason = %wrong, "the profile keeps its old configuration");
        }
        lock(&self.last).clone_from(&done);
        *lock(&self.acted.0) = wanted.to_vec();
        self.acted.1.notify_one();
        done
    }

    /// What the configurations of the served profiles name.
    fn places(&self) -> Places {
        let mut all = Places::default();
        for authority in self.profiles.served() {
            if let Some(held) = authority.held() {
                let Places { files, directories } = held.profile().places();
                all.files.extend(files);
                all.directories.extend(directories);
            }
        }
        all
    }

    /// Whether something is not as it was when it was acted on last. `known` are profiles that could not be reloaded.
    async fn is_news(&self, wanted: &[Wanted], known: &mut BTreeSet<String>) -> bool {
        if *lock(&self.acted.0) != wanted {
            return true;
        }
        let outdated = self.profiles.outdated().await;
        let is_news = !outdated.is_subset(known);
        known.retain(|name| outdated.contains(name));
        is_news
    }

    /// Closes the stores of the profiles whose work has ended, and waits until those of the others have written what they
    /// were given.
    async fn flush(&self, settled: Settled) -> Result<(), StepError> {
        if let Some(keeper) = lock(&self.keeper).take() {
            keeper.abort();
        }
        let stores: Vec<Arc<Served>> = self
            .profiles
            .retiring()
            .iter()
            .chain(&self.profiles.served())
            .filter_map(|authority| authority.possession())
            .collect();
        let done = self.profiles.retire_all(Duration::ZERO).await;
        let profiles = stores.iter().map(|held| held.profile());
        for profile in profiles.filter(|one| done.not_released.contains_key(one.name())) {
            while profile.health().queued_bytes > 0 {
                tokio::time::sleep(GLANCE).await;
            }
        }
        let unwritten: Vec<String> = stores
            .iter()
            .filter_map(|held| Some(format!("{}: {}", held.profile().name(), held.unwritten()?)))
            .collect();
        if !unwritten.is_empty() {
            return Err(format!("not all was written: {}", unwritten.join("; ")).into());
        }
        match (settled, done.not_released.len()) {
            (Settled::Drained(_), 0) | (Settled::Left(_), _) => Ok(()),
            (Settled::Drained(_), _) => Err(format!("not closed: {:?}", done.not_released).into()),
        }
    }
}

/// Keeps the profiles as the directory says, until the service is gone or the host takes no new work.
async fn keep(service: Weak<Shared>, mut watcher: Watcher) {
    let mut rest = tokio::time::interval(REST);
    rest.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut known = BTreeSet::new();
    loop {
        let Some(shared) = service.upgrade() else { return };
        if shared.shutdown.get().is_some_and(Shutdown::has_begun) {
            return;
        }
        let wanted = tokio::select! {
            wanted = watcher.changed() => match wanted {
                Ok(wanted) if !shared.is_news(&wanted, &mut known).await => continue,
                wanted => wanted,
            },
            () = shared.profiles.releasable() => listing(&shared.directory),
            () = shared.acted.1.notified() => {
                watcher.saw(&lock(&shared.acted.0));
                watcher.attend_to(shared.places());
                continue;
            }
            _ = rest.tick() => {
                for authority in shared.profiles.served() {
                    if let Some(held) = authority.held() {
                        held.profile().rest();
                    }
                }
                continue;
            }
        };
        match wanted {
            Ok(wanted) => {
                known = shared.reconcile(&wanted).await.not_reloaded.into_keys().collect()
            }
            Err(error) => {
                let directory = shared.directory.display();
                tracing::error!(%directory, %error, "the profiles cannot be read; they stay as they are");
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("directory", &self.shared.directory)
            .field("profiles", &self.shared.profiles)
            .finish_non_exhaustive()
    }
}
