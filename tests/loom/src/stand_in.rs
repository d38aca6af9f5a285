//! What stands in for the locks of the room: those of loom, and a notification made of them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub use loom::sync::{Mutex, MutexGuard};

/// As much of tokio's `Notify` as the room uses. tokio's own hides its lock from loom.
#[derive(Debug)]
pub struct Notify {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// How often everybody was woken.
    calls: usize,
    wakers: Vec<Waker>,
}

impl Notify {
    /// Nobody waits yet.
    pub fn new() -> Notify {
        Notify { waiting: Mutex::new(Waiting::default()) }
    }

    /// Is woken by every call after this moment.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, seen: self.lock().calls }
    }

    /// Wakes everybody who waits.
    pub fn notify_waiters(&self) {
        let wakers = {
            let mut waiting = self.lock();
            waiting.calls += 1;
            std::mem::take(&mut waiting.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds this lock")
    }
}

impl Default for Notify {
    fn default() -> Notify {
        Notify::new()
    }
}

/// Waits for the next call.
#[derive(Debug)]
pub struct Notified<'a> {
    notify: &'a Notify,
    seen: usize,
}

impl Notified<'_> {
    /// Nothing to do: like tokio's, it hears of every call since it was made.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        false
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.notify.lock();
        if waiting.calls != self.seen {
            return Poll::Ready(());
        }
        waiting.wakers.push(cx.waker().clone());
        Poll::Pending
    }
}
