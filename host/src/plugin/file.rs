//! Reading files that others may have laid out: regular files only, and never more than was agreed.
//!
//! Opening a pipe or a device can park a thread for ever, and reading one need not end. So files are opened
//! without waiting, looked at once they are open, and read up to a bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;

use super::amounts::Size;
use super::text::shown;

/// Reads a file that the operator named.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let look = std::fs::metadata(path).map_err(|error| open_error(path, error))?;
    check(path, &look, most)?;
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(without_waiting());
    }
    let file = options.open(path).map_err(|error| open_error(path, error))?;
    drain(path, file, most)
}

/// A plugin's folder. Nothing outside it can be reached through it, not by `..` and not by a symbolic link.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    dir: Dir,
}

impl Folder {
    /// Opens the folder at that path.
    pub(super) fn open(path: &Path) -> Result<Folder, FileError> {
        // The operator named the path, or a folder that contains it: this is where that word is taken.
        let authority = cap_std::ambient_authority();
        let dir =
            Dir::open_ambient_dir(path, authority).map_err(|error| open_error(path, error))?;
        Ok(Folder { path: path.to_owned(), dir })
    }

    /// The bytes in a file of the folder, without reading it.
    pub(super) fn size(&self, inside: &Path, most: u64) -> Result<u64, FileError> {
        let path = self.path.join(inside);
        let look = self.dir.metadata(inside).map_err(|error| inside_error(&path, error))?;
        if !look.is_file() {
            return Err(FileError::NotRegular { path });
        }
        small(&path, look.len(), most)?;
        Ok(look.len())
    }

    /// Reads a file of the folder.
    pub(super) fn read(&self, inside: &Path, most: u64) -> Result<Vec<u8>, FileError> {
        self.size(inside, most)?;
        let path = self.path.join(inside);
        let mut options = cap_std::fs::OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        {
            use cap_std::fs::OpenOptionsExt;
            options.custom_flags(without_waiting());
        }
        let file =
            self.dir.open_with(inside, &options).map_err(|error| inside_error(&path, error))?;
        drain(&path, file.into_std(), most)
    }
}

#[cfg(unix)]
fn without_waiting() -> i32 {
    (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits().cast_signed()
}

fn check(path: &Path, look: &std::fs::Metadata, most: u64) -> Result<(), FileError> {
    if look.is_file() {
        small(path, look.len(), most)
    } else {
        Err(FileError::NotRegular { path: path.to_owned() })
    }
}

fn small(path: &Path, size: u64, most: u64) -> Result<(), FileError> {
    if size <= most { Ok(()) } else { Err(FileError::TooLarge { path: path.to_owned(), most }) }
}

/// Reads an open file. It is looked at again: it may be another one than before, and it may grow meanwhile.
fn drain(path: &Path, file: File, most: u64) -> Result<Vec<u8>, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let look = file.metadata().map_err(failed)?;
    check(path, &look, most)?;
    let mut bytes = Vec::with_capacity(usize::try_from(look.len()).unwrap_or(0));
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    small(path, bytes.len() as u64, most)?;
    Ok(bytes)
}

/// The text in a file's bytes.
pub(super) fn text(path: &Path, bytes: Vec<u8>) -> Result<String, FileError> {
    String::from_utf8(bytes).map_err(|error| FileError::NotText {
        path: path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })
}

/// Tells a file that is not there from one that cannot be opened.
pub(super) fn open_error(path: &Path, source: io::Error) -> FileError {
    if source.kind() == io::ErrorKind::NotFound {
        FileError::Missing { path: path.to_owned() }
    } else {
        FileError::Open { path: path.to_owned(), source }
    }
}

/// `cap-std` reports a way out of the folder as a permission error of its own, without a number of the system.
fn inside_error(path: &Path, source: io::Error) -> FileError {
    match (source.kind(), source.raw_os_error()) {
        (io::ErrorKind::PermissionDenied, None) => FileError::Outside { path: path.to_owned() },
        _ => open_error(path, source),
    }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// There is no such file.
    #[error("{} does not exist; check the path", shown(path))]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be opened.
    #[error("cannot open {}; check who may read it", shown(path))]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a folder, a pipe, a device or a socket.
    #[error(
        "{} is not a regular file; folders, pipes, devices and sockets are not read",
        shown(path)
    )]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// It leads out of the folder of its plugin.
    #[error(
        "{} leads out of the plugin's folder; put the file itself into the folder",
        shown(path)
    )]
    Outside {
        /// The file.
        path: PathBuf,
    },
    /// It is larger than what is read.
    #[error("{} is larger than {}, and so is not read", shown(path), Size(*most))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most bytes that are read.
        most: u64,
    },
    /// It could be opened and not read.
    #[error("cannot read {}", shown(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not text in UTF-8.
    #[error("{} is not text: byte {offset} is not UTF-8", shown(path))]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first byte that is no text, counted from 0.
        offset: usize,
    },
}
