//! Every route over the socket.

use std::time::Instant;

use anyhow::{Context, Result};
use checkrein_testkit::PATIENCE;
use serde_json::{Value, json};

use super::daemon::{Daemon, home, profile};

#[test]
fn a_session_is_opened_prompted_read_and_deleted() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    let report = daemon.turn(&session, "say hello")?;
    assert_eq!((&report["status"], &report["output"]), (&json!("completed"), &json!("hello")));
    assert_eq!(report["generation"], 1);
    let row = daemon.get(&session)?.body;
    assert_eq!((&row["generation"], &row["messages"]), (&json!(1), &json!(2)), "{row}");
    let messages = daemon.get(&format!("{session}/messages"))?.body;
    let texts: Vec<&Value> = messages["messages"]
        .as_array()
        .context("a list")?
        .iter()
        .map(|m| &m["message"]["text"])
        .collect();
    assert_eq!(texts, ["say hello", "hello"]);
    let mut deleted = daemon.ask("DELETE", &session, None)?;
    // The handle of the request that went before may not be gone yet.
    while deleted.status == 409 {
        deleted = daemon.ask("DELETE", &session, None)?;
    }
    assert_eq!(deleted.status, 204, "{deleted:?}");
    let gone = daemon.get(&session)?;
    assert_eq!((gone.status, gone.kind()), (404, "not-found"));
    Ok(())
}

#[test]
fn sessions_are_listed_page_by_page() -> Result<()> {
    let daemon = Daemon::start("")?;
    let mut opened = Vec::new();
    for _ in 0..5 {
        opened.push(daemon.session()?.rsplit('/').next().unwrap_or_default().to_owned());
    }
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = daemon.get(&format!("/v1/profiles/main/sessions?limit=2{after}"))?.body;
        let sessions = page["sessions"].as_array().context("a list")?;
        assert!(sessions.len() <= 2);
        found.extend(sessions.iter().filter_map(|row| row["id"].as_str().map(str::to_owned)));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(found, opened);
    Ok(())
}

/// Rule S9: a stop for an older generation is refused as stale and never hits the next turn. Rule S14: talking is not
/// stopping.
#[test]
fn a_stop_that_comes_too_late_hits_nobody() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.turn(&session, "say one")?;
    let begun = daemon.until_ready(&session, "try sleep 100000\nstop?")?;
    assert_eq!(begun["generation"], 2);
    let stop = format!("{session}/stop");
    for scope in ["turn", "all"] {
        let late = json!({ "scope": scope, "kind": "hard", "message": "late", "generation": 1 });
        let answer = daemon.post(&stop, &late)?;
        assert_eq!((answer.status, answer.kind()), (409, "stale"), "{answer:?}");
    }
    let busy = daemon.post(&format!("{session}/prompts"), &json!({ "goal": "say x" }))?;
    assert_eq!((busy.status, busy.kind()), (409, "busy"), "{busy:?}");
    let soft = json!({ "scope": "turn", "kind": "soft", "message": "now", "generation": 2 });
    assert_eq!(
        daemon.post(&stop, &soft)?.body,
        json!({ "turn": 1, "background": 0, "side-runs": 0 })
    );
    let queued = daemon.post(
        &format!("{session}/prompts"),
        &json!({ "goal": "say three", "queue": true, "wait": true }),
    )?;
    assert_eq!(queued.body["generation"], 3);
    let messages = daemon.get(&format!("{session}/messages"))?.body;
    let said = "interrupted | soft | now | user\nsoft | now | user";
    assert_eq!(messages["messages"][3]["message"]["text"], said);
    Ok(())
}

/// Rule W7: a dead id gets a terminal answer.
#[test]
fn the_tree_shows_what_runs_and_any_of_it_can_be_stopped() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    let begun = daemon.until_ready(&session, "sleep 100000")?;
    let until = Instant::now() + PATIENCE;
    let turn = loop {
        let tree = daemon.get("/v1/tree")?.body;
        let mut nodes = tree["nodes"].as_array().context("a list")?.iter();
        let turn = nodes.find(|node| node["kind"] == "turn").context("a turn")?.clone();
        // The agent has said that it is ready, and sleeps a moment later.
        if turn["activity"]["what"] == "run.sleep" || Instant::now() > until {
            break turn;
        }
    };
    assert_eq!(turn["id"], begun["work"]);
    assert_eq!(turn["activity"]["what"], "run.sleep");
    assert!(turn["budgets"]["memory"]["used"].as_u64() > Some(0), "{turn}");
    assert_eq!(daemon.get("/v1/profiles/main/tree")?.body["executions"], 1);
    // A stop of the profile reaches what it holds, and not what it will hold.
    let profile = daemon.get("/v1/profiles/main")?.body["work"].clone();
    let profile = profile.as_str().context("an id")?;
    let mut events = daemon.events(&session, 0)?;
    let stop = json!({ "message": "by hand" });
    assert_eq!(daemon.post(&format!("/v1/work/{profile}/stop"), &stop)?.body["stopped"], 1);
    while events.next()?.context("more events")?.event != "run-ended" {}
    assert_eq!(daemon.turn(&session, "stop?\nsay on")?["output"], "no stop\non");
    let work = begun["work"].as_str().context("an id")?;
    for path in [format!("/v1/work/{work}/stop"), format!("/v1/profiles/main/work/{work}/stop")] {
        let gone = daemon.post(&path, &stop)?;
        assert_eq!((gone.status, gone.kind()), (404, "gone"), "{gone:?}");
    }
    Ok(())
}

#[test]
fn profiles_are_listed_with_those_that_cannot_be_served() -> Result<()> {
    let folder = home("")?;
    let broken = folder.path().join("profiles/broken");
    std::fs::create_dir_all(&broken)?;
    std::fs::write(broken.join("profile.toml"), "[lmits]\n")?;
    let daemon = Daemon::on(folder)?;
    let profiles = daemon.get("/v1/profiles")?.body;
    let listed = &profiles["profiles"];
    assert_eq!((&listed[0]["name"], &listed[0]["served"]), (&json!("broken"), &json!(false)));
    let reason = listed[0]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("profile.toml, line 1, `lmits`: unknown key `lmits`"), "{reason}");
    assert_eq!((&listed[1]["name"], &listed[1]["served"]), (&json!("main"), &json!(true)));
    let refused = daemon.get("/v1/profiles/broken/sessions")?;
    assert_eq!((refused.status, refused.kind()), (503, "refused"), "{refused:?}");
    let ready = daemon.get("/readyz")?;
    assert_eq!((ready.status, &ready.body["reasons"][0]["kind"]), (200, &json!("parked")));

    profile(daemon.home(), "more")?;
    std::fs::write(broken.join("profile.toml"), "")?;
    let done = daemon.ask("POST", "/v1/reload", None)?.body;
    assert_eq!((&done["added"], &done["kept"]), (&json!(["broken", "more"]), &json!(["main"])));
    let plugins = daemon.get("/v1/profiles/more/plugins")?.body;
    let names: Vec<&Value> =
        plugins["plugins"].as_array().context("a list")?.iter().map(|p| &p["name"]).collect();
    assert!(names.contains(&&json!("agent")), "{plugins}");
    Ok(())
}

/// A directory that cannot be read is told as what is parked, and changes nothing: what is served goes on.
#[test]
fn a_reload_without_its_directory_leaves_everything_as_it_is() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    let (there, away) = (daemon.home().join("profiles"), daemon.home().join("away"));
    std::fs::rename(&there, &away)?;
    let answer = daemon.ask("POST", "/v1/reload", None)?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let parked = answer.body["parked"].as_object().context("what is parked")?;
    let reasons: Vec<&Value> = parked.values().collect();
    assert_eq!((parked.len(), parked.contains_key("profiles")), (1, true), "{answer:?}");
    assert!(reasons[0].as_str().is_some_and(|why| why.contains("could not read the profiles")));
    for done in ["added", "kept", "removed", "released"] {
        assert_eq!(answer.body[done], json!([]), "{answer:?}");
    }
    assert_eq!(daemon.turn(&session, "say still here")?["output"], "still here");
    std::fs::rename(&away, &there)?;
    let done = daemon.ask("POST", "/v1/reload", None)?.body;
    assert_eq!((&done["kept"], &done["parked"]), (&json!(["main"]), &json!({})));
    Ok(())
}

#[test]
fn units_in_the_background_are_listed_stopped_and_acknowledged() -> Result<()> {
    let daemon = Daemon::start("")?;
    let opened = daemon
        .post("/v1/profiles/main/sessions", &json!({ "agent": "agent", "delivery": "polled" }))?;
    let id = opened.body["id"].as_str().context("an id")?;
    let session = format!("/v1/profiles/main/sessions/{id}");
    let unit = |goal: &str| {
        let call = json!({ "mode": "background", "tasks": [{ "goal": goal }] });
        daemon.turn(&session, &format!("delegate {call}"))
    };
    unit("partial half\nsleep 100000")?;
    let mut events = daemon.events(&session, 0)?;
    while events.next()?.context("more events")?.event != "partial" {}
    let path = format!("{session}/delegations");
    let listed = daemon.get(&path)?.body["delegations"][0].clone();
    assert_eq!(listed["state"], "running", "{listed}");
    let id = listed["id"].as_str().context("an id")?;
    let stop = json!({ "kind": "hard", "message": "enough" });
    assert_eq!(daemon.post(&format!("{path}/{id}/stop"), &stop)?.body["stopped"], 1);
    while events.next()?.context("more events")?.event != "delegation-ended" {}
    assert_eq!(daemon.get(&format!("{path}/{id}"))?.body["state"], "interrupted");
    let waiting = daemon.get(&format!("{session}/completions"))?.body;
    assert_eq!(waiting["completions"][0]["id"], id);
    assert_eq!(waiting["completions"][0]["entries"][0]["output"], "half");
    let acknowledge = format!("{session}/completions/{id}/acknowledge");
    assert_eq!(daemon.ask("POST", &acknowledge, None)?.body, waiting["completions"][0]);
    let again = daemon.ask("POST", &acknowledge, None)?;
    assert_eq!((again.status, again.kind()), (404, "not-found"));
    assert_eq!(daemon.get(&format!("{session}/completions"))?.body, json!({ "completions": [] }));

    // The session-level stop reaches the background too.
    unit("sleep 100000")?;
    let all = daemon.post(&format!("{session}/stop"), &json!({ "message": "all" }))?;
    assert_eq!(all.body, json!({ "turn": 0, "background": 1, "side-runs": 0 }));
    let soft = daemon.post(&format!("{session}/stop"), &json!({ "kind": "soft" }))?;
    assert_eq!((soft.status, soft.kind()), (400, "bad-request"));
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused_in_one_form() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    let prompts = format!("{session}/prompts");
    for (method, path, body, status, kind, words) in [
        ("GET", "/v2", None, 404, "not-found", "nothing at this path"),
        ("POST", "/livez", None, 405, "method-not-allowed", "does not take that method"),
        ("GET", "/v1/profiles/none", None, 404, "not-found", "no profile `none`"),
        ("GET", "/v1/profiles/main/sessions/s99", None, 404, "not-found", "s99"),
        ("GET", "/v1/profiles/main/sessions?lmit=3", None, 400, "bad-request", "lmit"),
        ("POST", &*prompts, None, 415, "not-json", "application/json"),
        (
            "POST",
            &*prompts,
            Some(json!({ "gaol": "x" })),
            400,
            "bad-request",
            "unknown field `gaol`",
        ),
        ("POST", &*prompts, Some(json!({})), 400, "bad-request", "missing field `goal`"),
        ("POST", "/v1/work/x/stop", Some(json!({})), 400, "bad-request", "w3-18"),
        (
            "POST",
            "/v1/profiles/main/sessions",
            Some(json!({ "agent": "agnet" })),
            404,
            "not-found",
            "did you mean `agent`?",
        ),
    ] {
        let answer = daemon.ask(method, path, body.as_ref())?;
        assert_eq!((answer.status, answer.kind()), (status, kind), "{path}: {answer:?}");
        assert!(answer.body["error"].to_string().contains(words), "{path}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    Ok(())
}
