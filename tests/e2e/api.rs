//! The daemon as its clients meet it: HTTP on its socket, and how it ends.

mod commands;
mod connections;
pub(crate) mod daemon;
mod events;
mod faults;
mod grace;
mod metrics;
mod rates;
mod reload;
mod requests;
mod router;
mod sessions;
mod shutdown;
mod sides;
mod tickets;
mod watch;
