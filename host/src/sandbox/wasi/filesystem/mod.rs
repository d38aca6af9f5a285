//! `wasi:filesystem`: the granted directories, through cap-std; regular files and directories only.
//!
//! ```text
//!   host ─▶ quick ── answered from the kernel's caches, cannot wait ──▶ result
//!             └─ no ─▶ gate's pool ─▶ open, attributes, listing, stream ─▶ result
//! ```
//!
//! 1. A path is resolved beneath the descriptor that it is relative to, by the kernel where it can (`openat2`).
//! 2. What is neither a regular file nor a directory is recognised before it is opened, and again on the open handle.
//! 3. No call that could wait for a disk or a server runs on a thread that executes guests.
//! 4. Under a read-only grant every change answers `read-only`, before the operating system is asked.
//! 5. An open file or directory holds one of the run's places until the last stream over it is gone.

mod attributes;
mod code;
mod descriptor;
mod host;
mod listing;
mod open;
mod quick;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use descriptor::{Directories, ReachError};
