//! What comes back from a model: deltas while it speaks, and the whole answer at the end.

use std::time::Duration;

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
#[derive(Debug, Clone, PartialEq)]
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

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
