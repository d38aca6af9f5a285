//! Shutting down: the steps in their order, each within its bound, and a report that tells the truth.
//!
//! ```text
//!  refuse ─► tell clients ─► drain ─► hard stop ─► settle ─► revoke tickets ─► stop listeners ─► flush ─► report ─► exit
//!                 │            │ ▲                    │
//!                 └─ at once ──┘ │ nothing is left ───┴──► (hard stop and settle are not needed)
//! ```
//!
//! What holds:
//!
//! 1. Every step is taken, in this order, once. One that fails, panics or hangs is in the report and keeps no later one
//!    from being taken (D5).
//! 2. A step has its bound. What outlives it is left going and never cancelled: work by its name (D4), a step of the
//!    caller as it is.
//! 3. There is one shutdown. A second request joins it, and can send it straight to the hard stop (D8).
//! 4. Nothing is cut that the report does not name (D7).
//!
//! A step that blocks its thread is waited for by nobody, as long as the runtime has another thread. Where it has none,
//! and where anything else hangs, the [`Watchdog`] ends the process: a thread of the operating system, which needs no
//! runtime (D6).
//!
//! Not here: what clients are told, what a ticket or a listener is, where the report is kept, and the end of the
//! process. All of these are [`Steps`] of the caller.

mod drive;
mod report;
mod steps;
mod watchdog;

pub use drive::{Request, Requested, Shutdown, Urgency};
pub use report::{Clean, Ended, Piece, Report, StepReport};
pub use steps::{Bounds, Settled, Step, StepError, Steps};
pub use watchdog::Watchdog;
