//! The one place where admission happens.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{FutureExt, join_all, select};
use tokio::sync::Notify;

use super::admission::{Ask, Bounds, Capacity, Decision, WithoutSlot};
use super::completions::{Completions, Entered, Progress};
use super::id::{CallId, DelegationId};
use super::limits::{DelegationLimit, DelegationLimits};
use super::policy::Policy;
use super::recorder::Recorder;
use super::refusal::{Reason, Rejected, Then};
use super::scheduler::{AtOnce, Scheduler, SchedulerRefusal, UnitRequest};
use super::unit::{Ending, Unit};
use crate::ids::SessionId;
use crate::metrics::{Counter, Counts};
use crate::work::{Kind, StopKind, Work};

/// The background capacity of a host. Cheap to clone; every clone is the same capacity.
#[derive(Clone)]
pub struct Slots {
    shared: Arc<Shared>,
}

/// What an embedder may supply.
#[derive(Clone)]
pub struct Hooks {
    /// Has a say before capacity is asked for.
    pub scheduler: Arc<dyn Scheduler>,
    /// The number of the first unit: one more than the last that was ever written down.
    pub first_id: u64,
}

impl Default for Hooks {
    fn default() -> Self {
        Hooks { scheduler: Arc::new(AtOnce), first_id: 1 }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("first_id", &self.first_id).finish_non_exhaustive()
    }
}

struct Shared {
    limits: DelegationLimits,
    hooks: Hooks,
    /// Protects slots and line. Nothing is called under it, and no other lock is taken.
    state: Mutex<State>,
    next_id: AtomicU64,
    next_call: AtomicU64,
    figures: AdmissionFigures,
}

/// What was let in, and what was not and why.
#[derive(Debug, Default)]
pub struct AdmissionFigures {
    /// Background units.
    pub units: Admitted,
    /// Turns of sessions.
    pub turns: Admitted,
    /// Runs and questions beside turns.
    pub sides: Admitted,
    /// Runs that begin by the clock, each in a turn.
    pub schedules: Admitted,
}

/// What was let in of one kind of work.
#[derive(Debug)]
pub struct Admitted {
    /// What was let in.
    pub accepted: Counter,
    /// What was not, by [`Reason::code`] or as the session says.
    pub refused: Counts<&'static str, 9>,
}

/// Why something is not let in.
const REASONS: [&str; 9] = [
    "busy",
    "capacity",
    "scheduler",
    "draining",
    "store",
    "stopped",
    "one-shot",
    "ownership",
    "agent",
];

impl Default for Admitted {
    fn default() -> Self {
        Admitted { accepted: Counter::default(), refused: Counts::new(&REASONS) }
    }
}

struct State {
    capacity: Capacity,
    /// How those in line are called.
    line: BTreeMap<DelegationId, Arc<Notify>>,
}

/// Where the units of a call belong.
pub struct Origin {
    /// The session that gets the completions.
    pub session: SessionId,
    /// The node that owns the session's background units.
    pub registry: Work,
    /// The session's book.
    pub completions: Completions,
    /// Whether the session will be there to read them.
    pub receives: Receives,
    /// Writes down what is promised to it.
    pub recorder: Arc<dyn Recorder>,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Whether a session can receive a result after the call (A11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Receives {
    /// It goes on, and is woken by a completion.
    Later,
    /// It is over when the run is: all units run inside the call.
    Never,
}

/// One child of a unit, ready to be started.
#[derive(Debug)]
pub struct Child {
    /// The place of its task in the call.
    pub task: u32,
    /// What it was asked to do, in a few words for whoever reads the completion.
    pub goal: String,
    /// The hold on its node, which the turn opened.
    pub work: Work,
}

/// What became of a submitted unit.
#[derive(Debug)]
pub enum Admission {
    /// It is in the background, and its session's registry owns it.
    Accepted(Unit),
    /// It is not, and nothing has changed.
    Rejected(Rejected),
}

/// How much of the capacity is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotsUsed {
    /// Slots that are held.
    pub held: u64,
    /// Units in line.
    pub waiting: u64,
}

impl Slots {
    /// Capacity within those limits.
    pub fn new(limits: DelegationLimits, hooks: Hooks) -> Slots {
        let bounds = Bounds {
            host: limits.units_per_host,
            session: limits.units_per_session,
            line: limits.queued_units,
        };
        let state = State { capacity: Capacity::new(bounds), line: BTreeMap::new() };
        let next_id = AtomicU64::new(hooks.first_id);
        let shared = Shared {
            limits,
            hooks,
            state: Mutex::new(state),
            next_id,
            next_call: AtomicU64::new(1),
            figures: AdmissionFigures::default(),
        };
        Slots { shared: Arc::new(shared) }
    }

    /// The limits.
    pub fn limits(&self) -> &DelegationLimits {
        &self.shared.limits
    }

    /// Begins a delegating call. Its units are submitted through it, one at a time and in order (A6).
    pub fn call(&self, origin: Origin, policy: Policy) -> Call {
        let id = CallId(self.shared.next_call.fetch_add(1, Ordering::SeqCst));
        Call { slots: self.clone(), id, origin, policy, fate: Fate::Undecided }
    }

    /// Nothing is admitted from now on (D2): who is in line leaves it, and what is accepted goes on.
    pub fn close(&self, reason: impl Into<Arc<str>>) {
        let reason = reason.into();
        self.shared.change(|capacity| capacity.close(reason));
    }

    /// Numbers units from that one on, if they are not there yet: for a store whose units had numbers below it.
    pub fn number_from(&self, first: u64) {
        self.shared.next_id.fetch_max(first, Ordering::SeqCst);
    }

    /// Takes that many numbers for units that were numbered elsewhere, and says the first.
    pub fn take_numbers(&self, count: u64) -> u64 {
        self.shared.next_id.fetch_add(count, Ordering::SeqCst)
    }

    /// What was let in so far.
    pub fn figures(&self) -> &AdmissionFigures {
        &self.shared.figures
    }

    /// How much is taken now.
    pub fn used(&self) -> SlotsUsed {
        let state = self.shared.lock();
        SlotsUsed { held: state.capacity.used(), waiting: state.capacity.waiting() }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("used", &self.used()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Changes the capacity, and calls those in line whose answer is another one by it.
    fn change<R>(&self, change: impl FnOnce(&mut Capacity) -> R) -> R {
        let (changed, called) = {
            let mut state = self.lock();
            let changed = change(&mut state.capacity);
            let called = state.capacity.called();
            let called: Vec<_> =
                called.iter().filter_map(|id| state.line.get(id).cloned()).collect();
            (changed, called)
        };
        called.iter().for_each(|waiting| waiting.notify_one());
        changed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One delegating call.
#[derive(Debug)]
pub struct Call {
    slots: Slots,
    id: CallId,
    origin: Origin,
    policy: Policy,
    fate: Fate,
}

/// What the first unit of a call decides for those behind it (A4, A5).
#[derive(Debug)]
enum Fate {
    Undecided,
    /// The first was accepted: each of the others is decided by itself.
    Background,
    /// The first was rejected, and with it the whole call.
    Rejected(Reason),
}

impl Call {
    /// Its name.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Submits the next unit. The turn owns the children until the answer is [`Admission::Accepted`]; then the
    /// registry does, and did so from one step on. A stop does not end the admission: the children carry it to
    /// wherever they go (A7, H1, H2), but a unit in line of which all children carry a stop leaves the line.
    ///
    /// Run a unit that is to run inline before you submit the next one (A6).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back whatever was taken, and ends the children.
    pub async fn submit(&mut self, children: Vec<Child>) -> Admission {
        let shared = Arc::clone(&self.slots.shared);
        let request = UnitRequest {
            id: DelegationId(shared.next_id.fetch_add(1, Ordering::SeqCst)),
            call: self.id,
            origin: self.origin.session.clone(),
            tasks: children.iter().map(|child| child.task).collect(),
            goals: children.iter().map(|child| child.goal.clone()).collect(),
            policy: self.policy,
        };
        let admission = match self.may_enter(&request, &children).await {
            Ok(place) => self.accept(place, children),
            Err(reason) => Err((reason, children)),
        };
        match admission {
            Ok(unit) => {
                shared.figures.units.accepted.one();
                self.fate = Fate::Background;
                Admission::Accepted(unit)
            }
            Err((reason, children)) => {
                shared.figures.units.refused.of(reason.code()).one();
                if let Fate::Undecided = self.fate {
                    self.fate = Fate::Rejected(reason.clone());
                }
                Admission::Rejected(Rejected {
                    id: request.id,
                    reason,
                    then: Then::by(self.policy),
                    children,
                })
            }
        }
    }

    /// Everything that may take time, up to and with the slot and the record. Nothing of it touches the children.
    async fn may_enter(&self, request: &UnitRequest, children: &[Child]) -> Result<Place, Reason> {
        let shared = &self.slots.shared;
        if let Fate::Rejected(reason) = &self.fate {
            return Err(reason.clone());
        }
        if self.origin.receives == Receives::Never {
            return Err(Reason::OneShot);
        }
        ask(&*shared.hooks.scheduler, request).await.map_err(Reason::Scheduler)?;
        let bound = shared.limits.unread_completions;
        let progress = Arc::new(Progress::new(request.id, request.origin.clone(), children));
        let unread = Reason::Capacity { limit: DelegationLimit::UnreadCompletions, allowed: bound };
        let entered = self.origin.completions.enter(Arc::clone(&progress), bound).ok_or(unread)?;
        let slot = self.slot(request, &progress).await?;
        let work = self.origin.registry.open(Kind::Unit, request.id.to_string());
        let work =
            work.map_err(|refused| Reason::Draining { words: refused.to_string().into() })?;
        let written = write(&self.origin.recorder, request).await?;
        Ok(Place { slot, entered, progress, work, written })
    }

    /// Gets the slot, now or after a wait in line.
    async fn slot(&self, request: &UnitRequest, progress: &Progress) -> Result<Slot, Reason> {
        let UnitRequest { id, call, policy, .. } = *request;
        let shared = &self.slots.shared;
        let asks = Ask { id, call, session: self.origin.registry.id() };
        let without = match policy {
            Policy::Queue => WithoutSlot::Wait,
            Policy::Inline | Policy::Refuse => WithoutSlot::Leave,
        };
        let mut in_line: Option<InLine> = None;
        loop {
            let called = match &in_line {
                Some(in_line) => Arc::clone(&in_line.called),
                None => Arc::new(Notify::new()),
            };
            let decision = {
                let mut state = shared.lock();
                let decision = state.capacity.decide(&asks, without);
                if let (Decision::Waits { .. }, None) = (&decision, &in_line) {
                    state.line.insert(id, Arc::clone(&called));
                }
                decision
            };
            match decision {
                Decision::Accepted => return Ok(Slot { shared: Arc::clone(shared), call }),
                Decision::Closed(words) => return Err(Reason::Draining { words }),
                Decision::Full(limit) => {
                    return Err(Reason::Capacity { limit, allowed: self.allowed(limit) });
                }
                Decision::LineFull => {
                    let limit = DelegationLimit::QueuedUnits;
                    return Err(Reason::Capacity { limit, allowed: self.allowed(limit) });
                }
                Decision::Waits { .. } => {
                    let in_line = in_line.get_or_insert_with(|| InLine {
                        shared: Arc::clone(shared),
                        id,
                        called,
                    });
                    let signals = progress.signals();
                    let stopped =
                        join_all(signals.iter().map(|child| child.raised(StopKind::Soft)));
                    let called = std::pin::pin!(in_line.called.notified());
                    if let futures::future::Either::Left(_) =
                        select(std::pin::pin!(stopped), called).await
                    {
                        return Err(Reason::Stopped);
                    }
                }
            }
        }
    }

    fn allowed(&self, limit: DelegationLimit) -> u64 {
        let limits = &self.slots.shared.limits;
        match limit {
            DelegationLimit::Depth => limits.depth,
            DelegationLimit::ChildrenPerCall => limits.children_per_call,
            DelegationLimit::DescendantsPerTree => limits.descendants_per_tree,
            DelegationLimit::UnitsPerHost => limits.units_per_host,
            DelegationLimit::UnitsPerSession => limits.units_per_session,
            DelegationLimit::QueuedUnits => limits.queued_units,
            DelegationLimit::UnreadCompletions => limits.unread_completions,
        }
    }

    /// The step (A2): with the slot in hand and the record written, and without an await, the children change their owner.
    /// What goes wrong on the way drops the slot, the entry in the book, the record and the unit's node, and the children
    /// have not moved.
    fn accept(&self, place: Place, children: Vec<Child>) -> Result<Unit, (Reason, Vec<Child>)> {
        let Place { slot, entered, progress, work, written } = place;
        let moving: Vec<&Work> = children.iter().map(|child| &child.work).collect();
        if let Err(refused) = work.adopt(&moving) {
            return Err((Reason::Ownership(refused), children));
        }
        written.stands();
        entered.accept(work.id());
        let (completions, recorder) =
            (self.origin.completions.clone(), Arc::clone(&self.origin.recorder));
        let ending = Ending::new(progress, completions, recorder, slot);
        Ok(Unit::new(children, ending, work))
    }
}

/// Writes down that a unit is accepted. Whatever the recorder does, there is an answer; what was begun is withdrawn when
/// the answer is dropped.
async fn write(recorder: &Arc<dyn Recorder>, request: &UnitRequest) -> Result<Written, Reason> {
    let written = Written { recorder: Arc::clone(recorder), unit: request.id, stands: false };
    let answer = match catch_unwind(AssertUnwindSafe(|| recorder.accepted(request))) {
        Ok(answer) => AssertUnwindSafe(answer).catch_unwind().await,
        Err(panic) => Err(panic),
    };
    let words = match answer {
        Ok(Ok(())) => return Ok(written),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the recorder panicked".to_owned(),
    };
    // There is nothing to withdraw.
    written.stands();
    Err(Reason::Store { words: words.into() })
}

/// A record that a unit is accepted. Dropping it withdraws the unit, until it stands.
struct Written {
    recorder: Arc<dyn Recorder>,
    unit: DelegationId,
    stands: bool,
}

impl Written {
    fn stands(mut self) {
        self.stands = true;
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if self.stands {
            return;
        }
        if catch_unwind(AssertUnwindSafe(|| self.recorder.withdrawn(self.unit))).is_err() {
            tracing::error!(unit = %self.unit, "the recorder panicked when a unit was withdrawn");
        }
    }
}

/// Asks the scheduler. Whatever it does, there is an answer.
async fn ask(scheduler: &dyn Scheduler, request: &UnitRequest) -> Result<(), SchedulerRefusal> {
    let panicked = || SchedulerRefusal::new("it panicked");
    let answer =
        catch_unwind(AssertUnwindSafe(|| scheduler.admit(request))).map_err(|_| panicked())?;
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| Err(panicked()))
}

/// What a unit holds between its slot and its acceptance. Dropping it gives all of it back.
struct Place {
    slot: Slot,
    entered: Entered,
    progress: Arc<Progress>,
    written: Written,
    work: Work,
}

/// A share in the slot of a call. Dropping it gives it back.
pub(super) struct Slot {
    shared: Arc<Shared>,
    call: CallId,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.change(|capacity| capacity.release(self.call));
    }
}

/// A place in line. Dropping it leaves the line.
struct InLine {
    shared: Arc<Shared>,
    id: DelegationId,
    called: Arc<Notify>,
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.shared.lock().line.remove(&self.id);
        self.shared.change(|capacity| capacity.leave_line(self.id));
    }
}
