//! What is known about a file without reading it, and the two times that a guest can set.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Component, Path};

use cap_std::fs::{Dir, FileType, FileTypeExt, Metadata, MetadataExt};
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorStat, DescriptorType, ErrorCode, MetadataHashValue, NewTimestamp, PathFlags,
};

use super::descriptor::Handle;

/// The attributes of a file, wherever they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) kind: DescriptorType,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) links: u64,
    pub(super) size: u64,
    /// Accessed, modified, changed: seconds since 1970 and nanoseconds.
    pub(super) times: [(i64, i64); 3],
}

impl Facts {
    pub(super) fn stat(&self) -> DescriptorStat {
        let time = |(seconds, nanoseconds): (i64, i64)| {
            // Before 1970 WASI has no time; missing is better than a failure.
            Some(Datetime {
                seconds: seconds.try_into().ok()?,
                nanoseconds: nanoseconds.try_into().ok()?,
            })
        };
        DescriptorStat {
            type_: self.kind,
            link_count: self.links,
            size: self.size,
            data_access_timestamp: time(self.times[0]),
            data_modification_timestamp: time(self.times[1]),
            status_change_timestamp: time(self.times[2]),
        }
    }

    /// A hash of what makes it this file and no other.
    pub(super) fn hash(&self) -> MetadataHashValue {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, self.device, self.inode).hash(&mut hasher);
            hasher.finish()
        };
        MetadataHashValue { lower: half(0), upper: half(1) }
    }

    pub(super) fn is_same(&self, other: &Facts) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl From<&Metadata> for Facts {
    fn from(metadata: &Metadata) -> Facts {
        Facts {
            kind: kind(metadata.file_type()),
            device: metadata.dev(),
            inode: metadata.ino(),
            links: metadata.nlink(),
            size: metadata.len(),
            times: [
                (metadata.atime(), metadata.atime_nsec()),
                (metadata.mtime(), metadata.mtime_nsec()),
                (metadata.ctime(), metadata.ctime_nsec()),
            ],
        }
    }
}

pub(super) fn kind(file_type: FileType) -> DescriptorType {
    if file_type.is_dir() {
        DescriptorType::Directory
    } else if file_type.is_file() {
        DescriptorType::RegularFile
    } else if file_type.is_symlink() {
        DescriptorType::SymbolicLink
    } else if file_type.is_fifo() {
        DescriptorType::Fifo
    } else if file_type.is_socket() {
        DescriptorType::Socket
    } else if file_type.is_block_device() {
        DescriptorType::BlockDevice
    } else if file_type.is_char_device() {
        DescriptorType::CharacterDevice
    } else {
        DescriptorType::Unknown
    }
}

/// The attributes of an open file or directory. Blocks.
pub(super) fn of_handle(handle: &Handle) -> io::Result<Facts> {
    let metadata = match handle {
        Handle::File(open) => Metadata::from_file(&open.file)?,
        Handle::Directory(open) => open.dir.dir_metadata()?,
    };
    Ok(Facts::from(&metadata))
}

/// The attributes of what a path leads to. Blocks.
pub(super) fn of_path(dir: &Dir, path: &str, flags: PathFlags) -> io::Result<Facts> {
    let metadata = if flags.contains(PathFlags::SYMLINK_FOLLOW) {
        dir.metadata(path)?
    } else {
        dir.symlink_metadata(path)?
    };
    Ok(Facts::from(&metadata))
}

/// The two times as the system call takes them; *now* is left to the operating system.
pub(super) fn timestamps(
    accessed: NewTimestamp,
    modified: NewTimestamp,
) -> Result<Timestamps, ErrorCode> {
    let time = |new: NewTimestamp| match new {
        NewTimestamp::NoChange => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }),
        NewTimestamp::Now => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_NOW }),
        NewTimestamp::Timestamp(Datetime { seconds, nanoseconds })
            if nanoseconds < 1_000_000_000 =>
        {
            let tv_sec = seconds.try_into().map_err(|_| ErrorCode::Overflow)?;
            Ok(Timespec { tv_sec, tv_nsec: nanoseconds.into() })
        }
        NewTimestamp::Timestamp(_) => Err(ErrorCode::Invalid),
    };
    Ok(Timestamps { last_access: time(accessed)?, last_modification: time(modified)? })
}

/// Sets the times of an open file or directory. Blocks.
pub(super) fn set_times(handle: &Handle, times: &Timestamps) -> io::Result<()> {
    match handle {
        Handle::File(open) => rustix::fs::futimens(&open.file, times)?,
        // The handle of a directory may be one that only leads on (`O_PATH`), so it is named from itself.
        Handle::Directory(open) => rustix::fs::utimensat(&open.dir, ".", times, AtFlags::empty())?,
    }
    Ok(())
}

/// Sets the times of what a path leads to. Blocks.
pub(super) fn set_times_at(
    dir: &Dir,
    path: &str,
    flags: PathFlags,
    times: &Timestamps,
) -> io::Result<()> {
    // The system call resolves its path outside of any sandbox, so it gets a single name in a directory that was opened inside.
    let resolved;
    let mut path = Path::new(path);
    if flags.contains(PathFlags::SYMLINK_FOLLOW) && dir.symlink_metadata(path)?.is_symlink() {
        resolved = dir.canonicalize(path)?;
        path = &resolved;
    }
    let Some(Component::Normal(name)) = path.components().next_back() else {
        let open = dir.open_dir(path)?;
        return Ok(rustix::fs::utimensat(&open, ".", times, AtFlags::empty())?);
    };
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => {
            rustix::fs::utimensat(&dir.open_dir(parent)?, name, times, AtFlags::SYMLINK_NOFOLLOW)?
        }
        None => rustix::fs::utimensat(dir, name, times, AtFlags::SYMLINK_NOFOLLOW)?,
    }
    Ok(())
}
