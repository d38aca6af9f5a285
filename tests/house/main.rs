//! Checks of the house itself: who may know whom, how files begin, what is spawned where, what is frozen.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a check that cannot read the house fails, and it asks which cargo runs it"
)]

mod arrows;
mod bindings;
#[cfg(feature = "server")]
mod configuration;
mod files;
mod frozen;
mod licences;
#[cfg(feature = "server")]
mod openapi;
mod source;
#[cfg(feature = "server")]
mod usual;
mod walk;
