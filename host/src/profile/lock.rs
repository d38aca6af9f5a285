//! The lock on a home: one authority per home, seen by every process of the machine (P1).

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::identity::{Life, ProcessIdentity};

/// The name of the file in a home.
const FILE: &str = "lock";

/// A holder's words are short; whatever else is in the file is not read.
const LONGEST: u64 = 4096;

/// An exclusive lock on a home. The system takes it back when the process ends, however it ends. The file stays where it
/// is: were it removed, two processes could hold a lock on two files of the same name.
pub struct HomeLock {
    home: PathBuf,
    file: File,
    holder: Holder,
}

/// Who holds a home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Holder {
    /// The process.
    pub process: ProcessIdentity,
    /// Since when it has held the home, in milliseconds since 1970.
    pub since_unix_ms: u64,
}

impl HomeLock {
    /// Takes the lock of a home, or says who has it. It does not wait.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] when another authority serves that home; [`LockError::Unusable`] when the home is not a
    /// folder in which this process can keep a lock.
    pub fn take(home: &Path) -> Result<HomeLock, LockError> {
        let unusable = |source| LockError::Unusable { home: home.to_owned(), source };
        let process = ProcessIdentity::own().map_err(unusable)?;
        let holder = Holder { process, since_unix_ms: unix_ms(SystemTime::now()) };
        loop {
            let mut file = open(&home.join(FILE)).map_err(unusable)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Held { home: home.to_owned(), holder: said(&mut file) });
                }
                Err(TryLockError::Error(source)) => return Err(unusable(source)),
            }
            // Somebody may have removed the file between the two steps, and then the lock says nothing.
            if is_at(&file, &home.join(FILE)).map_err(unusable)? {
                write(&mut file, &holder).map_err(unusable)?;
                return Ok(HomeLock { home: home.to_owned(), file, holder });
            }
        }
    }

    /// Who has a home, as far as that has said so; none where nobody is known to have it. It takes no lock, and so keeps
    /// nobody from the home.
    ///
    /// # Errors
    ///
    /// When the file is there and cannot be read.
    pub fn holder_of(home: &Path) -> io::Result<Option<Holder>> {
        let mut options = OpenOptions::new();
        match options.read(true).custom_flags(careful()).open(home.join(FILE)) {
            Ok(mut file) => Ok(said(&mut file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// What others read of this process.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }
}

impl Drop for HomeLock {
    fn drop(&mut self) {
        // Nobody has it from now on. Whoever is killed leaves its words behind, and is dead.
        self.file.set_len(0).ok();
        // Closing the file is not enough: a process that is being started just now may have a copy of it.
        let _closing_does_it = self.file.unlock();
    }
}

impl fmt::Debug for HomeLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomeLock").field("home", &self.home).finish_non_exhaustive()
    }
}

impl Holder {
    /// Since when the home has been held.
    pub fn since(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.since_unix_ms))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.process.pid;
        if pid == std::process::id() {
            write!(f, "this very process (pid {pid})")?;
        } else {
            write!(f, "process {pid}")?;
        }
        // A date beyond the year 9999 cannot be written, and nobody has held a home since then.
        match self.since().filter(|_| self.since_unix_ms < 253_402_300_800_000) {
            Some(since) => write!(f, ", since {}", httpdate::fmt_http_date(since)),
            None => Ok(()),
        }
    }
}

pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(careful())
        .open(path)
}

/// A link could lead out of the home, and opening a FIFO would wait for somebody at its other end.
fn careful() -> i32 {
    (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed()
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match path.symlink_metadata() {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whoever writes here has the lock, so nobody else writes.
fn write(file: &mut File, holder: &Holder) -> io::Result<()> {
    let mut text = serde_json::to_vec(holder)?;
    text.push(b'\n');
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)
}

/// What the holder has said of itself. The file may still name a holder that is gone, when the next has only just
/// taken the lock.
fn said(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    let holder: Holder = serde_json::from_str(&text).ok()?;
    (holder.process.life() != Life::Dead).then_some(holder)
}

/// Why a home was not locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another authority serves that home.
    #[error(
        "the home {} is served already, by {}; stop that one first, or give this profile another home",
        .home.display(), who(.holder.as_ref())
    )]
    Held {
        /// The home.
        home: PathBuf,
        /// Who serves it, as far as it has said so.
        holder: Option<Holder>,
    },
    /// The home cannot be locked.
    #[error("the home {} cannot be locked; it has to be a folder that this process can write to", .home.display())]
    Unusable {
        /// The home.
        home: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn who(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "a process that has not said who it is".to_owned(), Holder::to_string)
}
