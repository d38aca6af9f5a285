//! What happens in a session, as a numbered stream.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::broadcast;

use crate::message::Usage;

/// How many events a slow watcher may be behind.
const BEHIND: usize = 4_096;

/// How many events a session remembers for whoever comes later.
const REMEMBERED: usize = 4_096;

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
    },
    /// What the run says of its own progress.
    Progress {
        /// For people.
        text: String,
    },
    /// A part of the run's result, kept if it does not come to an end.
    Partial {
        /// The part.
        text: String,
    },
    /// Another event of the agent's own making.
    Custom {
        /// Its kind.
        kind: String,
        /// JSON.
        payload: serde_json::Value,
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
        /// Why the answer ended, or `failed`.
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
    /// A run has ended, and nothing of it is left.
    RunEnded {
        /// `completed`, `failed`, `interrupted`, `limit`, `trapped` or `refused`.
        status: String,
        /// What went wrong.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Its final text, or what it had said before it was ended.
        output: String,
        /// What it used.
        used: crate::sandbox::Used,
    },
}

fn milliseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Where a session's events go.
pub(super) struct Stream {
    opened: Instant,
    /// The lock is held while an event gets its number and is sent, so that numbers and order agree.
    log: Mutex<Log>,
    sender: broadcast::Sender<Event>,
}

#[derive(Default)]
struct Log {
    last: u64,
    remembered: VecDeque<Event>,
}

impl Stream {
    pub(super) fn new() -> Stream {
        let (sender, _) = broadcast::channel(BEHIND);
        Stream { opened: Instant::now(), log: Mutex::new(Log::default()), sender }
    }

    pub(super) fn publish(&self, run: &Arc<str>, kind: EventKind) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.last += 1;
        let event = Event { seq: log.last, at: self.opened.elapsed(), run: Arc::clone(run), kind };
        if log.remembered.len() == REMEMBERED {
            log.remembered.pop_front();
        }
        log.remembered.push_back(event.clone());
        // Nobody watching is no fault.
        self.sender.send(event).ok();
    }

    /// Everything after the event of that number, as far as it is remembered, and then what comes.
    pub(super) fn watch(&self, after: u64) -> Events {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = log.remembered.iter().filter(|event| event.seq > after).cloned().collect();
        Events { remembered, coming: self.sender.subscribe(), last: after }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// The events of one session, for one watcher.
#[derive(Debug)]
pub struct Events {
    remembered: VecDeque<Event>,
    coming: broadcast::Receiver<Event>,
    last: u64,
}

impl Events {
    /// The next event; none when the session is gone.
    ///
    /// # Errors
    ///
    /// [`Lagged`] when this watcher was too slow and events passed it by. The next call goes on after the gap.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Result<Option<Event>, Lagged> {
        loop {
            let event = match self.remembered.pop_front() {
                Some(event) => event,
                None => match self.coming.recv().await {
                    Ok(event) => event,
                    Err(broadcast::error::RecvError::Closed) => return Ok(None),
                    Err(broadcast::error::RecvError::Lagged(missed)) => return Err(Lagged { missed }),
                },
            };
            if event.seq > self.last {
                self.last = event.seq;
                return Ok(Some(event));
            }
        }
    }

    /// The next event if one is there already.
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            let event = self.remembered.pop_front().or_else(|| self.coming.try_recv().ok())?;
            if event.seq > self.last {
                self.last = event.seq;
                return Some(event);
            }
        }
    }
}

/// A watcher was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{missed} events passed by before they were read")]
pub struct Lagged {
    /// How many.
    pub missed: u64,
}
