//! The daemon is killed at any instant, and what it has acknowledged to its clients is held against what the next one says.

mod audit;
mod book;
mod clients;
pub(crate) mod journal;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use checkrein_testkit::Random;
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::api::daemon::{Daemon, PROFILE, command, home, profile};
use book::Book;
use clients::{Deadly, Driver, Kill};

/// How often the daemon is killed where nobody says how often.
const ROUNDS: u64 = 20;

/// The profiles. In the last one every run has a process of its own.
const PROFILES: [&str; 3] = ["main", "other", "apart"];

/// Clients that ask, and clients that only listen.
const ASKING: u64 = 5;
const LISTENING: u64 = 2;

/// Rules C1, C3, C6, C8 and issue 5: whatever was acknowledged is there after a kill at any instant, unchanged and once, and
/// nothing is started again.
#[test]
fn what_was_acknowledged_is_there_after_a_kill_at_any_instant() -> Result<()> {
    let rounds = number("CHECKREIN_KILL_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("CHECKREIN_KILL_SEED").unwrap_or_else(now_ms);
    println!("CHECKREIN_KILL_SEED={seed} CHECKREIN_KILL_ROUNDS={rounds}");
    let folder = Arc::new(prepared()?);
    let book = Arc::new(Book::default());
    let outcome = (0..rounds)
        .try_for_each(|round| {
            one_round(&folder, &book, Random::new(seed.wrapping_mul(10_007).wrapping_add(round)))
                .with_context(|| format!("round {round} of seed {seed}"))
        })
        .and_then(|()| last_life(&folder, &book).context("after the last round"));
    println!("{}", book.summary());
    if outcome.is_err() {
        println!("the home is kept: {}", kept(&folder)?.display());
    }
    outcome?;
    if rounds >= ROUNDS {
        book.has_seen_everything()?;
    }
    Ok(())
}

/// Audits what the killed daemon has left, drives a new one, and kills it.
fn one_round(folder: &Arc<TempDir>, book: &Arc<Book>, mut random: Random) -> Result<()> {
    if random.below(4) == 0 {
        // One that does not live to be ready, and may be in the middle of its recovery.
        let command = command(folder.path(), &["serve", "--config", "checkrein.toml"]);
        let daemon = Daemon::run(Arc::clone(folder), command)?;
        thread::sleep(Duration::from_millis(random.below(400)));
        killed(daemon)?;
    }
    let daemon = Daemon::on(Arc::clone(folder))?;
    audit::audit(book, &daemon, &mut random)?;
    drive(&daemon, book, &mut random)?;
    killed(daemon)?;
    book.died(now_ms());
    are_whole(folder.path())
}

/// Ends in the ordinary way after all the kills.
fn last_life(folder: &Arc<TempDir>, book: &Arc<Book>) -> Result<()> {
    let daemon = Daemon::on(Arc::clone(folder))?;
    audit::audit(book, &daemon, &mut Random::new(0))?;
    daemon.signal(Signal::TERM)?;
    let (status, printed) = daemon.ends(Duration::from_secs(60))?;
    ensure!(status.code() == Some(0), "{printed:#?}");
    are_whole(folder.path())
}

/// Has clients work until the daemon is dead.
fn drive(daemon: &Daemon, book: &Arc<Book>, random: &mut Random) -> Result<()> {
    let kill = match random.below(3) {
        0 => Kill::Answered(1 + random.below(120)),
        1 => Kill::Sent(1 + random.below(120), Duration::from_micros(random.below(20_000))),
        _ => Kill::After(Duration::from_millis(random.below(900))),
    };
    let deadly = Arc::new(Deadly::new(daemon.pid(), kill));
    let threads: Vec<_> = (0..ASKING + LISTENING)
        .map(|number| {
            let driver = Driver {
                number,
                client: daemon.client(),
                book: Arc::clone(book),
                deadly: Arc::clone(&deadly),
                random: Random::new(random.below(u64::MAX)),
            };
            thread::spawn(move || match number < ASKING {
                true => driver.asks(),
                false => driver.listens(),
            })
        })
        .collect();
    if let Kill::After(delay) = kill {
        thread::sleep(delay);
        deadly.kill();
    }
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a client has panicked"))??;
    }
    ensure!(deadly.killed.load(Ordering::SeqCst), "the clients have stopped before the kill");
    Ok(())
}

fn killed(daemon: Daemon) -> Result<()> {
    daemon.signal(Signal::KILL)?;
    let (status, printed) = daemon.ends(Duration::from_secs(60))?;
    ensure!(status.code().is_none(), "it has ended by itself with {status}: {printed:#?}");
    Ok(())
}

/// The databases are whole, as the kill has left them. They are looked at in copies, so that the next daemon has the work of
/// restoring them.
fn are_whole(folder: &Path) -> Result<()> {
    let copies = tempfile::tempdir()?;
    for profile in PROFILES {
        let home = folder.join("profiles").join(profile);
        let copy = copies.path().join(profile);
        for ending in ["", "-journal", "-wal"] {
            let name = format!("sessions.db{ending}");
            if home.join(&name).exists() {
                fs::copy(home.join(&name), format!("{}{ending}", copy.display()))?;
            }
        }
        if !copy.exists() {
            continue;
        }
        let database = Connection::open_with_flags(&copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let said: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        ensure!(said == "ok", "the database of {profile}: {said}");
        let strays: i64 =
            database
                .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))?;
        ensure!(strays == 0, "{strays} rows of {profile} belong to nothing");
    }
    Ok(())
}

fn prepared() -> Result<TempDir> {
    let folder = home("drain = \"10s\"\n[delegation]\nunits-per-host = 12")?;
    for name in &PROFILES[1..] {
        profile(folder.path(), name)?;
    }
    let apart = folder.path().join("profiles/apart/profile.toml");
    fs::write(apart, format!("isolation = \"process\"\n{PROFILE}"))?;
    Ok(folder)
}

/// Copies a home to where it stays.
fn kept(folder: &TempDir) -> Result<std::path::PathBuf> {
    let to = tempfile::Builder::new().prefix("checkrein-killed-").tempdir()?.keep();
    let status = std::process::Command::new("cp")
        .args(["-r".as_ref(), folder.path().as_os_str(), to.as_os_str()])
        .status()?;
    ensure!(status.success(), "it cannot be copied: {status}");
    Ok(to)
}

#[allow(clippy::disallowed_methods, reason = "whoever starts the test says how long it may be")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
