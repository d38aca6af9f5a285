//! The gate: what the door has to offer to the WASI interfaces, so that nothing of theirs passes it by.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::http::Answer;
use crate::sandbox::reach::Share;

/// Blocking calls of one run at work at one time. All runs share the places of the host; this and the share of its session keep one
/// whose calls are slow from taking them all.
pub(crate) const CALLS_OF_A_RUN: usize = 8;

/// A future that the gate spawns, or that it makes for somebody to wait on.
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

    /// Waits for a place for one blocking call. Dropping the future gives the wait up.
    fn place(&self) -> Task<Result<Place, Closed>>;

    /// Runs a call that may block, on the bounded pool. It holds its place and a share of the run's work until it has returned.
    ///
    /// # Errors
    /// The run takes no further calls.
    fn blocking(
        &self,
        what: &'static str,
        place: Place,
        job: Box<dyn FnOnce() + Send>,
    ) -> Result<(), Closed>;

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

/// The places for blocking calls that one run takes part in.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    run: Arc<Semaphore>,
    share: Option<Arc<Semaphore>>,
    host: Arc<Semaphore>,
}

impl Places {
    /// Those of a new run.
    pub(crate) fn new(share: &Share, host: &Arc<Semaphore>) -> Places {
        let run = Arc::new(Semaphore::new(CALLS_OF_A_RUN));
        Places { run, share: share.0.clone(), host: Arc::clone(host) }
    }

    /// Waits for one of each. The nearest comes first: who waits for its own calls keeps no place from the others.
    pub(crate) async fn wait(self) -> Result<Place, Closed> {
        let of_run = self.run.acquire_owned().await.map_err(|_| Closed)?;
        let of_share = match self.share {
            Some(share) => Some(share.acquire_owned().await.map_err(|_| Closed)?),
            None => None,
        };
        let of_host = self.host.acquire_owned().await.map_err(|_| Closed)?;
        Ok(Place { of_run, of_share, of_host })
    }
}

/// A place for one blocking call: one of the run's, one of its share's and one of the host's. All are given back when
/// dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) of_run: OwnedSemaphorePermit,
    pub(crate) of_share: Option<OwnedSemaphorePermit>,
    pub(crate) of_host: OwnedSemaphorePermit,
}

/// Runs `job` on the gate's pool and waits for it, and for a place before it.
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

/// Runs `job` on the gate's pool and does not wait for it. When no place is free, it begins while somebody waits for its result.
pub(super) fn start_in_pool<R, F>(
    gate: &Arc<dyn Gate>,
    what: &'static str,
    job: F,
) -> io::Result<Job<R>>
where
    R: Send + 'static,
    F: FnOnce() -> io::Result<R> + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    let run = Box::new(move || {
        if !sender.is_closed() {
            // Nobody may be left to read the result: the guest was stopped meanwhile.
            sender.send(job()).ok();
        }
    });
    let mut job = Job { waiting: Some(Waiting { gate: gate.clone(), what, run }), result };
    if let Some(place) = gate.place().now_or_never() {
        job.start(place)?;
    }
    Ok(job)
}

/// A job for the pool that has not been waited for.
pub(super) struct Job<R> {
    /// What is to run; none once it was given to the pool.
    waiting: Option<Waiting>,
    result: oneshot::Receiver<io::Result<R>>,
}

struct Waiting {
    gate: Arc<dyn Gate>,
    what: &'static str,
    run: Box<dyn FnOnce() + Send>,
}

impl<R> Job<R> {
    fn start(&mut self, place: Result<Place, Closed>) -> io::Result<()> {
        if let Some(Waiting { gate, what, run }) = self.waiting.take() {
            gate.blocking(what, place?, run)?;
        }
        Ok(())
    }

    /// Waits for a place, then for the result. May be dropped and called again until it has given one.
    pub(super) async fn finish(&mut self) -> io::Result<R> {
        if let Some(waiting) = &mut self.waiting {
            // The wait is not kept from one call to the next: a place that nobody fetches would be lost to everyone.
            let place = waiting.gate.place().await;
            self.start(place)?;
        }
        match (&mut self.result).await {
            Ok(result) => result,
            // The job died without a result: the pool was closed before it began, or it panicked.
            Err(_) => Err(io::Error::other("the call was lost")),
        }
    }
}

/// The run is at its end and takes no further blocking calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run takes no further calls")]
pub(crate) struct Closed;

impl From<Closed> for io::Error {
    fn from(closed: Closed) -> io::Error {
        io::Error::other(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(places: &Places) -> Option<Place> {
        places.clone().wait().now_or_never().map(Result::unwrap)
    }

    #[test]
    fn a_run_with_many_slow_calls_leaves_places_to_the_others() {
        let host = Arc::new(Semaphore::new(CALLS_OF_A_RUN + 1));
        let [one, other] = [(); 2].map(|()| Places::new(&Share::default(), &host));
        let mut slow: Vec<Place> = (0..CALLS_OF_A_RUN).map(|_| place(&one).unwrap()).collect();
        let mut next = Box::pin(one.clone().wait());
        assert!((&mut next).now_or_never().is_none());
        let last = place(&other).unwrap();
        let mut third = Box::pin(other.wait());
        assert!((&mut third).now_or_never().is_none());
        drop(last);
        assert!((&mut third).now_or_never().is_some());
        slow.pop();
        assert!((&mut next).now_or_never().is_some());
    }

    #[test]
    fn many_runs_of_one_session_with_slow_calls_leave_places_to_the_others() {
        let host = Arc::new(Semaphore::new(4 * CALLS_OF_A_RUN));
        let (one, other) = (Share::of(2 * CALLS_OF_A_RUN), Share::of(2 * CALLS_OF_A_RUN));
        let runs: Vec<Places> = (0..3).map(|_| Places::new(&one, &host)).collect();
        let mut slow = Vec::new();
        for run in &runs {
            slow.extend(std::iter::from_fn(|| place(run)));
        }
        assert_eq!(slow.len(), 2 * CALLS_OF_A_RUN);
        // Whoever waits for the share of its session holds nothing of the host's.
        let _waits = runs[2].clone().wait().now_or_never();
        assert_eq!(host.available_permits(), 2 * CALLS_OF_A_RUN);
        let beside = Places::new(&other, &host);
        let others: Vec<Place> = std::iter::from_fn(|| place(&beside)).collect();
        assert_eq!(others.len(), CALLS_OF_A_RUN);
        slow.pop();
        assert!(place(&runs[2]).is_some());
    }

    #[test]
    fn a_wait_that_is_given_up_leaves_its_place() {
        let share = Share::of(1);
        let places = Places::new(&share, &Arc::new(Semaphore::new(0)));
        assert!(place(&places).is_none());
        assert_eq!(places.run.available_permits(), CALLS_OF_A_RUN);
        assert_eq!(share.0.unwrap().available_permits(), 1);
    }
}
