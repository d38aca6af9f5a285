//! Databases of every version of the schema that there ever was.

use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;

use super::talk::{
    accepted, all_events, block_on, bodies, done, ended, event, id, messages, promise, row, units,
};
use crate::store::sqlite::STEPS;
use crate::store::{Retention, Sqlite, Start, Store, StoreError, UnitState};

/// A database of each version, as SQL. All of them say the same.
const FIXTURES: &[&str] =
    &[include_str!("schema/1.sql"), include_str!("schema/2.sql"), include_str!("schema/3.sql")];

fn made_of(sql: &str, path: &Path) {
    let database = Connection::open(path).expect("it opens");
    database.execute_batch("PRAGMA journal_mode = WAL").expect("a mode");
    database.execute_batch(sql).expect("it is SQL");
}

#[test]
fn a_database_of_every_earlier_version_is_opened() {
    assert_eq!(FIXTURES.len(), STEPS.len(), "each version has its fixture in tests/schema");
    for (version, fixture) in (1..).zip(FIXTURES) {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("store.db");
        made_of(fixture, &path);
        for _ in 0..2 {
            let store = Sqlite::open(&path, Retention::default())
                .unwrap_or_else(|error| panic!("version {version}: {error}"));
            assert_eq!(store.start(), Start { next_session: 4, next_unit: 13 });
            let first = row(&store, "s1");
            assert_eq!((&*first.agent, &*first.settings), ("agent", "{\"a\":1}"));
            assert_eq!((first.created_ms, first.updated_ms), (1000, 2000));
            assert_eq!((first.generation, first.first_seq, first.last_seq), (2, 3, 4));
            assert_eq!((first.units_open, first.units_unread), (1, 1));
            assert_eq!(bodies(&all_events(&store, "s1", 9)), ["\"three\"", "4 "]);
            assert_eq!(messages(&store, "s1"), ["hello", "there"]);
            let memory = block_on(store.memory(&id("s1"))).expect("memory");
            assert_eq!(memory, [("key".to_owned(), vec![0, 255])]);
            let found = units(&store, "s1");
            let states: Vec<_> = found.iter().map(|unit| (unit.unit, unit.state)).collect();
            let expected =
                [(9, UnitState::Accepted), (10, UnitState::Ended), (11, UnitState::Acknowledged)];
            assert_eq!(states, expected);
            assert_eq!(&*found[0].children[0].1, "child of nine");
            assert_eq!(found[1].completion.as_deref(), Some("ten is done"));
            let third = row(&store, "s3").running.expect("it was running");
            assert_eq!((third.generation, &*third.run, third.brings), (5, "w5", Some(12)));
            let kept = block_on(store.kept(&id("s3"), "w5")).expect("kept");
            assert_eq!(kept, ["first", "second"]);
            let unfinished = block_on(store.unfinished()).expect("a list");
            assert_eq!(unfinished, [id("s1"), id("s3")]);
            assert!(block_on(store.session(&id("s2"))).is_err());
        }
        let store = Sqlite::open(&path, Retention::default()).expect("it opens");
        let changes = vec![event("5"), done(9), accepted(13)];
        assert_eq!(promise(&store, "s1", changes).expect("it goes on").seq, 5);
        promise(&store, "s3", vec![ended(5)]).expect("it goes on");
        let again = promise(&store, "s2", vec![super::talk::created()]);
        assert_eq!(again, Err(StoreError::Exists("s2".to_owned())));
    }
}

/// What a database of the first version says is all there in one of this version, whatever number it is asked for.
#[test]
fn events_of_the_first_version_go_on() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store.db");
    let sql = format!(
        "{}; PRAGMA user_version = 1; PRAGMA application_id = 1667986030;
         INSERT INTO session (key, name, agent, settings, created_ms, updated_ms, first_seq, last_seq, event_bytes)
         VALUES (1, 'long', 'agent', '', 1, 1, 60, 300, 241), (2, 'none', 'agent', '', 1, 1, 1, 0, 0),
                (3, 'short', 'agent', '', 1, 1, 64, 64, 1), (4, 'gone', '', '', 1, 1, 9, 8, 0);
         UPDATE session SET deleted = 1 WHERE key = 4;
         WITH RECURSIVE counted(n) AS (SELECT 60 UNION ALL SELECT n + 1 FROM counted WHERE n < 300)
         INSERT INTO event SELECT 1, n, n, 'w1', 'x' FROM counted;
         INSERT INTO event VALUES (3, 64, 1, 'w1', 'y'), (4, 7, 1, 'w1', 'z'), (4, 8, 1, 'w1', 'z');",
        STEPS[0]
    );
    made_of(&sql, &path);
    let store = Sqlite::open(&path, Retention::default()).expect("it opens");
    for after in [0, 58, 59, 63, 64, 65, 127, 128, 250, 298] {
        let page = block_on(store.events(&id("long"), after, 500, 9_999)).expect("a page");
        assert_eq!(page.first, 60);
        let numbers: Vec<u64> = page.events.iter().map(|event| event.seq).collect();
        assert_eq!(numbers, Vec::from_iter(60.max(after + 1)..=300));
        assert!(page.events.iter().all(|event| event.at_ms == event.seq && &*event.body == "x"));
    }
    assert_eq!(bodies(&all_events(&store, "short", 9)), ["y"]);
    for (name, seq) in [("long", 301), ("none", 1), ("short", 65)] {
        assert_eq!(promise(&store, name, vec![event("new")]).expect("it goes on").seq, seq);
        assert_eq!(all_events(&store, name, 9).last().map(|event| event.seq), Some(seq));
    }
    block_on(store.compact()).expect("it compacts");
    let left = "SELECT count(*) FROM journal WHERE session = 4";
    let left = Connection::open(&path).and_then(|it| it.query_row(left, [], |row| row.get(0)));
    assert_eq!(left, Ok(0), "what was deleted is swept");
}

/// A step that was released is never changed: the fixture says what it was.
#[test]
fn the_steps_lead_to_the_schema_of_the_newest_fixture() {
    let schema = |path: &Path| {
        let database = Connection::open(path).expect("it opens");
        let mut sql = database
            .prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")
            .expect("there is a schema");
        let rows = sql
            .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?)))
            .expect("rows");
        rows.collect::<Result<Vec<_>, _>>().expect("rows")
    };
    let folder = TempDir::new().expect("a folder");
    let (new, old) = (folder.path().join("new.db"), folder.path().join("old.db"));
    drop(Sqlite::open(&new, Retention::default()).expect("it opens"));
    made_of(FIXTURES.last().expect("there is one"), &old);
    assert_eq!(schema(&new), schema(&old));
}

#[test]
fn a_newer_database_is_refused_and_left_as_it_is() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store.db");
    made_of(FIXTURES.last().expect("there is one"), &path);
    let known = u32::try_from(STEPS.len()).expect("a few");
    Connection::open(&path)
        .and_then(|database| database.pragma_update(None, "user_version", known + 1))
        .expect("it is set");
    let before = std::fs::read(&path).expect("it is there");
    let refused = Sqlite::open(&path, Retention::default()).expect_err("it is newer");
    assert_eq!(refused, StoreError::Newer { found: known + 1, known });
    assert_eq!(std::fs::read(&path).expect("it is there"), before);
}

/// The numbers go on where they were, also past what was deleted or dropped.
#[test]
fn numbers_of_sessions_and_units_are_not_given_twice() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store.db");
    let open = || Sqlite::open(&path, Retention::default()).expect("it opens");
    assert_eq!(open().start(), Start { next_session: 1, next_unit: 1 });
    let store = open();
    promise(&store, "s7", vec![super::talk::created(), accepted(4)]).expect("it is");
    promise(&store, "named", vec![super::talk::created()]).expect("it is");
    drop(store);
    assert_eq!(open().start(), Start { next_session: 8, next_unit: 5 });
    let store = open();
    promise(&store, "s7", vec![crate::store::Change::UnitWithdrawn { unit: 4 }]).expect("it is");
    promise(&store, "s7", vec![crate::store::Change::Deleted]).expect("it is");
    block_on(store.compact()).expect("it compacts");
    // A write that fails gives no number away.
    assert!(promise(&store, "s9", vec![super::talk::created(), done(99)]).is_err());
    drop(store);
    assert_eq!(open().start(), Start { next_session: 8, next_unit: 5 });
}
