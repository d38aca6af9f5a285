//! How long a soft stop stays soft: as the profile says, or else as the host does.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::daemon::{Daemon, PROFILE, home};

/// Sees a soft stop, and goes on until it is made hard.
const STUBBORN: &str = "try sleep 100000\nsleep 100000";

fn soft() -> Value {
    json!({ "kind": "soft", "message": "enough" })
}

/// Waits for the end of the first turn, which only a hard stop brings.
fn is_cut(daemon: &Daemon, session: &str) -> Result<()> {
    let mut events = daemon.events(session, 0)?;
    loop {
        let event = events.next()?.context("more events")?;
        if event.event == "run-ended" {
            assert_eq!(event.data["status"], "interrupted", "{}", event.text);
            return Ok(());
        }
    }
}

/// Rule S10, by every route that gives a soft stop: the grace period is that of the profile.
#[test]
fn a_soft_stop_becomes_hard_when_the_grace_period_of_the_profile_is_over() -> Result<()> {
    let folder = home("[stop]\ngrace = \"never\"")?;
    let file = folder.path().join("profiles/main/profile.toml");
    fs::write(&file, format!("{PROFILE}\n[stop]\ngrace = \"100ms\"\n"))?;
    let daemon = Daemon::on(folder)?;
    for route in ["session", "profile", "host"] {
        let session = daemon.session()?;
        let begun = daemon.until_ready(&session, STUBBORN)?;
        let work = begun["work"].as_str().context("an id")?;
        let (path, mut body) = match route {
            "session" => (format!("{session}/stop"), soft()),
            "profile" => (format!("/v1/profiles/main/work/{work}/stop"), soft()),
            _ => (format!("/v1/work/{work}/stop"), soft()),
        };
        if route == "session" {
            body["scope"] = "turn".into();
        }
        let stopped = daemon.post(&path, &body)?;
        assert_eq!(stopped.status, 200, "{route}: {stopped:?}");
        is_cut(&daemon, &session).context(route)?;
    }
    let session = daemon.session()?;
    let tasks = json!({ "mode": "background", "tasks": [{ "goal": STUBBORN }] });
    daemon.turn(&session, &format!("delegate {tasks}"))?;
    let units = daemon.get(&format!("{session}/delegations"))?.body;
    let unit = units["delegations"][0]["id"].as_str().context("a unit")?.to_owned();
    let stopped = daemon.post(&format!("{session}/delegations/{unit}/stop"), &soft())?;
    assert_eq!(stopped.status, 200, "{stopped:?}");
    let mut events = daemon.events(&session, 0)?;
    while events.next()?.context("more events")?.event != "delegation-ended" {}
    Ok(())
}

/// A profile that says nothing has the grace period of its host.
#[test]
fn a_profile_without_a_grace_period_has_that_of_the_host() -> Result<()> {
    let daemon = Daemon::start("[stop]\ngrace = \"100ms\"")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, STUBBORN)?;
    let stop = json!({ "scope": "turn", "kind": "soft", "message": "enough" });
    assert_eq!(daemon.post(&format!("{session}/stop"), &stop)?.body["turn"], 1);
    is_cut(&daemon, &session)
}
