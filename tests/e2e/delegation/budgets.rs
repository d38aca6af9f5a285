//! What children get of their parent's budgets and permissions (A10): three levels that try to exceed each.

use checkrein::model::{Reply, Scripted};
use checkrein::sandbox::{LimitKind, Outcome, Used};
use checkrein::session::{EventKind, Session};
use checkrein_testkit::{Plugin, TestHost, guest, within};
use serde_json::json;

use super::support::{events, inline, read, statuses, task};
use crate::start::{Result, agent, host, tool, with_agent};

/// Three levels: each hands the same to one below, and then tries to use more than it has.
fn greedy(step: &str) -> String {
    let leaf = task(step);
    let middle = task(&format!("try {}\n{step}", inline(&[leaf])));
    format!("try {}\n{step}", inline(&[middle]))
}

/// How each run of a session ended, innermost first.
fn ends(session: &Session) -> Vec<(String, String, Used)> {
    let end = |event: checkrein::session::Event| {
        let EventKind::RunEnded { status, detail, used, .. } = event.kind else { return None };
        Some((status, detail.unwrap_or_default(), used))
    };
    events(session).into_iter().filter_map(end).collect()
}

async fn run(host: &TestHost, goal: &str) -> Result<(Session, Outcome<()>)> {
    let session = host.session("agent").await?;
    let report = within("the turn", session.prompt(goal, "")?.ended()).await?;
    host.is_idle()?;
    Ok((session, report.outcome))
}

/// Rule A10: all three levels together burn no more fuel than the root was given, though each tries to burn for ever.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_tree_of_runs_burns_no_more_fuel_than_its_root_was_given() -> Result {
    const FUEL: u64 = 40_000_000;
    let host = host().plugin(agent().limits(&format!("fuel = {FUEL}"))).build()?;
    let (session, outcome) = run(&host, &greedy("spin")).await?;
    assert_eq!(outcome, Outcome::Limit(LimitKind::Fuel));
    let ends = ends(&session);
    assert_eq!(ends.len(), 3);
    for (status, detail, _) in &ends {
        assert_eq!((status.as_str(), detail.as_str()), ("limit", "the limit `fuel` is used up"));
    }
    let burnt: Vec<u64> = ends.iter().map(|(_, _, used)| used.fuel.unwrap_or(u64::MAX)).collect();
    // What a run handed out counts as its own, so the root's figure is that of the tree.
    assert!(burnt[0] < burnt[1] && burnt[1] < burnt[2] && burnt[2] <= FUEL, "{burnt:?}");
    // A parent that waits hands out all it has; what the leaf was given it has burnt, and nearly all of it was there.
    assert!(burnt[0] > FUEL / 2, "{burnt:?}");

    // What one below has burnt is there for nobody above it.
    let leaf = json!({ "goal": "spin", "limits": [["fuel", FUEL / 2]] });
    let middle = task(&format!("{}\nbudget fuel", inline(&[leaf])));
    let report = host.run("agent", &format!("{}\nbudget fuel", inline(&[middle]))).await?;
    let (outcome, root) = report.output.split_once('\n').unwrap_or_default();
    let outcome = read(outcome)?;
    let middle = outcome["results"][0]["output"].as_str().and_then(|output| output.lines().last());
    for left in [middle.unwrap_or_default(), root] {
        let left: u64 = left.split(' ').next().unwrap_or_default().parse()?;
        assert!((FUEL / 4..FUEL / 2).contains(&left), "{left} of {FUEL}: {}", report.output);
    }
    Ok(())
}

/// What a child did not burn is its parent's again.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn fuel_that_was_not_burnt_comes_back() -> Result {
    let host = host().plugin(agent().limits("fuel = 50000000")).build()?;
    let call = inline(&[task("say a"), task("say b")]);
    let (session, outcome) =
        run(&host, &format!("{call}\nbudget fuel\n{call}\nbudget fuel")).await?;
    assert_eq!(outcome, Outcome::Completed(()));
    let ends = ends(&session);
    let burnt: u64 = ends.last().and_then(|(_, _, used)| used.fuel).unwrap_or(u64::MAX);
    assert!(burnt < 25_000_000, "two rounds of two children that do nearly nothing: {burnt}");
    let of_children: u64 = ends.iter().take(4).filter_map(|(_, _, used)| used.fuel).sum();
    assert!(burnt > of_children, "{burnt} and {of_children}");
    Ok(())
}

/// A child that was given less has less, and its siblings share the rest.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_task_names_its_own_limits() -> Result {
    let host = with_agent().build()?;
    let limited = json!({ "goal": "budget fuel\nspin", "limits": [["fuel", 3_000_000]] });
    let small = json!({ "goal": "allocate 8", "limits": [["memory", 4 << 20]] });
    let short = json!({ "goal": "sleep 3600000", "limits": [["wall-time", 30]] });
    let call = inline(&[limited, small, short, task("budget fuel")]);
    let report = host.run("agent", &call).await?;
    let results = &read(&report.output)?["results"];
    assert_eq!(statuses(results), ["limit", "limit", "limit", "completed"]);
    let details: Vec<&str> = (0..3).filter_map(|task| results[task]["detail"].as_str()).collect();
    assert_eq!(
        details,
        [
            "the limit `fuel` is used up",
            "the limit `memory` is used up",
            "the limit `wall-time` is used up"
        ]
    );
    assert_eq!(results[3]["output"], "none");
    host.is_idle()
}

/// Rule A10: the tokens of all three levels together are no more than the root was given, but for the last request.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_tree_of_runs_uses_no_more_tokens_than_its_root_was_given() -> Result {
    let model = Scripted::new("model", [Reply::new().text("four words of text").repeat()]);
    let host = host().plugin(agent().limits("model-tokens = 200")).model(model).build()?;
    let one = host.run("agent", "ask something").await?.used.model_tokens;
    assert!(0 < one && one < 50, "{one}");
    let (session, outcome) = run(&host, &greedy("times 1000 ask something")).await?;
    assert_eq!(outcome, Outcome::Limit(LimitKind::ModelTokens));
    let ends = ends(&session);
    let tokens: Vec<u64> = ends.iter().map(|(_, _, used)| used.model_tokens).collect();
    assert!(ends.iter().all(|(status, _, _)| status == "limit"), "{ends:?}");
    // What a run handed out counts as its own, so the root's figure is that of the tree. The last request may go over.
    assert!(tokens[0] >= 200 && tokens[2] < 200 + one, "{tokens:?}, {one} each");
    let goal = format!("{}\nbudget model-tokens", inline(&[task("times 3 ask something")]));
    let report = host.run("agent", &goal).await?;
    assert!(report.output.ends_with(&format!("\n{} of 200", 200 - 3 * one)), "{}", report.output);

    // Also where there is no bound.
    let model = Scripted::new("model", [Reply::new().text("four words of text").repeat()]);
    let host = crate::start::host().plugin(agent()).model(model).build()?;
    let goal = format!("ask something\n{}", inline(&[task("times 3 ask something")]));
    assert_eq!(host.run("agent", &goal).await?.used.model_tokens, 4 * one);
    Ok(())
}

/// Rule A10: nobody below has more time than the root.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_tree_of_runs_has_no_more_time_than_its_root() -> Result {
    let host = host().plugin(agent().limits("wall-time = \"2s\"")).build()?;
    let long = |goal: &str| json!({ "goal": goal, "limits": [["wall-time", 3_600_000]] });
    let middle = long(&inline(&[long("sleep 3600000")]));
    let (session, outcome) = run(&host, &inline(&[middle])).await?;
    assert_eq!(outcome, Outcome::Limit(LimitKind::WallTime));
    let ends = ends(&session);
    assert_eq!(ends.len(), 3);
    // A child ends at its own deadline, or by its parent's, which comes with it.
    assert!(ends.iter().all(|(_, detail, _)| detail.contains("wall-time")), "{ends:?}");
    Ok(())
}

/// Rules A9 and A10: runs below a turn are counted together, and a child can be given a part of them.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_tree_of_runs_starts_no_more_children_than_its_root_may() -> Result {
    let host = with_agent().configuration("[delegation]\ndescendants-per-tree = 6\n").build()?;
    let three = inline(&[task("say x"), task("say x"), task("say x")]);
    let middle = task(&format!("try {three}"));
    let (session, _) = run(&host, &inline(&[middle.clone(), middle])).await?;
    // One of the two in the middle got three; for the other there was one place left of six.
    let outputs: Vec<String> = events(&session)
        .into_iter()
        .filter_map(|event| {
            let EventKind::RunEnded { output, .. } = event.kind else { return None };
            (event.run.matches('.').count() == 2).then_some(output)
        })
        .collect();
    let refused = outputs.iter().filter(|output| *output == "limit").count();
    assert_eq!((outputs.len(), refused), (2, 1), "{outputs:?}");
    assert_eq!(ends(&session).len(), 1 + 2 + 3);

    let few = json!({ "goal": format!("try {three}"), "limits": [["descendants", 2]] });
    let (session, _) = run(&host, &inline(&[few])).await?;
    assert_eq!(ends(&session).len(), 2);
    Ok(())
}

/// Rule A10: permissions only narrow, also where the child is another agent that may do more by itself.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn permissions_only_narrow() -> Result {
    let model = Scripted::new("model", [Reply::new().text("an answer").repeat()]);
    let host = host()
        .plugin(agent().grants("tools = [\"tool_echo\", \"tool_fail\"]\ndelegation = [\"other\"]"))
        .plugin(Plugin::agent("other", guest("agent")))
        .plugin(tool())
        .model(model)
        .build()?;
    let leaf = json!({ "goal": "tools\ntry ask anything", "agent": "other" });
    let tools_of = json!({ "goal": "tools", "agent": "other", "tools": ["tool_fail"] });
    let middle = json!({
        "goal": format!(
            "tools\n{}\ntry {}\ntry {}",
            inline(&[leaf]),
            inline(&[tools_of]),
            inline(&[json!({ "goal": "tools", "agent": "agent" })])
        ),
        "agent": "other",
        "tools": ["tool_echo"],
    });
    let report = host.run("agent", &inline(&[middle])).await?;
    let outcome = read(&report.output)?;
    let lines: Vec<String> = outcome["results"][0]["output"]
        .as_str()
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(lines[0], "tool_echo", "{outcome}");
    let leaf = read(&lines[1])?;
    assert_eq!(
        leaf["results"][0]["output"], "tool_echo\ndenied",
        "the root has no model to pass on"
    );
    // The tool that the middle was not given, and the agent that the root may not hand tasks to.
    assert_eq!(lines[2..], ["denied", "denied"]);
    host.is_idle()
}
