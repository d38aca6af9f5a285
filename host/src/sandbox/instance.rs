//! One run: a store of its own, an instance, one call, and its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures::future::BoxFuture;
use tracing::Instrument;
use wasmtime::{CallHook, Engine, Store, UpdateDeadline};

use super::door::{Door, Scope};
use super::engine::Nudge;
use super::figures::RunFigures;
use super::guest::Guest;
use super::limits::{LimitKind, Limits};
use super::meter::{Limiter, Meter};
use super::outcome::{Ends, Report, conclude};
use super::reach::Reach;
use super::sandbox::Shared;
use super::upward::{Above, PluginHost};
use super::wasi::{Gate, Places, WasiState};
use super::worker::Fate;
use crate::message::Failure;
use crate::work::{Kind, Running, StopKind, Work};

/// What a guest's export gives: the outer error ended it.
pub(super) type Returned<T> = wasmtime::Result<Result<T, Failure>>;

/// A run that was started. Await its end; drop it and the run is stopped hard.
#[must_use = "dropping it stops the run"]
#[derive(Debug)]
pub struct Run<T> {
    running: Running<Returned<T>>,
    heeds: StopKind,
    /// What became of its process, where it has one of its own.
    fate: Option<Fate>,
    tally: Tally,
}

/// Counts the end of a run, once and in every case.
#[derive(Debug)]
pub(super) struct Tally {
    figures: Arc<RunFigures>,
    kind: Kind,
    meter: Arc<Meter>,
    counted: bool,
}

impl Tally {
    pub(super) fn new(shared: &Arc<Shared>, work: &Work, meter: &Arc<Meter>) -> Tally {
        let (figures, meter) = (Arc::clone(&shared.figures), Arc::clone(meter));
        Tally { figures, kind: work.kind(), meter, counted: false }
    }

    fn ended<T>(&mut self, report: &Report<T>) {
        if !std::mem::replace(&mut self.counted, true) {
            self.figures.ended(self.kind, report);
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if !self.counted {
            self.figures.given_up(self.kind, &self.meter.used());
        }
    }
}

impl<T> Run<T> {
    /// A run in a process of its own.
    pub(super) fn apart(
        running: Running<Returned<T>>,
        tally: Tally,
        heeds: StopKind,
        fate: Fate,
    ) -> Run<T> {
        Run { running, heeds, fate: Some(fate), tally }
    }

    /// The name of its work.
    pub fn id(&self) -> crate::ids::WorkId {
        self.running.id()
    }

    /// Waits until the run has ended and its store is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the run hard.
    pub async fn ended(mut self) -> Report<T> {
        self.wait().await
    }

    /// The same for whoever keeps the run, and may want to know by [`try_ended`](Run::try_ended) what became of it when
    /// the wait is given up.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the run goes on.
    pub(crate) async fn wait(&mut self) -> Report<T> {
        let ended = self.running.wait().await;
        let lost = self.fate.as_ref().and_then(Fate::lost);
        let report = conclude(ended, &self.tally.meter, self.heeds, lost);
        self.tally.ended(&report);
        report
    }

    /// What became of the run, if it has ended.
    pub(crate) fn try_ended(&mut self) -> Option<Report<T>> {
        // What becomes of its process may still be open.
        let ended = self.running.try_ended()?;
        let report = conclude(ended, &self.tally.meter, self.heeds, None);
        self.tally.ended(&report);
        Some(report)
    }
}

/// What a run is started with.
#[derive(Debug)]
pub struct Start<H> {
    /// The node that the run is charged to.
    pub work: Work,
    /// How much it may use.
    pub limits: Limits,
    /// What it can reach.
    pub reach: Arc<Reach>,
    /// What its imports ask.
    pub host: H,
}

impl<H> Start<H> {
    /// The same start, with the side above in the form that a store keeps.
    pub(super) fn above<A>(self, form: impl FnOnce(H) -> A) -> Start<A> {
        Start { work: self.work, limits: self.limits, reach: self.reach, host: form(self.host) }
    }
}

/// Starts a run, which is counted by `meter`: `call` comes to the one call that it makes, or to the failure that it ends with before there is a
/// store.
pub(super) fn start<H, T, C>(
    shared: &Arc<Shared>,
    nudge: Nudge,
    meter: Arc<Meter>,
    start: Start<H>,
    log: Arc<dyn PluginHost>,
    call: impl Future<Output = Result<C, Failure>> + Send + 'static,
) -> Run<T>
where
    H: Above,
    T: Output,
    C: AsyncCall<H, T>,
{
    let Start { work, limits, reach, host } = start;
    set_deadline(&work, &limits);
    let places = Places::new(&reach.share, &shared.blocking);
    let tally = Tally::new(shared, &work, &meter);
    let scope = Scope::new(work.share(), Arc::clone(&meter), log, Arc::clone(shared), places);
    let execution = execute(scope, reach, host, call).in_current_span();
    let running =
        shared.executor.start(work, nudge, meter as Arc<dyn crate::work::Gauge>, execution);
    Run { running, heeds: H::HEEDS, fate: None, tally }
}

/// Ends the work of a run with its time.
pub(super) fn set_deadline(work: &Work, limits: &Limits) {
    if let Some(deadline) = limits.wall_time.and_then(|wall| Instant::now().checked_add(wall)) {
        work.set_deadline(deadline);
    }
}

/// The one call that a run makes of its component.
pub(super) trait AsyncCall<H: Above, T>: Send + 'static {
    /// The engine of its code.
    fn engine(&self) -> &Engine;

    /// Instantiates and calls.
    fn call<'a>(self, store: &'a mut Store<Guest<H>>) -> BoxFuture<'a, Returned<T>>;
}

/// A result whose size is bounded.
pub(super) trait Output: Send + 'static {
    /// Its bytes.
    fn bytes(&self) -> usize;
}

impl Output for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Output for Vec<crate::message::ToolSpec> {
    fn bytes(&self) -> usize {
        super::weigh::Weigh::weight(self)
    }
}

async fn execute<H, T, C>(
    scope: Scope,
    reach: Arc<Reach>,
    host: H,
    call: impl Future<Output = Result<C, Failure>>,
) -> Returned<T>
where
    H: Above,
    T: Output,
    C: AsyncCall<H, T>,
{
    let call = match call.await {
        Ok(call) => call,
        Err(failure) => return Ok(Err(failure)),
    };
    let scope = Arc::new(scope);
    let gate = Arc::clone(&scope) as Arc<dyn Gate>;
    let wasi = match WasiState::open(reach, gate, Arc::clone(&scope.shared.outside)).await {
        Ok(wasi) => wasi,
        Err(error) => return Err(Ends::NotStarted(error.to_string()).into()),
    };
    let meter = Arc::clone(&scope.meter);
    let guest =
        Guest::new(Door::new(host, Arc::clone(&scope)), wasi, Limiter::new(Arc::clone(&meter)));
    let mut store = Store::new(call.engine(), guest);
    govern(&mut store, &scope)?;
    // The deadline is set by now: a stop before it would have been missed, so look only after it.
    if scope.signal.is_hard() {
        return Err(Ends::Stopped.into());
    }
    let returned = call.call(&mut store).await;
    // A store that counts none would answer with an error, and an error is dear: it carries a backtrace.
    if meter.limits().fuel.is_some()
        && let Ok(left) = store.get_fuel()
    {
        meter.set_fuel_left(left);
    }
    let returned = returned?;
    store.data_mut().flush_output()?;
    let bytes = match &returned {
        Ok(value) => value.bytes(),
        Err(failure) => failure.message.len(),
    };
    if bytes as u64 > meter.limits().output_bytes {
        return Err(Ends::Limit(LimitKind::OutputBytes).into());
    }
    Ok(returned)
}

/// How much a guest burns before that is looked at: compiled code keeps what it burns to itself until it makes a call or
/// has used up what it was handed. Some ten milliseconds of a tight loop.
const FUEL_BETWEEN_LOOKS: u64 = 20_000_000;

/// Puts a store under its limits and its stop. Must come before anything of the guest is instantiated.
fn govern<H: Above>(store: &mut Store<Guest<H>>, scope: &Scope) -> wasmtime::Result<()> {
    let limits = scope.meter.limits();
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    store.limiter(|guest| &mut guest.limiter);
    store.set_hostcall_fuel(size(limits.call_bytes));
    store.set_max_component_handles(size(limits.handles));
    if let Some(fuel) = limits.fuel {
        let unmetered = |_| {
            Ends::NotStarted(
                "its code was loaded without a fuel limit, so none can be enforced".to_owned(),
            )
        };
        store.set_fuel(fuel).map_err(unmetered)?;
        store.fuel_async_yield_interval(Some(FUEL_BETWEEN_LOOKS))?;
    }
    store.set_epoch_deadline(1);
    let metered = limits.fuel.is_some();
    let mut seen = scope.shared.ticks.load(Ordering::Relaxed);
    store.epoch_deadline_callback(move |context| {
        let scope = context.data().door().scope();
        if scope.signal.is_hard() {
            return Err(Ends::Stopped.into());
        }
        let now = scope.shared.ticks.load(Ordering::Relaxed);
        if now == seen {
            // The epoch was bumped for somebody else's stop.
            return Ok(UpdateDeadline::Continue(1));
        }
        seen = now;
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
    });
    store.call_hook(move |mut context, hook| {
        match hook {
            CallHook::CallingHost => {
                let scope = context.data().door().scope();
                if scope.signal.is_hard() {
                    return Err(Ends::Stopped.into());
                }
                // Also on the way into the engine itself, for more fuel.
                if metered && let Ok(left) = context.get_fuel() {
                    scope.meter.set_fuel_left(left);
                }
            }
            // A guest's code is also entered inside a host call, to allocate what the host has for it.
            CallHook::CallingWasm | CallHook::ReturningFromHost => {
                let meter = &context.data().door().scope().meter;
                meter.enters_guest();
                if metered
                    && let Some((out, back)) = meter.fuel_that_changed_hands()
                    && let Ok(left) = context.get_fuel()
                {
                    context.set_fuel(left.saturating_sub(out).saturating_add(back))?;
                }
            }
            CallHook::ReturningFromWasm => {}
        }
        Ok(())
    });
    Ok(())
}
