//! What this process holds of the machine, to be compared before and after.

use std::{env, fs};

use anyhow::{Context, Result, ensure};

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

/// Runs an ignored test of this program in a process of its own, where nothing else is counted.
///
/// Memory that was given back is counted as that there: the allocator keeps none of it for the next time.
///
/// # Errors
///
/// When it fails, with all that it printed.
pub fn alone(test: &str) -> Result<()> {
    let output = std::process::Command::new(env::current_exe()?)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .envs([
            ("MALLOC_ARENA_MAX", "1"),
            ("MALLOC_MMAP_THRESHOLD_", "131072"),
            ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains("1 passed"), "{said}{complained}");
    Ok(())
}
