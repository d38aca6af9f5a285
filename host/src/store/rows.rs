//! What can be read.

use std::sync::Arc;

use serde::Serialize;

use crate::ids::SessionId;

/// Where a store begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The number of the next session: one more than any that there ever was.
    pub next_session: u64,
    /// The number of the next unit: one more than any that there ever was.
    pub next_unit: u64,
}

/// A session as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SessionRow {
    /// Its name.
    pub id: SessionId,
    /// The agent that answers it.
    pub agent: String,
    /// What it was opened with: JSON.
    pub settings: Arc<str>,
    /// When it was created, in milliseconds since 1970 in UTC.
    pub created_ms: u64,
    /// When something was last recorded in it.
    pub updated_ms: u64,
    /// How many turns it has had.
    pub generation: u64,
    /// The turn that has begun and not ended.
    pub running: Option<Running>,
    /// The number of its first event that is kept; one more than `last_seq` when none is.
    pub first_seq: u64,
    /// The number of its newest event; 0 when there was none.
    pub last_seq: u64,
    /// Messages of its conversation.
    pub messages: u64,
    /// Bytes of them.
    pub message_bytes: u64,
    /// Bytes of the events that are kept.
    pub event_bytes: u64,
    /// Units that have not ended.
    pub units_open: u64,
    /// Completions that are not acknowledged.
    pub units_unread: u64,
}

/// A turn that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Running {
    /// Which execution.
    pub generation: u64,
    /// Its run.
    pub run: Arc<str>,
    /// The unit whose completion it brings.
    pub brings: Option<u64>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its number.
    pub seq: u64,
    /// When it was recorded.
    pub at_ms: u64,
    /// The run that it belongs to.
    pub run: Arc<str>,
    /// What happened.
    pub body: Arc<str>,
}

/// Events in their order, without a gap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventPage {
    /// The number of the first event that is still kept.
    pub first: u64,
    /// Those that were asked for. They begin with the one after the asked number, or with the first that is kept.
    pub events: Vec<EventRow>,
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// Its place in the conversation, from 1.
    pub number: u64,
    /// When it was recorded.
    pub at_ms: u64,
    /// What was said.
    pub body: Arc<str>,
}

/// How far a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitState {
    /// It has not ended.
    Accepted,
    /// It has ended, and its completion is not acknowledged.
    Ended,
    /// Its completion is acknowledged.
    Acknowledged,
}

/// A unit as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRow {
    /// Its number.
    pub unit: u64,
    /// The session that it belongs to.
    pub session: SessionId,
    /// How far it is.
    pub state: UnitState,
    /// What it was.
    pub body: Arc<str>,
    /// How its children ended, by task, as far as that was recorded.
    pub children: Vec<(u32, Arc<str>)>,
    /// Its completion, once it has ended.
    pub completion: Option<Arc<str>>,
    /// Its place in the order in which units of the session ended; 0 before.
    pub ended: u64,
    /// How many turns have begun that were to bring its completion.
    pub deliveries: u32,
}
