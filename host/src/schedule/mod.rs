//! When scheduled runs are due: cron expressions with time zones, and a plan that is a pure rule.
//!
//! ```text
//!   decided ──next()──► wake ──due()──► decided
//!                                        │ on time ────────────► start, or overlap: skip, queue, allow
//!                                        │ missed ─► skip, once, all(n) ─► start, or wait in line
//! ```
//!
//! What holds:
//!
//! 1. A scheduled time is decided about once. What was decided never comes again, also when the clock goes back.
//! 2. Nothing is started before its time.
//! 3. Every scheduled time that is not started is in an answer, with the reason.
//!
//! Times are those of the wall clock in the schedule's zone. Where clocks go forward, a run at a time of the day
//! (`30 2 * * *`) that falls into the gap is due at the first instant after it, once. Where clocks go back, it is due
//! once, the first time. What leaves the hour open (`*/15 * * * *`) is about time going by: it has no run in the gap, and
//! goes on through both hours of the fold.
//!
//! Not here: a clock, a timer, and the runs. Whoever owns the schedules of a home asks [`Planner::next`] when to wake, and
//! [`Planner::due`] what to start; it keeps [`Planner::decided`] before it starts anything, so that a run is lost rather
//! than repeated when the host dies in between.

mod expression;
mod planner;
mod settings;
#[cfg(test)]
mod tests;
mod zone;

pub use expression::{Expression, ExpressionError};
pub use jiff::Timestamp;
pub use planner::{Decision, Due, Passed, Planner, Start, Why};
pub use settings::{Missed, MissedError, Overlap, Schedule};
pub use zone::{Zone, ZoneError};
