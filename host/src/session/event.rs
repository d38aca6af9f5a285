//! What happens in a session, as a numbered stream.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use super::record::ToolAnswer;
use crate::message::{Usage, milliseconds};

/// How many events a session remembers, for whoever comes later and whoever is slow.
const REMEMBERED: usize = 4_096;

/// How many bytes of memory they may take. The newest is remembered whatever it takes.
const MOST_BYTES: usize = 8 << 20;

/// Bytes of the kind and payload of an event of an agent's own making.
pub(super) const MOST_PAYLOAD: usize = 64 << 10;

/// Bytes of a `partial` event of an agent.
pub(super) const MOST_PARTIAL: usize = 1 << 20;

/// Bytes of a text that came in pieces or was written for people: a longer one is split or cut.
const MOST_TEXT: usize = 64 << 10;

/// Characters of an id or a name that an event shows.
const MOST_NAME: usize = 200;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Counts up by one in its session, from 1.
    pub seq: u64,
    /// Time since the session was opened.
    #[serde(serialize_with = "milliseconds", rename = "ms")]
    pub at: Duration,
    /// The run that it belongs to.
    pub run: Arc<str>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened. New kinds come; treat one that you do not know as nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
        #[serde(serialize_with = "milliseconds", rename = "took-ms")]
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
    /// A run has ended, and nothing of it is left but, perhaps, calls that cannot be interrupted.
    RunEnded {
        /// `completed`, `failed`, `interrupted`, `limit`, `trapped` or `refused`.
        status: String,
        /// What went wrong.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Its final text, or what it had said before it was ended.
        output: String,
        /// For a run that did not come to its end: what tools had answered.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tools: Vec<ToolAnswer>,
        /// What it used.
        used: crate::sandbox::Used,
        /// The limits that it came up against, whatever it made of that.
        #[serde(rename = "limits-reached")]
        reached: crate::sandbox::Reached,
    },
}

/// How one task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskEnd {
    /// Its place in the call.
    pub task: u32,
    /// `completed`, `interrupted`, `failed`, `trapped`, `limit` or `unknown`.
    pub status: String,
}

impl EventKind {
    /// The same, with names and texts of a length that a session can remember.
    fn cut(mut self) -> EventKind {
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
            | EventKind::RunEnded { .. } => {}
        }
        self
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

/// Where a session's events go.
pub(super) struct Stream {
    opened: Instant,
    log: Arc<Mutex<Log>>,
    /// The number of the newest event. It is told while the log is locked, so that numbers and order agree.
    newest: watch::Sender<u64>,
}

/// What is remembered. The lock is held for a look or a push, never while an event is copied.
#[derive(Debug, Default)]
struct Log {
    last: u64,
    /// Numbered without gaps, up to `last`.
    remembered: VecDeque<(usize, Arc<Event>)>,
    /// What they take together.
    bytes: usize,
}

impl Log {
    fn push(&mut self, event: Event) {
        let bytes = event.kind.bytes();
        self.last = event.seq;
        self.bytes += bytes;
        self.remembered.push_back((bytes, Arc::new(event)));
        while self.remembered.len() > REMEMBERED
            || (self.bytes > MOST_BYTES && self.remembered.len() > 1)
        {
            let Some((bytes, _)) = self.remembered.pop_front() else { return };
            self.bytes -= bytes;
        }
    }

    /// The event after that one, if it is there already.
    fn after(&self, seq: u64) -> Result<Option<Arc<Event>>, Lagged> {
        if seq >= self.last {
            return Ok(None);
        }
        let oldest = self.remembered.front().map_or(self.last + 1, |(_, event)| event.seq);
        match oldest.saturating_sub(seq + 1) {
            0 => {
                let at = usize::try_from(seq + 1 - oldest).unwrap_or(usize::MAX);
                Ok(self.remembered.get(at).map(|(_, event)| Arc::clone(event)))
            }
            missed => Err(Lagged { missed }),
        }
    }
}

impl Stream {
    pub(super) fn new() -> Stream {
        Stream { opened: Instant::now(), log: Arc::default(), newest: watch::Sender::new(0) }
    }

    pub(super) fn publish(&self, run: &Arc<str>, kind: EventKind) {
        let EventKind::ModelText { text } = kind else { return self.push(run, kind.cut()) };
        let mut rest = text.as_str();
        while rest.len() > MOST_TEXT {
            let (piece, more) = rest.split_at(rest.floor_char_boundary(MOST_TEXT));
            self.push(run, EventKind::ModelText { text: piece.to_owned() });
            rest = more;
        }
        let text = if rest.len() == text.len() { text } else { rest.to_owned() };
        self.push(run, EventKind::ModelText { text });
    }

    fn push(&self, run: &Arc<str>, kind: EventKind) {
        let mut log = lock(&self.log);
        let seq = log.last + 1;
        log.push(Event { seq, at: self.opened.elapsed(), run: Arc::clone(run), kind });
        self.newest.send_replace(seq);
    }

    /// Everything after the event of that number, and then what comes. What is remembered no more is reported as
    /// [`Lagged`] first.
    pub(super) fn watch(&self, after: u64) -> Events {
        Events { log: Arc::clone(&self.log), newest: self.newest.subscribe(), last: after }
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// The events of one session, for one watcher. A watcher holds its place, and nothing else of what it has not read.
pub struct Events {
    log: Arc<Mutex<Log>>,
    newest: watch::Receiver<u64>,
    /// The number of the newest event that was given out, or is missed.
    last: u64,
}

impl Events {
    /// The next event; none when the session is gone.
    ///
    /// # Errors
    ///
    /// [`Lagged`] when events passed this watcher by: it was too slow, or began after an event that is remembered no
    /// more. The next call goes on after the gap.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Result<Option<Event>, Lagged> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(Some(event));
            }
            if self.newest.changed().await.is_err() {
                // What was told last may have been told since.
                return self.try_next();
            }
        }
    }

    /// The next event if one is there already.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Events::next).
    pub fn try_next(&mut self) -> Result<Option<Event>, Lagged> {
        let found = lock(&self.log).after(self.last);
        match found {
            Ok(found) => Ok(found.map(|event| {
                self.last = event.seq;
                Event::clone(&event)
            })),
            Err(lagged) => {
                self.last += lagged.missed;
                Err(lagged)
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("last", &self.last).finish_non_exhaustive()
    }
}

/// Events passed by before a watcher read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{missed} events passed by before they were read")]
pub struct Lagged {
    /// How many.
    pub missed: u64,
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;

    fn run() -> Arc<str> {
        "s.1".into()
    }

    fn text(bytes: usize) -> EventKind {
        EventKind::Progress { text: "x".repeat(bytes) }
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_in_bytes() {
        let stream = Stream::new();
        for _ in 0..REMEMBERED + 10 {
            stream.publish(&run(), text(1));
        }
        assert_eq!(lock(&stream.log).remembered.len(), REMEMBERED);
        for _ in 0..200 {
            stream.publish(&run(), text(MOST_PAYLOAD));
        }
        let log = lock(&stream.log);
        assert!(log.bytes <= MOST_BYTES && log.remembered.len() >= 100, "{}", log.remembered.len());
        assert_eq!(log.bytes, log.remembered.iter().map(|(bytes, _)| bytes).sum::<usize>());
    }

    #[test]
    fn many_small_values_count_as_what_they_take_and_not_as_their_text() {
        let payload = Value::Array(vec![json!(0); MOST_PAYLOAD / 2]);
        let event = EventKind::Custom { kind: "x".to_owned(), payload };
        assert!(event.bytes() > 8 * MOST_PAYLOAD, "{}", event.bytes());
    }

    #[test]
    fn the_newest_event_is_remembered_whatever_it_takes() {
        let stream = Stream::new();
        let mut events = stream.watch(0);
        stream.publish(&run(), text(1));
        stream.publish(&run(), text(MOST_BYTES + 1));
        assert_eq!(events.try_next(), Err(Lagged { missed: 1 }));
        assert_eq!(events.try_next().unwrap().unwrap().seq, 2);
        assert_eq!(events.try_next(), Ok(None));
    }

    #[test]
    fn whoever_is_slow_or_late_is_told_how_many_events_are_missing() {
        let stream = Stream::new();
        let mut slow = stream.watch(0);
        for _ in 0..REMEMBERED + 5 {
            stream.publish(&run(), text(1));
        }
        for mut events in [stream.watch(0), stream.watch(2)] {
            let missed = 5 - events.last;
            assert_eq!(events.try_next(), Err(Lagged { missed }));
            assert_eq!(events.try_next().unwrap().unwrap().seq, 6);
        }
        assert_eq!(slow.try_next(), Err(Lagged { missed: 5 }));
        let mut rest = 0;
        while slow.try_next().unwrap().is_some() {
            rest += 1;
        }
        assert_eq!(rest, REMEMBERED);
        let mut late = stream.watch(5);
        assert_eq!(late.try_next().unwrap().unwrap().seq, 6, "nothing is missing after 5");
        assert_eq!(stream.watch(u64::MAX).try_next(), Ok(None));
    }

    #[tokio::test]
    async fn a_watcher_hears_what_comes_and_of_the_end() {
        let stream = Stream::new();
        let mut events = stream.watch(0);
        assert!(events.next().now_or_never().is_none());
        let (first, ()) = tokio::join!(events.next(), async { stream.publish(&run(), text(1)) });
        assert_eq!(first.unwrap().unwrap().seq, 1);
        stream.publish(&run(), text(1));
        drop(stream);
        assert_eq!(events.next().await.unwrap().unwrap().seq, 2);
        assert_eq!(events.next().await, Ok(None));
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
            let event = Event { seq: 1, at: Duration::ZERO, run: run(), kind };
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
    fn names_are_cut_and_streamed_text_is_split() {
        let stream = Stream::new();
        let mut events = stream.watch(0);
        let long = "ä".repeat(MOST_TEXT);
        stream.publish(&run(), EventKind::ModelToolCall { tool: long.clone() });
        let Some(EventKind::ModelToolCall { tool }) =
            events.try_next().unwrap().map(|event| event.kind)
        else {
            panic!("no tool call");
        };
        assert_eq!(tool.chars().count(), MOST_NAME + 1);
        stream.publish(&run(), EventKind::ModelText { text: long.clone() });
        let mut whole = String::new();
        while let Some(event) = events.try_next().unwrap() {
            let EventKind::ModelText { text } = event.kind else { panic!("no text") };
            assert!(text.len() <= MOST_TEXT);
            whole.push_str(&text);
        }
        assert_eq!(whole, long);
    }
}
