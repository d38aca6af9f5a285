//! A clock that the test sets.

use std::sync::Arc;

use checkrein::Clock;
use checkrein::schedule::Timestamp;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

/// A clock that stands still until the test sets it.
#[derive(Debug, Clone)]
pub struct TestClock {
    now: Arc<watch::Sender<Timestamp>>,
}

impl TestClock {
    /// A clock at that time, as in `2026-05-01T12:00:00Z`.
    ///
    /// # Errors
    ///
    /// When that is no time.
    pub fn at(now: &str) -> anyhow::Result<TestClock> {
        Ok(TestClock { now: Arc::new(watch::Sender::new(now.parse()?)) })
    }

    /// Sets it.
    ///
    /// # Errors
    ///
    /// When that is no time.
    pub fn set(&self, now: &str) -> anyhow::Result<()> {
        self.now.send_replace(now.parse()?);
        Ok(())
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }

    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let mut now = self.now.subscribe();
        async move {
            // Never an error while somebody has the clock.
            let _closed = now.wait_for(|now| *now >= at).await.is_err();
        }
        .boxed()
    }
}
