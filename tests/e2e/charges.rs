//! What a run is charged with, and what its end is put down to.

use std::time::Duration;

use checkrein::message::FailureCode;
use checkrein::model::{Hold, Reply, Scripted};
use checkrein::sandbox::{LimitKind, Outcome};
use checkrein::work::{BudgetUse, Grace, Stop, StopKind};
use checkrein_testkit::{Plugin, wat, within};

use crate::start::{Result, agent, hard, host, soft, tool, with_agent};

/// A line costs more than its text, so that empty ones are not free; and those that are printed cost as much.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn every_log_line_is_charged_with_a_frame() -> Result {
    let host = with_agent().build()?;
    for (goal, bytes) in [("logs 3 10", 3 * 42), ("logs 3 0", 3 * 32), ("prints 3 10", 3 * 42)] {
        let report = host.run("agent", goal).await?;
        assert_eq!(report.outcome, Outcome::Completed(()), "{goal}");
        assert_eq!(report.used.log_bytes, bytes, "{goal}");
    }
    // On its way through the door, too.
    let one = host.run("agent", "logs 1 0").await?.used.door_bytes;
    let four = host.run("agent", "logs 4 0").await?.used.door_bytes;
    assert!(four >= one + 3 * 32, "{one} {four}");
    host.is_idle()
}

/// A trap is put down to a limit only where the guest had just been refused something and could not go on.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_trap_is_put_down_to_a_limit_only_when_it_follows_from_it() -> Result {
    let refused = "(drop (memory.grow (i32.const 5000)))";
    let granted = "(drop (memory.grow (i32.const 1)))";
    let divides = "(drop (i32.div_u (i32.const 1) (i32.const 0)))";
    for (run, limit) in [
        (format!("{refused} unreachable"), Some(LimitKind::Memory)),
        // It had come to terms with the refusal.
        (format!("{refused} {granted} unreachable"), None),
        (format!("{refused} {divides}"), None),
        ("unreachable".to_owned(), None),
    ] {
        let agent = Plugin::agent("agent", wat("agent", &[("RUN", &run)])?);
        let host = host().plugin(agent.limits("memory = \"4MiB\"")).build()?;
        let report = host.run("agent", "").await?;
        assert_eq!(report.limit(), limit, "{run}");
        let trapped = matches!(report.outcome, Outcome::Trapped(_));
        assert_eq!(trapped, limit.is_none(), "{run}: {:?}", report.outcome);
        host.is_idle()?;
    }
    Ok(())
}

/// Interrupted wins: a run that was asked to stop and then ran out of time was stopped. A tool cannot hear of the soft
/// stop of its caller, so for a tool it is the time.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn the_end_of_the_time_after_a_soft_stop_is_an_interruption() -> Result {
    let timed = agent().limits("wall-time = \"3s\"");
    let host = host().plugin(timed).plugin(tool().limits("wall-time = \"500ms\"")).build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("try checkpoint a\ncall tool_spin\npartial after\nspin", "")?;
    host.reached("a").await?;
    session.stop_turn(None, &soft("wrap up"))?;
    let report = within("the end", turn.ended()).await?;
    let Outcome::Interrupted { stop, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(stop.kind(), StopKind::Hard);
    assert_eq!(report.output, "after");
    let statuses: Vec<&str> = report.tools.iter().map(|answer| &*answer.status).collect();
    assert_eq!(statuses, ["limit"]);
    // Nobody had asked for anything: then it is the limit.
    assert_eq!(host.run("agent", "spin").await?.limit(), Some(LimitKind::WallTime));
    host.is_idle()
}

/// A provider bills a request also when it fails, or when nobody waits for its end.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn requests_that_give_no_answer_are_charged_with_an_estimate() -> Result {
    let words = "w".repeat(4_000);
    let hold = Hold::new();
    let failing = Reply::new().text("some").fail(FailureCode::Failed, "the model is ill");
    let model = Scripted::new("model", [failing, Reply::new().hold(&hold).repeat()]);
    let host = with_agent().model(model).build()?;
    let report = host.run("agent", &format!("try ask {words}")).await?;
    assert_eq!(report.output, "failed");
    assert!((1_000..2_000).contains(&report.used.model_tokens), "{:?}", report.used);
    // Nobody began to answer: that costs nothing.
    let ill = Reply::new().fail(FailureCode::Failed, "the model is ill");
    let refusing = with_agent().model(Scripted::new("model", [ill])).build()?;
    let report = refusing.run("agent", &format!("try ask {words}")).await?;
    assert_eq!((&*report.output, report.used.model_tokens), ("failed", 0));
    // Cut in the middle of it.
    let session = host.session("agent").await?;
    let turn = session.prompt(format!("ask {words}"), "")?;
    within("the model", hold.reached(1)).await?;
    session.stop_turn(None, &hard("enough"))?;
    let used = within("the end", turn.ended()).await?.used;
    assert!((1_000..2_000).contains(&used.model_tokens), "{used:?}");
    // A request that was never made costs nothing: the call tells of the stop in place of making it.
    let turn = session.prompt(format!("times 20000 remember key value\ntry ask {words}"), "")?;
    session.stop_turn(None, &soft("before it"))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.output, "interrupted | soft | before it | user");
    assert_eq!(report.used.model_tokens, 0);
    host.is_idle()
}

/// What a failure says is output like any other.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn the_text_of_a_failure_is_bounded() -> Result {
    let limits = "output-bytes = 1000";
    let host = host().plugin(agent().limits(limits)).plugin(tool().limits(limits)).build()?;
    let report = host.run("agent", &format!("fail failed {}", "w".repeat(1_001))).await?;
    assert_eq!(report.outcome, Outcome::Limit(LimitKind::OutputBytes));
    let report = host.run("agent", &format!("fail failed {}", "w".repeat(1_000))).await?;
    let Outcome::Failed(failure) = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(failure.message.len(), 1_000);
    host.is_idle()
}

fn budget(budgets: &[BudgetUse], name: &str) -> u64 {
    budgets.iter().find(|budget| budget.name == name).map_or(0, |budget| budget.used)
}

/// What a guest burns while it makes no call is seen while it does.
#[tokio::test(flavor = "multi_thread")]
async fn fuel_is_seen_to_burn_while_a_guest_spins() -> Result {
    let host = host().plugin(agent().limits("fuel = 1000000000000000")).plugin(tool()).build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("spin", "")?;
    let mut before = 0;
    for look in 0..3 {
        let mut burnt = 0;
        host.until("more fuel has burnt", |nodes| {
            burnt = nodes.iter().map(|node| budget(&node.budgets, "fuel")).max().unwrap_or(0);
            burnt > before + 1_000_000
        })
        .await?;
        assert!(
            host.executions().iter().all(|node| budget(&node.budgets, "fuel") >= burnt),
            "{look}"
        );
        before = burnt;
    }
    session.stop_turn(None, &Stop::soft("user", "enough", Grace::After(Duration::ZERO)))?;
    let used = within("the end", turn.ended()).await?.used;
    assert!(used.fuel.is_some_and(|fuel| fuel >= before), "{used:?}");
    host.is_idle()
}

/// A task has no form of being half there: the run ends with the limit that kept it from its guest.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_task_that_is_too_large_ends_the_run_with_the_limit() -> Result {
    let host = host().plugin(agent().limits("call-bytes = 65536")).plugin(tool()).build()?;
    let report = host.run("agent", &format!("say {}", "x".repeat(100_000))).await?;
    assert_eq!(report.limit(), Some(LimitKind::CallBytes));
    let report = host.run("agent", &format!("say {}", "x".repeat(50_000))).await?;
    assert_eq!((report.outcome, report.output.len()), (Outcome::Completed(()), 50_000));
    host.is_idle()
}
