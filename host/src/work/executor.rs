//! The threads that execute guests, and nothing else. Timers, sockets and stops live on another runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Runtime};

use super::running::{self, Running};
use super::slot::{Gauge, Slot};
use super::tree::{Body, Tree, Work};
use super::warden::Alarm;

/// How much more eagerly the rest of the process is served than guests that compute.
const NICENESS: i32 = 5;

/// Executes guests. A tree has one. Dropping it cuts the executions that are left, and ends its threads once they
/// have let go of the guests they run; the warden stays until the tree is gone.
pub struct Executor {
    /// Taken on drop, because a runtime must not be dropped inside another.
    guests: Option<Runtime>,
    around: Arc<Around>,
}

/// What every execution is polled with.
struct Around {
    control: Handle,
    alarm: Arc<Alarm>,
}

impl Executor {
    /// Starts `threads` executor threads and the warden of `tree`. `control` is the runtime whose timers and
    /// sockets guests wait for; `tick` is called every few milliseconds while a guest is on a processor.
    ///
    /// # Errors
    ///
    /// When the operating system gives no threads, or when the tree has an executor, or had one.
    pub fn new(
        tree: &Tree,
        threads: usize,
        control: Handle,
        tick: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<Executor> {
        let alarm = Arc::clone(&tree.shared.alarm);
        if !alarm.claim() {
            return Err(std::io::Error::other("this tree of work has an executor already"));
        }
        let guests = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .thread_name("checkrein-guest")
            .on_thread_start(|| {
                // Where this is not allowed, guests and host share as equals; nothing depends on it.
                let _ = rustix::process::nice(NICENESS);
            })
            .build()?;
        let shared = Arc::downgrade(&tree.shared);
        let around = Arc::new(Around { control, alarm: Arc::clone(&alarm) });
        running::thread("checkrein-warden", move || super::warden::watch(&shared, &alarm, &tick))?;
        Ok(Executor { guests: Some(guests), around })
    }

    /// The runtime for everything that is not a guest.
    pub fn control(&self) -> &Handle {
        &self.around.control
    }

    /// Starts an execution. It is charged to `work`, and ended with it.
    ///
    /// `nudge` makes an execution that is on a processor come back soon; it is called until it has.
    pub fn start<T: Send + 'static>(
        &self,
        work: Work,
        nudge: Arc<dyn Fn() + Send + Sync>,
        gauge: Arc<dyn Gauge>,
        execution: impl Future<Output = T> + Send + 'static,
    ) -> Running<T> {
        let id = work.id();
        let shared = Arc::clone(&work.shared);
        let (slot, ended) = Slot::new(work, Box::pin(execution), nudge, gauge);
        // The work is in the slot, and until its body is known nobody but a stop of it can take it out.
        shared.set_body(id, Arc::clone(&slot) as Arc<dyn Body>);
        if let Some(guests) = &self.guests {
            running::on(guests, SlotTask { slot, around: Arc::clone(&self.around) });
        }
        Running::new(shared, id, ended)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some(guests) = self.guests.take() {
            guests.shutdown_background();
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

/// Polls a slot on an executor thread, with the timers and sockets of the control runtime.
struct SlotTask<T: Send + 'static> {
    slot: Arc<Slot<T>>,
    around: Arc<Around>,
}

impl<T: Send + 'static> Future for SlotTask<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let _control = self.around.control.enter();
        let _on_processor = self.around.alarm.on_processor();
        self.slot.poll(cx)
    }
}

impl<T: Send + 'static> Drop for SlotTask<T> {
    fn drop(&mut self) {
        // Taken down with its runtime. The tree refers to the slot and the slot to the tree, so nothing else would
        // ever empty it.
        let _ = self.slot.cut();
    }
}
