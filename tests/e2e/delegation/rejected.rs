//! The first base matrix: *a rejected unit stops with its parent*. The rows of the table are the methods of
//! [`Stage`], in its order; the columns are [`Case`].

use std::collections::BTreeSet;
use std::sync::Arc;

use checkrein::delegation::UnitStatus;
use checkrein::ids::WorkId;
use checkrein::sandbox::Outcome;
use checkrein::session::{Delivery, EventKind, Session, TaskEnd, Turn};
use checkrein::work::{Grace, Kind, NodeView, Stop, StopKind};
use checkrein_testkit::{Admissions, TestHost, within};
use serde_json::{Value, json};

use super::support::{background, completed, delegate, event, events, over, read, task};
use crate::start::{Result, with_agent};

/// Why the unit is not let into the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Another session's unit holds the only slot.
    Capacity,
    /// The scheduler says no.
    Scheduler,
    /// Capacity 3, independent completions, three units; the scheduler says no to the second.
    Partial,
}

/// When the parent is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The child of the rejected unit is running.
    Running,
    /// The admission of the unit that will be rejected is undecided.
    Admission,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    cause: Cause,
    moment: Moment,
    kind: StopKind,
}

/// The words of the stop.
const WORDS: &str = "enough of this";

impl Case {
    fn stop(self) -> Stop {
        match self.kind {
            StopKind::Soft => Stop::soft("user", WORDS, Grace::Never),
            StopKind::Hard => Stop::hard("user", WORDS),
        }
    }

    fn is_soft(self) -> bool {
        self.kind == StopKind::Soft
    }

    /// The task of the unit that is rejected.
    fn rejected(self) -> u32 {
        match self.cause {
            Cause::Capacity | Cause::Scheduler => 0,
            Cause::Partial => 1,
        }
    }
}

/// A child reports that it has started, waits in a host call until it carries a stop, reports what it observed, and
/// waits for permission to finish.
fn child(task: u32) -> String {
    format!(
        "emit started\ntry checkpoint run-{task}\nobserve\ncheckpoint finish-{task}\nsay finished"
    )
}

struct Stage {
    case: Case,
    host: TestHost,
    admissions: Arc<Admissions>,
    session: Session,
    /// Holds the only slot; for [`Cause::Capacity`].
    other: Option<Session>,
    turn: Turn,
}

impl Stage {
    /// A real host, the parent's call under way, and the unit that will be rejected held in its admission.
    async fn set(case: Case) -> Result<Stage> {
        let admissions = Arc::new(Admissions::new());
        let slots = if case.cause == Cause::Partial { 3 } else { 1 };
        let host = with_agent()
            .scheduler(admissions.clone())
            .configuration(&format!("[delegation]\nunits-per-host = {slots}\n"))
            .build()?;
        let open = || async {
            Ok::<_, anyhow::Error>(host.opening("agent").delivery(Delivery::Polled).open().await?)
        };
        let other = match case.cause {
            Cause::Capacity => {
                let other = open().await?;
                let call = background(&[task("checkpoint other\nsay the other")]);
                within("the other turn", other.prompt(call, "")?.ended()).await?;
                host.reached("other").await?;
                Some(other)
            }
            Cause::Scheduler | Cause::Partial => None,
        };
        let session = open().await?;
        admissions.hold(session.id(), case.rejected());
        if !case.is_soft() {
            // Permission to finish is a gate on what a hard stop tears down.
            host.places().linger(&format!("run-{}", case.rejected()));
        }
        let call = match case.cause {
            Cause::Capacity | Cause::Scheduler => background(&[task(&child(0))]),
            Cause::Partial => delegate(
                "background",
                &[task(&child(0)), task(&child(1)), task(&child(2))],
                &json!({ "independent-completions": true }),
            ),
        };
        // After the call the parent waits where the test can look at it.
        let turn = session.prompt(format!("{call}\ntry checkpoint told\ncheckpoint after"), "")?;
        within("the admission", admissions.asked(session.id(), case.rejected())).await?;
        Ok(Stage { case, host, admissions, session, other, turn })
    }

    /// The admission is decided, against the unit.
    fn reject(&self) {
        match self.case.cause {
            // The scheduler has nothing against it: there is no slot.
            Cause::Capacity => self.admissions.admit(self.session.id(), 0),
            Cause::Scheduler | Cause::Partial => {
                self.admissions.refuse(self.session.id(), self.case.rejected(), "not today");
            }
        }
    }

    /// Stops the turn. From a thread of its own, because a hard stop tears down what lingers.
    fn stop(&self) -> tokio::task::JoinHandle<usize> {
        let (session, stop) = (self.session.clone(), self.case.stop());
        tokio::task::spawn_blocking(move || session.stop_turn(None, &stop).unwrap_or(0))
    }

    /// The name of a child's run.
    fn run(&self, task: u32) -> String {
        format!("{}.1.{}", self.session.id(), task + 1)
    }

    /// The child's node, if it is in the tree.
    fn node(&self, task: u32) -> Option<NodeView> {
        let label = format!("agent {}", self.run(task));
        self.host.executions().into_iter().find(|node| *node.label == *label)
    }

    fn has_started(&self, task: u32) -> bool {
        let run = self.run(task);
        events(&self.session)
            .iter()
            .any(|event| *event.run == *run && matches!(event.kind, EventKind::RunStarted { .. }))
    }

    async fn started(&self, task: u32) -> Result {
        let run = self.run(task);
        event(&self.session, &format!("the start of {run}"), |event| {
            (*event.run == *run && matches!(event.kind, EventKind::RunStarted { .. })).then_some(())
        })
        .await
    }

    /// Row: another session's unit holds the only slot.
    fn the_only_slot_is_held(&self) {
        if self.case.cause == Cause::Capacity {
            assert_eq!(self.host.host().slots().held, 1);
            assert!(self.other.as_ref().is_some_and(|other| other.completions().is_empty()));
        }
    }

    /// Row: the accepted first unit is running before the second is decided.
    async fn the_first_unit_runs(&self) -> Result {
        if self.case.cause == Cause::Partial {
            self.host.reached("run-0").await?;
            self.the_accepted_sibling_carries_no_stop();
        }
        Ok(())
    }

    /// Row: after the rejection the child starts, also when it is already stopped.
    async fn the_rejected_child_starts(&self) -> Result {
        self.started(self.case.rejected()).await
    }

    /// Row: it observes exactly the parent's message and kind. A hard stop is seen on its record by the host.
    async fn the_rejected_child_observes_the_stop(&self) -> Result {
        self.observes(self.case.rejected()).await
    }

    async fn observes(&self, task: u32) -> Result {
        let (run, soft) = (self.run(task), self.case.is_soft());
        let observed = event(&self.session, &format!("what {run} observes"), |event| {
            if *event.run != *run {
                return None;
            }
            if let EventKind::Custom { kind, payload } = &event.kind
                && soft
                && kind == "observed"
            {
                return Some(payload["text"].as_str().unwrap_or_default().to_owned());
            }
            let EventKind::Stop { kind, message, issuer } = &event.kind else { return None };
            (!soft).then(|| format!("{kind} | {message} | {issuer}"))
        })
        .await?;
        assert_eq!(observed, format!("{} | {WORDS} | user", self.case.kind));
        Ok(())
    }

    /// Row: the accepted sibling carries no stop, before and after.
    fn the_accepted_sibling_carries_no_stop(&self) {
        if self.case.cause == Cause::Partial {
            assert!(self.node(0).is_some_and(|sibling| sibling.stop.is_none()));
        }
    }

    /// Row: the not-yet-submitted sibling carries the stop and has not started.
    fn the_pending_sibling_carries_the_stop(&self) {
        if self.case.cause == Cause::Partial {
            let stop = self.node(2).and_then(|sibling| sibling.stop);
            assert_eq!(stop, Some(self.case.stop()));
            assert!(!self.has_started(2));
        }
    }

    /// Row: the call has not returned, and the child is not closed, while the child unwinds.
    fn the_call_waits_for_the_child(&self, turn: WorkId) {
        let child = self.node(self.case.rejected()).map(|child| (child.kind, child.owner));
        assert_eq!(child, Some((Kind::Child, Some(turn))));
        assert!(self.session.running().is_some());
        let kinds = events(&self.session);
        assert!(!kinds.iter().any(|event| matches!(event.kind, EventKind::Delegated { .. })));
        assert_eq!(self.ends(self.case.rejected()), 0);
    }

    /// How often a child was closed.
    fn ends(&self, task: u32) -> usize {
        let run = self.run(task);
        let ended = |kind: &EventKind| matches!(kind, EventKind::RunEnded { .. });
        events(&self.session)
            .iter()
            .filter(|event| *event.run == *run && ended(&event.kind))
            .count()
    }

    /// Permission to finish.
    fn release(&self, task: u32) {
        self.host.release(&format!("finish-{task}"));
        if !self.case.is_soft() {
            self.host.release(&format!("run-{task}"));
        }
    }

    /// What the call came to, as watchers are told: its outcome, and how what ran inside it ended.
    async fn answer(&self) -> Result<(String, Vec<String>, Vec<TaskEnd>, String)> {
        event(&self.session, "the end of the call", |event| {
            let EventKind::Delegated { outcome, delegations, results, note } = &event.kind else {
                return None;
            };
            Some((outcome.clone(), delegations.clone(), results.clone(), note.clone()))
        })
        .await
    }
}

async fn a_rejected_unit_stops_with_its_parent(case: Case) -> Result {
    let stage = Stage::set(case).await?;
    let turn = stage.turn.id();
    stage.the_only_slot_is_held();
    stage.the_first_unit_runs().await?;

    // The stop, before the decision or after the child has begun to wait.
    let stopping = match case.moment {
        Moment::Admission => {
            let stopped = within("the stop", stage.stop()).await??;
            assert!(stopped >= 2, "the parent and its child carry the stop: {stopped}");
            stage.reject();
            None
        }
        Moment::Running => {
            stage.reject();
            stage.host.reached(&format!("run-{}", case.rejected())).await?;
            Some(stage.stop())
        }
    };
    stage.the_rejected_child_starts().await?;
    stage.the_rejected_child_observes_the_stop().await?;
    stage.the_accepted_sibling_carries_no_stop();

    // A child that is stopped hard before it starts runs not one instruction, and has nothing to unwind.
    if case.is_soft() || case.moment == Moment::Running {
        let place =
            format!("{}-{}", if case.is_soft() { "finish" } else { "run" }, case.rejected());
        within("the child is in its gate", async {
            if case.is_soft() {
                stage.host.places().reached(&place, 1).await;
            } else {
                stage.host.places().abandoned(&place, 1).await;
            }
        })
        .await?;
        stage.the_pending_sibling_carries_the_stop();
        stage.the_call_waits_for_the_child(turn);
    }
    stage.release(case.rejected());
    if let Some(stopping) = stopping {
        assert!(within("the stop", stopping).await?? >= 2);
    }

    // The pending sibling is submitted after all, starts, and observes the same stop.
    if case.cause == Cause::Partial {
        stage.started(2).await?;
        stage.observes(2).await?;
        stage.release(2);
    }

    // Row: what the call came to.
    let (outcome, delegations, results, note) = stage.answer().await?;
    let interrupted = TaskEnd { task: case.rejected(), status: "interrupted".to_owned() };
    assert_eq!(results, [interrupted]);
    let mut accepted: BTreeSet<String> = delegations.into_iter().collect();
    match case.cause {
        Cause::Capacity | Cause::Scheduler => {
            assert_eq!((outcome.as_str(), accepted.len()), ("completed", 0));
            assert!(note.starts_with("Synchronous execution"), "{note}");
        }
        Cause::Partial => assert_eq!((outcome.as_str(), accepted.len()), ("dispatched", 2)),
    }

    // Row: the turn owns no child.
    if case.is_soft() {
        stage.host.reached("after").await?;
        let owned = |node: &NodeView| node.kind == Kind::Child && node.owner == Some(turn);
        assert!(!stage.host.executions().iter().any(owned));
        stage.host.release("after");
    }
    stage.the_accepted_sibling_carries_no_stop();
    let Stage { turn, .. } = stage;
    let report = within("the turn", turn.ended()).await?;
    assert_eq!(report.outcome, Outcome::Interrupted { stop: case.stop(), said: None });
    let stage = Stage { turn: stage.session.prompt("say over", "")?, ..stage };
    if case.is_soft() {
        told_to_the_guest(case, &report.output)?;
    }

    // Row: completions are exactly those of the accepted units, as a set; none for the rejected one.
    if case.cause == Cause::Partial {
        stage.host.release("run-0");
        stage.host.release("finish-0");
    }
    for unit in &accepted {
        completed(&stage.session, unit).await?;
    }
    let completions = stage.session.completions();
    let named: BTreeSet<String> = completions.iter().map(|done| done.id.to_string()).collect();
    assert_eq!((completions.len(), &named), (accepted.len(), &accepted));
    for completion in completions {
        let first = completion.entries[0].task == 0;
        let expected = if first { UnitStatus::Completed } else { UnitStatus::Interrupted };
        assert_eq!(completion.status, expected, "{completion:?}");
        assert!(accepted.remove(&completion.id.to_string()), "one completion each");
    }

    // Row: another session's unit later completes.
    if let Some(other) = &stage.other {
        stage.host.release("other");
        let completion = within("the other completion", other.completion()).await?;
        assert_eq!(completion.status, UnitStatus::Completed);
    }

    // Row: every child finished, closed exactly once.
    let children = if case.cause == Cause::Partial { 3 } else { 1 };
    for task in 0..children {
        assert_eq!(stage.ends(task), 1, "task {task}");
    }
    within("the last turn", stage.turn.ended()).await?;
    over(&stage.host).await
}

/// What a guest reads that outlives its soft stop.
fn told_to_the_guest(case: Case, output: &str) -> Result {
    let mut lines = output.lines();
    let outcome = read(lines.next().unwrap_or_default())?;
    let interrupted = |results: &Value| results[0]["status"] == "interrupted";
    match case.cause {
        Cause::Capacity | Cause::Scheduler => {
            assert!(outcome["outcome"] == "completed" && interrupted(&outcome["results"]));
            let note = outcome["note"].as_str().unwrap_or_default();
            assert!(note.starts_with("Synchronous execution"), "{note}");
        }
        Cause::Partial => {
            assert!(outcome["outcome"] == "dispatched" && interrupted(&outcome["inline-results"]));
        }
    }
    // The parent hears of its own stop at the next call that waits.
    assert_eq!(lines.next(), Some("interrupted | soft | enough of this | user"));
    Ok(())
}

/// One test for each case of the matrix.
macro_rules! matrix {
    ($($name:ident: $cause:ident, $moment:ident, $kind:ident;)*) => {$(
        /// Rules A2–A7, H2–H5, C1, C4, S3, S4, S6.
        #[tokio::test(flavor = "multi_thread")]
        pub(crate) async fn $name() -> Result {
            let case = Case { cause: Cause::$cause, moment: Moment::$moment, kind: StopKind::$kind };
            a_rejected_unit_stops_with_its_parent(case).await
        }
    )*};
}

matrix! {
    capacity_running_soft: Capacity, Running, Soft;
    capacity_running_hard: Capacity, Running, Hard;
    capacity_admission_soft: Capacity, Admission, Soft;
    capacity_admission_hard: Capacity, Admission, Hard;
    scheduler_running_soft: Scheduler, Running, Soft;
    scheduler_running_hard: Scheduler, Running, Hard;
    scheduler_admission_soft: Scheduler, Admission, Soft;
    scheduler_admission_hard: Scheduler, Admission, Hard;
    partial_running_soft: Partial, Running, Soft;
    partial_running_hard: Partial, Running, Hard;
    partial_admission_soft: Partial, Admission, Soft;
    partial_admission_hard: Partial, Admission, Hard;
}
