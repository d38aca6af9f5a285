//! How the daemon ends.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use serde_json::json;

use super::daemon::{Daemon, command, home};

/// How long an end may take that waits for nothing. The machine of a test may be busy.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_daemon_that_does_nothing_ends_cleanly() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.turn(&session, "say done")?;
    // One that follows, and one that keeps its connection and asks nothing.
    let _following = daemon.events(&session, 0)?;
    let _idle = daemon.connect()?;
    let socket = daemon.socket();
    daemon.signal(Signal::TERM)?;
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(0), "{printed:#?}");
    for line in [
        "shutting down: the host was asked to end (SIGTERM)",
        "listeners stopped",
        "stores closed",
        "ended",
    ] {
        assert!(printed.iter().any(|printed| printed.starts_with(line)), "{line}: {printed:#?}");
    }
    assert!(!socket.exists());
    Ok(())
}

/// Rule D8: SIGTERM starts the shutdown. Rule D3: when the drain is over what is left is stopped hard. Rule D7: the report
/// names it.
#[test]
fn a_turn_that_does_not_end_is_cut_within_the_bound_and_named() -> Result<()> {
    let daemon = Daemon::start("drain = \"200ms\"")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "spin")?;
    daemon.signal(Signal::TERM)?;
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(1), "{printed:#?}");
    assert!(printed.iter().any(|line| line.contains("turn agent 1 (w")), "{printed:#?}");
    assert!(printed.iter().any(|line| line == "ended, and not cleanly"), "{printed:#?}");
    Ok(())
}

/// Rule D2: new work is refused before the first wait, and the drain ends when the count is zero.
#[test]
fn a_drain_refuses_what_is_new_and_lets_finish_what_is_there() -> Result<()> {
    let mut daemon = Daemon::start("drain = \"10m\"")?;
    let session = daemon.session()?;
    let other = daemon.session()?;
    daemon.until_ready(&session, "try sleep 100000\nsay finished")?;
    daemon.signal(Signal::TERM)?;
    daemon.says("shutting down")?;
    let mut refused = daemon.get("/readyz")?;
    // The line is printed before the host is closed.
    while refused.status == 200 {
        refused = daemon.get("/readyz")?;
    }
    assert_eq!(refused.body["reasons"][0]["kind"], "draining");
    let refused = daemon.post(&format!("{other}/prompts"), &json!({ "goal": "say x" }))?;
    assert_eq!((refused.status, refused.kind()), (503, "refused"), "{refused:?}");
    let opened = daemon.post("/v1/profiles/main/sessions", &json!({ "agent": "agent" }))?;
    assert_eq!((opened.status, opened.kind()), (503, "refused"), "{opened:?}");
    let soft = json!({ "scope": "turn", "kind": "soft", "message": "please" });
    assert_eq!(daemon.post(&format!("{session}/stop"), &soft)?.body["turn"], 1);
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(0), "{printed:#?}");
    Ok(())
}

/// Rule D8: a second signal goes straight to the hard stop.
#[test]
fn a_second_signal_does_not_wait_for_the_drain() -> Result<()> {
    let mut daemon = Daemon::start("drain = \"10m\"")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "sleep 100000")?;
    daemon.signal(Signal::INT)?;
    daemon.says("shutting down: Ctrl-C was pressed")?;
    daemon.signal(Signal::INT)?;
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(1), "{printed:#?}");
    Ok(())
}

#[test]
fn the_api_can_ask_for_the_end() -> Result<()> {
    let daemon = Daemon::start("drain = \"10m\"")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "sleep 100000")?;
    let answer =
        daemon.post("/v1/shutdown", &json!({ "reason": "an upgrade", "at-once": true }))?;
    assert_eq!(answer.status, 202, "{answer:?}");
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(1), "{printed:#?}");
    assert!(
        printed.iter().any(|line| line.starts_with("shutting down: an upgrade;")),
        "{printed:#?}"
    );
    Ok(())
}

#[test]
fn a_client_that_takes_nothing_does_not_hold_up_the_end() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    // More than the buffers of a socket hold.
    daemon.turn(&session, "emits 200 20000")?;
    let mut stalled = daemon.connect()?;
    write!(stalled, "GET {session}/events HTTP/1.1\r\nhost: x\r\n\r\n")?;
    // The stream has begun when its head is there.
    std::io::Read::read_exact(&mut stalled, &mut [0; 1])?;
    daemon.signal(Signal::TERM)?;
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(0), "{printed:#?}");
    assert!(printed.iter().any(|line| line == "connections cut: 1"), "{printed:#?}");
    Ok(())
}

#[test]
fn a_socket_has_one_daemon_and_is_taken_over_after_a_crash() -> Result<()> {
    let daemon = Daemon::start("")?;
    let second = command(daemon.home(), &["serve", "--config", "checkrein.toml"]).output()?;
    let words = String::from_utf8(second.stderr)?;
    assert_eq!(second.status.code(), Some(3), "{words}");
    assert!(words.contains("api.sock is held by process "), "{words}");

    daemon.signal(Signal::KILL)?;
    let folder = home("")?;
    let left = folder.path().join("api.sock");
    // What a killed one leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&left)?);
    let next = Daemon::on(folder)?;
    assert_eq!(next.get("/livez")?.status, 200);
    Ok(())
}

#[test]
fn a_configuration_that_is_wrong_is_refused_with_its_place() -> Result<()> {
    for (line, words) in [
        ("sokcet = \"x\"", "checkrein.toml:4:1: unknown key `sokcet`; did you mean `socket`?"),
        ("tcp = \"localhost\"", "checkrein.toml:4:7: `localhost` is no address with a port"),
        ("connections = 0", "checkrein.toml:4:15: 0 would let nothing run"),
        ("tcp = \"0.0.0.0:0\"", "can be reached from other machines"),
    ] {
        let folder = home(line)?;
        let ended = command(folder.path(), &["serve", "--config", "checkrein.toml"]).output()?;
        let told = String::from_utf8(ended.stderr)?;
        assert!(matches!(ended.status.code(), Some(2 | 3)), "{told}");
        assert!(told.contains(words), "{told}");
    }
    Ok(())
}
