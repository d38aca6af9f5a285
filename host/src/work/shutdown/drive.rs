//! Who asks for the shutdown, who waits for it, and the one task that takes its steps.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use super::report::{Clean, Ended, Piece, Report, StepReport};
use super::steps::{Bounds, Settled, Step, StepError, Steps};
use super::watchdog::{Trigger, Watchdog};
use crate::work::running::apart;
use crate::work::{Stop, Tree, Work, spawn_charged};

/// The one shutdown of a host. Cheap to clone; every clone is the same.
#[derive(Clone)]
pub struct Shutdown {
    shared: Arc<Shared>,
}

struct Shared {
    control: Handle,
    tree: Tree,
    bounds: Bounds,
    /// Taken by the first request. The lock protects nothing else, and nothing is done under it.
    waiting: std::sync::Mutex<Option<Waiting>>,
    /// Set once, by the first request.
    begun: watch::Sender<bool>,
    /// Set once, when somebody asks for the hard stop at once.
    at_once: watch::Sender<bool>,
    /// The report, when there is one; closed without one when the task was lost.
    reported: watch::Receiver<Option<Arc<Report>>>,
}

struct Waiting {
    root: Work,
    steps: Steps,
    report: watch::Sender<Option<Arc<Report>>>,
    watchdogs: Vec<Trigger>,
}

/// A request to shut down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    issuer: Arc<str>,
    reason: Arc<str>,
    urgency: Urgency,
}

/// Whether work gets time to come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// As long as the drain lasts.
    Drain,
    /// None: straight to the hard stop.
    AtOnce,
}

/// What a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requested {
    /// It was the first one: the shutdown has begun.
    Began,
    /// It joined the shutdown that goes on, or is over.
    Joined,
}

impl Request {
    /// A request that lets work come to its end. The reason is what hard stops say and what new work is refused with.
    pub fn drain(issuer: impl Into<Arc<str>>, reason: impl Into<Arc<str>>) -> Request {
        Request { issuer: issuer.into(), reason: reason.into(), urgency: Urgency::Drain }
    }

    /// A request that goes straight to the hard stop.
    pub fn at_once(issuer: impl Into<Arc<str>>, reason: impl Into<Arc<str>>) -> Request {
        Request { issuer: issuer.into(), reason: reason.into(), urgency: Urgency::AtOnce }
    }
}

impl Shutdown {
    /// A shutdown that nobody has asked for yet, of the tree below `root`. Its task will run on `control`.
    pub fn new(control: Handle, root: Work, bounds: Bounds, steps: Steps) -> Shutdown {
        let (report, reported) = watch::channel(None);
        let tree = root.tree();
        let waiting = Waiting { root, steps, report, watchdogs: Vec::new() };
        let shared = Shared {
            control,
            tree,
            bounds,
            waiting: std::sync::Mutex::new(Some(waiting)),
            begun: watch::Sender::new(false),
            at_once: watch::Sender::new(false),
            reported,
        };
        Shutdown { shared: Arc::new(shared) }
    }

    /// Has a watchdog end the process should the shutdown hang, or what comes after it (D6). It is there from now on, and
    /// watches from the first request on, for as long as all steps may take and `slack` beyond. `say` and `end` are those of
    /// [`Watchdog::arm`]. Dropping it disarms it.
    ///
    /// # Errors
    ///
    /// When the operating system does not give the two threads that this takes.
    pub fn watched(
        &self,
        slack: Duration,
        say: impl FnOnce(&str) + Send + 'static,
        end: impl FnOnce() + Send + 'static,
    ) -> io::Result<Watchdog> {
        let bound = self.shared.bounds.total().saturating_add(slack);
        let watchdog = Watchdog::ready(self.shared.tree.clone(), bound, say, end)?;
        let trigger = watchdog.trigger();
        match self.shared.waiting().as_mut() {
            Some(waiting) => waiting.watchdogs.push(trigger),
            None => trigger.pull(),
        }
        Ok(watchdog)
    }

    /// Asks for the shutdown. When this returns, new work is refused. Waits for nothing; the shutdown goes on whether
    /// or not anybody waits for it.
    pub fn request(&self, request: &Request) -> Requested {
        if request.urgency == Urgency::AtOnce {
            self.shared.at_once.send_replace(true);
        }
        let waiting = self.shared.waiting().take();
        let Some(Waiting { root, steps, report, watchdogs }) = waiting else {
            return Requested::Joined;
        };
        // Before anything that could hang.
        watchdogs.into_iter().for_each(Trigger::pull);
        self.shared.begun.send_replace(true);
        root.close(Arc::clone(&request.reason));
        tracing::info!(issuer = %request.issuer, reason = %request.reason, "shutting down");
        let held = root.share();
        let drive = Drive {
            control: self.shared.control.clone(),
            tree: self.shared.tree.clone(),
            root,
            bounds: self.shared.bounds,
            stop: Stop::hard(Arc::clone(&request.issuer), Arc::clone(&request.reason)),
            at_once: self.shared.at_once.subscribe(),
            began: Instant::now(),
            steps: vec![StepReport {
                step: Step::Refuse,
                took: Duration::ZERO,
                ended: Ended::Done,
            }],
        };
        drop(spawn_charged(&self.shared.control, held, async move {
            let done = drive.run(steps).await;
            report.send_replace(Some(Arc::new(done)));
        }));
        Requested::Began
    }

    /// Waits until the last step is over. None when the runtime was taken down before that.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the shutdown goes on.
    pub async fn ended(&self) -> Option<Arc<Report>> {
        let mut reported = self.shared.reported.clone();
        let report = reported.wait_for(Option::is_some).await.ok()?;
        report.clone()
    }

    /// Waits until somebody asks for it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn begun(&self) {
        let mut begun = self.shared.begun.subscribe();
        // The sender is here.
        drop(begun.wait_for(|begun| *begun).await);
    }

    /// Whether anybody has asked for it.
    pub fn has_begun(&self) -> bool {
        self.shared.waiting().is_none()
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("has_begun", &self.has_begun()).finish_non_exhaustive()
    }
}

/// What becomes of a step that is waited for no longer.
#[derive(Clone, Copy)]
enum Late {
    /// It goes on: it may still do what it is for.
    Goes,
    /// It was nothing but a wait.
    IsDropped,
}

/// The task that takes the steps. It calls nothing foreign itself: all that could fail, panic or hang runs in a task of
/// its own.
struct Drive {
    control: Handle,
    tree: Tree,
    root: Work,
    bounds: Bounds,
    stop: Stop,
    at_once: watch::Receiver<bool>,
    began: Instant,
    steps: Vec<StepReport>,
}

impl Drive {
    async fn run(mut self, steps: Steps) -> Report {
        let Steps { tell_clients, revoke_tickets, stop_listeners, flush, report, exit } = steps;
        self.outside(Step::TellClients, tell_clients.map(|step| move || step())).await;
        let (settled, cut, left) = self.end_work().await;
        self.outside(Step::RevokeTickets, revoke_tickets.map(|step| move || step())).await;
        self.outside(Step::StopListeners, stop_listeners.map(|step| move || step())).await;
        self.outside(Step::Flush, flush.map(|step| move || step(settled))).await;
        let so_far = Arc::new(self.report(&cut, &left));
        self.outside(Step::Report, report.map(|step| move || step(so_far))).await;
        let so_far = Arc::new(self.report(&cut, &left));
        self.outside(Step::Exit, exit.map(|step| move || step(so_far))).await;
        self.report(&cut, &left)
    }

    /// Drain, hard stop and settle: what is left, and what was cut.
    async fn end_work(&mut self) -> (Settled, Vec<Piece>, Vec<Piece>) {
        let drained = self.drain(Step::Drain, self.bounds.drain).await;
        if let Some(proof) = drained {
            self.note(Step::HardStop, Duration::ZERO, Ended::NotNeeded);
            self.note(Step::Settle, Duration::ZERO, Ended::NotNeeded);
            return (Settled::Drained(proof), Vec::new(), Vec::new());
        }
        let (tree, root, stop) = (self.tree.clone(), self.root.id(), self.stop.clone());
        // Bodies are ended on the thread of whoever stops. One that hangs must not take a thread away that timers need.
        let stopped =
            apart(&self.control, self.root.share(), move || tree.stop_and_list(root, &stop));
        let hard_stop = async move {
            let stopped = stopped.await;
            Ok(stopped.map_err(|_| "the host failed while it stopped the work")??)
        };
        let seen = self.step(Step::HardStop, Late::Goes, hard_stop).await;
        let mut cut = Piece::all(&seen.unwrap_or_default());
        if let Some(proof) = self.drain(Step::Settle, self.bounds.settle).await {
            return (Settled::Drained(proof), cut, Vec::new());
        }
        // Not one of the steps, but it asks bodies what they do, so it is taken like one.
        let (tree, root) = (self.tree.clone(), self.root.id());
        let look = spawn_charged(&self.control, self.root.share(), async move {
            Piece::all(&tree.snapshot(root))
        });
        let left = match tokio::time::timeout(self.bounds.hard_stop, look).await {
            Ok(Ok(left)) => left,
            // Whoever was there at the stop and still is.
            Ok(Err(_)) | Err(_) => {
                cut.iter().filter(|piece| self.is_there(piece)).cloned().collect()
            }
        };
        cut.retain(|piece| left.iter().all(|left| left.id != piece.id));
        for piece in &left {
            tracing::warn!(%piece, "this work outlived the shutdown and is left alone");
        }
        (Settled::Left(left.clone()), cut, left)
    }

    fn is_there(&self, piece: &Piece) -> bool {
        piece.id.parse().is_ok_and(|id| self.tree.contains(id))
    }

    /// Waits until nothing is left, and notes that as a step.
    async fn drain(&mut self, step: Step, bound: Duration) -> Option<crate::work::Drained> {
        let (root, reason) = (self.root.share(), self.stop.message().to_owned());
        let wait = async move { Ok(root.drain(&reason, bound).await.ok()) };
        let drained = self.step(step, Late::IsDropped, wait).await?;
        if drained.is_none()
            && let Some(taken) = self.steps.last_mut()
        {
            taken.ended = Ended::TimedOut;
        }
        drained
    }

    /// A step of the caller, or nothing where none was given.
    async fn outside<F>(&mut self, step: Step, doing: Option<impl FnOnce() -> F + Send + 'static>)
    where
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        match doing {
            // What makes the future is foreign, too.
            Some(doing) => {
                let _done: Option<()> =
                    self.step(step, Late::Goes, async move { doing().await }).await;
            }
            None => self.note(step, Duration::ZERO, Ended::NotNeeded),
        }
    }

    /// Takes a step in a task of its own, within its bound, and notes how it ended.
    async fn step<T: Send + 'static>(
        &mut self,
        step: Step,
        late: Late,
        doing: impl Future<Output = Result<T, StepError>> + Send + 'static,
    ) -> Option<T> {
        let began = Instant::now();
        let bound = self.bounds.of(step);
        let hurries = matches!(step, Step::TellClients | Step::Drain);
        let mut task = spawn_charged(&self.control, self.root.share(), doing);
        let at_once = async {
            match hurries {
                true => self.at_once.wait_for(|at_once| *at_once).await.is_ok(),
                false => std::future::pending().await,
            }
        };
        let (ended, value) = tokio::select! {
            biased;
            done = &mut task => match done {
                Ok(Ok(value)) => (Ended::Done, Some(value)),
                Ok(Err(error)) => (Ended::Failed(words(&*error)), None),
                Err(error) if error.is_panic() => {
                    (Ended::Panicked(panic_words(&*error.into_panic())), None)
                }
                Err(_) => (Ended::Failed("the runtime is being taken down".to_owned()), None),
            },
            _ = at_once => (Ended::CutShort, None),
            () = tokio::time::sleep(bound) => (Ended::TimedOut, None),
        };
        if let (Late::IsDropped, Ended::CutShort | Ended::TimedOut) = (late, &ended) {
            task.abort();
        }
        self.note(step, began.elapsed(), ended);
        value
    }

    fn note(&mut self, step: Step, took: Duration, ended: Ended) {
        match ended.is_fine() {
            true => tracing::debug!(%step, %ended, "a step of the shutdown"),
            false => {
                tracing::warn!(%step, %ended, "a step of the shutdown did not end as it should")
            }
        }
        self.steps.push(StepReport { step, took, ended });
    }

    fn report(&self, cut: &[Piece], left: &[Piece]) -> Report {
        let report = Report {
            clean: Clean::NotClean,
            issuer: self.stop.issuer().to_owned(),
            reason: self.stop.message().to_owned(),
            took: self.began.elapsed(),
            steps: self.steps.clone(),
            cut: cut.to_vec(),
            left: left.to_vec(),
        };
        report.judged()
    }
}

/// An error with its causes, in one line.
fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn panic_words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}
