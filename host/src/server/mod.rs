//! The HTTP API: sessions, stops and the tree of work, for clients of this machine or of another one.
//!
//! ```text
//!   Listener ──connection──► gate: who asks, for what ──► route ──► Profile, Session, Tree
//!      │ bounds: connections, slow heads, slow readers        │
//!      └ open ──► ending: streams end ──► cut                 └► answer, or Problem
//! ```
//!
//! What holds:
//!
//! 1. A route does what an embedder could do with a [`Host`](crate::Host), and keeps nothing of its own: what runs is in the
//!    tree of work, what happened is in the store.
//! 2. Every answer that is not the wanted one is a [`Problem`]. One table has its status.
//! 3. A client that stalls or goes away ends nothing but its own connection. A turn goes on without it.
//! 4. What guests say is JSON in a body; never a header, never markup.
//! 5. Bounds on connections and requests never keep a stop out that has a connection, and no peer takes all connections.
//!
//! 6. A token is shown once, when it is made. What is kept is a hash of it, in a file that nobody else can read. Whether one is
//!    known is found out in a time that does not depend on how much of it was right.
//! 7. What is kept about requests is bounded, however many peers there are.
//! 8. A request that shows a ticket has what the ticket is good for, once, and nothing else, whoever brings it (P8).
//! 9. Who is refused can read why: a connection is closed when its peer has closed, too, within bounds.
//!
//! Not here: which profiles there are ([`Served`]), tokens ([`Gate`]), signals and the order of a shutdown.

mod api;
mod app;
mod closing;
mod figures;
mod file;
mod gate;
mod linger;
mod listener;
mod open_api;
mod patience;
mod places;
mod problem;
mod rate;
mod read;
mod routes;
mod scope;
mod served;
mod service;
#[cfg(test)]
mod tests;
mod ticket;
mod token;
mod token_gate;
mod tokens;
mod view;

pub use api::router;
pub use app::{App, AppBuilder, ShutdownRequest};
pub use closing::Closing;
pub use file::TokensError;
pub use gate::{Asking, Denied, Gate, LocalUser, RatedUser, Who};
pub use listener::{ListenError, Listener, ListenerLimits};
pub use open_api::open_api;
pub use problem::{Problem, ProblemKind};
pub use rate::{Peer, RateTable, Rates, TooMany};
pub use scope::{Profiles, Target, Verb};
pub use served::{Listed, NotServed, Reconciled, Served};
pub use token::{Principal, Refusal, TokenId};
pub use token_gate::TokenGate;
pub use tokens::{ListedToken, NewToken, Tokens};
pub use view::{CompletionView, MessageView, SessionView, StopKindName, TreeNode, TreeView};
