//! Who is let into the background: admission as a pure rule, the units that were accepted, and their completions.
//!
//! ```text
//!   turn owns the children                                       registry owns the children
//!   submitted ──► scheduler asked ──► capacity asked ──► ACCEPTED ──► running ──► last child gone ──► completion
//!                       │                │      ▲         (one step: slot and owner)      (slot given back)
//!                       │                ▼      │
//!                       │              in line ─┘ a slot is free and it is this unit's turn
//!                       ▼                ▼
//!                     REJECTED: the children stay with the turn, and run inside the call or not at all
//! ```
//!
//! What holds:
//!
//! 1. Until it is accepted a unit is the turn's: also while a scheduler thinks, and while it waits in line. Stops of
//!    the turn reach it (H2). From the step on it is the registry's, with the stops that it carried (H1, S6).
//! 2. Whatever fails at any point gives back the slot and leaves the children where they are (A2).
//! 3. An accepted unit gives exactly one completion, when its last child has ended physically, in whatever way its
//!    supervisor ended (C1, C2). The unit's own node in the tree sees to it.
//! 4. What may be handed out is checked before anything is built (A9), and all shares together are never more than
//!    what the parent had left (A10).
//!
//! How "a unit holds a slot until its last child has ended" and "all units of one call share one slot" (A8) fit
//! together: a slot belongs to a *call*. The first unit of it that is accepted takes the slot; those that follow
//! while it is held join it and need no other. It is given back when the last child of the last unit that holds it
//! has ended, also when the call has not returned by then; a unit behind that asks for capacity like a first one.
//! So "units per host" and "per session" count calls with something in the background, and within one call the
//! number of children is bounded by its own limit. In the partial case of the base matrix (capacity 3, three units,
//! the scheduler refuses the second) the first takes one slot of three, the second never asks for one, and the
//! third joins the first, or takes a slot of its own if the first has ended.
//!
//! A unit in line is not accepted yet, because a slot and the new owner come in one step (A2). So the call waits,
//! the turn still owns the children, and what stops all of them takes the unit out of the line; it then runs inside
//! the call, where the children see their stop at once.
//!
//! Not here: starting a run. This room hands out what is needed to start one, and knows no wasm and no database.

mod admission;
mod budget;
mod completions;
mod grouping;
mod id;
mod limits;
mod note;
mod outcome;
mod policy;
mod recorder;
mod refusal;
mod scheduler;
mod slots;
mod unit;

#[cfg(test)]
mod tests;

pub use budget::{Budget, Parent, Split, Wanted, split};
pub use completions::{Completions, UnitState, UnitView, UnknownUnit};
pub use grouping::{Grouping, units};
pub use id::{CallId, DelegationId, NotADelegation};
pub use limits::{Claimed, DelegationLimit, DelegationLimits, Descendants, OverLimit};
pub use note::{Answer, Became, note};
pub use outcome::{ChildStatus, Completion, TaskOutcome, UnitStatus};
pub use policy::{Mode, Policy};
pub use recorder::{InMemory, RecordError, Recorder, Seen};
pub use refusal::{Reason, Rejected, Retry, Then};
pub use scheduler::{AtOnce, Scheduler, SchedulerRefusal, UnitRequest};
pub use slots::{
    Admission, AdmissionFigures, Admitted, Call, Child, Hooks, Origin, Receives, Slots, SlotsUsed,
};
pub use unit::Unit;
