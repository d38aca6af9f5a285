//! The session, and the turn that answers one of its inputs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::background::{Agents, Background, Delivery};
use super::deliver::deliver;
use super::driver::Checkpoints;
use super::event::EventKind;
use super::memory::Memory;
use super::record::ToolAnswer;
use super::restore::Restored;
use super::run::{Begun, Plan, RunReport, begin};
use super::side::Numbers;
use super::stream::{Entry, Events, Receipt, Stream};
use super::turn::{Effect, Generation, State, Step};
use crate::delegation::{
    Completion, Completions, DelegationId, Descendants, UnitView, UnknownUnit,
};
use crate::ids::{SessionId, WorkId};
use crate::message::{Message, Role};
use crate::model::Models;
use crate::sandbox::{AgentCode, LimitKind, Outcome, Reach, Reached, Sandbox, Used};
use crate::store::{Body, Change, Class, Store, StoreError};
use crate::tool::{Plugged, Toolbox};
use crate::work::{Activity, Kind, Refused, Stop, StopKind, StopSignal, Work, spawn_charged};

/// How many messages a session remembers.
pub(super) const REMEMBERED: usize = 10_000;

/// How many bytes of them.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// How long the end of a turn waits to be recorded before it is reported all the same. It is owed then, and written as soon as
/// the store takes writes again.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);

/// How long a turn that was stopped hard before its beginning is recorded waits for that. Then whoever waits for it is told; its
/// node stays until the store has answered.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

/// An agent that is ready to run: its code, what it may touch and call.
pub struct Agent {
    /// The plugin's side.
    pub plugged: Plugged,
    /// The code.
    pub code: AgentCode,
    /// What its own WASI can reach.
    pub reach: Arc<Reach>,
    /// The tools that it may call.
    pub toolbox: Toolbox,
    /// The models there are; which of them it may ask is among its grants.
    pub models: Models,
    /// Where the agents are found that it hands tasks to.
    pub agents: Arc<dyn Agents>,
    /// The directories that its tools can reach, as they name them.
    pub directories: Vec<String>,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("name", &self.plugged.name).finish_non_exhaustive()
    }
}

/// A conversation with one agent. Cheap to clone; dropping the last clone ends nothing that runs.
#[derive(Clone)]
pub struct Session {
    pub(super) shared: Arc<Shared>,
}

/// What a session is made of.
pub struct Parts {
    /// Its name.
    pub id: SessionId,
    /// Its node, of the kind [`Kind::Session`].
    pub work: Work,
    /// Where its guests run.
    pub sandbox: Sandbox,
    /// The agent that answers its inputs.
    pub agent: Arc<Agent>,
    /// Who hears of the places that its runs name.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// What it needs for work that outlives a turn.
    pub background: Background,
    /// Where it is recorded. It was created there.
    pub store: Arc<dyn Store>,
    /// What it goes on from; the default for a new session.
    pub restored: Restored,
    /// The name of its profile; none outside one.
    pub profile: Option<Arc<str>>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What a session's runs share.
pub(super) struct Shared {
    pub(super) id: SessionId,
    /// The name of its profile; none outside one.
    pub(super) profile: Option<Arc<str>>,
    pub(super) work: Work,
    /// Owns what runs in the background: a stop of the turn does not reach it (S6).
    pub(super) registry: Work,
    pub(super) sandbox: Sandbox,
    /// Who answers from now on.
    pub(super) agent: Mutex<Arc<Agent>>,
    pub(super) background: Background,
    pub(super) store: Arc<dyn Store>,
    pub(super) stream: Stream,
    /// The book of its background units.
    pub(super) completions: Completions,
    pub(super) memory: Memory,
    pub(super) checkpoints: Arc<dyn Checkpoints>,
    pub(super) messages: Mutex<Vec<Arc<Message>>>,
    /// The turn machine, and the work of the run that it says is going on. Together under one lock, so that a
    /// stop never hits another run than the one it names.
    pub(super) turn: Mutex<(State, Option<WorkId>)>,
    /// Woken when a turn has ended.
    pub(super) idle: Notify,
    /// How many runs may still be started until somebody prompts the session again: turns that completions bring go on
    /// with what the turn before them had left, so that no session keeps itself awake for ever.
    pub(super) descendants: Mutex<Descendants>,
    /// The names of side runs. Held while one is claimed, so that no more of them are let in than may be.
    pub(super) sides: Mutex<Numbers>,
    /// A person has stopped the session and has not prompted it since: completions do not wake it.
    pub(super) quiet: AtomicBool,
    /// Those who wait for the session to be idle stand in line here, first come, first served.
    pub(super) line: tokio::sync::Mutex<()>,
}

impl Shared {
    /// Who answers from now on.
    pub(super) fn agent(&self) -> Arc<Agent> {
        Arc::clone(&lock(&self.agent))
    }

    /// The newest messages, in their order: at most `limit`, and no more than `bytes` of them.
    pub(super) fn history(&self, limit: u32, bytes: usize) -> Vec<Message> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let messages = lock(&self.messages);
        let newest = &messages[from(&messages, limit, bytes)..];
        newest.iter().map(|message| Message::clone(message)).collect()
    }

    /// Waits for the end of a run, and meanwhile tells watchers of the stops that it comes to carry, whoever gave
    /// them. All of them are told before this returns, so that no stop follows the end of its run.
    pub(super) async fn told_of_stops<T>(
        &self,
        run: &Arc<str>,
        signal: &StopSignal,
        ended: impl Future<Output = T>,
    ) -> T {
        let mut ended = std::pin::pin!(ended);
        let mut told = None;
        loop {
            let next = match told {
                None => StopKind::Soft,
                Some(_) => StopKind::Hard,
            };
            let ended = tokio::select! {
                biased;
                _ = signal.raised(next), if told != Some(StopKind::Hard) => None,
                ended = &mut ended => Some(ended),
            };
            // One look, so that none is counted as told that was given since.
            let now = signal.stop();
            let soft = now.as_ref().filter(|_| told.is_none()).and_then(|_| signal.soft());
            let hard = now
                .clone()
                .filter(|stop| stop.kind() == StopKind::Hard && told != Some(StopKind::Hard));
            // The end of its time is not something that anybody asked for.
            for stop in [soft, hard.filter(|_| !signal.expired())].into_iter().flatten() {
                let (message, issuer) = (stop.message().to_owned(), stop.issuer().to_owned());
                tracing::info!(session = %self.id, %run, kind = %stop.kind(), ?issuer, ?message, "a stop");
                self.stream.publish(
                    run,
                    EventKind::Stop { kind: stop.kind().to_string(), message, issuer },
                );
            }
            told = now.map(|stop| stop.kind());
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// Sees to it that completions are brought, where they come as turns.
    pub(super) fn bring(self: &Arc<Self>) {
        let waits = || !self.completions.list().is_empty();
        if self.background.delivery == Delivery::Turns && waits() {
            // Charged to the session: the units are over.
            let (session, held) = (Arc::clone(self), self.work.share());
            let _detached = spawn_charged(self.sandbox.control(), held, deliver(session));
        }
    }

    pub(super) fn remember(&self, asked: Arc<Message>, answered: Arc<Message>) {
        let mut messages = lock(&self.messages);
        messages.extend([asked, answered]);
        let over = from(&messages, REMEMBERED, MOST_BYTES);
        messages.drain(..over);
    }
}

impl Session {
    /// Opens a session.
    ///
    /// # Errors
    ///
    /// [`Refused`] when its node takes no new work.
    pub fn new(parts: Parts) -> Result<Session, Refused> {
        let Parts { id, work, sandbox, agent, checkpoints, background, store, restored, profile } =
            parts;
        let registry = work.open(Kind::Registry, format!("{id} background"))?;
        let turn = Mutex::new((restored.state(), None));
        let descendants = Mutex::new(Descendants::new(background.descendants));
        let Restored { last_seq, messages, memory, completions, quiet, .. } = restored;
        let shared = Shared {
            stream: Stream::new(id.clone(), Arc::clone(&store), last_seq),
            id,
            profile,
            work,
            registry,
            sandbox,
            agent: Mutex::new(agent),
            background,
            store,
            completions,
            memory,
            checkpoints,
            messages: Mutex::new(messages),
            turn,
            idle: Notify::new(),
            descendants,
            sides: Mutex::new(Numbers::after(last_seq)),
            quiet: AtomicBool::new(quiet),
            line: tokio::sync::Mutex::default(),
        };
        let session = Session { shared: Arc::new(shared) };
        // What had ended before the host did is delivered now.
        session.shared.bring();
        Ok(session)
    }

    /// Its name.
    pub fn id(&self) -> &SessionId {
        &self.shared.id
    }

    /// The name of its node in the tree of work.
    pub fn work(&self) -> WorkId {
        self.shared.work.id()
    }

    /// The number of its newest event; 0 before the first.
    pub fn newest(&self) -> u64 {
        self.shared.stream.newest()
    }

    /// Its events from the one after `after`; 0 for all that is kept.
    pub fn events(&self, after: u64) -> Events {
        self.shared.stream.watch(after)
    }

    /// The newest messages, at most `limit`.
    pub fn history(&self, limit: u32) -> Vec<Message> {
        self.shared.history(limit, MOST_BYTES)
    }

    /// Starts a turn. `input` is JSON for the agent, or empty.
    ///
    /// # Errors
    ///
    /// [`PromptError::Busy`] while a turn is going on, [`PromptError::Refused`] when the session takes no new work.
    pub fn prompt(
        &self,
        goal: impl Into<String>,
        input: impl Into<String>,
    ) -> Result<Turn, PromptError> {
        let prompted = self.prompt_for(goal.into(), input.into(), None);
        if let Err(PromptError::Busy { .. }) = prompted {
            tracing::debug!(session = %self.shared.id, "a turn was refused: the session is busy");
            self.shared.background.slots.figures().turns.refused.of("busy").one();
        }
        prompted
    }

    /// Starts a turn; `completion` is the unit whose completion it brings.
    pub(super) fn prompt_for(
        &self,
        goal: String,
        input: String,
        completion: Option<Brings>,
    ) -> Result<Turn, PromptError> {
        let shared = &self.shared;
        let mut turn = lock(&shared.turn);
        // Under the lock, so that a stop either finds the turn or keeps it from beginning.
        if completion.is_some() && shared.quiet.load(Ordering::SeqCst) {
            return Err(PromptError::Quiet);
        }
        let generation = match turn.0.step(Step::Prompt) {
            (next, Effect::Start(generation)) => {
                let label = format!("{} {}", shared.agent().plugged.name, generation.0);
                let figures = &shared.background.slots.figures().turns;
                let opened = shared.work.open(Kind::Turn, label);
                let work = opened.inspect_err(|refused| {
                    tracing::info!(session = %shared.id, %refused, "a turn was refused");
                    figures.refused.of("draining").one();
                })?;
                *turn = (next, Some(work.id()));
                drop(turn);
                return Ok(self.start(generation, work, goal, input, completion));
            }
            (_, Effect::Busy(generation)) => generation,
            (_, Effect::StopRun(_) | Effect::Stale | Effect::Nothing) => Generation(0),
        };
        Err(PromptError::Busy { generation })
    }

    /// Starts a turn when the session is idle. Talking is not stopping (S14): the turn that is going on goes on, and
    /// inputs are answered in the order in which they came.
    ///
    /// # Errors
    ///
    /// [`PromptError::Refused`] when the session takes no new work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready leaves the line, and no turn was started.
    pub async fn prompt_in_turn(
        &self,
        goal: impl Into<String>,
        input: impl Into<String>,
    ) -> Result<Turn, PromptError> {
        let (goal, input) = (goal.into(), input.into());
        let _place = self.shared.line.lock().await;
        loop {
            let mut idle = std::pin::pin!(self.shared.idle.notified());
            idle.as_mut().enable();
            match self.prompt_for(goal.clone(), input.clone(), None) {
                Err(PromptError::Busy { .. }) => idle.await,
                other => return other,
            }
        }
    }

    fn start(
        &self,
        generation: Generation,
        work: Work,
        goal: String,
        input: String,
        completion: Option<Brings>,
    ) -> Turn {
        let id = work.id();
        let shared = Arc::clone(&self.shared);
        let run: Arc<str> = format!("{}.{}", shared.id, generation.0).into();
        let agent = shared.agent();
        let descendants = {
            let mut left = lock(&shared.descendants);
            if completion.is_none() {
                *left = Descendants::new(shared.background.descendants);
                shared.quiet.store(false, Ordering::SeqCst);
            }
            left.clone()
        };
        let asked = Arc::new(Message::text(Role::User, goal.as_str()));
        let (control, held) = (shared.sandbox.control().clone(), shared.work.share());
        let plan = Plan {
            run: Arc::clone(&run),
            work,
            limits: agent.plugged.effective.limits.clone(),
            agent,
            goal,
            input,
            depth: 0,
            descendants,
            parent: None,
            delegation: completion.map(|brings| brings.unit),
            beside: false,
        };
        let began = Change::TurnBegan {
            generation: generation.0,
            run: Arc::clone(&run),
            brings: completion.filter(|brings| brings.counts).map(|brings| brings.unit.number()),
        };
        let completion = completion.map(|brings| brings.unit);
        // What a completion says belongs to the conversation once it has been brought.
        let prompt = completion.is_none().then(|| message(&asked));
        let entries = [Entry::Change(began), Entry::Event(Arc::clone(&run), plan.event())];
        let receipt = shared.stream.record(Class::Promise, entries.into_iter().chain(prompt));
        let (start, recorded, given_up) = Starting::new(&shared, plan, receipt);
        let supervise = async move {
            let report = match start.begun(&shared).await {
                Ok(begun) => {
                    let report = begun.ended(&shared).await;
                    let turn = (generation, completion);
                    shared.turn_ended(&run, turn, asked, report).await
                }
                Err(error) => {
                    let words = format!("the turn could not be recorded: {error}");
                    let report = RunReport::not_started(words);
                    TurnReport::new(generation, report, Some(error))
                }
            };
            shared.over(generation);
            shared.idle.notify_waiters();
            // Those that a stop had kept back come after the next turn.
            if completion.is_none() {
                shared.bring();
            }
            report
        };
        // The supervisor keeps the session's node while the run ends, whoever has lost interest in it.
        let ended = spawn_charged(&control, held, supervise);
        Turn { generation, id, recorded, given_up, ended }
    }

    /// Stops the turn that is going on. With a generation, only that execution. Returns how many pieces of work
    /// the stop changed: 0 when no turn is going on, or it carried the stop already.
    ///
    /// # Errors
    ///
    /// [`StopError::Stale`] when the named execution is over (S9).
    pub fn stop_turn(
        &self,
        generation: Option<Generation>,
        stop: &Stop,
    ) -> Result<usize, StopError> {
        let turn = lock(&self.shared.turn);
        let (now, effect) = (turn.1, turn.0.step(Step::Stop(generation)).1);
        drop(turn);
        self.carry_out(effect, now, stop)
    }

    fn carry_out(
        &self,
        effect: Effect,
        now: Option<WorkId>,
        stop: &Stop,
    ) -> Result<usize, StopError> {
        match (effect, now) {
            (Effect::StopRun(_), Some(id)) => {
                // Ids are not used twice, so this cannot hit a turn that has begun since.
                Ok(self.shared.work.tree().stop(id, stop).unwrap_or(0))
            }
            (Effect::Stale, _) => Err(StopError::Stale),
            (Effect::StopRun(_) | Effect::Start(_) | Effect::Busy(_) | Effect::Nothing, _) => Ok(0),
        }
    }

    /// Stops every background unit of this session hard, and nothing else (S7). Returns how many it stopped.
    pub fn stop_background(&self, issuer: &str, message: &str) -> usize {
        self.shared.registry.stop_children(&Stop::hard(issuer, message))
    }

    /// The same as [`stop`](Session::stop), meant for one execution: when that is over nothing is stopped. With none it is whichever
    /// is going on.
    ///
    /// # Errors
    ///
    /// [`StopError::Stale`] when the named execution is over (S9).
    pub fn stop_execution(
        &self,
        generation: Option<Generation>,
        issuer: &str,
        message: &str,
    ) -> Result<Stopped, StopError> {
        let (now, effect) = {
            let turn = lock(&self.shared.turn);
            let effect = turn.0.step(Step::Stop(generation)).1;
            if effect != Effect::Stale {
                self.shared.quiet.store(true, Ordering::SeqCst);
            }
            (turn.1, effect)
        };
        let turn = self.carry_out(effect, now, &Stop::hard(issuer, message))?;
        Ok(Stopped {
            turn,
            background: self.stop_background(issuer, message),
            side: self.stop_side_runs(issuer, message),
        })
    }

    /// What a person means by Stop (S8): the turn is stopped hard, and so are everything in the background and all side
    /// runs, also when no turn is going on. What the turn had said is in its report. The completions of what was stopped do not wake the
    /// session; they are listed, and come when it has been prompted again.
    pub fn stop(&self, issuer: &str, message: &str) -> Stopped {
        // Whichever execution is meant, there is none that is over.
        self.stop_execution(None, issuer, message).unwrap_or(Stopped {
            turn: 0,
            background: 0,
            side: 0,
        })
    }

    /// How background units stand; with no names, all that are open or not acknowledged.
    ///
    /// # Errors
    ///
    /// [`UnknownUnit`] for a unit that this session does not own.
    pub fn delegations(&self, ids: &[DelegationId]) -> Result<Vec<UnitView>, UnknownUnit> {
        self.shared.completions.status(ids)
    }

    /// The completions that are not acknowledged, in the order in which the units ended.
    pub fn completions(&self) -> Vec<Arc<Completion>> {
        self.shared.completions.list()
    }

    /// The oldest completion that is not acknowledged, as soon as there is one.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken out.
    pub async fn completion(&self) -> Arc<Completion> {
        self.shared.completions.next().await
    }

    /// A completion has been read. Gives it back once, and then never again.
    ///
    /// # Errors
    ///
    /// Those of the store. The completion is then not acknowledged.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before it is ready may have acknowledged it.
    pub async fn acknowledge(
        &self,
        id: DelegationId,
    ) -> Result<Option<Arc<Completion>>, StoreError> {
        let shared = &self.shared;
        if shared.completions.pending(id).is_none() {
            return Ok(None);
        }
        let acknowledged = Change::UnitAcknowledged { unit: id.number() };
        shared.stream.record(Class::Promise, [Entry::Change(acknowledged)]).await?;
        // Of several who read it at one time, one is given it.
        Ok(shared.completions.acknowledge(id))
    }

    /// Stops background units by name, and returns how many of their children the stop changed.
    ///
    /// # Errors
    ///
    /// [`UnknownUnit`] for a unit that this session does not own; then nothing was stopped.
    pub fn stop_delegations(
        &self,
        ids: &[DelegationId],
        stop: &Stop,
    ) -> Result<usize, UnknownUnit> {
        self.shared.completions.stop(&self.shared.work.tree(), ids, stop)
    }

    /// The name of the agent that answers it.
    pub fn agent_name(&self) -> Arc<str> {
        Arc::clone(&self.shared.agent().plugged.name)
    }

    /// Has turns that begin from now on answered by that agent. A run that is going on keeps its own.
    pub fn renew(&self, agent: Arc<Agent>) {
        *lock(&self.shared.agent) = agent;
    }

    /// Its node.
    pub(crate) fn node(&self) -> &Work {
        &self.shared.work
    }

    /// Waits until the turn and the side runs that were going on are over in every sense, and all that was said until now is
    /// recorded. It does not wait for what begins meanwhile, and stops nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn recorded(&self) {
        let turn = self.running();
        let sides = lock(&self.shared.sides).going_on().clone();
        loop {
            let mut idle = std::pin::pin!(self.shared.idle.notified());
            idle.as_mut().enable();
            let over = turn.is_none() || self.running() != turn;
            if over && sides.is_disjoint(lock(&self.shared.sides).going_on()) {
                break;
            }
            idle.await;
        }
        // What is queued before this is recorded before it.
        let nothing = std::iter::empty();
        drop(self.shared.stream.record(Class::Promise, nothing).await);
    }

    /// Whether no turn or side run of it goes on, and all that was said in it is recorded.
    pub fn is_recorded(&self) -> bool {
        self.running().is_none()
            && lock(&self.shared.sides).going_on().is_empty()
            && self.shared.stream.is_written()
    }

    /// Whether nothing of it goes on, nobody else has a handle of it, and all that happened in it is recorded: it can be
    /// dropped, and read again when somebody asks for it.
    pub fn is_at_rest(&self) -> bool {
        let shared = &self.shared;
        Arc::strong_count(shared) == 1
            && self.running().is_none()
            && shared.completions.running() == 0
            // That a person has stopped it is not kept where it would sleep.
            && (!shared.quiet.load(Ordering::SeqCst) || shared.completions.list().is_empty())
            && shared.stream.is_written()
    }

    /// The generation of the turn that is going on.
    pub fn running(&self) -> Option<Generation> {
        match lock(&self.shared.turn).0 {
            State::Running { now } => Some(Generation(now)),
            State::Idle { .. } => None,
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.shared.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Shared {
    /// The run of a turn has ended: that is recorded with all that it said, and told before another turn can begin.
    async fn turn_ended(
        self: &Arc<Self>,
        run: &Arc<str>,
        (generation, completion): (Generation, Option<DelegationId>),
        asked: Arc<Message>,
        report: RunReport,
    ) -> TurnReport {
        let answered = Arc::new(Message::text(Role::Assistant, report.output.as_str()));
        // One that has found no place is brought again.
        let brought = !matches!(report.outcome, Outcome::NoPlace | Outcome::NotStarted(_));
        let read = completion.filter(|_| brought);
        let acknowledged = read.map(|id| Change::UnitAcknowledged { unit: id.number() });
        // A completion that was not brought leaves nothing in the conversation, and enters it when it is.
        let belongs = completion.is_none() || brought;
        let said = [read.map(|_| message(&asked)), belongs.then(|| message(&answered))];
        let entries = [Entry::Event(Arc::clone(run), report.event())]
            .into_iter()
            .chain(said.into_iter().flatten())
            .chain(acknowledged.map(Entry::Change))
            .chain([Entry::Change(Change::TurnEnded { generation: generation.0 })]);
        let shared = Arc::clone(self);
        // Whoever hears of the end finds the session as it is after it.
        let receipt = self.stream.record_then(Class::Owed, entries, move || {
            if belongs {
                shared.remember(asked, answered);
            }
            if let Some(id) = read {
                shared.completions.acknowledge(id);
            }
            shared.over(generation);
        });
        TurnReport::new(generation, report, self.unrecorded(run, receipt).await)
    }

    /// Waits until the end of a run is recorded, but not for ever. What is in the way, if that is not done yet.
    pub(super) async fn unrecorded(&self, run: &str, mut receipt: Receipt) -> Option<StoreError> {
        let recorded = match receipt.now() {
            Some(recorded) => recorded.map(drop),
            None => match tokio::time::timeout(RECORDED_WITHIN, receipt).await {
                Ok(recorded) => recorded.map(drop),
                Err(_) => Err(self.too_slow()),
            },
        };
        let error = recorded.err()?;
        tracing::error!(session = %self.id, run, %error, "the end of a run is not recorded yet");
        Some(error)
    }

    /// Why the store has not answered.
    fn too_slow(&self) -> StoreError {
        let failing = self.store.health().failing;
        StoreError::Failed(failing.unwrap_or_else(|| "it is too slow".to_owned()))
    }

    /// That execution is over, if it was not before.
    fn over(&self, generation: Generation) {
        let mut turn = lock(&self.turn);
        let next = turn.0.step(Step::Ended(generation)).0;
        if next != turn.0 {
            *turn = (next, None);
        }
    }
}

/// A turn or a side run that is claimed, between its record and its run.
pub(super) enum Starting {
    /// It runs.
    Begun(Box<Begun>),
    /// Its record is not written yet.
    Later(Box<Plan>, Receipt, Telling),
    /// Its record was refused.
    Refused(StoreError),
}

/// Who is told of a beginning that is not recorded at once.
pub(super) struct Telling {
    recorded: oneshot::Sender<Result<(), StoreError>>,
    given_up: oneshot::Sender<(RunReport, StoreError)>,
}

impl Starting {
    /// Starts the run at once where its record is there at once.
    pub(super) fn new(
        shared: &Arc<Shared>,
        plan: Plan,
        mut receipt: Receipt,
    ) -> (Starting, Recording, GivenUp) {
        let admitted = &shared.background.slots.figures().turns;
        match receipt.now() {
            Some(Ok(_)) => {
                admitted.accepted.one();
                let begun = Starting::Begun(Box::new(begin(shared, plan)));
                (begun, Recording::Done(Ok(())), GivenUp::never())
            }
            Some(Err(error)) => {
                admitted.refused.of("store").one();
                let refused = Starting::Refused(error.clone());
                (refused, Recording::Done(Err(error)), GivenUp::never())
            }
            None => {
                plan.work.set_activity(Some(Activity {
                    what: "waits to be recorded",
                    detail: None,
                    since: Some(Instant::now()),
                }));
                let (recorded, told) = oneshot::channel();
                let (given_up, ends) = oneshot::channel();
                let telling = Telling { recorded, given_up };
                let later = Starting::Later(Box::new(plan), receipt, telling);
                (later, Recording::Open(told), GivenUp { ends: Some(ends) })
            }
        }
    }

    /// Waits for the record and begins. Whoever waits for the run does so no longer once it was stopped hard and the store has
    /// had its time; the record itself is waited for in any case, because what may be written must be brought to its end.
    pub(super) async fn begun(self, shared: &Arc<Shared>) -> Result<Begun, StoreError> {
        let (plan, mut receipt, telling) = match self {
            Starting::Begun(begun) => return Ok(*begun),
            Starting::Refused(error) => return Err(error),
            Starting::Later(plan, receipt, telling) => (plan, receipt, telling),
        };
        let signal = plan.work.signal();
        let stopped = async {
            let stop = signal.raised(StopKind::Hard).await;
            tokio::time::sleep(BEGINS_WITHIN).await;
            stop
        };
        let answered = tokio::select! {
            biased;
            answered = &mut receipt => Ok(answered.map(drop)),
            stop = stopped => Err(stop),
        };
        // Whoever has lost interest does not hear of either.
        let recorded = match answered {
            Ok(recorded) => {
                telling.recorded.send(recorded.clone()).ok();
                recorded
            }
            Err(stop) => {
                let error = shared.too_slow();
                tracing::error!(session = %shared.id, run = %plan.run, %error, "a run was stopped before its beginning was recorded");
                telling.recorded.send(Err(error.clone())).ok();
                telling.given_up.send((RunReport::stopped(stop), error)).ok();
                receipt.await.map(drop)
            }
        };
        plan.work.set_activity(None);
        let admitted = &shared.background.slots.figures().turns;
        match &recorded {
            Ok(()) => admitted.accepted.one(),
            Err(_) => admitted.refused.of("store").one(),
        }
        recorded.map(|()| begin(shared, *plan))
    }
}

/// Says that a run was stopped before it had begun, and that its record is not waited for any more.
#[derive(Debug)]
pub(super) struct GivenUp {
    /// None where there was nothing to wait for.
    ends: Option<oneshot::Receiver<(RunReport, StoreError)>>,
}

impl GivenUp {
    fn never() -> GivenUp {
        GivenUp { ends: None }
    }

    /// Never, when that does not happen. Cancel safe.
    pub(super) async fn happens(&mut self) -> (RunReport, StoreError) {
        if let Some(ends) = &mut self.ends
            && let Ok(given_up) = ends.await
        {
            return given_up;
        }
        self.ends = None;
        std::future::pending().await
    }
}

/// Whether the beginning of a turn or a side run is recorded.
#[derive(Debug)]
pub(super) enum Recording {
    Done(Result<(), StoreError>),
    Open(oneshot::Receiver<Result<(), StoreError>>),
}

impl Recording {
    /// Cancel safe.
    pub(super) async fn done(&mut self) -> Result<(), StoreError> {
        if let Recording::Open(answer) = self {
            let answer = answer.await.unwrap_or(Err(StoreError::Closed));
            *self = Recording::Done(answer);
        }
        match self {
            Recording::Done(answer) => answer.clone(),
            Recording::Open(_) => Ok(()),
        }
    }
}

/// The completion that a turn brings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brings {
    pub(super) unit: DelegationId,
    /// Whether this is counted as an attempt. Those that find no place are not, but for the first.
    pub(super) counts: bool,
}

fn message(message: &Arc<Message>) -> Entry {
    Entry::Change(Change::Message { body: Body::Later(Arc::clone(message) as _) })
}

/// Where the newest messages begin that are no more than so many, and no more bytes than that.
fn from(messages: &[Arc<Message>], limit: usize, bytes: usize) -> usize {
    let mut left = bytes;
    let fits = |message: &&Arc<Message>| match left
        .checked_sub(message.text.len() + size_of::<Message>())
    {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    messages.len() - messages.iter().rev().take(limit).take_while(fits).count()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One turn that was started. Dropping it does not end the turn: a waiter that gives up is not a stop.
#[derive(Debug)]
pub struct Turn {
    generation: Generation,
    id: WorkId,
    recorded: Recording,
    given_up: GivenUp,
    ended: JoinHandle<TurnReport>,
}

impl Turn {
    /// Which execution of the session this is.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The name of its work.
    pub fn id(&self) -> WorkId {
        self.id
    }

    /// Waits until it is recorded that the turn has begun: from then on it is found after a crash, at the latest as one of
    /// which nobody knows how it ended. Without a durable store that is at once.
    ///
    /// # Errors
    ///
    /// Those of the store. The turn was not started then, and its report says so too.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn recorded(&mut self) -> Result<(), StoreError> {
        self.recorded.done().await
    }

    /// Waits until the turn has ended and nothing of it is left but, perhaps, calls that cannot be interrupted, such as
    /// a write to a disk that hangs. Those stay in the tree by name.
    ///
    /// A turn that was stopped hard while a store that hangs has not recorded its beginning is waited for no longer than a second
    /// more. It will not run, and its report says that it is not recorded; its work stays in the tree, and its session is busy,
    /// until the store has answered.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the turn running.
    pub async fn ended(mut self) -> TurnReport {
        tokio::select! {
            biased;
            ended = &mut self.ended => ended.unwrap_or_else(|error| lost(self.generation, &error)),
            (report, error) = self.given_up.happens() => {
                TurnReport::new(self.generation, report, Some(error))
            }
        }
    }

    /// The same, and in any case until the store has answered.
    pub(super) async fn over(self) -> TurnReport {
        self.ended.await.unwrap_or_else(|error| lost(self.generation, &error))
    }
}

fn lost(generation: Generation, error: &tokio::task::JoinError) -> TurnReport {
    TurnReport {
        generation,
        outcome: Outcome::HostPanicked(error.to_string()),
        output: String::new(),
        tools: Vec::new(),
        used: Used::default(),
        reached: Reached::default(),
        unrecorded: None,
    }
}

/// What became of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnReport {
    /// Which execution of the session it was.
    pub generation: Generation,
    /// How it ended.
    pub outcome: Outcome<()>,
    /// Its final text; for a turn that did not come to its end, what it had said.
    pub output: String,
    /// For a turn that did not come to its end: what tools had answered, the newest 64 of them and no more than 256 KiB.
    pub tools: Vec<ToolAnswer>,
    /// What it used.
    pub used: Used,
    /// The limits that it came up against, whatever it made of that.
    pub reached: Reached,
    /// Why the store has not recorded it; none where it has. The end of a turn is written as soon as the store takes writes
    /// again; if the host ends before that, the journal says of the turn that nobody knows how it ended.
    pub unrecorded: Option<StoreError>,
}

impl TurnReport {
    fn new(
        generation: Generation,
        report: RunReport,
        unrecorded: Option<StoreError>,
    ) -> TurnReport {
        let RunReport { outcome, output, tools, used, reached } = report;
        TurnReport { generation, outcome, output, tools, used, reached, unrecorded }
    }

    /// The limit that ended it, if one did.
    pub fn limit(&self) -> Option<LimitKind> {
        if let Outcome::Limit(kind) = self.outcome { Some(kind) } else { None }
    }
}

/// What a stop of a whole session reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Pieces of work of the turn: its run, its tool calls, its model requests.
    pub turn: usize,
    /// Background units.
    pub background: usize,
    /// Side runs.
    pub side: usize,
}

/// A turn was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// A turn is going on.
    #[error("turn {} of this session is still going on; wait for it, or stop it", .generation.0)]
    Busy {
        /// Which one.
        generation: Generation,
    },
    /// A person has stopped the session, so that completions do not wake it.
    #[error("a person has stopped this session; its completions wait until it is prompted again")]
    Quiet,
    /// The session takes no new work.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// A stop was not given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// The execution that it names is over.
    #[error("that execution is over; the stop was not given to the one that followed")]
    Stale,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_messages_go_first_and_the_oldest_are_left_out() {
        let messages: Vec<Arc<Message>> =
            (0..10).map(|_| Arc::new(Message::text(Role::User, "x".repeat(1_000)))).collect();
        let one = 1_000 + size_of::<Message>();
        assert_eq!(from(&messages, 100, usize::MAX), 0);
        assert_eq!(from(&messages, 3, usize::MAX), 7);
        assert_eq!(from(&messages, 100, 4 * one), 6);
        assert_eq!(from(&messages, 100, 4 * one - 1), 7);
        assert_eq!(from(&messages, 100, one - 1), 10);
        assert_eq!(from(&[], 100, 0), 0);
    }
}
