//! One delegating call, seen by the agent that makes it.

use checkrein::delegation::{ChildStatus, UnitStatus};
use checkrein::sandbox::Outcome;
use checkrein::session::{Delivery, EventKind};
use checkrein::work::Kind;
use checkrein_testkit::within;
use serde_json::json;

use super::support::{
    background, completed, delegate, event, events, inline, over, read, statuses, task,
};
use crate::start::{Result, agent, with_agent};

/// Children that run inside the call have ended when it returns, each with its own result, in task order (H3, C5).
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn children_inside_the_call_give_a_result_each() -> Result {
    let host = with_agent().build()?;
    let call = inline(&[
        task("say one"),
        task("fail invalid no such thing"),
        task("trap"),
        task("partial half of it\nallocate 200"),
        task("say five"),
    ]);
    let report = host.run("agent", &call).await?;
    assert_eq!(report.outcome, Outcome::Completed(()), "{}", report.output);
    let outcome = read(&report.output)?;
    assert_eq!(outcome["outcome"], "completed");
    assert_eq!(
        statuses(&outcome["results"]),
        ["completed", "failed", "trapped", "limit", "completed"]
    );
    assert_eq!(outcome["results"][0]["output"], "one");
    assert_eq!(outcome["results"][1]["detail"], "invalid: no such thing");
    assert_eq!(outcome["results"][3]["output"], "half of it");
    assert_eq!(outcome["results"][3]["detail"], "the limit `memory` is used up");
    assert_eq!(outcome["results"][4]["task"], 4);
    host.is_idle()
}

/// A unit in the background outlives its turn, and its completion comes as a turn of its own (C1, C2, C3, C7).
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_background_unit_outlives_its_turn_and_comes_back_as_one() -> Result {
    let host = with_agent().build()?;
    let session = host.opening("agent").delivery(Delivery::Polled).open().await?;
    let call = background(&[task("checkpoint hold\nsay done"), task("say at once")]);
    let report = within("the turn", session.prompt(call, "")?.ended()).await?;
    let outcome = read(&report.output)?;
    assert_eq!(
        (&outcome["outcome"], &outcome["delegation-ids"]),
        (&json!("dispatched"), &json!(["d1"]))
    );
    assert_eq!(host.host().slots().held, 1);
    host.reached("hold").await?;
    assert!(session.completions().is_empty());
    host.release("hold");
    let completion = within("the completion", session.completion()).await?;
    assert_eq!(
        (completion.id.to_string().as_str(), completion.status),
        ("d1", UnitStatus::Completed)
    );
    let outputs: Vec<&str> = completion.entries.iter().map(|entry| entry.output.as_str()).collect();
    assert_eq!(outputs, ["done", "at once"]);
    assert!(completion.entries.iter().all(|entry| entry.status == ChildStatus::Completed));
    // When it can be seen, its children are gone and its slot is free.
    assert_eq!(host.host().slots().held, 0);
    assert!(session.acknowledge(completion.id).await?.is_some());
    assert!(session.acknowledge(completion.id).await?.is_none());
    over(&host).await
}

/// Rule C7: a completion wakes an idle session as a new turn, and is acknowledged by it.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_completion_wakes_its_session() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let call = background(&[task("say the answer")]);
    within("the turn", session.prompt(call, "")?.ended()).await?;
    completed(&session, "d1").await?;
    let woken = event(&session, "a turn for the completion", |event| {
        let EventKind::RunStarted { goal, parent: None, delegation: Some(unit), .. } = &event.kind
        else {
            return None;
        };
        Some((goal.clone(), unit.clone()))
    })
    .await?;
    assert_eq!(
        woken,
        (
            "Delegation d1 has ended.\n\nTask 0 (say the answer): completed\nthe answer".to_owned(),
            "d1".to_owned()
        )
    );
    // It is acknowledged when its turn is over.
    host.until("the completion is acknowledged", |_| session.completions().is_empty()).await?;
    let runs = events(&session);
    let starts = runs
        .iter()
        .filter(|event| matches!(event.kind, EventKind::RunStarted { parent: None, .. }));
    assert_eq!(starts.count(), 2);
    Ok(())
}

/// Rules S8 and C7: what a person has stopped does not wake the session; it comes after the next turn.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn what_a_person_has_stopped_wakes_nobody() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let call = background(&[task("partial half\ncheckpoint never")]);
    within("the turn", session.prompt(call, "")?.ended()).await?;
    host.reached("never").await?;
    assert_eq!(session.stop("user", "quiet").background, 1);
    completed(&session, "d1").await?;
    over(&host).await?;
    let turns = || {
        let turn = |kind: &EventKind| matches!(kind, EventKind::RunStarted { parent: None, .. });
        events(&session).iter().filter(|event| turn(&event.kind)).count()
    };
    assert_eq!((turns(), session.completions().len()), (1, 1));
    within("the next turn", session.prompt("say hello", "")?.ended()).await?;
    host.until("it comes", |_| session.completions().is_empty()).await?;
    assert_eq!(turns(), 3);
    over(&host).await
}

/// Rule A9: turns that completions bring go on with what the turn before them had left, so that no session keeps
/// itself awake for ever.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_session_does_not_keep_itself_awake_for_ever() -> Result {
    let host = with_agent().configuration("[delegation]\ndescendants-per-tree = 3\n").build()?;
    let session = host.session("agent").await?;
    // Every turn, also one that a completion brings, hands out one more.
    let again = background(&[task("say once more")]);
    within("the turn", session.prompt(format!("always {again}"), "")?.ended()).await?;
    let refused = event(&session, "the end of it", |event| {
        let EventKind::RunEnded { detail: Some(detail), .. } = &event.kind else { return None };
        detail.contains("`descendants-per-tree`").then(|| detail.clone())
    })
    .await?;
    assert!(refused.starts_with("limit: "), "{refused}");
    let children = events(&session)
        .iter()
        .filter(|event| matches!(event.kind, EventKind::RunStarted { parent: Some(_), .. }))
        .count();
    assert_eq!(children, 3);
    host.until("the last completion is read", |_| session.completions().is_empty()).await?;
    over(&host).await
}

/// Rule A11: a session that is over with its run gets nothing into the background, and the call says so.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_session_that_cannot_receive_later_runs_everything_inside() -> Result {
    let host = with_agent().build()?;
    let session = host.opening("agent").delivery(Delivery::Never).open().await?;
    let call = background(&[task("say one"), task("say two")]);
    let report = within("the turn", session.prompt(call, "")?.ended()).await?;
    let outcome = read(&report.output)?;
    assert_eq!(outcome["outcome"], "completed");
    assert_eq!(statuses(&outcome["results"]), ["completed", "completed"]);
    let note = outcome["note"].as_str().unwrap_or_default();
    assert!(note.starts_with("Synchronous execution") && note.contains("one-shot"), "{note}");
    host.is_idle()
}

/// Rule A9: a run can ask beforehand to whom, how much and how deep it may hand out, and is told what its calls are held
/// to.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_run_learns_what_it_may_hand_out() -> Result {
    let limits = "[delegation]\ndepth = 2\nchildren-per-call = 3\ndescendants-per-tree = 5\n";
    let with = |grants: &str, configuration: &str| {
        with_agent().plugin(agent().grants(grants)).configuration(configuration).build()
    };
    let host = with("delegation = [\"other*\", \"agent\"]", limits)?;
    let mut bounded = task("capacity");
    bounded["limits"] = json!([["descendants", 1]]);
    let below = format!("capacity\n{}", inline(&[task("try capacity")]));
    let goal = format!("capacity\n{}\ncapacity", inline(&[task(&below), bounded]));
    let report = host.run("agent", &goal).await?;
    assert_eq!(report.outcome, Outcome::Completed(()), "{}", report.output);
    let [first, outcome, last] = report.output.lines().collect::<Vec<_>>()[..] else {
        panic!("{}", report.output)
    };
    let expected = |descendants: u64, depth: u32| {
        json!({
            "agents": ["agent", "other*"],
            "same-agent": true,
            "tasks-per-call": 3,
            "descendants-left": descendants,
            "depth-left": depth,
            "background": true,
        })
    };
    assert_eq!(read(first)?, expected(5, 2));
    let outcome = read(outcome)?;
    let child = outcome["results"][0]["output"].as_str().unwrap_or_default();
    let (capacity, below) = child.split_once('\n').unwrap_or_default();
    assert_eq!(read(capacity)?, expected(3, 1));
    assert_eq!(read(below)?["results"][0]["output"], "limit", "nothing may lie below it");
    let bounded = outcome["results"][1]["output"].as_str().unwrap_or_default();
    assert_eq!(read(bounded)?, expected(1, 1));
    assert_eq!(read(last)?, expected(2, 2));
    host.is_idle()?;

    // Another agent only, and every agent.
    for (grants, agents, same) in [
        ("delegation = [\"other\"]", json!(["other"]), false),
        ("delegation = [\"*\"]", json!(["agent", "*"]), true),
    ] {
        let host = with(grants, "")?;
        let capacity = read(&host.run("agent", "capacity").await?.output)?;
        assert_eq!((&capacity["agents"], &capacity["same-agent"]), (&agents, &json!(same)));
    }
    for (grants, configuration, code) in [
        ("delegation = []", "", "denied"),
        ("delegation = [\"agent\"]", "[delegation]\ndepth = 0\n", "limit"),
    ] {
        let host = with(grants, configuration)?;
        assert_eq!(host.run("agent", "try capacity").await?.output, code);
    }
    Ok(())
}

/// Rule A11: a run is told where nothing can run in the background.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_run_learns_that_there_is_no_background() -> Result {
    for (configuration, delivery, background) in [
        ("", Delivery::Turns, true),
        ("", Delivery::Polled, true),
        ("", Delivery::Never, false),
        ("[delegation]\nunits-per-host = 0\n", Delivery::Turns, false),
        ("[delegation]\nunits-per-session = 0\n", Delivery::Turns, false),
    ] {
        let host = with_agent().configuration(configuration).build()?;
        let session = host.opening("agent").delivery(delivery).open().await?;
        let report = within("the turn", session.prompt("capacity", "")?.ended()).await?;
        assert_eq!(read(&report.output)?["background"], background, "{delivery:?} {configuration}");
    }
    Ok(())
}

/// A child has a fresh context: the conversation of the session is not its own.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_child_sees_nothing_of_the_conversation() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    within("the first turn", session.prompt("say hello", "")?.ended()).await?;
    let goal = format!("{}\nhistory 5", inline(&[task("say begin\nhistory 5\nsay end")]));
    let report = within("the second turn", session.prompt(goal, "")?.ended()).await?;
    let (outcome, history) = report.output.split_once('\n').unwrap_or_default();
    assert_eq!(history, "say hello / hello");
    let result = &read(outcome)?["results"][0];
    assert_eq!(
        (&result["status"], &result["output"]),
        (&json!("completed"), &json!("begin\n\nend"))
    );
    host.is_idle()
}

/// What makes no sense, is not granted or is over a limit is refused before anything is built (A9).
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn refusals_come_before_anything_is_built() -> Result {
    let other = checkrein_testkit::Plugin::agent("other", checkrein_testkit::guest("agent"));
    let host = with_agent()
        .plugin(other)
        .plugin(agent().grants("delegation = [\"agent\"]\ntools = [\"*\"]"))
        .configuration("[delegation]\ndepth = 2\nchildren-per-call = 3\ndescendants-per-tree = 4\n")
        .build()?;
    let deep =
        inline(&[task(&inline(&[task(&format!("try {}", inline(&[task("say too deep")])))]))]);
    for (call, expected) in [
        ("delegate {\"tasks\": []}".to_owned(), "invalid"),
        (delegate("sideways", &[task("x")], &json!({})), "invalid"),
        (delegate("background", &[task("x")], &json!({ "policy": "hope" })), "invalid"),
        (inline(&[json!({ "goal": "x", "agent": "other" })]), "denied"),
        (inline(&[json!({ "goal": "x", "tools": ["tool_echo", "no_tool"] })]), "denied"),
        (inline(&[json!({ "goal": "x", "limits": [["hope", 3]] })]), "invalid"),
        (inline(&[task("x"), task("x"), task("x"), task("x")]), "limit"),
        (
            format!(
                "{}\ntry {}",
                inline(&[task(""), task(""), task("")]),
                inline(&[task("x"), task("x")])
            ),
            "limit",
        ),
    ] {
        let report = host.run("agent", &call).await?;
        let answer = if let Outcome::Failed(failure) = &report.outcome {
            failure.code.as_str().to_owned()
        } else {
            report.output.lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(answer, expected, "{call}");
        host.is_idle()?;
    }
    let report = host.run("agent", &deep).await?;
    let outcome = read(&report.output)?;
    let below = read(outcome["results"][0]["output"].as_str().unwrap_or_default())?;
    assert_eq!(below["results"][0]["output"], "limit", "{outcome}");
    host.is_idle()
}

/// Failures of any length come back, each cut to what a result says of it, and no result is lost for their sake.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn long_failures_are_cut_and_no_result_is_lost() -> Result {
    let host = with_agent().build()?;
    let mut tasks = vec![task("fail-long 1000000"); 6];
    tasks.push(task("say short"));
    let report = host.run("agent", &inline(&tasks)).await?;
    assert_eq!(report.outcome, Outcome::Completed(()));
    let results = &read(&report.output)?["results"];
    assert_eq!((statuses(results).len(), &results[6]["output"]), (7, &json!("short")));
    for task in 0..6 {
        let detail = results[task]["detail"].as_str().unwrap_or_default();
        assert!((4_000..5_000).contains(&detail.len()), "{}", detail.len());
    }
    host.is_idle()
}

/// However often an agent names a unit, it is looked at once; and what would not fit into one answer is not copied.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_unit_that_is_named_many_times_is_answered_once() -> Result {
    let limits = "call-bytes = \"64KiB\"";
    let host = crate::start::host().plugin(agent().limits(limits)).build()?;
    let session = host.opening("agent").delivery(Delivery::Polled).open().await?;
    let call = delegate(
        "background",
        &[task("output 20000"), task("output 20000"), task("output 20000"), task("output 20000")],
        &json!({ "independent-completions": true }),
    );
    within("the turn", session.prompt(call, "")?.ended()).await?;
    for unit in ["d1", "d2", "d3", "d4"] {
        completed(&session, unit).await?;
    }
    let many = vec!["d1"; 1_000].join(" ");
    let goal = format!("units {many}\ntry units\ntry stop-unit d1 {}", "x".repeat(5_000));
    let report = within("the turn", session.prompt(goal, "")?.ended()).await?;
    let lines: Vec<&str> = report.output.lines().collect();
    assert_eq!(read(lines[0])?.as_array().map(Vec::len), Some(1));
    assert_eq!(lines[1..], ["too-large", "too-large"]);
    over(&host).await
}

/// A soft stop ends a delegating call that still looks for its agent: nobody carries it yet who would.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_soft_stop_ends_the_search_for_an_agent() -> Result {
    let patient = "[compile]\ntime = \"10m\"\nmemory = \"8GiB\"";
    let host = with_agent()
        .plugin(crate::hostile::compilation_bomb("slow")?)
        .configuration(patient)
        .build()?;
    let session = host.session("agent").await?;
    let call = inline(&[json!({ "goal": "x", "agent": "slow" })]);
    let turn = session.prompt(format!("try {call}\ntry checkpoint free"), "")?;
    host.until("it compiles", |nodes| nodes.iter().any(|node| node.kind == Kind::Compilation))
        .await?;
    session.stop_turn(None, &crate::start::soft("no need"))?;
    let report = within("the turn", turn.ended()).await?;
    assert_eq!(report.output, "interrupted | soft | no need | user\nfine");
    over(&host).await
}
