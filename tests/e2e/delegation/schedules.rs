//! Dispatch, stops of all kinds, completions, failures of children and shutdown, in random order; and afterwards the
//! books are checked against the rules W1–W4, H1–H5 and C1–C4.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use checkrein::delegation::{
    ChildStatus, Scheduler, SchedulerRefusal, UnitRequest, UnitState, UnitStatus,
};
use checkrein::session::{Delivery, Event, EventKind, PromptError, Session, Turn};
use checkrein::work::{Grace, Kind, NodeView, Stop};
use checkrein_testkit::{Random, TestHost, within};
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::support::{delegate, events, inline, task};
use crate::start::{Result, agent, host};

/// How many schedules, where nobody says otherwise. Set `CHECKREIN_SCHEDULES` for a longer test.
const SCHEDULES: u64 = 4_000;

/// How many of them go on at one time, in one host, for whose two slots they contend.
const AT_ONE_TIME: u64 = 4;

/// How many schedules each of them goes through before the host is shut down in the middle of the last.
const BEFORE_SHUTDOWN: u64 = 25;

/// What has been seen in all schedules together.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    completed: usize,
    interrupted: usize,
    partly: usize,
    inside: usize,
    refused: usize,
    failed: usize,
}

/// Says no now and then, and takes its time.
struct Moody(Mutex<Random>);

impl Scheduler for Moody {
    fn admit(&self, _unit: &UnitRequest) -> BoxFuture<'static, Result<(), SchedulerRefusal>> {
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (turns, mood) = (random.below(4), random.below(16));
        drop(random);
        async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            assert!(mood != 0, "on purpose");
            if mood == 1 { Err(SchedulerRefusal::new("in no mood")) } else { Ok(()) }
        }
        .boxed()
    }
}

/// One session and what is being done to it.
struct Schedule<'a> {
    host: &'a TestHost,
    session: Session,
    random: Random,
    /// Places at which children wait.
    places: Vec<String>,
    turn: Option<Turn>,
}

impl Schedule<'_> {
    /// One task: a child that ends by itself in some way, waits, never ends, or has a child of its own.
    fn task(&mut self) -> Value {
        let place = format!("{}-{}", self.session.id(), self.places.len());
        let goal = match self.random.below(9) {
            0..=2 => "say done".to_owned(),
            3 => "fail invalid no".to_owned(),
            4 => "trap".to_owned(),
            5 => "partial some\nspin".to_owned(),
            6 => inline(&[task("say below"), task(&format!("try checkpoint {place}"))]),
            _ => format!("try checkpoint {place}\nsay waited"),
        };
        if goal.contains(&place) {
            self.places.push(place);
        }
        match self.random.below(3) {
            0 => json!({ "goal": goal, "group": "g" }),
            _ => json!({ "goal": goal }),
        }
    }

    fn dispatch(&mut self) -> Result {
        let mut goal = Vec::new();
        for _ in 0..=self.random.below(2) {
            let tasks: Vec<Value> = (0..=self.random.below(3)).map(|_| self.task()).collect();
            let mode = if self.random.below(4) == 0 { "inline" } else { "background" };
            let policy = self.random.one_of(&["inline", "queue", "refuse"]).copied();
            let independent = self.random.below(2) == 0;
            let more = json!({ "policy": policy, "independent-completions": independent });
            goal.push(format!("try {}", delegate(mode, &tasks, &more)));
        }
        match self.session.prompt(goal.join("\n"), "") {
            Ok(turn) => self.turn = Some(turn),
            // The host is being shut down.
            Err(PromptError::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn stop(&mut self) -> Stop {
        match self.random.below(2) {
            0 => Stop::soft("user", "soon", Grace::After(Duration::from_millis(1))),
            _ => Stop::hard("user", "now"),
        }
    }

    /// Nodes below the session. Checks that they are a tree with one owner each, and that counting and listing agree.
    fn nodes(&self) -> Result<Vec<NodeView>> {
        // Looked at before the tree: who is in the background by now stays there.
        let beside: BTreeSet<String> = events(&self.session)
            .into_iter()
            .filter_map(|event| {
                let EventKind::RunStarted { parent: Some(_), delegation: Some(_), .. } = event.kind
                else {
                    return None;
                };
                Some(event.run.to_string())
            })
            .collect();
        let tree = self.host.host().tree();
        let nodes = tree.snapshot(self.session.work());
        let kinds: BTreeMap<_, _> = nodes.iter().map(|node| (node.id, node.kind)).collect();
        ensure!(kinds.len() == nodes.len(), "W1: a node is listed twice: {nodes:?}");
        for node in nodes.iter().skip(1) {
            let owner = node.owner.and_then(|owner| kinds.get(&owner).copied());
            let owners: &[Kind] = if node.kind == Kind::Child {
                &[Kind::Turn, Kind::Child, Kind::Unit]
            } else if node.kind == Kind::Unit {
                &[Kind::Registry]
            } else {
                &[]
            };
            let fits = owner.is_some_and(|owner| owners.is_empty() || owners.contains(&owner));
            ensure!(fits, "W1: {node:?} is owned by {owner:?}");
            let run = node.label.rsplit(' ').next().unwrap_or_default();
            ensure!(
                !beside.contains(run) || owner == Some(Kind::Unit),
                "H1: {node:?} was accepted into the background, and {owner:?} owns it"
            );
        }
        Ok(nodes)
    }

    async fn step(&mut self) -> Result {
        for _ in 0..self.random.below(40) {
            tokio::task::yield_now().await;
        }
        let stop = self.stop();
        match self.random.below(12) {
            0..=4 if self.session.running().is_none() => self.dispatch()?,
            5 => {
                self.session.stop_turn(None, &stop).ok();
            }
            6 => {
                self.session.stop_background("user", "the background");
            }
            7 => {
                let units = self.session.delegations(&[])?;
                if let Some(unit) = self.random.one_of(&units) {
                    self.session.stop_delegations(&[unit.id], &stop).ok();
                }
            }
            8 => {
                let mut children = self.nodes()?;
                children.retain(|node| node.kind == Kind::Child);
                if let Some(child) = self.random.one_of(&children) {
                    self.host.host().tree().stop(child.id, &stop).ok();
                }
            }
            9 => {
                self.session.stop("user", "everything");
            }
            _ => {
                if let Some(place) = self.random.one_of(&self.places) {
                    self.host.release(place);
                }
            }
        }
        self.nodes()?;
        Ok(())
    }

    /// Lets everything end, and waits until it has.
    async fn end(&mut self) -> Result {
        for place in &self.places {
            self.host.release(place);
        }
        for _ in 0..self.random.below(200) {
            tokio::task::yield_now().await;
        }
        // Some children never end by themselves.
        self.session.stop("user", "the end");
        if let Some(turn) = self.turn.take() {
            within("the turn", turn.ended()).await?;
        }
        self.session.stop("user", "the end");
        self.settled().await
    }

    async fn settled(&self) -> Result {
        let open = || {
            let units = self.session.delegations(&[]).unwrap_or_default();
            units.iter().any(|unit| !unit.state.is_terminal())
                || self.host.host().tree().count(self.session.work()) > 0
        };
        within("every unit has ended and nothing is left (W4)", async {
            while open() {
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Checks what happened against the rules.
    fn check(&self) -> Result<Seen> {
        let mut seen = Seen::default();
        let events = events(&self.session);
        let completions = self.session.completions();
        let at = |wanted: &dyn Fn(&Event) -> bool| -> Vec<u64> {
            events.iter().filter(|event| wanted(event)).map(|event| event.seq).collect()
        };

        // H4: every child that was started was closed once, after its start.
        let mut children = Vec::new();
        for event in &events {
            if let EventKind::RunStarted { parent: Some(parent), delegation, .. } = &event.kind {
                let ended = at(&|other| {
                    other.run == event.run && matches!(other.kind, EventKind::RunEnded { .. })
                });
                ensure!(
                    ended.len() == 1 && ended[0] > event.seq,
                    "H4: {} ended at {ended:?}",
                    event.run
                );
                children.push((Arc::clone(parent), delegation.clone(), event.seq, ended[0]));
            }
        }
        for event in &events {
            // H3, H5: when the call is over, every child that it ran inside has ended.
            if let EventKind::Delegated { results, .. } = &event.kind {
                let open = children.iter().filter(|(parent, unit, started, ended)| {
                    *parent == event.run
                        && unit.is_none()
                        && *started < event.seq
                        && *ended > event.seq
                });
                ensure!(open.count() == 0, "H3: {event:?}");
                seen.inside += results.len();
            }
            // C1, C3: exactly one completion, of the tasks that were accepted by that name.
            if let EventKind::DelegationAccepted { delegation, tasks } = &event.kind {
                let own: Vec<_> =
                    completions.iter().filter(|done| done.id.to_string() == *delegation).collect();
                ensure!(own.len() == 1, "C1: {delegation} has {} completions", own.len());
                let entries: Vec<u32> = own[0].entries.iter().map(|entry| entry.task).collect();
                ensure!(entries == *tasks, "C3: {delegation}: {entries:?} for {tasks:?}");
                // C2: it could be seen after all its children had ended.
                let told = at(
                    &|other| matches!(&other.kind, EventKind::DelegationEnded { delegation: ended, .. } if ended == delegation),
                );
                ensure!(told.len() == 1, "C1: {delegation} was told {} times", told.len());
                let last = children.iter().filter(|child| child.1.as_ref() == Some(delegation));
                ensure!(last.map(|child| child.3).max() < Some(told[0]), "C2: {delegation}");
            }
            if let EventKind::DelegationRejected { then, .. } = &event.kind
                && then == "refused"
            {
                seen.refused += 1;
            }
        }
        // C1: none for what was not accepted.
        let accepted: BTreeSet<&str> = events
            .iter()
            .filter_map(|event| {
                let EventKind::DelegationAccepted { delegation, .. } = &event.kind else {
                    return None;
                };
                Some(delegation.as_str())
            })
            .collect();
        ensure!(accepted.len() == completions.len(), "C1: {accepted:?} and {completions:?}");
        for completion in &completions {
            let stopped = |status: &ChildStatus| *status == ChildStatus::Interrupted;
            let interrupted =
                completion.entries.iter().filter(|entry| stopped(&entry.status)).count();
            let all = interrupted == completion.entries.len();
            // C4.
            ensure!(all == (completion.status == UnitStatus::Interrupted), "C4: {completion:?}");
            match (all, interrupted) {
                (true, _) => seen.interrupted += 1,
                (false, 0) => seen.completed += 1,
                (false, _) => seen.partly += 1,
            }
            seen.failed += completion
                .entries
                .iter()
                .filter(|entry| entry.status == ChildStatus::Failed)
                .count();
        }
        ensure!(self.session.delegations(&[])?.iter().all(|unit| unit.state != UnitState::Queued));
        let left = self.nodes()?;
        ensure!(left.len() == 2, "W4: left below the session: {left:?}");
        Ok(seen)
    }
}

async fn schedule<'a>(host: &'a TestHost, seed: u64) -> Result<Schedule<'a>> {
    let session = host.opening("agent").delivery(Delivery::Polled).open().await?;
    let random = Random::new(seed);
    Ok(Schedule { host, session, random, places: Vec::new(), turn: None })
}

/// Goes through one schedule. Its seed is in every error.
async fn one(host: &TestHost, seed: u64) -> Result<Seen> {
    let mut schedule = schedule(host, seed).await?;
    let run = async {
        schedule.dispatch()?;
        for _ in 0..3 + schedule.random.below(8) {
            schedule.step().await?;
        }
        schedule.end().await?;
        schedule.check()
    };
    let seen = run.await;
    seen.with_context(|| format!("seed {seed}; {:#?}", events(&schedule.session)))
}

/// The same, with the end given by the shutdown of the host.
async fn cut_short(mut schedule: Schedule<'_>, seed: u64, over: &Semaphore) -> Result<Seen> {
    let run = async {
        schedule.dispatch()?;
        for _ in 0..schedule.random.below(4) {
            schedule.step().await?;
        }
        drop(over.acquire().await?);
        if let Some(turn) = schedule.turn.take() {
            within("the turn", turn.ended()).await?;
        }
        schedule.settled().await?;
        schedule.check()
    };
    let seen = run.await;
    seen.with_context(|| format!("seed {seed}, shut down; {:#?}", events(&schedule.session)))
}

async fn on_one_host(first: u64, all: &Mutex<Seen>) -> Result {
    let moody = Arc::new(Moody(Mutex::new(Random::new(first))));
    let host = host()
        .plugin(agent())
        .scheduler(moody)
        .configuration("[delegation]\nunits-per-host = 2\nqueued-units = 2\n")
        .build()?;
    let add = |seen: Seen| {
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.completed += seen.completed;
        all.interrupted += seen.interrupted;
        all.partly += seen.partly;
        all.inside += seen.inside;
        all.refused += seen.refused;
        all.failed += seen.failed;
    };
    try_join_all((0..AT_ONE_TIME).map(|lane| {
        let (host, add) = (&host, &add);
        async move {
            for number in 0..BEFORE_SHUTDOWN {
                add(one(host, first + number * AT_ONE_TIME + lane).await?);
            }
            anyhow::Ok(())
        }
    }))
    .await?;
    let over = Semaphore::new(0);
    let last = first + BEFORE_SHUTDOWN * AT_ONE_TIME;
    let opened = try_join_all((last..last + AT_ONE_TIME).map(|seed| schedule(&host, seed))).await?;
    let cut = (last..).zip(opened).map(|(seed, schedule)| cut_short(schedule, seed, &over));
    let cut = try_join_all(cut);
    let shut_down = async {
        for _ in 0..Random::new(last).below(300) {
            tokio::task::yield_now().await;
        }
        let ended = host.host().shutdown("the host ends", checkrein_testkit::PATIENCE).await;
        over.add_permits(1);
        ended.map_err(|left| anyhow::anyhow!("seed {last}: left at the shutdown: {:?}", left.nodes))
    };
    let (seen, ended) = tokio::join!(cut, shut_down);
    ended?;
    seen?.into_iter().for_each(add);
    host.settles().await
}

/// Rules W1–W4, H1–H5, C1–C4.
#[tokio::test(flavor = "multi_thread")]
async fn the_rules_hold_in_any_order_of_events() -> Result {
    #[allow(
        clippy::disallowed_methods,
        reason = "whoever starts the tests says how long they may be"
    )]
    let schedules = std::env::var("CHECKREIN_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let (schedules, seen) = (schedules.unwrap_or(SCHEDULES), Mutex::new(Seen::default()));
    let of_one_host = (BEFORE_SHUTDOWN + 1) * AT_ONE_TIME;
    for first in (0..schedules).step_by(usize::try_from(of_one_host)?) {
        on_one_host(first, &seen).await?;
    }
    let seen = *seen.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{schedules} schedules: {seen:?}");
    let Seen { completed, interrupted, partly, inside, refused, failed } = seen;
    let outcomes = [completed, interrupted, partly, inside, refused, failed];
    assert!(outcomes.iter().all(|count| *count > 0), "each outcome occurs: {seen:?}");
    Ok(())
}
