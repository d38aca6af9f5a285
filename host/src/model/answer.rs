//! What comes back from a model: deltas while it speaks, and the whole answer at the end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::{Message, Usage};

/// One step of a streaming answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// More text.
    Text(String),
    /// The model begins to ask for a call of a tool. The call itself comes with [`Delta::Done`], whole.
    ToolCall {
        /// The name of the tool.
        name: String,
    },
    /// What the request has used so far, as the endpoint says. Figures are totals: a later one takes the place of an
    /// earlier one. Those of [`Delta::Done`] are the last.
    Used(Usage),
    /// The endpoint could not answer; it is asked again after a pause.
    Retrying {
        /// How often it has been asked so far.
        attempt: u32,
        /// The pause.
        after: Duration,
        /// Why.
        reason: String,
    },
    /// The whole answer. Always last.
    Done(Response),
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The answer: role `assistant`.
    pub message: Message,
    /// Why it ended.
    pub finish: Finish,
    /// What it used; zeros where the endpoint did not say.
    pub usage: Usage,
    /// The model that answered, as the endpoint names it.
    pub model: String,
}

/// What a request has used so far, as far as its endpoint has said. Written by whoever reads the stream, and read by
/// whoever bills the request, also when it was given up. Clones share the figure.
#[derive(Debug, Clone, Default)]
pub struct Spent(Arc<Mutex<Said>>);

/// What was said of a request. The lock is held for a look.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    usage: Usage,
    refused: bool,
}

impl Spent {
    /// The newest figure.
    pub fn set(&self, usage: Usage) {
        self.lock().usage = usage;
    }

    /// Nobody began to answer the request: without a figure it costs nothing.
    pub fn refused(&self) {
        self.lock().refused = true;
    }

    /// The newest figure; zeros when there was none.
    pub fn get(&self) -> Usage {
        self.lock().usage
    }

    /// Whether it costs nothing.
    pub fn is_free(&self) -> bool {
        let said = *self.lock();
        said.refused && said.usage.total() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Finish {
    /// The model had said everything.
    Stop,
    /// The model waits for the results of its tool calls.
    ToolCalls,
    /// The bound for the answer was reached. A tool call that was cut off by it is left out.
    Length,
    /// The provider held the answer back.
    ContentFilter,
    /// Anything else.
    Other,
}

impl Finish {
    /// Every reason, for looking one up by name.
    pub const ALL: [Finish; 5] =
        [Finish::Stop, Finish::ToolCalls, Finish::Length, Finish::ContentFilter, Finish::Other];

    /// The name that crosses the door.
    pub fn as_str(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::ToolCalls => "tool-calls",
            Finish::Length => "length",
            Finish::ContentFilter => "content-filter",
            Finish::Other => "other",
        }
    }

    /// The reason of that name, if there is one.
    pub fn parse(name: &str) -> Option<Finish> {
        Self::ALL.into_iter().find(|finish| finish.as_str() == name)
    }
}
