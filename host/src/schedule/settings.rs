//! What an operator says of one schedule.

use serde::Deserialize;

use super::expression::Expression;
use super::zone::Zone;

/// When something is run, and what becomes of the times at which it could not be.
///
/// ```toml
/// cron = "30 2 * * MON-FRI"
/// time-zone = "Europe/Berlin"   # UTC when left out
/// missed = "once"               # or "skip", when left out, or { all = 5 }
/// overlap = "queue"             # or "skip", when left out, or "allow"
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Schedule {
    /// When.
    pub cron: Expression,
    /// Whose clock that is.
    #[serde(default)]
    pub time_zone: Zone,
    /// What becomes of the times at which the host was not there.
    #[serde(default)]
    pub missed: Missed,
    /// What becomes of a time at which an earlier run has not ended.
    #[serde(default)]
    pub overlap: Overlap,
}

/// What becomes of the times at which the host was not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub enum Missed {
    /// Nothing.
    #[default]
    Skip,
    /// One run makes up for all of them.
    Once,
    /// A run for each of the latest ones, at most so many; one after the other unless they may overlap.
    All(u32),
}

/// What becomes of a time at which an earlier run of the schedule has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// It is left out.
    #[default]
    Skip,
    /// It is run beside the other.
    Allow,
    /// One run waits until the other has ended; those after it are left out.
    Queue,
}

impl Missed {
    /// The most runs that make up for missed ones.
    pub const MOST: u32 = 1000;
}

/// How [`Missed`] is written.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Written {
    Skip,
    Once,
    All(i64),
}

impl TryFrom<Written> for Missed {
    type Error = MissedError;

    fn try_from(written: Written) -> Result<Missed, MissedError> {
        match written {
            Written::Skip => Ok(Missed::Skip),
            Written::Once => Ok(Missed::Once),
            Written::All(most) => match u32::try_from(most) {
                Ok(some) if (1..=Missed::MOST).contains(&some) => Ok(Missed::All(some)),
                Ok(_) | Err(_) => Err(MissedError { most }),
            },
        }
    }
}

/// A bound on missed runs that makes no sense: write another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "`missed`: {most} is no bound for runs that make up for missed ones; write 1 to 1000, or \"skip\" for none"
)]
pub struct MissedError {
    /// The bound.
    pub most: i64,
}
