//! The locks of this room, so that loom can put its own in their place.

#[cfg(not(checkrein_loom))]
pub(super) use std::sync::{Mutex, MutexGuard};
#[cfg(not(checkrein_loom))]
pub(super) use tokio::sync::Notify;

#[cfg(checkrein_loom)]
pub(super) use crate::stand_in::{Mutex, MutexGuard, Notify};

/// Locks, also when a thread panicked while it held the lock: every section in this room leaves its data whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
