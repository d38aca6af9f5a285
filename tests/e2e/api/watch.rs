//! The live view of the tree, on a terminal that `script` of util-linux makes.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use checkrein_testkit::PATIENCE;
use rustix::process::Signal;

use super::commands::{is, run};
use super::daemon::{Daemon, command};

/// What a page begins with.
const HOME: &str = "\x1b[H";

/// `checkrein tree --watch` on a terminal of 8 lines and 40 columns.
struct View {
    script: Child,
    keys: ChildStdin,
    out: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl View {
    fn open(daemon: &Daemon) -> Result<View> {
        let view = "stty rows 8 cols 40 && exec \"$CHECKREIN\" tree --watch";
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--return", "--command", view, "/dev/null"])
            .current_dir(daemon.home())
            .env("SHELL", "/bin/sh")
            .env("CHECKREIN", env!("CARGO_BIN_EXE_checkrein"))
            .env("CHECKREIN_SOCKET", daemon.socket())
            .env_remove("CHECKREIN_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = script.spawn().context("`script`, of util-linux, is needed here")?;
        let keys = script.stdin.take().context("a pipe")?;
        let mut from = script.stdout.take().context("a pipe")?;
        let (tell, out) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                tell.send(bytes[..count].to_vec()).ok();
            }
        });
        Ok(View { script, keys, out, seen: String::new() })
    }

    /// Waits for a whole page with these words, and gives it as the terminal shows it.
    fn page(&mut self, words: &str) -> Result<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            while let Some(end) = self.seen.find("\x1b[J") {
                let page = self.seen[..end].to_owned();
                self.seen.drain(..end + 3);
                let page = page.strip_prefix(HOME).with_context(|| format!("{page:?}"))?;
                let page = page.replace("\x1b[K", "").replace('\r', "");
                ensure!(!page.contains('\x1b'), "{page:?}");
                let fits = |line: &str| line.chars().count() <= 40;
                ensure!(page.lines().count() < 8 && page.lines().all(fits), "{page}");
                if page.contains(words) {
                    return Ok(page);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            let Ok(more) = self.out.recv_timeout(left) else {
                bail!("`{words}` was not shown; this came last: {:?}", self.seen)
            };
            self.seen.push_str(std::str::from_utf8(&more)?);
        }
    }

    /// Waits for its end, and gives its exit code and what came after the last page.
    fn ends(mut self) -> Result<(Option<i32>, String)> {
        let mut rest = std::mem::take(&mut self.seen);
        while let Ok(more) = self.out.recv_timeout(PATIENCE) {
            rest.push_str(std::str::from_utf8(&more)?);
        }
        let status = self.script.wait()?;
        ensure!(status.signal().is_none(), "{status:?}");
        Ok((status.code(), rest))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.script.kill().ok();
        self.script.wait().ok();
    }
}

#[test]
fn the_live_view_follows_what_runs_until_ctrl_c() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    let begun = daemon.until_ready(&session, "sleep 100000000")?;
    let work = begun["work"].as_str().context("an id")?;
    let mut view = View::open(&daemon)?;
    let page = view.page("turn agent")?;
    assert!(page.ends_with("1 executions\n"), "{page}");
    is(&run(&daemon, &["stop", work])?, 0, "stopped: 1\n");
    let page = view.page("0 executions")?;
    assert!(!page.contains("turn agent"), "{page}");
    // More than there is room for.
    for _ in 0..4 {
        daemon.session()?;
    }
    let page = view.page(" more")?;
    assert!(page.ends_with("0 executions\n") && page.lines().count() == 7, "{page}");
    view.keys.write_all(b"\x03")?;
    let (code, rest) = view.ends()?;
    assert_eq!(code, Some(130), "{rest}");
    // Nothing was stopped with it.
    assert_eq!(daemon.get("/readyz")?.status, 200);
    Ok(())
}

#[test]
fn the_live_view_ends_with_its_daemon() -> Result<()> {
    let daemon = Daemon::start("")?;
    let mut view = View::open(&daemon)?;
    view.page("0 executions")?;
    daemon.signal(Signal::TERM)?;
    daemon.ends(PATIENCE)?;
    let (code, rest) = view.ends()?;
    assert_eq!(code, Some(3), "{rest}");
    assert!(rest.contains("error: "), "{rest}");
    Ok(())
}

#[test]
fn without_a_terminal_there_is_no_live_view() -> Result<()> {
    let daemon = Daemon::start("")?;
    let output = command(daemon.home(), &["tree", "--watch"]).output()?;
    let words = String::from_utf8(output.stderr)?;
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()), "{words}");
    assert!(words.contains("standard output is none"), "{words}");
    Ok(())
}
