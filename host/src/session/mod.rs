//! A session: a conversation that outlives its runs, its turns, and the stream of what happens in it.
//!
//! ```text
//!   idle ──prompt──► running n ──the run has ended──► idle        (n counts up; a stop names its n)
//!              │         │
//!              │         └──stop of n: soft or hard, to that run and nothing else
//!              └──prompt while running: refused, or in line; the turn goes on
//! ```
//!
//! What holds:
//!
//! 1. A session has at most one turn at a time (`turn.rs` is the machine).
//! 2. A stop names an execution; one for an older execution is refused as stale and hits nothing (S9).
//! 3. What a run had said is in the session's events and in its report, however it ended (S12).
//! 4. What runs beside the turn has a node of its own, and a stop of the turn does not reach it (`side.rs`).
//! 5. Events are numbered without gaps, and everybody sees them in that order.
//!
//! Not here: how a component runs (`sandbox`), which plugins there are (`plugin`), who starts sessions (`host`).

mod background;
mod delegate;
mod deliver;
mod driver;
mod event;
mod fit;
mod ledger;
mod memory;
mod record;
mod recover;
mod restore;
mod run;
#[allow(clippy::module_inception, reason = "the room's main type has the room's name")]
mod session;
mod side;
mod span;
mod stream;
mod turn;

pub use background::{Agents, Background, Delivery, Found};
pub use driver::{Checkpoints, NoCheckpoints};
pub use event::{Event, EventKind, TaskEnd};
pub use record::ToolAnswer;
pub use recover::{Recovered, readable, recover};
pub use restore::Restored;
pub use session::{Agent, Parts, PromptError, Session, StopError, Stopped, Turn, TurnReport};
pub use side::{Answer, Aside, MOST_SIDE_RUNS, SideError, SideReport, SideRun, TakeInError};
pub use stream::{Events, Lagged, WatchError};
pub use turn::Generation;
