//! One run of an agent, from its start to its report: a turn's, or a child's.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tracing::{Instrument, Span};

use super::driver::Driver;
use super::event::EventKind;
use super::record::{Record, ToolAnswer};
use super::session::{Agent, Shared};
use super::span;
use crate::delegation::{DelegationId, Descendants};
use crate::sandbox::{AgentHost, Limits, Outcome, Reached, Report, Run, Start, Task, Used};
use crate::store::{Body, Change};
use crate::work::{Stop, StopSignal, Work};

/// What a run is started with.
pub(super) struct Plan {
    /// Its name.
    pub(super) run: Arc<str>,
    pub(super) work: Work,
    pub(super) agent: Arc<Agent>,
    pub(super) goal: String,
    pub(super) input: String,
    pub(super) limits: Limits,
    /// How many delegations lie above.
    pub(super) depth: u32,
    pub(super) descendants: Descendants,
    /// The run that asked for it; none for a turn.
    pub(super) parent: Option<Arc<str>>,
    /// The unit that a child belongs to, or whose completion a turn brings.
    pub(super) delegation: Option<DelegationId>,
    /// It runs in a background unit, as its child or further below.
    pub(super) beside: bool,
}

/// A run that has been started.
pub(super) struct Begun {
    run: Arc<str>,
    running: Run<String>,
    signal: StopSignal,
    record: Arc<Record>,
    /// Around all that is done for it.
    span: Span,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunReport {
    pub(super) outcome: Outcome<()>,
    /// Its final text; of a run that did not come to its end, what it had said.
    pub(super) output: String,
    /// Of a run that did not come to its end: what tools had answered.
    pub(super) tools: Vec<ToolAnswer>,
    pub(super) used: Used,
    /// The limits that it came up against.
    pub(super) reached: Reached,
}

impl Plan {
    /// What watchers hear of its beginning.
    pub(super) fn event(&self) -> EventKind {
        EventKind::RunStarted {
            agent: self.agent.plugged.name.to_string(),
            goal: self.goal.clone(),
            parent: self.parent.clone(),
            delegation: self.delegation.map(|id| id.to_string()),
        }
    }

    /// What is recorded of the beginning of a run that is not a turn.
    pub(super) fn began(&self) -> Change {
        Change::RunBegan { run: Arc::clone(&self.run), body: Body::Text("{}".into()) }
    }
}

/// Starts a run that watchers have been told of.
pub(super) fn begin(session: &Arc<Shared>, plan: Plan) -> Begun {
    let span = span::of_run(session, &plan);
    let Plan { run, work, agent, goal, input, limits, depth, descendants, beside, .. } = plan;
    let (signal, record) = (work.signal(), Arc::new(Record::default()));
    let driver = Driver {
        beside,
        work: work.share(),
        task: Task {
            run_id: run.to_string(),
            session_id: session.id.to_string(),
            goal,
            input,
            directories: agent.directories.clone(),
            depth,
        },
        run: Arc::clone(&run),
        agent: Arc::clone(&agent),
        session: Arc::clone(session),
        record: Arc::clone(&record),
        limits: limits.clone(),
        descendants,
        children: Arc::new(AtomicU64::new(0)),
    };
    let reach = Arc::clone(&agent.reach);
    let host = Arc::new(driver) as Arc<dyn AgentHost>;
    let start = Start { work, limits, reach, host };
    let running = span.in_scope(|| session.sandbox.run_agent(&agent.code, start));
    Begun { run, running, signal, record, span }
}

impl Begun {
    /// Waits until the run has ended. Its end has not been published yet.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the run hard.
    pub(super) async fn ended(self, session: &Shared) -> RunReport {
        let Begun { run, running, signal, record, span } = self;
        let ended = async {
            let report = session.told_of_stops(&run, &signal, running.ended()).await;
            tell(session, &run, &report.outcome);
            RunReport::new(report, &record)
        };
        ended.instrument(span).await
    }
}

/// Says in the log how a run ended, where an operator may want to know. What a guest said is shown as what it is.
fn tell(session: &Shared, run: &Arc<str>, outcome: &Outcome<String>) {
    let session = &session.id;
    match outcome {
        Outcome::Completed(_) | Outcome::Failed(_) | Outcome::Interrupted { .. } => {
            tracing::debug!(%session, %run, status = outcome.status(), "a run has ended");
        }
        Outcome::Limit(limit) => {
            tracing::info!(%session, %run, %limit, "a limit has ended a run");
        }
        Outcome::Trapped(trapped) => {
            tracing::info!(%session, %run, cause = ?trapped.cause, "a guest broke off");
        }
        Outcome::NoPlace | Outcome::NotStarted(_) | Outcome::Unknown(_) => {
            let detail = outcome.detail().unwrap_or_default();
            tracing::warn!(%session, %run, ?detail, status = outcome.status(), "a run did not take place, or nobody knows how it ended");
        }
        Outcome::HostPanicked(words) => {
            tracing::error!(%session, %run, ?words, "the host failed in a run");
        }
    }
}

impl RunReport {
    fn new(report: Report<String>, record: &Record) -> RunReport {
        let Report { outcome, used, reached } = report;
        let completed = matches!(outcome, Outcome::Completed(_));
        let tools = if completed { Vec::new() } else { record.answers() };
        let (outcome, output) = match outcome {
            Outcome::Completed(text) => (Outcome::Completed(()), text),
            Outcome::Interrupted { stop, said } => {
                let output = said.unwrap_or_else(|| record.said());
                (Outcome::Interrupted { stop, said: None }, output)
            }
            outcome @ (Outcome::Failed(_)
            | Outcome::Limit(_)
            | Outcome::Trapped(_)
            | Outcome::NoPlace
            | Outcome::NotStarted(_)
            | Outcome::HostPanicked(_)
            | Outcome::Unknown(_)) => (outcome.map(|_| ()), record.said()),
        };
        RunReport { outcome, output, tools, used, reached }
    }

    /// The report of a run that was not started.
    pub(super) fn not_started(words: String) -> RunReport {
        RunReport::empty(Outcome::NotStarted(words))
    }

    /// The report of a run that was stopped before it was started.
    pub(super) fn stopped(stop: Stop) -> RunReport {
        RunReport::empty(Outcome::Interrupted { stop, said: None })
    }

    fn empty(outcome: Outcome<()>) -> RunReport {
        RunReport {
            outcome,
            output: String::new(),
            tools: Vec::new(),
            used: Used::default(),
            reached: Reached::default(),
        }
    }

    /// What watchers hear of it.
    pub(super) fn event(&self) -> EventKind {
        EventKind::RunEnded {
            status: self.outcome.status().to_owned(),
            detail: self.outcome.detail(),
            output: self.output.clone(),
            tools: self.tools.clone(),
            used: self.used,
            reached: self.reached,
        }
    }
}
