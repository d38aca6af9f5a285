//! The one door: every call from a guest to the host passes here, and nowhere else.
//!
//! What a guest may ask for sits behind [`Door`], whose fields nobody outside this file can reach. So a host
//! function that does not go through the door has nothing to call. Passing means: look at the stop, record the
//! call, charge the bytes in, do it, charge the bytes out. A call that waits can also be left early.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::limits::LimitKind;
use super::meter::Meter;
use super::outcome::Ends;
use super::purse::Purse;
use super::sandbox::Shared;
use super::upward::{Above, PluginHost, Waiting};
use super::wasi::Places;
use super::weigh::Weigh;
use crate::message::{Failure, FailureCode, Usage};
use crate::model::Spent;
use crate::work::{Activity, Stop, StopKind, StopSignal, Work};

/// The levels of log lines; a guest's other words count as `info`.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// What a log line costs beside its text, so that empty ones are not free.
const LINE_FRAME: usize = 32;

/// What a guest gets from a call: a value or a failure that it can read. The outer error ends the guest.
pub(super) type Answer<T> = wasmtime::Result<Result<T, Failure>>;

/// The door of one run.
pub(super) struct Door<H> {
    host: H,
    scope: Arc<Scope>,
}

/// What the door and the WASI interfaces of one run share. It holds a share of the run's work, and lives in the
/// store and nowhere else: it goes when the store goes.
pub(super) struct Scope {
    pub(super) work: Work,
    pub(super) signal: StopSignal,
    pub(super) meter: Arc<Meter>,
    log: Arc<dyn PluginHost>,
    /// What all runs share.
    pub(super) shared: Arc<Shared>,
    /// Places for blocking calls.
    pub(super) places: Places,
    /// Places for open files of this run. Made when the first file is opened.
    files: OnceLock<Arc<Semaphore>>,
    /// The guest has seen its soft stop; from then on calls that wait work again.
    observed: AtomicBool,
}

impl Scope {
    pub(super) fn new(
        work: Work,
        meter: Arc<Meter>,
        log: Arc<dyn PluginHost>,
        shared: Arc<Shared>,
        places: Places,
    ) -> Scope {
        let signal = work.signal();
        let files = OnceLock::new();
        Scope { work, signal, meter, log, shared, places, files, observed: AtomicBool::new(false) }
    }

    /// The runtime for everything that is not a guest.
    pub(super) fn control(&self) -> &Handle {
        self.shared.executor.control()
    }

    /// Places for open files of this run.
    pub(super) fn files(&self) -> &Arc<Semaphore> {
        let most = usize::try_from(self.meter.limits().open_files).unwrap_or(usize::MAX);
        self.files.get_or_init(|| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))))
    }

    /// Looks at the stop, records, and charges what the guest brings.
    pub(super) fn enter(&self, call: &'static str, bytes: usize) -> wasmtime::Result<()> {
        if self.signal.is_hard() {
            return Err(Ends::Stopped.into());
        }
        self.meter.record(call);
        self.charge(bytes)
    }

    /// Records a call of a WASI interface. The stop is looked at on the way into every host call, by the hook.
    pub(super) fn record(&self, interface: &'static str) {
        self.meter.record(interface);
    }

    /// Charges bytes that cross the door.
    pub(super) fn charge(&self, bytes: usize) -> wasmtime::Result<()> {
        self.meter.charge_door(bytes).map_err(|kind| Ends::Limit(kind).into())
    }

    /// The guest asked for more of something that it may hold so much of at one time.
    pub(super) fn asked(&self, kind: LimitKind, granted: bool) {
        self.meter.asked(kind, granted);
    }

    /// Charges and passes on a line for the log. Whoever takes it is an embedder's code: a panic in it ends this run.
    pub(super) fn log(&self, level: &str, message: &str) -> wasmtime::Result<()> {
        let level = LEVELS.into_iter().find(|known| *known == level).unwrap_or("info");
        let bytes = message.len() + LINE_FRAME;
        self.meter.charge_log(bytes).map_err(Ends::Limit)?;
        self.charge(LINE_FRAME)?;
        let log = AssertUnwindSafe(|| self.log.log(level, message));
        catch_unwind(log)
            .map_err(|_| Ends::Panicked("whoever takes the log lines".to_owned()).into())
    }

    /// Charges what the guest gets. An answer that is too large for one call becomes a failure that says so.
    fn leave<T: Weigh>(&self, call: &'static str, answer: Result<T, Failure>) -> Answer<T> {
        let bytes = match &answer {
            Ok(value) => value.weight(),
            Err(failure) => failure.message.len(),
        };
        if bytes as u64 > self.meter.limits().call_bytes {
            self.meter.reach(LimitKind::CallBytes);
            let limit = self.meter.limits().call_bytes;
            return Ok(Err(Failure::new(
                FailureCode::TooLarge,
                format!(
                    "the answer of {call} has {bytes} bytes, and one call may carry {limit}: ask for less"
                ),
            )));
        }
        self.charge(bytes)?;
        Ok(answer)
    }

    /// The failure by which a guest learns of its soft stop, the first time that it can.
    fn interruption(&self) -> Option<Failure> {
        if !self.signal.is_raised() || self.observed.load(Ordering::Relaxed) {
            return None;
        }
        self.observed.store(true, Ordering::Relaxed);
        let stop = self.signal.stop()?;
        let words = format!("stopped by {}: {}", stop.issuer(), stop.message());
        Some(Failure::new(FailureCode::Interrupted, words))
    }
}

/// A wait that the work of a run tells of until it is over or given up.
struct Wait<'a>(&'a Work);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.set_activity(None);
    }
}

/// About how many bytes of a request make a token.
const BYTES_PER_TOKEN: u64 = 4;

/// What a model request will be charged: what it was said to have used so far, or, as long as nothing was said, an
/// estimate of what it sent. A provider bills a request also when it fails or nobody waits for its end.
pub(super) struct Bill {
    meter: Arc<Meter>,
    estimate: u64,
    /// What the request was said to have used so far.
    pub(super) spent: Spent,
}

impl Bill {
    /// The request came to its end with an answer of so many bytes.
    pub(super) fn settle(mut self, usage: Usage, bytes: usize) {
        self.spent.set(usage);
        self.estimate += bytes as u64 / BYTES_PER_TOKEN;
    }
}

impl Drop for Bill {
    fn drop(&mut self) {
        if self.spent.is_free() {
            return;
        }
        let said = self.spent.get();
        // Some say what they wrote so far and nothing of what they read.
        let used =
            if said.input_tokens > 0 { said.total() } else { said.total().max(self.estimate) };
        self.meter.charge_tokens(used);
    }
}

impl<H: Above> Door<H> {
    pub(super) fn new(host: H, scope: Arc<Scope>) -> Door<H> {
        Door { host, scope }
    }

    /// What the door shares with the rest of its run.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// A call that is answered at once.
    pub(super) fn pass<T: Weigh>(
        &self,
        call: &'static str,
        bytes: usize,
        ask: impl FnOnce(&H) -> Result<T, Failure>,
    ) -> Answer<T> {
        self.scope.enter(call, bytes)?;
        self.scope.leave(call, ask(&self.host))
    }

    /// A call that may wait. A soft stop that the guest has not seen yet ends the wait with `interrupted`; a hard
    /// stop takes the guest away in the middle of it.
    pub(super) async fn wait<T: Weigh>(
        &self,
        call: &'static str,
        detail: Option<Arc<str>>,
        bytes: usize,
        ask: impl FnOnce(&H) -> Waiting<T>,
    ) -> Answer<T> {
        let scope = &*self.scope;
        scope.enter(call, bytes)?;
        if let Some(failure) = scope.interruption() {
            return scope.leave(call, Err(failure));
        }
        let mut waiting = ask(&self.host);
        if let std::task::Poll::Ready(answer) = futures::poll!(&mut waiting) {
            return scope.leave(call, answer);
        }
        scope.work.set_activity(Some(Activity { what: call, detail, since: Some(Instant::now()) }));
        let answer = if scope.observed.load(Ordering::Relaxed) {
            waiting.await
        } else {
            tokio::select! {
                biased;
                answer = &mut waiting => answer,
                _ = scope.signal.raised(StopKind::Soft) => {
                    // What the call was doing ends before the guest hears of the stop, but for calls that cannot be
                    // interrupted.
                    drop(waiting);
                    scope.work.alone().await;
                    match scope.interruption() {
                        Some(failure) => Err(failure),
                        None => Err(Failure::new(FailureCode::Interrupted, "stopped")),
                    }
                }
            }
        };
        scope.work.set_activity(None);
        scope.leave(call, answer)
    }

    /// A call that hands work to others, which carry every stop of this run themselves. A soft stop ends them and so
    /// the call, which says what became of them; one that comes before there are any is told in its place.
    pub(super) async fn see_through<T: Weigh>(
        &self,
        call: &'static str,
        detail: Option<Arc<str>>,
        bytes: usize,
        ask: impl FnOnce(&H, Purse) -> Waiting<T>,
    ) -> Answer<T> {
        let scope = &*self.scope;
        scope.enter(call, bytes)?;
        if let Some(failure) = scope.interruption() {
            return scope.leave(call, Err(failure));
        }
        let waiting = ask(&self.host, Purse::new(Arc::clone(&scope.meter)));
        scope.work.set_activity(Some(Activity { what: call, detail, since: Some(Instant::now()) }));
        let answer = waiting.await;
        scope.work.set_activity(None);
        if answer.as_ref().is_err_and(|failure| failure.code == FailureCode::Interrupted) {
            scope.observed.store(true, Ordering::Relaxed);
        }
        scope.leave(call, answer)
    }

    /// A call of a guest in a process of its own that may wait. The door in that process leaves it early for a soft stop;
    /// here it is dropped when that says so.
    pub(super) async fn relay<T: Weigh>(
        &self,
        call: &'static str,
        detail: Option<Arc<str>>,
        bytes: usize,
        ask: impl FnOnce(&H) -> Waiting<T>,
    ) -> Answer<T> {
        let scope = &*self.scope;
        scope.enter(call, bytes)?;
        let waiting = ask(&self.host);
        scope.work.set_activity(Some(Activity { what: call, detail, since: Some(Instant::now()) }));
        let _wait = Wait(&scope.work);
        let answer = waiting.await;
        scope.leave(call, answer)
    }

    /// What a run in a process of its own can hand out.
    pub(super) fn purse(&self) -> Purse {
        Purse::new(Arc::clone(&self.scope.meter))
    }

    /// A line for the log.
    pub(super) fn log(&self, level: &str, message: &str) -> wasmtime::Result<()> {
        self.scope.enter("log.write", message.len())?;
        self.scope.log(level, message)
    }

    /// The soft stop of the run. Asking counts as having seen it.
    pub(super) fn stop_requested(&self) -> wasmtime::Result<Option<Stop>> {
        self.scope.enter("run.stop-requested", 0)?;
        let stop = self.scope.signal.soft();
        if stop.is_some() {
            self.scope.observed.store(true, Ordering::Relaxed);
        }
        Ok(stop)
    }

    /// The budgets of the run.
    pub(super) fn budgets(&self) -> wasmtime::Result<Vec<crate::work::BudgetUse>> {
        self.scope.enter("run.budgets", 0)?;
        Ok(self.scope.meter.all_budgets())
    }

    /// The stop that a failure with the code `interrupted` speaks of.
    pub(super) fn stop_of(&self, failure: &Failure) -> Option<Stop> {
        (failure.code == FailureCode::Interrupted).then(|| self.scope.signal.stop()).flatten()
    }

    /// How many of so many calls are at work at one time. The others wait for their turn.
    pub(super) fn at_once(&self, calls: usize) -> usize {
        let most = self.scope.meter.limits().calls_in_flight;
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
        if calls > most {
            self.scope.meter.reach(LimitKind::CallsInFlight);
        }
        most
    }

    /// Refuses a model request where no tokens are left: the run ends, because no answer could help it.
    pub(super) fn check_tokens(&self) -> wasmtime::Result<()> {
        match self.scope.meter.tokens_left() {
            Some(0) => Err(Ends::Limit(LimitKind::ModelTokens).into()),
            Some(_) | None => Ok(()),
        }
    }

    /// The bill of a model request that may read that many bytes. It is charged whatever becomes of the request.
    pub(super) fn bill(&self, bytes: usize) -> Bill {
        let estimate = bytes as u64 / BYTES_PER_TOKEN;
        Bill { meter: Arc::clone(&self.scope.meter), estimate, spent: Spent::default() }
    }

    /// How many tokens are left; none where there is no bound.
    pub(super) fn tokens_left(&self) -> Option<u64> {
        self.scope.meter.tokens_left()
    }
}
