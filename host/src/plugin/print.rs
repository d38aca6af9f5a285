//! How a file looks, so that one that has changed is told from one that has not.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::file::{self, FileError, Folder};
use super::manifest::{self, Manifest};
use super::package::{Digest, folder_of};

/// What is not longer is compared as a whole: a key is mostly replaced by one of the same length.
const WHOLE: u64 = 64 << 10;

/// How a file looks. Two that are equal mean that it has not changed in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Print {
    /// It cannot be read.
    None,
    /// What is in it.
    Whole(Digest),
    /// What the system says of it. One that was written in place, in the same tick of its clock, looks the same.
    Large { inode: (u64, u64), length: u64, written: (i64, i64), changed: (i64, i64) },
}

impl Print {
    /// Looks at a file. Blocks on the disk.
    pub(crate) fn of(path: &Path) -> Print {
        match file::read(path, WHOLE) {
            Ok(bytes) => Print::Whole(Digest::of(&bytes)),
            Err(FileError::TooLarge { .. }) => fs::metadata(path).map_or(Print::None, |look| {
                let (written, changed) =
                    ((look.mtime(), look.mtime_nsec()), (look.ctime(), look.ctime_nsec()));
                Print::Large {
                    inode: (look.dev(), look.ino()),
                    length: look.len(),
                    written,
                    changed,
                }
            }),
            Err(_) => Print::None,
        }
    }
}

/// The files that make a plugin: its manifest and, as far as that says where it is, its component. Blocks on the disk.
pub(crate) fn files_of(path: &Path) -> Vec<PathBuf> {
    let path = folder_of(path);
    let file = path.join(manifest::FILE_NAME);
    let manifest = Folder::open(&path).ok().and_then(|folder| Manifest::load(&folder, &file).ok());
    let component = manifest.map(|manifest| path.join(manifest.component.as_path()));
    [file].into_iter().chain(component).collect()
}
