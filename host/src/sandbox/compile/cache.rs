//! Compiled code on disk, which is loaded only when we wrote it.
//!
//! One file for each component and kind of engine: a magic, a keyed checksum (HMAC-SHA-256), the code. The checksum
//! covers the entry's name too, so that one entry cannot be passed off as another. The key is a file beside the
//! entries that only we can read; whoever can read it can run code as us anyway. It follows that no guest may ever be
//! granted this directory.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fstat, futimens};
use sha2::Sha256;

use super::code::OwnCode;
use super::digest::Digest;
use crate::sandbox::engine::CodeKey;

/// Starts every entry. Another layout gets another one.
const MAGIC: &[u8; 8] = b"ckrcode1";

/// Bytes of a checksum.
const TAG: usize = 32;

/// Bytes of an entry before its code.
const HEAD: usize = MAGIC.len() + TAG;

/// Ends the name of every entry.
const ENTRY_SUFFIX: &str = ".code";

/// Starts the name of every file that is not finished yet.
const UNFINISHED_PREFIX: &str = ".new-";

/// An unfinished file is left over from a process that died when it is this many seconds older than a finished one.
const LEFT_OVER_AFTER: i64 = 600;

/// The name of the file with the key.
const KEY_FILE: &str = "key";

/// A directory with compiled code. Several processes may share one.
pub struct Cache {
    path: PathBuf,
    /// Opened once, so that what is checked is what is used, whatever happens to the path.
    directory: Dir,
    key: [u8; 32],
    most_bytes: u64,
}

/// Names the entry of one component for one kind of engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryName {
    digest: Digest,
    key: CodeKey,
}

impl EntryName {
    pub(super) fn new(digest: &Digest, key: &CodeKey) -> EntryName {
        EntryName { digest: *digest, key: *key }
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.digest)?;
        // Part of the key keeps the name short; the checksum covers all of it.
        self.key.as_bytes()[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(ENTRY_SUFFIX)
    }
}

impl Cache {
    /// Room for a few dozen components made from Python or JavaScript, or thousands made from Rust.
    pub const USUAL_BYTES: u64 = 1 << 30;

    /// Opens the directory, and makes it where it is missing.
    ///
    /// # Errors
    ///
    /// When it cannot be used, or when someone else could have written into it.
    pub fn open(path: impl Into<PathBuf>, most_bytes: u64) -> Result<Cache, CacheError> {
        let path = path.into();
        let unusable = |attempt: &'static str| {
            let path = path.clone();
            move |source| CacheError::Unusable { path, attempt, source }
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(unusable("be made"))?;
        let directory =
            Dir::open_ambient_dir(&path, ambient_authority()).map_err(unusable("be opened"))?;
        check_owner(&directory, &path)?;
        let key = read_or_make_key(&directory).map_err(unusable("keep its key"))?;
        let key = key.ok_or_else(|| CacheError::Exposed {
            path: path.join(KEY_FILE),
            why: "is not ours alone",
        })?;
        Ok(Cache { path, directory, key, most_bytes })
    }

    /// Opens the directory, or says in the log why there will be no cache.
    pub fn open_or_warn(path: impl Into<PathBuf>, most_bytes: u64) -> Option<Cache> {
        Cache::open(path, most_bytes)
            .inspect_err(|error| {
                tracing::warn!(%error, "compiled components are not cached, so each start compiles them again");
            })
            .ok()
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The code of that entry. An entry that we did not write is removed.
    pub(super) fn read(&self, name: &EntryName) -> Option<OwnCode> {
        let bytes = match self.read_file(name) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(entry = %name, cache = %self.path.display(), %error, "a cache entry cannot be read");
                self.remove(name);
                return None;
            }
        };
        if self.verify(name, &bytes) {
            let code = HEAD..bytes.len();
            return Some(OwnCode::from_verified_entry(bytes, code));
        }
        tracing::warn!(
            entry = %name,
            cache = %self.path.display(),
            "a cache entry is damaged or was not written by us: it is removed, and the component compiled again"
        );
        self.remove(name);
        None
    }

    /// Writes an entry, and removes the oldest where there are too many bytes. A failure only costs time later.
    pub(super) fn write(&self, name: &EntryName, code: &OwnCode) {
        if code.as_bytes().len() as u64 > self.most_bytes {
            tracing::debug!(entry = %name, "the compiled component is larger than the whole cache");
            return;
        }
        if let Err(error) = self.write_file(name, code).and_then(|()| self.remove_oldest()) {
            tracing::warn!(entry = %name, cache = %self.path.display(), %error, "a cache entry cannot be written");
        }
    }

    /// Removes an entry if it is there.
    pub(super) fn remove(&self, name: &EntryName) {
        if let Err(error) = self.directory.remove_file(name.to_string())
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(entry = %name, cache = %self.path.display(), %error, "a cache entry cannot be removed");
        }
    }

    fn read_file(&self, name: &EntryName) -> io::Result<Vec<u8>> {
        let mut file = open_regular(&self.directory, &name.to_string())?;
        // Marks the entry as used. Not being able to only makes it look older than it is.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let _ = futimens(&file, &Timestamps { last_access: now, last_modification: now });
        read_at_most(&mut file, self.most_bytes.saturating_add(HEAD as u64))
    }

    fn verify(&self, name: &EntryName, entry: &[u8]) -> bool {
        let Some(rest) = entry.strip_prefix(MAGIC) else { return false };
        let Some((tag, code)) = rest.split_at_checked(TAG) else { return false };
        // Takes the same time whatever the tag is, so that it cannot be guessed byte by byte.
        self.checksum(name, code).is_some_and(|checksum| checksum.verify_slice(tag).is_ok())
    }

    /// All parts but the last have a fixed length, so that no two entries give the same bytes.
    fn checksum(&self, name: &EntryName, code: &[u8]) -> Option<Hmac<Sha256>> {
        let mut checksum = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        checksum.update(MAGIC);
        checksum.update(name.digest.as_bytes());
        checksum.update(name.key.as_bytes());
        checksum.update(code);
        Some(checksum)
    }

    /// A reader sees either all of the new entry or none of it. There is no `fsync`: an entry that a power cut
    /// damaged is noticed by its checksum.
    fn write_file(&self, name: &EntryName, code: &OwnCode) -> io::Result<()> {
        let checksum =
            self.checksum(name, code.as_bytes()).ok_or_else(|| io::Error::other("no checksum"))?;
        let unfinished = unfinished_name();
        let mut file = self.directory.open_with(&unfinished, &new_file())?;
        let written = [MAGIC.as_slice(), &checksum.finalize().into_bytes(), code.as_bytes()]
            .into_iter()
            .try_for_each(|part| file.write_all(part))
            .and_then(|()| self.directory.rename(&unfinished, &self.directory, name.to_string()));
        if written.is_err() {
            self.directory.remove_file(&unfinished).ok();
        }
        written
    }

    /// Removes the entries that were not used for longest, until the rest fits, and what dead processes left over.
    fn remove_oldest(&self) -> io::Result<()> {
        let (mut entries, mut unfinished) = (Vec::new(), Vec::new());
        for entry in self.directory.entries()? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Another process may have removed it meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            let age = cap_std::fs::MetadataExt::mtime(&metadata);
            if name.ends_with(ENTRY_SUFFIX) {
                let nanos = cap_std::fs::MetadataExt::mtime_nsec(&metadata);
                entries.push(((age, nanos), metadata.len(), name));
            } else if name.starts_with(UNFINISHED_PREFIX) {
                unfinished.push((age, name));
            }
        }
        entries.sort();
        // The newest entry was written just now, so its time is the time.
        let now = entries.last().map_or(0, |((seconds, _), ..)| *seconds);
        let left_over = unfinished
            .into_iter()
            .filter(|(age, _)| now - age > LEFT_OVER_AFTER)
            .map(|(_, name)| name);
        let mut bytes: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        let oldest = entries.into_iter().map_while(|(_, size, name)| {
            let too_many = bytes > self.most_bytes;
            bytes = bytes.saturating_sub(size);
            too_many.then_some(name)
        });
        for name in left_over.chain(oldest) {
            match self.directory.remove_file(&name) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => tracing::debug!(entry = name, "removed from the cache"),
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("path", &self.path)
            .field("most_bytes", &self.most_bytes)
            .finish_non_exhaustive()
    }
}

/// Refuses a directory into which someone else could write.
fn check_owner(directory: &Dir, path: &Path) -> Result<(), CacheError> {
    let source = |source: rustix::io::Errno| CacheError::Unusable {
        path: path.to_owned(),
        attempt: "be looked at",
        source: source.into(),
    };
    let status = fstat(directory).map_err(source)?;
    let exposed = |why| CacheError::Exposed { path: path.to_owned(), why };
    if status.st_uid != rustix::process::geteuid().as_raw() {
        return Err(exposed("belongs to another user"));
    }
    if Mode::from_raw_mode(status.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(exposed("can be written to by other users"));
    }
    Ok(())
}

/// The key, made on the first use; none when the file is not ours alone.
fn read_or_make_key(directory: &Dir) -> io::Result<Option<[u8; 32]>> {
    if let Some(found) = read_key(directory)? {
        return Ok(found);
    }
    let mut key = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    let unfinished = unfinished_name();
    directory.open_with(&unfinished, &new_file())?.write_all(&key)?;
    // A link, not a rename: of two processes that come here at once, the second must take the key of the first.
    let linked = directory.hard_link(&unfinished, directory, KEY_FILE);
    directory.remove_file(&unfinished)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    read_key(directory)?.ok_or_else(|| io::Error::other("the key was removed while it was made"))
}

/// `None` when there is no key yet, `Some(None)` when it is not ours alone.
fn read_key(directory: &Dir) -> io::Result<Option<Option<[u8; 32]>>> {
    let mut file = match open_regular(directory, KEY_FILE) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let status = fstat(&file)?;
    let shared = Mode::from_raw_mode(status.st_mode).intersects(Mode::RWXG | Mode::RWXO);
    if shared || status.st_uid != rustix::process::geteuid().as_raw() {
        return Ok(Some(None));
    }
    let key = read_at_most(&mut file, 32)?;
    let key = key
        .try_into()
        .map_err(|_| io::Error::other("the key does not have 32 bytes; remove the directory"))?;
    Ok(Some(Some(key)))
}

/// Opens a file for reading if it is a plain file: opening anything else could wait for ever.
fn open_regular(directory: &Dir, name: &str) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits() as i32;
    let file = directory.open_with(name, OpenOptions::new().read(true).custom_flags(flags))?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

fn read_at_most(file: &mut File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > most {
        return Err(io::Error::other(format!("it has {length} bytes, which is more than {most}")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file that is new, and readable by nobody else.
fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options
}

/// A name that no other file has.
fn unfinished_name() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let random = RandomState::new().build_hasher().finish();
    format!("{UNFINISHED_PREFIX}{}-{random:016x}", std::process::id())
}

/// A directory cannot be the cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Reading or writing it fails.
    #[error("the cache of compiled components, {}, cannot {attempt}: {source}; choose another directory", .path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What was attempted.
        attempt: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Someone else can change what is in it, and so could make us run code.
    #[error(
        "the cache of compiled components is not safe: {} {why}; remove it, or take away the rights of others \
         (chown, chmod go-w)",
        .path.display()
    )]
    Exposed {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
}
