//! Who owns running work: one tree, its stops, and the only place that spawns.
//!
//! ```text
//!   open ──► live ──last hold dropped, children left──► lingering ──last child gone──► gone
//!             │                                                                        ▲
//!             └───────────────────last hold dropped, no children───────────────────────┘
//!   beside it, on each node: no stop ──► soft ──► hard      (never back; a child starts with its owner's)
//! ```
//!
//! What holds at every instant:
//!
//! 1. A node that is not the root has exactly one owner, and its owner is in the tree (W1).
//! 2. Counting, listing, stopping and draining walk the nodes; nothing else says what is live (W2).
//! 3. A node is gone when nothing holds it and nothing is below it, not earlier (W3, W4).
//! 4. A node carries every stop that its owner carried when it was opened or adopted, and every stop that
//!    reached its owner since (W6, S4).
//!
//! Not here: what the work *is*. This room knows no wasm, no files, no database and no network.

mod drain;
mod executor;
mod running;
// Its races are those of the tree, which loom has already.
#[cfg(not(checkrein_loom))]
pub mod shutdown;
mod signal;
mod slot;
mod state;
mod stop;
mod sync;
#[cfg(test)]
mod tests;
mod tree;
mod view;
mod warden;
mod watch;

pub use drain::{Drained, Left};
pub use executor::Executor;
pub use running::{Running, Task, blocking, spawn, spawn_charged};
#[cfg(not(checkrein_loom))]
pub(crate) use running::{apart, spawn_awaited, thread};
pub use signal::StopSignal;
pub use slot::{Ended, Ending, Gauge};
pub use state::Refused;
pub use stop::{Grace, Stop, StopKind};
pub use tree::{Body, Cutting, Gone, Kind, StopFigure, StopFigures, Tree, Work};
pub use view::{Activity, BudgetUse, NodeView};
pub use watch::Watch;
