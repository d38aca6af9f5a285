//! The tools `stats`, `hash` and `diff`: what can be said about texts and files without understanding them.
//!
//! Each takes texts as they are, or paths below the directories that its run was granted. Files are read in pieces,
//! however large they are.

mod batch;
mod counter;
mod diff;
mod hash;
mod stats;

pub use diff::Diff;
pub use hash::Hash;
pub use stats::Stats;

checkrein_guest::tools!(Stats, Hash, Diff);
