//! What crosses the door when a run hands tasks to children.

use serde::{Deserialize, Serialize};

/// One task for one child.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildTask {
    /// What the child shall do, in words.
    pub goal: String,
    /// JSON, or empty.
    pub input: String,
    /// The agent that does it; none for the same agent.
    pub agent: Option<String>,
    /// The tools that the child may use, of those of its parent; none for all of them.
    pub tools: Option<Vec<String>>,
    /// Limits by name.
    pub limits: Vec<(String, u64)>,
    /// Tasks of one group form a unit, when completions are independent.
    pub group: Option<String>,
}

/// A batch of tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegateRequest {
    /// At least one.
    pub tasks: Vec<ChildTask>,
    /// `background` or `inline`.
    pub mode: String,
    /// One completion for each group, or task without a group, in place of one for the whole batch.
    pub independent_completions: bool,
    /// `inline`, `queue` or `refuse`; `inline` when empty.
    pub policy: String,
}

impl DelegateRequest {
    /// How many tasks it has, in words.
    pub(super) fn counted(&self) -> String {
        match self.tasks.len() {
            1 => "1 task".to_owned(),
            tasks => format!("{tasks} tasks"),
        }
    }
}

/// What became of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Its place in the request, from 0.
    pub task: u32,
    /// `completed`, `interrupted`, `failed`, `trapped`, `limit` or `unknown`.
    pub status: String,
    /// The child's final text, or what it had said before it ended.
    pub output: String,
    /// What went wrong; empty when nothing did.
    pub detail: String,
}

/// What became of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegateOutcome {
    /// `completed` or `dispatched`.
    pub outcome: String,
    /// The units that were accepted into the background.
    pub delegation_ids: Vec<String>,
    /// One for each task, when the outcome is `completed`.
    pub results: Vec<TaskResult>,
    /// Those of units that ran inside the call, when the outcome is `dispatched`.
    pub inline_results: Vec<TaskResult>,
    /// What happened and why, in words.
    pub note: String,
}

/// What a run may hand out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationCapacity {
    /// The agents that tasks may name, as granted: names, or beginnings of names with a `*`; the own name first.
    pub agents: Vec<String>,
    /// Whether the same agent is among them.
    pub same_agent: bool,
    /// Tasks of one call.
    pub tasks_per_call: u32,
    /// Runs that may still be started below this one.
    pub descendants_left: u64,
    /// Delegations that may lie below this run.
    pub depth_left: u32,
    /// Whether units can run in the background at all.
    pub background: bool,
}

/// How one accepted unit stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitStatus {
    /// Its name.
    pub id: String,
    /// `queued`, `running`, `completed`, `interrupted` or `unknown`.
    pub state: String,
    /// Results of the children that have ended.
    pub results: Vec<TaskResult>,
}
