//! What happens in a session.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::ToolAnswer;
use crate::message::{Usage, milliseconds};
use crate::store::{Encode, EventRow};

/// Bytes of the kind and payload of an event of an agent's own making.
pub(super) const MOST_PAYLOAD: usize = 64 << 10;

/// Bytes of a `partial` event of an agent.
pub(super) const MOST_PARTIAL: usize = 1 << 20;

/// Bytes of a text that came in pieces or was written for people: a longer one is split or cut.
pub(super) const MOST_TEXT: usize = 64 << 10;

/// Characters of an id or a name that an event shows.
pub(super) const MOST_NAME: usize = 200;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Its number in the session's journal: counts up by one, from 1.
    pub seq: u64,
    /// When: time since the beginning of 1970 in UTC. Of an event that was read back from a store, whole milliseconds.
    #[serde(with = "milliseconds", rename = "at-ms")]
    pub at: Duration,
    /// The run that it belongs to.
    pub run: Arc<str>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened. New kinds come; treat one that you do not know as nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// A run begins.
    RunStarted {
        /// The agent.
        agent: String,
        /// What it was asked to do.
        goal: String,
        /// The run that handed it the task; none for a turn.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<Arc<str>>,
        /// The background unit that it belongs to, or, for a turn, whose completion it brings.
        #[serde(skip_serializing_if = "Option::is_none")]
        delegation: Option<String>,
    },
    /// What the run says of its own progress.
    Progress {
        /// For people.
        text: String,
    },
    /// What the run has of its result so far. The newest is kept if it does not come to an end.
    Partial {
        /// All of it.
        text: String,
    },
    /// Another event of the agent's own making.
    Custom {
        /// Its kind.
        kind: String,
        /// JSON.
        payload: Value,
    },
    /// A model is asked.
    ModelStarted {
        /// The model, by its configured name.
        model: String,
    },
    /// More text of a model's answer.
    ModelText {
        /// The text.
        text: String,
    },
    /// The model begins to ask for a tool.
    ModelToolCall {
        /// The tool.
        tool: String,
    },
    /// The endpoint could not answer and is asked again.
    ModelRetrying {
        /// How often it has been asked so far.
        attempt: u32,
        /// Why, in words.
        reason: String,
    },
    /// A model's answer is whole, or is not coming.
    ModelEnded {
        /// Why the answer ended, or `failed`, or `interrupted` when it was given up.
        finish: String,
        /// What it used.
        usage: Usage,
        /// What went wrong.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A tool is called.
    ToolStarted {
        /// The id of the call.
        id: String,
        /// The tool.
        tool: String,
        /// Its arguments, shortened.
        arguments: String,
    },
    /// A tool has answered.
    ToolEnded {
        /// The id of the call.
        id: String,
        /// The tool.
        tool: String,
        /// As in a tool result.
        status: String,
        /// Bytes of the answer.
        bytes: usize,
        /// How long it took.
        #[serde(with = "milliseconds", rename = "took-ms")]
        took: Duration,
    },
    /// A unit of a delegation runs in the background.
    DelegationAccepted {
        /// Its name.
        delegation: String,
        /// The places of its tasks in the call.
        tasks: Vec<u32>,
    },
    /// A unit of a delegation was not let into the background.
    DelegationRejected {
        /// The places of its tasks in the call.
        tasks: Vec<u32>,
        /// `capacity`, `scheduler`, `draining`, `store`, `stopped`, `one-shot` or `ownership`.
        reason: String,
        /// Why, in words.
        detail: String,
        /// What becomes of it: `inline` when it runs inside the call, or `refused`.
        then: String,
    },
    /// A child of this run has ended, and nothing of it is left.
    ChildEnded {
        /// The child's run.
        child: Arc<str>,
        /// The place of its task in the call.
        task: u32,
        /// The background unit that it belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        delegation: Option<String>,
        /// `completed`, `interrupted`, `failed`, `trapped`, `limit` or `unknown`.
        status: String,
        /// What went wrong.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A delegating call is over, also when the run that made it is there no more to hear of it.
    Delegated {
        /// `completed` when all results are in the answer, `dispatched` when something runs in the background.
        outcome: String,
        /// The units in the background.
        delegations: Vec<String>,
        /// How the tasks ended that ran inside the call.
        results: Vec<TaskEnd>,
        /// What happened and why, in words.
        note: String,
    },
    /// A background unit has ended, and its completion can be read.
    DelegationEnded {
        /// Its name.
        delegation: String,
        /// `completed`, `interrupted` or `unknown`.
        status: String,
    },
    /// A line of a plugin's log.
    Log {
        /// `error`, `warn`, `info`, `debug` or `trace`.
        level: String,
        /// The plugin.
        plugin: String,
        /// The line.
        text: String,
    },
    /// The run was asked to stop.
    Stop {
        /// `soft` or `hard`.
        kind: String,
        /// The exact words.
        message: String,
        /// Who asked.
        issuer: String,
    },
    /// Events were left out here, because the store did not write as fast as they came.
    EventsLost {
        /// How many.
        count: u64,
    },
    /// A run has ended, and nothing of it is left but, perhaps, calls that cannot be interrupted.
    RunEnded {
        /// `completed`, `failed`, `interrupted`, `limit`, `trapped`, `refused`, or `unknown` when the host ended before it.
        status: String,
        /// What went wrong.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Its final text, or what it had said before it was ended.
        output: String,
        /// For a run that did not come to its end: what tools had answered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<ToolAnswer>,
        /// What it used.
        used: crate::sandbox::Used,
        /// The limits that it came up against, whatever it made of that.
        #[serde(rename = "limits-reached")]
        reached: crate::sandbox::Reached,
    },
}

/// How one task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// Its place in the call.
    pub task: u32,
    /// `completed`, `interrupted`, `failed`, `trapped`, `limit` or `unknown`.
    pub status: String,
}

impl EventKind {
    /// The same, with names and texts of a length that a session can remember.
    pub(super) fn cut(mut self) -> EventKind {
        match &mut self {
            EventKind::ToolStarted { id, tool, .. } | EventKind::ToolEnded { id, tool, .. } => {
                cut_name(id);
                cut_name(tool);
            }
            EventKind::ModelToolCall { tool } => cut_name(tool),
            EventKind::ModelRetrying { reason: text, .. }
            | EventKind::ModelEnded { detail: Some(text), .. }
            | EventKind::Log { text, .. } => cut_text(text),
            EventKind::RunStarted { .. }
            | EventKind::Progress { .. }
            | EventKind::Partial { .. }
            | EventKind::Custom { .. }
            | EventKind::ModelStarted { .. }
            | EventKind::ModelText { .. }
            | EventKind::ModelEnded { detail: None, .. }
            | EventKind::DelegationAccepted { .. }
            | EventKind::DelegationRejected { .. }
            | EventKind::ChildEnded { .. }
            | EventKind::Delegated { .. }
            | EventKind::DelegationEnded { .. }
            | EventKind::Stop { .. }
            | EventKind::EventsLost { .. }
            | EventKind::RunEnded { .. } => {}
        }
        self
    }

    /// Whether the books still balance without it, where the store does not write as fast as events come.
    pub(super) fn may_be_left_out(&self) -> bool {
        match self {
            EventKind::Progress { .. }
            | EventKind::Partial { .. }
            | EventKind::Custom { .. }
            | EventKind::ModelStarted { .. }
            | EventKind::ModelText { .. }
            | EventKind::ModelToolCall { .. }
            | EventKind::ModelRetrying { .. }
            | EventKind::ModelEnded { .. }
            | EventKind::ToolStarted { .. }
            | EventKind::ToolEnded { .. }
            | EventKind::Log { .. } => true,
            EventKind::RunStarted { .. }
            | EventKind::DelegationAccepted { .. }
            | EventKind::DelegationRejected { .. }
            | EventKind::ChildEnded { .. }
            | EventKind::Delegated { .. }
            | EventKind::DelegationEnded { .. }
            | EventKind::Stop { .. }
            | EventKind::EventsLost { .. }
            | EventKind::RunEnded { .. } => false,
        }
    }

    /// About how many bytes of memory it takes.
    fn bytes(&self) -> usize {
        let own = size_of::<Event>();
        own + match self {
            EventKind::RunStarted { agent, goal, parent, delegation } => {
                agent.len()
                    + goal.len()
                    + parent.as_ref().map_or(0, |parent| parent.len())
                    + delegation.as_ref().map_or(0, String::len)
            }
            EventKind::DelegationAccepted { delegation, tasks } => {
                delegation.len() + size_of_val(tasks.as_slice())
            }
            EventKind::DelegationRejected { tasks, reason, detail, then } => {
                size_of_val(tasks.as_slice()) + reason.len() + detail.len() + then.len()
            }
            EventKind::ChildEnded { child, delegation, status, detail, .. } => {
                child.len()
                    + delegation.as_ref().map_or(0, String::len)
                    + status.len()
                    + detail.as_ref().map_or(0, String::len)
            }
            EventKind::Delegated { outcome, delegations, results, note } => {
                let names = delegations.iter().map(|name| size_of::<String>() + name.len());
                let ends = results.iter().map(|end| size_of::<TaskEnd>() + end.status.len());
                outcome.len() + names.sum::<usize>() + ends.sum::<usize>() + note.len()
            }
            EventKind::DelegationEnded { delegation, status } => delegation.len() + status.len(),
            EventKind::EventsLost { .. } => 0,
            EventKind::Progress { text }
            | EventKind::Partial { text }
            | EventKind::ModelText { text } => text.len(),
            EventKind::Custom { kind, payload } => kind.len() + weight(payload),
            EventKind::ModelStarted { model } => model.len(),
            EventKind::ModelToolCall { tool } => tool.len(),
            EventKind::ModelRetrying { reason, .. } => reason.len(),
            EventKind::ModelEnded { finish, detail, .. } => {
                finish.len() + detail.as_ref().map_or(0, String::len)
            }
            EventKind::ToolStarted { id, tool, arguments } => {
                id.len() + tool.len() + arguments.len()
            }
            EventKind::ToolEnded { id, tool, status, .. } => id.len() + tool.len() + status.len(),
            EventKind::Log { level, plugin, text } => level.len() + plugin.len() + text.len(),
            EventKind::Stop { kind, message, issuer } => kind.len() + message.len() + issuer.len(),
            EventKind::RunEnded { status, detail, output, tools, .. } => {
                let tools: usize = tools.iter().map(ToolAnswer::bytes).sum();
                status.len() + detail.as_ref().map_or(0, String::len) + output.len() + tools
            }
        }
    }
}

/// An event that has no number yet.
#[derive(Debug)]
pub(super) struct Draft {
    at: Duration,
    run: Arc<str>,
    kind: EventKind,
    /// About how many bytes of memory it takes.
    pub(super) bytes: usize,
}

impl Draft {
    /// One of now.
    pub(super) fn new(run: &Arc<str>, kind: EventKind) -> Draft {
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Draft { at, run: Arc::clone(run), bytes: kind.bytes(), kind }
    }

    pub(super) fn run(&self) -> &Arc<str> {
        &self.run
    }

    /// The event, once the journal has given it its number.
    pub(super) fn numbered(&self, seq: u64) -> Event {
        Event { seq, at: self.at, run: Arc::clone(&self.run), kind: self.kind.clone() }
    }
}

/// What the store keeps of an event: all but its number and its run, which it keeps beside.
#[derive(Serialize)]
struct Kept<'a> {
    #[serde(with = "milliseconds", rename = "at-ms")]
    at: Duration,
    #[serde(flatten)]
    kind: &'a EventKind,
}

impl Encode for Draft {
    fn encode(&self) -> String {
        let kept = Kept { at: self.at, kind: &self.kind };
        // Every kind is made of what JSON can say.
        serde_json::to_string(&kept).unwrap_or_default()
    }

    fn weight(&self) -> usize {
        self.bytes
    }
}

/// The same, as it is read.
#[derive(Deserialize)]
struct Found {
    #[serde(with = "milliseconds", rename = "at-ms")]
    at: Duration,
    #[serde(flatten)]
    rest: Value,
}

impl Event {
    /// An event as the store has it. One of a kind that this version does not know is [`EventKind::Custom`] with its name and
    /// all that it says.
    pub fn from_row(row: &EventRow) -> Event {
        let unread = || Found { at: Duration::from_millis(row.at_ms), rest: Value::Null };
        let Found { at, rest } = serde_json::from_str(&row.body).unwrap_or_else(|_| unread());
        let kind = EventKind::deserialize(&rest).unwrap_or_else(|_| {
            let name = rest.get("event").and_then(Value::as_str).unwrap_or("unreadable");
            EventKind::Custom { kind: name.to_owned(), payload: rest.clone() }
        });
        Event { seq: row.seq, at, run: Arc::clone(&row.run), kind }
    }
}

/// About how many bytes of memory a value takes: many times those of its text when it is made of small ones.
fn weight(value: &Value) -> usize {
    let own = size_of::<Value>();
    own + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        // A map has room to spare.
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| 2 * (size_of::<String>() + own) + key.len() + weight(value))
            .sum(),
    }
}

fn cut_name(name: &mut String) {
    if let Some((end, _)) = name.char_indices().nth(MOST_NAME) {
        name.truncate(end);
        name.push('…');
    }
}

fn cut_text(text: &mut String) {
    if text.len() > MOST_TEXT {
        text.truncate(text.floor_char_boundary(MOST_TEXT));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run() -> Arc<str> {
        "s.1".into()
    }

    #[test]
    fn many_small_values_count_as_what_they_take_and_not_as_their_text() {
        let payload = Value::Array(vec![json!(0); MOST_PAYLOAD / 2]);
        let event = EventKind::Custom { kind: "x".to_owned(), payload };
        assert!(event.bytes() > 8 * MOST_PAYLOAD, "{}", event.bytes());
    }

    /// Every key of a value, and of the values in it.
    fn keys(value: &Value) -> Vec<String> {
        let Value::Object(members) = value else { return Vec::new() };
        members.iter().flat_map(|(key, value)| [vec![key.clone()], keys(value)].concat()).collect()
    }

    #[test]
    fn the_page_about_events_has_every_event_and_every_field() {
        let page = include_str!("../../../docs/events.md");
        let some = || "x".to_owned();
        let kinds = [
            EventKind::RunStarted {
                agent: some(),
                goal: some(),
                parent: Some(run()),
                delegation: Some(some()),
            },
            EventKind::DelegationAccepted { delegation: some(), tasks: vec![0] },
            EventKind::DelegationRejected {
                tasks: vec![0],
                reason: some(),
                detail: some(),
                then: some(),
            },
            EventKind::ChildEnded {
                child: run(),
                task: 0,
                delegation: Some(some()),
                status: some(),
                detail: Some(some()),
            },
            EventKind::Delegated {
                outcome: some(),
                delegations: vec![some()],
                results: vec![TaskEnd { task: 0, status: some() }],
                note: some(),
            },
            EventKind::DelegationEnded { delegation: some(), status: some() },
            EventKind::EventsLost { count: 1 },
            EventKind::Progress { text: some() },
            EventKind::Partial { text: some() },
            EventKind::Custom { kind: some(), payload: Value::Null },
            EventKind::ModelStarted { model: some() },
            EventKind::ModelText { text: some() },
            EventKind::ModelToolCall { tool: some() },
            EventKind::ModelRetrying { attempt: 1, reason: some() },
            EventKind::ModelEnded { finish: some(), usage: Usage::default(), detail: Some(some()) },
            EventKind::ToolStarted { id: some(), tool: some(), arguments: some() },
            EventKind::ToolEnded {
                id: some(),
                tool: some(),
                status: some(),
                bytes: 1,
                took: Duration::ZERO,
            },
            EventKind::Log { level: some(), plugin: some(), text: some() },
            EventKind::Stop { kind: some(), message: some(), issuer: some() },
            EventKind::RunEnded {
                status: some(),
                detail: Some(some()),
                output: some(),
                tools: vec![ToolAnswer {
                    id: some(),
                    tool: some(),
                    status: some(),
                    content: some(),
                }],
                used: crate::sandbox::Used::default(),
                reached: crate::sandbox::Reached::default(),
            },
        ];
        for kind in kinds {
            let event = Event { seq: 1, at: Duration::from_millis(7), run: run(), kind };
            let draft = Draft::new(&run(), event.kind.clone());
            let draft = Draft { at: event.at, ..draft };
            let row = EventRow { seq: 1, at_ms: 9, run: run(), body: draft.encode().into() };
            assert_eq!(Event::from_row(&row), event, "it is read as it was written");
            let json = serde_json::to_value(event).unwrap();
            let name = json["event"].as_str().unwrap();
            let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            assert!(row.is_some(), "{name}");
            for key in keys(&json) {
                assert!(page.contains(&format!("`{key}`")), "{name}: {key}");
                assert!(!key.contains('_') && key.to_lowercase() == key, "{name}: {key}");
            }
        }
    }

    #[test]
    fn an_event_of_another_version_is_shown_as_what_it_says() {
        let row = |body: &str| EventRow { seq: 3, at_ms: 9, run: run(), body: body.into() };
        let newer = Event::from_row(&row(r#"{"at-ms":5,"event":"moon-phase","phase":"new"}"#));
        let payload = json!({ "event": "moon-phase", "phase": "new" });
        let kind = EventKind::Custom { kind: "moon-phase".to_owned(), payload };
        assert_eq!(newer, Event { seq: 3, at: Duration::from_millis(5), run: run(), kind });
        let kind = EventKind::Custom { kind: "unreadable".to_owned(), payload: Value::Null };
        let broken = Event::from_row(&row("no JSON"));
        assert_eq!(broken, Event { seq: 3, at: Duration::from_millis(9), run: run(), kind });
    }
}
