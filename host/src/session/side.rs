//! Runs beside the turn: a prompt of its own, and questions about the conversation that never change it.
//!
//! ```text
//!   side_run ──► the session's journal: run-started … run-ended ──► a report; the conversation only if somebody says so
//!   aside    ──► a fork of the session that nobody keeps ─────────► an answer for who asked, or nothing
//!   ask      ──► one request to a model, below a node of its own ─► the same
//! ```
//!
//! All of them are nodes of the kind [`Kind::SideRun`] directly below the session from the moment they are let in until
//! they have physically ended. A stop of the turn does not reach them; a person's Stop of the session does, and so does the
//! end of its profile or host.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::StreamExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::background::{Background, Delivery};
use super::event::EventKind;
use super::record::{Record, ToolAnswer};
use super::restore::Restored;
use super::run::{Begun, Plan, RunReport, begin};
use super::session::{GivenUp, MOST_BYTES, Recording, Session, Shared, Starting, lock};
use super::stream::{Entry, Events, Stream};
use super::turn::{Generation, State};
use crate::delegation::Descendants;
use crate::ids::WorkId;
use crate::message::{Failure, FailureCode, Message, Role, Usage};
use crate::model::{Delta, Provider, Request};
use crate::sandbox::{LimitKind, Outcome, Reached, Used};
use crate::store::{Body, Change, Class, Memory, Retention, Store, StoreError, Write};
use crate::work::{Kind, Refused, Stop, StopSignal, Task, Work, spawn, spawn_charged};

/// How many side runs a session may have at one time, of all sorts together.
pub const MOST_SIDE_RUNS: usize = 8;

/// The side runs of a session: how many there were, for their names, and those whose ends are to come.
#[derive(Debug)]
pub(super) struct Numbers {
    /// How many are told of in the journal.
    told: u64,
    /// How many are those that nobody hears of.
    asides: u64,
    /// Those whose ends the journal waits for. The work of a run is gone before its end is told.
    going_on: BTreeSet<Arc<str>>,
}

impl Numbers {
    /// Those of a session with so many events. Each that was told of has at least one of them, so that no name comes
    /// twice in a journal.
    pub(super) fn after(last_seq: u64) -> Numbers {
        Numbers { told: last_seq, asides: 0, going_on: BTreeSet::new() }
    }

    /// Those whose ends are not handed to the store yet.
    pub(super) fn going_on(&self) -> &BTreeSet<Arc<str>> {
        &self.going_on
    }
}

/// Keeps a side run among those whose ends are to come. Dropped when its end is handed to the store, or will never be.
struct GoingOn {
    shared: Arc<Shared>,
    run: Arc<str>,
}

impl GoingOn {
    fn new(shared: &Arc<Shared>, run: &Arc<str>) -> GoingOn {
        lock(&shared.sides).going_on.insert(Arc::clone(run));
        GoingOn { shared: Arc::clone(shared), run: Arc::clone(run) }
    }
}

impl Drop for GoingOn {
    fn drop(&mut self) {
        lock(&self.shared.sides).going_on.remove(&self.run);
        self.shared.idle.notify_waiters();
    }
}

impl Session {
    /// Starts a run of the session's agent beside its turn, with a prompt of its own. `input` is JSON for the agent, or
    /// empty. It knows the conversation and shares the session's memory; what it hands into the background belongs to
    /// the session, as that of a turn does. Its beginning and end are in the journal, under a name of its own, and its
    /// result does not enter the conversation, unless somebody calls [`Session::take_in`].
    ///
    /// # Errors
    ///
    /// [`SideError::TooMany`] when the session has [`MOST_SIDE_RUNS`], [`SideError::Refused`] when it takes no new work.
    pub fn side_run(
        &self,
        goal: impl Into<String>,
        input: impl Into<String>,
    ) -> Result<SideRun, SideError> {
        let (shared, goal, input) = (Arc::clone(&self.shared), goal.into(), input.into());
        let (run, work) = shared.claim_side_run(|numbers| {
            numbers.told += 1;
            format!("side{}", numbers.told)
        })?;
        let id = work.id();
        let going_on = GoingOn::new(&shared, &run);
        let asked = goal.clone();
        let plan = shared.beside(Arc::clone(&run), work, goal, input);
        let receipt = shared.stream.record(
            Class::Promise,
            [Entry::Change(plan.began()), Entry::Event(Arc::clone(&run), plan.event())],
        );
        let (control, held) = (shared.sandbox.control().clone(), shared.work.share());
        let (start, recorded, given_up) = Starting::new(&shared, plan, receipt);
        let (name, goal) = (Arc::clone(&run), asked.clone());
        let supervise = async move {
            match start.begun(&shared).await {
                Ok(begun) => {
                    let report = begun.ended(&shared).await;
                    shared.side_run_ended(going_on, asked, report).await
                }
                Err(error) => {
                    let words = format!("the side run could not be recorded: {error}");
                    drop(going_on);
                    SideReport::new(run, asked, RunReport::not_started(words), Some(error))
                }
            }
        };
        let ended = spawn_charged(&control, held, supervise);
        Ok(SideRun { run: name, goal, id, recorded, given_up, ended })
    }

    /// Asks the session's agent something about the conversation, and changes nothing of it: a fork of the agent has the
    /// history and the memory as they are now, and what it writes goes nowhere. Nothing of it is in the journal, and it
    /// hands nothing into the background. Who lets go of the [`Aside`] has stopped it.
    ///
    /// # Errors
    ///
    /// As [`Session::side_run`].
    pub fn aside(&self, question: impl Into<String>) -> Result<Aside, SideError> {
        let (run, work) = self.shared.claim_aside()?;
        let id = work.id();
        let fork = self.shared.fork();
        let plan = fork.beside(Arc::clone(&run), work, question.into(), String::new());
        fork.stream.publish_with(&run, plan.event(), plan.began());
        let begun = begin(&fork, plan);
        Ok(Aside { run, id, asked: Asked::Agent(Box::new(begun)), fork, _session: self.clone() })
    }

    /// Asks a model something about the conversation, without any guest, and changes nothing. `model` is one of those that
    /// the session's agent may ask; none for the default. Who lets go of the [`Aside`] has cancelled the request.
    ///
    /// # Errors
    ///
    /// As [`Session::side_run`], and [`SideError::Model`] when there is no such model or the agent may not ask it.
    pub fn ask(
        &self,
        question: impl Into<String>,
        model: Option<&str>,
    ) -> Result<Aside, SideError> {
        let agent = self.shared.agent();
        let no = |words: String| SideError::Model { words };
        let provider = agent.models.get(model).map_err(|unknown| no(unknown.to_string()))?;
        if !agent.plugged.effective.models.allows(provider.name()) {
            let words = format!("the model `{}` is not granted to this agent", provider.name());
            return Err(no(words));
        }
        let limits = &agent.plugged.effective.limits;
        let (run, work) = self.shared.claim_aside()?;
        let end = limits.wall_time.and_then(|time| Instant::now().checked_add(time));
        if let Some(end) = end {
            work.set_deadline(end);
        }
        let room = usize::try_from(limits.call_bytes / 2).unwrap_or(usize::MAX);
        let mut messages = self.shared.history(u32::MAX, room.min(MOST_BYTES));
        let question = question.into();
        messages.push(Message::text(Role::User, question.as_str()));
        let most = limits.model_tokens.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        let request = Request { messages, max_output_tokens: most, ..Request::default() };
        let (fork, id, signal) = (self.shared.fork(), work.id(), work.signal());
        let record = Arc::new(Record::default());
        let started = EventKind::RunStarted {
            agent: provider.name().to_owned(),
            goal: question,
            parent: None,
            delegation: None,
        };
        let began = Change::RunBegan { run: Arc::clone(&run), body: Body::Text("{}".into()) };
        fork.stream.publish_with(&run, started, began);
        let answer = once(
            Arc::clone(provider),
            request,
            Arc::clone(&fork),
            Arc::clone(&run),
            Arc::clone(&record),
        );
        let task = spawn(self.shared.sandbox.control(), work, answer);
        let asked =
            Asked::Model(Box::new(Question { task, signal, record, began: Instant::now() }));
        Ok(Aside { run, id, asked, fork, _session: self.clone() })
    }

    /// Stops every side run of the session hard, and nothing else. Returns how many it stopped.
    pub fn stop_side_runs(&self, issuer: &str, message: &str) -> usize {
        self.shared.work.stop_children_of(Kind::SideRun, &Stop::hard(issuer, message))
    }

    /// Takes the result of a side run into the conversation: what it was asked, and what it answered.
    ///
    /// # Errors
    ///
    /// [`TakeInError::Busy`] while a turn is going on, into which nothing is spliced; [`TakeInError::Store`] when it is not
    /// recorded yet. It is in the conversation then all the same, and is written as soon as the store takes writes.
    ///
    /// # Cancel safety
    ///
    /// Once it was polled it is in the conversation.
    pub async fn take_in(&self, report: &SideReport) -> Result<(), TakeInError> {
        let shared = &self.shared;
        let asked = Arc::new(Message::text(Role::User, report.goal.as_str()));
        let answered = Arc::new(Message::text(Role::Assistant, report.output.as_str()));
        let message = |message: &Arc<Message>| {
            Entry::Change(Change::Message { body: Body::Later(Arc::clone(message) as _) })
        };
        let receipt = {
            // Held until it is queued, so that no turn begins in between.
            let turn = lock(&shared.turn);
            if let State::Running { now } = turn.0 {
                return Err(TakeInError::Busy { generation: Generation(now) });
            }
            let entries = [message(&asked), message(&answered)];
            let remembers = Arc::clone(shared);
            shared
                .stream
                .record_then(Class::Owed, entries, move || remembers.remember(asked, answered))
        };
        match shared.unrecorded(&report.run, receipt).await {
            None => Ok(()),
            Some(error) => Err(TakeInError::Store(error)),
        }
    }
}

impl Shared {
    fn claim_aside(&self) -> Result<(Arc<str>, Work), SideError> {
        self.claim_side_run(|numbers| {
            numbers.asides += 1;
            format!("aside{}", numbers.asides)
        })
    }

    /// Lets a side run in, by the gate that turns pass too. It is in the tree from now on.
    fn claim_side_run(
        &self,
        name: impl FnOnce(&mut Numbers) -> String,
    ) -> Result<(Arc<str>, Work), SideError> {
        let mut numbers = lock(&self.sides);
        let figures = &self.background.slots.figures().sides;
        // There is no second count: the tree says how many there are.
        let pieces = self.work.tree().pieces_by_kind(self.work.id());
        if pieces.get(&Kind::SideRun).is_some_and(|there| *there >= MOST_SIDE_RUNS) {
            figures.refused.of("capacity").one();
            return Err(SideError::TooMany { most: MOST_SIDE_RUNS });
        }
        let run: Arc<str> = format!("{}.{}", self.id, name(&mut numbers)).into();
        let label = format!("{} {run}", self.agent().plugged.name);
        let opened = self.work.open(Kind::SideRun, label);
        match &opened {
            Ok(_) => figures.accepted.one(),
            Err(_) => figures.refused.of("draining").one(),
        }
        Ok((run, opened?))
    }

    fn beside(&self, run: Arc<str>, work: Work, goal: String, input: String) -> Plan {
        let agent = self.agent();
        Plan {
            run,
            work,
            limits: agent.plugged.effective.limits.clone(),
            agent,
            goal,
            input,
            depth: 0,
            descendants: Descendants::new(self.background.descendants),
            parent: None,
            delegation: None,
            beside: false,
        }
    }

    /// The session as it is now, with a journal and a memory that go with the last hold on it.
    fn fork(&self) -> Arc<Shared> {
        let agent = self.agent();
        let store = Arc::new(Memory::new(Retention::memory())) as Arc<dyn Store>;
        let name = agent.plugged.name.to_string();
        let created = Change::Created { agent: name, settings: Body::Text("{}".into()) };
        let (session, changes) = (self.id.clone(), vec![created]);
        store.write(Write { session, changes, class: Class::Owed, then: None });
        let Background { slots, recorder, delivery: _, grace, descendants } = &self.background;
        let background = Background {
            slots: slots.clone(),
            recorder: Arc::clone(recorder),
            // Nobody would read what comes later.
            delivery: Delivery::Never,
            grace: *grace,
            descendants: *descendants,
        };
        let Restored { completions, .. } = Restored::default();
        Arc::new(Shared {
            id: self.id.clone(),
            profile: self.profile.clone(),
            work: self.work.share(),
            registry: self.registry.share(),
            sandbox: self.sandbox.clone(),
            agent: Mutex::new(agent),
            stream: Stream::new(self.id.clone(), Arc::clone(&store), 0),
            descendants: Mutex::new(Descendants::new(background.descendants)),
            background,
            store,
            completions,
            memory: self.memory.copied(),
            checkpoints: Arc::clone(&self.checkpoints),
            messages: Mutex::new(lock(&self.messages).clone()),
            turn: Mutex::new((State::after(0), None)),
            idle: Notify::new(),
            sides: Mutex::new(Numbers::after(0)),
            quiet: AtomicBool::new(true),
            line: tokio::sync::Mutex::default(),
        })
    }

    async fn side_run_ended(
        self: &Arc<Self>,
        going_on: GoingOn,
        asked: String,
        report: RunReport,
    ) -> SideReport {
        let run = Arc::clone(&going_on.run);
        let entries = [
            Entry::Event(Arc::clone(&run), report.event()),
            Entry::Change(Change::RunEnded { run: Arc::clone(&run) }),
        ];
        let receipt = self.stream.record(Class::Owed, entries);
        drop(going_on);
        let unrecorded = self.unrecorded(&run, receipt).await;
        SideReport::new(run, asked, report, unrecorded)
    }
}

/// A side run that was started. Dropping it does not end the run: a waiter that gives up is not a stop.
#[derive(Debug)]
pub struct SideRun {
    run: Arc<str>,
    goal: String,
    id: WorkId,
    recorded: Recording,
    given_up: GivenUp,
    ended: JoinHandle<SideReport>,
}

impl SideRun {
    /// Its name, as events have it: `s1.side7`.
    pub fn run(&self) -> &Arc<str> {
        &self.run
    }

    /// The name of its work.
    pub fn id(&self) -> WorkId {
        self.id
    }

    /// Waits until it is recorded that the run has begun, as [`Turn::recorded`](super::Turn::recorded) does.
    ///
    /// # Errors
    ///
    /// Those of the store. The run was not started then, and its report says so too.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn recorded(&mut self) -> Result<(), StoreError> {
        self.recorded.done().await
    }

    /// Waits until the run has ended, as [`Turn::ended`](super::Turn::ended) does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the run going on.
    pub async fn ended(mut self) -> SideReport {
        let (report, error) = tokio::select! {
            biased;
            ended = &mut self.ended => match ended {
                Ok(report) => return report,
                Err(error) => {
                    let outcome = Outcome::HostPanicked(error.to_string());
                    (RunReport { outcome, ..RunReport::not_started(String::new()) }, None)
                }
            },
            (report, error) = self.given_up.happens() => (report, Some(error)),
        };
        SideReport::new(self.run, self.goal, report, error)
    }
}

/// What became of a side run.
#[derive(Debug, Clone, PartialEq)]
pub struct SideReport {
    /// Its name.
    pub run: Arc<str>,
    /// What it was asked to do.
    pub goal: String,
    /// How it ended.
    pub outcome: Outcome<()>,
    /// Its final text; of one that did not come to its end, what it had said.
    pub output: String,
    /// Of one that did not come to its end: what tools had answered.
    pub tools: Vec<ToolAnswer>,
    /// What it used.
    pub used: Used,
    /// The limits that it came up against.
    pub reached: Reached,
    /// Why the store has not recorded it, as [`TurnReport::unrecorded`](super::TurnReport::unrecorded).
    pub unrecorded: Option<StoreError>,
}

impl SideReport {
    fn new(
        run: Arc<str>,
        goal: String,
        report: RunReport,
        unrecorded: Option<StoreError>,
    ) -> SideReport {
        let RunReport { outcome, output, tools, used, reached } = report;
        SideReport { run, goal, outcome, output, tools, used, reached, unrecorded }
    }
}

/// A question that was asked aside. It belongs to whoever asked: dropping it stops the fork hard, or cancels the request.
#[must_use = "dropping it ends the question"]
pub struct Aside {
    run: Arc<str>,
    id: WorkId,
    asked: Asked,
    fork: Arc<Shared>,
    /// Keeps the session awake.
    _session: Session,
}

enum Asked {
    Agent(Box<Begun>),
    Model(Box<Question>),
}

/// One request to a model.
struct Question {
    task: Task<RunReport>,
    signal: StopSignal,
    record: Arc<Record>,
    began: Instant,
}

impl Aside {
    /// Its name.
    pub fn run(&self) -> &Arc<str> {
        &self.run
    }

    /// The name of its work.
    pub fn id(&self) -> WorkId {
        self.id
    }

    /// What it says on its way, for whoever asked: a journal of its own, which the session does not have.
    pub fn events(&self) -> Events {
        self.fork.stream.watch(0)
    }

    /// Waits for the answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the question, and nobody hears of the answer.
    pub async fn ended(self) -> Answer {
        let Aside { run, asked, fork, .. } = self;
        let report = match asked {
            Asked::Agent(begun) => begun.ended(&fork).await,
            Asked::Model(question) => question.ended().await,
        };
        fork.stream.publish_with(&run, report.event(), Change::RunEnded { run: Arc::clone(&run) });
        let RunReport { outcome, output, used, reached, .. } = report;
        // What was stopped says nothing, also if it had an answer by then.
        let text = if let Outcome::Interrupted { .. } = outcome { String::new() } else { output };
        Answer { outcome, text, used, reached }
    }
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("run", &self.run).finish_non_exhaustive()
    }
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// How it ended.
    pub outcome: Outcome<()>,
    /// The answer; nothing when it was stopped.
    pub text: String,
    /// What it used.
    pub used: Used,
    /// The limits that it came up against.
    pub reached: Reached,
}

/// Asks a model, once.
async fn once(
    provider: Arc<dyn Provider>,
    request: Request,
    fork: Arc<Shared>,
    run: Arc<str>,
    record: Arc<Record>,
) -> RunReport {
    let model = provider.name().to_owned();
    fork.stream.publish(&run, EventKind::ModelStarted { model });
    let (mut stream, mut usage) = (provider.start(request), Usage::default());
    let outcome = loop {
        match stream.next().await {
            Some(Ok(Delta::Text(text))) => {
                record.model_text(&text);
                fork.stream.publish(&run, EventKind::ModelText { text });
            }
            Some(Ok(Delta::Used(used))) => usage = used,
            Some(Ok(Delta::Retrying { attempt, reason, .. })) => {
                fork.stream.publish(&run, EventKind::ModelRetrying { attempt, reason });
            }
            // No tool was offered.
            Some(Ok(Delta::ToolCall { .. })) => {}
            Some(Ok(Delta::Done(response))) => {
                usage = response.usage;
                record.partial(&response.message.text);
                break Outcome::Completed(());
            }
            Some(Err(error)) => break Outcome::Failed(error.into()),
            None => {
                let words = "the model's answer ended without an end";
                break Outcome::Failed(Failure::new(FailureCode::Failed, words));
            }
        }
    };
    let used = Used { model_tokens: usage.total(), ..Used::default() };
    RunReport { outcome, output: record.said(), used, ..RunReport::not_started(String::new()) }
}

impl Question {
    async fn ended(self) -> RunReport {
        let Question { task, signal, record, began } = self;
        let ended = task.await;
        let nothing =
            || RunReport { output: record.said(), ..RunReport::not_started(String::new()) };
        let mut report = match (ended, signal.stop()) {
            (_, Some(_)) if signal.expired() => {
                RunReport { outcome: Outcome::Limit(LimitKind::WallTime), ..nothing() }
            }
            (_, Some(stop)) => {
                RunReport { outcome: Outcome::Interrupted { stop, said: None }, ..nothing() }
            }
            (Some(report), None) => report,
            (None, None) => {
                let words = "the host failed while a model was asked".to_owned();
                RunReport { outcome: Outcome::HostPanicked(words), ..nothing() }
            }
        };
        report.used.wall_time = began.elapsed();
        report
    }
}

/// A side run was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SideError {
    /// The session has as many as it may have.
    #[error("this session has {most} side runs already; wait for one of them, or stop one")]
    TooMany {
        /// How many that is.
        most: usize,
    },
    /// The session takes no new work.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// There is no such model, or the session's agent may not ask it.
    #[error("{words}")]
    Model {
        /// Why.
        words: String,
    },
}

/// The result of a side run was not taken in, or is not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeInError {
    /// A turn is going on.
    #[error("turn {} of this session is still going on; wait for it, or stop it", .generation.0)]
    Busy {
        /// Which one.
        generation: Generation,
    },
    /// The store has not recorded it yet.
    #[error(transparent)]
    Store(#[from] StoreError),
}
