//! Clients that stall, vanish, send too much or send nonsense harm nobody but themselves.

use std::io::{BufReader, Read, Write};

use anyhow::{Context, Result};
use serde_json::json;

use super::daemon::{Answer, Daemon};

#[test]
fn a_client_that_goes_away_ends_no_turn() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    let following = daemon.events(&session, 0)?;
    daemon.until_ready(&session, "try sleep 100000\nsay went on")?;
    // One that waits for the end in line, and one that follows.
    let mut waiting = daemon.connect()?;
    let goal = json!({ "goal": "say too late", "wait": true, "queue": true });
    super::daemon::send(&mut waiting, "POST", &format!("{session}/prompts"), Some(&goal))?;
    drop((waiting, following));
    let mut events = daemon.events(&session, 0)?;
    let soft = json!({ "scope": "turn", "kind": "soft", "message": "enough" });
    assert_eq!(daemon.post(&format!("{session}/stop"), &soft)?.body["turn"], 1);
    loop {
        let event = events.next()?.context("more events")?;
        if event.event == "run-ended" {
            assert_eq!(event.data["output"], "interrupted | soft | enough | user\nwent on");
            return Ok(());
        }
    }
}

#[test]
fn a_client_that_stalls_keeps_nobody_out() -> Result<()> {
    let daemon = Daemon::start(
        "connections = 4\npeer-connections = 4\nhead-time = \"1s\"\nbody-time = \"1s\"",
    )?;
    // Half a head, half a body, nothing at all.
    let mut half = daemon.connect()?;
    write!(half, "GET /livez HTTP/1.1\r\nho")?;
    let mut body = daemon.connect()?;
    let path = "/v1/profiles/main/sessions";
    write!(
        body,
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    )?;
    let mut silent = daemon.connect()?;
    assert_eq!(daemon.get("/livez")?.status, 200);
    let answer = Answer::read(&mut BufReader::new(&mut body))?;
    assert_eq!((answer.status, answer.kind()), (408, "too-slow"), "{answer:?}");
    for stalled in [&mut half, &mut silent] {
        // Closed by the host, with or without a word.
        stalled.read_to_end(&mut Vec::new())?;
    }
    assert_eq!(daemon.get("/livez")?.status, 200);
    Ok(())
}

#[test]
fn one_connection_more_than_there_may_be_is_told_so() -> Result<()> {
    let daemon = Daemon::start("connections = 1")?;
    let held = daemon.connect()?;
    // It is taken when it is answered.
    let mut first = BufReader::new(held.try_clone()?);
    let mut write = held.try_clone()?;
    write!(write, "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")?;
    assert_eq!(Answer::read(&mut first)?.status, 200);
    let mut second = daemon.connect()?;
    let answer = Answer::read(&mut BufReader::new(&mut second))?;
    assert_eq!((answer.status, answer.kind()), (503, "refused"), "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    Ok(())
}

/// A stop is certain: whoever waits for turns must not keep it out.
#[test]
fn requests_that_wait_do_not_keep_a_stop_out() -> Result<()> {
    let daemon = Daemon::start("requests = 1")?;
    let session = daemon.session()?;
    let mut waiting = daemon.connect()?;
    let goal = json!({ "goal": "sleep 100000", "wait": true });
    super::daemon::send(&mut waiting, "POST", &format!("{session}/prompts"), Some(&goal))?;
    let stop = json!({ "scope": "turn", "kind": "hard", "message": "now" });
    // It may be that the turn has not begun yet.
    while daemon.post(&format!("{session}/stop"), &stop)?.body["turn"] == 0 {}
    let answer = Answer::read(&mut BufReader::new(&mut waiting))?;
    assert_eq!((answer.status, &answer.body["status"]), (200, &json!("interrupted")));
    Ok(())
}

#[test]
fn requests_beyond_what_there_may_be_are_refused() -> Result<()> {
    let daemon = Daemon::start("requests = 1")?;
    let session = daemon.session()?;
    let mut waiting = daemon.connect()?;
    let goal = json!({ "goal": "sleep 100000", "wait": true });
    super::daemon::send(&mut waiting, "POST", &format!("{session}/prompts"), Some(&goal))?;
    let mut events = daemon.events(&session, 0)?;
    while events.next()?.context("more events")?.event != "run-started" {}
    let agent = json!({ "agent": "agent" });
    let answer = daemon.post("/v1/profiles/main/sessions", &agent)?;
    assert_eq!((answer.status, answer.kind()), (503, "refused"), "{answer:?}");
    // Who looks for what to stop is not kept out, nor who stops it.
    assert_eq!(daemon.get("/v1/profiles/main/tree")?.body["executions"], 1);
    let stop = json!({ "message": "enough" });
    assert_eq!(daemon.post(&format!("{session}/stop"), &stop)?.body["turn"], 1);
    Ok(())
}

#[test]
fn what_is_too_much_or_nonsense_is_refused_and_forgotten() -> Result<()> {
    let daemon = Daemon::start("body-bytes = 1000")?;
    let session = daemon.session()?;
    let long = json!({ "goal": "x".repeat(2000) });
    let answer = daemon.post(&format!("{session}/prompts"), &long)?;
    assert_eq!((answer.status, answer.kind()), (413, "too-large"), "{answer:?}");
    for (sent, status) in [
        ("garbage\r\n\r\n".to_owned(), "400"),
        ("\x16\x03\x01\x02\0\x01\0\0\r\n\r\n".to_owned(), "400"),
        (format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(200_000)), "431"),
        (format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(500)), "431"),
    ] {
        let mut stream = daemon.connect()?;
        stream.write_all(sent.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    assert_eq!(daemon.turn(&session, "say still here")?["output"], "still here");
    Ok(())
}

/// A page in a browser can have a name of its own point to this machine.
#[test]
fn on_tcp_only_those_are_answered_who_call_the_host_by_a_name_of_this_machine() -> Result<()> {
    let daemon = Daemon::start("tcp = \"127.0.0.1:0\"")?;
    let line = daemon.printed.iter().find_map(|line| line.strip_prefix("listening on http://"));
    let address = line.context("the address")?;
    for (host, status) in [(address, 200), ("localhost", 200), ("evil.example:80", 403)] {
        let mut stream = std::net::TcpStream::connect(address)?;
        write!(stream, "GET /v1/tree HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
        let answer = Answer::read(&mut BufReader::new(stream))?;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    Ok(())
}
