//! After known work the figures have known values, for an embedder and over HTTP.

#![allow(clippy::expect_used, reason = "a page that cannot be read fails the test")]

use std::collections::BTreeMap;
use std::time::Duration;

use checkrein::model::{Reply, Scripted};
use checkrein::sandbox::{LimitKind, Outcome};
use checkrein::session::{Delivery, PromptError};
use checkrein_testkit::{TestHost, within};

use crate::start::{Result, agent, hard, host, soft, tool, with_agent};

/// Every sample of a page, by its name and labels as they are written.
pub(crate) fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn read(host: &TestHost) -> BTreeMap<String, f64> {
    samples(&host.host().metrics())
}

/// Those samples have these values, and no others of the same beginning are above 0.
fn are(host: &TestHost, beginning: &str, expected: &[(&str, f64)]) {
    let found: BTreeMap<String, f64> = read(host)
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(beginning)?.to_owned(), value)))
        .filter(|(_, value)| *value != 0.0)
        .collect();
    let expected = expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    assert_eq!(found, expected, "{beginning}");
}

/// Rule W2: what is live is read from the tree, and is gone with the work.
#[tokio::test(flavor = "multi_thread")]
async fn live_work_is_what_the_tree_holds() -> Result {
    let host = with_agent().build()?;
    are(&host, "checkrein_work", &[("{kind=\"host\"}", 1.0)]);
    let session = host.session("agent").await?;
    let turn = session.prompt("checkpoint here", "")?;
    host.reached("here").await?;
    let containers =
        [("{kind=\"host\"}", 1.0), ("{kind=\"registry\"}", 1.0), ("{kind=\"session\"}", 1.0)];
    let mut live = containers.to_vec();
    live.push(("{kind=\"turn\"}", 1.0));
    are(&host, "checkrein_work", &live);
    are(&host, "checkrein_pool_used{what=\"components\"}", &[("", 1.0)]);
    host.release("here");
    within("the end", turn.ended()).await?;
    are(&host, "checkrein_work", &containers);
    are(&host, "checkrein_pool_used{what=\"components\"}", &[]);
    Ok(())
}

/// Every way in which a run ends is counted once, by what the run was.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn runs_are_counted_by_how_they_ended() -> Result {
    let host = host().plugin(agent().limits("door-bytes = \"64KiB\"")).plugin(tool()).build()?;
    let describes = ("{kind=\"tool call\",status=\"completed\"}", 1.0);
    for goal in ["say fine", "say fine", "fail failed no", "trap", "recurse", "exit 3"] {
        host.run("agent", goal).await?;
    }
    let cut = host.run("agent", "times 100000 remember key value").await?;
    assert_eq!(cut.outcome, Outcome::Limit(LimitKind::DoorBytes));
    // Each session asked the tools what they are.
    let describes = (describes.0, describes.1 * 7.0);
    are(
        &host,
        "checkrein_runs_total",
        &[
            describes,
            ("{kind=\"turn\",status=\"completed\"}", 2.0),
            ("{kind=\"turn\",status=\"failed\"}", 1.0),
            ("{kind=\"turn\",status=\"limit\",limit=\"door-bytes\"}", 1.0),
            ("{kind=\"turn\",status=\"trapped\"}", 3.0),
        ],
    );
    are(
        &host,
        "checkrein_traps_total",
        &[
            ("{cause=\"exit\"}", 1.0),
            ("{cause=\"stack-overflow\"}", 1.0),
            ("{cause=\"unreachable\"}", 1.0),
        ],
    );
    are(&host, "checkrein_admissions_total", &[("{work=\"turn\"}", 7.0)]);
    Ok(())
}

/// The fuel of all runs together is that of their reports.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn fuel_is_that_of_the_reports() -> Result {
    let host = host().plugin(agent().limits("fuel = 1_000_000_000")).build()?;
    let one = host.run("agent", "say one").await?.used.fuel.unwrap_or_default();
    let two = host.run("agent", "times 1000 remember key value").await?;
    let two = two.used.fuel.unwrap_or_default();
    assert!(0 < one && one < two, "{one} {two}");
    are(&host, "checkrein_fuel_total", &[("{kind=\"turn\"}", (one + two) as f64)]);
    Ok(())
}

/// Rule S4: a stop is counted at each piece of work that it reaches, once, and its time is taken when that has gone.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn stops_are_counted_where_they_arrive_and_timed_where_they_end() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    // It hears of its soft stop, and goes on.
    let turn = session.prompt("try sleep 100000\nprogress on\ncheckpoint here", "")?;
    host.doing("run.sleep").await?;
    session.stop_turn(None, &soft("please"))?;
    session.stop_turn(None, &soft("again"))?;
    host.reached("here").await?;
    are(&host, "checkrein_stops_total", &[("{kind=\"soft\"}", 1.0)]);
    session.stop_turn(None, &hard("now"))?;
    within("the end", turn.ended()).await?;
    are(&host, "checkrein_stops_total", &[("{kind=\"hard\"}", 1.0), ("{kind=\"soft\"}", 1.0)]);
    are(&host, "checkrein_stop_seconds_count", &[("{kind=\"hard\"}", 1.0)]);
    // A hard stop reaches the turn and the tool that it waits for.
    let turn = session.prompt("call tool_sleep {\"text\":\"block\"}", "")?;
    host.logged("sleeping").await?;
    session.stop_turn(None, &hard("now"))?;
    within("the end", turn.ended()).await?;
    host.until("both have gone", |nodes| nodes.is_empty()).await?;
    are(&host, "checkrein_stops_total", &[("{kind=\"hard\"}", 3.0), ("{kind=\"soft\"}", 1.0)]);
    are(&host, "checkrein_stop_seconds_count", &[("{kind=\"hard\"}", 3.0)]);
    // What only holds others does not count.
    assert!(host.host().shutdown("enough", Duration::from_secs(10)).await.is_ok());
    are(&host, "checkrein_stops_total", &[("{kind=\"hard\"}", 3.0), ("{kind=\"soft\"}", 1.0)]);
    let took = read(&host)["checkrein_stop_seconds_sum{kind=\"hard\"}"];
    assert!(0.0 < took && took < 10.0, "{took}");
    are(&host, "checkrein_tool_calls_total", &[("{status=\"interrupted\"}", 1.0)]);
    let ended = read(&host)["checkrein_runs_total{kind=\"tool call\",status=\"interrupted\"}"];
    assert_eq!(ended, 1.0);
    Ok(())
}

/// Tokens are those that the model said, also of a request that was given up; tools by the status of their answers.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn models_and_tools_are_counted_by_what_they_answered() -> Result {
    let replies =
        [Reply::new().text("an answer").usage(30, 7), Reply::new().text("another").usage(12, 5)];
    let host = with_agent().model(Scripted::new("model", replies)).build()?;
    let goal = "ask one\nask two\ntry ask three\ncall tool_echo {\"text\":\"hello\"}\ncall tool_echo {\"text\":3}\ncall nothing {}";
    host.run("agent", goal).await?;
    are(
        &host,
        "checkrein_model_requests_total",
        &[
            ("{model=\"model\",status=\"completed\"}", 2.0),
            ("{model=\"model\",status=\"failed\"}", 1.0),
        ],
    );
    are(
        &host,
        "checkrein_model_tokens_total",
        &[
            ("{model=\"model\",direction=\"input\"}", 42.0),
            ("{model=\"model\",direction=\"output\"}", 12.0),
        ],
    );
    are(
        &host,
        "checkrein_tool_calls_total",
        &[("{status=\"invalid\"}", 1.0), ("{status=\"not-found\"}", 1.0), ("{status=\"ok\"}", 1.0)],
    );
    Ok(())
}

/// Rules A2 and D2: what is let in and what is not is counted with its reason.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn admissions_and_refusals_are_counted_with_their_reasons() -> Result {
    let host = with_agent().configuration("[delegation]\nunits-per-host = 1\n").build()?;
    let session = host.opening("agent").delivery(Delivery::Polled).open().await?;
    let tasks = "{\"mode\":\"background\",\"tasks\":[{\"goal\":\"checkpoint child\"}]}";
    let goal = format!(
        "delegate {tasks}\ncheckpoint between\ndelegate {}",
        tasks.replace("child", "inside")
    );
    let turn = session.prompt(goal, "")?;
    host.reached("child").await?;
    host.reached("between").await?;
    assert!(matches!(session.prompt("say no", ""), Err(PromptError::Busy { .. })));
    are(&host, "checkrein_slots", &[("{state=\"held\"}", 1.0)]);
    host.release("between");
    host.reached("inside").await?;
    host.release("inside");
    within("the end", turn.ended()).await?;
    host.release("child");
    host.until("the unit goes", |nodes| nodes.is_empty()).await?;
    are(&host, "checkrein_slots", &[]);
    drop(host.host().drain("maintenance", Duration::from_secs(10)).await);
    assert!(session.prompt("say no", "").is_err());
    are(
        &host,
        "checkrein_refusals_total",
        &[
            ("{work=\"turn\",reason=\"busy\"}", 1.0),
            ("{work=\"turn\",reason=\"draining\"}", 1.0),
            ("{work=\"unit\",reason=\"capacity\"}", 1.0),
        ],
    );
    let found = read(&host);
    assert_eq!(found["checkrein_admissions_total{work=\"unit\"}"], 1.0);
    assert_eq!(found["checkrein_runs_total{kind=\"child\",status=\"completed\"}"], 2.0);
    Ok(())
}

/// Names of models are the operator's, and stay inside their label whatever they are.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn no_name_can_leave_its_label() -> Result {
    let name = "a\"} 1\ncheckrein_evil{x=\"";
    let model = Scripted::new(name, [Reply::new().text("an answer")]);
    let host = with_agent().model(model).build()?;
    host.run("agent", "ask one").await?;
    let page = host.host().metrics();
    assert!(!page.lines().any(|line| line.starts_with("checkrein_evil")), "{page}");
    assert!(page.ends_with("# EOF\n"), "{page}");
    Ok(())
}
