//! The clock that scheduled runs go by.

use std::fmt;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};

use crate::schedule::Timestamp;

/// The longest sleep. A clock may be set, and a machine may sleep, while nobody looks.
const GLANCE: Duration = Duration::from_secs(30);

/// What time it is, for scheduled runs.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Waits until it is that time. It may be ready before: who waits looks at the clock again.
    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let left = at.duration_since(Timestamp::now());
        // A time that is over is no time.
        let left = Duration::try_from(left).unwrap_or_default().min(GLANCE);
        tokio::time::sleep(left).boxed()
    }
}
