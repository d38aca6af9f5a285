//! What can be written.

use std::fmt;
use std::sync::Arc;

use super::error::StoreError;
use crate::ids::SessionId;

/// Something that can be put into words when it is written. That happens on the store's own thread, so that a run
/// does not pay for it.
pub trait Encode: Send + Sync {
    /// It as JSON.
    fn encode(&self) -> String;

    /// About how many bytes of memory it takes.
    fn weight(&self) -> usize;
}

/// A text that the store keeps and does not read.
#[derive(Clone)]
pub enum Body {
    /// As it is.
    Text(Arc<str>),
    /// Put into words when it is written.
    Later(Arc<dyn Encode>),
}

impl Body {
    /// The text.
    pub fn text(&self) -> Arc<str> {
        match self {
            Body::Text(text) => Arc::clone(text),
            Body::Later(value) => value.encode().into(),
        }
    }

    /// About how many bytes of memory it takes.
    pub fn weight(&self) -> usize {
        match self {
            Body::Text(text) => text.len(),
            Body::Later(value) => value.weight(),
        }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body::Text(text.into())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Body").field(&self.weight()).finish()
    }
}

/// Of what a run had in hand, so much is kept.
pub const MOST_KEPT: usize = 64;

/// One change of one session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Change {
    /// The session is there from now on. Its name is not used again, also when it is deleted.
    Created {
        /// The agent that answers it.
        agent: String,
        /// What it was opened with.
        settings: Body,
    },
    /// The session was somewhere else before, and goes on from there: its numbers follow those that it had. Only directly
    /// after [`Change::Created`].
    GoesOn {
        /// When it was created there, in milliseconds since 1970 in UTC.
        created_ms: u64,
        /// How many turns it has had.
        generation: u64,
        /// The number of the last event before those that follow.
        events: u64,
        /// The number of the last message before those that follow.
        messages: u64,
    },
    /// The messages and events that follow in this write happened at that time.
    At {
        /// Milliseconds since 1970 in UTC.
        ms: u64,
    },
    /// The session and all that belongs to it is gone. Refused while units of it are not acknowledged or a turn is going
    /// on.
    Deleted,
    /// Something happened in it. The commit gives it the session's next number.
    Event {
        /// The run that it belongs to.
        run: Arc<str>,
        /// What happened.
        body: Body,
    },
    /// The conversation goes on.
    Message {
        /// What was said.
        body: Body,
    },
    /// A value of the session's memory; none takes it out.
    Memory {
        /// Its key.
        key: String,
        /// Its value.
        value: Option<Vec<u8>>,
    },
    /// A turn begins: until it has ended it is found by whoever opens the store.
    TurnBegan {
        /// Which execution of the session it is. Must be higher than the last: those between were never
        /// recorded.
        generation: u64,
        /// Its run.
        run: Arc<str>,
        /// The unit whose completion it brings.
        brings: Option<u64>,
    },
    /// The turn has ended. What was kept for it is dropped.
    TurnEnded {
        /// Which execution it was.
        generation: u64,
    },
    /// A run beside the turn's own begins: a child or a side run. Until it has ended it is found by whoever opens the store.
    RunBegan {
        /// The run.
        run: Arc<str>,
        /// What is known of it.
        body: Body,
    },
    /// A run beside the turn's own has ended. What was kept for it is dropped.
    RunEnded {
        /// The run.
        run: Arc<str>,
    },
    /// Something that a run had in hand, kept until the run has ended, for the case that it never says how it ended: the
    /// newest [`MOST_KEPT`] of them.
    Kept {
        /// The run.
        run: Arc<str>,
        /// What it had.
        body: Body,
    },
    /// A unit is accepted into the background.
    UnitAccepted {
        /// Its number, which no other unit of this store has.
        unit: u64,
        /// What it was.
        body: Body,
    },
    /// A unit that was to be accepted was not.
    UnitWithdrawn {
        /// Its number.
        unit: u64,
    },
    /// A child of a unit has ended.
    ChildEnded {
        /// The unit.
        unit: u64,
        /// The place of its task.
        task: u32,
        /// How.
        body: Body,
    },
    /// A unit has ended. Only the first end of a unit is taken.
    UnitEnded {
        /// Its number.
        unit: u64,
        /// Its completion.
        body: Body,
    },
    /// The completion of a unit has been delivered.
    UnitAcknowledged {
        /// Its number.
        unit: u64,
    },
}

impl Change {
    /// About how many bytes of memory it takes.
    pub fn weight(&self) -> usize {
        let said = match self {
            Change::Created { settings: body, .. }
            | Change::Event { body, .. }
            | Change::Message { body }
            | Change::RunBegan { body, .. }
            | Change::Kept { body, .. }
            | Change::UnitAccepted { body, .. }
            | Change::ChildEnded { body, .. }
            | Change::UnitEnded { body, .. } => body.weight(),
            Change::Memory { key, value } => key.len() + value.as_ref().map_or(0, Vec::len),
            Change::GoesOn { .. }
            | Change::At { .. }
            | Change::Deleted
            | Change::TurnBegan { .. }
            | Change::TurnEnded { .. }
            | Change::RunEnded { .. }
            | Change::UnitWithdrawn { .. }
            | Change::UnitAcknowledged { .. } => 0,
        };
        size_of::<Change>() + said
    }

    /// Puts its body into words, if it has one, so that it is done once however often the change is tried.
    pub(super) fn put_into_words(&mut self) {
        match self {
            Change::Created { settings: body, .. }
            | Change::Event { body, .. }
            | Change::Message { body }
            | Change::RunBegan { body, .. }
            | Change::Kept { body, .. }
            | Change::UnitAccepted { body, .. }
            | Change::ChildEnded { body, .. }
            | Change::UnitEnded { body, .. } => *body = Body::Text(body.text()),
            Change::Memory { .. }
            | Change::GoesOn { .. }
            | Change::At { .. }
            | Change::Deleted
            | Change::TurnBegan { .. }
            | Change::TurnEnded { .. }
            | Change::RunEnded { .. }
            | Change::UnitWithdrawn { .. }
            | Change::UnitAcknowledged { .. } => {}
        }
    }
}

/// What becomes of a write that the database does not take now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It has failed, and is not written later.
    Promise,
    /// It waits, in its place, until the database takes writes again. What comes after it waits too.
    Owed,
}

/// What a commit gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// The number of the last event of the write; that of the session's newest event if it had none. Those of several
    /// events in one write follow each other.
    pub seq: u64,
    /// When it was recorded: milliseconds since 1970 in UTC. The same for everything in one write.
    pub at_ms: u64,
}

impl Recorded {
    /// What was recorded, as a store says it.
    pub fn new(seq: u64, at_ms: u64) -> Recorded {
        Recorded { seq, at_ms }
    }
}

/// Hears what became of a write. It is called on the store's own thread, in the order of the writes of a session, and must
/// not wait for anything.
pub type Then = Box<dyn FnOnce(Result<Recorded, StoreError>) + Send>;

/// Changes of one session that are recorded together or not at all.
pub struct Write {
    /// The session.
    pub session: SessionId,
    /// What changes, in that order.
    pub changes: Vec<Change>,
    /// What becomes of it when the database does not take it.
    pub class: Class,
    /// Who hears of it.
    pub then: Option<Then>,
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write")
            .field("session", &self.session)
            .field("changes", &self.changes)
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}
