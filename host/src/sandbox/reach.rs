//! What one run can reach outside its own memory: the effective grants, as the sandbox enforces them.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

/// What one run can reach. The default reaches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Directories, opened once through `cap-std` when the run starts.
    pub directories: Vec<Directory>,
    /// Hosts that may be connected to.
    pub network: Vec<Endpoint>,
    /// Environment variables with their values.
    pub environment: Vec<(String, String)>,
    /// The part of the host's threads for file calls that it shares with others.
    pub share: Share,
}

/// A part of the places that a host has for calls that cannot be interrupted, such as a read from a disk that hangs.
/// Runs that have one share take no more places than that together: all runs of a session have one, so that a session
/// whose disk hangs leaves places to the others. Clones are the same share; the default bounds nothing.
#[derive(Debug, Clone, Default)]
pub struct Share(pub(super) Option<Arc<Semaphore>>);

impl Share {
    pub(super) fn of(places: usize) -> Share {
        Share(Some(Arc::new(Semaphore::new(places))))
    }
}

/// Shares are equal when they are one.
impl PartialEq for Share {
    fn eq(&self, other: &Share) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for Share {}

/// A directory of the host, and the name under which a guest finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// The absolute guest path, such as `/work`.
    pub mount: String,
    /// The directory on the host.
    pub path: PathBuf,
    /// What may be done in it.
    pub access: Access,
}

/// What may be done in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    /// Files can be listed and read.
    Read,
    /// Files can also be written, made, renamed and removed.
    ReadWrite,
}

/// A host and port that may be connected to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// A host name, an address, `*.example.org` for all names below one, or `*` for every host.
    pub host: String,
    /// The port; none for every port.
    pub port: Option<u16>,
    /// Which addresses the name may stand for.
    pub addresses: Addresses,
}

/// Which addresses a granted name may resolve to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Addresses {
    /// Only addresses of the public internet.
    Public,
    /// Also loopback, private, link-local and other special ranges.
    Any,
}
