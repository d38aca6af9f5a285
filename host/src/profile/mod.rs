//! A home, and who serves it: the lock, the authority, its retirement, and the set of profiles of a host.
//!
//! ```text
//!   wanted ──lock, open──► served ──unpublish, stop──► retiring ──all work has ended──► released
//!     │ ▲                                              │    ▲
//!     │ └──────────────── looked at again ───────┐     └────┘ the bound passed: kept, and tried again
//!     └──► parked, with its reason ──────────────┘
//! ```
//!
//! What holds at every instant:
//!
//! 1. A home has at most one authority, on this machine and not only in this process (P1, P7).
//! 2. While any work of a profile is in the tree, its lock and its handles are kept, whoever has let go of what (P4).
//! 3. A profile that is being retired is not listed, takes no new work and gives no tickets (P2, P8).
//! 4. The schedule owner is unbound once, and the store is closed only when no work is left (P5).
//! 5. Each change of how much work there is is followed by a write of the count, and the last one by that of 0 (N1, N2).
//!
//! Not here: what a profile holds. This room knows work and files; sessions, plugins and stores come in through
//! [`Opens`] and [`Held`].

mod authority;
mod count;
mod identity;
mod listing;
mod lock;
mod registry;
#[cfg(test)]
mod tests;
mod tickets;
mod watcher;

pub use authority::{Authority, Claimed, Held, NotClosed, NotReleased, Retired, STOPPING, Why};
pub use count::{CountWriter, Reading, WorkCount};
pub use identity::{Life, ProcessIdentity};
pub use listing::{CONFIGURATION, Wanted, listing};
pub use lock::{Holder, HomeLock, LockError};
pub use registry::{NotOpened, Opens, Parked, Profiles, Reconciled};
pub use tickets::{BadTicket, MOST_TICKETS, NoTicket, TICKET_LIFE, Ticket, Tickets};
pub use watcher::{Places, Watcher};
