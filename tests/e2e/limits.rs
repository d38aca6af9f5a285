//! Every limit is reached, by an agent and where it applies by a tool, and it is named: by the outcome of a run that it
//! ended, and by the report of every run that came up against it.

use checkrein::message::FailureCode;
use checkrein::model::{Reply, Scripted};
use checkrein::sandbox::{LimitKind, Outcome, Pool, Reached};
use checkrein::session::{EventKind, TurnReport};
use checkrein::work::{Kind, NodeView};
use checkrein_testkit::{Plugin, TestHost, TestHostBuilder, wat, within};

use crate::start::{Result, agent, hard, host, interrupted, tool, with_agent};

/// Runs a goal under those limits of the agent.
async fn run(limits: &str, goal: &str) -> Result<TurnReport> {
    run_on(host().plugin(agent().limits(limits)).plugin(tool()), goal).await
}

async fn run_on(host: TestHostBuilder, goal: &str) -> Result<TurnReport> {
    let host = host.build()?;
    let report = host.run("agent", goal).await?;
    host.is_idle()?;
    Ok(report)
}

async fn ends_at(kind: LimitKind, limits: &str, goal: &str) -> Result {
    let report = run(limits, goal).await?;
    assert_eq!(report.outcome, Outcome::Limit(kind), "{goal}");
    assert_eq!(report.limit(), Some(kind));
    assert!(report.reached.contains(kind), "{:?}", report.reached);
    assert_eq!(report.outcome.detail(), Some(format!("the limit `{kind}` is used up")));
    Ok(())
}

fn reached(reached: Reached) -> Vec<LimitKind> {
    reached.iter().collect()
}

/// What the agent hears of a tool that was called under those limits of its plugin.
async fn tool_hears(limits: &str, call: &str) -> Result<String> {
    let report = run_on(host().plugin(agent()).plugin(tool().limits(limits)), call).await?;
    assert_eq!(report.outcome, Outcome::Completed(()));
    Ok(report.output)
}

/// What a tool's result says when the tool ran into that limit.
fn tool_limit(kind: LimitKind) -> String {
    format!("limit: the tool used up its limit `{kind}`: ask for less at once")
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn memory_is_the_sum_of_all_that_the_guest_has() -> Result {
    ends_at(LimitKind::Memory, "memory = \"4MiB\"", "allocate 8").await?;
    ends_at(LimitKind::Memory, "memory = \"4MiB\"", "hoard").await?;
    let report = run("memory = \"16MiB\"", "allocate 8\nsay done").await?;
    assert_eq!(report.output, "done");
    assert!((8 << 20..16 << 20).contains(&report.used.memory_peak), "{}", report.used.memory_peak);
    assert_eq!(
        tool_hears("memory = \"4MiB\"", "call tool_allocate {\"count\":8}").await?,
        tool_limit(LimitKind::Memory)
    );
    Ok(())
}

/// A guest whose memories are small each by itself is bounded in what they are together.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn many_memories_count_together() -> Result {
    for (pages, expected) in
        [(16, Outcome::Completed(())), (512, Outcome::Limit(LimitKind::Memory))]
    {
        let three = "(core instance (instantiate $more))\n".repeat(3);
        let more = format!("(core module $more (memory {pages}))\n{three}");
        let component = wat("agent", &[("MORE", &more)])?;
        let report = run_on(
            host().plugin(Plugin::agent("agent", component).limits("memory = \"64MiB\"")),
            "",
        )
        .await?;
        assert_eq!(report.outcome, expected, "{pages} pages each");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn table_elements_are_bounded() -> Result {
    // A guest that is told no and gives up.
    let grow = "(loop $again
        (if (i32.eq (table.grow $table (ref.null func) (i32.const 1000)) (i32.const -1)) (then unreachable))
        (br $again))";
    let component = wat("agent", &[("RUN", grow)])?;
    let report = run_on(host().plugin(Plugin::agent("agent", component)), "").await?;
    assert_eq!(report.outcome, Outcome::Limit(LimitKind::TableElements));
    // A guest that is told no and goes on.
    let grow = "(drop (table.grow $table (ref.null func) (i32.const 20001)))";
    let component = wat("agent", &[("RUN", grow)])?;
    let report = run_on(host().plugin(Plugin::agent("agent", component)), "").await?;
    assert_eq!((report.outcome, &*report.output), (Outcome::Completed(()), "ok"));
    assert_eq!(reached(report.reached), [LimitKind::TableElements]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn fuel_is_bounded() -> Result {
    ends_at(LimitKind::Fuel, "fuel = 3000000", "spin").await?;
    let report = run("fuel = 3000000", "budget fuel\nsay done").await?;
    let (left, done) = report.output.split_once(" of 3000000\n").unwrap_or_default();
    assert_eq!(done, "done", "{}", report.output);
    let left: u64 = left.parse()?;
    assert!(
        (1..3_000_000).contains(&left) && report.used.fuel >= Some(3_000_000 - left),
        "{report:?}"
    );
    assert_eq!(tool_hears("fuel = 3000000", "call tool_spin").await?, tool_limit(LimitKind::Fuel));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn wall_time_is_bounded_whatever_the_guest_does() -> Result {
    for goal in [
        "spin",
        "sleep 100000000",
        "call tool_spin",
        "call tool_sleep {\"text\":\"std\"}",
        "loop run.budgets",
    ] {
        ends_at(LimitKind::WallTime, "wall-time = \"60ms\"", goal).await?;
    }
    for call in ["call tool_spin", "call tool_sleep {\"text\":\"poll\"}"] {
        // Long enough for a busy machine to hear what the tools are, which has the same bound.
        assert_eq!(
            tool_hears("wall-time = \"500ms\"", call).await?,
            tool_limit(LimitKind::WallTime)
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn door_bytes_are_bounded_over_the_whole_run() -> Result {
    ends_at(LimitKind::DoorBytes, "door-bytes = 100000", "emits 1000 1000").await?;
    ends_at(
        LimitKind::DoorBytes,
        "door-bytes = 10000",
        "remember key value\ntimes 100000 recall key",
    )
    .await
}

/// The engine has no type for this one: what it says in words is told apart by them.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn call_bytes_are_bounded_in_both_directions() -> Result {
    ends_at(LimitKind::CallBytes, "call-bytes = 65536", "emits 1 100000").await?;
    ends_at(LimitKind::CallBytes, "call-bytes = 65536", "wide-calls 50000").await?;
    assert_eq!(run("call-bytes = 65536", "emits 1 60000\nsay fine").await?.output, "fine");
    // What the host has to say does not end the guest: it hears that it was too much.
    let model = Scripted::new("model", [Reply::new().text("m".repeat(100_000))]);
    let report = run_on(
        host().plugin(agent().limits("call-bytes = 65536")).model(model),
        "try ask anything",
    )
    .await?;
    assert_eq!(
        (&*report.output, reached(report.reached)),
        ("too-large", vec![LimitKind::CallBytes])
    );
    // A tool's answer is its output before it is anything else; what it is told are its arguments.
    let limits = "call-bytes = 65536\noutput-bytes = 1048576";
    let hears = tool_hears(limits, "call tool_size {\"count\":100000}").await?;
    assert_eq!(hears, tool_limit(LimitKind::CallBytes));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn output_bytes_are_bounded() -> Result {
    ends_at(LimitKind::OutputBytes, "output-bytes = 1000", "output 1001").await?;
    assert_eq!(run("output-bytes = 1000", "output 1000").await?.output.len(), 1000);
    // What a tool says of itself is much more than that, and is no result of it.
    let hears = tool_hears("output-bytes = 100", "call tool_size {\"count\":101}").await?;
    assert_eq!(hears, tool_limit(LimitKind::OutputBytes));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn log_bytes_are_bounded_however_they_are_written() -> Result {
    for goal in ["logs 1000 1000", "prints 1000 1000"] {
        ends_at(LimitKind::LogBytes, "log-bytes = 100000", goal).await?;
    }
    let call = format!("call tool_logs {{\"count\":100,\"text\":\"{}\"}}", "l".repeat(100));
    assert_eq!(tool_hears("log-bytes = 5000", &call).await?, tool_limit(LimitKind::LogBytes));
    Ok(())
}

/// More calls than that in one batch wait for their turn, and are all answered.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn calls_in_flight_are_bounded() -> Result {
    let host = host().plugin(agent().limits("calls-in-flight = 2")).plugin(tool()).build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("calls 5 tool_sleep {\"text\":\"poll\"}", "")?;
    let calls =
        |nodes: &[NodeView]| nodes.iter().filter(|node| node.kind == Kind::ToolCall).count();
    // Calls that were all let in would be here at once.
    let waits = |node: &NodeView| {
        let begun = |what| !matches!(what, "starting" | "computing");
        node.activity.as_ref().is_some_and(|activity| begun(activity.what))
    };
    host.until("two calls wait, and no other has begun", |nodes| {
        calls(nodes) == 2 && nodes.iter().filter(|node| node.kind == Kind::ToolCall).all(waits)
    })
    .await?;
    let enough = hard("enough");
    session.stop_turn(None, &enough)?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(enough));
    assert_eq!(reached(report.reached), [LimitKind::CallsInFlight]);
    let mut events = session.events(0);
    let mut started = 0;
    while let Some(event) = events.try_next()? {
        started += usize::from(matches!(event.kind, EventKind::ToolStarted { .. }));
    }
    assert_eq!(started, 2, "the others were never made");
    host.is_idle()?;

    let report = run("calls-in-flight = 2", "calls 7 tool_echo {\"text\":\"a\"}").await?;
    assert_eq!(
        (report.outcome, &*report.output),
        (Outcome::Completed(()), &*["ok: a"; 7].join("\n"))
    );
    assert_eq!(reached(report.reached), [LimitKind::CallsInFlight]);
    let report = run("calls-in-flight = 2", "calls 2 tool_echo").await?;
    assert_eq!((report.outcome, reached(report.reached)), (Outcome::Completed(()), vec![]));
    Ok(())
}

/// Results come in the order of the calls, also when a later one is answered before an earlier one.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn results_come_in_the_order_of_the_calls() -> Result {
    let report = run("calls-in-flight = 3", "mixed-calls tool_echo 9").await?;
    let expected: Vec<String> = (0..9)
        .map(|place| {
            if place % 2 == 0 {
                format!("{place} ok: {place}")
            } else {
                format!("{place} not-found")
            }
        })
        .collect();
    assert_eq!(report.output, expected.join("\n"));
    Ok(())
}

/// Arguments that do not fit never reach a guest: a call is refused for them also where no place for a guest is left.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_checked_before_a_call_takes_a_place() -> Result {
    let one = || host().plugin(agent()).plugin(tool()).pool(Pool::Slots(1));
    let report = run_on(one(), "call tool_echo {\"count\":\"x\"}").await?;
    assert!(report.output.starts_with("invalid: the arguments do not fit"), "{}", report.output);
    let long = format!("call tool_echo {{\"text\":\"{}\",\"count\":\"x\"}}", "x".repeat(400_000));
    let report = run_on(one(), &long).await?;
    assert!(report.output.starts_with("invalid: the arguments do not fit"), "{}", report.output);
    let report = run_on(one(), "call tool_echo {\"text\":\"hello\"}").await?;
    assert!(report.output.starts_with("error: "), "{}", report.output);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn model_tokens_are_bounded() -> Result {
    let model = || Scripted::new("model", [Reply::new().text("answer").usage(30, 30).repeat()]);
    let limited = |limits: &str| host().plugin(agent().limits(limits)).model(model());
    let report = run_on(limited("model-tokens = 100"), "times 3 ask anything").await?;
    assert_eq!(report.outcome, Outcome::Limit(LimitKind::ModelTokens));
    assert_eq!(report.used.model_tokens, 120);
    let report = run_on(limited("model-tokens = 100"), "ask anything\nbudget model-tokens").await?;
    assert_eq!(report.output, "answer\n40 of 100");
    Ok(())
}

/// A request cannot ask for more of an answer than there are tokens left.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_request_asks_for_no_more_tokens_than_are_left() -> Result {
    let model = Scripted::new("model", [Reply::new().text("a").usage(30, 30).repeat()]).recording();
    run_on(
        host().plugin(agent().limits("model-tokens = 100")).model(model.clone()),
        "times 2 ask anything",
    )
    .await?;
    let most: Vec<Option<u32>> =
        model.requests().iter().map(|request| request.max_output_tokens).collect();
    assert_eq!(most, [Some(100), Some(40)]);
    Ok(())
}

/// An answer costs what was said of it while it came, also when it broke off; and about what it has in bytes when
/// nothing was said. A request that nobody began to answer costs nothing.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn model_tokens_count_whatever_becomes_of_the_answer() -> Result {
    let broken = Reply::new().text("half").usage(30, 31).fail(FailureCode::Failed, "it broke off");
    let refused = Reply::new().fail(FailureCode::Busy, "not now");
    let silent = Reply::new().text("m".repeat(4_000)).usage(0, 0);
    for (reply, goal, used) in [
        (broken, "try ask anything", 61..62),
        (silent, "ask anything", 1_000..1_100),
        (refused, "try ask anything", 0..1),
    ] {
        let model = Scripted::new("model", [reply]);
        let report = run_on(host().plugin(agent()).model(model), goal).await?;
        assert_eq!(report.outcome, Outcome::Completed(()));
        assert!(used.contains(&report.used.model_tokens), "{goal}: {}", report.used.model_tokens);
    }
    Ok(())
}

/// A host whose agent and tools may have five files open, in a home with a file.
fn five_files() -> Result<TestHost> {
    let asked = "directories = [{ mount = \"work\" }]";
    let given = "directories = [{ mount = \"work\", path = \"work\" }]";
    let configuration = format!("[plugins.tool.grants]\n{given}\n[plugins.agent.grants]\n{given}");
    let agent = agent().grants(&format!("tools = [\"*\"]\n{asked}")).limits("open-files = 5");
    let tool = tool().grants(asked).limits("open-files = 5");
    let host = host().plugin(agent).plugin(tool).configuration(&configuration).build()?;
    std::fs::create_dir(host.home().join("work"))?;
    std::fs::write(host.home().join("work/file"), "text")?;
    Ok(host)
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn open_files_are_bounded() -> Result {
    let host = five_files()?;
    let call = |tool: &str, count| {
        format!("call tool_{tool} {{\"path\":\"/work/file\",\"count\":{count}}}")
    };
    // One that comes to terms with it.
    let report = host.run("agent", &call("open-all", 1000)).await?;
    let (opened, why) = report
        .output
        .strip_prefix("ok: ")
        .and_then(|rest| rest.split_once(" | "))
        .unwrap_or_default();
    assert!((1..=5).contains(&opened.parse::<u32>().unwrap_or(0)), "{}", report.output);
    assert!(why.contains("Quota exceeded"), "{why}");
    let line = "`open-all` came up against its limits: open-files";
    host.logged(line).await?;
    // One that says so, and one that breaks off.
    let report = host.run("agent", &call("open-or-fail", 1000)).await?;
    assert!(report.output.starts_with("limit: cannot open /work/file: "), "{}", report.output);
    assert!(report.output.ends_with(" (its limit `open-files` was reached)"), "{}", report.output);
    let report = host.run("agent", &call("open-or-panic", 1000)).await?;
    assert_eq!(report.output, tool_limit(LimitKind::OpenFiles));
    // One that stays below it.
    let report = host.run("agent", &call("open-or-panic", 2)).await?;
    assert_eq!((&*report.output, report.reached.is_empty()), ("ok: 2", true));
    host.settles().await
}

/// An error number of WASI names no limit; what becomes of the run does.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_failure_that_a_refused_file_led_to_names_the_limit() -> Result {
    let host = five_files()?;
    let report = host.run("agent", "opens 1000 /work/file").await?;
    let Outcome::Failed(failure) = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(failure.code, FailureCode::Limit);
    assert!(failure.message.ends_with(" (its limit `open-files` was reached)"), "{failure}");
    assert_eq!(reached(report.reached), [LimitKind::OpenFiles]);
    // A guest that then gets a file has come to terms with it, and fails for its own reasons.
    let goal = "try opens 1000 /work/file\nopens 1 /work/file\nfail failed of its own accord";
    let report = host.run("agent", goal).await?;
    let Outcome::Failed(failure) = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(failure.to_string(), "failed: of its own accord");
    assert_eq!(reached(report.reached), [LimitKind::OpenFiles]);
    // A more exact code is kept.
    let report = host.run("agent", "try opens 1000 /work/file\nfail denied by me").await?;
    let Outcome::Failed(failure) = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(failure.to_string(), "denied: by me (its limit `open-files` was reached)");
    let report = host.run("agent", "try opens 1000 /work/file\ntrap").await?;
    assert_eq!(report.outcome, Outcome::Limit(LimitKind::OpenFiles));
    let report = host.run("agent", "try opens 1000 /work/file\nopens 1 /work/file\ntrap").await?;
    assert_eq!(report.outcome.status(), "trapped");
    host.settles().await
}

/// The engine has no type for this one: what it says in words is told apart by them.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn handles_are_bounded() -> Result {
    let hears = tool_hears("handles = 100", "call tool_handles {\"count\":1000}").await?;
    assert_eq!(hears, tool_limit(LimitKind::Handles));
    assert_eq!(tool_hears("handles = 100", "call tool_handles {\"count\":50}").await?, "ok: 50");
    Ok(())
}

/// An operator's ceiling wins over what a manifest says.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_manifest_can_only_lower_a_ceiling() -> Result {
    let limited = with_agent().configuration("[limits]\noutput-bytes = 10");
    assert_eq!(run_on(limited, "output 11").await?.outcome, Outcome::Limit(LimitKind::OutputBytes));
    let asks = host()
        .plugin(agent().limits("output-bytes = 100"))
        .configuration("[limits]\noutput-bytes = 10");
    assert_eq!(run_on(asks, "output 11").await?.outcome, Outcome::Limit(LimitKind::OutputBytes));
    Ok(())
}
