//! Who decides, starts and remembers.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::clock::Clock;
use super::record::{Kept, Known, ScheduledRun};
use super::writer::{Writer, Written};
use crate::error::{Error, ErrorKind};
use crate::host::profile::Profile;
use crate::ids::SessionId;
use crate::plugin::{Configuration, ScheduleSession, ScheduleTable};
use crate::sandbox::Outcome;
use crate::schedule::{Passed, Planner, Start, Timestamp, Why};
use crate::session::{Delivery, PromptError, Session, Turn};
use crate::work::{Kind, Refused, StopKind, Work, spawn_charged};

/// The owner of a home's schedules.
pub(in crate::host) struct Owner {
    clock: Arc<dyn Clock>,
    /// For looks and short changes. A write is queued under it, so that writes have the order of the changes.
    state: Mutex<State>,
    writer: Writer,
    /// Woken when there may be something to decide.
    changed: Notify,
    /// Tasks of the owner that have not ended.
    open: watch::Sender<usize>,
    /// One standing session is looked up at a time.
    standing: tokio::sync::Mutex<()>,
}

struct State {
    /// From the binding to the unbinding.
    bound: bool,
    tables: BTreeMap<String, ScheduleTable>,
    planner: Planner,
    kept: Kept,
}

/// A task of the owner.
struct Open<'a>(&'a watch::Sender<usize>);

impl<'a> Open<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Open<'a> {
        count.send_modify(|count| *count += 1);
        Open(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A run that is claimed: it counts, and is not started yet.
struct Claimed {
    name: String,
    start: Start,
    work: Work,
}

/// What is known of one schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// When, as it is written.
    pub cron: String,
    /// Whose clock that is.
    pub time_zone: String,
    /// The agent that is run.
    pub agent: String,
    /// When it is due next; none when nobody decides about it any more.
    pub next: Option<Timestamp>,
    /// Runs that wait for an earlier one.
    pub waiting: usize,
    /// The newest runs, the oldest first.
    pub runs: Vec<ScheduledRun>,
}

/// The schedules of a profile, and what came of them. Cheap to clone.
#[derive(Clone)]
pub struct Schedules {
    pub(in crate::host) owner: Arc<Owner>,
}

impl Schedules {
    /// All of them, by name.
    pub fn list(&self) -> Vec<ScheduleView> {
        let state = self.owner.state();
        let view = |(name, table): (&String, &ScheduleTable)| ScheduleView {
            name: name.clone(),
            cron: table.cron.to_string(),
            time_zone: table.time_zone.to_string(),
            agent: table.agent.to_string(),
            next: state.planner.next_of(name).filter(|_| state.bound),
            waiting: state.planner.waiting(name),
            runs: state.runs(name),
        };
        state.tables.iter().map(view).collect()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<ScheduleView> {
        self.list().into_iter().find(|view| view.name == name)
    }

    /// Whether the owner is bound to the home: from the moment at which the profile is served until all its work has ended.
    pub fn is_bound(&self) -> bool {
        self.owner.state().bound
    }
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").finish_non_exhaustive()
    }
}

impl State {
    fn runs(&self, name: &str) -> Vec<ScheduledRun> {
        let known = self.kept.schedules.get(name);
        known.map(|known| known.runs.iter().cloned().collect()).unwrap_or_default()
    }

    fn running(&self, name: &str) -> usize {
        let known = self.kept.schedules.get(name);
        known.map_or(0, |known| known.runs.iter().filter(|run| run.ended.is_none()).count())
    }

    /// Takes over what the planner says of each schedule. What is configured no more is forgotten.
    fn keep_decided(&mut self) {
        let mut old = std::mem::take(&mut self.kept.schedules);
        for (name, decided) in self.planner.decided() {
            let Some(table) = self.tables.get(&name) else { continue };
            let times = times(table);
            let runs = old.remove(&name).map(|known| known.runs).unwrap_or_default();
            self.kept.schedules.insert(name, Known { times, decided, runs });
        }
    }

    /// A change of the run for that time, if it is remembered.
    fn change(&mut self, name: &str, at: Timestamp, change: impl FnOnce(&mut ScheduledRun)) {
        let known = self.kept.schedules.get_mut(name);
        if let Some(run) = known.and_then(|known| known.running(at)) {
            change(run);
        }
    }
}

/// What makes a schedule another one.
fn times(table: &ScheduleTable) -> String {
    format!("{} {}", table.cron, table.time_zone)
}

fn tables(configuration: &Configuration) -> BTreeMap<String, ScheduleTable> {
    let table = |(name, table): (&crate::plugin::ScheduleName, &ScheduleTable)| {
        (name.to_string(), table.clone())
    };
    configuration.schedules.iter().map(table).collect()
}

fn planned(
    tables: &BTreeMap<String, ScheduleTable>,
) -> impl Iterator<Item = (String, crate::schedule::Schedule)> {
    tables.iter().map(|(name, table)| (name.clone(), table.schedule()))
}

impl Owner {
    /// One that is not bound.
    pub(in crate::host) fn new(home: &Path, clock: Arc<dyn Clock>) -> Arc<Owner> {
        let planner = Planner::new([], &BTreeMap::new(), clock.now());
        let state = State { bound: false, tables: BTreeMap::new(), planner, kept: Kept::default() };
        Arc::new(Owner {
            clock,
            state: Mutex::new(state),
            writer: Writer::new(home),
            changed: Notify::new(),
            open: watch::Sender::new(0),
            standing: tokio::sync::Mutex::default(),
        })
    }

    /// Reads what was kept in the home. Waits for the disk.
    pub(in crate::host) fn read(&self, home: &Path) -> io::Result<()> {
        let kept = Kept::read(home, self.clock.now())?;
        self.state().kept = kept;
        Ok(())
    }

    /// Binds the owner to the home of a profile that is served from now on.
    pub(in crate::host) fn bind(self: &Arc<Self>, profile: &Profile) {
        let now = self.clock.now();
        {
            let mut state = self.state();
            state.tables = profile.look(|_, configuration| tables(configuration));
            // One with other times than before has missed nothing.
            let same = |(name, known): (&String, &Known)| {
                let table = state.tables.get(name)?;
                (times(table) == known.times).then(|| (name.clone(), known.decided))
            };
            let decided: BTreeMap<String, Timestamp> =
                state.kept.schedules.iter().filter_map(same).collect();
            state.planner = Planner::new(planned(&state.tables), &decided, now);
            state.keep_decided();
            state.bound = true;
            // A schedule that has not fired yet has missed what comes from now on.
            drop(self.keep(&state));
        }
        let (owner, profile) = (Arc::clone(self), profile.clone());
        let (control, held) = (profile.control(), profile.node().share());
        let drive = async move {
            let _open = Open::new(&owner.open);
            owner.drive(&profile).await;
        };
        let _detached = spawn_charged(&control, held, drive);
    }

    /// Takes over the schedules of another configuration. What runs goes on.
    pub(in crate::host) fn rebind(&self, configuration: &Configuration) {
        let now = self.clock.now();
        let mut state = self.state();
        if !state.bound {
            return;
        }
        state.tables = tables(configuration);
        let planned: Vec<_> = planned(&state.tables).collect();
        state.planner.rebind(planned, now);
        state.keep_decided();
        drop(self.keep(&state));
        drop(state);
        self.changed.notify_one();
    }

    /// Nothing is decided any more.
    pub(in crate::host) fn unbind(&self) {
        self.state().bound = false;
        self.changed.notify_one();
    }

    /// Waits until nothing of the owner goes on. Cancel safe.
    pub(in crate::host) async fn ended(&self) {
        // The sender lives in `self`, so that it cannot be gone.
        let _gone = self.open.subscribe().wait_for(|open| *open == 0).await.is_err();
    }

    /// Decides whenever there may be something to decide, until the profile takes no new work.
    async fn drive(self: &Arc<Self>, profile: &Profile) {
        let signal = profile.node().signal();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = self.clock.now();
            // What comes due from now on is for whoever serves the home next.
            let Ok(claimed) = self.decide(now, profile).await else { return };
            for claimed in claimed {
                let (owner, profile) = (Arc::clone(self), profile.clone());
                let (control, held) = (profile.control(), profile.node().share());
                let run = async move {
                    let _open = Open::new(&owner.open);
                    owner.run(&profile, claimed).await;
                };
                let _detached = spawn_charged(&control, held, run);
            }
            let next = {
                let state = self.state();
                if !state.bound {
                    return;
                }
                state.planner.next(now)
            };
            let due = async {
                match next {
                    Some(next) => self.clock.until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = signal.raised(StopKind::Hard) => return,
                () = changed => {}
                () = due => {}
            }
        }
    }

    /// Decides about everything that is due, claims what is to start, and keeps all of that before it is given out.
    async fn decide(&self, now: Timestamp, profile: &Profile) -> Result<Vec<Claimed>, Refused> {
        let (node, figures) = (profile.node(), profile.host().schedule_figures());
        let (mut claimed, writing, written) = {
            let mut state = self.state();
            if !state.bound {
                return Ok(Vec::new());
            }
            let mut planner = state.planner.clone();
            let due = planner.due(now, |name| state.running(name));
            if due.start.is_empty() && due.passed.is_empty() {
                // At most something has come into the line.
                state.planner = planner;
                return Ok(Vec::new());
            }
            let count = due.start.len() as u64;
            let refuses = |_: &Refused| figures.refused.of("draining").more(count);
            let writing = node.open(Kind::Blocking, "what schedules have decided is kept");
            let writing = writing.inspect_err(refuses)?;
            let claim = |decision: crate::schedule::Decision<Start>| {
                let label = format!("schedule {}", decision.schedule);
                // Not a turn: what a container has of those counts as one piece.
                let work = node.open(Kind::SideRun, label)?;
                Ok(Claimed { name: decision.schedule, start: decision.what, work })
            };
            let claimed = due.start.into_iter().map(claim).collect::<Result<Vec<_>, Refused>>();
            let claimed = claimed.inspect_err(refuses)?;
            state.planner = planner;
            state.keep_decided();
            for passed in due.passed {
                let (name, passed) = (passed.schedule, passed.what);
                tracing::warn!(schedule = name, first = %passed.first, count = passed.count, why = ?passed.why, "scheduled times were left out");
                if let Some(known) = state.kept.schedules.get_mut(&name) {
                    known.add(skipped(&passed, now));
                }
            }
            for Claimed { name, start, .. } in &claimed {
                if let Some(known) = state.kept.schedules.get_mut(name) {
                    known.add(begun(start, now));
                }
            }
            (claimed, writing, self.keep(&state))
        };
        let kept = written.done().await;
        drop(writing);
        if let Err(error) = kept {
            tracing::error!(%error, "what was decided about schedules could not be kept");
            let given_up = claimed.drain(..).map(|Claimed { name, start, .. }| (name, start));
            // Their claims go first.
            for (name, start) in given_up.collect::<Vec<_>>() {
                let words = format!("what was decided could not be kept: {error}");
                figures.refused.of("store").one();
                self.ended_as(&name, start.scheduled, "refused", Some(words)).await;
            }
        }
        Ok(claimed)
    }

    /// Queues what there is to keep. The caller holds the state.
    fn keep(&self, state: &State) -> Written {
        self.writer.write(state.kept.text())
    }

    /// Runs one claimed run to its end.
    async fn run(&self, profile: &Profile, claimed: Claimed) {
        let Claimed { name, start, work } = claimed;
        let figures = profile.host().schedule_figures();
        let signal = work.signal();
        let table = self.state().tables.get(&name).cloned();
        let begins = async {
            let table = table.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "the schedule is configured no more")
            })?;
            self.begin(profile, &table).await.map(|begun| (table, begun))
        };
        let begun = tokio::select! {
            biased;
            stop = signal.raised(StopKind::Hard) => Err(("interrupted", cut(&stop))),
            begun = begins => begun.map_err(|error| {
                figures.refused.of(reason(error.kind())).one();
                ("refused", told(&error))
            }),
        };
        let (table, session, turn) = match begun {
            Ok((table, (session, turn))) => (table, session, turn),
            Err((status, words)) => {
                drop(work);
                return self.ended_as(&name, start.scheduled, status, Some(words)).await;
            }
        };
        // The turn is in the tree; the claim is not needed any more.
        drop(work);
        figures.accepted.one();
        let written = {
            let mut state = self.state();
            state.change(&name, start.scheduled, |run| {
                run.session = Some(session.id().clone());
                run.generation = Some(turn.generation().0);
            });
            self.keep(&state)
        };
        report(written).await;
        let report = turn.ended().await;
        let (mut status, mut detail) = (report.outcome.status(), report.outcome.detail());
        if table.session == ScheduleSession::New {
            // What it left in the background is a part of it.
            session.node().tree().idle(session.work()).await;
            let cut_later = session
                .node()
                .signal()
                .stop()
                .filter(|_| matches!(report.outcome, Outcome::Completed(())));
            if let Some(stop) = cut_later {
                (status, detail) = ("interrupted", Some(cut(&stop)));
            }
        }
        self.ended_as(&name, start.scheduled, status, detail).await;
    }

    async fn begin(
        &self,
        profile: &Profile,
        table: &ScheduleTable,
    ) -> Result<(Session, Turn), Error> {
        let agent = table.agent.as_str();
        let session = match &table.session {
            ScheduleSession::New => profile.open(agent, Delivery::Turns).await?,
            ScheduleSession::Standing(name) => self.standing(profile, agent, name.as_str()).await?,
        };
        let turn = session.prompt_in_turn(table.goal.as_str(), table.input.as_str()).await;
        let refused = |error: PromptError| {
            Error::because(ErrorKind::Refused, "the run could not be started", error)
        };
        Ok((session, turn.map_err(refused)?))
    }

    /// The session of that name, which is opened when there is none, or none any more.
    async fn standing(&self, profile: &Profile, agent: &str, name: &str) -> Result<Session, Error> {
        let _one = self.standing.lock().await;
        let known: Option<SessionId> = self.state().kept.standing.get(name).cloned();
        if let Some(id) = known {
            match profile.session(&id).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => return other,
            }
        }
        let session = profile.open(agent, Delivery::Turns).await?;
        let written = {
            let mut state = self.state();
            state.kept.standing.insert(name.to_owned(), session.id().clone());
            self.keep(&state)
        };
        report(written).await;
        Ok(session)
    }

    /// A run is over.
    async fn ended_as(&self, name: &str, at: Timestamp, status: &str, detail: Option<String>) {
        let now = self.clock.now();
        let written = {
            let mut state = self.state();
            state.change(name, at, |run| {
                run.ended = Some(now);
                status.clone_into(&mut run.status);
                run.detail = detail;
            });
            self.keep(&state)
        };
        report(written).await;
        // Another may have waited for it.
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

/// What could not be kept is in the journal of its session all the same.
async fn report(written: Written) {
    if let Err(error) = written.done().await {
        tracing::error!(%error, "what came of a scheduled run could not be kept");
    }
}

fn begun(start: &Start, now: Timestamp) -> ScheduledRun {
    ScheduledRun {
        scheduled: start.scheduled,
        makes_up: start.makes_up,
        decided: now,
        ended: None,
        session: None,
        generation: None,
        status: "running".to_owned(),
        detail: None,
    }
}

fn skipped(passed: &Passed, now: Timestamp) -> ScheduledRun {
    let why = match passed.why {
        Why::Missed => "the host was not there",
        Why::Overlaps => "an earlier run had not ended",
        Why::LineIsFull => "an earlier run had not ended, and another one waited for that",
    };
    let more = if passed.more { " or more" } else { "" };
    let detail = match passed.count {
        1 => why.to_owned(),
        count => format!("{why} at {count}{more} times from {} on", passed.first),
    };
    ScheduledRun {
        scheduled: passed.last,
        makes_up: false,
        decided: now,
        ended: Some(now),
        session: None,
        generation: None,
        status: "skipped".to_owned(),
        detail: Some(detail),
    }
}

/// Why a run was refused before its turn, as it is counted.
fn reason(kind: ErrorKind) -> &'static str {
    if kind == ErrorKind::Store {
        "store"
    } else if kind == ErrorKind::Refused {
        "draining"
    } else {
        "agent"
    }
}

fn cut(stop: &crate::work::Stop) -> String {
    format!("stopped by {}: {}", stop.issuer(), stop.message())
}

/// An error with its causes.
fn told(error: &Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        words = format!("{words}: {next}");
        cause = next.source();
    }
    words
}
