//! A store in one SQLite database.
//!
//! ```text
//!   write ──► queue ──► writer thread ──► one transaction for the batch ──► `then` of each write
//!                          │    ▲
//!                          │    └── does not take it: promises hear so, what is owed waits at the front
//!                          └── nothing to write: drops what is beyond the bounds, checkpoints
//!   read  ──► queue ──► reader threads, each with a connection that cannot write
//! ```
//!
//! What holds:
//!
//! 1. Only the writer thread writes. What it remembers of sessions is what is committed; what a transaction would
//!    change is kept aside until its commit is there.
//! 2. `then` is called after the commit, in the order of the writes.
//! 3. No transaction does more than a bounded piece of work.
//! 4. A reader waits for no writer, and nobody who asks for a read blocks a thread.
//! 5. A transaction stays open for those who were told of the one before, for as long as a commit takes at most and only
//!    while they come.

mod books;
mod fault;
mod gather;
mod journal;
mod look;
mod open;
mod queue;
mod reads;
mod schema;
#[allow(clippy::module_inception, reason = "the room's main type has the room's name")]
mod sqlite;
mod tables;
mod thread;
mod tidy;
mod writer;

#[cfg(test)]
pub(super) use fault::{Faults, Point};
pub use look::{Checked, Look};
#[cfg(test)]
pub(super) use open::Options;
#[cfg(test)]
pub(super) use schema::STEPS;
pub use sqlite::Sqlite;
