//! What this process holds of the machine, to be compared before and after.

use std::fs;

use anyhow::{Context, Result};

/// Threads, open files and memory of this process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Threads.
    pub threads: usize,
    /// Open file descriptors.
    pub files: usize,
    /// Mappings of memory.
    pub mappings: usize,
    /// Resident memory, in bytes.
    pub resident: u64,
}

impl Footprint {
    /// That of this moment.
    ///
    /// # Errors
    ///
    /// Where there is no `/proc`.
    pub fn now() -> Result<Footprint> {
        let entries = |folder: &str| anyhow::Ok(fs::read_dir(folder)?.count());
        let status = fs::read_to_string("/proc/self/status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident =
            resident.and_then(|rest| rest.trim().strip_suffix(" kB")).context("no VmRSS")?;
        Ok(Footprint {
            threads: entries("/proc/self/task")?,
            files: entries("/proc/self/fd")?,
            mappings: fs::read_to_string("/proc/self/maps")?.lines().count(),
            resident: resident.trim().parse::<u64>()? << 10,
        })
    }
}
