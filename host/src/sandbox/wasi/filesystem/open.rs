//! Opening a path: what it leads to is looked at first, so that nothing but a regular file or a directory is ever opened.

use std::io;

use cap_std::fs::{Dir, Metadata, MetadataExt, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use rustix::io::Errno;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorType, OpenFlags, PathFlags,
};

use super::{attributes, quick};

/// What a guest asks for.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) path: String,
    pub(super) path_flags: PathFlags,
    pub(super) open_flags: OpenFlags,
    /// Reading and writing.
    pub(super) mode: DescriptorFlags,
}

impl Request {
    /// Whether a directory or file would change by this, or could be changed through the result.
    pub(super) fn writes(&self) -> bool {
        self.mode.contains(DescriptorFlags::WRITE)
            || self.open_flags.contains(OpenFlags::CREATE)
            || self.open_flags.contains(OpenFlags::TRUNCATE)
    }

    pub(super) fn follows(&self) -> bool {
        self.path_flags.contains(PathFlags::SYMLINK_FOLLOW)
    }

    /// Whether this makes sense at all.
    pub(super) fn is_valid(&self) -> bool {
        let with_directory = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
        !self.open_flags.contains(OpenFlags::DIRECTORY)
            || (self.open_flags & with_directory) == OpenFlags::empty()
    }

    /// What to do about a path that leads to something of this kind.
    pub(super) fn about(&self, kind: DescriptorType) -> Result<Kind, Errno> {
        let new = self.open_flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE);
        match kind {
            _ if new => Err(Errno::EXIST),
            DescriptorType::Directory if self.writes() => Err(Errno::ISDIR),
            DescriptorType::Directory => Ok(Kind::Directory),
            DescriptorType::RegularFile if self.open_flags.contains(OpenFlags::DIRECTORY) => {
                Err(Errno::NOTDIR)
            }
            DescriptorType::RegularFile => Ok(Kind::File),
            // Only seen when links are not to be followed.
            DescriptorType::SymbolicLink => Err(Errno::LOOP),
            DescriptorType::Fifo
            | DescriptorType::Socket
            | DescriptorType::BlockDevice
            | DescriptorType::CharacterDevice
            | DescriptorType::Unknown => Err(Errno::PERM),
        }
    }
}

/// What may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
}

/// What was opened.
pub(super) enum Opened {
    /// And whether it can be asked at once.
    File(std::fs::File, bool),
    /// With its device.
    Directory(Dir, u64),
}

/// Opens a path beneath a directory. Blocks, but not on a pipe, a socket or a device.
pub(super) fn open(dir: &Dir, local: Option<u64>, request: &Request) -> io::Result<Opened> {
    let kind = match attributes::of_path(dir, &request.path, request.path_flags) {
        Ok(facts) => request.about(facts.kind)?,
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                && request.open_flags.contains(OpenFlags::CREATE) =>
        {
            Kind::File
        }
        Err(error) => return Err(error),
    };
    if kind == Kind::Directory {
        let opened = dir.open_dir(&request.path)?;
        let device = opened.dir_metadata()?.dev();
        return Ok(Opened::Directory(opened, device));
    }
    // Another process may put something else in the place meanwhile: then the open must not wait, nor follow a link that was
    // not to be followed, nor take a terminal, and what was opened is looked at again.
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if !request.follows() {
        flags |= OFlags::NOFOLLOW;
    }
    let writes = request.writes();
    let mut options = OpenOptions::new();
    options
        .read(request.mode.contains(DescriptorFlags::READ) || !writes)
        .write(writes)
        .custom_flags(flags.bits().cast_signed());
    if request.open_flags.contains(OpenFlags::CREATE) {
        if request.open_flags.contains(OpenFlags::EXCLUSIVE) {
            options.create_new(true);
        } else {
            options.create(true);
        }
    }
    let file = dir.open_with(&request.path, &options)?.into_std();
    let metadata = Metadata::from_file(&file)?;
    if !metadata.is_file() {
        return Err(Errno::PERM.into());
    }
    // Cutting what is empty would cost: some file systems then write the new contents to the disk when the file is closed.
    if request.open_flags.contains(OpenFlags::TRUNCATE) && metadata.len() > 0 {
        file.set_len(0)?;
    }
    let quick = quick::prepare(&file, metadata.dev(), local);
    Ok(Opened::File(file, quick))
}
