//! What it costs to record: events per second and the wait for a promise, beside the same inserts done directly with one
//! commit each; and the opening of a database with many idle sessions.
//!
//! `cargo bench --bench store`, or with `-- --quick` for a look, or with `-- --in FOLDER`. The database is in the target
//! folder unless another one is named: a commit costs what the disk below it costs, and `/tmp` may be memory.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark prints, and its sessions are tasks of its own"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use checkrein::ids::SessionId;
use checkrein::plugin::Configuration;
use checkrein::sandbox::Pool;
use checkrein::store::{
    Body, Change, Class, Memory, Recorded, Retention, Sqlite, Store, StoreError, Write,
};
use checkrein::{Compilation, Host, ProfileSettings};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

/// An event of ordinary size.
const BODY: &str = r#"{"event":"tool-ended","call":"c-17","tool":"files.read","outcome":"ok","bytes":1834,"text":"fn main() { println!(\"hello\"); }"}"#;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, command, path, ..] = &arguments[..]
        && command == "--list"
    {
        return listing(Path::new(path));
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let named = arguments.iter().position(|argument| argument == "--in");
    let folder = named
        .and_then(|at| arguments.get(at + 1))
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let folder = folder.join(format!("store-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    println!("in {}", folder.display());
    let time = Duration::from_millis(if quick { 500 } else { 5_000 });

    let direct = directly(&folder.join("direct.db"), time);
    println!("{:<56} {:>10} {:>10} {:>10} {:>8}", "", "events/s", "p50 ms", "p99 ms", "ratio");
    line("directly, one commit per event", &direct, &direct);
    for sessions in [1, 100] {
        let path = folder.join(format!("{sessions}.db"));
        let store = Arc::new(Sqlite::open(&path, Retention::default()).expect("it opens"));
        let promised = promises(&store, sessions, time);
        line(&format!("promises, {sessions} sessions, one in flight each"), &promised, &direct);
        let health = store.health();
        println!(
            "{:<56} {:>10.1} writes per commit",
            "",
            health.writes as f64 / health.commits as f64
        );
        let owed = streams(&store, sessions, time);
        line(&format!("owed, {sessions} sessions, up to 100 in flight each"), &owed, &direct);
        close(&store);
    }
    in_memory();
    let counts: &[(usize, usize)] = if quick { &[(1_000, 100)] } else { &[(10_000, 100)] };
    for (sessions, messages) in counts {
        opening(&folder.join("idle.db"), *sessions, *messages);
    }
    std::fs::remove_dir_all(&folder).expect("it goes");
}

struct Measured {
    rate: f64,
    waits: Vec<Duration>,
}

impl Measured {
    fn of(mut waits: Vec<Duration>, took: Duration) -> Measured {
        waits.sort_unstable();
        Measured { rate: waits.len() as f64 / took.as_secs_f64(), waits }
    }

    fn at(&self, of_thousand: usize) -> f64 {
        let index = (self.waits.len() * of_thousand / 1_000).min(self.waits.len() - 1);
        self.waits[index].as_secs_f64() * 1e3
    }
}

fn line(what: &str, measured: &Measured, direct: &Measured) {
    println!(
        "{what:<56} {:>10.0} {:>10.3} {:>10.3} {:>8.1}",
        measured.rate,
        measured.at(500),
        measured.at(990),
        measured.rate / direct.rate
    );
    if !std::ptr::eq(measured, direct) {
        println!(
            "{:<56} {:>10} {:>10.1} {:>10.1}   of direct commits' p50 and p99",
            "",
            "",
            measured.at(500) / direct.at(500),
            measured.at(990) / direct.at(990)
        );
    }
}

/// The same rows, a commit for each event.
fn directly(path: &Path, time: Duration) -> Measured {
    let database = Connection::open(path).expect("it opens");
    database
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
             CREATE TABLE session (key INTEGER PRIMARY KEY, last_seq INTEGER, bytes INTEGER); \
             INSERT INTO session VALUES (1, 0, 0); \
             CREATE TABLE event (session INTEGER NOT NULL REFERENCES session (key), \
             seq INTEGER NOT NULL, at_ms INTEGER NOT NULL, run TEXT NOT NULL, body TEXT NOT NULL, \
             PRIMARY KEY (session, seq)) WITHOUT ROWID",
        )
        .expect("a schema");
    let mut insert =
        database.prepare("INSERT INTO event VALUES (1, ?1, ?2, ?3, ?4)").expect("it is SQL");
    let mut update = database
        .prepare("UPDATE session SET last_seq = ?1, bytes = bytes + ?2 WHERE key = 1")
        .expect("it is SQL");
    let mut waits = Vec::new();
    let begun = Instant::now();
    for seq in 1_i64.. {
        let at = Instant::now();
        database.execute_batch("BEGIN IMMEDIATE").expect("it begins");
        insert.execute(params![seq, seq, "w1-1", BODY]).expect("it is there");
        update.execute(params![seq, BODY.len() as i64]).expect("it is there");
        database.execute_batch("COMMIT").expect("it is committed");
        waits.push(at.elapsed());
        if begun.elapsed() > time {
            break;
        }
    }
    Measured::of(waits, begun.elapsed())
}

fn name(session: usize) -> SessionId {
    SessionId::new(format!("s{session}"))
}

fn event(run: &Arc<str>) -> Change {
    Change::Event { run: Arc::clone(run), body: Body::Text(Arc::from(BODY)) }
}

fn say(
    store: &dyn Store,
    session: &SessionId,
    class: Class,
    changes: Vec<Change>,
) -> oneshot::Receiver<Result<Recorded, StoreError>> {
    let (tell, told) = oneshot::channel();
    let then = move |recorded| drop(tell.send(recorded));
    store.write(Write { session: session.clone(), changes, class, then: Some(Box::new(then)) });
    told
}

fn created(store: &dyn Store, session: &SessionId) {
    let settings = Body::from("{}".to_owned());
    let created = Change::Created { agent: "assistant".to_owned(), settings };
    let told = say(store, session, Class::Promise, vec![created]);
    // A session of an earlier measurement goes on.
    drop(told.blocking_recv().expect("it is told"));
}

/// Each session promises one event after the other.
fn promises(store: &Arc<Sqlite>, sessions: usize, time: Duration) -> Measured {
    in_flight(store, sessions, time, Class::Promise, 1)
}

/// Each session goes on while up to a hundred of its events are on their way.
fn streams(store: &Arc<Sqlite>, sessions: usize, time: Duration) -> Measured {
    in_flight(store, sessions, time, Class::Owed, 100)
}

/// Sessions are tasks, as they are in a host.
fn in_flight(
    store: &Arc<Sqlite>,
    sessions: usize,
    time: Duration,
    class: Class,
    most: usize,
) -> Measured {
    for session in 0..sessions {
        created(&**store, &name(session));
    }
    let control = tokio::runtime::Runtime::new().expect("a runtime");
    let begun = Instant::now();
    let one = |session: usize| {
        let (store, name, run) = (Arc::clone(store), name(session), Arc::from("w1-1"));
        async move {
            let mut waits = Vec::new();
            let mut flying = std::collections::VecDeque::new();
            while begun.elapsed() < time || !flying.is_empty() {
                while begun.elapsed() < time && flying.len() < most {
                    let at = Instant::now();
                    flying.push_back((at, say(&*store, &name, class, vec![event(&run)])));
                }
                if let Some((at, told)) = flying.pop_front() {
                    told.await.expect("it is told").expect("it is recorded");
                    waits.push(at.elapsed());
                }
            }
            waits
        }
    };
    let waits = control.block_on(async {
        let tasks: Vec<_> = (0..sessions).map(|session| tokio::spawn(one(session))).collect();
        let mut waits = Vec::new();
        for task in tasks {
            waits.extend(task.await.expect("it ends"));
        }
        waits
    });
    Measured::of(waits, begun.elapsed())
}

fn in_memory() {
    let store = Memory::new(Retention::memory());
    let (session, run) = (name(0), Arc::from("w1-1"));
    created(&store, &session);
    let writes = 1_000_000;
    let begun = Instant::now();
    for _ in 0..writes {
        store.write(Write {
            session: session.clone(),
            changes: vec![event(&run)],
            class: Class::Owed,
            then: None,
        });
    }
    println!(
        "{:<56} {:>10.0}",
        "in memory, one session",
        writes as f64 / begun.elapsed().as_secs_f64()
    );
}

fn opening(path: &Path, sessions: usize, messages: usize) {
    let store = Sqlite::open(path, Retention::default()).expect("it opens");
    let mut told = Vec::new();
    for session in 0..sessions {
        let settings = Body::from("{\"model\":\"default\",\"budget\":100000}".to_owned());
        let mut changes = vec![Change::Created { agent: "assistant".to_owned(), settings }];
        let body = || Body::Text(Arc::from(BODY));
        changes.extend((0..messages).map(|_| Change::Message { body: body() }));
        told.push(say(&store, &name(session), Class::Owed, changes));
    }
    for told in told {
        told.blocking_recv().expect("it is told").expect("it is recorded");
    }
    close(&store);
    drop(store);
    let bytes = std::fs::metadata(path).expect("it is there").len();
    println!("{sessions} sessions of {messages} messages each, {} MiB:", bytes >> 20);
    // In a process of its own: what this one has given back would hide what the rows take.
    let program = std::env::current_exe().expect("this program has a path");
    let listed = Command::new(program).arg("--list").arg(path).status().expect("it starts");
    assert!(listed.success(), "it lists");
}

/// Opens a database, and lists what is in it.
fn listing(path: &Path) {
    let before = resident();
    let begun = Instant::now();
    let store = Sqlite::open(path, Retention::default()).expect("it opens");
    let opened = begun.elapsed();
    let rows = wait(store.sessions(None, usize::MAX)).expect("a list");
    let unfinished = wait(store.unfinished()).expect("a list");
    let listed = begun.elapsed();
    println!(
        "opened in {opened:.1?}, {} listed in {listed:.1?}, {} of them unfinished, {:.0} bytes of memory for each",
        rows.len(),
        unfinished.len(),
        resident().saturating_sub(before) as f64 / rows.len() as f64
    );
    serving(path, &Arc::new(store), rows.len());
}

/// Opens a profile on it, as a host does when it is started again: its sessions sleep.
fn serving(path: &Path, store: &Arc<Sqlite>, sessions: usize) {
    let control = tokio::runtime::Runtime::new().expect("a runtime");
    let _in_control = control.enter();
    let host = Host::builder(Compilation::InProcess)
        .without_first_party()
        .pool(Pool::Slots(16))
        .build()
        .expect("a host");
    let home = path.parent().expect("a folder").to_owned();
    let (before, begun) = (resident(), Instant::now());
    let settings = ProfileSettings {
        name: "idle".to_owned(),
        home,
        configuration: Configuration::default(),
        store: Arc::clone(store) as Arc<dyn Store>,
    };
    let profile = control.block_on(host.profile(settings)).expect("a profile");
    println!(
        "a profile on it opened in {:.1?}, {:.0} bytes of memory for each of {sessions} sessions that sleep",
        begun.elapsed(),
        resident().saturating_sub(before) as f64 / sessions as f64
    );
    drop(profile);
    close(store);
}

fn close(store: &Sqlite) {
    wait(store.close()).expect("it closes");
}

/// Waits for a read.
fn wait<T>(read: checkrein::store::Read<T>) -> Result<T, StoreError> {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(read)
}

/// Bytes of memory that this process holds.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.and_then(|line| line.split_whitespace().next());
    words.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1_024
}
