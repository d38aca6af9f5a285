//! Sessions that sleep, wake and are given another configuration.

use checkrein::ErrorKind;
use checkrein::plugin::Configuration;
use checkrein::session::Delivery;
use checkrein::work::Kind;
use checkrein_testkit::within;
use serde_json::json;

use super::{Bed, journal, on_both, profile};
use crate::start::{Result, with_agent};

/// A session that nobody has anything of takes no node and no memory, and is the same when it wakes.
async fn a_session_that_nobody_needs_sleeps_and_wakes_as_it_was(bed: Bed) -> Result {
    let host = with_agent().build()?;
    let profile = profile(&host, bed.store()?).await?;
    let session = profile.open("agent", Delivery::Polled).await?;
    let id = session.id().clone();
    let tasks = json!({ "mode": "background", "tasks": [{ "goal": "checkpoint child" }] });
    let turn =
        session.prompt(format!("remember key value\ndelegate {tasks}\ncheckpoint here"), "")?;
    host.reached("here").await?;
    host.reached("child").await?;
    drop(session);
    assert_eq!(profile.rest(), 1, "a turn goes on");
    host.release("here");
    within("the turn", turn.ended()).await?;
    assert_eq!(profile.rest(), 1, "a unit goes on");
    host.release("child");
    host.until("the unit ends", |nodes| nodes.is_empty()).await?;
    let asleep = async {
        while profile.rest() > 0 {
            tokio::task::yield_now().await;
        }
    };
    within("it sleeps", asleep).await?;
    let nodes = host.host().tree().snapshot(profile.work());
    assert_eq!(nodes.len(), 1, "nothing of it is in the tree: {nodes:?}");
    let session = within("it wakes", profile.session(&id)).await??;
    assert_eq!(session.completions().len(), 1);
    assert_eq!(within("a turn", session.prompt("recall key", "")?.ended()).await?.output, "value");
    let all = journal(&session).await?;
    let numbers: Vec<u64> = all.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<_>>());
    Ok(())
}

/// Who opens sessions and leaves them does not fill the memory: those that rest make room for the next.
async fn sessions_that_are_opened_and_left_make_room(bed: Bed) -> Result {
    let host = with_agent().build()?;
    let profile = profile(&host, bed.store()?).await?;
    for _ in 0..200 {
        drop(profile.open("agent", Delivery::Polled).await?);
    }
    let nodes = host.host().tree().snapshot(profile.work());
    let awake = nodes.iter().filter(|node| node.kind == Kind::Session).count();
    assert!((1..100).contains(&awake), "{awake} are awake");
    Ok(())
}

/// Many who ask for a sleeping session at one time get one and the same.
async fn a_session_is_read_once_however_many_ask_for_it(bed: Bed) -> Result {
    let host = with_agent().build()?;
    let profile = profile(&host, bed.store()?).await?;
    let id = profile.open("agent", Delivery::Polled).await?.id().clone();
    assert_eq!(profile.rest(), 0);
    let asking = (0..32).map(|_| profile.session(&id));
    let sessions = within("they wake", futures::future::join_all(asking)).await?;
    let works: std::collections::BTreeSet<_> = sessions
        .into_iter()
        .map(|session| session.map(|session| session.work()))
        .collect::<Result<_, _>>()?;
    assert_eq!(works.len(), 1);
    let missing = profile.session(&checkrein::ids::SessionId::new("s99")).await;
    assert_eq!(missing.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    Ok(())
}

/// Only what nobody works with is deleted, and its name is not used again.
async fn a_session_is_deleted_when_nobody_works_with_it(bed: Bed) -> Result {
    let host = with_agent().build()?;
    let profile = profile(&host, bed.store()?).await?;
    let session = profile.open("agent", Delivery::Polled).await?;
    let id = session.id().clone();
    let held = profile.delete(&id).await;
    assert_eq!(held.err().map(|error| error.kind()), Some(ErrorKind::Usage));
    drop(session);
    profile.delete(&id).await?;
    let gone = profile.session(&id).await;
    assert_eq!(gone.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    assert_ne!(profile.open("agent", Delivery::Polled).await?.id(), &id);
    Ok(())
}

/// A new configuration counts for what begins after it, and for nothing that runs.
async fn another_configuration_leaves_running_turns_alone(bed: Bed) -> Result {
    let host = with_agent().build()?;
    let profile = profile(&host, bed.store()?).await?;
    let session = profile.open("agent", Delivery::Polled).await?;
    let turn = session.prompt("checkpoint here\ntry call tool_echo {\"text\":\"old\"}", "")?;
    host.reached("here").await?;
    let none = "[plugins.agent.grants]\ntools = []\n";
    let file = host.home().join("profile.toml");
    profile.reload(Configuration::parse(none, &file)?).await?;
    host.release("here");
    assert_eq!(within("the old turn", turn.ended()).await?.output, "ok: old\nfine");
    let new = session.prompt("call tool_echo {\"text\":\"new\"}", "")?;
    let output = within("the new turn", new.ended()).await?.output;
    assert!(output.starts_with("not-found") || output.starts_with("denied"), "{output}");
    // One that makes no sense changes nothing.
    let broken = "[models.x]\nprovider = \"what is this\"\n";
    let refused = profile.reload(Configuration::parse(broken, &file)?).await;
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::Configuration));
    Ok(())
}

on_both! {
    a_session_that_nobody_needs_sleeps_and_wakes_as_it_was,
    sessions_that_are_opened_and_left_make_room,
    a_session_is_read_once_however_many_ask_for_it,
    a_session_is_deleted_when_nobody_works_with_it,
    another_configuration_leaves_running_turns_alone,
}
