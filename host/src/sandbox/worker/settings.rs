//! Where workers come from, and how much one may use.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::sandbox::limits::Limits;
use crate::sandbox::wasi::Names;

/// Memory of a worker beside what its guest may have, its code, and what is on the way to and from it.
const OWN_MEMORY: u64 = 256 << 20;

/// Processors that one worker can keep busy: its guest, and everything around it.
const PROCESSORS: u64 = 2;

/// What stands between a guest and the host, beside the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Nothing: it runs in the process of the host, in an instance of its own.
    #[default]
    Instance,
    /// Each of its runs has a process of its own, with limits of the operating system.
    Process,
}

impl Isolation {
    /// The name, as configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::Instance => "instance",
            Isolation::Process => "process",
        }
    }
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where workers come from, and how much one may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// The program, as a whole path. With the arguments it must run [`worker_main`](super::worker_main).
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Workers at one time. A run that finds them all there has no place.
    pub processes: usize,
    /// Bytes of memory of one; none for what its run may have and 256 MiB.
    pub memory: Option<u64>,
    /// Processor time of one; none for twice the wall time of its run.
    pub processor_time: Option<Duration>,
    /// How long one may take to end after a hard stop, or after it has said that its run has ended.
    pub stop_bound: Duration,
}

impl WorkerSettings {
    /// The usual settings for workers of that program.
    pub fn new(program: impl Into<PathBuf>, arguments: Vec<OsString>) -> WorkerSettings {
        WorkerSettings {
            program: program.into(),
            arguments,
            processes: 64,
            memory: None,
            processor_time: None,
            stop_bound: Duration::from_secs(1),
        }
    }

    /// Bytes of memory for a worker with those limits, that much code, and frames of at most so many bytes.
    pub(super) fn memory_for(&self, limits: &Limits, code: usize, frame: usize) -> u64 {
        // The code is there twice while it is loaded, a frame as text and as what it says.
        let own = OWN_MEMORY.saturating_add(3 * code as u64).saturating_add(4 * frame as u64);
        self.memory.unwrap_or_else(|| limits.memory.saturating_add(own))
    }

    /// Seconds of processor time for a worker with those limits; none for no bound.
    pub(super) fn processor_seconds_for(&self, limits: &Limits) -> Option<u64> {
        let seconds = |time: Duration| time.as_secs().saturating_add(1);
        self.processor_time
            .map(seconds)
            .or_else(|| limits.wall_time.map(|time| seconds(time).saturating_mul(PROCESSORS)))
    }
}

/// The workers of one sandbox.
pub(in crate::sandbox) struct Workers {
    pub(super) settings: WorkerSettings,
    /// One permit for each process.
    pub(super) places: Arc<Semaphore>,
    /// Whom a worker asks for the addresses of a name, in place of the operating system.
    pub(super) names: Option<Arc<dyn Names>>,
    /// Certificates that its connections trust.
    pub(super) roots: Vec<Vec<u8>>,
    started: AtomicU64,
}

impl Workers {
    pub(in crate::sandbox) fn new(
        settings: WorkerSettings,
        names: Option<Arc<dyn Names>>,
        roots: Vec<Vec<u8>>,
    ) -> Workers {
        let places = Arc::new(Semaphore::new(settings.processes.clamp(1, Semaphore::MAX_PERMITS)));
        Workers { settings, places, names, roots, started: AtomicU64::new(0) }
    }

    /// The name of the next worker.
    pub(super) fn next_name(&self) -> Arc<str> {
        format!("w{}", self.started.fetch_add(1, Ordering::Relaxed) + 1).into()
    }
}
