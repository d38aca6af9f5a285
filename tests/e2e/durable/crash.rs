//! The host ends in the middle of something, and another one opens what it has left.

use checkrein::delegation::{ChildStatus, UnitState, UnitStatus};
use checkrein::session::{Delivery, Event, EventKind};
use checkrein_testkit::within;
use serde_json::json;

use super::{Bed, ends, heard, journal, journal_after, on_both, profile};
use crate::start::{Result, hard, with_agent};

/// Rule C8 and issue 5: a turn that was going on ends as unknown, with all that it had reported, and is not started again.
async fn a_turn_that_was_going_on_is_recorded_as_unknown_with_what_it_had_said(bed: Bed) -> Result {
    let store = bed.store()?;
    let first = with_agent().build()?;
    let profile_then = profile(&first, store.clone()).await?;
    let session = profile_then.open("agent", Delivery::Turns).await?;
    let whole =
        within("a turn", session.prompt("say one\nremember key value", "")?.ended()).await?;
    assert_eq!(whole.output, "one");
    let turn = session.prompt(
        "partial half an answer\ncall tool_echo {\"text\":\"from a tool\"}\ncheckpoint middle",
        "",
    )?;
    first.reached("middle").await?;
    heard(&session, "the tool", |kind| matches!(kind, EventKind::ToolEnded { .. })).await?;
    store.dies();
    let before = journal(&session).await?;
    let stopped = session.stop("a test", "the old process is gone");
    assert_eq!(stopped.turn, 1);
    drop(turn.ended().await);

    let second = with_agent().build()?;
    let profile_now = profile(&second, store.next_life()?).await?;
    let session = within("it wakes", profile_now.session(session.id())).await??;
    let after = journal(&session).await?;
    let shown = |events: &[Event]| serde_json::to_value(events);
    assert_eq!(shown(&after[..before.len()])?, shown(&before)?, "what was seen was recorded");
    let [ended] = &after[before.len()..] else { anyhow::bail!("{after:#?}") };
    let EventKind::RunEnded { status, output, tools, detail, .. } = &ended.kind else {
        anyhow::bail!("{ended:?}");
    };
    assert_eq!((status.as_str(), output.as_str()), ("unknown", "half an answer"));
    assert_eq!(tools[0].content, "from a tool");
    assert!(detail.as_deref().is_some_and(|words| words.contains("the host ended")), "{detail:?}");
    // Every reader goes on where it was, without a gap or a repeat.
    for place in 0..=after.len() {
        let rest = journal_after(&session, place as u64).await?;
        assert_eq!(rest, after[place..], "after {place}");
    }
    // Nothing has been started again, and the conversation goes on with all that is known of it.
    second.is_idle()?;
    assert_eq!(session.running(), None);
    let next = session.prompt("history 10\nrecall key", "")?;
    assert_eq!(next.generation().0, 3, "numbers of executions go on");
    let report = within("the next turn", next.ended()).await?;
    assert!(report.output.contains("half an answer"), "{}", report.output);
    assert!(report.output.starts_with("say one"), "{}", report.output);
    assert!(report.output.ends_with("\nvalue"), "{}", report.output);
    second.is_idle()
}

/// Rule C8: a unit that was running ends as unknown, with the results that its children had recorded, and its completion is
/// delivered once. One that was acknowledged is not.
async fn units_that_were_running_end_as_unknown_with_what_their_children_had_recorded(
    bed: Bed,
) -> Result {
    let store = bed.store()?;
    let first = with_agent().build()?;
    let profile_then = profile(&first, store.clone()).await?;
    let session = profile_then.open("agent", Delivery::Polled).await?;
    let request = |goals: &[&str]| {
        let tasks: Vec<_> = goals.iter().map(|goal| json!({ "goal": goal })).collect();
        format!("delegate {}", json!({ "mode": "background", "tasks": tasks }))
    };
    let read = session.prompt(request(&["say read"]), "")?.ended().await;
    assert!(read.output.contains("dispatched"), "{}", read.output);
    let completion = within("the first unit", session.completion()).await?;
    assert!(session.acknowledge(completion.id).await?.is_some());
    session.prompt(request(&["say unread"]), "")?.ended().await;
    let unread = within("the second unit", session.completion()).await?;
    session.prompt(request(&["say whole", "partial a part\ncheckpoint never"]), "")?.ended().await;
    first.reached("never").await?;
    let first_child = |kind: &EventKind| matches!(kind, EventKind::ChildEnded { delegation: Some(unit), .. } if unit == "d3");
    heard(&session, "the end of the first child", first_child).await?;
    store.dies();
    session.stop("a test", "the old process is gone");

    let second = with_agent().build()?;
    let profile_now = profile(&second, store.next_life()?).await?;
    let session = within("it wakes", profile_now.session(session.id())).await??;
    let waiting = session.completions();
    let ids: Vec<String> = waiting.iter().map(|completion| completion.id.to_string()).collect();
    assert_eq!(ids, ["d2", "d3"], "what was acknowledged does not come again");
    assert_eq!((waiting[0].status, &waiting[0].entries), (UnitStatus::Completed, &unread.entries));
    assert_eq!(waiting[1].status, UnitStatus::Unknown);
    let [whole, lost] = &waiting[1].entries[..] else { anyhow::bail!("{:?}", waiting[1]) };
    assert_eq!((&whole.status, whole.output.as_str()), (&ChildStatus::Completed, "whole"));
    assert_eq!((&lost.status, lost.output.as_str()), (&ChildStatus::Unknown, "a part"));
    let ended = ends(&journal(&session).await?);
    assert!(
        ended.contains(&("s1.3.2".to_owned(), "unknown".to_owned(), "a part".to_owned())),
        "{ended:?}"
    );
    // Names of units go on where they were, and an old one still has its answer (W7).
    assert_eq!(session.delegations(&["d1".parse()?])?[0].state, UnitState::Completed);
    session.prompt(request(&["say more"]), "")?.ended().await;
    heard(
        &session,
        "a new unit",
        |kind| matches!(kind, EventKind::DelegationEnded { delegation, .. } if delegation == "d4"),
    )
    .await?;
    // A third life finds the same, and nothing twice.
    let third = profile(&second, store.next_life()?).await?;
    let again = within("it wakes", third.session(session.id())).await??;
    assert_eq!(again.completions().len(), 3);
    Ok(())
}

/// Rules C7 and C8: completions that nobody has read are brought to their session when the host is back, as turns, each
/// once.
async fn completions_that_nobody_has_read_wake_their_session_when_the_host_is_back(
    bed: Bed,
) -> Result {
    let store = bed.store()?;
    let first = with_agent().build()?;
    let profile_then = profile(&first, store.clone()).await?;
    let session = profile_then.open("agent", Delivery::Turns).await?;
    let tasks =
        json!({ "mode": "background", "tasks": [{ "goal": "checkpoint child\nsay found" }] });
    let turn = session
        .prompt(format!("remember always say heard\ndelegate {tasks}\ncheckpoint on"), "")?;
    first.reached("on").await?;
    first.release("child");
    heard(&session, "the completion", |kind| matches!(kind, EventKind::DelegationEnded { .. }))
        .await?;
    // It waits for the turn to end, and the host does not live to see that.
    store.dies();
    session.stop_turn(None, &hard("the old process is gone"))?;
    drop(turn.ended().await);

    let second = with_agent().build()?;
    let profile_now = profile(&second, store.next_life()?).await?;
    let session = within("it wakes", profile_now.session(session.id())).await??;
    let brought = |kind: &EventKind| matches!(kind, EventKind::RunStarted { delegation: Some(unit), parent: None, .. } if unit == "d1");
    heard(&session, "the turn that brings it", brought).await?;
    heard(&session, "its end", |kind| {
        matches!(kind, EventKind::RunEnded { status, output, .. } if status == "completed" && output == "heard")
    })
    .await?;
    assert!(session.completions().is_empty());
    let third = profile(&second, store.next_life()?).await?;
    let again = within("it wakes", third.session(session.id())).await??;
    assert!(again.completions().is_empty(), "it is acknowledged once");
    let all = journal(&again).await?;
    let turns = all.iter().filter(|event| brought(&event.kind)).count();
    assert_eq!(turns, 1);
    Ok(())
}

/// A completion whose turn ends the host again and again is not brought for ever.
async fn a_completion_that_ended_three_lives_waits_for_a_prompt(bed: Bed) -> Result {
    let mut store = bed.store()?;
    let mut lives = 0;
    let id = {
        let host = with_agent().build()?;
        let profile = profile(&host, store.clone()).await?;
        let session = profile.open("agent", Delivery::Turns).await?;
        let tasks = json!({ "mode": "background", "tasks": [{ "goal": "say found" }] });
        let goal = format!("remember always checkpoint end of the host\ndelegate {tasks}");
        session.prompt(goal, "")?.ended().await;
        host.reached("end of the host").await?;
        store.dies();
        session.stop("a test", "the old process is gone");
        session.id().clone()
    };
    loop {
        lives += 1;
        store = store.next_life()?;
        let host = with_agent().build()?;
        let profile = profile(&host, store.clone()).await?;
        let session = within("it wakes", profile.session(&id)).await??;
        if lives == 3 {
            assert_eq!(session.completions().len(), 1);
            host.is_idle()?;
            // Whoever prompts the session is told of it afterwards.
            host.release("end of the host");
            session.prompt("say still here", "")?.ended().await;
            heard(&session, "the last delivery", |kind| {
                matches!(kind, EventKind::RunStarted { delegation: Some(_), parent: None, .. })
            })
            .await?;
            return Ok(());
        }
        host.reached("end of the host").await?;
        store.dies();
        session.stop("a test", "the old process is gone");
    }
}

on_both! {
    units_that_were_running_end_as_unknown_with_what_their_children_had_recorded,
    a_turn_that_was_going_on_is_recorded_as_unknown_with_what_it_had_said,
    completions_that_nobody_has_read_wake_their_session_when_the_host_is_back,
    a_completion_that_ended_three_lives_waits_for_a_prompt,
}
