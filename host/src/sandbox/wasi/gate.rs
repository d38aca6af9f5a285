//! The gate: what the door has to offer to the WASI interfaces, so that nothing of theirs passes it by.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;

use super::http::Answer;

/// A future that the gate spawns.
pub(crate) type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What WASI calls pass through. The door implements it, once for each run.
pub(crate) trait Gate: Send + Sync + 'static {
    /// A guest entered a host function of this interface. Runs on every call: it must be cheap and must not wait.
    fn enter(&self, interface: &'static str);

    /// Charges bytes that cross the door.
    ///
    /// # Errors
    /// The budget is used up. The error ends the guest and names the limit.
    fn charge(&self, bytes: usize) -> wasmtime::Result<()>;

    /// Takes text that the guest wrote to standard output or error: one line without its end, or a piece of an overlong one.
    ///
    /// # Errors
    /// The budget for log text is used up. The error ends the guest and names the limit.
    fn print(&self, stream: &'static str, text: &[u8]) -> wasmtime::Result<()>;

    /// Tells why something was refused, for the log of the run: the codes that WASI has for it say too little.
    fn denied(&self, reason: &str);

    /// Runs a call that may block, on the bounded pool. It holds a share of the run's work until it has returned.
    ///
    /// # Errors
    /// Too many such calls are at work, or the pool is closed.
    fn blocking(&self, what: &'static str, job: Box<dyn FnOnce() + Send>) -> Result<(), Busy>;

    /// Spawns the connection of a request on the control runtime, with a share of the run's work. Aborted by its handle.
    fn spawn_connection(&self, what: &'static str, task: Task<()>) -> JoinHandle<()>;

    /// Spawns a request up to its answer, in the same way.
    fn spawn_request(&self, what: &'static str, task: Task<Answer>) -> JoinHandle<Answer>;

    /// Takes one of the run's places for open files, directories and connections; none when all are taken.
    fn open_file(&self) -> Option<FilePermit>;
}

/// One of the run's places for open files; given back when dropped.
#[derive(Debug)]
pub(crate) struct FilePermit(
    #[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit,
);

impl From<OwnedSemaphorePermit> for FilePermit {
    fn from(permit: OwnedSemaphorePermit) -> Self {
        FilePermit(permit)
    }
}

/// Runs `job` on the gate's pool and waits for it.
///
/// # Cancel safety
/// A job that has not begun when the future is dropped does not run; one that has begun is finished by the pool, its result is lost.
pub(super) async fn in_pool<R, F>(gate: &Arc<dyn Gate>, what: &'static str, job: F) -> io::Result<R>
where
    R: Send + 'static,
    F: FnOnce() -> io::Result<R> + Send + 'static,
{
    start_in_pool(gate, what, job)?.finish().await
}

/// Runs `job` on the gate's pool and does not wait for it.
pub(super) fn start_in_pool<R, F>(
    gate: &Arc<dyn Gate>,
    what: &'static str,
    job: F,
) -> io::Result<Job<R>>
where
    R: Send + 'static,
    F: FnOnce() -> io::Result<R> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let run = move || {
        if !sender.is_closed() {
            // Nobody may be left to read the result: the guest was stopped meanwhile.
            sender.send(job()).ok();
        }
    };
    gate.blocking(what, Box::new(run))
        .map_err(|Busy| io::Error::from(io::ErrorKind::ResourceBusy))?;
    Ok(Job(receiver))
}

/// A job on the pool that has not been waited for.
pub(super) struct Job<R>(oneshot::Receiver<io::Result<R>>);

impl<R> Job<R> {
    /// Waits for the result. May be dropped and called again until it has given one.
    pub(super) async fn finish(&mut self) -> io::Result<R> {
        match (&mut self.0).await {
            Ok(result) => result,
            // The job died without a result: the pool was closed before it began, or it panicked.
            Err(_) => Err(io::Error::other("the call was lost")),
        }
    }
}

/// No further blocking call is taken at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many blocking calls are at work")]
pub(crate) struct Busy;
