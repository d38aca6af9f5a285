//! What becomes of writes when the database does not take them, and of others meanwhile.

use std::collections::VecDeque;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;

use super::talk::{
    LONG, all_events, block_on, bodies, created, event, id, message, messages, promise, queue, row,
    until,
};
use crate::store::sqlite::{Faults, Options, Point};
use crate::store::{
    Body, Change, Class, Encode, Recorded, Retention, Sqlite, Store, StoreError, Write,
};

type Script = Arc<Mutex<VecDeque<(Point, Does)>>>;

/// What happens at a point.
enum Does {
    /// It fails.
    Fail,
    /// The writer's connection is told something, before it goes on.
    Say(&'static str),
}

/// A database that can be made to fail.
struct Bed {
    folder: TempDir,
    script: Script,
    store: Sqlite,
}

impl Bed {
    fn new() -> Bed {
        let folder = TempDir::new().expect("a folder");
        let script = Script::default();
        let told = Arc::clone(&script);
        let failing = move |point: Point, connection: &Connection| {
            let mut script = told.lock().expect("it is not poisoned");
            while script.front().is_some_and(|(at, _)| *at == point) {
                match script.pop_front() {
                    Some((_, Does::Say(sql))) => connection.execute_batch(sql).expect("it is SQL"),
                    _ => return Some(StoreError::Full("injected".to_owned())),
                }
            }
            None
        };
        let faults = Faults(Some(Arc::new(failing)));
        let options = Options { retention: Retention::default(), faults };
        let store = Sqlite::open_with(&folder.path().join("store.db"), options).expect("it opens");
        promise(&store, "s1", vec![created()]).expect("a session");
        Bed { folder, script, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    /// The next visits to that point fail.
    fn fails(&self, point: Point, times: usize) {
        let mut script = self.script.lock().expect("it is not poisoned");
        script.extend((0..times).map(|_| (point, Does::Fail)));
    }

    /// The writer's connection is told something before it writes next.
    fn says(&self, sql: &'static str) {
        let mut script = self.script.lock().expect("it is not poisoned");
        script.push_back((Point::Begin, Does::Say(sql)));
    }

    /// Writes that are queued while the writer is busy with another, so that they are one batch.
    fn together(
        &self,
        writes: Vec<(Class, Vec<Change>)>,
        before: impl FnOnce(),
    ) -> Vec<super::talk::Pending> {
        let (free, freed) = mpsc::channel::<()>();
        let (busy, is_busy) = mpsc::channel();
        let then = move |_: Result<Recorded, StoreError>| {
            busy.send(()).expect("somebody waits");
            freed.recv_timeout(LONG).expect("it is freed");
        };
        self.store.write(Write {
            session: id("s1"),
            changes: vec![],
            class: Class::Owed,
            then: Some(Box::new(then)),
        });
        is_busy.recv_timeout(LONG).expect("the writer is busy");
        before();
        let queued = |(class, changes)| queue(&self.store, "s1", class, changes);
        let pending = writes.into_iter().map(queued).collect();
        free.send(()).expect("the writer waits");
        pending
    }

    /// Opened again: what is really there.
    fn again(self) -> (TempDir, Sqlite) {
        block_on(self.store.close()).expect("it closes");
        drop(self.store);
        let path = self.folder.path().join("store.db");
        sound(&path);
        let store = Sqlite::open(path, Retention::default()).expect("it opens again");
        (self.folder, store)
    }
}

fn sound(path: &PathBuf) {
    let database = Connection::open(path).expect("it opens");
    let said: String =
        database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(said, "ok");
    let astray = database
        .prepare("PRAGMA foreign_key_check")
        .and_then(|mut check| check.exists([]))
        .expect("a check");
    assert!(!astray, "a row belongs to nothing");
}

/// What every failure has to leave behind: `owed-1`, `owed-2` and no promise.
fn owed_and_nothing_else(store: &Sqlite) {
    let events = all_events(store, "s1", 9);
    assert_eq!(bodies(&events), ["owed-1", "owed-2"]);
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(promise(store, "s1", vec![event("next")]).expect("it goes on").seq, 3);
}

fn mixed() -> Vec<(Class, Vec<Change>)> {
    vec![
        (Class::Promise, vec![event("promise-1")]),
        (Class::Owed, vec![event("owed-1")]),
        (Class::Promise, vec![event("promise-2"), message("promise-2")]),
        (Class::Owed, vec![event("owed-2")]),
    ]
}

#[test]
fn wherever_a_write_fails_promises_hear_so_and_what_is_owed_is_written() {
    for point in [Point::Begin, Point::Step, Point::Heads, Point::Commit] {
        for times in [1, 3] {
            let bed = Bed::new();
            let pending = bed.together(mixed(), || bed.fails(point, times));
            let told: Vec<_> = pending.into_iter().map(super::talk::Pending::wait).collect();
            let full = Err(StoreError::Full("injected".to_owned()));
            assert_eq!(told[0], full, "{point:?}");
            assert_eq!(told[1].as_ref().map(|recorded| recorded.seq), Ok(1), "{point:?}");
            assert_eq!(told[2], full, "{point:?}");
            assert_eq!(told[3].as_ref().map(|recorded| recorded.seq), Ok(2), "{point:?}");
            assert_eq!(bed.store.health().failing, None);
            assert_eq!(bed.store.health().queued_bytes, 0);
            let (_folder, store) = bed.again();
            owed_and_nothing_else(&store);
            assert!(messages(&store, "s1").is_empty());
        }
    }
}

#[test]
fn a_store_that_fails_says_why_and_recovers_by_itself() {
    let bed = Bed::new();
    // Far more attempts than there is backoff in this test: it is failing until the script is cleared.
    bed.fails(Point::Commit, 1_000);
    let owed = queue(&bed.store, "s1", Class::Owed, vec![event("owed-1")]);
    until(|| bed.store.health().failing.is_some());
    let failing = bed.store.health().failing.expect("it fails");
    assert!(failing.contains("disk is full (injected)"), "{failing}");
    assert!(bed.store.health().queued_bytes > 0);
    assert!(owed.told().is_none());
    // Readers are served meanwhile, and see nothing of it.
    assert_eq!(row(&bed.store, "s1").last_seq, 0);
    // A new promise is told at once.
    let refused = promise(&bed.store, "s1", vec![event("promise")]);
    assert_eq!(refused, Err(StoreError::Full("injected".to_owned())));
    let second = queue(&bed.store, "s1", Class::Owed, vec![event("owed-2")]);
    bed.script.lock().expect("it is not poisoned").clear();
    assert_eq!(owed.wait().expect("it is written").seq, 1);
    assert_eq!(second.wait().expect("it is written").seq, 2);
    until(|| bed.store.health().failing.is_none());
    let (_folder, store) = bed.again();
    owed_and_nothing_else(&store);
}

#[test]
fn a_store_that_has_nothing_to_write_sees_that_it_may_write_again() {
    let bed = Bed::new();
    bed.fails(Point::Commit, 2);
    assert!(promise(&bed.store, "s1", vec![event("promise")]).is_err());
    assert!(bed.store.health().failing.is_some());
    until(|| bed.store.health().failing.is_none());
}

#[test]
fn promises_behind_a_long_row_of_what_is_owed_are_told() {
    let bed = Bed::new();
    bed.fails(Point::Commit, 1_000);
    let owed: Vec<_> = (0..5_000)
        .map(|n| queue(&bed.store, "s1", Class::Owed, vec![event(&n.to_string())]))
        .collect();
    assert!(promise(&bed.store, "s1", vec![event("promise")]).is_err());
    bed.script.lock().expect("it is not poisoned").clear();
    for (n, owed) in (1..).zip(owed) {
        assert_eq!(owed.wait().expect("it is written").seq, n);
    }
    assert_eq!(row(&bed.store, "s1").last_seq, 5_000);
}

#[test]
fn closing_says_what_could_not_be_written() {
    let bed = Bed::new();
    bed.fails(Point::Commit, 1_000);
    let owed = queue(&bed.store, "s1", Class::Owed, vec![event("owed-1")]);
    let closed = block_on(bed.store.close());
    let full = StoreError::Full("injected".to_owned());
    assert_eq!(closed, Err(full.clone()));
    assert_eq!(owed.wait(), Err(full.clone()));
    assert_eq!(block_on(bed.store.close()), Err(full));
    let path = bed.path();
    let Bed { folder, store, .. } = bed;
    drop(store);
    let store = Sqlite::open(path, Retention::default()).expect("it opens");
    assert_eq!(row(&store, "s1").last_seq, 0);
    drop(store);
    drop(folder);
}

/// A true `SQLITE_FULL`: the database is at its own bound of pages.
#[test]
fn a_full_disk_refuses_promises_and_keeps_what_is_owed() {
    let bed = Bed::new();
    bed.says("PRAGMA max_page_count = 40");
    let large = "x".repeat(300_000);
    let refused = promise(&bed.store, "s1", vec![event(&large)]);
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    let owed = queue(&bed.store, "s1", Class::Owed, vec![event(&large)]);
    let small = queue(&bed.store, "s1", Class::Owed, vec![event("owed-2")]);
    until(|| bed.store.health().failing.is_some());
    assert!(owed.told().is_none() && small.told().is_none());
    assert_eq!(row(&bed.store, "s1").last_seq, 0, "readers are served");
    bed.says("PRAGMA max_page_count = 4294967294");
    assert_eq!(owed.wait().expect("it is written").seq, 1);
    assert_eq!(small.wait().expect("it is written").seq, 2);
    let (_folder, store) = bed.again();
    let events = all_events(&store, "s1", 9);
    assert_eq!(events.iter().map(|event| event.body.len()).collect::<Vec<_>>(), [300_000, 6]);
}

/// Another connection holds the database for itself.
#[test]
fn a_locked_database_refuses_promises_and_keeps_what_is_owed() {
    let bed = Bed::new();
    let other = Connection::open(bed.path()).expect("it opens");
    other.execute_batch("BEGIN EXCLUSIVE").expect("it is held");
    let pending = together_while_locked(&bed.store);
    let told = pending.0.wait();
    assert!(matches!(told, Err(StoreError::Locked(_))), "{told:?}");
    assert!(bed.store.health().failing.expect("it fails").contains("another process"));
    assert_eq!(row(&bed.store, "s1").last_seq, 0, "readers are served");
    other.execute_batch("COMMIT").expect("it is let go");
    assert_eq!(pending.1.wait().expect("it is written").seq, 1);
    assert_eq!(pending.2.wait().expect("it is written").seq, 2);
    drop(other);
    let (_folder, store) = bed.again();
    owed_and_nothing_else(&store);
}

fn together_while_locked(
    store: &Sqlite,
) -> (super::talk::Pending, super::talk::Pending, super::talk::Pending) {
    let first = queue(store, "s1", Class::Owed, vec![event("owed-1")]);
    let promise = queue(store, "s1", Class::Promise, vec![event("promise")]);
    let second = queue(store, "s1", Class::Owed, vec![event("owed-2")]);
    (promise, first, second)
}

/// What another process writes is not overwritten by what the writer remembers.
#[test]
fn what_somebody_else_wrote_is_seen() {
    let bed = Bed::new();
    promise(&bed.store, "s1", vec![event("owed-1")]).expect("it is");
    let other = Connection::open(bed.path()).expect("it opens");
    other
        .execute_batch(
            "BEGIN IMMEDIATE; INSERT INTO journal VALUES (2, 1, 2, 1, 0, 'run', 'owed-2'); \
             UPDATE extent SET last_seq = 2, newest = 2 WHERE session = 1; COMMIT",
        )
        .expect("it writes");
    drop(other);
    owed_and_nothing_else(&bed.store);
}

/// An event that is not where the next one says it is: no page goes round it.
#[test]
fn a_gap_in_the_events_of_a_session_is_said() {
    let bed = Bed::new();
    for session in ["s1", "s2"] {
        drop(promise(&bed.store, session, vec![created()]));
        promise(&bed.store, session, (1..=100).map(|n| event(&n.to_string())).collect())
            .expect("it is");
    }
    let other = Connection::open(bed.path()).expect("it opens");
    other.execute("DELETE FROM journal WHERE session = 1 AND seq = 30", []).expect("it writes");
    let gap = block_on(bed.store.events(&id("s1"), 10, 9, 999)).expect_err("it is not there");
    assert!(matches!(&gap, StoreError::Corrupt(said) if said.contains("event 30")), "{gap}");
    assert_eq!(
        block_on(bed.store.events(&id("s1"), 64, 99, 999)).expect("a page").events.len(),
        36
    );
    assert_eq!(all_events(&bed.store, "s2", 99).len(), 100);
}

#[test]
fn a_read_only_database_refuses_promises_and_keeps_what_is_owed() {
    let bed = Bed::new();
    bed.says("PRAGMA query_only = 1");
    let owed = queue(&bed.store, "s1", Class::Owed, vec![event("owed-1")]);
    let told = promise(&bed.store, "s1", vec![event("promise")]);
    assert!(matches!(told, Err(StoreError::ReadOnly(_))), "{told:?}");
    let second = queue(&bed.store, "s1", Class::Owed, vec![event("owed-2")]);
    assert_eq!(row(&bed.store, "s1").last_seq, 0, "readers are served");
    bed.says("PRAGMA query_only = 0");
    assert_eq!(owed.wait().expect("it is written").seq, 1);
    assert_eq!(second.wait().expect("it is written").seq, 2);
    let (_folder, store) = bed.again();
    owed_and_nothing_else(&store);
}

/// Pages of the file are overwritten. The store says so, and another one is not touched by it.
#[test]
fn a_damaged_database_says_so_and_others_go_on() {
    let bed = Bed::new();
    for n in 0..200 {
        let body = format!("{n}{}", "x".repeat(2_000));
        promise(&bed.store, "s1", vec![event(&body)]).expect("it is");
    }
    let path = bed.path();
    let Bed { folder, store, .. } = bed;
    block_on(store.close()).expect("it closes");
    drop(store);
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it opens");
    let length = file.metadata().expect("it is there").len();
    // All but the first pages, where the schema is.
    let from = 4_096 * 24;
    file.write_all_at(&vec![0xa5; (length - from) as usize], from).expect("it is damaged");
    let store = Sqlite::open(&path, Retention::default()).expect("the schema is whole");
    let mut corrupt = Vec::new();
    let read = block_on(store.events(&id("s1"), 0, 1_000, usize::MAX));
    corrupt.push(read.err());
    let owed = queue(&store, "s1", Class::Owed, vec![event("owed")]);
    let told = promise(&store, "s1", vec![event("promise")]);
    corrupt.push(told.err());
    for error in corrupt {
        assert!(matches!(error, Some(StoreError::Corrupt(_))), "{error:?}");
    }
    assert!(store.health().failing.expect("it fails").contains("damaged"));
    assert!(owed.told().is_none());
    let other = Bed::new();
    promise(&other.store, "s1", vec![event("other")]).expect("others go on");
    assert!(block_on(store.close()).is_err());
    assert!(matches!(owed.wait(), Err(StoreError::Corrupt(_))));
    drop(store);
    drop(folder);
}

#[test]
fn what_hears_of_a_write_may_panic() {
    let bed = Bed::new();
    for class in [Class::Promise, Class::Owed] {
        bed.store.write(Write {
            session: id("s1"),
            changes: vec![event("1")],
            class,
            then: Some(Box::new(|_| panic!("this one panics, and a test says that it may"))),
        });
    }
    assert_eq!(promise(&bed.store, "s1", vec![event("3")]).expect("it goes on").seq, 3);
}

struct Wordless;

impl Encode for Wordless {
    fn encode(&self) -> String {
        panic!("this one has no words, and a test says that it may")
    }

    fn weight(&self) -> usize {
        1
    }
}

#[test]
fn what_cannot_be_put_into_words_is_refused_alone() {
    let bed = Bed::new();
    let wordless = Change::Event { run: Arc::from("run"), body: Body::Later(Arc::new(Wordless)) };
    let pending = bed.together(
        vec![
            (Class::Owed, vec![event("owed-1")]),
            (Class::Owed, vec![event("no"), wordless]),
            (Class::Owed, vec![event("owed-2")]),
        ],
        || {},
    );
    let told: Vec<_> = pending.into_iter().map(super::talk::Pending::wait).collect();
    assert!(matches!(told[1], Err(StoreError::Invalid(_))), "{:?}", told[1]);
    owed_and_nothing_else(&bed.store);
}

/// SQLite itself refuses one write of a batch.
#[test]
fn what_the_database_does_not_take_is_refused_alone() {
    let bed = Bed::new();
    bed.says(
        "CREATE TEMP TRIGGER refuses BEFORE INSERT ON main.journal WHEN new.body = 'refused' \
         BEGIN SELECT RAISE(ABORT, 'not this one'); END",
    );
    let pending = bed.together(
        vec![
            (Class::Owed, vec![event("owed-1")]),
            (Class::Owed, vec![event("no"), event("refused")]),
            (Class::Promise, vec![event("refused")]),
            (Class::Owed, vec![event("owed-2")]),
        ],
        || {},
    );
    let told: Vec<_> = pending.into_iter().map(super::talk::Pending::wait).collect();
    assert!(matches!(told[1], Err(StoreError::Invalid(_))), "{:?}", told[1]);
    assert!(matches!(told[2], Err(StoreError::Invalid(_))), "{:?}", told[2]);
    assert_eq!(bed.store.health().failing, None);
    owed_and_nothing_else(&bed.store);
}

#[test]
fn a_store_may_be_dropped_by_whoever_hears_of_a_write() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Arc::new(Sqlite::open(&path, Retention::default()).expect("it opens"));
    promise(&*store, "s1", vec![created()]).expect("it is");
    let last = Arc::clone(&store);
    let dropped = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&dropped);
    let (go, gone) = mpsc::channel::<()>();
    let then = move |_: Result<Recorded, StoreError>| {
        gone.recv_timeout(LONG).expect("it may go");
        drop(last);
        says.store(true, Ordering::Release);
    };
    store.write(Write {
        session: id("s1"),
        changes: vec![event("owed-1")],
        class: Class::Owed,
        then: Some(Box::new(then)),
    });
    let after = queue(&*store, "s1", Class::Owed, vec![event("owed-2")]);
    drop(store);
    go.send(()).expect("it waits");
    assert_eq!(after.wait().expect("what was queued is written").seq, 2);
    assert!(dropped.load(Ordering::Acquire));
    // Its threads end by themselves, and nothing of the log is left then.
    until(|| !path.with_extension("db-wal").exists());
    let store = Sqlite::open(&path, Retention::default()).expect("it opens");
    owed_and_nothing_else(&store);
}

#[test]
fn a_store_that_is_dropped_has_written_what_was_queued_and_has_no_threads_left() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Sqlite::open(&path, Retention::default()).expect("it opens");
    promise(&store, "s1", vec![created()]).expect("it is");
    for name in ["owed-1", "owed-2"] {
        store.write(Write {
            session: id("s1"),
            changes: vec![event(name)],
            class: Class::Owed,
            then: None,
        });
    }
    drop(store);
    assert!(!path.with_extension("db-wal").exists());
    assert!(!path.with_extension("db-shm").exists());
    let store = Sqlite::open(&path, Retention::default()).expect("it opens");
    owed_and_nothing_else(&store);
}

#[test]
fn the_files_are_their_owners_alone() {
    let bed = Bed::new();
    promise(&bed.store, "s1", vec![event("1")]).expect("it is");
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        let found = std::fs::metadata(bed.folder.path().join(file)).expect("it is there");
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{file}");
    }
    let path = bed.path();
    let Bed { folder, store, .. } = bed;
    drop(store);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is set");
    let store = Sqlite::open(&path, Retention::default()).expect("it opens");
    let found = std::fs::metadata(&path).expect("it is there");
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    drop(store);
    drop(folder);
}

#[test]
fn a_path_that_is_no_store_is_refused_with_words() {
    let folder = TempDir::new().expect("a folder");
    let refused = |path: PathBuf| {
        Sqlite::open(path, Retention::default()).expect_err("it is no store").to_string()
    };
    let said = refused(folder.path().to_owned());
    assert!(said.contains("it is a folder"), "{said}");
    let said = refused(folder.path().join("no/store.db"));
    assert!(said.contains("its folder is not there"), "{said}");
    let text = folder.path().join("text");
    std::fs::write(&text, "this is no database, and long enough to be looked at\n".repeat(40))
        .expect("it is written");
    let said = refused(text.clone());
    assert!(said.contains("not a database"), "{said}");
    assert!(std::fs::read_to_string(&text).expect("it is there").starts_with("this is no"));
    let other = folder.path().join("other.db");
    Connection::open(&other).expect("it opens").execute_batch("CREATE TABLE t (a)").expect("it");
    let said = refused(other);
    assert!(said.contains("another program"), "{said}");
}

#[test]
fn time_passes_while_the_store_tries_again() {
    // Three attempts take at least the two pauses between them.
    let bed = Bed::new();
    bed.fails(Point::Begin, 3);
    let begun = Instant::now();
    let owed = queue(&bed.store, "s1", Class::Owed, vec![event("owed-1")]);
    assert_eq!(owed.wait().expect("it is written").seq, 1);
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
}
