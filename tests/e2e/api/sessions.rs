//! Sessions that are shown, taken out, read in and deleted, with a daemon and on a home alone.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use checkrein::profile::HomeLock;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::commands::{Ended, is};
use super::daemon::{Daemon, command};

fn run(folder: &Path, arguments: &[&str]) -> Result<Ended> {
    fed(folder, arguments, b"")
}

/// Runs the command with that on its standard input.
fn fed(folder: &Path, arguments: &[&str], input: &[u8]) -> Result<Ended> {
    let mut child = command(folder, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // A command that ends before it has read all is no trouble.
    child.stdin.take().context("a pipe")?.write_all(input).ok();
    let output = child.wait_with_output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(!err.contains("panicked"), "{err}");
    Ok(Ended { code: output.status.code(), out, err })
}

/// A folder with the profile of a daemon that has ended. Its session `s1` has had two turns and a unit that nobody has read.
fn left_behind() -> Result<Arc<TempDir>> {
    let daemon = Daemon::start("")?;
    let open = json!({ "agent": "agent", "delivery": "polled" });
    let opened = daemon.post("/v1/profiles/main/sessions", &open)?;
    ensure!(opened.status == 201, "{opened:?}");
    let session = "/v1/profiles/main/sessions/s1";
    let tasks = json!({ "mode": "background", "tasks": [{ "goal": "say found" }] });
    daemon.turn(session, &format!("remember mood good\ndelegate {tasks}\nsay \u{1b}[2Jhello"))?;
    let mut events = daemon.events(session, 0)?;
    while events.next()?.context("more events")?.event != "delegation-ended" {}
    daemon.turn(session, "partial half\nfail failed no")?;
    daemon.leaves()
}

/// Everything in a folder, with what is in it.
fn contents(folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let look = fs::metadata(&path)?;
        if look.is_dir() {
            all.extend(contents(&path)?);
        } else if look.is_file() {
            all.push((path.clone(), fs::read(&path)?));
        }
    }
    all.sort();
    Ok(all)
}

const HOME: &str = "profiles/main";

/// The session in that home as it is exported.
fn exported(folder: &Path, session: &str) -> Result<String> {
    let ended = run(folder, &["session", "export", session, "--home", HOME])?;
    ensure!(ended.code == Some(0), "{}", ended.err);
    Ok(ended.out)
}

/// Lines without what an import gives anew.
fn but_for_names(lines: &str) -> Result<Vec<Value>> {
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line)?;
        let fields = line.as_object_mut().context("an object")?;
        fields.remove("session");
        fields.remove("unit");
        fields.remove("updated-ms");
        Ok(line)
    };
    lines.lines().map(line).collect()
}

/// Reading takes no lock, and changes nothing of the home.
#[test]
fn a_home_is_read_without_a_daemon_and_without_a_trace() -> Result<()> {
    let folder = left_behind()?;
    let before = contents(folder.path())?;
    is(&run(folder.path(), &["session", "list", "--home", HOME])?, 0, "s1  agent  2 turns  idle\n");
    let shown = run(folder.path(), &["session", "show", "s1", "--home", HOME])?;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let mut rest = shown.out.as_str();
    for words in [
        "opened 20",
        "background: 0 open, 1 to be read\n",
        "turn 1 began, of agent\n",
        "\nuser, 20",
        "    remember mood good\n",
        "    say \\u{1b}[2Jhello\n",
        "d1 runs in the background: 1 tasks of turn 1\n",
        "\nassistant, 20",
        "    \\u{1b}[2Jhello\n",
        "turn 1 ended: completed after ",
        "turn 2 began, of agent\n",
        "    half\n",
        "turn 2 ended: failed after ",
        ": failed: no\n",
        "\nnot read: d1 completed\n  task 0: say found: completed\n    found\n",
    ] {
        let at = rest.find(words).with_context(|| format!("{words:?} in {}", shown.out))?;
        rest = &rest[at + words.len()..];
    }
    assert!(!shown.out.contains('\u{1b}'));
    let newest = run(folder.path(), &["session", "show", "s1", "--home", HOME, "--limit", "2"])?;
    assert!(newest.out.contains("… 2 messages before this"), "{}", newest.out);
    assert!(!newest.out.contains("turn 1"), "{}", newest.out);
    let journal =
        run(folder.path(), &["session", "show", "s1", "--home", HOME, "--events", "--limit", "3"])?;
    let lines: Vec<&str> = journal.out.lines().collect();
    assert!(lines.last().context("a line")?.contains("run-ended"), "{}", journal.out);
    assert_eq!(lines.len(), 2 + 3 + 1, "{}", journal.out);
    let json = run(folder.path(), &["session", "show", "s1", "--home", HOME, "--json"])?;
    let json: Value = serde_json::from_str(&json.out)?;
    let said = json["newest-messages"][1]["message"]["text"].as_str().context("a text")?;
    assert!(said.ends_with("\n\u{1b}[2Jhello"), "JSON is as it was said: {said}");
    assert_eq!(json["unread"][0]["entries"][0]["output"], "found");
    exported(folder.path(), "s1")?;
    for (arguments, code, words) in [
        (["session", "show", "s9", "--home", HOME], 2, "there is no session `s9`"),
        (["session", "show", "s1", "--home", "profiles"], 2, "it has no sessions.db"),
    ] {
        let ended = run(folder.path(), &arguments)?;
        assert_eq!(ended.code, Some(code), "{}", ended.err);
        assert!(ended.err.contains(words), "{}", ended.err);
    }
    assert_eq!(contents(folder.path())?, before);
    Ok(())
}

/// What is read in is what was taken out, with all that was not read.
#[test]
fn a_session_is_the_same_wherever_it_is_read_in() -> Result<()> {
    let folder = left_behind()?;
    let lines = exported(folder.path(), "s1")?;
    let args = ["session", "import", "-", "--home", HOME];
    is(&fed(folder.path(), &args, lines.as_bytes())?, 0, "s1 is read in as s2\n");
    let again = exported(folder.path(), "s2")?;
    assert_eq!(but_for_names(&again)?, but_for_names(&lines)?);
    assert_eq!(
        serde_json::from_str::<Value>(again.lines().next().context("a line")?)?["session"],
        "s2"
    );
    // And through a daemon, whose sessions are asked beside it.
    let daemon = Daemon::on(folder)?;
    let file = daemon.home().join("s1.jsonl");
    fs::write(&file, &lines)?;
    is(&run(daemon.home(), &["session", "import", "s1.jsonl"])?, 0, "s1 is read in as s3\n");
    let through = run(daemon.home(), &["session", "export", "s3"])?;
    assert_eq!(but_for_names(&through.out)?, but_for_names(&lines)?);
    assert_eq!(exported(daemon.home(), "s3")?, through.out, "the home says what the daemon says");
    is(&run(daemon.home(), &["send", "s3", "recall mood", "--wait"])?, 0, "good\n");
    let shown = |more: &[&str]| -> Result<String> {
        let all: Vec<&str> = ["session", "show", "s2"].iter().chain(more).copied().collect();
        Ok(run(daemon.home(), &all)?.out)
    };
    assert_eq!(shown(&[])?, shown(&["--home", HOME])?, "one form, whoever answers");
    Ok(())
}

#[test]
fn a_session_at_work_is_exported_only_when_that_is_asked_for() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "try sleep 100000\nsay done")?;
    let file = daemon.home().join("kept.jsonl");
    fs::write(&file, "what was there\n")?;
    for place in [&[][..], &["--home", HOME]] {
        let all = [&["session", "export", "s1", "kept.jsonl"][..], place].concat();
        let refused = run(daemon.home(), &all)?;
        assert_eq!(refused.code, Some(3), "{}", refused.err);
        assert!(refused.err.contains("a turn of `s1` is going on"), "{}", refused.err);
        assert_eq!(fs::read_to_string(&file)?, "what was there\n");
        is(&run(daemon.home(), &[&all[..], &["--running"]].concat())?, 0, "s1 is in kept.jsonl\n");
        let whole = fs::read_to_string(&file)?;
        assert!(whole.lines().last().context("a line")?.contains("\"end\""), "{whole}");
        fs::write(&file, "what was there\n")?;
    }
    let left: Vec<_> = contents(daemon.home())?
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains(".kept.jsonl"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // Where it is read in, the turn is over.
    run(daemon.home(), &["session", "export", "s1", "kept.jsonl", "--running"])?;
    is(&run(daemon.home(), &["session", "import", "kept.jsonl"])?, 0, "s1 is read in as s2\n");
    is(&run(daemon.home(), &["send", "s2", "say on", "--wait"])?, 0, "on\n");
    Ok(())
}

/// Rule P1: who would change a home that somebody has is told who that is.
#[test]
fn a_home_that_is_served_is_read_and_not_changed() -> Result<()> {
    let daemon = Daemon::on(left_behind()?)?;
    let lines = exported(daemon.home(), "s1")?;
    fs::write(daemon.home().join("s1.jsonl"), lines)?;
    for arguments in [
        &["session", "delete", "s1", "--home", HOME][..],
        &["session", "import", "s1.jsonl", "--home", HOME],
        &["compact", "--home", HOME],
    ] {
        let refused = run(daemon.home(), arguments)?;
        assert_eq!(refused.code, Some(3), "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains("is served already, by process "), "{}", refused.err);
    }
    is(&run(daemon.home(), &["session", "list", "--home", HOME])?, 0, "s1  agent  2 turns  idle\n");
    let folder = daemon.leaves()?;
    let held = HomeLock::take(&folder.path().join(HOME))?;
    let refused = run(folder.path(), &["compact", "--home", HOME])?;
    assert!(refused.err.contains(&format!("by process {}", std::process::id())), "{}", refused.err);
    drop(held);
    Ok(())
}

#[test]
fn a_home_is_tidied_without_a_daemon() -> Result<()> {
    let folder = left_behind()?;
    let lines = exported(folder.path(), "s1")?;
    let unread = run(folder.path(), &["session", "delete", "s1", "--home", HOME])?;
    assert_eq!(unread.code, Some(3), "{}", unread.err);
    assert!(unread.err.contains("cannot be deleted"), "{}", unread.err);
    let read: String = lines
        .lines()
        .map(|line| line.replace("\"state\":\"ended\"", "\"state\":\"acknowledged\"") + "\n")
        .collect();
    for number in 2..12 {
        let name = format!("s1 is read in as s{number}\n");
        let args = ["session", "import", "-", "--home", HOME];
        is(&fed(folder.path(), &args, read.as_bytes())?, 0, &name);
    }
    for number in 2..12 {
        let name = format!("s{number}");
        let deleted = run(folder.path(), &["session", "delete", &name, "--home", HOME])?;
        is(&deleted, 0, &format!("{name} is deleted\n"));
    }
    let done = run(folder.path(), &["compact", "--home", HOME, "--json"])?;
    let done: Value = serde_json::from_str(&done.out)?;
    let bytes = |when: &str| done[when].as_u64().context("a number");
    assert!(bytes("after")? < bytes("before")?, "{done}");
    assert_eq!(exported(folder.path(), "s1")?, lines, "what is left is what it was");
    let daemon = Daemon::on(folder)?;
    let done = run(daemon.home(), &["compact"])?;
    assert!(done.out.ends_with(" now\n") && done.code == Some(0), "{} {}", done.out, done.err);
    Ok(())
}

/// A file that is not whole is refused, with the line, and nothing of it is read in.
#[test]
fn a_damaged_session_is_refused_by_its_line() -> Result<()> {
    let folder = left_behind()?;
    let lines = exported(folder.path(), "s1")?;
    let count = lines.lines().count();
    let all: Vec<&str> = lines.lines().collect();
    let without = |place: usize| {
        let kept = all.iter().enumerate().filter(|(at, _)| *at != place);
        kept.map(|(_, line)| format!("{line}\n")).collect::<String>()
    };
    let half = &lines[..lines.len() / 2];
    let damaged = [
        (half.to_owned(), half.lines().count(), "EOF"),
        (without(count - 1), count, "the line `end` is missing"),
        (without(1), 2, "it is message 2, and 1 comes next"),
        (lines.replacen("\"version\":1", "\"version\":9", 1), 1, "the version is 9"),
        (lines.clone() + &lines, count + 1, "there is more after the line `end`"),
        (String::new(), 1, "the line `end` is missing"),
    ];
    for (text, line, why) in &damaged {
        fs::write(folder.path().join("damaged.jsonl"), text)?;
        let args = ["session", "import", "damaged.jsonl", "--home", HOME];
        let refused = run(folder.path(), &args)?;
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        for words in ["could not import damaged.jsonl", &format!("line {line}: "), why] {
            assert!(refused.err.contains(words), "{words}: {}", refused.err);
        }
    }
    let daemon = Daemon::on(folder)?;
    for (text, line, why) in &damaged {
        let path = "/v1/profiles/main/sessions/import";
        let refused = daemon.send_lines(path, text.as_bytes())?;
        assert_eq!((refused.status, refused.kind()), (400, "bad-request"), "{refused:?}");
        let cause = refused.body["error"]["causes"][0].as_str().context("a cause")?;
        assert!(cause.starts_with(&format!("line {line}: ")) && cause.contains(why), "{cause}");
    }
    let refused = daemon.post("/v1/profiles/main/sessions/import", &json!({}))?;
    assert_eq!((refused.status, refused.kind()), (415, "not-json"));
    is(&run(daemon.home(), &["session", "list"])?, 0, "s1  agent  2 turns  idle\n");
    Ok(())
}

#[test]
fn a_session_may_be_larger_than_other_requests_and_has_a_bound_of_its_own() -> Result<()> {
    let folder = left_behind()?;
    let lines = exported(folder.path(), "s1")?;
    fs::write(
        folder.path().join("checkrein.toml"),
        "[serve]\nsocket = \"api.sock\"\nprofiles = \"profiles\"\nbody-bytes = \"1KiB\"\nimport-bytes = \"64KiB\"\n",
    )?;
    let daemon = Daemon::on(folder)?;
    ensure!(lines.len() > 1 << 10 && lines.len() < 64 << 10, "{}", lines.len());
    let path = "/v1/profiles/main/sessions/import";
    assert_eq!(daemon.send_lines(path, lines.as_bytes())?.status, 201);
    let refused = daemon.send_lines(path, lines.repeat(1 + (64 << 10) / lines.len()).as_bytes())?;
    assert_eq!((refused.status, refused.kind()), (413, "too-large"), "{refused:?}");
    Ok(())
}

#[test]
fn paths_need_not_be_text() -> Result<()> {
    let folder = left_behind()?;
    let odd = Path::new(OsStr::from_bytes(b"odd ?#%\xff"));
    fs::rename(folder.path().join(HOME), folder.path().join(odd))?;
    for arguments in [
        &["session", "list"][..],
        &["session", "export", "s1", "-"],
        &["compact"],
        // Once more after somebody has written.
        &["session", "show", "s1"],
    ] {
        let done = command(folder.path(), arguments).arg("--home").arg(odd).output()?;
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let file = Path::new(OsStr::from_bytes(b"s1\xfe.jsonl"));
    let args = ["session", "export", "s1", "--home"];
    let done = command(folder.path(), &args).arg(odd).arg(file).output()?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let done =
        command(folder.path(), &["session", "import", "--home"]).arg(odd).arg(file).output()?;
    assert_eq!(String::from_utf8_lossy(&done.stdout), "s1 is read in as s2\n");
    Ok(())
}

#[test]
fn a_reader_that_goes_away_is_no_trouble_and_a_place_that_is_none_is_told() -> Result<()> {
    let folder = left_behind()?;
    for arguments in [
        &["session", "export", "s1", "--home", HOME][..],
        &["session", "show", "s1", "--home", HOME],
        &["session", "list", "--home", HOME],
    ] {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let done = command(folder.path(), arguments).stdout(writer).output()?;
        assert!(done.status.success() && done.stderr.is_empty(), "{arguments:?}: {done:?}");
    }
    let full = fs::File::options().write(true).open("/dev/full")?;
    let args = ["session", "export", "s1", "--home", HOME];
    let done = command(folder.path(), &args).stdout(full).output()?;
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    for (file, words) in [
        ("no/such/folder.jsonl", "No such file"),
        ("profiles", "it is there, and is no file"),
        ("/dev/null", "it is there, and is no file"),
    ] {
        let refused = run(folder.path(), &["session", "export", "s1", file, "--home", HOME])?;
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        let attempt = format!("could not write {file}");
        for words in [attempt.as_str(), words] {
            assert!(refused.err.contains(words), "{words}: {}", refused.err);
        }
    }
    Ok(())
}
