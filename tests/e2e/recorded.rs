//! Runs of the command that are recorded in a home.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use checkrein::plugin::{Configuration, DirectoryArgument};
use checkrein::profile::HomeLock;
use checkrein::session::{Delivery, Session};
use checkrein::store::{Memory, Retention};
use checkrein::{ErrorKind, ProfileSettings, SessionBuilder};
use checkrein_testkit::{Plugin, guest, within};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::start::{agent, host, tool};

fn desk() -> Result<TempDir> {
    let desk = tempfile::tempdir()?;
    Plugin::agent("agent", guest("agent")).write(desk.path())?;
    Ok(desk)
}

/// What it printed, and on standard error; the exit code is checked.
fn run(desk: &Path, arguments: &[&str], code: i32) -> Result<(String, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_checkrein"))
        .args(arguments)
        .current_dir(desk)
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("CHECKREIN_LOG")
        .stdin(Stdio::null())
        .output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.code() == Some(code), "{arguments:?}: {:?}\n{err}", output.status);
    ensure!(!err.contains("panicked"), "{err}");
    Ok((out, err))
}

#[test]
fn a_run_is_recorded_and_goes_on_later() -> Result<()> {
    let desk = desk()?;
    let (out, err) =
        run(desk.path(), &["run", "./agent", "remember k v\nsay one", "--home", "kept"], 0)?;
    assert_eq!(out, "one\n");
    assert!(err.contains("recorded as s1; --session s1 goes on with it"), "{err}");
    let on = ["run", "./agent", "progress two\nrecall k", "--home", "kept", "--session", "s1"];
    let (out, err) = run(desk.path(), &on, 0)?;
    assert_eq!(out, "v\n");
    assert_eq!(
        err.matches("agent started").count(),
        1,
        "of the earlier turn nothing is told: {err}"
    );
    run(desk.path(), &["run", "./agent", "partial half\nfail failed no", "--home", "kept"], 1)?;
    let (listed, _) = run(desk.path(), &["session", "list", "--home", "kept"], 0)?;
    assert_eq!(listed, "s1  agent  2 turns  idle\ns2  agent  1 turns  idle\n");
    let (shown, _) = run(desk.path(), &["session", "show", "s1", "--home", "kept"], 0)?;
    for words in ["    say one\n", "    one\n", "turn 2 ended: completed", "    v\n"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let events = ["run", "./agent", "say three", "--home", "kept", "--session", "s1", "--json"];
    let (events, _) = run(desk.path(), &events, 0)?;
    let first: Value = serde_json::from_str(events.lines().next().context("an event")?)?;
    assert_eq!((&first["event"], &first["run"]), (&json!("run-started"), &json!("s1.3")));
    Ok(())
}

/// What is given to one run is given to no other.
#[test]
fn directories_count_for_their_run_alone() -> Result<()> {
    let desk = tempfile::tempdir()?;
    let asked = "directories = [{ mount = \"work\" }]";
    Plugin::agent("agent", guest("agent")).grants(asked).write(desk.path())?;
    fs::create_dir(desk.path().join("given"))?;
    fs::write(desk.path().join("given/file"), "in it")?;
    let task = "opens 1 /work/file";
    let with = ["run", "./agent", task, "--home", "kept", "--dir", "given"];
    assert_eq!(run(desk.path(), &with, 0)?.0, "1\n");
    run(desk.path(), &["run", "./agent", task, "--home", "kept", "--session", "s1"], 1)?;
    let again = [&with[..], &["--session", "s1"]].concat();
    assert_eq!(run(desk.path(), &again, 0)?.0, "1\n");
    let guarded = ["run", "./agent", task, "--home", "kept", "--dir", "kept:rw"];
    let (_, err) = run(desk.path(), &guarded, 2)?;
    assert!(err.contains("the home of a profile"), "{err}");
    Ok(())
}

/// Tools are loaded once for all sessions of a profile, but for one that was given something of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_to_one_session_is_in_the_tools_of_no_other() -> Result<()> {
    let asked = "directories = [{ mount = \"work\" }]";
    let agent = agent().grants("tools = [\"*\"]");
    let host = host().plugin(agent).plugin(tool().grants(asked)).build()?;
    let work = host.home().join("work");
    fs::create_dir(&work)?;
    fs::write(work.join("file"), "in it")?;
    let settings = ProfileSettings {
        name: "main".to_owned(),
        home: host.home().join("main"),
        configuration: Configuration::parse(
            "[plugins.agent.grants]\ntools = [\"*\"]",
            Path::new("profile.toml"),
        )?,
        store: Arc::new(Memory::new(Retention::memory())),
    };
    let profile = host.host().profile(settings).await?;
    let reads = async |session: &Session| -> Result<bool> {
        let goal = "call tool_read {\"path\":\"/work/file\"}";
        let report = within("a turn", session.prompt(goal, "")?.ended()).await?;
        Ok(report.output.contains("in it"))
    };
    let argument =
        DirectoryArgument::parse(work.to_str().context("a path")?).map_err(anyhow::Error::msg)?;
    let directory = DirectoryArgument::name_all(&[argument])?.remove(0);
    let give = |opening: SessionBuilder| opening.directory(directory.clone());
    let before = profile.open("agent", Delivery::Never).await?;
    assert!(!reads(&before).await?);
    let given = profile.open_with("agent", give).await?;
    assert!(reads(&given).await?);
    let after = profile.open("agent", Delivery::Never).await?;
    assert!(!reads(&after).await? && !reads(&before).await?);
    // It sleeps, and wakes without it, or with it.
    let id = given.id().clone();
    let taken = profile.session_with(&id, give).await;
    assert_eq!(taken.err().map(|error| error.kind()), Some(ErrorKind::Usage));
    drop((before, given, after));
    let sleeps = || async {
        while profile.rest() > 0 {
            tokio::task::yield_now().await;
        }
    };
    within("they sleep", sleeps()).await?;
    assert!(!reads(&profile.session(&id).await?).await?);
    within("they sleep", sleeps()).await?;
    assert!(reads(&profile.session_with(&id, give).await?).await?);
    Ok(())
}

#[test]
fn a_run_that_cannot_be_recorded_does_not_begin() -> Result<()> {
    let desk = desk()?;
    run(desk.path(), &["run", "./agent", "say one", "--home", "kept"], 0)?;
    let refused = |arguments: &[&str], code: i32, words: &str| -> Result<()> {
        let all = [&["run", "./agent", "say no"][..], arguments].concat();
        let (out, err) = run(desk.path(), &all, code)?;
        ensure!(out.is_empty() && err.contains(words), "{arguments:?}: {out}{err}");
        Ok(())
    };
    refused(&["--home", "no/such/home"], 2, "could not make the home no/such/home")?;
    refused(&["--home", "agent/plugin.toml"], 2, "could not take the home")?;
    refused(&["--home", "kept", "--session", "s9"], 2, "there is no session `s9`")?;
    refused(&["--session", "s1"], 2, "--home")?;
    let held = HomeLock::take(&desk.path().join("kept"))?;
    refused(&["--home", "kept"], 3, &format!("by process {}", std::process::id()))?;
    drop(held);
    fs::write(desk.path().join("kept/sessions.db"), "no database, but a text of some length")?;
    refused(&["--home", "kept"], 3, "could not open kept/sessions.db")?;
    Ok(())
}
