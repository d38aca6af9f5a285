//! What an operator says of runs that begin by the clock.

use serde::Deserialize;

use super::names::{Name, ScheduleName};
use crate::schedule::{Expression, Missed, Overlap, Schedule, Zone};

/// `[schedules.NAME]`, in the configuration of a profile.
///
/// ```toml
/// [schedules.nightly]
/// cron = "30 2 * * MON-FRI"
/// time-zone = "Europe/Berlin"          # UTC when left out
/// missed = "once"                      # or "skip", when left out, or { all = 5 }
/// overlap = "queue"                    # or "skip", when left out, or "allow"
/// agent = "assistant"
/// goal = "Say what has changed since yesterday."
/// input = "{}"                         # JSON for the agent; nothing when left out
/// session = { standing = "reports" }   # or "new", when left out
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScheduleTable {
    /// When: minute, hour, day of the month, month, day of the week.
    pub cron: Expression,
    /// Whose clock `cron` speaks of.
    #[serde(default)]
    pub time_zone: Zone,
    /// What becomes of times at which the host was not there: they are left out, made up for by one run, or by one each, up to N.
    #[serde(default)]
    pub missed: Missed,
    /// What becomes of a time at which an earlier run has not ended: it is left out, waits, or is run beside it.
    #[serde(default)]
    pub overlap: Overlap,
    /// The agent that is run.
    pub agent: Name,
    /// What it is asked to do.
    pub goal: String,
    /// JSON that the agent reads beside the goal. Left out: nothing.
    #[serde(default)]
    pub input: String,
    /// The session that a run belongs to: a new one each time, or always that of this name.
    #[serde(default)]
    pub session: ScheduleSession,
}

/// The session that a scheduled run belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleSession {
    /// One of its own.
    #[default]
    New,
    /// Always the same, by a name within the profile: the runs are turns of one conversation, one after the other. It is
    /// opened with the agent of the first that needs it.
    Standing(ScheduleName),
}

impl ScheduleTable {
    /// When it is due, for the plan.
    pub fn schedule(&self) -> Schedule {
        let ScheduleTable { cron, time_zone, missed, overlap, .. } = self;
        Schedule {
            cron: cron.clone(),
            time_zone: time_zone.clone(),
            missed: *missed,
            overlap: *overlap,
        }
    }
}
