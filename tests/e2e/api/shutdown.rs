//! How the daemon ends.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use checkrein_testkit::PATIENCE;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::daemon::{Daemon, PROFILE, command, home, profile};

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

/// A home that does not open before its model has its script, which comes through this pipe.
fn slow(folder: &Path, name: &str) -> Result<PathBuf> {
    let pipe = folder.join("profiles").join(name).join("script");
    fs::create_dir_all(folder.join("profiles").join(name))?;
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    profile(folder, name)?;
    let models = format!("{PROFILE}[models.slow]\nkind = \"scripted\"\nscript = \"script\"\n");
    fs::write(folder.join("profiles").join(name).join("profile.toml"), models)?;
    Ok(pipe)
}

/// Waits until somebody reads from the pipe, and goes on waiting for it as long as what this returns is there.
fn read_from(pipe: &Path) -> Result<File> {
    let until = Instant::now() + PATIENCE;
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    loop {
        match File::options().write(true).custom_flags(flags).open(pipe) {
            Ok(file) => return Ok(file),
            Err(error) => ensure!(Instant::now() < until, "nobody reads: {error}"),
        }
        std::thread::yield_now();
    }
}

/// Rule D8: SIGTERM begins the shutdown also while the homes are still being opened. What is open by then is closed.
#[test]
fn a_signal_before_the_daemon_is_ready_ends_the_start() -> Result<()> {
    let folder = Arc::new(home("drain = \"10m\"")?);
    let pipe = slow(folder.path(), "slow")?;
    let serve = command(folder.path(), &["serve", "--config", "checkrein.toml"]);
    let mut daemon = Daemon::run(Arc::clone(&folder), serve)?;
    let read = read_from(&pipe)?;
    daemon.signal(Signal::TERM)?;
    daemon.says("shutting down: the host was asked to end (SIGTERM)")?;
    drop(read);
    let socket = daemon.socket();
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(0), "{printed:#?}");
    assert!(!printed.iter().any(|line| line == "ready"), "{printed:#?}");
    assert!(printed.iter().any(|line| line == "stores closed"), "{printed:#?}");
    assert!(!socket.exists());
    assert!(!folder.path().join("profiles/main/sessions.db-wal").exists(), "its store is closed");
    assert_eq!(report(folder.path())?["clean"], "clean");
    Ok(())
}

/// Rule D8: SIGTERM is obeyed while a reload waits for a home.
#[test]
fn a_signal_during_a_reload_begins_the_shutdown() -> Result<()> {
    let mut daemon = Daemon::start("drain = \"10m\"")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "sleep 100000")?;
    let pipe = slow(daemon.home(), "slow")?;
    daemon.signal(Signal::HUP)?;
    daemon.says("reloading (SIGHUP)")?;
    let read = read_from(&pipe)?;
    daemon.signal(Signal::TERM)?;
    daemon.says("shutting down: the host was asked to end (SIGTERM)")?;
    // The reload is given up.
    daemon.says("could not reload (SIGHUP): the host is shutting down")?;
    drop(read);
    daemon.signal(Signal::INT)?;
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(1), "{printed:#?}");
    assert!(!printed.iter().any(|line| line == "reloaded (SIGHUP)"), "{printed:#?}");
    Ok(())
}

/// Waits until no signal waits to be taken by the process, and what it has taken has been passed on.
fn heard(daemon: &Daemon) -> Result<()> {
    let status = format!("/proc/{}/status", daemon.pid().as_raw_nonzero());
    let until = Instant::now() + PATIENCE;
    let waits = |status: &str| {
        status.lines().any(|line| line.starts_with("ShdPnd:") && !line.ends_with(&"0".repeat(16)))
    };
    while waits(&fs::read_to_string(&status)?) {
        ensure!(Instant::now() < until, "a signal is not taken");
    }
    // The thread that answers is the one that passes signals on, or comes after it.
    ensure!(daemon.get("/livez")?.status == 200);
    Ok(())
}

/// However often a reload is asked for while another one goes on, there is one more.
#[test]
fn words_to_reload_that_come_during_a_reload_are_one() -> Result<()> {
    let mut daemon = Daemon::start("")?;
    let pipe = slow(daemon.home(), "slow")?;
    daemon.signal(Signal::HUP)?;
    daemon.says("reloading (SIGHUP)")?;
    let read = read_from(&pipe)?;
    for _ in 0..3 {
        daemon.signal(Signal::HUP)?;
        heard(&daemon)?;
    }
    drop(read);
    for line in ["reloaded (SIGHUP)", "reloading (SIGHUP)", "reloaded (SIGHUP)"] {
        daemon.says(line)?;
    }
    daemon.signal(Signal::TERM)?;
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(0), "{printed:#?}");
    let reloads = printed.iter().filter(|line| line.as_str() == "reloading (SIGHUP)").count();
    assert_eq!(reloads, 2, "{printed:#?}");
    Ok(())
}

/// The report that a daemon has left behind.
fn report(folder: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&fs::read(folder.join("profiles/shutdown.json"))?)?)
}

/// Rule D6: a daemon whose end hangs is ended by its watchdog, with what was alive. Its standard output takes nothing more.
#[test]
fn a_daemon_whose_end_hangs_is_ended_by_its_watchdog() -> Result<()> {
    let folder = home("drain = \"1ms\"\nsettle = \"1ms\"")?;
    let (mut read, write) = std::io::pipe()?;
    let mut serve = command(folder.path(), &["serve", "--config", "checkrein.toml"]);
    let mut child =
        serve.stdout(OwnedFd::from(write.try_clone()?)).stderr(Stdio::piped()).spawn()?;
    drop(serve);
    let mut printed = Vec::new();
    while !printed.ends_with(b"ready\n") {
        let mut byte = [0];
        ensure!(read.read(&mut byte)? == 1, "{}", String::from_utf8_lossy(&printed));
        printed.extend(byte);
    }
    // Opened anew, so that only this end does not wait.
    let again = format!("/proc/self/fd/{}", write.as_raw_fd());
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut filling = File::options().write(true).custom_flags(flags).open(again)?;
    while filling.write(&[b'x'; 4096]).is_ok() {}
    let mut stderr = child.stderr.take().context("a pipe")?;
    kill_process(Pid::from_child(&child), Signal::TERM)?;
    // It ends with the process, which is killed should it not have ended by itself.
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        stderr.read_to_string(&mut said).ok();
        tell.send(said).ok();
    });
    let said = told.recv_timeout(2 * PATIENCE);
    child.kill().ok();
    let (status, said) = (child.wait()?, said?);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the shutdown has not ended after"), "{said}");
    assert!(said.contains("no work"), "{said}");
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

/// Rule D5: a second SIGTERM joins the shutdown, and cuts nothing short.
#[test]
fn a_second_sigterm_changes_nothing() -> Result<()> {
    let mut daemon = Daemon::start("drain = \"10m\"")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "try sleep 100000\nsay finished")?;
    daemon.signal(Signal::TERM)?;
    daemon.says("shutting down: the host was asked to end (SIGTERM)")?;
    daemon.signal(Signal::TERM)?;
    daemon.says("asked again: the host was asked to end (SIGTERM)")?;
    let soft = json!({ "scope": "turn", "kind": "soft", "message": "please" });
    assert_eq!(daemon.post(&format!("{session}/stop"), &soft)?.body["turn"], 1);
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(0), "{printed:#?}");
    Ok(())
}

/// Rules D5 and D7: a second request through the API joins the first, and sends it to the hard stop where it says so. The report
/// that is kept has the words of the first, and what was cut.
#[test]
fn a_second_request_of_the_api_joins_the_first() -> Result<()> {
    let folder = Arc::new(home("drain = \"10m\"")?);
    let mut daemon = Daemon::on(Arc::clone(&folder))?;
    let session = daemon.session()?;
    let turn = daemon.until_ready(&session, "sleep 100000")?;
    let ask = |daemon: &Daemon, body: Value| -> Result<()> {
        let answer = daemon.post("/v1/shutdown", &body)?;
        ensure!(answer.status == 202 && answer.body["executions"] == 1, "{answer:?}");
        Ok(())
    };
    ask(&daemon, json!({ "reason": "an upgrade" }))?;
    daemon.says("shutting down: an upgrade")?;
    ask(&daemon, json!({ "reason": "still the upgrade" }))?;
    daemon.says("asked again: still the upgrade")?;
    ask(&daemon, json!({ "reason": "at last", "at-once": true }))?;
    let (status, printed) = daemon.ends(SOON)?;
    assert_eq!(status.code(), Some(1), "{printed:#?}");
    let report = report(folder.path())?;
    assert_eq!((&report["reason"], &report["clean"]), (&json!("an upgrade"), &json!("not-clean")));
    assert_eq!(report["cut"].as_array().map(Vec::len), Some(1), "{report:#}");
    assert_eq!(report["cut"][0]["id"], turn["work"], "{report:#}");
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
fn a_configuration_that_is_wrong_is_refused_with_its_place_and_key() -> Result<()> {
    for (line, words) in [
        ("sokcet = \"x\"", "checkrein.toml:4:1: unknown key `sokcet`; did you mean `socket`?"),
        (
            "tcp = \"localhost\"",
            "checkrein.toml:4:7: `serve.tcp`: `localhost` is no address with a port",
        ),
        ("connections = 0", "checkrein.toml:4:15: `serve.connections`: 0 would let nothing run"),
        ("tcp = \"0.0.0.0:0\"", "checkrein.toml:4:1: `serve.tcp`: could not begin to serve\n"),
        // What nothing would enforce: each profile has limits of its own.
        ("[limits]\nwall-time = \"1s\"", "checkrein.toml:4:2: `limits`"),
        ("[store]\nbytes = \"1MiB\"", "checkrein.toml:4:2: `store`"),
        ("tcp = \"0.0.0.0:0\"", "can be reached from other machines"),
        ("tokens = \".\"", "checkrein.toml:4:1: `serve.tokens`: could not use the tokens in "),
        (
            "[schedules.s]\ncron = \"* * * * *\"\nagent = \"a\"\ngoal = \"g\"",
            "checkrein.toml:4:2: `schedules`: it counts for nothing here",
        ),
    ] {
        let folder = home(line)?;
        let mut serve = command(folder.path(), &["serve", "--config", "checkrein.toml"]);
        let ended = serve.args(["--plugin", "profiles/main/plugins/agent"]).output()?;
        let told = String::from_utf8(ended.stderr)?;
        assert!(matches!(ended.status.code(), Some(2 | 3)), "{told}");
        assert!(told.contains(words), "{told}");
    }
    let folder = home("")?;
    fs::write(folder.path().join("checkrein.toml"), "[serve]\nprofiles = \"nowhere\"\n")?;
    let ended = command(folder.path(), &["serve", "--config", "checkrein.toml"]).output()?;
    let told = String::from_utf8(ended.stderr)?;
    assert!(told.contains("checkrein.toml:2:1: `serve.profiles`: could not look"), "{told}");
    Ok(())
}

/// A profile whose configuration is wrong is parked with the file, the line and the key, also where a key belongs to the host.
#[test]
fn a_profile_that_is_wrong_is_parked_with_its_place_and_key() -> Result<()> {
    let mistakes = [
        ("unknown", "\n[stop]\ngarce = \"1s\"", "line 3, `stop.garce`: unknown key"),
        ("value", "[stop]\ngrace = \"soon\"", "line 2, `stop.grace`: `soon` is not a time"),
        ("model", "[models.m]\nkind = \"x\"", "line 2, `models.m.kind`: `x` is not known here"),
        (
            "cap",
            "plugin-directories = [\"../main/plugins\"]\n[limits]\nmemory = \"1TiB\"",
            "line 3, `limits.memory`: the limit memory ",
        ),
        (
            "own",
            "plugin-directories = [\"../main/plugins\"]\n[plugins.agent]\nlimits = { memory = \"1TiB\" }",
            "line 3, `plugins.agent.limits.memory`: the limit ",
        ),
    ];
    let host_wide = [
        ("sandbox", "pool-size = 1"),
        ("compile", "jobs = 1"),
        ("delegation", "depth = 1"),
        ("serve", "drain = \"1s\""),
        ("telemetry", "otlp-endpoint = \"http://127.0.0.1:1/\""),
        ("workers", "processes = 1"),
    ];
    let folder = home("")?;
    let write = |name: &str, text: &str| -> Result<()> {
        let home = folder.path().join("profiles").join(name);
        fs::create_dir_all(&home)?;
        Ok(fs::write(home.join("profile.toml"), text)?)
    };
    let mut expected = Vec::new();
    for (name, text, words) in mistakes {
        write(name, text)?;
        expected.push(format!("profile {name}: parked: profiles/{name}/profile.toml, {words}"));
    }
    for (table, inside) in host_wide {
        write(table, &format!("\n[{table}]\n{inside}\n"))?;
        expected.push(format!(
            "profile {table}: parked: profiles/{table}/profile.toml, line 2, `{table}`: this is set for the whole host"
        ));
    }
    write("cache", "cache-directory = \"x\"")?;
    expected.push("profile cache: parked: profiles/cache/profile.toml, line 1, `cache-directory`: this is set for the whole host".to_owned());
    let daemon = Daemon::on(folder)?;
    for words in expected {
        assert!(
            daemon.printed.iter().any(|line| line.starts_with(&words)),
            "{words}: {:#?}",
            daemon.printed
        );
    }
    Ok(())
}
