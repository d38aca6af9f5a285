//! Faults of guests and of the host's own code end one run and nothing else.

use std::sync::Arc;

use anyhow::bail;
use checkrein::message::FailureCode;
use checkrein::sandbox::{LimitKind, Outcome};
use checkrein::session::{Checkpoints, TurnReport};
use checkrein_testkit::{Plugin, TestHost, wat, within};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::start::{Beside, Result, agent, host, neighbour, with_agent};

/// Runs a goal beside a neighbour that must not notice.
async fn beside(host: &TestHost, goal: &str) -> Result<TurnReport> {
    let beside = Beside::start(host).await?;
    let report = host.run("agent", goal).await?;
    beside.finishes(host).await?;
    host.is_idle()?;
    Ok(report)
}

fn cause(report: &TurnReport) -> Result<&str> {
    let Outcome::Trapped(trapped) = &report.outcome else { bail!("{:?}", report.outcome) };
    Ok(&trapped.cause)
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_traps_ends_its_own_run() -> Result {
    let host = with_agent().plugin(neighbour()).build()?;
    let report = beside(&host, "partial before\ntrap").await?;
    assert!(cause(&report)?.contains("unreachable"), "{report:?}");
    assert_eq!(report.output, "before");
    let report = beside(&host, "panic on purpose").await?;
    assert!(cause(&report)?.contains("unreachable"), "{report:?}");
    // What it printed when it panicked is in its log.
    assert!(
        host.logs().lines().iter().any(|line| line.text.contains("on purpose")),
        "{:?}",
        host.logs().lines()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_overflows_its_stack_ends_its_own_run() -> Result {
    let host = with_agent().plugin(neighbour()).build()?;
    let report = beside(&host, "recurse").await?;
    assert!(cause(&report)?.contains("stack"), "{report:?}");
    // Rule C5: the agent hears of a tool that does.
    let report = beside(&host, "call tool_recurse\nsay and on").await?;
    assert!(report.output.starts_with("trapped: "), "{}", report.output);
    assert!(report.output.ends_with("\nand on"), "{}", report.output);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_runs_out_of_memory_ends_its_own_run() -> Result {
    let host = with_agent().plugin(neighbour()).build()?;
    assert_eq!(beside(&host, "hoard").await?.outcome, Outcome::Limit(LimitKind::Memory));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_exits_has_not_returned() -> Result {
    let host = with_agent().plugin(neighbour()).build()?;
    for code in ["0", "3"] {
        let report = beside(&host, &format!("exit {code}")).await?;
        assert!(cause(&report)?.contains("it exited with status"), "{report:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_failure_of_the_guest_is_not_a_fault() -> Result {
    let host = with_agent().build()?;
    for (code, expected) in [
        ("denied", FailureCode::Denied),
        ("not-found", FailureCode::NotFound),
        ("a code of my own", FailureCode::Failed),
    ] {
        let code = code.replace(' ', "-");
        let report =
            host.run("agent", &format!("partial so far\nfail {code} in these words")).await?;
        let Outcome::Failed(failure) = report.outcome else { panic!("{:?}", report.outcome) };
        assert_eq!(
            (failure.code, &*failure.message, &*report.output),
            (expected, "in these words", "so far")
        );
    }
    host.is_idle()
}

/// A guest that answers with nonsense breaks off; what it meant is not guessed.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn nonsense_that_a_guest_returns_ends_its_own_run() -> Result {
    for (what, put) in [
        ("an address outside its memory", ("RUN", "(return (i32.const 0x7ffffff0))")),
        ("an address that is not aligned", ("RUN", "(return (i32.const 129))")),
        ("a case that does not exist", ("RUN", "(i32.store8 (i32.const 128) (i32.const 7))")),
        (
            "a string longer than its memory",
            ("RUN", "(i32.store (i32.const 136) (i32.const 0x7fffffff))"),
        ),
        ("a string that is no UTF-8", ("DATA", "(data (i32.const 1024) \"\\ff\\fe\")")),
        ("half a character", ("DATA", "(data (i32.const 1024) \"\\c3(\")")),
        (
            "a message that is no UTF-8",
            (
                "RUN",
                "(i32.store8 (i32.const 512) (i32.const 255))
                (call $write (i32.const 1024) (i32.const 2) (i32.const 512) (i32.const 1))",
            ),
        ),
        (
            "a message outside its memory",
            ("RUN", "(call $write (i32.const 1024) (i32.const 2) (i32.const 65535) (i32.const 2))"),
        ),
        ("an allocation outside its memory", ("REALLOC", "(return (i32.const 0x7ffffff0))")),
        ("an allocation that is not aligned", ("REALLOC", "(return (i32.const 4097))")),
        ("a handle that it does not have", ("RUN", "(call $drop (i32.const 99))")),
    ] {
        let component = wat("agent", &[put])?;
        let agent = Plugin::agent("agent", component).configuration("key = 1");
        let host = host().plugin(agent).plugin(neighbour()).build()?;
        let report = beside(&host, "").await?;
        assert!(matches!(report.outcome, Outcome::Trapped(_)), "{what}: {report:?}");
    }
    Ok(())
}

/// Rule S12: wherever the guest traps, its store goes and nothing is left.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_trap_in_any_place_ends_the_run() -> Result {
    for place in ["START", "REALLOC", "DESTRUCTOR", "RUN", "POST-RETURN"] {
        let component = wat("agent", &[(place, "unreachable")])?;
        let agent = Plugin::agent("agent", component).configuration("key = 1");
        let host = host().plugin(agent).plugin(neighbour()).build()?;
        let report = beside(&host, "").await?;
        assert!(cause(&report)?.contains("unreachable"), "{place}: {report:?}");
    }
    // The same component, left alone, answers.
    let agent = Plugin::agent("agent", wat("agent", &[])?).configuration("key = 1");
    let host = host().plugin(agent).plugin(neighbour()).build()?;
    let report = beside(&host, "").await?;
    assert_eq!((report.outcome, &*report.output), (Outcome::Completed(()), "ok"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_trap_in_any_place_of_a_tool_is_a_result_of_its_call() -> Result {
    for (place, says) in [
        ("REALLOC", "trapped: "),
        ("CALL", "trapped: "),
        ("POST-RETURN", "trapped: "),
        // It is asked what it can do before anything else, and then left out.
        ("START", "not-found: "),
        ("DESCRIBE", "not-found: "),
    ] {
        let tool = Plugin::tool("tool", wat("tool", &[(place, "unreachable")])?);
        let host = host().plugin(agent()).plugin(tool).plugin(neighbour()).build()?;
        let report = beside(&host, "call tool_it").await?;
        assert_eq!(report.outcome, Outcome::Completed(()), "{place}");
        assert!(report.output.starts_with(says), "{place}: {}", report.output);
    }
    let host = host()
        .plugin(agent())
        .plugin(Plugin::tool("tool", wat("tool", &[])?))
        .plugin(neighbour())
        .build()?;
    assert_eq!(beside(&host, "call tool_it").await?.output, "ok: ok");
    Ok(())
}

/// Panics where the host asks an embedder.
#[derive(Debug)]
struct Panics;

impl Checkpoints for Panics {
    fn reached(&self, _run: &str, name: &str) -> BoxFuture<'static, ()> {
        assert!(name != "now", "a defect of the embedder");
        let name = name.to_owned();
        async move { assert!(name != "later", "a defect that shows {name}") }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_panic_in_a_host_function_ends_that_run_only() -> Result {
    let host = with_agent().plugin(neighbour()).checkpoints(Panics).build()?;
    let session = host.session("agent").await?;
    for (place, words) in
        [("now", "a defect of the embedder"), ("later", "a defect that shows later")]
    {
        let beside = host.session("neighbour").await?.prompt("200", "")?;
        let turn = session.prompt(format!("partial before\ncheckpoint {place}\nsay after"), "")?;
        let report = within("the end", turn.ended()).await?;
        assert_eq!(report.outcome, Outcome::HostPanicked(words.to_owned()));
        assert_eq!(report.outcome.status(), "trapped");
        assert_eq!(report.output, "before");
        let report = within("the neighbour", beside.ended()).await?;
        assert_eq!(report.output, checkrein_testkit::neighbour_answer(200));
        host.is_idle()?;
        // The session itself is as before.
        let turn = session.prompt("say still here", "")?;
        assert_eq!(within("the end", turn.ended()).await?.output, "still here");
    }
    host.is_idle()
}

/// Rule G3, for turns: more faults at one time than there are threads take none of them away.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn many_faults_at_one_time_leave_the_host_as_it_was() -> Result {
    let host = Arc::new(with_agent().plugin(neighbour()).build()?);
    let beside = Beside::start(&host).await?;
    let goals =
        ["trap", "recurse", "panic x", "hoard", "exit 1", "fail failed x", "call tool_panic"];
    let mut turns = Vec::new();
    for round in 0..28 {
        let session = host.session("agent").await?;
        turns.push((session.prompt(goals[round % goals.len()], "")?, session));
    }
    for (turn, _session) in turns {
        within("the end", turn.ended()).await?;
    }
    beside.finishes(&host).await?;
    host.is_idle()
}
