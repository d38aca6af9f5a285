//! Hostile guests. Each has its expected outcome, and a neighbour whose work must come out right meanwhile.

pub(crate) mod files;
mod kit;
pub(crate) mod network;

use std::time::Duration;

use anyhow::bail;
use checkrein::ErrorKind;
use checkrein::model::{Reply, Scripted};
use checkrein::sandbox::{LimitKind, Outcome};
use checkrein::session::Session;
use checkrein::work::{Grace, Kind, NodeView, Stop};
use checkrein_testkit::{Plugin, TestHost, TestHostBuilder, guest, wat, within};

use crate::start::{
    Beside, Result, agent, hard, host, interrupted, neighbour, soft, tool, with_agent,
};

/// Starts a hostile goal, has the neighbour finish its work meanwhile, and then stops the hostile one hard.
async fn runs_until_stopped(
    host: &TestHost,
    session: &Session,
    goal: &str,
    begins: &str,
) -> Result {
    let beside = Beside::start(host).await?;
    let turn = session.prompt(goal, "")?;
    host.doing(begins).await?;
    beside.finishes(host).await?;
    assert!(host.host().tree().contains(turn.id()), "it ended by itself: {goal}");
    session.stop_turn(None, &hard("enough of this"))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("enough of this")), "{goal}");
    host.is_idle()
}

/// Runs a hostile goal to the end that it comes to by itself, while the neighbour works.
async fn comes_to(host: &TestHost, goal: &str, expected: Outcome<()>) -> Result {
    let beside = Beside::start(host).await?;
    let (report, finished) = tokio::join!(host.run("agent", goal), beside.finishes(host));
    finished?;
    assert_eq!(report?.outcome, expected, "{goal}");
    host.is_idle()
}

/// The same, for what an agent hears of a hostile tool.
async fn says(host: &TestHost, goal: &str) -> Result<String> {
    let beside = Beside::start(host).await?;
    let (report, finished) = tokio::join!(host.run("agent", goal), beside.finishes(host));
    finished?;
    let report = report?;
    assert_eq!(report.outcome, Outcome::Completed(()), "{goal}");
    host.settles().await?;
    Ok(report.output)
}

fn crowd() -> TestHostBuilder {
    with_agent().plugin(neighbour())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_spins() -> Result {
    let host = crowd().build()?;
    let session = host.session("agent").await?;
    runs_until_stopped(&host, &session, "spin", "computing").await
}

/// Rule S12: what it said before is kept.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_spins_after_it_reported_a_result() -> Result {
    let host = crowd().build()?;
    let session = host.session("agent").await?;
    let beside = Beside::start(&host).await?;
    let turn = session.prompt("partial the result\nlogs 1 2\nspin", "")?;
    host.logged("ll").await?;
    beside.finishes(&host).await?;
    session.stop_turn(None, &hard("enough"))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!((report.outcome, &*report.output), (interrupted(hard("enough")), "the result"));
    host.is_idle()
}

/// More guests that spin than there are processors take no turn away from an honest one.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn many_guests_that_spin() -> Result {
    let host = crowd().build()?;
    let mut turns = Vec::new();
    for _ in 0..24 {
        let session = host.session("agent").await?;
        turns.push((session.prompt("spin", "")?, session));
    }
    let computes =
        |node: &NodeView| node.activity.as_ref().is_some_and(|doing| doing.what == "computing");
    host.until("each has its turn", |nodes| {
        nodes.iter().filter(|node| computes(node)).count() == 24
    })
    .await?;
    let beside = Beside::start(&host).await?;
    beside.finishes(&host).await?;
    for (_, session) in &turns {
        assert_eq!(session.stop_turn(None, &hard("all of you"))?, 1);
    }
    for (turn, _) in turns {
        assert_eq!(within("the end", turn.ended()).await?.outcome, interrupted(hard("all of you")));
    }
    host.is_idle()
}

/// Rule S10: a guest that takes no notice of soft stops is ended when its grace period is over.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_ignores_soft_stops_and_retries_every_failure_for_ever() -> Result {
    let model = Scripted::new("model", [Reply::new().text("go on").repeat()]);
    let host = crowd().model(model).build()?;
    for goal in [
        "forever checkpoint free",
        "forever sleep 1",
        "forever ask anything",
        "forever call tool_echo",
        "forever call tool_panic",
        "forever fail denied no",
        "spin",
    ] {
        let beside = Beside::start(&host).await?;
        let session = host.session("agent").await?;
        let turn = session.prompt(goal, "")?;
        host.until("it runs", |nodes| nodes.iter().any(|node| node.id == turn.id())).await?;
        session.stop_turn(
            None,
            &Stop::soft("user", "please", Grace::After(Duration::from_millis(20))),
        )?;
        let report = within("the end", turn.ended()).await?;
        assert_eq!(report.outcome, interrupted(hard("please")), "{goal}");
        beside.finishes(&host).await?;
        host.is_idle()?;
    }
    Ok(())
}

/// Rule S11: whatever a guest waits in, it is gone when it is stopped.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_sleeps_for_hours() -> Result {
    let host = crowd().build()?;
    let session = host.session("agent").await?;
    runs_until_stopped(&host, &session, "sleep 100000000", "run.sleep").await?;
    for way in ["std", "block", "poll"] {
        let goal = format!("call tool_sleep {{\"text\":\"{way}\"}}");
        runs_until_stopped(&host, &session, &goal, "wasi:io/poll").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_end_at_their_limits() -> Result {
    let flooding = agent().limits("log-bytes = \"256KiB\"\ndoor-bytes = \"1MiB\"");
    let host = host().plugin(flooding).plugin(tool()).plugin(neighbour()).build()?;
    comes_to(&host, "logs 1000000000 100", Outcome::Limit(LimitKind::LogBytes)).await?;
    comes_to(&host, "prints 1000000000 100", Outcome::Limit(LimitKind::LogBytes)).await?;
    // Lines without a word are not free.
    comes_to(&host, "loop log.write", Outcome::Limit(LimitKind::LogBytes)).await?;
    comes_to(&host, "emits 1000000000 100", Outcome::Limit(LimitKind::DoorBytes)).await?;
    comes_to(&host, "forever remember key value", Outcome::Limit(LimitKind::DoorBytes)).await
}

/// A flood of calls that carry nothing has no end but a stop.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_flood_of_empty_calls_runs_until_it_is_stopped() -> Result {
    let host = crowd().build()?;
    let session = host.session("agent").await?;
    for import in ["run.budgets", "session.keys", "config.keys"] {
        runs_until_stopped(&host, &session, &format!("loop {import}"), "computing").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_recurses_without_end() -> Result {
    let host = crowd().build()?;
    let beside = Beside::start(&host).await?;
    let report = host.run("agent", "recurse").await?;
    let Outcome::Trapped(trapped) = report.outcome else { panic!("{:?}", report.outcome) };
    assert!(trapped.cause.contains("stack"), "{trapped}");
    beside.finishes(&host).await?;
    host.is_idle()
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn bombs_of_memory_and_tables() -> Result {
    let host = crowd().build()?;
    comes_to(&host, "hoard", Outcome::Limit(LimitKind::Memory)).await?;
    comes_to(&host, "allocate 1000", Outcome::Limit(LimitKind::Memory)).await?;
    let grow = "(loop $again
        (if (i32.eq (table.grow $table (ref.null func) (i32.const 100)) (i32.const -1)) (then unreachable))
        (br $again))";
    let bomb = Plugin::agent("agent", wat("agent", &[("RUN", grow)])?);
    let host = crowd_with(bomb).build()?;
    comes_to(&host, "", Outcome::Limit(LimitKind::TableElements)).await?;
    // More memories than any component may have: it does not even load.
    let many = "(core module $more (memory 1))\n".to_owned()
        + &"(core instance (instantiate $more))\n".repeat(64);
    let bomb = Plugin::agent("agent", wat("agent", &[("MORE", &many)])?);
    refused(&crowd_with(bomb).build()?, "linear memories").await
}

fn crowd_with(agent: Plugin) -> TestHostBuilder {
    host().plugin(agent).plugin(neighbour())
}

/// The agent does not load, for that reason, and the neighbour does not mind.
async fn refused(host: &TestHost, reason: &str) -> Result {
    let beside = Beside::start(host).await?;
    let Err(error) = host.host().session("agent").open().await else { bail!("it was loaded") };
    assert_eq!(error.kind(), ErrorKind::Component);
    let mut words = String::new();
    let mut source: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = source {
        words.push_str(&format!("{error}; "));
        source = error.source();
    }
    assert!(words.contains(reason), "{words}");
    assert!(words.len() < 4_000, "{} bytes of error", words.len());
    beside.finishes(host).await?;
    host.is_idle()
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn huge_strings_and_lists_in_both_directions() -> Result {
    let model = Scripted::new("model", [Reply::new().text("m".repeat(20 << 20)).chunk(1 << 20)]);
    let host = crowd().model(model).build()?;
    comes_to(&host, "emits 1 5000000", Outcome::Limit(LimitKind::CallBytes)).await?;
    comes_to(&host, "logs 1 5000000", Outcome::Limit(LimitKind::CallBytes)).await?;
    comes_to(&host, "wide-calls 100000", Outcome::Limit(LimitKind::CallBytes)).await?;
    comes_to(&host, "output 5000000", Outcome::Limit(LimitKind::CallBytes)).await?;
    assert_eq!(says(&host, "huge-call tool_echo 500000").await?, "ok: 500000 bytes");
    assert_eq!(says(&host, "try ask for much").await?, "too-large");
    let hears = says(&host, "call tool_size {\"count\":5000000}").await?;
    assert!(hears.starts_with("limit: "), "{hears}");
    Ok(())
}

/// What does not fit its schema never reaches a tool, and whoever called is told why.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn arguments_that_make_no_sense() -> Result {
    let host = crowd().build()?;
    for (arguments, why) in [
        ("{\"text\":\"reached\",\"count\":1", "not JSON"),
        ("reached", "not JSON"),
        ("{\"text\":\"\\ud800reached\",\"count\":1}", "not JSON"),
        ("{\"text\":\"reached\",\"count\":1e999}", "not JSON"),
        ("{\"text\":\"reached\",\"count\":1} {}", "not JSON"),
        ("[\"reached\"]", "\"object\""),
        ("\"reached\"", "\"object\""),
        ("null", "\"object\""),
        ("{\"text\":\"reached\",\"count\":\"1\"}", "`/count`"),
        ("{\"text\":\"reached\",\"count\":-1}", "`/count`"),
        ("{\"text\":[\"reached\"],\"count\":1}", "`/text`"),
        ("{\"text\":\"reached\",\"count\":1,\"port\":65536}", "`/port`"),
    ] {
        let hears = says(&host, &format!("call tool_logs {arguments}")).await?;
        assert!(hears.starts_with("invalid: "), "{arguments}: {hears}");
        assert!(hears.contains(why), "{arguments}: {hears}");
    }
    assert!(host.logs().lines().iter().all(|line| !format!("{line:?}").contains("reached")));
    assert_eq!(
        says(&host, "call tool_logs {\"text\":\"reached\",\"count\":1}").await?,
        "ok: logged"
    );
    host.logged("reached").await?;
    host.is_idle()
}

/// Bytes that were a component and are not quite one any more: refused with a reason, or run to some end.
#[tokio::test(flavor = "multi_thread")]
async fn components_with_a_few_wrong_bytes() -> Result {
    let honest = guest("agent");
    // The same bytes in every run of the test.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap_or_default()
    };
    let (mut refused, mut ran) = (0, 0);
    for round in 0..16 {
        let mut bytes = honest.to_vec();
        if round % 4 == 0 {
            bytes.truncate(random(honest.len()));
        } else {
            for _ in 0..1 << (round % 4) {
                let at = random(bytes.len());
                bytes[at] = u8::try_from(random(256))?;
            }
        }
        let host =
            host().plugin(Plugin::agent("agent", bytes).limits("wall-time = \"5s\"")).build()?;
        match host.session("agent").await {
            Err(error) => {
                let words = format!("{error:#}");
                assert!(words.starts_with("could not load the agent `agent`"), "{words}");
                refused += 1;
            }
            Ok(session) => {
                within("some end", session.prompt("say done", "")?.ended()).await?;
                ran += 1;
            }
        }
        host.is_idle()?;
    }
    assert!(refused >= 4, "{refused} were refused, {ran} ran");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn deeply_nested_values() -> Result {
    let host = crowd().build()?;
    assert_eq!(says(&host, "deep-call tool_echo 1000000").await?, "invalid");
    assert_eq!(says(&host, "try deep-emit 30000").await?, "invalid");
    assert_eq!(says(&host, "try deep-emit 50").await?, "fine");
    Ok(())
}

/// A single bulk instruction cannot be interrupted: the memory limit is what bounds it.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_fills_all_its_memory_again_and_again() -> Result {
    let host = crowd().build()?;
    let session = host.session("agent").await?;
    runs_until_stopped(&host, &session, "fill 60", "computing").await
}

/// Rule S11: a stop reaches a guest in every place in which the host runs its code.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_spins_in_any_place() -> Result {
    for place in ["START", "REALLOC", "DESTRUCTOR", "RUN", "POST-RETURN"] {
        let component = wat("agent", &[(place, "(loop $for-ever (br $for-ever))")])?;
        let host =
            crowd_with(Plugin::agent("agent", component).configuration("key = 1")).build()?;
        let session = host.session("agent").await?;
        runs_until_stopped(&host, &session, place, "computing").await?;
    }
    Ok(())
}

/// Rules S3 and S11: the same in a tool, through a stop of the turn that called it.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_tool_that_spins_in_any_place() -> Result {
    for place in ["REALLOC", "CALL", "POST-RETURN"] {
        let component = wat("tool", &[(place, "(loop $for-ever (br $for-ever))")])?;
        let host = host()
            .plugin(agent())
            .plugin(neighbour())
            .plugin(Plugin::tool("tool", component))
            .build()?;
        let session = host.session("agent").await?;
        runs_until_stopped(&host, &session, "call tool_it", "computing").await?;
    }
    Ok(())
}

/// A tool that does not say what it is holds nobody up for longer than its wall time; the agent does without it.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_tool_that_spins_while_it_is_asked_what_it_is() -> Result {
    for place in ["START", "DESCRIBE"] {
        let component = wat("tool", &[(place, "(loop $for-ever (br $for-ever))")])?;
        let tool = Plugin::tool("tool", component).limits("wall-time = \"50ms\"");
        let host = host().plugin(agent()).plugin(neighbour()).plugin(tool).build()?;
        assert_eq!(says(&host, "call tool_it").await?, "not-found: there is no tool `tool_it`");
    }
    Ok(())
}

/// Rule S12: a guest that returns after its soft stop has said something, and is interrupted all the same.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_returns_to_a_run_that_was_stopped() -> Result {
    let host = crowd().build()?;
    let beside = Beside::start(&host).await?;
    let session = host.session("agent").await?;
    let turn = session.prompt("try checkpoint a\nsay as if nothing had happened", "")?;
    host.reached("a").await?;
    session.stop_turn(None, &soft("leave"))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(soft("leave")));
    assert_eq!(report.output, "interrupted | soft | leave | user\nas if nothing had happened");
    beside.finishes(&host).await?;
    host.is_idle()
}

/// An agent that compiles for minutes: compiling is quadratic in the size of a function.
pub(crate) fn compilation_bomb(name: &str) -> Result<Plugin> {
    let loops = "(loop $l (br_if $l (i32.eqz (i32.load (i32.const 4)))))\n".repeat(40_000);
    Ok(Plugin::agent(name, wat("agent", &[("RUN", &loops)])?))
}

/// Rules W3 and D3: compiling is work like any other. A stop ends it, and so does the end of the host.
#[tokio::test(flavor = "multi_thread")]
async fn a_compilation_without_an_end_is_stopped() -> Result {
    for shuts_down in [false, true] {
        let patient = "[compile]\ntime = \"10m\"\nmemory = \"8GiB\"";
        let host = crowd_with(compilation_bomb("agent")?).configuration(patient).build()?;
        let beside = Beside::start(&host).await?;
        let opening = tokio::spawn(host.opening("agent").open());
        let mut compiling = None;
        host.until("it compiles", |nodes| {
            compiling =
                nodes.iter().find(|node| node.kind == Kind::Compilation).map(|node| node.id);
            compiling.is_some()
        })
        .await?;
        beside.finishes(&host).await?;
        if shuts_down {
            let drained = host.host().shutdown("the host goes", checkrein_testkit::PATIENCE).await;
            assert!(drained.is_ok(), "{drained:?}");
            host.is_idle()?;
        } else {
            let id = compiling.ok_or_else(|| anyhow::anyhow!("it is gone"))?;
            assert_eq!(host.host().tree().stop(id, &hard("enough"))?, 1);
        }
        let opened = within("the answer", opening).await??;
        assert!(opened.is_err(), "it was opened");
        host.is_idle()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_takes_for_ever_to_compile() -> Result {
    let host = crowd_with(compilation_bomb("agent")?)
        .configuration("[compile]\ntime = \"2s\"\nmemory = \"1GiB\"")
        .build()?;
    // It ran out of time or of memory, whichever came first.
    refused(&host, "and was ended").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_with_thousands_of_imports() -> Result {
    let imports: String =
        (0..5_000).map(|n| format!("(import \"evil:pack/i{n}\" (func))\n")).collect();
    let component = wat("agent", &[("MORE", &imports)])?;
    refused(&crowd_with(Plugin::agent("agent", component)).build()?, "evil:pack/i0").await?;
    // As many of what the host does have.
    let lowered: String = (0..5_000)
        .map(|n| format!("(core func $keys{n} (canon lower (func $config \"keys\") (memory (core memory $libc \"memory\")) (realloc (core func $libc \"realloc\"))))\n"))
        .collect();
    let component = wat("agent", &[("MORE", &lowered)])?;
    comes_to(&crowd_with(Plugin::agent("agent", component)).build()?, "", Outcome::Completed(()))
        .await
}

/// What a component says of itself in a section decides nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_lies_about_its_sdk_version() -> Result {
    for lie in ["checkrein-guest 99.0.0", "", "\\00\\ff\\fe", &"x".repeat(100_000)] {
        let section = format!("(@custom \"checkrein-sdk\" \"{lie}\")");
        let component = wat("agent", &[("MORE", &section)])?;
        comes_to(
            &crowd_with(Plugin::agent("agent", component)).build()?,
            "",
            Outcome::Completed(()),
        )
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn environment_and_secrets_are_those_that_were_given() -> Result {
    let given = "[plugins.tool.grants]\nenvironment = [\"GIVEN\", \"UNASKED\"]\n\
        secrets = { mine = { env = \"MINE\" }, unasked = { env = \"OTHER\" } }";
    let host =
        host()
            .plugin(agent())
            .plugin(neighbour())
            .plugin(tool().grants(
                "environment = [\"GIVEN\", \"NOT_GIVEN\"]\nsecrets = [\"mine\", \"theirs\"]",
            ))
            .configuration(given)
            .variable("GIVEN", "one")
            .variable("NOT_GIVEN", "two")
            .variable("UNASKED", "three")
            .variable("MINE", "my secret")
            .variable("OTHER", "their secret")
            .build()?;
    assert_eq!(says(&host, "call tool_environment").await?, "ok: GIVEN=one");
    assert_eq!(says(&host, "call tool_secret {\"text\":\"mine\"}").await?, "ok: my secret");
    for name in ["theirs", "unasked", "MINE", "OTHER", "", "../mine", "mine\\u0000"] {
        let hears = says(&host, &format!("call tool_secret {{\"text\":\"{name}\"}}")).await?;
        assert!(hears.starts_with("denied: "), "{name}: {hears}");
        assert!(!hears.contains("their secret"), "{name}: {hears}");
    }
    Ok(())
}
