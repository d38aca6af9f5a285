//! What answers show of the host's own types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delegation::{Completion, TaskOutcome, UnitView};
use crate::plugin::Catalogue;
use crate::sandbox::Used;
use crate::session::{Answer, SideReport, ToolAnswer, TurnReport};
use crate::store::{Health, MessageRow, SessionRow};
use crate::work::{NodeView, StopKind, Tree};

/// The two kinds of stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopKindName {
    /// The guest is asked to finish.
    Soft,
    /// The guest is ended.
    Hard,
}

impl From<StopKind> for StopKindName {
    fn from(kind: StopKind) -> StopKindName {
        match kind {
            StopKind::Soft => StopKindName::Soft,
            StopKind::Hard => StopKindName::Hard,
        }
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SessionView {
    /// Its name.
    id: String,
    /// The agent that answers it.
    agent: String,
    /// What it was opened with.
    settings: Value,
    /// When it was created, in milliseconds since 1970 in UTC.
    created_ms: u64,
    /// When something was last recorded in it.
    updated_ms: u64,
    /// How many turns it has had.
    generation: u64,
    /// The turn that is going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<RunningView>,
    /// The number of its first event that is kept.
    first_event: u64,
    /// The number of its newest event; 0 when there was none.
    last_event: u64,
    /// Messages of its conversation.
    messages: u64,
    /// Units in the background that have not ended.
    units_open: u64,
    /// Completions that are not acknowledged.
    units_unread: u64,
}

/// A turn that is going on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct RunningView {
    /// Which execution of the session.
    generation: u64,
    /// Its run.
    run: String,
}

impl From<SessionRow> for SessionView {
    fn from(row: SessionRow) -> SessionView {
        SessionView {
            id: row.id.as_str().to_owned(),
            agent: row.agent,
            settings: parsed(&row.settings),
            created_ms: row.created_ms,
            updated_ms: row.updated_ms,
            generation: row.generation,
            running: row.running.map(|running| RunningView {
                generation: running.generation,
                run: running.run.to_string(),
            }),
            first_event: row.first_seq,
            last_event: row.last_seq,
            messages: row.messages,
            units_open: row.units_open,
            units_unread: row.units_unread,
        }
    }
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MessageView {
    /// Its place in the conversation, from 1.
    number: u64,
    /// When it was recorded, in milliseconds since 1970 in UTC.
    at_ms: u64,
    /// `role` and `text`, and what belongs to them.
    message: Value,
}

impl From<MessageRow> for MessageView {
    fn from(row: MessageRow) -> MessageView {
        MessageView { number: row.number, at_ms: row.at_ms, message: parsed(&row.body) }
    }
}

/// JSON that was recorded; what cannot be read is shown as text.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// What became of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct TurnView {
    /// Which execution of the session it was.
    generation: u64,
    /// `completed`, `failed`, `interrupted`, `limit`, `trapped` or `refused`.
    status: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Its final text; for a turn that did not come to its end, what it had said.
    output: String,
    /// For a turn that did not come to its end: what tools had answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolView>,
    /// What it used.
    used: UsedView,
    /// The limits that it came up against.
    limits_reached: Vec<String>,
    /// Why its end is not recorded yet; left out when it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    unrecorded: Option<String>,
}

/// What became of a side run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SideView {
    /// Its name, as events have it.
    run: String,
    /// As of a turn.
    status: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Its final text; for one that did not come to its end, what it had said.
    output: String,
    /// For one that did not come to its end: what tools had answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolView>,
    /// What it used.
    used: UsedView,
    /// The limits that it came up against.
    limits_reached: Vec<String>,
    /// Why its end is not recorded yet; left out when it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    unrecorded: Option<String>,
}

impl From<SideReport> for SideView {
    fn from(report: SideReport) -> SideView {
        SideView {
            run: report.run.to_string(),
            status: report.outcome.status().to_owned(),
            detail: report.outcome.detail(),
            output: report.output,
            tools: report.tools.into_iter().map(ToolView::from).collect(),
            used: report.used.into(),
            limits_reached: report.reached.iter().map(|kind| kind.to_string()).collect(),
            unrecorded: report.unrecorded.map(|error| error.to_string()),
        }
    }
}

/// The answer to a question that was asked aside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct AnswerView {
    /// As of a turn.
    status: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// The answer; nothing when it was stopped.
    text: String,
    /// What it used.
    used: UsedView,
    /// The limits that it came up against.
    limits_reached: Vec<String>,
}

impl From<Answer> for AnswerView {
    fn from(answer: Answer) -> AnswerView {
        AnswerView {
            status: answer.outcome.status().to_owned(),
            detail: answer.outcome.detail(),
            text: answer.text,
            used: answer.used.into(),
            limits_reached: answer.reached.iter().map(|kind| kind.to_string()).collect(),
        }
    }
}

/// A schedule, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ScheduleView {
    /// Its name.
    name: String,
    /// When, as a cron expression.
    cron: String,
    /// Whose clock that is.
    time_zone: String,
    /// The agent that is run.
    agent: String,
    /// When it is due next, as RFC 3339 writes it; none when nobody decides about it any more.
    next: Option<String>,
    /// Runs that wait for an earlier one.
    waiting: usize,
    /// The newest runs, the oldest first.
    runs: Vec<ScheduledRunView>,
}

/// One scheduled run, or times at which there was none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct ScheduledRunView {
    /// The time that it was scheduled for.
    scheduled: String,
    /// Whether the host was not there at that time, and made up for it later.
    makes_up: bool,
    /// When it was over; none while it goes on.
    ended: Option<String>,
    /// The session that it is a turn of, once there is one.
    session: Option<String>,
    /// Which execution of that session.
    generation: Option<u64>,
    /// `running`, or how the turn ended; `unknown` when the host ended before it did; `refused` when it was not started; `skipped`
    /// for times that were left out.
    status: String,
    /// What went wrong, or why there was no run.
    detail: Option<String>,
}

impl From<crate::host::ScheduleView> for ScheduleView {
    fn from(view: crate::host::ScheduleView) -> ScheduleView {
        let run = |run: crate::host::ScheduledRun| ScheduledRunView {
            scheduled: run.scheduled.to_string(),
            makes_up: run.makes_up,
            ended: run.ended.map(|time| time.to_string()),
            session: run.session.map(|session| session.to_string()),
            generation: run.generation,
            status: run.status,
            detail: run.detail,
        };
        ScheduleView {
            name: view.name,
            cron: view.cron,
            time_zone: view.time_zone,
            agent: view.agent,
            next: view.next.map(|time| time.to_string()),
            waiting: view.waiting,
            runs: view.runs.into_iter().map(run).collect(),
        }
    }
}

/// What a tool had answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct ToolView {
    /// The id of the call.
    id: String,
    /// The tool.
    tool: String,
    /// How the call ended.
    status: String,
    /// What it said.
    content: String,
}

impl From<ToolAnswer> for ToolView {
    fn from(answer: ToolAnswer) -> ToolView {
        let ToolAnswer { id, tool, status, content } = answer;
        ToolView { id, tool, status, content }
    }
}

/// What a run used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct UsedView {
    /// From its start to its end, in milliseconds.
    wall_time_ms: u64,
    /// Units of fuel; none for a run without a fuel limit.
    fuel: Option<u64>,
    /// The most memory that it had at one time, in bytes.
    memory_peak: u64,
    /// Bytes between it and the host.
    door_bytes: u64,
    /// Bytes of its log.
    log_bytes: u64,
    /// Tokens of its model requests.
    model_tokens: u64,
    /// Calls of host functions.
    calls: u64,
}

impl From<Used> for UsedView {
    fn from(used: Used) -> UsedView {
        UsedView {
            wall_time_ms: u64::try_from(used.wall_time.as_millis()).unwrap_or(u64::MAX),
            fuel: used.fuel,
            memory_peak: used.memory_peak,
            door_bytes: used.door_bytes,
            log_bytes: used.log_bytes,
            model_tokens: used.model_tokens,
            calls: used.calls,
        }
    }
}

impl From<TurnReport> for TurnView {
    fn from(report: TurnReport) -> TurnView {
        TurnView {
            generation: report.generation.0,
            status: report.outcome.status().to_owned(),
            detail: report.outcome.detail().map(|detail| detail.to_string()),
            output: report.output,
            tools: report.tools.into_iter().map(ToolView::from).collect(),
            used: report.used.into(),
            limits_reached: report.reached.iter().map(|kind| kind.to_string()).collect(),
            unrecorded: report.unrecorded.map(|error| error.to_string()),
        }
    }
}

/// A background unit, as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct DelegationView {
    /// Its name.
    id: String,
    /// `queued`, `running`, `completed`, `interrupted` or `unknown`.
    state: String,
    /// The tasks that have ended.
    entries: Vec<TaskView>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct TaskView {
    /// Its place in the call, from 0.
    task: u32,
    /// `completed`, `interrupted`, `failed`, `trapped`, `limit` or `unknown`.
    status: String,
    /// The child's final text, or what it had said.
    output: String,
    /// What went wrong; empty when nothing did.
    detail: String,
}

impl From<&TaskOutcome> for TaskView {
    fn from(outcome: &TaskOutcome) -> TaskView {
        TaskView {
            task: outcome.task,
            status: outcome.status.to_string(),
            output: outcome.output.clone(),
            detail: outcome.detail.clone(),
        }
    }
}

impl From<UnitView> for DelegationView {
    fn from(unit: UnitView) -> DelegationView {
        DelegationView {
            id: unit.id.to_string(),
            state: unit.state.as_str().to_owned(),
            entries: unit.entries.iter().map(TaskView::from).collect(),
        }
    }
}

/// How a background unit ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CompletionView {
    /// The unit.
    id: String,
    /// `completed`, `interrupted` or `unknown`.
    status: String,
    /// One for each task, in task order.
    entries: Vec<TaskView>,
    /// What each of the tasks was, in a few words.
    goals: Vec<String>,
}

impl From<&Completion> for CompletionView {
    fn from(completion: &Completion) -> CompletionView {
        CompletionView {
            id: completion.id.to_string(),
            status: completion.status.as_str().to_owned(),
            entries: completion.entries.iter().map(TaskView::from).collect(),
            goals: completion.goals.clone(),
        }
    }
}

/// A part of the tree of work, at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TreeView {
    /// Executions among the nodes: what a drain would wait for.
    pub executions: usize,
    /// Every node; owners stand before what they own.
    pub nodes: Vec<TreeNode>,
}

/// A piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TreeNode {
    /// Its name.
    pub id: String,
    /// The node that owns it; none for the host.
    pub owner: Option<String>,
    /// What sort of work it is.
    pub kind: String,
    /// Whether it only holds others.
    pub container: bool,
    /// Its name for people.
    pub label: String,
    /// The highest stop that it carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopView>,
    /// Why it takes no new work, when it takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// How long ago it was opened, in milliseconds.
    pub age_ms: u64,
    /// What it is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<ActivityView>,
    /// What it has used of its budgets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub budgets: BTreeMap<String, BudgetView>,
}

/// A stop that a piece of work carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct StopView {
    /// Soft or hard.
    pub kind: StopKindName,
    /// The exact words of whoever asked.
    pub message: String,
    /// Who asked.
    pub issuer: String,
}

/// What a piece of work is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ActivityView {
    /// The call that it is in, such as `model.complete`, or `computing`.
    pub what: String,
    /// What exactly, such as the name of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// For how long, in milliseconds, for a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

/// What a piece of work has used of one budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct BudgetView {
    /// How much was used, in the limit's unit.
    pub used: u64,
    /// How much there is; none where there is no bound.
    pub limit: Option<u64>,
}

impl TreeView {
    pub(super) fn of(nodes: &[NodeView]) -> TreeView {
        let executions = nodes.iter().filter(|node| !node.kind.is_container()).count();
        TreeView { executions, nodes: nodes.iter().map(TreeNode::from).collect() }
    }

    pub(super) fn whole(tree: &Tree) -> TreeView {
        TreeView::of(&tree.snapshot(tree.root()))
    }
}

impl From<&NodeView> for TreeNode {
    fn from(node: &NodeView) -> TreeNode {
        let milliseconds =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let budgets = node.budgets.iter().map(|budget| {
            let view = BudgetView { used: budget.used, limit: budget.limit };
            (budget.name.to_owned(), view)
        });
        TreeNode {
            id: node.id.to_string(),
            owner: node.owner.map(|owner| owner.to_string()),
            kind: node.kind.as_str().to_owned(),
            container: node.kind.is_container(),
            label: node.label.to_string(),
            stop: node.stop.as_ref().map(|stop| StopView {
                kind: stop.kind().into(),
                message: stop.message().to_owned(),
                issuer: stop.issuer().to_owned(),
            }),
            closed: node.closed.as_ref().map(|reason| reason.to_string()),
            age_ms: milliseconds(node.age),
            activity: node.activity.as_ref().map(|activity| ActivityView {
                what: activity.what.to_owned(),
                detail: activity.detail.as_ref().map(|detail| detail.to_string()),
                for_ms: activity.since.map(|since| milliseconds(since.elapsed())),
            }),
            budgets: budgets.collect(),
        }
    }
}

/// The plugins of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct PluginsView {
    /// Those that can be run.
    plugins: Vec<PluginView>,
    /// Those that cannot be read.
    broken: Vec<BrokenView>,
}

/// A plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct PluginView {
    /// Its name.
    name: String,
    /// `agent` or `tool`.
    kind: String,
    /// Its version.
    version: String,
    /// What it says of itself.
    description: String,
    /// Bytes of its component.
    size: u64,
}

/// A plugin that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct BrokenView {
    /// Its name, where that can be read.
    name: Option<String>,
    /// Why.
    error: String,
}

impl From<&Catalogue> for PluginsView {
    fn from(catalogue: &Catalogue) -> PluginsView {
        let plugins = catalogue.plugins().map(|plugin| {
            let manifest = plugin.manifest();
            PluginView {
                name: manifest.name.to_string(),
                kind: manifest.kind.to_string(),
                version: manifest.version.to_string(),
                description: manifest.description.as_str().to_owned(),
                size: plugin.size(),
            }
        });
        let broken = catalogue.broken().iter().map(|broken| BrokenView {
            name: broken.name.as_ref().map(|name| name.to_string()),
            error: broken.error.to_string(),
        });
        PluginsView { plugins: plugins.collect(), broken: broken.collect() }
    }
}

/// How a store is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct HealthView {
    /// Why it takes no writes now; none when it does.
    failing: Option<String>,
    /// Bytes that wait to be written.
    queued_bytes: u64,
    /// Bytes of the database on disk.
    bytes: u64,
    /// Commits so far.
    commits: u64,
    /// Writes in them.
    writes: u64,
}

impl From<Health> for HealthView {
    fn from(health: Health) -> HealthView {
        let Health { failing, queued_bytes, bytes, commits, writes } = health;
        HealthView { failing, queued_bytes, bytes, commits, writes }
    }
}
