//! The threads of a store.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that belongs to a store and is joined with it.
#[allow(
    clippy::disallowed_methods,
    reason = "a store outlives every piece of work, so its threads are in no tree; the store joins them"
)]
pub(super) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(run)
}
