//! Who may ask for what through the API, and how often.
//!
//! ```text
//!   request ─► rate of its peer ─► token ─► rate of its principal ─► scope: profile and verb ─► allowed
//!                  │ too many        │ missing, malformed, unknown, expired      │ out of scope
//!                  ▼                 ▼                                           ▼
//!                refused           refused, in words that tell nothing apart   refused
//! ```
//!
//! What holds:
//!
//! 1. A token is shown once, when it is made. What is kept is a hash of it, in a file that nobody else can read.
//! 2. Whether a token is known is found out in a time that does not depend on how much of it was right.
//! 3. A token that is revoked or expired is good for nothing from the next request on.
//! 4. What is kept about requests is bounded, however many peers there are.
//!
//! Not here: sockets, routes, and the table from a refusal to an answer of HTTP.

mod file;
mod rate;
mod scope;
#[cfg(test)]
mod tests;
mod token;
mod tokens;

pub use file::TokensError;
pub use rate::{Peer, RateTable, Rates, TooMany};
pub use scope::{Profiles, Target, Verb};
pub use token::{Principal, Refusal, TokenId};
pub use tokens::{Listed, NewToken, Tokens};
