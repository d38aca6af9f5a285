//! A session as JSON Lines: written out, and read in again. docs/session-export.md describes the form.
//!
//! ```text
//!   store ──Archive::of──► Archive ──write_to──► lines ──read_from──► Archive ──put──► store
//! ```
//!
//! What holds:
//!
//! 1. What was read in is what was written out: texts byte for byte, numbers of events and messages too.
//! 2. Lines are checked whole before anything is written, and a session is put into a store whole or not at all.
//! 3. Completions that were not acknowledged are not acknowledged afterwards.

mod archive;
mod lines;

pub use archive::{Archive, ArchiveError, Imported, RunningTurn};
