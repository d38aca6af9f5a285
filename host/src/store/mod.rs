//! What outlives the process: sessions, what happened in them, what was handed out and what came of it.
//!
//! ```text
//!   session ──write──► queue ──one transaction for all that wait──► database
//!                                     │
//!                                     └──the commit is there──► `then` of each write, in their order
//! ```
//!
//! What holds:
//!
//! 1. A write is all or nothing, and writes take effect in the order in which they were queued.
//! 2. Who has been told that a write is recorded finds it after a crash at any instant, and everything that was queued
//!    before it.
//! 3. The numbers of a session's events are given by the commit. They count up by one, and a number that was given
//!    out never stands for anything else.
//! 4. A promise that fails is not written later. What is owed is written as soon as the store takes writes again.
//! 5. What waits to be delivered is never dropped to make room.
//!
//! Not here: what the bodies say. Events, messages and results are text to the store.

mod change;
mod error;
mod export;
mod memory;
mod rows;
mod rules;
mod sqlite;
#[allow(clippy::module_inception, reason = "the room's main type has the room's name")]
mod store;
#[cfg(test)]
mod tests;

pub use change::{Body, Change, Class, Encode, MOST_KEPT, Recorded, Then, Write};
pub use error::StoreError;
pub use export::{Archive, ArchiveError, Imported, RunningTurn};
pub use memory::Memory;
pub use rows::{EventPage, EventRow, MessageRow, Running, SessionRow, Start, UnitRow, UnitState};
pub use sqlite::{Checked, Look, Sqlite};
pub use store::{Health, Read, Retention, Store, Transcript, record};
