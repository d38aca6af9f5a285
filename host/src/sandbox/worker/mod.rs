//! A run in a process of its own: the guest there, everything that outlives it here.
//!
//! ```text
//!   this process                                  │ the worker: the same command, `checkrein worker`
//!   run ─ conversation ── frames on its standard ─┼─ input ── stops, answers ──► tree of its own, one run
//!      │    (answers)  ◄─────── streams ──────────┼─ output ─ calls, log, end ── remote (asks)
//!      └─ worker: the process, until it is reaped │
//! ```
//!
//! The worker executes its guest as this process would: the same store, door, limits and WASI, with the grants that it
//! is started with. What a guest asks of the side above becomes a frame; the conversation takes it through a door of its
//! own, with budgets of its own, to the very same host traits.
//!
//! What holds:
//!
//! 1. A worker is a node below its run from before it exists until it has been reaped (W3, M1).
//! 2. A stop is one frame for each kind (M2). After a hard one, or once nobody talks to it any more, a worker has a
//!    bound; then its process group is killed (M4).
//! 3. Nothing that a worker says is trusted: frames have a bound, calls have a bound, budgets are charged on this side,
//!    and a frame that makes no sense ends the run and the process.
//! 4. A process that goes without a word ends one run, as `unknown` if its guest had begun. What that had reported is kept.
//! 5. A worker compiles nothing: it is sent the code that this process has loaded and checked.
//!
//! Not here: which plugins run like this. Whoever loads their code says so.

mod child;
mod conversation;
mod fate;
mod frame;
mod process;
mod remote;
mod settings;

pub use child::worker_main;
pub(super) use conversation::start;
pub(super) use fate::Fate;
pub(super) use frame::Errand;
pub(super) use settings::Workers;
pub use settings::{Isolation, WorkerSettings};
