//! The file that tokens are kept in: read only when nobody else can, and replaced as a whole.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::token::TokenId;
use super::tokens::Entry;

/// The most bytes of the file.
const MOST: u64 = 4 << 20;

/// What a file has that only its owner can read and write.
const MODE: u32 = 0o600;

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    tokens: BTreeMap<TokenId, Entry>,
}

/// Reads the tokens; none where there is no file.
pub(super) fn read(path: &Path) -> Result<BTreeMap<TokenId, Entry>, TokensError> {
    let failed = |source| TokensError::Read { path: path.to_owned(), source };
    // A pipe in the place of the file must not make anybody wait.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(failed(error)),
    };
    // What is looked at is what is read: the path may mean another file by now.
    let look = file.metadata().map_err(failed)?;
    if !look.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    if look.mode() & 0o077 != 0 {
        return Err(TokensError::Open { path: path.to_owned(), mode: look.mode() & 0o7777 });
    }
    let (owner, me) = (look.uid(), rustix::process::geteuid().as_raw());
    if owner != me && owner != 0 {
        return Err(TokensError::Foreign { path: path.to_owned(), owner });
    }
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST {
        return Err(failed(io::Error::other(format!("it has more than {MOST} bytes"))));
    }
    let document: Document = toml::from_str(&text).map_err(|error| TokensError::Document {
        path: path.to_owned(),
        // Without the line itself: it may hold what somebody took for the place of a secret.
        line: 1 + error
            .span()
            .map_or(0, |span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count()),
        reason: error.message().to_owned(),
    })?;
    Ok(document.tokens)
}

/// Reads the tokens, changes them, and replaces the file. Whoever reads meanwhile sees the old ones or the new ones, also
/// after a crash; who changes them meanwhile waits.
pub(super) fn change(
    path: &Path,
    change: impl FnOnce(&mut BTreeMap<TokenId, Entry>),
) -> Result<BTreeMap<TokenId, Entry>, TokensError> {
    let failed = |source| TokensError::Write { path: path.to_owned(), source };
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let lock = private().create(true).open(beside(".lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mut tokens = read(path)?;
    change(&mut tokens);
    let document = Document { tokens };
    let text = toml::to_string(&document).map_err(|error| failed(io::Error::other(error)))?;
    let unfinished = beside(".new");
    // One that a crash has left behind is nobody's: the lock is ours.
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let written = private().create_new(true).open(&unfinished).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    });
    if let Err(error) = written {
        std::fs::remove_file(&unfinished).ok();
        return Err(failed(error));
    }
    Ok(document.tokens)
}

/// A file for writing that only its owner can read and write, from the moment it is there.
fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true).mode(MODE);
    options
}

/// Why tokens cannot be used or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The file cannot be read.
    #[error("could not read the tokens in {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("could not keep the tokens in {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could read or write it, so nothing in it can be relied on: change its mode, and make new tokens if others
    /// could write it.
    #[error(
        "others can read or write the tokens in {} (its mode is {mode:03o}); run `chmod 600 {}`",
        .path.display(), .path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error("the tokens in {} belong to another user ({owner}); give the file to the user that runs this", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// It is not what such a file looks like: mend it.
    #[error("{}:{line}: {reason}", .path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// Where in it.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The operating system gives no randomness.
    #[error("the operating system gives no random numbers for a token")]
    Randomness(#[source] getrandom::Error),
    /// The token that was asked for could do nothing: name a verb and a profile.
    #[error("a token with no verb or no profile is good for nothing; name at least one of each")]
    GoodForNothing,
    /// The token that was asked for would never be good: name a later time.
    #[error("the token would have expired already; name a later time")]
    ExpiredAlready,
}
