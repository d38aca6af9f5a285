//! Limits and policies of admission (A1, A3, A8, A9), and what goes wrong on the way (A2).

use std::sync::Arc;

use checkrein::delegation::{
    Completion, DelegationId, RecordError, Recorder, Scheduler, SchedulerRefusal, Seen, SlotsUsed,
    UnitRequest, UnitState, UnitStatus,
};
use checkrein::sandbox::Outcome;
use checkrein::session::{Delivery, EventKind, Session};
use checkrein::work::{Kind, NodeView};
use checkrein_testkit::{TestHost, within};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::support::{background, delegate, event, events, over, read, statuses, task};
use crate::start::{Result, soft, with_agent};

async fn polled(host: &TestHost) -> Result<Session> {
    Ok(host.opening("agent").delivery(Delivery::Polled).open().await?)
}

/// A session whose unit holds a slot until `place` is released.
async fn holder(host: &TestHost, place: &str) -> Result<Session> {
    let session = polled(host).await?;
    let call = background(&[task(&format!("checkpoint {place}\nsay {place}"))]);
    within("the holder's turn", session.prompt(call, "")?.ended()).await?;
    host.reached(place).await?;
    Ok(session)
}

fn queued(tasks: &[Value]) -> String {
    delegate("background", tasks, &json!({ "policy": "queue" }))
}

/// Rule A3, *queue*: units wait in order, are listed as queued, and are the turn's until they are let in.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn units_wait_in_line_in_order() -> Result {
    let host = with_agent().configuration("[delegation]\nunits-per-host = 1\n").build()?;
    let holder = holder(&host, "held").await?;
    let (one, two) = (polled(&host).await?, polled(&host).await?);
    let first = one.prompt(queued(&[task("checkpoint one\nsay one")]), "")?;
    let line = |waiting| {
        let host = &host;
        host.until("the line", move |_| host.host().slots() == SlotsUsed { held: 1, waiting })
    };
    line(1).await?;
    let second = two.prompt(queued(&[task("say two")]), "")?;
    line(2).await?;
    assert_eq!(one.delegations(&[])?[0].state, UnitState::Queued);
    let owned = |node: &&NodeView| node.kind == Kind::Child && node.owner == Some(first.id());
    assert_eq!(host.executions().iter().filter(owned).count(), 1);

    host.release("held");
    host.reached("one").await?;
    let outcome = read(&within("the first turn", first.ended()).await?.output)?;
    assert_eq!(outcome["outcome"], "dispatched");
    assert_eq!(two.delegations(&[])?[0].state, UnitState::Queued);
    host.release("one");
    let outcome = read(&within("the second turn", second.ended()).await?.output)?;
    assert_eq!(outcome["outcome"], "dispatched");
    for session in [&holder, &one, &two] {
        let completion = within("a completion", session.completion()).await?;
        assert_eq!(completion.status, UnitStatus::Completed);
    }
    over(&host).await
}

/// Rule A3: a unit in line leaves it when its turn is stopped, and its child, which carries the stop, ends in the call.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_unit_in_line_can_be_cancelled() -> Result {
    let host = with_agent().configuration("[delegation]\nunits-per-host = 1\n").build()?;
    let _holder = holder(&host, "held").await?;
    let session = polled(&host).await?;
    let turn = session.prompt(queued(&[task("try checkpoint never\nsay left")]), "")?;
    host.until("the line", |_| host.host().slots().waiting == 1).await?;
    session.stop_turn(None, &soft("no need"))?;
    let outcome = read(&within("the turn", turn.ended()).await?.output)?;
    assert_eq!(
        (&outcome["outcome"], statuses(&outcome["results"])),
        (&json!("completed"), vec!["interrupted"])
    );
    assert_eq!(host.places().count("never"), 0);
    assert_eq!(host.host().slots(), SlotsUsed { held: 1, waiting: 0 });
    assert!(session.completions().is_empty());
    host.release("held");
    over(&host).await
}

/// A child in the background does not wait for the place that its own unit holds.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn nobody_in_the_background_waits_in_line() -> Result {
    let host = with_agent().configuration("[delegation]\nunits-per-host = 1\n").build()?;
    let session = polled(&host).await?;
    let child = task(&queued(&[task("say below")]));
    within("the turn", session.prompt(background(&[child]), "")?.ended()).await?;
    let completion = within("the completion", session.completion()).await?;
    let below = read(&completion.entries[0].output)?;
    assert_eq!(statuses(&below["results"]), ["completed"]);
    assert!(below["note"].as_str().is_some_and(|note| note.starts_with("Synchronous")));
    over(&host).await
}

/// Rule A9: what was refused is not counted as started.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn refused_children_use_up_nothing() -> Result {
    let limits = "[delegation]\nunits-per-host = 0\ndescendants-per-tree = 3\n";
    let host = with_agent().configuration(limits).build()?;
    let session = polled(&host).await?;
    let tasks = [task("x"), task("x"), task("x")];
    let refused = delegate("background", &tasks, &json!({ "policy": "refuse" }));
    let goal = format!("try {refused}\ntry {refused}\n{}", super::support::inline(&tasks[..2]));
    let report = within("the turn", session.prompt(goal, "")?.ended()).await?;
    let lines: Vec<&str> = report.output.lines().collect();
    assert_eq!(lines[..2], ["busy", "busy"]);
    assert_eq!(statuses(&read(lines[2])?["results"]).len(), 2);
    host.is_idle()
}

/// Rule A10: the time of a child passes also while it waits in line.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_unit_in_line_can_run_out_of_time() -> Result {
    let host = with_agent().configuration("[delegation]\nunits-per-host = 1\n").build()?;
    let _holder = holder(&host, "held").await?;
    let session = polled(&host).await?;
    let short = json!({ "goal": "checkpoint never", "limits": [["wall-time", 50]] });
    let turn = session.prompt(queued(&[short]), "")?;
    let outcome = read(&within("the turn", turn.ended()).await?.output)?;
    assert_eq!(statuses(&outcome["results"]), ["limit"]);
    assert_eq!(outcome["results"][0]["detail"], "the limit `wall-time` is used up");
    assert_eq!(host.places().count("never"), 0);
    host.release("held");
    over(&host).await
}

/// Rules A1, A3 and A9: each limit and policy answers as documented, says which limit it is and when to try again.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_full_house_answers_by_its_policy() -> Result {
    for (limits, words, again) in [
        ("units-per-host = 1", "`units-per-host` is 1", "when a unit of this host ends"),
        (
            "units-per-host = 1\nqueued-units = 0",
            "`queued-units` is 0",
            "when a unit that waits in line has started",
        ),
        (
            "unread-completions = 0",
            "`unread-completions` is 0",
            "when results of this session have been read",
        ),
        ("units-per-session = 0", "`units-per-session` is 0", "when a unit of this session ends"),
    ] {
        let host = with_agent().configuration(&format!("[delegation]\n{limits}\n")).build()?;
        if limits.contains("host = 1") {
            holder(&host, "held").await?;
        }
        let policy = if limits.contains("queued") { "queue" } else { "inline" };
        let session = polled(&host).await?;
        let call = |policy| delegate("background", &[task("say x")], &json!({ "policy": policy }));
        let report = within("the turn", session.prompt(call(policy), "")?.ended()).await?;
        let outcome = read(&report.output)?;
        let note = outcome["note"].as_str().unwrap_or_default();
        assert_eq!(statuses(&outcome["results"]), ["completed"], "{limits}");
        assert!(note.contains(words) && note.contains(again), "{limits}: {note}");
        if policy == "inline" {
            let report = within("the turn", session.prompt(call("refuse"), "")?.ended()).await?;
            let Outcome::Failed(failure) = report.outcome else { panic!("{report:?}") };
            assert_eq!(failure.code.as_str(), "busy");
            assert!(failure.message.starts_with("Not run: the only task"), "{failure}");
            assert!(
                failure.message.contains(words) && failure.message.contains(again),
                "{failure}"
            );
        }
        let reason = event(&session, "the refusal", |event| {
            let EventKind::DelegationRejected { reason, .. } = &event.kind else { return None };
            Some(reason.clone())
        })
        .await?;
        assert_eq!(reason, "capacity");
        host.release("held");
        over(&host).await?;
    }
    Ok(())
}

/// Rule A8: all units of a call share one slot, and it is given back when the last child has ended.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn the_units_of_a_call_share_a_slot() -> Result {
    let host = with_agent().configuration("[delegation]\nunits-per-host = 1\n").build()?;
    let session = polled(&host).await?;
    let tasks = [task("checkpoint a"), task("checkpoint b"), task("checkpoint c")];
    let call = delegate("background", &tasks, &json!({ "independent-completions": true }));
    let report = within("the turn", session.prompt(call, "")?.ended()).await?;
    assert_eq!(read(&report.output)?["delegation-ids"], json!(["d1", "d2", "d3"]));
    for place in ["a", "b", "c"] {
        assert_eq!(host.host().slots().held, 1);
        host.reached(place).await?;
        host.release(place);
    }
    for _ in 0..3 {
        let completion = within("a completion", session.completion()).await?;
        session.acknowledge(completion.id).await?;
    }
    assert_eq!(host.host().slots().held, 0);
    over(&host).await
}

/// What an embedder's code does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    SchedulerPanicsAtOnce,
    SchedulerPanicsLater,
    RecorderFails,
    RecorderPanics,
    EndFails,
    EndPanics,
}

impl Fault {
    fn fails(self, fault: Fault) -> Result<(), RecordError> {
        let full = || Err(RecordError { words: "the disk is full".to_owned() });
        if self == fault { full() } else { Ok(()) }
    }
}

impl Scheduler for Fault {
    fn admit(&self, _unit: &UnitRequest) -> BoxFuture<'static, Result<(), SchedulerRefusal>> {
        assert_ne!(*self, Fault::SchedulerPanicsAtOnce, "on purpose");
        let panics = *self == Fault::SchedulerPanicsLater;
        async move {
            tokio::task::yield_now().await;
            assert!(!panics, "on purpose");
            Ok(())
        }
        .boxed()
    }
}

impl Recorder for Fault {
    fn accepted(&self, _unit: &UnitRequest) -> BoxFuture<'static, Result<(), RecordError>> {
        assert_ne!(*self, Fault::RecorderPanics, "on purpose");
        std::future::ready(self.fails(Fault::RecorderFails)).boxed()
    }

    fn withdrawn(&self, _unit: DelegationId) {}

    fn ended(&self, _completion: &Arc<Completion>, seen: Seen) {
        assert_ne!(*self, Fault::EndPanics, "on purpose");
        // Whoever cannot write the end down lets go of it.
        if self.fails(Fault::EndFails).is_ok() {
            seen.now();
        }
    }
}

/// Rule A2: whatever fails on the way to the background gives back slot and owner, and the unit runs inside the call. A
/// failure at the end loses no completion.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_failure_at_any_point_of_admission_gives_everything_back() -> Result {
    for (fault, reason) in [
        (Fault::SchedulerPanicsAtOnce, Some("scheduler")),
        (Fault::SchedulerPanicsLater, Some("scheduler")),
        (Fault::RecorderFails, Some("store")),
        (Fault::RecorderPanics, Some("store")),
        (Fault::EndFails, None),
        (Fault::EndPanics, None),
    ] {
        let host = with_agent().scheduler(Arc::new(fault)).recorder(Arc::new(fault)).build()?;
        let session = polled(&host).await?;
        let turn = session.prompt(background(&[task("checkpoint run\nsay done")]), "")?;
        let turn_id = turn.id();
        host.reached("run").await?;
        let child = host.executions().into_iter().find(|node| node.kind == Kind::Child);
        let owner = child.and_then(|child| child.owner);
        assert_eq!(owner == Some(turn_id), reason.is_some(), "{fault:?}");
        assert_eq!(host.host().slots().held, u64::from(reason.is_none()), "{fault:?}");
        host.release("run");
        let outcome = read(&within("the turn", turn.ended()).await?.output)?;
        match reason {
            Some(reason) => {
                assert_eq!(outcome["outcome"], "completed", "{fault:?}");
                assert_eq!(outcome["results"][0]["output"], "done");
                let note = outcome["note"].as_str().unwrap_or_default();
                assert!(note.contains(&format!("({reason})")), "{note}");
                assert!(session.completions().is_empty() && session.delegations(&[])?.is_empty());
            }
            None => {
                let completion = within("the completion", session.completion()).await?;
                assert_eq!(completion.entries[0].output, "done", "{fault:?}");
            }
        }
        over(&host).await?;
        assert_eq!(host.host().slots(), SlotsUsed { held: 0, waiting: 0 });
    }
    Ok(())
}

/// Rules A4 and A6: when the first unit is rejected the whole call is inside, one unit after the other.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_rejected_first_unit_decides_for_the_whole_call() -> Result {
    let host = with_agent().configuration("[delegation]\nunits-per-host = 0\n").build()?;
    let session = polled(&host).await?;
    let tasks = [task("checkpoint a\nsay a"), task("say b")];
    let call = delegate("background", &tasks, &json!({ "independent-completions": true }));
    let turn = session.prompt(call, "")?;
    host.reached("a").await?;
    let starts = || {
        let child =
            |kind: &EventKind| matches!(kind, EventKind::RunStarted { parent: Some(_), .. });
        events(&session).iter().filter(|event| child(&event.kind)).count()
    };
    assert_eq!(starts(), 1, "the unit behind waits for the one inside");
    host.release("a");
    let outcome = read(&within("the turn", turn.ended()).await?.output)?;
    assert_eq!(outcome["outcome"], "completed");
    assert_eq!(statuses(&outcome["results"]), ["completed", "completed"]);
    assert_eq!(starts(), 2);
    host.is_idle()
}
