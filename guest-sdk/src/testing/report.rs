//! What came of a run under test.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{DelegateRequest, Failure, Level, Request, Stop, ToolCall};

/// How a run under test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The agent returned its final text.
    Completed(String),
    /// The agent returned a failure.
    Failed(Failure),
    /// The agent used up its grace, and was ended by force.
    Stopped(Stop),
}

/// What came of a run under test: how it ended, and everything the agent did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// How the run ended.
    pub end: End,
    /// Events in order: kind and payload.
    pub events: Vec<(String, Value)>,
    /// Requests to the model, in order.
    pub requests: Vec<Request>,
    /// Calls of tools, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Delegations, in order.
    pub delegations: Vec<DelegateRequest>,
    /// Checkpoints, in order.
    pub checkpoints: Vec<String>,
    /// How long the agent wanted to sleep altogether. A test does not wait for it.
    pub slept: Duration,
    /// The session's memory afterwards.
    pub memory: BTreeMap<String, Vec<u8>>,
    /// Lines of the log, in order.
    pub log: Vec<(Level, String)>,
    /// How many calls that can wait the agent made (see [`Run`](crate::Run)).
    pub waits: usize,
}

impl Report {
    /// The final text.
    ///
    /// # Panics
    /// When the run did not complete.
    #[track_caller]
    #[expect(clippy::panic, reason = "that is how a test fails")]
    pub fn text(&self) -> &str {
        match &self.end {
            End::Completed(text) => text,
            End::Failed(_) | End::Stopped(_) => panic!("the run did not complete: {:?}", self.end),
        }
    }

    /// The failure that the agent returned.
    ///
    /// # Panics
    /// When the run did not fail.
    #[track_caller]
    #[expect(clippy::panic, reason = "that is how a test fails")]
    pub fn failure(&self) -> &Failure {
        match &self.end {
            End::Failed(failure) => failure,
            End::Completed(_) | End::Stopped(_) => panic!("the run did not fail: {:?}", self.end),
        }
    }

    /// The payloads of all events of one kind.
    pub fn events_of(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|(name, _)| name == kind).map(|(_, payload)| payload).collect()
    }

    /// What the agent told people, in order.
    pub fn progress(&self) -> Vec<&str> {
        self.events_of("progress")
            .into_iter()
            .filter_map(|payload| payload["text"].as_str())
            .collect()
    }

    /// The partial result that the host would have kept.
    pub fn partial(&self) -> Option<&str> {
        self.events_of("partial").pop().and_then(|payload| payload["text"].as_str())
    }

    /// A value of the session's memory afterwards.
    ///
    /// # Panics
    /// When the value is there but does not fit the type.
    #[track_caller]
    #[expect(clippy::expect_used, reason = "that is how a test fails")]
    pub fn memory_of<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let bytes = self.memory.get(key)?;
        Some(
            serde_json::from_slice(bytes).expect("the value of the session's memory fits the type"),
        )
    }
}
