//! The second base matrix: *an accepted unit keeps its owner*; and what stops do reach it.

use std::time::Duration;

use checkrein::delegation::{ChildStatus, UnitStatus};
use checkrein::session::{Delivery, EventKind, Session, Stopped, Turn};
use checkrein::work::{Grace, Kind, NodeView, Stop, StopKind};
use checkrein_testkit::{TestHost, within};
use serde_json::json;

use super::support::{background, delegate, event, events, over, read, task};
use crate::start::{Result, hard, soft, with_agent};

async fn polled(host: &TestHost) -> Result<Session> {
    Ok(host.opening("agent").delivery(Delivery::Polled).open().await?)
}

/// A turn that has handed out background children, and waits.
async fn dispatched(session: &Session, children: &[&str]) -> Result<Turn> {
    let tasks: Vec<_> = children.iter().map(|goal| task(goal)).collect();
    let turn = session
        .prompt(format!("{}\ntry checkpoint told\ncheckpoint parent", background(&tasks)), "")?;
    within(
        "the children are handed out",
        event(session, "the end of the call", |event| {
            matches!(event.kind, EventKind::Delegated { .. }).then_some(())
        }),
    )
    .await??;
    Ok(turn)
}

fn children(host: &TestHost) -> Vec<NodeView> {
    host.executions().into_iter().filter(|node| node.kind == Kind::Child).collect()
}

fn ended(session: &Session) -> usize {
    let child = |kind: &EventKind| matches!(kind, EventKind::ChildEnded { .. });
    events(session).iter().filter(|event| child(&event.kind)).count()
}

/// Rules H1, S6, S7, C4, H4, row by row: dispatched and running; the turn's soft stop, then its hard stop, return
/// without reaching it; the session-level stop returns 1 and is hard; the child is not closed before it has ended; the
/// completion bears the dispatched id and says `interrupted`; it was closed once.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn an_accepted_unit_keeps_its_owner() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    host.places().linger("run");
    let turn = dispatched(&session, &["partial half\ncheckpoint run"]).await?;
    host.reached("run").await?;

    session.stop_turn(None, &soft("the turn"))?;
    host.reached("parent").await?;
    assert_eq!(children(&host)[0].stop, None);
    session.stop_turn(None, &hard("the turn, now"))?;
    within("the turn", turn.ended()).await?;
    assert_eq!(children(&host)[0].stop, None);
    assert!(session.completions().is_empty());

    let stopping = {
        let session = session.clone();
        tokio::task::spawn_blocking(move || session.stop_background("user", "the session"))
    };
    within("the child is taken down", host.places().abandoned("run", 1)).await?;
    assert_eq!(children(&host)[0].stop, Some(Stop::hard("user", "the session")));
    assert!(session.completions().is_empty() && ended(&session) == 0);
    assert_eq!(host.host().slots().held, 1);
    host.release("run");
    assert_eq!(within("the stop", stopping).await??, 1);

    let completion = within("the completion", session.completion()).await?;
    assert_eq!(
        (completion.id.to_string().as_str(), completion.status),
        ("d1", UnitStatus::Interrupted)
    );
    let entry = &completion.entries[0];
    assert_eq!((&entry.status, entry.output.as_str()), (&ChildStatus::Interrupted, "half"));
    assert!(entry.detail.contains("the session"), "{entry:?}");
    assert_eq!(ended(&session), 1);
    assert_eq!(host.host().slots().held, 0);
    over(&host).await
}

/// Rule S7: selecting nothing stops nothing.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_session_without_background_work_has_nothing_to_stop() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    assert_eq!(session.stop_background("user", "nothing"), 0);
    assert_eq!(session.stop("user", "nothing"), Stopped { turn: 0, background: 0, side: 0 });
    let turn = session.prompt("try checkpoint here\nsay on", "")?;
    host.reached("here").await?;
    assert_eq!(session.stop_background("user", "nothing"), 0);
    host.release("here");
    assert_eq!(within("the turn", turn.ended()).await?.output, "fine\non");
    host.is_idle()
}

/// Rule S8: a person's Stop reaches the turn and everything in the background, and partial results come back.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_persons_stop_reaches_the_turn_and_the_background() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    let turn =
        dispatched(&session, &["partial a\ncheckpoint a", "partial b\ncheckpoint b"]).await?;
    host.reached("a").await?;
    host.reached("b").await?;
    let stopped = session.stop("user", "all of it");
    assert_eq!(stopped, Stopped { turn: 1, background: 1, side: 0 });
    within("the turn", turn.ended()).await?;
    let completion = within("the completion", session.completion()).await?;
    let outputs: Vec<&str> = completion.entries.iter().map(|entry| entry.output.as_str()).collect();
    assert_eq!((completion.status, outputs), (UnitStatus::Interrupted, vec!["a", "b"]));
    // Also when the session is idle.
    dispatched(&session, &["checkpoint c"]).await?;
    host.reached("c").await?;
    host.release("told");
    host.release("parent");
    host.until("the turn ends", |_| session.running().is_none()).await?;
    assert_eq!(session.stop("user", "idle"), Stopped { turn: 0, background: 1, side: 0 });
    over(&host).await
}

/// The stop of one child by its node, and of one unit by its name, reach that one and no other.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn one_child_and_one_unit_can_be_stopped_by_name() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    dispatched(&session, &["checkpoint a\nsay a", "checkpoint b\nsay b"]).await?;
    dispatched_again(&host, &session).await?;
    for place in ["a", "b", "c"] {
        host.reached(place).await?;
    }
    let nodes = children(&host);
    let first = nodes.iter().find(|node| node.label.ends_with(".1.1")).expect("it runs");
    assert_eq!(host.host().tree().stop(first.id, &hard("this child"))?, 1);
    let second = "d2".parse()?;
    assert_eq!(session.stop_delegations(&[second], &hard("this unit"))?, 1);
    // An id that is not the session's stops nothing, also beside one that is.
    assert!(session.stop_delegations(&["d1".parse()?, "d9".parse()?], &hard("none")).is_err());
    let completion = within("the unit", session.completion()).await?;
    assert_eq!((completion.id, completion.status), (second, UnitStatus::Interrupted));
    session.acknowledge(completion.id).await?;
    assert_eq!(session.stop_delegations(&[second], &hard("again"))?, 0, "it is over (W7)");
    host.release("b");
    let completion = within("the other unit", session.completion()).await?;
    let statuses: Vec<&str> =
        completion.entries.iter().map(|entry| entry.status.as_str()).collect();
    assert_eq!(
        (completion.status, statuses),
        (UnitStatus::Completed, vec!["interrupted", "completed"])
    );
    host.release("told");
    host.release("parent");
    over(&host).await
}

/// A second turn with one more unit.
async fn dispatched_again(host: &TestHost, session: &Session) -> Result {
    host.release("told");
    host.release("parent");
    host.until("the first turn ends", |_| session.running().is_none()).await?;
    let turn = session.prompt(background(&[task("checkpoint c")]), "")?;
    within("the second turn", turn.ended()).await?;
    Ok(())
}

/// The stop of a whole tree of runs reaches every level of it (S4).
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn the_stop_of_a_tree_reaches_every_level() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    let leaf = task("checkpoint leaf");
    let middle = task(&super::support::inline(&[leaf.clone(), leaf]));
    let turn = session.prompt(super::support::inline(&[middle.clone(), middle]), "")?;
    within("the leaves", host.places().reached("leaf", 4)).await?;
    let reached = session.stop_turn(None, &hard("all of it"))?;
    assert_eq!(reached, 7);
    within("the turn", turn.ended()).await?;
    host.is_idle()
}

/// An agent looks at its units, waits for one and stops another; the wait can be interrupted, and uses nothing up.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn an_agent_follows_its_own_units() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    let call = delegate(
        "background",
        &[task("say quick"), task("try checkpoint slow\nobserve\nsay wrapped up")],
        &json!({ "independent-completions": true }),
    );
    let goal = format!(
        "{call}\nwait-unit d1\ncheckpoint look\nunits\nstop-unit d2 thank you\nwait-unit d2\ntry units d7\ntry wait-unit\nunits"
    );
    let turn = session.prompt(goal, "")?;
    host.reached("slow").await?;
    host.release("look");
    let report = within("the turn", turn.ended()).await?;
    let lines: Vec<&str> = report.output.lines().collect();
    let first = read(lines[1])?;
    assert_eq!(
        (&first["state"], &first["results"][0]["output"]),
        (&json!("completed"), &json!("quick"))
    );
    let units = read(lines[2])?;
    let state = |id: &str| {
        let units = units.as_array().into_iter().flatten();
        units.filter(|unit| unit["id"] == id).map(|unit| unit["state"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((state("d1"), state("d2")), (vec![json!("completed")], vec![json!("running")]));
    assert_eq!(lines[3], "1");
    let second = read(lines[4])?;
    assert_eq!(second["state"], "interrupted");
    assert_eq!(
        second["results"][0]["output"],
        format!("interrupted | soft | thank you | {0}\nwrapped up", turn_name(&session))
    );
    assert_eq!(lines[5..7], ["not-found", "invalid"]);
    // Waiting and looking have acknowledged nothing.
    assert_eq!(session.completions().len(), 2);
    over(&host).await
}

fn turn_name(session: &Session) -> String {
    format!("{}.1", session.id())
}

/// A wait for a unit is ended by the soft stop of whoever waits, and the unit goes on.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_wait_for_a_unit_can_be_interrupted() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    let call = background(&[task("checkpoint slow\nsay done")]);
    let turn = session.prompt(format!("{call}\ntry wait-unit d1"), "")?;
    host.doing("delegate.wait").await?;
    session.stop_turn(None, &soft("no time"))?;
    let report = within("the turn", turn.ended()).await?;
    assert!(report.output.ends_with("interrupted | soft | no time | user"), "{}", report.output);
    host.release("slow");
    let completion = within("the completion", session.completion()).await?;
    assert_eq!(completion.entries[0].output, "done");
    over(&host).await
}

/// Supervision: the failure of a background child is told at once, while the unit goes on, and uses no completion up.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn the_failure_of_a_background_child_is_told_at_once() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    dispatched(&session, &["fail invalid broken", "checkpoint on\nsay fine"]).await?;
    let told = event(&session, "the failure", |event| {
        let EventKind::ChildEnded { task: 0, delegation, status, detail, .. } = &event.kind else {
            return None;
        };
        Some((event.run.to_string(), delegation.clone(), status.clone(), detail.clone()))
    })
    .await?;
    let detail = Some("invalid: broken".to_owned());
    assert_eq!(told, (turn_name(&session), Some("d1".to_owned()), "failed".to_owned(), detail));
    host.reached("on").await?;
    assert!(session.completions().is_empty());
    let unit = &session.delegations(&[])?[0];
    assert_eq!((unit.entries.len(), &unit.entries[0].status), (1, &ChildStatus::Failed));
    host.release("on");
    let completion = within("the completion", session.completion()).await?;
    assert_eq!(completion.entries.len(), 2);
    host.release("told");
    host.release("parent");
    over(&host).await
}

/// Rules S10 and C4: a soft stop that an agent gives its unit becomes hard when the grace period ends.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_unit_that_ignores_the_stop_of_its_agent_is_cut() -> Result {
    let host = with_agent().configuration("[stop]\ngrace = \"20ms\"\n").build()?;
    let session = polled(&host).await?;
    let call = background(&[task("partial so far\nemit begun\nspin")]);
    let turn = session.prompt(format!("{call}\ncheckpoint begun\nstop-unit d1 enough"), "")?;
    event(&session, "the child begins", |event| {
        let EventKind::Custom { payload, .. } = &event.kind else { return None };
        (payload["text"] == "begun").then_some(())
    })
    .await?;
    host.release("begun");
    within("the turn", turn.ended()).await?;
    let completion = within("the completion", session.completion()).await?;
    let entry = &completion.entries[0];
    assert_eq!((completion.status, entry.output.as_str()), (UnitStatus::Interrupted, "so far"));
    let kinds: Vec<String> = events(&session)
        .into_iter()
        .filter_map(|event| {
            let EventKind::Stop { kind, .. } = event.kind else { return None };
            Some(kind)
        })
        .collect();
    assert_eq!(kinds, [StopKind::Soft.to_string(), StopKind::Hard.to_string()]);
    over(&host).await
}

/// Rules D1 and D2: a shutdown refuses new units, stops those that run, and waits for them.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_shutdown_ends_background_units() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    let turn = dispatched(&session, &["checkpoint run"]).await?;
    host.reached("run").await?;
    assert!(host.host().shutdown("the end", Duration::from_secs(30)).await.is_ok());
    host.is_idle()?;
    within("the turn", turn.ended()).await?;
    let completion = within("the completion", session.completion()).await?;
    assert_eq!(completion.status, UnitStatus::Interrupted);
    assert!(completion.entries[0].detail.contains("the end"));
    Ok(())
}

/// A grace that never ends leaves a child as long as it wants.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_soft_stop_leaves_children_inside_the_call_their_time() -> Result {
    let host = with_agent().build()?;
    let session = polled(&host).await?;
    let call =
        super::support::inline(&[task("try checkpoint run\ncheckpoint wrap\nsay wrapped up")]);
    let turn = session.prompt(format!("{call}\nstop?"), "")?;
    host.reached("run").await?;
    session.stop_turn(None, &Stop::soft("user", "slowly", Grace::Never))?;
    host.reached("wrap").await?;
    host.release("wrap");
    let report = within("the turn", turn.ended()).await?;
    let outcome = read(report.output.lines().next().unwrap_or_default())?;
    assert_eq!(outcome["results"][0]["status"], "interrupted");
    let told = outcome["results"][0]["output"].as_str().unwrap_or_default();
    assert!(told.ends_with("wrapped up"), "{told}");
    host.is_idle()
}
