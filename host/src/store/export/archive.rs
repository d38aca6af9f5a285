//! A session outside a store.

use std::io::{self, BufRead, Write};

use futures::channel::oneshot;

use super::lines;
use crate::ids::SessionId;
use crate::store::{
    Body, Change, Class, EventRow, MessageRow, Recorded, SessionRow, Store, StoreError, UnitRow,
    UnitState, Write as StoreWrite,
};

/// Attempts to see a session that does not change meanwhile.
const ATTEMPTS: usize = 5;

/// Events that are read at a time.
const PAGE: usize = 1_000;

/// What is done about a session whose turn is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunningTurn {
    /// It is not exported.
    Refuse,
    /// It is exported with what is recorded so far. Where it is read in, the turn is over.
    CutOff,
}

/// All of a session that is kept beyond its runs: conversation, events, memory and units. What runs had in hand is not
/// part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    pub(super) session: SessionRow,
    /// The number of the first message that is kept.
    pub(super) first_message: u64,
    pub(super) messages: Vec<MessageRow>,
    pub(super) events: Vec<EventRow>,
    pub(super) memory: Vec<(String, Vec<u8>)>,
    pub(super) units: Vec<UnitRow>,
}

/// A session that was put into a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// What the commit gave back.
    pub recorded: Recorded,
    /// The number that each unit had, and the one that it has now.
    pub units: Vec<(u64, u64)>,
}

impl Archive {
    /// Takes a session out of a store. The store keeps it.
    ///
    /// # Errors
    ///
    /// The store fails, the session has a turn that is going on, or it does not stop changing.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn of(
        store: &dyn Store,
        id: &SessionId,
        running: RunningTurn,
    ) -> Result<Archive, ArchiveError> {
        for _ in 0..ATTEMPTS {
            let session = store.session(id).await?;
            if session.running.is_some() && running == RunningTurn::Refuse {
                return Err(ArchiveError::Running(id.to_string()));
            }
            let messages = store.messages(id, usize::MAX, usize::MAX).await?;
            let mut events: Vec<EventRow> = Vec::new();
            loop {
                let after = events.last().map_or(session.first_seq - 1, |event| event.seq);
                let page = store.events(id, after, PAGE, usize::MAX).await?;
                if page.events.is_empty() {
                    break;
                }
                events.extend(page.events);
            }
            let memory = store.memory(id).await?;
            let units = store.units(id, usize::MAX).await?;
            if store.session(id).await? == session {
                // A session without messages goes on counting where it was only if it has some.
                let first_message = messages.first().map_or(1, |message| message.number);
                return Ok(Archive { session, first_message, messages, events, memory, units });
            }
        }
        Err(ArchiveError::Changing(id.to_string()))
    }

    /// The session as it was in its store.
    pub fn session(&self) -> &SessionRow {
        &self.session
    }

    /// Its conversation.
    pub fn messages(&self) -> &[MessageRow] {
        &self.messages
    }

    /// Its events that are kept.
    pub fn events(&self) -> &[EventRow] {
        &self.events
    }

    /// Its units that are kept.
    pub fn units(&self) -> &[UnitRow] {
        &self.units
    }

    /// Writes it as lines.
    ///
    /// # Errors
    ///
    /// What it is written to fails.
    pub fn write_to(&self, out: impl Write) -> io::Result<()> {
        lines::write(self, out)
    }

    /// The same line by line, each with its line break.
    ///
    /// # Errors
    ///
    /// Of an item: a line that cannot be put into words.
    pub fn into_lines(self) -> impl Iterator<Item = io::Result<Vec<u8>>> + Send {
        (0..).map_while(move |at| lines::line(&self, at))
    }

    /// Reads lines, at most that many bytes of them, and checks that they are a session.
    ///
    /// # Errors
    ///
    /// What it is read from fails, or a line is not what it has to be: the error names it.
    pub fn read_from(input: impl BufRead, most_bytes: u64) -> Result<Archive, ArchiveError> {
        lines::read(input, most_bytes)
    }

    /// Puts the session into a store under a new name, in one transaction. Its units get the numbers from `first_unit` on,
    /// in the order in which they are listed. Numbers of events and messages are those that they had, and so are the times.
    /// A unit that had not ended has not ended, and is found among the unfinished; nothing runs it.
    ///
    /// # Errors
    ///
    /// The store does not take it: [`StoreError::Exists`] for a name that is not new, for instance.
    ///
    /// # Cancel safety
    ///
    /// The write is queued at the first poll, and happens also when nobody waits for it any more.
    pub async fn put(
        self,
        store: &dyn Store,
        name: SessionId,
        first_unit: u64,
    ) -> Result<Imported, ArchiveError> {
        let numbers: Vec<(u64, u64)> =
            self.units.iter().map(|unit| unit.unit).zip(first_unit..).collect();
        let changes = self.into_changes(&numbers);
        let (tell, told) = oneshot::channel();
        let then = move |recorded| drop(tell.send(recorded));
        store.write(StoreWrite {
            session: name,
            changes,
            class: Class::Promise,
            then: Some(Box::new(then)),
        });
        let recorded = told.await.map_err(|_| StoreError::Closed)??;
        Ok(Imported { recorded, units: numbers })
    }

    fn into_changes(self, numbers: &[(u64, u64)]) -> Vec<Change> {
        let session = self.session;
        let mut changes = vec![
            Change::Created { agent: session.agent, settings: Body::Text(session.settings) },
            Change::GoesOn {
                created_ms: session.created_ms,
                generation: session.generation,
                events: session.first_seq - 1,
                messages: self.first_message - 1,
            },
        ];
        for message in self.messages {
            changes.push(Change::At { ms: message.at_ms });
            changes.push(Change::Message { body: Body::Text(message.body) });
        }
        for event in self.events {
            changes.push(Change::At { ms: event.at_ms });
            changes.push(Change::Event { run: event.run, body: Body::Text(event.body) });
        }
        for (key, value) in self.memory {
            changes.push(Change::Memory { key, value: Some(value) });
        }
        let mut ends = Vec::new();
        for (unit, (_, number)) in self.units.into_iter().zip(numbers) {
            let unit_number = *number;
            changes.push(Change::UnitAccepted { unit: unit_number, body: Body::Text(unit.body) });
            for (task, body) in unit.children {
                changes.push(Change::ChildEnded {
                    unit: unit_number,
                    task,
                    body: Body::Text(body),
                });
            }
            if let Some(completion) = unit.completion {
                ends.push((unit.ended, unit_number, unit.state, completion));
            }
        }
        ends.sort_unstable_by_key(|(ended, ..)| *ended);
        for (_, unit, state, completion) in ends {
            changes.push(Change::UnitEnded { unit, body: Body::Text(completion) });
            if state == UnitState::Acknowledged {
                changes.push(Change::UnitAcknowledged { unit });
            }
        }
        changes
    }
}

/// Why a session was not exported or not read in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A turn is going on.
    #[error(
        "a turn of `{0}` is going on: wait for its end or stop it, or ask for what is there so far"
    )]
    Running(String),
    /// It changed whenever it was read.
    #[error("the session `{0}` does not stop changing: try again when nothing works in it")]
    Changing(String),
    /// It could not be read.
    #[error("the lines could not be read")]
    Io(#[from] io::Error),
    /// There is more than may be read.
    #[error("there are more than {0} bytes of lines")]
    TooLong(u64),
    /// A line is not what it has to be.
    #[error("line {line}: {why}")]
    Line {
        /// Which, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
}
