//! What the schedule owner keeps in the home: what was decided, and what came of the last runs.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::schedule::Timestamp;

/// The name of the file in a home.
pub const SCHEDULES: &str = "schedules.json";

/// The next one, while it is being written.
const NEXT: &str = "schedules.json.next";

/// Runs of each schedule that are remembered; the oldest go first.
const REMEMBERED: usize = 20;

/// The most bytes of the file.
const MOST: u64 = 16 << 20;

/// One scheduled run, or times at which there was none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ScheduledRun {
    /// The time that it was scheduled for. Of several times that were left out together, the last.
    pub scheduled: Timestamp,
    /// Whether the host was not there at that time, and made up for it later.
    #[serde(default)]
    pub makes_up: bool,
    /// When it was decided about.
    pub decided: Timestamp,
    /// When it was over; none while it goes on.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// The session that it is a turn of, once there is one.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// Which execution of that session.
    #[serde(default)]
    pub generation: Option<u64>,
    /// `running`; or how the turn ended, as in `run-ended`; `unknown` when the host ended before it did; `refused` when it
    /// was not started; `skipped` for times that were left out.
    pub status: String,
    /// What went wrong, or why there was no run.
    #[serde(default)]
    pub detail: Option<String>,
}

/// What is known of one schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Known {
    /// Its times, as they were written. Others make another schedule of it.
    pub(super) times: String,
    /// Every scheduled time until this was decided about.
    pub(super) decided: Timestamp,
    /// The newest runs, the oldest first.
    pub(super) runs: VecDeque<ScheduledRun>,
}

/// Everything that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Kept {
    pub(super) schedules: BTreeMap<String, Known>,
    /// Sessions that scheduled runs share, by name.
    pub(super) standing: BTreeMap<String, SessionId>,
}

impl Known {
    pub(super) fn add(&mut self, run: ScheduledRun) {
        self.runs.push_back(run);
        // One that goes on is looked for again when it ends.
        while self.runs.len() > REMEMBERED
            && let Some(at) = self.runs.iter().position(|run| run.ended.is_some())
        {
            self.runs.remove(at);
        }
    }

    /// The run for that time that goes on.
    pub(super) fn running(&mut self, scheduled: Timestamp) -> Option<&mut ScheduledRun> {
        self.runs.iter_mut().rev().find(|run| run.scheduled == scheduled && run.ended.is_none())
    }
}

impl Kept {
    /// Reads what is kept in a home; nothing where there is no file. What was going on then is unknown now.
    pub(super) fn read(home: &Path, now: Timestamp) -> io::Result<Kept> {
        let path = home.join(SCHEDULES);
        let size = match fs::metadata(&path) {
            Ok(found) if !found.is_file() => return Err(io::Error::other("it is no file")),
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
            Err(error) => return Err(error),
        };
        if size > MOST {
            return Err(io::Error::other("it is too large to be what a host has written"));
        }
        let mut kept: Kept = serde_json::from_slice(&fs::read(&path)?)?;
        for run in kept.schedules.values_mut().flat_map(|known| &mut known.runs) {
            if run.ended.is_none() {
                run.ended = Some(now);
                "unknown".clone_into(&mut run.status);
                let words = "the host ended while this was going on; nobody knows how far it came";
                run.detail = Some(words.to_owned());
            }
        }
        Ok(kept)
    }

    pub(super) fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// A reader finds what was there before or this, also after a loss of power.
pub(super) fn write(home: &Path, text: &[u8]) -> io::Result<()> {
    let next = home.join(NEXT);
    let mut file = File::create(&next)?;
    file.write_all(text)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&next, home.join(SCHEDULES))?;
    File::open(home)?.sync_all()
}
