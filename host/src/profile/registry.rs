//! The profiles of a host: which are served, which are parked and why, and which are still being retired (P6, P7).
//!
//! ```text
//!   wanted ──► served ◄──reloaded when its configuration has changed, or what that names
//!     │          │
//!     │          └──no longer wanted──► retiring ──work has ended──► gone
//!     └──► parked, with its reason; looked at again each time
//! ```
//!
//! Homes are opened, and changed configurations taken over, side by side, each by a task of its own. Whoever asked waits for them
//! for a while; what takes longer goes on, and is published when it is done. So a home that is slow holds up no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, join_all, select, select_all};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{Mutex as Turnstile, Notify, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::authority::{Authority, Claimed, Held, Retired};
use super::listing::Wanted;
use super::lock::{HomeLock, LockError};
use crate::work::{Refused, Work, blocking, spawn_charged};

/// How long taking the lock of a home may take.
const LOCKING: Duration = Duration::from_secs(2);

/// How many homes may be in the middle of being locked; each holds a thread.
const LOCKED_AT_ONCE: usize = 4;

/// How long a reconciliation waits for homes that are being opened and for configurations that are being taken over. A component
/// may have to be compiled first, and a disk may hang.
const OPENING: Duration = Duration::from_secs(5);

/// How long until a profile without work that could not be closed is worth another attempt.
const AGAIN: Duration = Duration::from_secs(1);

/// What makes a profile of a home and its configuration.
pub trait Opens: Send + Sync + 'static {
    /// What a served profile holds.
    type Held: Held;

    /// Opens what the profile is to hold. Its home is locked. All work of it is opened below `work`; when it fails, or is
    /// given up, what is there already is stopped, and the home stays locked until that has ended.
    ///
    /// # Errors
    ///
    /// [`NotOpened`] with what an operator has to know.
    fn open(
        &self,
        wanted: &Wanted,
        work: &Work,
    ) -> impl Future<Output = Result<Self::Held, NotOpened>> + Send;

    /// Whether something that the configuration of a served profile names has changed since it was taken over.
    fn is_outdated(&self, held: &Self::Held) -> impl Future<Output = bool> + Send;

    /// Takes over a configuration that has changed, and what it names, for whatever begins from now on. What runs goes on as
    /// it is. Returns what has changed beside the configuration, in words.
    ///
    /// # Errors
    ///
    /// [`NotOpened`] when the new one is wrong. The profile goes on with the old one then.
    fn reload(
        &self,
        wanted: &Wanted,
        held: &Self::Held,
    ) -> impl Future<Output = Result<Vec<String>, NotOpened>> + Send;
}

/// Why a profile was not opened, or its new configuration not taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
pub enum NotOpened {
    /// A configuration is wrong.
    #[error(
        "{}{}{}: {words}", .file.display(),
        .line.map(|line| format!(", line {line}")).unwrap_or_default(),
        .key.as_ref().map(|key| format!(", `{key}`")).unwrap_or_default()
    )]
    Configuration {
        /// The file.
        file: PathBuf,
        /// The line in it, from 1.
        line: Option<usize>,
        /// The key.
        key: Option<String>,
        /// What is wrong with it.
        words: String,
    },
    /// The machine or the home does not give what is needed.
    #[error("{words}")]
    Unusable {
        /// What was attempted, and why it failed.
        words: String,
    },
}

/// Why a profile that is wanted is not served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "reason")]
#[non_exhaustive]
pub enum Parked {
    /// Another process, or another profile of this host, has the home.
    #[error("{words}")]
    LockHeld {
        /// The process, as far as it has said so.
        pid: Option<u32>,
        /// Who has it, and what to do.
        words: String,
    },
    /// The authority that served the home before has not ended yet (P7).
    #[error("the authority that served this home before is still being retired: {words}")]
    Retiring {
        /// What is in the way.
        words: String,
    },
    /// It is being opened, and will be served when that is done.
    #[error("{words}")]
    Opening {
        /// What is known of it.
        words: String,
    },
    /// It could not be opened.
    #[error("{0}")]
    NotOpened(NotOpened),
    /// The host takes no new work.
    #[error("{words}")]
    Refused {
        /// Why.
        words: String,
    },
}

/// The profiles of one host.
pub struct Profiles<O: Opens> {
    shared: Arc<Shared<O>>,
    /// One change of the set at a time.
    changing: Turnstile<()>,
}

/// What whoever opens a home has, too.
struct Shared<O: Opens> {
    opens: O,
    host: Work,
    /// For a look; changed only by whoever has `changing`, except that an authority may retire by itself at any time, and that
    /// whoever is done with a home takes its name out of `busy` and puts it where it belongs.
    state: Mutex<State<O::Held>>,
    /// Woken when somebody was retired, or a home was opened that nobody waited for any more.
    more: Notify,
    /// How many homes may be in the middle of being locked.
    locking: Arc<Semaphore>,
}

struct State<H: Held> {
    served: BTreeMap<String, Served<H>>,
    parked: BTreeMap<String, Parked>,
    retiring: Vec<Authority<H>>,
    /// Homes that are being opened, and served ones whose configuration is being taken over.
    busy: BTreeMap<String, Busy>,
    /// How many have ever been busy.
    begun: u64,
    /// Something was done so late that what is wanted may be something else by now.
    late: bool,
}

/// A name at which a task is busy.
struct Busy {
    /// Which of all: whoever is not this one any more has been given up.
    number: u64,
    home: PathBuf,
    task: AbortHandle,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Served<H: Held> {
    authority: Authority<H>,
    /// The configuration that it was opened with, or took over last.
    version: Arc<str>,
}

/// What a reconciliation did, for whoever asked for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Reconciled {
    /// Served from now on.
    pub added: Vec<String>,
    /// Served as before.
    pub kept: Vec<String>,
    /// Served as before, with a changed configuration, or others of the things that it names.
    pub reloaded: Vec<String>,
    /// What has changed of each that was reloaded.
    pub changed: BTreeMap<String, Vec<String>>,
    /// Served as before with the old configuration, because the new one is wrong.
    pub not_reloaded: BTreeMap<String, NotOpened>,
    /// Unlisted and stopped by this reconciliation.
    pub removed: Vec<String>,
    /// Everything of them is given back, now that their work has ended. They were removed now or before.
    pub released: Vec<String>,
    /// Removed, now or before, and not released, because of what is said here. They are tried again.
    pub not_released: BTreeMap<String, String>,
    /// Wanted and not served, because of what is said here.
    pub parked: BTreeMap<String, Parked>,
}

impl<O: Opens> Profiles<O> {
    /// None yet. Their nodes will be below `host`.
    pub fn new(host: Work, opens: O) -> Profiles<O> {
        let state = State {
            served: BTreeMap::new(),
            parked: BTreeMap::new(),
            retiring: Vec::new(),
            busy: BTreeMap::new(),
            begun: 0,
            late: false,
        };
        let shared = Shared {
            opens,
            host,
            state: Mutex::new(state),
            more: Notify::new(),
            locking: Arc::new(Semaphore::new(LOCKED_AT_ONCE)),
        };
        Profiles { shared: Arc::new(shared), changing: Turnstile::new(()) }
    }

    /// The profiles that are served, by name.
    pub fn served(&self) -> Vec<Authority<O::Held>> {
        let state = self.shared.state();
        let served = state.served.values().map(|served| &served.authority);
        served.filter(|authority| authority.is_published()).cloned().collect()
    }

    /// One served profile.
    pub fn get(&self, name: &str) -> Option<Authority<O::Held>> {
        let authority = self.shared.state().served.get(name).map(|served| served.authority.clone());
        authority.filter(Authority::is_published)
    }

    /// The profiles that are wanted and not served, and why.
    pub fn parked(&self) -> BTreeMap<String, Parked> {
        self.shared.state().parked.clone()
    }

    /// The authorities that are retired and not released yet. They are not listed, and have lock and handles still.
    pub fn retiring(&self) -> Vec<Authority<O::Held>> {
        let state = self.shared.state();
        let served = state.served.values().map(|served| &served.authority);
        let retired = served.filter(|authority| !authority.is_published());
        state.retiring.iter().chain(retired).cloned().collect()
    }

    /// Makes the served set the wanted one. What is not wanted any more is unlisted and stopped at once, all of it, before
    /// the first wait; the retirements are waited for together, within `bound`. A profile that cannot be released
    /// holds up none of the others (P6). A profile that was retired by name and is wanted is served again.
    ///
    /// All homes are opened side by side. One that is not opened within five seconds is parked as [`Parked::Opening`], goes on
    /// being opened, and is published as soon as it is; in the same way a configuration is taken over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is done stays done, and the next reconciliation goes on from there.
    pub async fn reconcile(&self, wanted: &[Wanted], bound: Duration) -> Reconciled {
        let _one = self.changing.lock().await;
        let mut done = Reconciled { removed: self.unpublish_all_but(wanted), ..Default::default() };
        self.finish_retiring(bound, &mut done).await;
        self.sort_out_retired();
        self.shared.state().late = false;
        let until = Instant::now() + OPENING;
        // All have begun before the first is waited for.
        let begin = |wanted: &Wanted| (wanted.name.clone(), Shared::begin(&self.shared, wanted));
        let changes: Vec<_> = wanted.iter().map(begin).collect();
        let ends = changes.into_iter().map(|(name, change)| async move {
            let changed = change.within(&name, until).await;
            (name, changed)
        });
        for (name, change) in join_all(ends).await {
            match change {
                Changed::Kept => done.kept.push(name),
                Changed::Opened(Ok(_)) => done.added.push(name),
                Changed::Opened(Err(parked)) => drop(done.parked.insert(name, parked)),
                Changed::Reloaded(Ok(changed)) => {
                    done.changed.insert(name.clone(), changed);
                    done.reloaded.push(name);
                }
                Changed::Reloaded(Err(wrong)) => drop(done.not_reloaded.insert(name, wrong)),
            }
        }
        let mut state = self.shared.state();
        let mut parked = done.parked.clone();
        // What was done after its time was over may have been done since.
        parked.retain(|name, _| !state.served.contains_key(name));
        for (name, parked) in &mut parked {
            if let Parked::Opening { .. } = parked
                && !state.busy.contains_key(name)
                && let Some(failed) = state.parked.get(name)
            {
                parked.clone_from(failed);
            }
        }
        state.parked = parked;
        drop(state);
        done
    }

    /// Serves one profile, unless it is served already. When its home has an authority that is still being retired, the end
    /// of that is waited for first, within `bound` (P7). That the home is opened is waited for without a bound.
    ///
    /// # Errors
    ///
    /// [`Parked`] with the reason.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. When opening has begun it goes on.
    pub async fn serve(
        &self,
        wanted: &Wanted,
        bound: Duration,
    ) -> Result<Authority<O::Held>, Parked> {
        let begun = {
            let _one = self.changing.lock().await;
            self.sort_out_retired();
            let served = self.get(&wanted.name);
            if let Some(served) = served.filter(|served| *served.home() == *wanted.home) {
                return Ok(served);
            }
            let mut old = self.retiring();
            old.retain(|old| *old.home() == *wanted.home);
            join_all(old.iter().map(|old| old.retire(bound))).await;
            self.forget_released();
            Shared::open(&self.shared, wanted)
        };
        let opened = match begun {
            Ok(begun) => begun.await.unwrap_or_else(|_| Err(given_up(&wanted.name))),
            Err(parked) => Err(parked),
        };
        if let Err(parked) = &opened {
            self.shared.state().parked.insert(wanted.name.clone(), parked.clone());
        }
        opened
    }

    /// Stops serving one profile. It is unlisted and stopped from the first poll on, also while the set is being changed.
    /// None when no such profile is served or being retired; one that is being opened is given up.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`Authority::retire`].
    pub async fn retire(&self, name: &str, bound: Duration) -> Option<Retired> {
        let (authority, given_up) = {
            let mut state = self.shared.state();
            let given_up = state.busy.remove(name);
            let served = state.served.get(name).map(|served| &served.authority);
            let old = served.or_else(|| state.retiring.iter().find(|old| old.name() == name));
            (old.cloned(), given_up)
        };
        drop(given_up);
        let authority = authority?;
        authority.unpublish();
        self.sort_out_retired();
        let retired = authority.retire(bound).await;
        self.forget_released();
        Some(retired)
    }

    /// Retires everything, together, within `bound`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`Profiles::reconcile`].
    pub async fn retire_all(&self, bound: Duration) -> Reconciled {
        self.served().iter().for_each(Authority::unpublish);
        self.reconcile(&[], bound).await
    }

    /// Waits until it is worth while to reconcile again: one of those that are retired has no work left, or a home was opened so
    /// late that something else may be wanted by now. For ever while there is no such thing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn releasable(&self) {
        loop {
            let mut more = std::pin::pin!(self.shared.more.notified());
            more.as_mut().enable();
            if self.shared.state().late {
                return;
            }
            let retiring = self.retiring();
            let ended = retiring.iter().map(|old| async {
                if old.is_idle() {
                    // What it held could not be closed.
                    sleep(AGAIN).await;
                } else {
                    old.idle().await;
                }
            });
            match select(pin!(first_of(ended)), more).await {
                Either::Left(_) => return,
                Either::Right(_) => {}
            }
        }
    }

    /// The served profiles of which something has changed that their configurations name.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn outdated(&self) -> BTreeSet<String> {
        let mut outdated = BTreeSet::new();
        for authority in self.served() {
            if let Some(held) = authority.held()
                && self.shared.opens.is_outdated(&held).await
            {
                outdated.insert(authority.name().to_owned());
            }
        }
        outdated
    }

    /// Before the first wait: all that is not wanted is unlisted and stopped. Returns who that is.
    fn unpublish_all_but(&self, wanted: &[Wanted]) -> Vec<String> {
        let (leaving, given_up): (Vec<_>, Vec<_>) = {
            let stays = |name: &str, home: &Path| {
                wanted.iter().any(|wanted| *wanted.name == *name && *wanted.home == *home)
            };
            let mut state = self.shared.state();
            let given_up = state.busy.extract_if(.., |name, busy| !stays(name, &busy.home));
            let given_up = given_up.collect();
            let served = state.served.values().map(|served| &served.authority);
            let leave =
                |authority: &&Authority<O::Held>| !stays(authority.name(), authority.home());
            (served.filter(leave).cloned().collect(), given_up)
        };
        // Not under the lock: what they had opened goes here.
        drop(given_up);
        leaving.iter().for_each(Authority::unpublish);
        self.sort_out_retired();
        leaving.iter().map(|authority| authority.name().to_owned()).collect()
    }

    /// Moves those that were retired from the served ones to the retiring ones.
    fn sort_out_retired(&self) {
        {
            let mut state = self.shared.state();
            let State { served, retiring, .. } = &mut *state;
            let retired = served.extract_if(.., |_, served| !served.authority.is_published());
            retiring.extend(retired.map(|(_, served)| served.authority));
        }
        self.forget_released();
        self.shared.more.notify_waiters();
    }

    fn forget_released(&self) {
        let released: Vec<_> =
            self.shared.state().retiring.extract_if(.., |old| old.is_released()).collect();
        // Not under the lock: what they hold goes here.
        drop(released);
    }

    async fn finish_retiring(&self, bound: Duration, done: &mut Reconciled) {
        let retiring = self.shared.state().retiring.clone();
        let retired = join_all(retiring.iter().map(|old| old.retire(bound))).await;
        for (old, retired) in retiring.iter().zip(retired) {
            match retired {
                Retired::Released => done.released.push(old.name().to_owned()),
                Retired::NotReleased(left) => {
                    done.not_released.insert(old.name().to_owned(), left.to_string());
                }
            }
        }
        self.forget_released();
    }
}

impl<O: Opens> Shared<O> {
    /// Begins what there is to do about a profile that is wanted.
    fn begin(shared: &Arc<Self>, wanted: &Wanted) -> Change<O::Held> {
        let served = {
            let state = shared.state();
            let served = state.served.get(&wanted.name);
            let served = served.filter(|served| served.authority.is_published());
            served.map(|served| (served.authority.clone(), *served.version == *wanted.version))
        };
        match served {
            Some((authority, is_same)) => Shared::reload(shared, wanted, &authority, is_same),
            None => match Shared::open(shared, wanted) {
                Ok(opening) => Change::Opening(opening),
                Err(parked) => Change::Done(Changed::Opened(Err(parked))),
            },
        }
    }

    /// Begins to take over what has changed of a profile. Whether its configuration names something that has is looked at by
    /// the task, too.
    fn reload(
        shared: &Arc<Self>,
        wanted: &Wanted,
        authority: &Authority<O::Held>,
        is_same: bool,
    ) -> Change<O::Held> {
        // None: it was retired by name in this very moment.
        let Some(held) = authority.held() else { return Change::Done(Changed::Kept) };
        let (tell, told) = oneshot::channel();
        let (opener, wanted) = (Arc::clone(shared), wanted.clone());
        let (name, home, id) = (wanted.name.clone(), wanted.home.clone(), authority.id());
        let begun = shared.busy(&name, home, |number| async move {
            let reloaded = opener.reloaded(&wanted, &held, is_same).await;
            drop(held);
            opener.done(&wanted.name, number, |state| {
                let served = state.served.get_mut(&wanted.name);
                if let Some(served) = served.filter(|served| served.authority.id() == id)
                    && reloaded.is_ok()
                {
                    served.version = Arc::clone(&wanted.version);
                }
                state.late |= tell.send(reloaded).is_err();
            });
        });
        match begun {
            Ok(()) => Change::Reloading(told),
            Err(_) => Change::Done(Changed::Reloaded(Err(slow(&name)))),
        }
    }

    /// Takes over what has changed, and says what that was; none when nothing has.
    async fn reloaded(
        &self,
        wanted: &Wanted,
        held: &O::Held,
        is_same: bool,
    ) -> Result<Option<Vec<String>>, NotOpened> {
        if is_same && !self.opens.is_outdated(held).await {
            return Ok(None);
        }
        let beside = self.opens.reload(wanted, held).await?;
        let own = (!is_same).then(|| "the configuration has changed".to_owned());
        Ok(Some(own.into_iter().chain(beside).collect()))
    }

    /// Begins to open a home. The lock says whether it is free; it cannot say that whoever has it is leaving.
    fn open(shared: &Arc<Self>, wanted: &Wanted) -> Result<Opening<O::Held>, Parked> {
        {
            let state = shared.state();
            if let Some(old) = state.retiring.iter().find(|old| *old.home() == *wanted.home) {
                return Err(Parked::Retiring { words: left_of(old) });
            }
            if let Some(other) = state.served.get(&wanted.name) {
                let home = other.authority.home().display();
                let words = format!("the home {home} is served by this name");
                return Err(Parked::Refused { words });
            }
        }
        let (tell, told) = oneshot::channel();
        let (opener, wanted) = (Arc::clone(shared), wanted.clone());
        let (name, home) = (wanted.name.clone(), wanted.home.clone());
        shared.busy(&name, home, |number| async move {
            let opened = opener.opened(&wanted).await;
            opener.done(&wanted.name, number, |state| {
                let name = wanted.name.clone();
                match &opened {
                    Ok(authority) => {
                        let (authority, version) = (authority.clone(), Arc::clone(&wanted.version));
                        state.parked.remove(&name);
                        state.served.insert(name, Served { authority, version });
                    }
                    Err(parked) => drop(state.parked.insert(name, parked.clone())),
                }
                let is_served = opened.is_ok();
                state.late |= tell.send(opened).is_err() && is_served;
            });
        })?;
        Ok(told)
    }

    /// Starts a task that is busy with that name, unless one is.
    fn busy<F>(&self, name: &str, home: PathBuf, task: impl FnOnce(u64) -> F) -> Result<(), Parked>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut state = self.state();
        if state.busy.contains_key(name) {
            return Err(opening(name));
        }
        state.begun += 1;
        let number = state.begun;
        // It waits for the lock of the state before it says that it is done.
        let task = spawn_charged(&Handle::current(), self.host.share(), task(number));
        state.busy.insert(name.to_owned(), Busy { number, home, task: task.abort_handle() });
        Ok(())
    }

    /// The task of that number is done, and changes the state, unless it has been given up.
    fn done(&self, name: &str, number: u64, change: impl FnOnce(&mut State<O::Held>)) {
        let mut state = self.state();
        if state.busy.get(name).is_some_and(|busy| busy.number == number) {
            // To abort what is at its end does nothing.
            let busy = state.busy.remove(name);
            change(&mut state);
            drop(state);
            drop(busy);
            self.more.notify_waiters();
        }
    }

    async fn opened(&self, wanted: &Wanted) -> Result<Authority<O::Held>, Parked> {
        let lock = self.lock(&wanted.home).await?;
        let claimed = Claimed::new(&self.host, &wanted.name, lock)?;
        let held = self.opens.open(wanted, claimed.work()).await?;
        let authority = Authority::serve(claimed, held).map_err(|error| NotOpened::Unusable {
            words: format!("the system gives no thread: {error}"),
        })?;
        Ok(authority)
    }

    /// Takes the lock on a thread for such calls: the home may be on a disk that hangs. A lock that comes too late is given
    /// back by whoever took it.
    async fn lock(&self, home: &Path) -> Result<HomeLock, Parked> {
        let slow = || {
            let words = format!("locking the home {} takes too long", home.display());
            Parked::NotOpened(NotOpened::Unusable { words })
        };
        let until = Instant::now() + LOCKING;
        let permit = timeout_at(until, Arc::clone(&self.locking).acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(slow)?;
        let (what, path) = (format!("lock of {}", home.display()), home.to_owned());
        let take = move || HomeLock::take(&path);
        let taken = blocking(&Handle::current(), &self.host, &what, permit, take)?;
        match timeout_at(until, taken).await {
            Ok(Ok(taken)) => Ok(taken?),
            Ok(Err(_)) | Err(_) => Err(slow()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<O::Held>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Opening<H> = oneshot::Receiver<Result<Authority<H>, Parked>>;

/// What was begun about one profile.
enum Change<H: Held> {
    Done(Changed<H>),
    Opening(Opening<H>),
    Reloading(oneshot::Receiver<Result<Option<Vec<String>>, NotOpened>>),
}

/// What came of it.
enum Changed<H: Held> {
    Kept,
    Opened(Result<Authority<H>, Parked>),
    /// With what has changed of it.
    Reloaded(Result<Vec<String>, NotOpened>),
}

impl<H: Held> Change<H> {
    /// Waits for it, but not beyond `until`.
    async fn within(self, name: &str, until: Instant) -> Changed<H> {
        match self {
            Change::Done(changed) => changed,
            Change::Opening(told) => Changed::Opened(match timeout_at(until, told).await {
                Ok(Ok(opened)) => opened,
                Ok(Err(_)) => Err(given_up(name)),
                Err(_) => Err(opening(name)),
            }),
            Change::Reloading(told) => match timeout_at(until, told).await {
                Ok(Ok(Ok(None))) => Changed::Kept,
                Ok(Ok(Ok(Some(changed)))) => Changed::Reloaded(Ok(changed)),
                Ok(Ok(Err(wrong))) => Changed::Reloaded(Err(wrong)),
                Ok(Err(_)) | Err(_) => Changed::Reloaded(Err(slow(name))),
            },
        }
    }
}

fn opening(name: &str) -> Parked {
    Parked::Opening { words: format!("the profile {name} is still being opened") }
}

fn given_up(name: &str) -> Parked {
    Parked::Refused { words: format!("the profile {name} was given up while it was being opened") }
}

fn slow(name: &str) -> NotOpened {
    let words = format!("the configuration of the profile {name} is still being taken over");
    NotOpened::Unusable { words }
}

/// The first of several ends; never, when there are none.
async fn first_of(ends: impl Iterator<Item = impl Future<Output = ()>>) {
    let ends: Vec<_> = ends.map(Box::pin).collect();
    if ends.is_empty() {
        return std::future::pending().await;
    }
    select_all(ends).await;
}

/// What keeps an authority that is being retired.
fn left_of<H: Held>(old: &Authority<H>) -> String {
    match old.left() {
        Some(left) => left.to_string(),
        None => format!("the profile {} is about to be released", old.name()),
    }
}

impl<O: Opens> Drop for Profiles<O> {
    /// What is being opened is given up.
    fn drop(&mut self) {
        let given_up = std::mem::take(&mut self.shared.state().busy);
        drop(given_up);
    }
}

impl<O: Opens> fmt::Debug for Profiles<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        f.debug_struct("Profiles")
            .field("served", &state.served.keys().collect::<Vec<_>>())
            .field("parked", &state.parked)
            .field("retiring", &state.retiring)
            .finish_non_exhaustive()
    }
}

impl From<NotOpened> for Parked {
    fn from(why: NotOpened) -> Parked {
        Parked::NotOpened(why)
    }
}

impl From<Refused> for Parked {
    fn from(refused: Refused) -> Parked {
        Parked::Refused { words: refused.to_string() }
    }
}

impl From<LockError> for Parked {
    fn from(error: LockError) -> Parked {
        let words = error.to_string();
        match error {
            LockError::Held { holder, .. } => {
                Parked::LockHeld { pid: holder.map(|holder| holder.process.pid), words }
            }
            LockError::Unusable { source, .. } => {
                Parked::NotOpened(NotOpened::Unusable { words: format!("{words}: {source}") })
            }
        }
    }
}
