//! The trait.

use std::fmt;

use futures::future::BoxFuture;

use super::change::{Change, Class, Recorded, Then, Write};
use super::error::StoreError;
use super::rows::{EventPage, MessageRow, SessionRow, Start, UnitRow};
use crate::ids::SessionId;
use crate::metrics::Times;

/// What a read answers. It waits for a thread of the store, and may be dropped at any time.
pub type Read<T> = BoxFuture<'static, Result<T, StoreError>>;

/// A store of sessions.
pub trait Store: Send + Sync + fmt::Debug {
    /// Where it begins: what was true when it was opened.
    fn start(&self) -> Start;

    /// Queues a write. It does not wait; [`Write::then`] hears what became of it. A write of a session that is deleted
    /// or was never created fails with [`StoreError::NoSession`], of whatever class it is.
    fn write(&self, write: Write);

    /// The sessions after that one in the order of their creation, at most `limit`.
    fn sessions(&self, after: Option<SessionId>, limit: usize) -> Read<Vec<SessionRow>>;

    /// One session.
    fn session(&self, id: &SessionId) -> Read<SessionRow>;

    /// The events after that number: at most `limit`, and no more bytes than that, but at least one.
    fn events(&self, id: &SessionId, after: u64, limit: usize, bytes: usize) -> Read<EventPage>;

    /// The newest messages, in their order: at most `limit`, and no more bytes than that.
    fn messages(&self, id: &SessionId, limit: usize, bytes: usize) -> Read<Vec<MessageRow>>;

    /// The memory of a session.
    fn memory(&self, id: &SessionId) -> Read<Vec<(String, Vec<u8>)>>;

    /// The units of a session that are not acknowledged, and the newest `read` of those that are.
    fn units(&self, id: &SessionId, read: usize) -> Read<Vec<UnitRow>>;

    /// What was kept of a run, in its order.
    fn kept(&self, id: &SessionId, run: &str) -> Read<Vec<String>>;

    /// Runs beside the turn's own that have begun and not ended, with what is known of them.
    fn open_runs(&self, id: &SessionId) -> Read<Vec<(String, String)>>;

    /// The sessions that were left in the middle of something: a turn or a run that has not ended, a unit that has not
    /// ended, a completion that is not acknowledged.
    fn unfinished(&self) -> Read<Vec<SessionId>>;

    /// Keeps that much from now on: writes after this are held against it, and what is beyond it goes. It is not waited for.
    fn retain(&self, retention: Retention);

    /// Drops what may be dropped now, and gives room back to the disk. It never touches what is not delivered.
    fn compact(&self) -> Read<()>;

    /// How it is.
    fn health(&self) -> Health;

    /// How long its commits took; none for a store that has none.
    fn commit_times(&self) -> Option<Times> {
        None
    }

    /// Writes what is queued, and closes. Later writes fail with [`StoreError::Closed`]. Answers an error when something that was
    /// owed could not be written.
    fn close(&self) -> Read<()>;
}

/// Records changes of a session as a promise, and waits until they are there.
///
/// # Errors
///
/// Those of the store; nothing of it is written then.
///
/// # Cancel safety
///
/// A future that is dropped before it is ready may have recorded them.
pub async fn record(
    store: &dyn Store,
    session: SessionId,
    changes: Vec<Change>,
) -> Result<Recorded, StoreError> {
    let (tell, told) = tokio::sync::oneshot::channel();
    // Whoever has lost interest does not hear of it.
    let then: Then = Box::new(move |recorded| drop(tell.send(recorded)));
    store.write(Write { session, changes, class: Class::Promise, then: Some(then) });
    told.await.unwrap_or(Err(StoreError::Closed))
}

/// How a store is.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Health {
    /// Why it takes no writes now, if it does not.
    pub failing: Option<String>,
    /// Bytes that wait to be written.
    pub queued_bytes: u64,
    /// Bytes of the database on disk.
    pub bytes: u64,
    /// Commits so far.
    pub commits: u64,
    /// Writes in them.
    pub writes: u64,
}

/// What becomes of a conversation that has grown beyond its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transcript {
    /// It is kept whole. Turns that would begin above the bound are refused.
    Refuse,
    /// Its oldest messages go, and the newest one stays in any case.
    DropOldest,
}

/// How much is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Events of a session; the oldest go first, and the newest one stays in any case.
    pub events_per_session: u64,
    /// Bytes of them.
    pub event_bytes_per_session: u64,
    /// Bytes of the messages of a session.
    pub transcript_bytes_per_session: u64,
    /// What becomes of a conversation above that.
    pub transcript: Transcript,
    /// Acknowledged units of a session that can still be asked for; the oldest go first.
    pub read_units_per_session: u64,
    /// Bytes of the database. New sessions and turns are refused above it.
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            events_per_session: 100_000,
            event_bytes_per_session: 64 << 20,
            transcript_bytes_per_session: 64 << 20,
            transcript: Transcript::Refuse,
            read_units_per_session: 1_024,
            bytes: 8 << 30,
        }
    }
}

impl Retention {
    /// For a store in memory: less of each session, and conversations lose their beginning in place of being refused.
    pub fn memory() -> Retention {
        Retention {
            events_per_session: 4_096,
            event_bytes_per_session: 8 << 20,
            transcript_bytes_per_session: 16 << 20,
            transcript: Transcript::DropOldest,
            read_units_per_session: 1_024,
            bytes: u64::MAX,
        }
    }
}
