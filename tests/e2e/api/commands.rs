//! The commands that talk to a daemon.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::daemon::{Daemon, command, home, profile};

pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

pub(super) fn run(daemon: &Daemon, arguments: &[&str]) -> Result<Ended> {
    let output = command(daemon.home(), arguments).output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    anyhow::ensure!(!err.contains("panicked"), "{err}");
    Ok(Ended { code: output.status.code(), out, err })
}

#[track_caller]
pub(super) fn is(ended: &Ended, code: i32, out: &str) {
    assert_eq!((ended.code, ended.out.as_str()), (Some(code), out), "{}", ended.err);
}

#[test]
fn a_session_is_opened_asked_shown_and_deleted() -> Result<()> {
    let daemon = Daemon::start("")?;
    is(&run(&daemon, &["send", "--new", "agent", "say hello", "--wait"])?, 0, "hello\n");
    is(&run(&daemon, &["send", "s1", "say more", "--queue"])?, 0, "s1 turn 2\n");
    let ended = run(&daemon, &["send", "s1", "partial half\nfail failed no", "--queue", "--wait"])?;
    is(&ended, 1, "half\nfailed: no\n");
    let listed = run(&daemon, &["session", "list"])?;
    is(&listed, 0, "s1  agent  3 turns  idle\n");
    let shown = run(&daemon, &["session", "show", "main/s1"])?;
    let words: Vec<&str> = shown.out.lines().filter(|line| line.starts_with("    ")).collect();
    assert_eq!(words[..2], ["    say hello", "    hello"], "{}", shown.out);
    let events = run(&daemon, &["attach", "s1", "--after", "0", "--once", "--json"])?;
    let seqs: Vec<Value> = events
        .out
        .lines()
        .map(|line| Ok(serde_json::from_str::<Value>(line)?["seq"].clone()))
        .collect::<Result<_>>()?;
    assert_eq!(seqs, (1..=seqs.len()).map(Value::from).collect::<Vec<_>>(), "{}", events.err);
    is(&run(&daemon, &["ps"])?, 0, "nothing runs\n");
    is(&run(&daemon, &["delegations", "s1"])?, 0, "nothing in the background\n");
    let mut deleted = run(&daemon, &["session", "delete", "s1"])?;
    // The daemon may not have seen yet that the one who followed has gone.
    while deleted.code == Some(3) {
        deleted = run(&daemon, &["session", "delete", "s1"])?;
    }
    is(&deleted, 0, "s1 is deleted\n");
    is(&run(&daemon, &["session", "list"])?, 0, "no sessions\n");
    Ok(())
}

#[test]
fn what_runs_is_seen_followed_and_stopped() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    let begun =
        daemon.until_ready(&session, "try sleep 100000\nprogress leaving\nsay wrapped up")?;
    let work = begun["work"].as_str().context("an id")?;
    let ps = run(&daemon, &["ps"])?;
    assert!(ps.out.contains(&format!("{work}  turn  main/s1  agent 1")), "{}", ps.out);
    let tree = run(&daemon, &["tree", "--profile", "main"])?;
    assert!(
        tree.out.contains("\n    turn agent 1") && tree.out.ends_with("1 executions\n"),
        "{}",
        tree.out
    );

    let mut attached = command(daemon.home(), &["attach", "s1", "--after", "0", "--once"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut told = BufReader::new(attached.stderr.take().context("a pipe")?).lines();
    while told.next().context("more lines")?? != "ready" {}
    is(
        &run(&daemon, &["stop", "s1", "--soft", "enough", "--generation", "1"])?,
        0,
        "stopped: 1 of the turn, 0 in the background\n",
    );
    let rest: Vec<String> = told.collect::<std::io::Result<_>>()?;
    assert!(rest.iter().any(|line| line == "stopping: the run was asked to finish"), "{rest:?}");
    assert!(rest.iter().any(|line| line == "leaving"), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("interrupted in ")), "{rest:?}");
    let output = attached.wait_with_output()?;
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout)?.ends_with("\nwrapped up\n"));

    let stale = run(&daemon, &["stop", "s1", "--generation", "1"])?;
    assert_eq!(stale.code, Some(3), "{}", stale.err);
    assert!(stale.err.contains("that execution is over"), "{}", stale.err);
    let begun = daemon.until_ready(&session, "spin")?;
    let work = begun["work"].as_str().context("an id")?;
    is(&run(&daemon, &["stop", work])?, 0, "stopped: 1\n");
    let gone = run(&daemon, &["stop", "w999-999"])?;
    assert_eq!(gone.code, Some(2), "{}", gone.err);
    is(&run(&daemon, &["drain", "--wait", "60"])?, 0, "nothing is left\n");
    let refused = run(&daemon, &["send", "s1", "say x", "--queue"])?;
    assert_eq!(refused.code, Some(3), "{}", refused.err);
    assert!(refused.err.contains("takes no new work: the host is draining"), "{}", refused.err);
    Ok(())
}

/// A drain is over when what has ended is recorded, too: the work of a turn is gone before that.
#[test]
fn a_drain_is_not_over_while_an_end_is_not_recorded() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "try sleep 100000\nsay the last word")?;
    // Somebody else has the database, and the host cannot write.
    let database = rusqlite::Connection::open(daemon.home().join("profiles/main/sessions.db"))?;
    database.execute_batch("BEGIN IMMEDIATE")?;
    let soft = json!({ "scope": "turn", "kind": "soft", "message": "enough" });
    assert_eq!(daemon.post(&format!("{session}/stop"), &soft)?.body["turn"], 1);
    while daemon.get("/v1/tree")?.body["executions"] != 0 {}
    let drained = daemon.post("/v1/drain", &json!({ "wait-ms": 300 }))?;
    assert_eq!((drained.status, &drained.body["drained"]), (200, &json!(false)), "{drained:?}");
    assert_eq!(drained.body["unrecorded"], json!(["main"]), "{drained:?}");
    let ended = run(&daemon, &["drain"])?;
    let words =
        "no new work is taken; this is left:\n  what has happened in main is not recorded yet\n";
    is(&ended, 3, words);
    database.execute_batch("ROLLBACK")?;
    is(&run(&daemon, &["drain", "--wait", "60"])?, 0, "nothing is left\n");
    let events = daemon.all_events(&session, 0)?;
    assert!(events.iter().any(|event| event.event == "run-ended"), "{events:?}");
    Ok(())
}

#[test]
fn what_cannot_be_done_says_why_and_what_to_do() -> Result<()> {
    let folder = home("")?;
    profile(folder.path(), "other")?;
    let daemon = Daemon::on(folder)?;
    for (arguments, code, words) in [
        (&["send", "s1", "x"][..], 2, "several profiles: main, other"),
        (&["send", "main/s1", "x"][..], 2, "there is no session `s1`"),
        (&["send", "--new", "main/agnet", "x"][..], 2, "did you mean `agent`?"),
        (&["send", "x"][..], 2, "a session and a text are needed"),
        (&["ps", "--socket", "none.sock"][..], 3, "start it with `checkrein serve --config FILE`"),
    ] {
        let ended = run(&daemon, arguments)?;
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(words), "{arguments:?}: {}", ended.err);
    }
    is(&run(&daemon, &["send", "--new", "other/agent", "say x", "--wait"])?, 0, "x\n");
    std::fs::write(daemon.home().join("profiles/other/profile.toml"), "x = 1\n")?;
    let reloaded = run(&daemon, &["reload"])?;
    assert_eq!(reloaded.code, Some(3));
    assert!(reloaded.out.starts_with("kept main\nnot reloaded other: "), "{}", reloaded.out);
    // A profile whose configuration is broken goes on with the one that it had.
    is(&run(&daemon, &["send", "other/s1", "say y", "--wait"])?, 0, "y\n");
    let json = run(&daemon, &["ps", "--json"])?;
    assert_eq!(serde_json::from_str::<Value>(&json.out)?["executions"], json!(0));
    Ok(())
}

#[test]
fn what_a_session_has_in_the_background_is_shown() -> Result<()> {
    let daemon = Daemon::start("")?;
    let opened = json!({ "agent": "agent", "delivery": "polled" });
    daemon.post("/v1/profiles/main/sessions", &opened)?;
    let unit = |tasks: Value| -> Result<()> {
        let call = json!({ "mode": "background", "tasks": tasks });
        let ended = run(&daemon, &["send", "s1", &format!("delegate {call}"), "--wait"])?;
        anyhow::ensure!(ended.code == Some(0), "{}", ended.err);
        Ok(())
    };
    unit(json!([{ "goal": "say one\nsay two" }, { "goal": "fail odd no" }]))?;
    let over = "d1 completed\n  0 completed one two\n  1 failed \n";
    // Nothing at the command line waits for a unit.
    let mut shown = run(&daemon, &["delegations", "s1"])?;
    while shown.out != over && shown.out.starts_with("d1 running\n") {
        shown = run(&daemon, &["delegations", "s1"])?;
    }
    is(&shown, 0, over);
    unit(json!([{ "goal": "sleep 100000" }]))?;
    is(&run(&daemon, &["delegations", "main/s1"])?, 0, &format!("d2 running\n{over}"));
    let json = run(&daemon, &["delegations", "s1", "--json"])?;
    let json: Value = serde_json::from_str(&json.out)?;
    assert_eq!(json["delegations"][0]["state"], "running", "{json}");
    Ok(())
}
