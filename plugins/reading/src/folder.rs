//! What is in a directory.
//!
//! In the sandbox this goes to the interface of WASI itself: `std` ends a listing at the first name that is not
//! UTF-8, and asks the host once more about each entry.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use checkrein_guest::prelude::*;

/// What an entry is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A device, a pipe or a socket.
    Other,
}

impl From<std::fs::FileType> for Kind {
    fn from(kind: std::fs::FileType) -> Kind {
        if kind.is_symlink() {
            Kind::Symlink
        } else if kind.is_dir() {
            Kind::Dir
        } else if kind.is_file() {
            Kind::File
        } else {
            Kind::Other
        }
    }
}

/// Lists a directory, in no order. An entry that cannot be named is an error, and does not end the listing.
///
/// # Errors
/// When the directory cannot be opened.
pub fn entries(directory: &Path) -> io::Result<impl Iterator<Item = io::Result<(OsString, Kind)>>> {
    system::entries(directory)
}

#[cfg(not(target_arch = "wasm32"))]
mod system {
    //! Outside the sandbox.

    use std::ffi::OsString;
    use std::io;
    use std::path::Path;

    use super::Kind;

    pub(super) fn entries(
        directory: &Path,
    ) -> io::Result<impl Iterator<Item = io::Result<(OsString, Kind)>>> {
        let entries = std::fs::read_dir(directory)?;
        Ok(entries.map(|entry| {
            let entry = entry?;
            Ok((entry.file_name(), entry.file_type()?.into()))
        }))
    }
}

#[cfg(target_arch = "wasm32")]
mod system {
    //! In the sandbox.

    use std::ffi::OsString;
    use std::io::{self, ErrorKind};
    use std::path::{Path, PathBuf};

    use wasip2::filesystem::preopens;
    use wasip2::filesystem::types::{
        Descriptor, DescriptorFlags, DescriptorType, DirectoryEntryStream, ErrorCode, OpenFlags,
        PathFlags,
    };

    use super::Kind;

    thread_local! {
        static GRANTED: Vec<(PathBuf, Descriptor)> =
            preopens::get_directories().into_iter().map(|(root, name)| (PathBuf::from(name), root)).collect();
    }

    pub(super) fn entries(directory: &Path) -> io::Result<Entries> {
        let opened = GRANTED.with(|granted| open(granted, directory))?;
        let stream = opened.read_directory().map_err(error)?;
        Ok(Entries { directory: directory.to_owned(), stream, _opened: opened })
    }

    fn open(granted: &[(PathBuf, Descriptor)], directory: &Path) -> io::Result<Descriptor> {
        // Grants may lie within each other; the nearest one holds.
        let nearest = granted
            .iter()
            .filter_map(|(name, root)| Some((directory.strip_prefix(name).ok()?.to_str()?, root)))
            .min_by_key(|(below, _)| below.len());
        let (below, root) = nearest.ok_or(ErrorKind::PermissionDenied)?;
        let below = if below.is_empty() { "." } else { below };
        root.open_at(PathFlags::SYMLINK_FOLLOW, below, OpenFlags::DIRECTORY, DescriptorFlags::READ)
            .map_err(error)
    }

    /// The entries of an open directory. The stream goes before what it belongs to.
    pub(super) struct Entries {
        directory: PathBuf,
        stream: DirectoryEntryStream,
        _opened: Descriptor,
    }

    impl Iterator for Entries {
        type Item = io::Result<(OsString, Kind)>;

        fn next(&mut self) -> Option<Self::Item> {
            let entry = match self.stream.read_directory_entry() {
                Ok(entry) => entry?,
                Err(code) => return Some(Err(error(code))),
            };
            let kind = match entry.type_ {
                DescriptorType::RegularFile => Kind::File,
                DescriptorType::Directory => Kind::Dir,
                DescriptorType::SymbolicLink => Kind::Symlink,
                DescriptorType::Unknown => {
                    match self.directory.join(&entry.name).symlink_metadata() {
                        Ok(metadata) => metadata.file_type().into(),
                        Err(error) => return Some(Err(error)),
                    }
                }
                DescriptorType::BlockDevice
                | DescriptorType::CharacterDevice
                | DescriptorType::Fifo
                | DescriptorType::Socket => Kind::Other,
            };
            Some(Ok((entry.name.into(), kind)))
        }
    }

    fn error(code: ErrorCode) -> io::Error {
        const KNOWN: [(ErrorCode, ErrorKind); 5] = [
            (ErrorCode::NoEntry, ErrorKind::NotFound),
            (ErrorCode::Access, ErrorKind::PermissionDenied),
            (ErrorCode::NotPermitted, ErrorKind::PermissionDenied),
            (ErrorCode::NotDirectory, ErrorKind::NotADirectory),
            (ErrorCode::Invalid, ErrorKind::InvalidInput),
        ];
        if code == ErrorCode::IllegalByteSequence {
            return io::Error::other("its name is not UTF-8, so it cannot be named here");
        }
        match KNOWN.iter().find(|(known, _)| *known == code) {
            Some((_, kind)) => io::Error::from(*kind),
            None => io::Error::other(code.message()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_with_their_kind() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("file"), "").expect("written");
        std::fs::create_dir(folder.path().join("dir")).expect("made");
        let mut all: Vec<_> =
            entries(folder.path()).expect("listed").map(|entry| entry.expect("an entry")).collect();
        all.sort();
        assert_eq!(all, [("dir".into(), Kind::Dir), ("file".into(), Kind::File)]);
        assert!(entries(&folder.path().join("file")).is_err());
    }
}
