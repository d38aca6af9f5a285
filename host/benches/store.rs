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
    let time = Duration::from_millis(if quick { 200 } else { 1_000 });
    let mut direct = Direct::open(&folder.join("direct.db"));
    println!("{:<48} {:>10} {:>8} {:>8}", "", "events/s", "p50 ms", "p99 ms");
    for sessions in [1, 100] {
        let path = folder.join(format!("{sessions}.db"));
        let store = Arc::new(Sqlite::open(&path, Retention::default()).expect("it opens"));
        (0..sessions).for_each(|session| created(&*store, &name(session)));
        let promises = format!("promises, {sessions} sessions, one in flight each");
        let p99 = beside(&mut direct, &promises, time, || {
            in_flight(&store, sessions, time, Class::Promise, 1)
        });
        own_commits(&store, p99);
        let owed = format!("owed, {sessions} sessions, up to 100 in flight each");
        beside(&mut direct, &owed, time, || in_flight(&store, sessions, time, Class::Owed, 100));
        close(&store);
    }
    in_memory();
    let counts: &[(usize, usize)] = if quick { &[(1_000, 100)] } else { &[(10_000, 100)] };
    for (sessions, messages) in counts {
        opening(&folder.join("idle.db"), *sessions, *messages);
    }
    std::fs::remove_dir_all(&folder).expect("it goes");
}

/// Rounds of each measurement.
const ROUNDS: usize = 9;

struct Measured {
    rate: f64,
    waits: Vec<Duration>,
}

impl Measured {
    fn of(mut waits: Vec<Duration>, took: Duration) -> Measured {
        waits.sort_unstable();
        Measured { rate: waits.len() as f64 / took.as_secs_f64(), waits }
    }

    /// Milliseconds.
    fn at(&self, of_thousand: usize) -> f64 {
        let index = (self.waits.len() * of_thousand / 1_000).min(self.waits.len() - 1);
        self.waits[index].as_secs_f64() * 1e3
    }
}

fn middle(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Measures in turn with the baseline, so that noise of the machine meets both. Every figure is the middle of its rounds.
/// Gives that of ours below which 99 of 100 waits are, in milliseconds.
fn beside(
    direct: &mut Direct,
    what: &str,
    time: Duration,
    mut ours: impl FnMut() -> Measured,
) -> f64 {
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (direct.round(time), ours())).collect();
    let figures = |of: fn(&(Measured, Measured)) -> &Measured| {
        let rate = middle(rounds.iter().map(|round| of(round).rate));
        let at = |thousand| middle(rounds.iter().map(|round| of(round).at(thousand)));
        (rate, at(500), at(990))
    };
    let ratio = |figure: &dyn Fn(&Measured) -> f64| {
        middle(rounds.iter().map(|(direct, ours)| figure(ours) / figure(direct)))
    };
    let (rate, p50, p99) = figures(|round| &round.0);
    println!("{:<48} {rate:>10.0} {p50:>8.3} {p99:>8.3}", "directly, one commit per event");
    let (rate, p50, p99) = figures(|round| &round.1);
    println!("{what:<48} {rate:>10.0} {p50:>8.3} {p99:>8.3}");
    println!(
        "{:<48} {:>8.1} × {:>6.1} × {:>6.1} ×",
        "",
        ratio(&|one| one.rate),
        ratio(&|one| one.at(500)),
        ratio(&|one| one.at(990))
    );
    p99
}

/// How large the store's own commits were and how long they took, and such a wait in them.
fn own_commits(store: &Sqlite, p99: f64) {
    let (health, times) = (store.health(), store.commit_times().expect("they are counted"));
    let took = times.seconds / times.count as f64 * 1e3;
    println!(
        "{:<48} {:.1} writes in a commit of {took:.3} ms; p99 is {:.1} of them",
        "",
        health.writes as f64 / health.commits as f64,
        p99 / took
    );
}

/// Sessions of the baseline.
const SESSIONS: usize = 100;

/// The same rows in the same tables without the store: a commit for each event, one after the other.
struct Direct {
    database: Connection,
    /// The number and the place of each session's newest event.
    newest: Vec<(i64, i64)>,
}

impl Direct {
    fn open(path: &Path) -> Direct {
        let store = Sqlite::open(path, Retention::default()).expect("it opens");
        (0..SESSIONS).for_each(|session| created(&store, &name(session)));
        close(&store);
        drop(store);
        let database = Connection::open(path).expect("it opens");
        database
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON",
            )
            .expect("it is set");
        Direct { database, newest: vec![(0, 0); SESSIONS] }
    }

    fn round(&mut self, time: Duration) -> Measured {
        let insert = "INSERT INTO journal (session, seq, before, at_ms, run, body) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let mut insert = self.database.prepare(insert).expect("it is SQL");
        let update = "UPDATE extent SET last_seq = ?2, newest = ?3, \
                      event_bytes = event_bytes + ?4, updated_ms = ?5 WHERE session = ?1";
        let mut update = self.database.prepare(update).expect("it is SQL");
        let mut waits = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < time {
            for (key, (seq, newest)) in (1_i64..).zip(&mut self.newest) {
                let at = Instant::now();
                self.database.execute_batch("BEGIN IMMEDIATE").expect("it begins");
                let (before, at_ms) = (*newest, 1_764_547_200_000_i64 + *seq);
                *seq += 1;
                let row = params![key, *seq, before, at_ms, "w1-1", BODY];
                *newest = insert.insert(row).expect("it is there");
                let row = params![key, *seq, *newest, BODY.len() as i64, at_ms];
                update.execute(row).expect("it is there");
                self.database.execute_batch("COMMIT").expect("it is committed");
                waits.push(at.elapsed());
            }
        }
        Measured::of(waits, begun.elapsed())
    }
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
    told.blocking_recv().expect("it is told").expect("it is recorded");
}

/// Sessions are tasks, as they are in a host.
fn in_flight(
    store: &Arc<Sqlite>,
    sessions: usize,
    time: Duration,
    class: Class,
    most: usize,
) -> Measured {
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
