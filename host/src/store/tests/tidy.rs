//! What a database drops, when, and what it never drops.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use tempfile::TempDir;

use super::talk::{
    accepted, began, block_on, created, done, event, message, messages, promise, queue, read, row,
    text, units, until,
};
use crate::store::sqlite::{Faults, Options, Point};
use crate::store::{Change, Class, Retention, Sqlite, Store, StoreError};

fn small() -> Retention {
    Retention { events_per_session: 100, read_units_per_session: 4, ..Retention::default() }
}

struct Bed {
    folder: TempDir,
    /// Whether nothing can be dropped.
    stuck: Arc<AtomicBool>,
    store: Sqlite,
}

impl Bed {
    fn new(retention: Retention) -> Bed {
        let folder = TempDir::new().expect("a folder");
        let stuck = Arc::new(AtomicBool::new(false));
        let is_stuck = Arc::clone(&stuck);
        let failing = move |point: Point, _: &Connection| {
            let stuck = point == Point::Tidy && is_stuck.load(Ordering::Acquire);
            stuck.then(|| StoreError::Full("injected".to_owned()))
        };
        let options = Options { retention, faults: Faults(Some(Arc::new(failing))) };
        let store = Sqlite::open_with(&folder.path().join("store.db"), options).expect("it opens");
        promise(&store, "s1", vec![created()]).expect("a session");
        Bed { folder, stuck, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }
}

/// Rows of all tables but those of the sessions.
fn rows(path: &Path) -> Vec<i64> {
    let database = Connection::open(path).expect("it opens");
    ["journal", "mark", "message", "memory", "open_run", "kept", "unit", "child"]
        .iter()
        .map(|table| {
            let sql = format!("SELECT count(*) FROM {table}");
            database.query_row(&sql, [], |row| row.get(0)).expect("a number")
        })
        .collect()
}

fn everything(store: &Sqlite, name: &str, unit: u64) {
    let run = |run: &str| Change::RunBegan { run: Arc::from(run), body: text("aside") };
    let child = Change::ChildEnded { unit, task: 0, body: text("child") };
    let kept = Change::Kept { run: Arc::from("side"), body: text("kept") };
    let memory = Change::Memory { key: "key".to_owned(), value: Some(vec![1]) };
    let changes = vec![
        event("1"),
        message("1"),
        memory,
        run("side"),
        kept,
        accepted(unit),
        child,
        done(unit),
        read(unit),
    ];
    promise(store, name, changes).expect("it is");
    let many = (0..3_000).map(|_| event(&"x".repeat(100))).collect();
    promise(store, name, many).expect("it is");
}

/// A few bytes and commits, after which nobody writes: it is known how large it is all the same.
#[test]
fn how_large_it_is_is_known_when_nobody_writes() {
    let bed = Bed::new(Retention::default());
    let before = bed.store.health().bytes;
    promise(&bed.store, "s1", vec![event(&"x".repeat(100_000))]).expect("it is");
    until(|| bed.store.health().bytes >= before + 50_000);
}

#[test]
fn nothing_is_left_of_a_deleted_session_and_the_disk_has_its_room_back() {
    let bed = Bed::new(Retention::default());
    everything(&bed.store, "s1", 1);
    promise(&bed.store, "s2", vec![created(), event("other")]).expect("a session");
    block_on(bed.store.compact()).expect("it compacts");
    let before = std::fs::metadata(bed.path()).expect("it is there").len();
    promise(&bed.store, "s1", vec![Change::Deleted]).expect("nothing holds it");
    block_on(bed.store.compact()).expect("it compacts");
    assert_eq!(rows(&bed.path()), [1, 0, 0, 0, 0, 0, 0, 0]);
    let after = std::fs::metadata(bed.path()).expect("it is there").len();
    assert!(after < before / 4, "{after} of {before}");
    assert_eq!(bed.store.health().bytes, after);
}

/// A process that ends after a deletion leaves rows behind, and the next one drops them when it has time.
#[test]
fn what_a_deleted_session_left_goes_when_there_is_time() {
    let bed = Bed::new(Retention::default());
    bed.stuck.store(true, Ordering::Release);
    everything(&bed.store, "s1", 1);
    promise(&bed.store, "s1", vec![Change::Deleted]).expect("nothing holds it");
    let path = bed.path();
    let Bed { folder, store, .. } = bed;
    drop(store);
    assert_eq!(rows(&path), [3_001, 46, 1, 1, 1, 1, 1, 1]);
    let store = Sqlite::open(&path, Retention::default()).expect("it opens");
    until(|| rows(&path) == [0; 8]);
    drop(store);
    drop(folder);
}

/// What could not be dropped is not forgotten: it goes when something is written and there is time, whatever that is.
#[test]
fn what_could_not_be_dropped_goes_later() {
    let bed = Bed::new(Retention::default());
    promise(&bed.store, "s2", vec![created()]).expect("a session");
    bed.stuck.store(true, Ordering::Release);
    everything(&bed.store, "s1", 1);
    promise(&bed.store, "s1", vec![Change::Deleted]).expect("nothing holds it");
    // Whoever waits for it hears why nothing goes.
    block_on(bed.store.compact()).expect_err("nothing can be dropped");
    assert_eq!(rows(&bed.path()), [3_001, 46, 1, 1, 1, 1, 1, 1]);
    bed.stuck.store(false, Ordering::Release);
    promise(&bed.store, "s2", vec![message("on")]).expect("it goes on");
    until(|| rows(&bed.path()) == [0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn events_beyond_the_bound_go_when_there_is_time() {
    let bed = Bed::new(small());
    // Less than a tenth too many.
    promise(&bed.store, "s1", (1..=109).map(|n| event(&n.to_string())).collect()).expect("it is");
    until(|| row(&bed.store, "s1").first_seq == 10);
    assert_eq!(rows(&bed.path())[0], 100);
}

#[test]
fn a_great_many_events_go_piece_by_piece() {
    let bed = Bed::new(small());
    bed.stuck.store(true, Ordering::Release);
    let many = (0..10_000).map(|n| event(&n.to_string())).collect();
    promise(&bed.store, "s1", many).expect("it is");
    // The write itself has dropped a bounded piece.
    let first = row(&bed.store, "s1").first_seq;
    assert!((2..=2_000).contains(&first), "{first}");
    let refused = block_on(bed.store.compact());
    assert_eq!(refused, Err(StoreError::Full("injected".to_owned())));
    assert_eq!(row(&bed.store, "s1").first_seq, first);
    assert_eq!(promise(&bed.store, "s1", vec![event("on")]).expect("it goes on").seq, 10_001);
    bed.stuck.store(false, Ordering::Release);
    block_on(bed.store.compact()).expect("it compacts");
    let kept = row(&bed.store, "s1");
    assert_eq!((kept.first_seq, kept.last_seq), (9_902, 10_001));
    assert_eq!(rows(&bed.path())[0], 100);
    assert_eq!(promise(&bed.store, "s1", vec![event("on")]).expect("it goes on").seq, 10_002);
}

/// Rule C8: what waits to be delivered, what has not ended, and the conversation stay.
#[test]
fn what_is_waited_for_is_never_dropped() {
    let none = Retention {
        events_per_session: 0,
        event_bytes_per_session: 0,
        transcript_bytes_per_session: 0,
        read_units_per_session: 0,
        ..Retention::default()
    };
    let bed = Bed::new(none);
    let kept = Change::Kept { run: Arc::from("w"), body: text("kept") };
    let child = Change::ChildEnded { unit: 1, task: 0, body: text("child") };
    let changes = vec![began(1, "w"), kept, accepted(1), child, accepted(2), done(2)];
    promise(&bed.store, "s1", changes).expect("it is");
    promise(&bed.store, "s1", vec![message("m"), accepted(3), done(3), read(3)]).expect("it is");
    block_on(bed.store.compact()).expect("it compacts");
    let found = units(&bed.store, "s1");
    assert_eq!(found.iter().map(|unit| unit.unit).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(found[0].children.len(), 1);
    assert_eq!(messages(&bed.store, "s1"), ["m"]);
    let kept = block_on(bed.store.kept(&super::talk::id("s1"), "w")).expect("kept");
    assert_eq!(kept, ["kept"]);
}

#[test]
fn a_database_that_is_too_large_refuses_sessions_and_turns() {
    let bed = Bed::new(Retention { bytes: 400_000, ..Retention::default() });
    promise(&bed.store, "s1", vec![message(&"x".repeat(500_000))]).expect("it is kept");
    for (name, changes) in [("s2", vec![created()]), ("s1", vec![began(1, "w")])] {
        let refused = promise(&bed.store, name, changes);
        let Err(StoreError::TooLarge { limit, most, .. }) = &refused else { panic!("{refused:?}") };
        assert_eq!((*limit, *most), ("bytes", 400_000));
    }
    // What goes on goes on.
    promise(&bed.store, "s1", vec![event("1")]).expect("it is kept");
    promise(&bed.store, "s1", vec![Change::Deleted]).expect("nothing holds it");
    block_on(bed.store.compact()).expect("it compacts");
    promise(&bed.store, "s2", vec![created()]).expect("there is room again");
}

/// While many write, the bounds hold all the same.
#[test]
fn a_session_that_never_rests_stays_within_a_tenth_of_its_bounds() {
    let bed = Bed::new(small());
    let mut last = None;
    for n in 0..20_000 {
        last = Some(queue(&bed.store, "s1", Class::Owed, vec![event(&n.to_string())]));
    }
    last.expect("there were some").wait().expect("it is written");
    let kept = row(&bed.store, "s1");
    assert_eq!(kept.last_seq, 20_000);
    assert!(kept.last_seq + 1 - kept.first_seq <= 110, "{kept:?}");
}
