//! Handing tasks to child runs.

use serde::{Deserialize, Serialize};

use crate::Failure;

/// One task for one child run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct ChildTask {
    /// What the child shall do, in words.
    pub goal: String,
    /// Further input: JSON, or an empty string.
    pub input: String,
    /// The agent that does it; none for the same agent.
    pub agent: Option<String>,
    /// The tools the child may use: at most the parent's; none for all of them.
    pub tools: Option<Vec<String>>,
    /// Limits by name (see [`Budget`](crate::Budget)); a child gets at most what its parent has left.
    pub limits: Vec<(String, u64)>,
    /// Tasks of one group form a unit, when completions are independent.
    pub group: Option<String>,
}

impl ChildTask {
    /// A task for the same agent, with all tools of the parent.
    pub fn new(goal: impl Into<String>) -> ChildTask {
        ChildTask { goal: goal.into(), ..ChildTask::default() }
    }

    /// Further input of any type that serialises to JSON.
    ///
    /// # Errors
    /// `invalid` when the input cannot be written as JSON.
    pub fn input(self, input: &impl Serialize) -> Result<ChildTask, Failure> {
        Ok(ChildTask { input: serde_json::to_string(input)?, ..self })
    }

    /// The agent that does it.
    #[must_use]
    pub fn agent(self, name: impl Into<String>) -> ChildTask {
        ChildTask { agent: Some(name.into()), ..self }
    }

    /// The tools that the child may use.
    #[must_use]
    pub fn tools<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> ChildTask {
        ChildTask { tools: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// One limit by name, such as `fuel` or `wall-time`.
    #[must_use]
    pub fn limit(mut self, name: impl Into<String>, value: u64) -> ChildTask {
        self.limits.push((name.into(), value));
        self
    }

    /// The unit that the task belongs to, when completions are independent.
    #[must_use]
    pub fn group(self, name: impl Into<String>) -> ChildTask {
        ChildTask { group: Some(name.into()), ..self }
    }
}

/// A batch of tasks for child runs. It runs inside the call unless [`background`](DelegateRequest::background) is
/// asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DelegateRequest {
    /// At least one.
    pub tasks: Vec<ChildTask>,
    /// `background` or `inline`; inline when nothing is said.
    #[serde(default = "inline")]
    pub mode: String,
    /// One completion for each group (or task without a group) in place of one for the whole batch.
    #[serde(default)]
    pub independent_completions: bool,
    /// What to do when there is no capacity: `inline` (the default when empty), `queue` or `refuse`.
    #[serde(default)]
    pub policy: String,
}

fn inline() -> String {
    "inline".to_owned()
}

impl DelegateRequest {
    /// A batch that runs inside the call: when it returns, all children have ended.
    pub fn new(tasks: Vec<ChildTask>) -> DelegateRequest {
        DelegateRequest {
            tasks,
            mode: inline(),
            independent_completions: false,
            policy: String::new(),
        }
    }

    /// Runs the batch in the background, where capacity allows it. A background unit outlives this run, and the
    /// run's stop does not reach it.
    #[must_use]
    pub fn background(self) -> DelegateRequest {
        DelegateRequest { mode: "background".to_owned(), ..self }
    }

    /// Admits, runs and completes each group (or task without a group) by itself.
    #[must_use]
    pub fn independent_completions(self) -> DelegateRequest {
        DelegateRequest { independent_completions: true, ..self }
    }

    /// Waits in a queue where there is no capacity, in place of running inside the call.
    #[must_use]
    pub fn or_queue(self) -> DelegateRequest {
        DelegateRequest { policy: "queue".to_owned(), ..self }
    }

    /// Gives up where there is no capacity, in place of running inside the call.
    #[must_use]
    pub fn or_refuse(self) -> DelegateRequest {
        DelegateRequest { policy: "refuse".to_owned(), ..self }
    }
}

/// What became of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Its place in the request, from 0.
    pub task: u32,
    /// `completed`, `interrupted`, `failed`, `trapped`, `limit` or `unknown`.
    pub status: String,
    /// The child's final text, or what it had reported before it ended.
    pub output: String,
    /// What went wrong, when something did.
    pub detail: String,
}

impl TaskResult {
    /// Whether the child did its task.
    pub fn is_completed(&self) -> bool {
        self.status == "completed"
    }
}

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DelegateOutcome {
    /// `completed`: all results are here. `dispatched`: at least one unit runs in the background.
    pub outcome: String,
    /// The ids of the units that were accepted into the background.
    pub delegation_ids: Vec<String>,
    /// One for each task, when the outcome is `completed`.
    pub results: Vec<TaskResult>,
    /// Those of units that ran inside the call, when the outcome is `dispatched`.
    pub inline_results: Vec<TaskResult>,
    /// What happened and why, in words.
    pub note: String,
}

impl DelegateOutcome {
    /// Whether at least one unit runs in the background.
    pub fn is_dispatched(&self) -> bool {
        self.outcome == "dispatched"
    }
}

/// What a run may hand to children.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DelegationCapacity {
    /// The agents that may be named in a task, as they are granted: names, or beginnings of names with a `*` at the
    /// end. The own name comes first when the same agent is among them.
    pub agents: Vec<String>,
    /// Whether the same agent is among them: a task may then name none.
    pub same_agent: bool,
    /// At most so many tasks go into one call.
    pub tasks_per_call: u32,
    /// At most so many runs may still be started below this run, its children's children with them. Other runs of the
    /// same turn use up what they share.
    pub descendants_left: u64,
    /// So many delegations may lie below this run: 1 when its children may not hand out anything.
    pub depth_left: u32,
    /// Whether units can run in the background at all. Whether there is a place for one is known when it is handed
    /// out.
    pub background: bool,
}

impl DelegationCapacity {
    /// How many tasks the next call may have.
    pub fn tasks(&self) -> u32 {
        self.tasks_per_call.min(u32::try_from(self.descendants_left).unwrap_or(u32::MAX))
    }
}

/// The state of one unit that was accepted into the background.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitStatus {
    /// The delegation id.
    pub id: String,
    /// `queued`, `running`, `completed`, `interrupted` or `unknown` (the host lost it).
    pub state: String,
    /// Results of the children that have ended.
    pub results: Vec<TaskResult>,
}
