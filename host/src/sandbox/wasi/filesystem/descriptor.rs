//! What stands behind a guest's descriptor, and the directories with which a run begins.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, ErrorCode};

use super::super::gate::FilePermit;
use super::quick;
use crate::sandbox::reach::{Access, Reach};

/// A file or directory that a guest has open.
pub(super) enum Descriptor {
    File(File),
    Directory(Directory),
}

impl Descriptor {
    pub(super) fn file(&self) -> Result<&File, ErrorCode> {
        match self {
            Descriptor::File(file) => Ok(file),
            Descriptor::Directory(_) => Err(ErrorCode::IsDirectory),
        }
    }

    pub(super) fn directory(&self) -> Result<&Directory, ErrorCode> {
        match self {
            Descriptor::Directory(directory) => Ok(directory),
            Descriptor::File(_) => Err(ErrorCode::NotDirectory),
        }
    }

    /// Whether anything about it may be changed.
    pub(super) fn check_change(&self) -> Result<(), ErrorCode> {
        let access = match self {
            Descriptor::File(file) => file.access,
            Descriptor::Directory(directory) => directory.access,
        };
        match access {
            Access::Read => Err(ErrorCode::ReadOnly),
            Access::ReadWrite => Ok(()),
        }
    }

    pub(super) fn flags(&self) -> DescriptorFlags {
        match self {
            Descriptor::File(file) => file.mode,
            Descriptor::Directory(directory) => match directory.access {
                Access::Read => DescriptorFlags::READ,
                Access::ReadWrite => DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
            },
        }
    }

    pub(super) fn handle(&self) -> Handle {
        match self {
            Descriptor::File(file) => Handle::File(file.open.clone()),
            Descriptor::Directory(directory) => Handle::Directory(directory.open.clone()),
        }
    }
}

/// A regular file.
#[derive(Clone)]
pub(super) struct File {
    pub(super) open: Arc<OpenFile>,
    /// What the grant allows.
    pub(super) access: Access,
    /// What the guest opened it for: reading, writing.
    pub(super) mode: DescriptorFlags,
}

impl File {
    /// Whether the guest may change the contents through this descriptor.
    pub(super) fn check_write(&self) -> Result<(), ErrorCode> {
        match (self.access, self.mode.contains(DescriptorFlags::WRITE)) {
            (Access::Read, _) => Err(ErrorCode::ReadOnly),
            (Access::ReadWrite, false) => Err(ErrorCode::BadDescriptor),
            (Access::ReadWrite, true) => Ok(()),
        }
    }

    /// Whether the guest may read through this descriptor.
    pub(super) fn check_read(&self) -> Result<(), ErrorCode> {
        if self.mode.contains(DescriptorFlags::READ) {
            Ok(())
        } else {
            Err(ErrorCode::BadDescriptor)
        }
    }
}

/// The handle of a file, with the place that it holds. Streams and jobs on the pool share it.
pub(super) struct OpenFile {
    pub(super) file: std::fs::File,
    /// Whether what is in memory of it can be had without waiting.
    pub(super) quick: bool,
    #[expect(dead_code, reason = "held for its drop")]
    pub(super) permit: FilePermit,
}

/// A directory.
#[derive(Clone)]
pub(super) struct Directory {
    pub(super) open: Arc<OpenDirectory>,
    /// What the grant allows.
    pub(super) access: Access,
    /// The device of the grant, when that is a local file system and this directory lies on it.
    pub(super) local: Option<u64>,
}

impl Directory {
    /// Whether anything may be changed below this directory.
    pub(super) fn check_write(&self) -> Result<(), ErrorCode> {
        match self.access {
            Access::Read => Err(ErrorCode::ReadOnly),
            Access::ReadWrite => Ok(()),
        }
    }
}

/// The handle of a directory, with the place that it holds; a granted one holds none.
pub(super) struct OpenDirectory {
    pub(super) dir: Dir,
    #[expect(dead_code, reason = "held for its drop")]
    pub(super) permit: Option<FilePermit>,
}

/// A shared handle of either kind.
pub(super) enum Handle {
    File(Arc<OpenFile>),
    Directory(Arc<OpenDirectory>),
}

/// The granted directories, opened. Cheap to clone: runs with the same grant can share them.
#[derive(Clone, Default)]
pub(crate) struct Directories(pub(super) Option<Arc<[Granted]>>);

/// One granted directory under its guest name.
pub(super) struct Granted {
    pub(super) mount: String,
    pub(super) directory: Directory,
}

impl Directories {
    /// Opens what is granted. Blocks: a directory may lie on a slow disk or a network.
    ///
    /// # Errors
    /// One of the directories cannot be opened.
    pub(crate) fn open(reach: &Reach) -> Result<Directories, ReachError> {
        let open = |grant: &crate::sandbox::reach::Directory| {
            let failed = |source| ReachError::Directory {
                mount: grant.mount.clone(),
                path: grant.path.clone(),
                source,
            };
            let dir = Dir::open_ambient_dir(&grant.path, ambient_authority()).map_err(failed)?;
            let local = quick::local_device(&dir);
            let open = Arc::new(OpenDirectory { dir, permit: None });
            Ok(Granted {
                mount: grant.mount.clone(),
                directory: Directory { open, access: grant.access, local },
            })
        };
        reach
            .directories
            .iter()
            .map(open)
            .collect::<Result<_, _>>()
            .map(|all| Directories(Some(all)))
    }
}

impl std::fmt::Debug for Directories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().flat_map(|all| all.iter()).map(|granted| &granted.mount))
            .finish()
    }
}

/// Why a run cannot have what it was granted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReachError {
    /// A directory cannot be opened.
    #[error("cannot open the directory {} that is granted as {mount}: {source}", path.display())]
    Directory {
        /// The guest path.
        mount: String,
        /// The directory on the host.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The run ends before they are open.
    #[error("cannot open the granted directories: {0}")]
    Ended(io::Error),
}
