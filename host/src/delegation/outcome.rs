//! What became of a child, and of a unit.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::id::DelegationId;
use crate::ids::SessionId;

/// How a child ended (C5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ChildStatus {
    /// It returned a result.
    Completed,
    /// It carried a stop when it ended. This wins over whatever else is true of the end.
    Interrupted,
    /// It returned a failure, or could not be started.
    Failed,
    /// It broke off.
    Trapped,
    /// It ran out of something.
    Limit {
        /// The name of the limit.
        which: String,
    },
    /// The host lost it.
    Unknown,
}

impl ChildStatus {
    /// The name, as results spell it.
    pub fn as_str(&self) -> &'static str {
        match self {
            ChildStatus::Completed => "completed",
            ChildStatus::Interrupted => "interrupted",
            ChildStatus::Failed => "failed",
            ChildStatus::Trapped => "trapped",
            ChildStatus::Limit { .. } => "limit",
            ChildStatus::Unknown => "unknown",
        }
    }
}

impl fmt::Display for ChildStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutcome {
    /// Its place in the call, from 0.
    pub task: u32,
    /// How the child ended.
    pub status: ChildStatus,
    /// The child's final text, or what it had said before it ended.
    pub output: String,
    /// What went wrong; empty when nothing did.
    pub detail: String,
}

/// How a unit ended as a whole (C4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum UnitStatus {
    /// All its children have ended, each in its own way.
    Completed,
    /// Every child was interrupted.
    Interrupted,
    /// The host lost children.
    Unknown,
}

impl UnitStatus {
    /// The status that follows from the children's.
    pub fn of(entries: &[TaskOutcome]) -> UnitStatus {
        let interrupted = |entry: &TaskOutcome| entry.status == ChildStatus::Interrupted;
        if !entries.is_empty() && entries.iter().all(interrupted) {
            UnitStatus::Interrupted
        } else if entries.iter().any(|entry| entry.status == ChildStatus::Unknown) {
            UnitStatus::Unknown
        } else {
            UnitStatus::Completed
        }
    }

    /// The name, as results spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            UnitStatus::Completed => "completed",
            UnitStatus::Interrupted => "interrupted",
            UnitStatus::Unknown => "unknown",
        }
    }
}

/// The one terminal record of an accepted unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Completion {
    /// The unit that it is about (C3).
    pub id: DelegationId,
    /// The session that it goes to; fixed when the unit was submitted (C6).
    pub origin: SessionId,
    /// How the unit ended.
    pub status: UnitStatus,
    /// One for each task, in task order (C5).
    pub entries: Vec<TaskOutcome>,
    /// What each of these tasks was, in a few words.
    pub goals: Vec<String>,
}

impl Completion {
    /// The same, of a unit and for a session of these names.
    #[must_use]
    pub fn of(self, id: DelegationId, origin: SessionId) -> Completion {
        Completion { id, origin, ..self }
    }

    /// The completion of a unit of which only the record is left: how its tasks ended, in task order, and what each was.
    pub fn from_record(
        id: DelegationId,
        origin: SessionId,
        entries: Vec<TaskOutcome>,
        goals: Vec<String>,
    ) -> Completion {
        Completion { id, origin, status: UnitStatus::of(&entries), entries, goals }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(statuses: &[ChildStatus]) -> UnitStatus {
        let entry = |status: &ChildStatus| TaskOutcome {
            task: 0,
            status: status.clone(),
            output: String::new(),
            detail: String::new(),
        };
        UnitStatus::of(&statuses.iter().map(entry).collect::<Vec<_>>())
    }

    /// Rule C4: a unit of which every child was interrupted is interrupted, and no other.
    #[test]
    fn a_unit_is_interrupted_when_every_child_was() {
        use ChildStatus::{Completed, Failed, Interrupted, Trapped, Unknown};
        assert_eq!(of(&[Interrupted, Interrupted]), UnitStatus::Interrupted);
        assert_eq!(of(&[Interrupted, Completed]), UnitStatus::Completed);
        assert_eq!(of(&[Failed, Trapped]), UnitStatus::Completed);
        assert_eq!(of(&[Interrupted, Unknown]), UnitStatus::Unknown);
        assert_eq!(of(&[]), UnitStatus::Completed);
    }
}
