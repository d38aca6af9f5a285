//! A process that writes is killed at random instants. What it was told is there, and nothing is there by half.

#![allow(
    clippy::disallowed_methods,
    reason = "the child is this test's own program, and is told by its environment what to do"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use tempfile::TempDir;

use super::talk::{
    LONG, accepted, all_events, block_on, created, done, event, id, message, messages, promise,
    queue, row, units,
};
use crate::ids::SessionId;
use crate::store::{Class, Retention, Sqlite, Store, StoreError, UnitState, Write};

const DATABASE: &str = "CHECKREIN_TEST_STORE_OF_CHILD";
const SESSIONS: u64 = 4;

/// How many times it is killed. `CHECKREIN_TEST_STORE_KILLS` asks for more.
const ROUNDS: u64 = 20;

fn this_program(test: &str, database: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    let name = format!("{}::{test}", module_path!().split_once("::").expect("a crate").1);
    command.args([&name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(DATABASE, database).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// What the process does that is killed: it writes without an end, and says of each write that it was told of.
#[test]
#[ignore = "the child of another test"]
fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let store = Sqlite::open(path, Retention::default()).expect("it opens");
    thread::scope(|scope| {
        for session in 0..SESSIONS {
            let store = &store;
            scope.spawn(move || {
                let name = format!("s{session}");
                let first = match block_on(store.session(&id(&name))) {
                    Ok(row) => row.last_seq + 1,
                    Err(_) => {
                        promise(store, &name, vec![created()]).expect("a session");
                        1
                    }
                };
                let mut told = std::collections::VecDeque::new();
                for n in first.. {
                    let (tell, was_told) = mpsc::channel();
                    let says = name.clone();
                    let unit = n * SESSIONS + session + 1;
                    let text = format!("{n} {}", "x".repeat((n % 700) as usize));
                    let changes =
                        vec![message(&text), accepted(unit), event(&n.to_string()), done(unit)];
                    let class = if n % 2 == 0 { Class::Owed } else { Class::Promise };
                    let then = move |recorded: Result<crate::store::Recorded, StoreError>| {
                        let seq = recorded.expect("it is written").seq;
                        let line = format!("told {says} {seq}\n");
                        std::io::stdout()
                            .lock()
                            .write_all(line.as_bytes())
                            .expect("somebody reads");
                        tell.send(()).ok();
                    };
                    store.write(Write {
                        session: SessionId::new(name.as_str()),
                        changes,
                        class,
                        then: Some(Box::new(then)),
                    });
                    told.push_back(was_told);
                    if told.len() > 8 {
                        let oldest = told.pop_front().expect("there are some");
                        oldest.recv_timeout(LONG).expect("it is told");
                    }
                }
            });
        }
    });
}

/// Reads what a child says until it is gone.
fn said(child: &mut Child, kill_after: Duration) -> BTreeMap<String, u64> {
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (first, is_first) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut told = BTreeMap::new();
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            // Libtest may have begun the line.
            let Some(at) = line.find("told ") else { continue };
            let mut words = line[at..].split(' ');
            if let (Some(_), Some(name), Some(seq)) = (words.next(), words.next(), words.next())
                && let Ok(seq) = seq.parse::<u64>()
            {
                let last = told.entry(name.to_owned()).or_insert(0);
                assert!(seq > *last, "it was told in order");
                *last = seq;
                first.send(()).ok();
            }
        }
        told
    });
    is_first.recv_timeout(LONG).expect("it writes");
    thread::sleep(kill_after);
    child.kill().expect("it is killed");
    child.wait().expect("it is gone");
    reading.join().expect("it was read")
}

#[test]
fn what_was_told_before_a_kill_is_there_after_it() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = now.as_nanos() as u64 | 1;
    println!("seed {seed}");
    let rounds = std::env::var("CHECKREIN_TEST_STORE_KILLS");
    let rounds = rounds.ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store.db");
    let mut random = seed;
    let mut in_all = 0;
    for round in 0..rounds {
        // Xorshift: any sequence does.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut child =
            this_program("writes_until_it_is_killed", &path).spawn().expect("it starts");
        let told = said(&mut child, Duration::from_micros(random % 60_000));
        let database = Connection::open(&path).expect("it opens");
        let check: String =
            database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
        assert_eq!(check, "ok", "round {round}, seed {seed}");
        drop(database);
        let store = Sqlite::open(&path, Retention::default()).expect("it opens");
        let mut last_unit = 0;
        for row in block_on(store.sessions(None, 99)).expect("a list") {
            let name = row.id.as_str();
            let events = all_events(&store, name, 999);
            let numbers: Vec<String> = (1..=row.last_seq).map(|n| n.to_string()).collect();
            let found: Vec<String> = events.iter().map(|event| event.body.to_string()).collect();
            assert_eq!(found, numbers, "a prefix in order: round {round}, seed {seed}");
            let before = told.get(name).copied().unwrap_or(0);
            assert!(row.last_seq >= before, "{name} {before}: round {round}, seed {seed}");
            let messages = messages(&store, name);
            assert_eq!(messages.len(), events.len(), "round {round}, seed {seed}");
            let units = units(&store, name);
            assert_eq!(units.len(), events.len(), "round {round}, seed {seed}");
            assert!(units.iter().all(|unit| unit.state == UnitState::Ended));
            last_unit = units.iter().map(|unit| unit.unit).chain([last_unit]).max().unwrap_or(0);
        }
        assert_eq!(store.start().next_unit, last_unit + 1, "round {round}, seed {seed}");
        in_all = told.values().sum();
    }
    println!("{in_all} writes were told of in {rounds} rounds");
}

/// What the process does that may not make files larger than a bound.
#[test]
#[ignore = "the child of another test"]
fn writes_beyond_what_it_may() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let store = Sqlite::open(path, Retention::default()).expect("it opens");
    promise(&store, "s1", vec![created(), event("1")]).expect("there is room yet");
    let bound = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(200_000), ..bound }).expect("a bound");
    let large = "x".repeat(400_000);
    let refused = promise(&store, "s1", vec![event(&large)]).expect_err("there is no room");
    assert!(matches!(refused, StoreError::Full(_) | StoreError::Failed(_)), "{refused:?}");
    let owed = queue(&store, "s1", Class::Owed, vec![event(&large)]);
    let next = queue(&store, "s1", Class::Owed, vec![event("3")]);
    assert!(promise(&store, "s1", vec![event(&large)]).is_err());
    assert!(owed.told().is_none() && store.health().failing.is_some());
    assert_eq!(row(&store, "s1").last_seq, 1, "readers are served");
    setrlimit(Resource::Fsize, bound).expect("no bound");
    assert_eq!(owed.wait().expect("it is written").seq, 2);
    assert_eq!(next.wait().expect("it is written").seq, 3);
    block_on(store.close()).expect("it closes");
}

/// A true failure of the system: the file may not grow. The shell has the process ignore the signal that comes with it.
#[test]
fn a_file_that_may_not_grow_refuses_promises_and_keeps_what_is_owed() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store.db");
    let child = this_program("writes_beyond_what_it_may", &path);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(child.get_program());
    shell.args(child.get_args()).env(DATABASE, &path);
    let output = shell.output().expect("there is a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let store = Sqlite::open(&path, Retention::default()).expect("it opens");
    let lengths: Vec<usize> =
        all_events(&store, "s1", 9).iter().map(|event| event.body.len()).collect();
    assert_eq!(lengths, [1, 400_000, 1]);
}

/// A process that was killed while it created the database leaves a page of it, and the journal that takes it back.
#[test]
fn a_database_that_was_not_quite_created_is_created_again() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store.db");
    std::fs::write(&path, [7; 4_096]).expect("it is written");
    let mut journal = vec![0; 512];
    // No page is in it; its seed, the pages that there were, the size of a sector, and of a page.
    journal[..8].copy_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    for (at, number) in [(8, 0_u32), (12, 1), (16, 0), (20, 512), (24, 4_096)] {
        journal[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }
    std::fs::write(folder.path().join("store.db-journal"), journal).expect("it is written");
    let store = Sqlite::open(&path, Retention::default()).expect("it opens");
    promise(&store, "s1", vec![created()]).expect("a session");
}
