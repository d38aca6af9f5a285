//! The schedule owner of a home: it starts what the plan says, and keeps what was decided and what came of it (K1).
//!
//! ```text
//!   wake ──► decide ──claim──► keep what is decided ──► start each run: a turn like any other
//!    ▲          │                     │                       │
//!    │          └─ no new work ─► end └─ failed ─► refused    └─ ended ──► keep how, and wake
//!    └──────────────────────────────────────────────────────────┘
//! ```
//!
//! What holds:
//!
//! 1. A home has one owner. It is bound when the profile is served, and unbound once, when no work of it is left.
//! 2. What is decided is on the disk before anything of it starts: a run is lost rather than repeated.
//! 3. A run counts from the moment at which it is claimed, before its session is there.
//! 4. What was cut is never recorded as completed.
//!
//! Not here: when a run is due (`schedule`), and what it does (`session`).

mod clock;
mod owner;
mod record;
mod writer;

pub use clock::{Clock, SystemClock};
pub(super) use owner::Owner;
pub use owner::{ScheduleView, Schedules};
pub use record::{SCHEDULES, ScheduledRun};
