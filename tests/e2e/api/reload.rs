//! What the daemon takes over while it runs.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use checkrein_testkit::{Plugin, guest, neighbour_answer};
use serde_json::{Value, json};

use super::commands::run;
use super::daemon::{Daemon, PROFILE};

/// Puts another component in the place of the agent.
fn rebuild(daemon: &Daemon, component: &str) -> Result<()> {
    let plugins = daemon.home().join("profiles/main/plugins");
    Plugin::agent("agent", guest(component)).write(&plugins)?;
    Ok(())
}

/// A reload that is asked for has taken over a plugin that was rebuilt when it is answered, and a new one. Turns that run
/// go on with what they began with.
#[test]
fn a_reload_takes_over_plugins_that_are_rebuilt_or_new() -> Result<()> {
    let daemon = Daemon::start("")?;
    let (busy, idle) = (daemon.session()?, daemon.session()?);
    let running = daemon.until_ready(&busy, "try sleep 100000\nsay the old one")?;
    rebuild(&daemon, "neighbour")?;
    let plugins = daemon.home().join("profiles/main/plugins");
    Plugin::agent("second", guest("agent")).write(&plugins)?;
    let reloaded = daemon.post("/v1/reload", &json!({}))?;
    ensure!(reloaded.status == 200, "{reloaded:?}");
    assert_eq!(daemon.turn(&idle, "0")?["output"], neighbour_answer(0), "{reloaded:?}");
    let second = daemon.post("/v1/profiles/main/sessions", &json!({ "agent": "second" }))?;
    assert_eq!(second.status, 201, "{second:?}");
    let mut events = daemon.events(&busy, 0)?;
    let soft = json!({ "scope": "turn", "kind": "soft", "message": "enough" });
    assert_eq!(daemon.post(&format!("{busy}/stop"), &soft)?.body["turn"], 1);
    let ended = loop {
        let event = events.next()?.context("more events")?;
        if event.event == "run-ended" {
            break event.data;
        }
    };
    assert_eq!(ended["output"], "interrupted | soft | enough | user\nthe old one", "{running}");
    assert_eq!(daemon.turn(&busy, "0")?["output"], neighbour_answer(0));
    Ok(())
}

/// `checkrein reload` says of each profile what has changed.
#[test]
fn the_command_says_what_has_changed() -> Result<()> {
    let daemon = Daemon::start("")?;
    // The directory of the profiles is watched, too, and may be faster than the command.
    for round in 0..20 {
        rebuild(&daemon, if round % 2 == 0 { "neighbour" } else { "agent" })?;
        let ended = run(&daemon, &["reload"])?;
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        if ended.out == "kept main\n" {
            continue;
        }
        let lines: Vec<&str> = ended.out.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "reloaded main"), "{}", ended.out);
        let words = lines[1].starts_with("    the plugin in ")
            && lines[1].ends_with("profiles/main/plugins/agent has changed");
        assert!(words, "{}", ended.out);
        return Ok(());
    }
    anyhow::bail!("the command has never been the first")
}

/// Without being asked the daemon takes over what is rebuilt, new or gone.
#[test]
fn the_daemon_notices_plugins_by_itself() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    // Where the system tells nothing it is looked at every 30 s.
    let begun = Instant::now();
    let in_time = || begun.elapsed() < Duration::from_secs(25);
    let turn = |goal: &str| -> Result<Value> {
        let goal = json!({ "goal": goal, "wait": true });
        Ok(daemon.post(&format!("{session}/prompts"), &goal)?.body["output"].clone())
    };
    rebuild(&daemon, "neighbour")?;
    while turn("0")? != neighbour_answer(0).as_str() {
        ensure!(in_time(), "it is not told that the agent was rebuilt");
    }
    rebuild(&daemon, "agent")?;
    while turn("say back")? != "back" {
        ensure!(in_time(), "it is not told that the agent was rebuilt again");
    }
    let plugins = daemon.home().join("profiles/main/plugins");
    let opens = || -> Result<u16> {
        Ok(daemon.post("/v1/profiles/main/sessions", &json!({ "agent": "second" }))?.status)
    };
    // Its folder is there for a while before it is a plugin.
    std::fs::create_dir(plugins.join("second"))?;
    assert_eq!(opens()?, 404);
    Plugin::agent("second", guest("agent")).write(&plugins)?;
    while opens()? != 201 {
        ensure!(in_time(), "it is not told that a plugin is new");
    }
    std::fs::remove_dir_all(plugins.join("second"))?;
    while opens()? != 404 {
        ensure!(in_time(), "it is not told that a plugin is gone");
    }
    Ok(())
}

/// How much is kept of sessions is as a reload says, for those that are there already, too.
#[test]
fn another_bound_of_the_store_counts_from_the_reload_on() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.turn(&session, "emits 200 10\nsay all of it")?;
    let file = daemon.home().join("profiles/main/profile.toml");
    let reloads = |more: &str| -> Result<()> {
        fs::write(&file, format!("{PROFILE}\n{more}"))?;
        let reloaded = daemon.post("/v1/reload", &json!({}))?;
        ensure!(reloaded.status == 200, "{reloaded:?}");
        Ok(())
    };
    let first = || -> Result<u64> {
        let row = daemon.get(&session)?.body;
        row["first-event"].as_u64().with_context(|| row.to_string())
    };
    assert_eq!(first()?, 1);
    reloads("[store]\nevents-per-session = 20\ntranscript-bytes-per-session = \"4B\"\n")?;
    let goal = json!({ "goal": "say more", "wait": true });
    let refused = daemon.post(&format!("{session}/prompts"), &goal)?;
    assert_eq!(refused.kind(), "limit", "{refused:?}");
    // What is beyond the bound goes when nobody writes.
    let begun = Instant::now();
    while first()? < 180 {
        ensure!(begun.elapsed() < checkrein_testkit::PATIENCE, "{}", first()?);
    }
    reloads("")?;
    assert_eq!(daemon.turn(&session, "say more")?["output"], "more");
    Ok(())
}
