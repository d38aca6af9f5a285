//! Notices that a directory of profiles has changed, or something else that their configurations name.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::future::pending;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::listing::{CONFIGURATION, Wanted, listing};

/// How long it has to be quiet before a change counts: who copies a profile writes more than one file.
const QUIET: Duration = Duration::from_millis(200);

/// How long a change is held back at most, while others follow.
const LATEST: Duration = Duration::from_secs(2);

/// How often the directory is read where the system tells nothing, and where it does: a network file system tells only of
/// what this machine has changed.
const POLL: Duration = Duration::from_secs(2);
const POLL_BESIDE: Duration = Duration::from_secs(30);

/// Watches a directory of profiles. It needs no task and no thread: it watches while [`Watcher::changed`] is polled, and
/// what happens in between is seen by the next call.
pub struct Watcher {
    directory: PathBuf,
    /// None where the system has no more watches to give.
    events: Option<AsyncFd<OwnedFd>>,
    /// What is watched, and what of it may matter.
    watched: BTreeMap<i32, Matters>,
    places: Places,
    /// What was last told, or acted on by somebody else. None when it could not be read.
    last: Option<Vec<Wanted>>,
    /// Something may have changed since the directory was read.
    touched: bool,
    /// When it is read though nothing has been heard.
    next: Instant,
}

/// Places beside a directory of profiles whose changes may matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Single files, whether or not they are there.
    pub files: BTreeSet<PathBuf>,
    /// Directories: what comes and goes in them, and the files in their subfolders.
    pub directories: BTreeSet<PathBuf>,
}

/// What matters in a folder that is watched.
enum Matters {
    All,
    Files(BTreeSet<OsString>),
}

impl Watcher {
    /// Watches from now on: what is there already is no change. To be called in a runtime with IO and time.
    pub fn new(directory: &Path) -> Watcher {
        let events = match start() {
            Ok(events) => Some(events),
            Err(error) => {
                tracing::warn!(
                    directory = %directory.display(), %error,
                    "the system does not tell of changes; the directory is read every {POLL:?}"
                );
                None
            }
        };
        Watcher::with(directory, events)
    }

    /// Watches by reading the directory again and again.
    pub fn polling(directory: &Path) -> Watcher {
        Watcher::with(directory, None)
    }

    fn with(directory: &Path, events: Option<AsyncFd<OwnedFd>>) -> Watcher {
        let mut watcher = Watcher {
            directory: directory.to_owned(),
            events,
            watched: BTreeMap::new(),
            places: Places::default(),
            last: None,
            touched: false,
            next: Instant::now(),
        };
        watcher.next += watcher.poll();
        watcher.attend();
        watcher.last = listing(directory).ok();
        watcher
    }

    /// Waits until the profiles in the directory are others, or have other configurations, and it has been quiet for a
    /// while. Returns what is wanted now. Where there are places beside the directory it also returns, with the same
    /// profiles, when something in those may have changed: whoever knows what is there has to look.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read any more; once, until it can be read again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a change that was not told is told by the next call.
    pub async fn changed(&mut self) -> io::Result<Vec<Wanted>> {
        loop {
            if !self.touched {
                self.touched = tokio::select! {
                    () = self.hears() => true,
                    () = sleep_until(self.next) => false,
                };
            }
            if self.touched {
                let latest = Instant::now() + LATEST;
                while let Ok(()) =
                    timeout_at(latest.min(Instant::now() + QUIET), self.hears()).await
                {
                    if Instant::now() >= latest {
                        break;
                    }
                }
            }
            self.touched = false;
            self.next = Instant::now() + self.poll();
            // First the watches, then a look, so that nothing falls between them.
            self.attend();
            match listing(&self.directory) {
                Ok(now) if self.last.as_ref() != Some(&now) => {
                    self.last = Some(now.clone());
                    return Ok(now);
                }
                Ok(now) if self.places != Places::default() => return Ok(now),
                Ok(_) => {}
                Err(error) if self.last.take().is_some() => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Somebody else has acted on what was there: what differs from that is a change, also where it was told before.
    pub fn saw(&mut self, wanted: &[Wanted]) {
        if self.last.as_deref() != Some(wanted) {
            self.last = Some(wanted.to_vec());
            // It may have changed since, and that was no change then.
            self.touched = true;
        }
    }

    /// Watches these places too, in place of those that were named before, and tells of them at once.
    pub fn attend_to(&mut self, places: Places) {
        if self.places != places {
            self.places = places;
            self.touched = true;
        }
    }

    fn poll(&self) -> Duration {
        if self.events.is_some() { POLL_BESIDE } else { POLL }
    }

    /// Waits until the system tells of something that may matter.
    async fn hears(&self) {
        let Some(events) = &self.events else { return pending().await };
        loop {
            let Ok(mut ready) = events.readable().await else { return pending().await };
            let mut matters = false;
            let mut space = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(ready.get_inner(), &mut space);
            loop {
                match reader.next() {
                    Ok(event) => {
                        matters |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                            || match self.watched.get(&event.wd()) {
                                Some(Matters::All) => true,
                                Some(Matters::Files(names)) => {
                                    let name = event.file_name().map(|name| name.to_bytes());
                                    name.is_some_and(|name| names.contains(OsStr::from_bytes(name)))
                                }
                                None => false,
                            };
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => break,
                }
            }
            ready.clear_ready();
            if matters {
                return;
            }
        }
    }

    /// Watches the directory and each folder in it, and the places beside. Those that are watched already stay so.
    fn attend(&mut self) {
        let Some(events) = &self.events else { return };
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        // Where there is no watch, the directory is read now and then all the same.
        let watch = |folder: &Path| inotify::add_watch(events, folder, flags).ok();
        let mut watched = BTreeMap::new();
        let mut all = |folder: &Path| {
            watch(folder).map(|place| watched.insert(place, Matters::All));
        };
        all(&self.directory);
        for directory in &self.places.directories {
            all(directory);
            folders_in(directory).iter().for_each(|folder| all(folder));
        }
        // In a profile's folder nothing but its configuration matters; a store is written all the time.
        let own = folders_in(&self.directory).into_iter();
        let own = own.map(|folder| (folder, OsString::from(CONFIGURATION)));
        let beside = self
            .places
            .files
            .iter()
            .filter_map(|file| Some((file.parent()?.to_owned(), file.file_name()?.to_owned())));
        for (folder, name) in own.chain(beside) {
            let Some(place) = watch(&folder) else { continue };
            let matters = watched.entry(place).or_insert(Matters::Files(BTreeSet::new()));
            if let Matters::Files(names) = matters {
                names.insert(name);
            }
        }
        for old in self.watched.keys().filter(|old| !watched.contains_key(old)) {
            // The system has taken it away itself, where the folder is gone.
            inotify::remove_watch(events, *old).ok();
        }
        self.watched = watched;
    }
}

/// What may be a folder in a directory: it cannot be watched when it is none.
fn folders_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn start() -> io::Result<AsyncFd<OwnedFd>> {
    let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    #[allow(
        deprecated,
        reason = "its successor is not safe to call; an owned descriptor never becomes another"
    )]
    AsyncFd::new(events)
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("directory", &self.directory).finish_non_exhaustive()
    }
}
