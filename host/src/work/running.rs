//! The only place that spawns. Everything spawned is charged to a piece of work, and ends with it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

use super::slot::{Ended, Ending};
use super::state::Refused;
use super::stop::Stop;
use super::sync::lock;
use super::tree::{Body, Cutting, Kind, Shared, Work};
use crate::ids::WorkId;

/// An execution that was started. Await it for its end; drop it and it is stopped hard.
#[must_use = "dropping it stops the execution"]
pub struct Running<T> {
    shared: Arc<Shared>,
    id: WorkId,
    end: End<T>,
}

/// What is known of an execution's end.
enum End<T> {
    /// Nothing yet.
    Awaited(oneshot::Receiver<Ended<T>>),
    /// It has ended, and something of it may be left.
    Told(Ended<T>),
    /// It was given out.
    Given,
}

impl<T> Running<T> {
    pub(super) fn new(
        shared: Arc<Shared>,
        id: WorkId,
        ended: oneshot::Receiver<Ended<T>>,
    ) -> Running<T> {
        Running { shared, id, end: End::Awaited(ended) }
    }

    /// The work that it is charged to.
    pub fn id(&self) -> WorkId {
        self.id
    }

    /// Waits until the execution has ended and nothing of it is left but, perhaps, calls that cannot be
    /// interrupted; those stay in the tree.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the execution hard.
    pub async fn ended(mut self) -> Ended<T> {
        self.wait().await
    }

    /// The same for whoever keeps the execution. Its end is given out once; later there is nothing but the word that it
    /// was cut.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the execution goes on, and its end can still be waited for.
    pub async fn wait(&mut self) -> Ended<T> {
        if let End::Awaited(receiver) = &mut self.end {
            self.end = match receiver.await {
                Ok(ended) => End::Told(ended),
                // The sender goes without a word only when the executor's threads were taken down.
                Err(_) => End::Given,
            };
        }
        // Nearly always nothing is below it any more, and then nobody has to be told of anything.
        while !self.is_spent() {
            let mut left = std::pin::pin!(self.shared.left.notified());
            left.as_mut().enable();
            if self.is_spent() {
                break;
            }
            left.await;
        }
        match std::mem::replace(&mut self.end, End::Given) {
            End::Told(ended) => ended,
            End::Awaited(_) | End::Given => {
                Ended { ending: Ending::Cut, stop: None, soft: None, expired: false }
            }
        }
    }

    /// How the execution ended, if it has and nobody was told yet. Something of it may be left.
    pub fn try_ended(&mut self) -> Option<Ended<T>> {
        match std::mem::replace(&mut self.end, End::Given) {
            End::Told(ended) => Some(ended),
            End::Given => None,
            End::Awaited(mut receiver) => match receiver.try_recv() {
                Ok(ended) => Some(ended),
                Err(_) => {
                    self.end = End::Awaited(receiver);
                    None
                }
            },
        }
    }

    fn is_spent(&self) -> bool {
        lock(&self.shared.state).is_spent(self.id)
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if let End::Awaited(_) = self.end {
            self.shared.stop(self.id, &Stop::hard("host", "nobody waits for it any more"));
        }
    }
}

impl<T> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.id).finish()
    }
}

/// Spawns host work onto the control runtime. A hard stop of the work ends it at its next await.
pub fn spawn<T: Send + 'static>(
    control: &Handle,
    work: Work,
    future: impl Future<Output = T> + Send + 'static,
) -> Task<T> {
    let held = work.share();
    let handle = spawn_charged(control, work, future);
    held.set_body(Arc::new(Aborts(handle.abort_handle())));
    Task { handle }
}

/// Spawns host work that has no node of its own: it is charged to the node of the hold, and whoever has the
/// handle aborts it.
pub fn spawn_charged<T: Send + 'static>(
    control: &Handle,
    work: Work,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let charged = Charged { future: Some(Box::pin(future)), work: Some(work) };
    #[allow(clippy::disallowed_methods, reason = "this is the place that spawns")]
    control.spawn(charged)
}

/// The same for whoever waits for the result: dropping the task aborts it.
pub(crate) fn spawn_awaited<T: Send + 'static>(
    control: &Handle,
    work: Work,
    future: impl Future<Output = T> + Send + 'static,
) -> Task<T> {
    Task { handle: spawn_charged(control, work, future) }
}

/// Host work that was spawned. Awaiting gives its result, or none when it was stopped or panicked. Dropping it
/// aborts the work.
#[must_use = "dropping it aborts the work"]
#[derive(Debug)]
pub struct Task<T> {
    handle: JoinHandle<T>,
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.handle).poll(cx).map(Result::ok)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Field order is teardown order: aborted before its first poll, the body must go before the hold.
struct Charged<T> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    work: Option<Work>,
}

impl<T> Future for Charged<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(future) = self.future.as_mut() else { return Poll::Pending };
        let value = std::task::ready!(future.as_mut().poll(cx));
        self.future = None;
        self.work = None;
        Poll::Ready(value)
    }
}

struct Aborts(AbortHandle);

impl Body for Aborts {
    fn cut(&self) -> Cutting {
        self.0.abort();
        Cutting::Done
    }
}

/// Runs a call that cannot be interrupted, on a thread for such calls. It is in the tree below `work` until it
/// has returned, whoever has given up waiting meanwhile (W3).
///
/// # Errors
///
/// [`Refused`] when `work` takes no new work. The number of such calls is bounded by who hands out permits.
pub fn blocking<T: Send + 'static>(
    control: &Handle,
    work: &Work,
    what: &str,
    permit: tokio::sync::OwnedSemaphorePermit,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, Refused> {
    let hold = work.open(Kind::Blocking, what)?;
    let (told, result) = oneshot::channel();
    let run = move || {
        // Whoever has been told finds nothing left, also when the call panics: locals go in reverse order.
        let told = told;
        let held = (permit, hold);
        let value = call();
        drop(held);
        drop(told.send(value));
    };
    #[allow(clippy::disallowed_methods, reason = "this is the place that spawns")]
    let _detached: JoinHandle<()> = control.spawn_blocking(run);
    Ok(result)
}

/// Does something that may hold its thread, such as what somebody else's teardown does. It has no node of its own: it is charged
/// to the node of the hold. There is no answer when the call panicked.
///
/// The threads for blocking calls may all be held by calls that hang, and the system may have no other thread to give. So both are
/// asked for: whichever comes first does it, and the other waits until it is done.
pub(crate) fn apart<T: Send + 'static>(
    control: &Handle,
    work: Work,
    call: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (told, result) = oneshot::channel();
    let run = move || {
        let value = call();
        drop(work);
        // Whoever has lost interest does not hear of it.
        told.send(value).ok();
    };
    let first = Arc::new(std::sync::Mutex::new(Some(run)));
    let second = Arc::clone(&first);
    let runtime = control.clone();
    let own = move || {
        let _inside = runtime.enter();
        once(&first);
    };
    // Without it the other one comes first.
    let _no_thread = thread("checkrein-apart", own).is_err();
    #[allow(clippy::disallowed_methods, reason = "this is the place that spawns")]
    let _detached: JoinHandle<()> = control.spawn_blocking(move || once(&second));
    result
}

/// Calls what nobody has called yet, and holds the lock meanwhile.
fn once(call: &std::sync::Mutex<Option<impl FnOnce()>>) {
    let mut call = call.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(call) = call.take() {
        call();
    }
}

/// Spawns onto the executor threads.
pub(super) fn on(guests: &Runtime, task: impl Future<Output = ()> + Send + 'static) {
    #[allow(clippy::disallowed_methods, reason = "this is the place that spawns")]
    let _detached: JoinHandle<()> = guests.spawn(task);
}

/// Starts a thread of the operating system that is not work: it runs no guest, nothing waits for it without a bound, and
/// it ends when what it serves is gone.
pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    #[allow(clippy::disallowed_methods, reason = "this is the place that spawns")]
    let _detached = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(())
}
