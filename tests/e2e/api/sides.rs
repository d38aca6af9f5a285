//! Runs beside the turn and by the clock, as clients ask for them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::daemon::{Daemon, command, home, profile};

fn messages(daemon: &Daemon, session: &str) -> Result<usize> {
    let answer = daemon.get(&format!("{session}/messages"))?;
    Ok(answer.body["messages"].as_array().context("a list")?.len())
}

/// A side run has a result of its own, beside a turn that goes on, and enters the conversation only when asked to.
#[test]
fn a_side_run_goes_beside_the_turn_and_leaves_the_conversation_alone() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    let turn = daemon.until_ready(&session, "sleep 100000")?;
    let sides = format!("{session}/side-runs");
    let done = daemon.post(&sides, &json!({ "goal": "say beside", "wait": true }))?;
    assert_eq!((done.status, &done.body["output"]), (200, &json!("beside")), "{done:?}");
    let begun = daemon.post(&sides, &json!({ "goal": "sleep 100000" }))?;
    assert_eq!(begun.status, 202, "{begun:?}");
    let work = begun.body["work"].as_str().context("an id")?;
    let stop = daemon.post(&format!("/v1/work/{work}/stop"), &json!({ "message": "enough" }))?;
    assert_eq!(stop.body["stopped"], 1);
    let refused =
        daemon.post(&sides, &json!({ "goal": "say in", "wait": true, "take-in": true }))?;
    assert_eq!((refused.status, refused.kind()), (409, "busy"), "a turn goes on: {refused:?}");
    let work = turn["work"].as_str().context("an id")?;
    daemon.post(&format!("/v1/work/{work}/stop"), &json!({ "message": "enough" }))?;
    let mut events = daemon.events(&session, 0)?;
    let turn_ended = |event: &Value| event["run"] == "s1.1" && event["event"] == "run-ended";
    while !turn_ended(&events.next()?.context("more events")?.data) {}
    assert_eq!(messages(&daemon, &session)?, 2);
    let taken = daemon.post(&sides, &json!({ "goal": "say in", "wait": true, "take-in": true }))?;
    assert_eq!((taken.status, &taken.body["output"]), (200, &json!("in")), "{taken:?}");
    assert_eq!(messages(&daemon, &session)?, 4);
    Ok(())
}

/// Rule G5: a question changes nothing of the session, neither its memory nor its conversation nor its journal.
#[test]
fn a_question_changes_nothing_of_the_session() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.turn(&session, "remember key old\nsay known")?;
    let before = daemon.get(&session)?.body;
    let question = "history 10\nrecall key\nremember key new\nrecall key";
    let asides = format!("{session}/asides");
    let answer = daemon.post(&asides, &json!({ "question": question }))?;
    assert_eq!((answer.status, &answer.body["status"]), (200, &json!("completed")), "{answer:?}");
    let text = answer.body["text"].as_str().context("a text")?;
    assert!(text.contains("known") && text.ends_with("old\nnew"), "{text}");
    assert_eq!(daemon.get(&session)?.body, before);
    assert_eq!(daemon.turn(&session, "recall key")?["output"], "old");
    let unknown = json!({ "question": "who?", "to": "model", "model": "nobody" });
    let refused = daemon.post(&asides, &unknown)?;
    assert_eq!((refused.status, refused.kind()), (400, "bad-request"), "{refused:?}");
    let asked = command(daemon.home(), &["ask", "s1", "recall key"]).output()?;
    assert_eq!((asked.status.code(), asked.stdout.as_slice()), (Some(0), &b"old\n"[..]));
    let beside =
        command(daemon.home(), &["send", "s1", "say on", "--beside", "--wait"]).output()?;
    assert_eq!((beside.status.code(), beside.stdout.as_slice()), (Some(0), &b"on\n"[..]));
    Ok(())
}

/// What is due by the clock is shown with what came of it, and a wrong schedule is refused with its place.
#[test]
fn schedules_are_shown_and_follow_the_configuration() -> Result<()> {
    let folder = home("")?;
    profile(folder.path(), "clock")?;
    let file = folder.path().join("profiles/clock/profile.toml");
    let text = std::fs::read_to_string(&file)?;
    let schedule =
        "\n[schedules.yearly]\ncron = \"0 3 1 1 *\"\nagent = \"agent\"\ngoal = \"say x\"\n";
    std::fs::write(&file, format!("{text}{schedule}"))?;
    let daemon = Daemon::on(folder)?;
    let path = "/v1/profiles/clock/schedules";
    let listed = daemon.get(path)?.body;
    let one = &listed["schedules"][0];
    assert_eq!(
        (&one["name"], &one["agent"], &one["waiting"]),
        (&json!("yearly"), &json!("agent"), &json!(0))
    );
    assert!(one["next"].as_str().is_some_and(|next| next.ends_with("-01-01T03:00:00Z")), "{one}");
    let shown = command(daemon.home(), &["schedules", "clock"]).output()?;
    let shown = String::from_utf8(shown.stdout)?;
    assert!(shown.starts_with("yearly 0 3 1 1 * (UTC): agent, next "), "{shown}");
    let wrong = schedule.replace("0 3 1 1 *", "0 3 31 2 *");
    std::fs::write(daemon.home().join("profiles/clock/profile.toml"), format!("{text}{wrong}"))?;
    let reloaded = daemon.post("/v1/reload", &json!({}))?.body;
    let why = reloaded["not-reloaded"]["clock"].as_str().context("a reason")?;
    assert!(why.contains("profile.toml") && why.contains("cron"), "{why}");
    assert_eq!(daemon.get(path)?.body["schedules"][0]["name"], "yearly", "the old one stays");
    Ok(())
}
