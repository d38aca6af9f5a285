//! Events over the socket: numbered, resumed, ended.

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::daemon::{Daemon, Sent};

fn ids(events: &[Sent]) -> Vec<u64> {
    events.iter().filter_map(|event| event.id).collect()
}

#[test]
fn a_client_that_comes_back_at_any_place_goes_on_there() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.turn(&session, "progress one\nprogress two\nemits 3 10\nsay done")?;
    let all = daemon.all_events(&session, 0)?;
    assert_eq!(ids(&all), (1..=all.len() as u64).collect::<Vec<_>>());
    assert_eq!(all.first().map(|event| event.event.as_str()), Some("run-started"));
    assert_eq!(all.last().map(|event| event.event.as_str()), Some("run-ended"));
    for after in 0..=all.len() {
        // By its end, and while it follows.
        let rest = daemon.all_events(&session, after as u64)?;
        assert_eq!(rest, all[after..], "after {after}");
        let mut following = daemon.events(&session, after as u64)?;
        for expected in &all[after..] {
            assert_eq!(following.next()?.as_ref(), Some(expected), "after {after}");
        }
    }
    // What those who follow get next is the next, and not again what they had.
    let mut following = daemon.events(&session, all.len() as u64)?;
    daemon.turn(&session, "say again")?;
    let next = following.next()?.context("an event")?;
    assert_eq!((next.id, next.event.as_str()), (Some(all.len() as u64 + 1), "run-started"));
    Ok(())
}

#[test]
fn a_place_beyond_the_newest_event_is_refused() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    for after in ["?after=7", "?after=x", "?from=0"] {
        let answer = daemon.get(&format!("{session}/events{after}"))?;
        assert_eq!((answer.status, answer.kind()), (400, "bad-request"), "{answer:?}");
    }
    Ok(())
}

#[test]
fn what_an_agent_says_cannot_leave_its_place_in_the_stream() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.turn(&session, "emit a\rb \u{2028} id: 99 <script>\nprogress event: closing\nsay x")?;
    let all = daemon.all_events(&session, 0)?;
    assert_eq!(ids(&all), (1..=all.len() as u64).collect::<Vec<_>>());
    let texts: Vec<&Value> = all.iter().map(|event| &event.data["payload"]["text"]).collect();
    assert!(texts.contains(&&json!("a\rb \u{2028} id: 99 <script>")), "{texts:?}");
    assert!(all.iter().all(|event| event.event != "closing"));
    Ok(())
}

/// Rule D5: clients are told before the drain, once each, and go on to hear what happens in it.
#[test]
fn those_who_follow_are_told_at_once_that_the_host_goes() -> Result<()> {
    let daemon = Daemon::start("drain = \"10m\"")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "try sleep 100000\nprogress still here\nsay done")?;
    let mut following = daemon.events(&session, 0)?;
    while following.next()?.context("more events")?.data["text"] != "ready" {}
    daemon.signal(Signal::TERM)?;
    let told = following.next()?.context("one more")?;
    assert_eq!((told.event.as_str(), told.id, &told.data), ("leaving", None, &json!({})));
    // One who comes now is told as well.
    let mut late = daemon.events(&session, 0)?;
    assert_eq!(late.next()?.context("an event")?.event, "leaving");
    let soft = json!({ "scope": "turn", "kind": "soft", "message": "please" });
    assert_eq!(daemon.post(&format!("{session}/stop"), &soft)?.body["turn"], 1);
    let mut rest = Vec::new();
    while let Some(event) = following.next()? {
        rest.push(event.event);
    }
    assert!(rest.iter().any(|event| event == "progress"), "{rest:?}");
    assert!(rest.iter().all(|event| event != "leaving"), "{rest:?}");
    assert_eq!(rest.last().map(String::as_str), Some("closing"), "{rest:?}");
    Ok(())
}

#[test]
fn those_who_follow_are_told_the_end_of_the_turn_and_then_of_the_host() -> Result<()> {
    let daemon = Daemon::start("drain = \"1ms\"")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "sleep 100000")?;
    let mut following = daemon.events(&session, 0)?;
    daemon.signal(Signal::TERM)?;
    let mut seen = Vec::new();
    while let Some(event) = following.next()? {
        seen.push(event);
    }
    let last: Vec<&str> = seen.iter().rev().take(2).map(|event| event.event.as_str()).collect();
    assert_eq!(last, ["closing", "run-ended"]);
    assert_eq!(seen[seen.len() - 2].data["status"], "interrupted");
    Ok(())
}
