//! The profiles of a host: which are served, which are parked and why, and which are still being retired (P6, P7).
//!
//! ```text
//!   wanted ──► served ◄──reloaded when its configuration has changed
//!     │          │
//!     │          └──no longer wanted──► retiring ──work has ended──► gone
//!     └──► parked, with its reason; looked at again each time
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, join_all, select, select_all};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{Mutex as Turnstile, Notify, Semaphore};
use tokio::time::{sleep, timeout};

use super::authority::{Authority, Claimed, Held, Retired};
use super::listing::Wanted;
use super::lock::{HomeLock, LockError};
use crate::work::{Refused, Work, blocking};

/// How long taking the lock of a home may take.
const LOCKING: Duration = Duration::from_secs(2);

/// How many homes may be in the middle of being locked; each holds a thread.
const LOCKED_AT_ONCE: usize = 4;

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

    /// Takes over a configuration that has changed, for whatever begins from now on. What runs goes on as it is.
    ///
    /// # Errors
    ///
    /// [`NotOpened`] when the new one is wrong. The profile goes on with the old one then.
    fn reload(
        &self,
        wanted: &Wanted,
        held: &Self::Held,
    ) -> impl Future<Output = Result<(), NotOpened>> + Send;
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
    opens: O,
    host: Work,
    /// For a look; changed only by whoever has `changing`, except that an authority may retire by itself at any time.
    state: Mutex<State<O::Held>>,
    /// One change of the set at a time.
    changing: Turnstile<()>,
    /// Woken when somebody was retired.
    more: Notify,
    /// How many homes may be in the middle of being locked.
    locking: Arc<Semaphore>,
}

struct State<H: Held> {
    served: BTreeMap<String, Served<H>>,
    parked: BTreeMap<String, Parked>,
    retiring: Vec<Authority<H>>,
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
    /// Served as before, with a changed configuration.
    pub reloaded: Vec<String>,
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
        let state =
            State { served: BTreeMap::new(), parked: BTreeMap::new(), retiring: Vec::new() };
        Profiles {
            opens,
            host,
            state: Mutex::new(state),
            changing: Turnstile::new(()),
            more: Notify::new(),
            locking: Arc::new(Semaphore::new(LOCKED_AT_ONCE)),
        }
    }

    /// The profiles that are served, by name.
    pub fn served(&self) -> Vec<Authority<O::Held>> {
        let state = self.state();
        let served = state.served.values().map(|served| &served.authority);
        served.filter(|authority| authority.is_published()).cloned().collect()
    }

    /// One served profile.
    pub fn get(&self, name: &str) -> Option<Authority<O::Held>> {
        let authority = self.state().served.get(name).map(|served| served.authority.clone());
        authority.filter(Authority::is_published)
    }

    /// The profiles that are wanted and not served, and why.
    pub fn parked(&self) -> BTreeMap<String, Parked> {
        self.state().parked.clone()
    }

    /// The authorities that are retired and not released yet. They are not listed, and have lock and handles still.
    pub fn retiring(&self) -> Vec<Authority<O::Held>> {
        let state = self.state();
        let served = state.served.values().map(|served| &served.authority);
        let retired = served.filter(|authority| !authority.is_published());
        state.retiring.iter().chain(retired).cloned().collect()
    }

    /// Makes the served set the wanted one. What is not wanted any more is unlisted and stopped at once, all of it, before
    /// the first wait; the retirements are waited for together, within `bound`. A profile that cannot be released
    /// holds up none of the others (P6). A profile that was retired by name and is wanted is served again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is done stays done, and the next reconciliation goes on from there.
    pub async fn reconcile(&self, wanted: &[Wanted], bound: Duration) -> Reconciled {
        let _one = self.changing.lock().await;
        let mut done = Reconciled { removed: self.unpublish_all_but(wanted), ..Default::default() };
        self.finish_retiring(bound, &mut done).await;
        for wanted in wanted {
            self.sort_out_retired();
            let served = self
                .state()
                .served
                .get(&wanted.name)
                .map(|served| (served.authority.clone(), *served.version == *wanted.version));
            match served {
                Some((_, true)) => done.kept.push(wanted.name.clone()),
                Some((authority, false)) => self.reload(wanted, &authority, &mut done).await,
                None => match self.open(wanted).await {
                    Ok(_) => done.added.push(wanted.name.clone()),
                    Err(parked) => {
                        done.parked.insert(wanted.name.clone(), parked);
                    }
                },
            }
        }
        self.state().parked.clone_from(&done.parked);
        done
    }

    /// Serves one profile, unless it is served already. When its home has an authority that is still being retired, the end
    /// of that is waited for first, within `bound` (P7).
    ///
    /// # Errors
    ///
    /// [`Parked`] with the reason.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the profile is either served or not.
    pub async fn serve(
        &self,
        wanted: &Wanted,
        bound: Duration,
    ) -> Result<Authority<O::Held>, Parked> {
        let _one = self.changing.lock().await;
        self.sort_out_retired();
        if let Some(served) = self.get(&wanted.name).filter(|served| *served.home() == *wanted.home)
        {
            return Ok(served);
        }
        let mut old = self.retiring();
        old.retain(|old| *old.home() == *wanted.home);
        join_all(old.iter().map(|old| old.retire(bound))).await;
        self.forget_released();
        let opened = self.open(wanted).await;
        let mut state = self.state();
        match &opened {
            Ok(_) => state.parked.remove(&wanted.name),
            Err(parked) => state.parked.insert(wanted.name.clone(), parked.clone()),
        };
        opened
    }

    /// Stops serving one profile. It is unlisted and stopped from the first poll on, also while the set is being changed.
    /// None when no such profile is served or being retired.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`Authority::retire`].
    pub async fn retire(&self, name: &str, bound: Duration) -> Option<Retired> {
        let authority = {
            let state = self.state();
            let served = state.served.get(name).map(|served| &served.authority);
            served.or_else(|| state.retiring.iter().find(|old| old.name() == name)).cloned()
        }?;
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

    /// Waits until it is worth while to reconcile again for the sake of those that are retired: one of them has no work
    /// left. For ever while there is none.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn releasable(&self) {
        loop {
            let mut more = std::pin::pin!(self.more.notified());
            more.as_mut().enable();
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

    /// Before the first wait: all that is not wanted is unlisted and stopped. Returns who that is.
    fn unpublish_all_but(&self, wanted: &[Wanted]) -> Vec<String> {
        let leaving: Vec<_> = {
            let stays = |authority: &Authority<O::Held>| {
                let same = |wanted: &Wanted| {
                    *wanted.name == *authority.name() && *wanted.home == *authority.home()
                };
                wanted.iter().any(same)
            };
            let state = self.state();
            let served = state.served.values().map(|served| &served.authority);
            served.filter(|authority| !stays(authority)).cloned().collect()
        };
        leaving.iter().for_each(Authority::unpublish);
        self.sort_out_retired();
        leaving.iter().map(|authority| authority.name().to_owned()).collect()
    }

    /// Moves those that were retired from the served ones to the retiring ones.
    fn sort_out_retired(&self) {
        {
            let mut state = self.state();
            let State { served, retiring, .. } = &mut *state;
            let retired = served.extract_if(.., |_, served| !served.authority.is_published());
            retiring.extend(retired.map(|(_, served)| served.authority));
        }
        self.forget_released();
        self.more.notify_waiters();
    }

    fn forget_released(&self) {
        let released: Vec<_> =
            self.state().retiring.extract_if(.., |old| old.is_released()).collect();
        // Not under the lock: what they hold goes here.
        drop(released);
    }

    async fn finish_retiring(&self, bound: Duration, done: &mut Reconciled) {
        let retiring = self.state().retiring.clone();
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

    async fn reload(&self, wanted: &Wanted, authority: &Authority<O::Held>, done: &mut Reconciled) {
        // None: it was retired by name in this very moment.
        let Some(held) = authority.held() else { return };
        match self.opens.reload(wanted, &held).await {
            Ok(()) => {
                if let Some(served) = self.state().served.get_mut(&wanted.name) {
                    served.version = Arc::clone(&wanted.version);
                }
                done.reloaded.push(wanted.name.clone());
            }
            Err(wrong) => {
                done.not_reloaded.insert(wanted.name.clone(), wrong);
            }
        }
    }

    /// Serves a profile. The lock says whether its home is free; it cannot say that whoever has it is leaving.
    async fn open(&self, wanted: &Wanted) -> Result<Authority<O::Held>, Parked> {
        {
            let state = self.state();
            if let Some(old) = state.retiring.iter().find(|old| *old.home() == *wanted.home) {
                return Err(Parked::Retiring { words: left_of(old) });
            }
            if let Some(other) = state.served.get(&wanted.name) {
                let home = other.authority.home().display();
                let words = format!("the home {home} is served by this name");
                return Err(Parked::Refused { words });
            }
        }
        let lock = self.lock(&wanted.home).await?;
        let claimed = Claimed::new(&self.host, &wanted.name, lock)?;
        let held = self.opens.open(wanted, claimed.work()).await?;
        let authority = Authority::serve(claimed, held).map_err(|error| NotOpened::Unusable {
            words: format!("the system gives no thread: {error}"),
        })?;
        let served = Served { authority: authority.clone(), version: Arc::clone(&wanted.version) };
        self.state().served.insert(wanted.name.clone(), served);
        Ok(authority)
    }

    /// Takes the lock on a thread for such calls: the home may be on a disk that hangs. A lock that comes too late is given
    /// back by whoever took it.
    async fn lock(&self, home: &Path) -> Result<HomeLock, Parked> {
        let slow = || {
            let words = format!("locking the home {} takes too long", home.display());
            Parked::NotOpened(NotOpened::Unusable { words })
        };
        let permit = Arc::clone(&self.locking).try_acquire_owned().map_err(|_| slow())?;
        let (what, path) = (format!("lock of {}", home.display()), home.to_owned());
        let take = move || HomeLock::take(&path);
        let taken = blocking(&Handle::current(), &self.host, &what, permit, take)?;
        match timeout(LOCKING, taken).await {
            Ok(Ok(taken)) => Ok(taken?),
            Ok(Err(_)) | Err(_) => Err(slow()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<O::Held>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

impl<O: Opens> fmt::Debug for Profiles<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
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
