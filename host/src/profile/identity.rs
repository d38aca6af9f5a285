//! Who a process is, so that a reader in another process can tell whether it still lives.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// One process of one boot of one machine. The number alone would not do: numbers are used again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProcessIdentity {
    /// The number of the process.
    pub pid: u32,
    /// When it began, in ticks of the system's clock since the boot.
    pub started: u64,
    /// Which boot that was.
    pub boot_id: String,
}

/// What is known of the life of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// It runs.
    Alive,
    /// It has ended, or its machine was started anew since.
    Dead,
    /// A process has its number, and the system does not let this reader see when it began.
    Unknown,
}

impl ProcessIdentity {
    /// This process.
    ///
    /// # Errors
    ///
    /// When the system does not say: `/proc` is not there or is not readable.
    pub fn own() -> io::Result<ProcessIdentity> {
        let pid = std::process::id();
        let status = Status::read(pid)?;
        Ok(ProcessIdentity { pid, started: status.started, boot_id: boot_id()? })
    }

    /// Whether the process still runs. It asks the system, and trusts no file's age.
    pub fn life(&self) -> Life {
        match boot_id() {
            Ok(boot_id) if boot_id != self.boot_id => return Life::Dead,
            Ok(_) => {}
            Err(_) => return Life::Unknown,
        }
        match Status::read(self.pid) {
            Ok(status) if status.started == self.started && !status.is_over => Life::Alive,
            Ok(_) => Life::Dead,
            // Some systems hide the processes of others, but not whether there are any.
            Err(_) => match pid(self.pid).map(test_kill_process) {
                Some(Ok(()) | Err(Errno::PERM)) => Life::Unknown,
                Some(Err(_)) | None => Life::Dead,
            },
        }
    }

    /// Whether the process is known to run.
    pub fn is_alive(&self) -> bool {
        self.life() == Life::Alive
    }
}

/// What `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    started: u64,
    /// It has ended, and its parent has not taken note yet.
    is_over: bool,
}

impl Status {
    fn read(pid: u32) -> io::Result<Status> {
        let path = Path::new("/proc").join(pid.to_string()).join("stat");
        let text = fs::read(path)?;
        Status::parse(&String::from_utf8_lossy(&text))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an unknown form of status"))
    }

    /// The second field is the name of the program in brackets, and may itself have brackets and spaces.
    pub(super) fn parse(text: &str) -> Option<Status> {
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?;
        // The state is the third field of all, and the start is the 22nd.
        let started = fields.nth(18)?.parse().ok()?;
        Some(Status { started, is_over: matches!(state, "Z" | "X" | "x") })
    }
}

/// None for a number that no process can have.
fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn the_status_of_a_program_with_a_hostile_name_is_read() {
        let numbers = (4..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        let status = Status::parse(&format!("7 (a) Z 1 (b)) R {numbers}\n"));
        assert_eq!(status, Some(Status { started: 22, is_over: false }));
        let status = Status::parse(&format!("7 (x) Z {numbers}\n"));
        assert_eq!(status, Some(Status { started: 22, is_over: true }));
        assert_eq!(Status::parse("7 (x) R 1 2 3"), None);
        assert_eq!(Status::parse(""), None);
    }
}
