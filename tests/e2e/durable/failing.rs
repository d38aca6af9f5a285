//! A store that takes no writes: what is refused, what waits, and that nothing comes twice.

use checkrein::delegation::UnitStatus;
use checkrein::sandbox::Outcome;
use checkrein::session::{Delivery, EventKind, PromptError};
use checkrein::store::StoreError;
use checkrein_testkit::within;
use futures::FutureExt;
use serde_json::{Value, json};

use super::{Bed, ends, journal, on_both, profile};
use crate::start::{Result, hard, interrupted, with_agent};

fn full() -> StoreError {
    StoreError::Full("no space left on device".to_owned())
}

/// A turn that cannot be recorded is not started, says why, and the session goes on when the store does.
async fn a_turn_that_cannot_be_recorded_is_refused_and_other_profiles_go_on(bed: Bed) -> Result {
    let (store, other) = (bed.store()?, bed.store()?);
    let host = with_agent().build()?;
    let ours = profile(&host, store.clone()).await?;
    let theirs = profile(&host, other.clone()).await?;
    let session = ours.open("agent", Delivery::Turns).await?;
    let neighbour = theirs.open("agent", Delivery::Turns).await?;
    store.fails(full());
    let mut turn = session.prompt("log it was started\nsay one", "")?;
    assert_eq!(turn.recorded().await, Err(full()));
    let report = within("the refusal", turn.ended()).await?;
    let Outcome::NotStarted(words) = &report.outcome else { anyhow::bail!("{report:?}") };
    assert!(words.contains("disk is full") && words.contains("make room"), "{words}");
    assert_eq!(report.unrecorded, Some(full()));
    assert!(ours.open("agent", Delivery::Turns).await.is_err(), "a new session is refused too");
    let report = within("a neighbour", neighbour.prompt("say fine", "")?.ended()).await?;
    assert_eq!((report.output.as_str(), report.unrecorded), ("fine", None));

    store.heals();
    let turn = session.prompt("say two", "")?;
    assert_eq!(turn.generation().0, 2, "no execution has the number of another");
    assert_eq!(within("the turn", turn.ended()).await?.output, "two");
    let ends = ends(&journal(&session).await?);
    assert_eq!(ends, [("s1.2".to_owned(), "completed".to_owned(), "two".to_owned())]);
    host.is_idle()
}

/// Rules S11, W3 and S13: a hard stop ends a turn and a side run whose beginning a store that hangs does not record. Whoever waits
/// for them hears so, with the word that it is not recorded; what was asked of the store is still work, and ends with its answer.
async fn a_stop_ends_what_waits_for_a_store_that_hangs(bed: Bed) -> Result {
    let store = bed.store()?;
    let host = with_agent().build()?;
    let profile = profile(&host, store.clone()).await?;
    let session = profile.open("agent", Delivery::Turns).await?;
    let other = profile.open("agent", Delivery::Turns).await?;
    store.stalls();
    let mut turn = session.prompt("say never", "")?;
    let mut side = other.side_run("say never", "")?;
    let works = [turn.id(), side.id()];
    assert!(turn.recorded().now_or_never().is_none() && side.recorded().now_or_never().is_none());
    let waits = host.executions().iter().all(|node| {
        node.activity.as_ref().is_some_and(|activity| activity.what == "waits to be recorded")
    });
    assert!(waits, "{:?}", host.executions());
    assert_eq!((session.stop("user", "enough").turn, other.stop("user", "enough").side), (1, 1));
    assert!(within("the answer", turn.recorded()).await?.is_err(), "it was not recorded");
    assert!(within("the answer", side.recorded()).await?.is_err(), "it was not recorded");
    let turn = within("the turn", turn.ended()).await?;
    let side = within("the side run", side.ended()).await?;
    for (outcome, unrecorded) in [(turn.outcome, turn.unrecorded), (side.outcome, side.unrecorded)]
    {
        assert_eq!(outcome, interrupted(hard("enough")));
        assert!(unrecorded.is_some(), "nobody may think that it is recorded");
    }
    // The store may still write it, so it is neither over nor forgotten.
    assert!(works.iter().all(|work| host.host().tree().contains(*work)));
    assert!(matches!(session.prompt("say next", ""), Err(PromptError::Busy { .. })));

    store.heals();
    within("the rest", host.host().tree().idle(host.host().tree().root())).await?;
    within("the records", profile.recorded()).await?;
    let turn = session.prompt("say next", "")?;
    assert_eq!(within("the next turn", turn.ended()).await?.output, "next");
    let told = |run: &str, status: &str, output: &str| {
        (run.to_owned(), status.to_owned(), output.to_owned())
    };
    let ends_of_turns = ends(&journal(&session).await?);
    assert_eq!(ends_of_turns, [told("s1.1", "interrupted", ""), told("s1.2", "completed", "next")]);
    let ends_of_sides = ends(&journal(&other).await?);
    assert_eq!(ends_of_sides.iter().map(|end| end.1.as_str()).collect::<Vec<_>>(), ["interrupted"]);
    host.is_idle()
}

/// The end of a turn is not shown before it is recorded, and is neither lost nor doubled when that takes a while.
async fn the_end_of_a_turn_waits_for_the_store_and_comes_once(bed: Bed) -> Result {
    let store = bed.store()?;
    let host = with_agent().build()?;
    let profile = profile(&host, store.clone()).await?;
    let session = profile.open("agent", Delivery::Turns).await?;
    let turn = session.prompt("checkpoint here\nsay done", "")?;
    host.reached("here").await?;
    store.fails(full());
    host.release("here");
    host.until("the run ends", |nodes| nodes.is_empty()).await?;
    let owes = async {
        while store.owes() == 0 {
            tokio::task::yield_now().await;
        }
    };
    within("the end is owed", owes).await?;
    assert!(ends(&journal(&session).await?).is_empty(), "what is not recorded is not shown");
    store.heals();
    let report = within("the end", turn.ended()).await?;
    assert_eq!((report.output.as_str(), report.unrecorded), ("done", None));
    let expected = [("s1.1".to_owned(), "completed".to_owned(), "done".to_owned())];
    assert_eq!(ends(&journal(&session).await?), expected);
    Ok(())
}

/// Rule A2: a unit whose acceptance cannot be recorded runs inside the call. Rule C6: the completion of one that was accepted is seen when it is recorded, and
/// once.
async fn units_are_accepted_and_completed_when_that_is_recorded(bed: Bed) -> Result {
    let store = bed.store()?;
    let host = with_agent().build()?;
    let profile = profile(&host, store.clone()).await?;
    let session = profile.open("agent", Delivery::Polled).await?;
    let delegate = |goal: &str| {
        let tasks = json!({ "mode": "background", "tasks": [{ "goal": goal }] });
        format!("delegate {tasks}")
    };
    let goal = format!(
        "{}\ncheckpoint accepted\n{}\ncheckpoint end",
        delegate("checkpoint child\nsay found"),
        delegate("say inside")
    );
    let turn = session.prompt(goal, "")?;
    host.reached("child").await?;
    host.reached("accepted").await?;
    store.fails(full());
    host.release("accepted");
    host.reached("end").await?;
    // The second was not let into the background: the answer says so when the turn has ended.
    host.release("child");
    host.until("the child ends", |nodes| nodes.iter().all(|node| !node.label.contains("s1.1.1")))
        .await?;
    assert!(session.completions().is_empty(), "what is not recorded cannot be read");
    within("its slot is free all the same (A8)", async {
        while host.host().slots().held > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await?;
    store.heals();
    let completion = within("the completion", session.completion()).await?;
    assert_eq!(
        (completion.status, completion.entries[0].output.as_str()),
        (UnitStatus::Completed, "found")
    );
    host.release("end");
    let report = within("the turn", turn.ended()).await?;
    let second: Value = serde_json::from_str(report.output.lines().nth(1).unwrap_or_default())?;
    assert_eq!(second["outcome"], "completed", "{second}");
    assert!(second["note"].as_str().is_some_and(|note| note.contains("disk is full")), "{second}");
    assert_eq!(second["results"][0]["output"], "inside");
    session.acknowledge(completion.id).await?;
    assert!(session.completions().is_empty(), "the rejected unit has none");
    Ok(())
}

/// An acknowledgement that cannot be recorded is refused, and the completion stays.
async fn an_acknowledgement_that_cannot_be_recorded_is_refused(bed: Bed) -> Result {
    let store = bed.store()?;
    let host = with_agent().build()?;
    let profile = profile(&host, store.clone()).await?;
    let session = profile.open("agent", Delivery::Polled).await?;
    let tasks = json!({ "mode": "background", "tasks": [{ "goal": "say found" }] });
    session.prompt(format!("delegate {tasks}"), "")?.ended().await;
    let completion = within("the completion", session.completion()).await?;
    store.fails(StoreError::ReadOnly("a test".to_owned()));
    let refused = session.acknowledge(completion.id).await;
    assert_eq!(refused, Err(StoreError::ReadOnly("a test".to_owned())));
    assert_eq!(session.completions().len(), 1);
    store.heals();
    assert!(session.acknowledge(completion.id).await?.is_some());
    assert!(session.completions().is_empty());
    Ok(())
}

/// A guest that says more than the store takes loses what may be lost, and the journal says how much.
async fn what_the_store_cannot_follow_is_left_out_and_counted(bed: Bed) -> Result {
    let store = bed.store()?;
    let host = with_agent().build()?;
    let profile = profile(&host, store.clone()).await?;
    let session = profile.open("agent", Delivery::Turns).await?;
    let turn = session
        .prompt("checkpoint here\nemits 300 60000\ncheckpoint there\nemit last\nsay done", "")?;
    host.reached("here").await?;
    store.fails(full());
    host.release("here");
    host.reached("there").await?;
    let owed = store.owes();
    assert!(owed < 150, "{owed}");
    store.heals();
    host.release("there");
    within("the end", turn.ended()).await?;
    let all = journal(&session).await?;
    let lost: Vec<u64> = all
        .iter()
        .filter_map(|event| {
            let EventKind::EventsLost { count } = event.kind else { return None };
            Some(count)
        })
        .collect();
    let kept = all.iter().filter(|event| matches!(event.kind, EventKind::Custom { .. })).count();
    assert!(!lost.is_empty());
    assert_eq!(kept as u64 + lost.iter().sum::<u64>(), 301);
    Ok(())
}

on_both! {
    a_stop_ends_what_waits_for_a_store_that_hangs,
    a_turn_that_cannot_be_recorded_is_refused_and_other_profiles_go_on,
    the_end_of_a_turn_waits_for_the_store_and_comes_once,
    units_are_accepted_and_completed_when_that_is_recorded,
    an_acknowledgement_that_cannot_be_recorded_is_refused,
    what_the_store_cannot_follow_is_left_out_and_counted,
}
