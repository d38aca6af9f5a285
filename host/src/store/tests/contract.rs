//! What every store does.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::talk::{
    accepted, all_events, began, block_on, bodies, brings, created, done, ended, event, id, kept,
    message, messages, promise, queue, read, row, text, units,
};
use crate::store::{
    Body, Change, Class, Encode, MOST_KEPT, Memory, Recorded, Retention, Sqlite, Store, StoreError,
    Transcript, UnitState, Write,
};

/// A store that a test can open again.
pub(super) trait Bed: Send + Sync + 'static {
    fn new(retention: Retention) -> Self
    where
        Self: Sized;
    fn store(&self) -> &dyn Store;
    /// Closes the store and opens it again, where something is left of it.
    fn reopen(&mut self);
}

pub(super) struct InMemory(Memory);

impl Bed for InMemory {
    fn new(retention: Retention) -> InMemory {
        InMemory(Memory::new(retention))
    }

    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn reopen(&mut self) {}
}

/// A database in a folder of its own.
pub(super) struct InFile {
    folder: TempDir,
    retention: Retention,
    store: Option<Sqlite>,
}

impl InFile {
    fn open(&mut self) {
        let path = self.folder.path().join("store.db");
        let store = Sqlite::open(path, self.retention.clone()).expect("it opens");
        self.store = Some(store);
    }
}

impl Bed for InFile {
    fn new(retention: Retention) -> InFile {
        let folder = TempDir::new().expect("a folder");
        let mut bed = InFile { folder, retention, store: None };
        bed.open();
        bed
    }

    fn store(&self) -> &dyn Store {
        self.store.as_ref().expect("it is open")
    }

    fn reopen(&mut self) {
        let before = self.store.take().expect("it is open");
        block_on(before.close()).expect("it closes");
        drop(before);
        self.open();
    }
}

/// Each of these is a test of each store.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[test] fn $name() { super::$name::<super::InMemory>() })*
        }

        mod sqlite {
            $(#[test] fn $name() { super::$name::<super::InFile>() })*
        }
    };
}

contract!(
    numbers_count_up_by_one_and_are_those_of_the_commit,
    a_write_is_all_or_nothing,
    a_write_without_events_has_the_newest_number,
    nothing_is_written_to_a_session_that_is_not_there,
    a_name_is_not_used_twice,
    pages_have_no_gap_and_no_repeat,
    a_page_has_an_event_however_large_it_is,
    messages_are_the_newest_in_their_order,
    memory_holds_the_last_value,
    a_turn_is_found_until_it_has_ended,
    turns_come_one_after_the_other,
    what_is_kept_is_there_until_the_run_has_ended,
    runs_outside_the_turn_are_found_until_they_have_ended,
    a_unit_goes_its_way,
    the_first_end_of_a_unit_stays,
    a_unit_that_is_withdrawn_is_gone,
    units_are_their_sessions_own,
    a_turn_that_brings_a_completion_counts_as_a_delivery,
    a_session_in_use_is_not_deleted,
    a_deleted_session_is_gone,
    sessions_are_listed_in_the_order_of_their_creation,
    unfinished_sessions_are_found,
    old_events_go_and_numbers_stay,
    events_of_many_sessions_are_read_from_any_place,
    many_bytes_of_events_go_too,
    other_bounds_count_from_when_they_are_given,
    the_newest_event_stays_however_large_it_is,
    a_long_conversation_refuses_turns,
    a_long_conversation_loses_its_beginning,
    acknowledged_units_go_and_others_stay,
    what_is_put_into_words_later_reads_the_same,
    many_threads_write_many_sessions,
    a_closed_store_says_so,
    what_hears_of_a_write_may_write,
);

fn new<B: Bed>() -> B {
    let bed = B::new(Retention::default());
    promise(bed.store(), "s1", vec![created()]).expect("a session");
    bed
}

fn invalid(recorded: &Result<Recorded, StoreError>) {
    assert!(matches!(recorded, Err(StoreError::Invalid(_))), "{recorded:?}");
}

fn numbers_count_up_by_one_and_are_those_of_the_commit<B: Bed>() {
    let mut bed = new::<B>();
    let pending: Vec<_> = (1..=20)
        .map(|n| queue(bed.store(), "s1", Class::Owed, vec![event(&format!("{n}"))]))
        .collect();
    let told: Vec<u64> = pending.into_iter().map(|one| one.wait().expect("it is").seq).collect();
    assert_eq!(told, (1..=20).collect::<Vec<_>>());
    let three = promise(bed.store(), "s1", vec![event("21"), message("m"), event("22")]);
    assert_eq!(three.expect("it is").seq, 22);
    bed.reopen();
    assert_eq!(promise(bed.store(), "s1", vec![event("23")]).expect("it is").seq, 23);
    let events = all_events(bed.store(), "s1", 7);
    let expected: Vec<String> = (1..=23).map(|n| n.to_string()).collect();
    assert_eq!(bodies(&events), expected);
    assert!(events.iter().zip(1..).all(|(event, seq)| event.seq == seq));
}

fn a_write_is_all_or_nothing<B: Bed>() {
    let bed = new::<B>();
    promise(bed.store(), "s1", vec![event("1"), message("one"), accepted(1)]).expect("it is");
    let before = (row(bed.store(), "s1"), units(bed.store(), "s1"));
    let half = vec![
        event("no"),
        message("no"),
        Change::Memory { key: "no".to_owned(), value: Some(vec![1]) },
        began(1, "no"),
        kept("no", "no"),
        Change::RunBegan { run: Arc::from("no"), body: text("no") },
        accepted(2),
        done(1),
        ended(9),
    ];
    invalid(&promise(bed.store(), "s1", half.clone()));
    // Others that wait beside it are written.
    let beside = [
        queue(bed.store(), "s1", Class::Promise, vec![event("2")]),
        queue(bed.store(), "s1", Class::Owed, half),
        queue(bed.store(), "s1", Class::Promise, vec![event("3")]),
    ];
    let [first, second, third] = beside.map(super::talk::Pending::wait);
    assert_eq!((first.expect("it is").seq, third.expect("it is").seq), (2, 3));
    invalid(&second);
    assert_eq!(bodies(&all_events(bed.store(), "s1", 9)), ["1", "2", "3"]);
    let after = row(bed.store(), "s1");
    assert_eq!(after.running, before.0.running);
    assert_eq!((after.messages, after.units_open, after.units_unread), (1, 1, 0));
    assert_eq!(units(bed.store(), "s1"), before.1);
    assert_eq!(messages(bed.store(), "s1"), ["one"]);
    assert!(block_on(bed.store().memory(&id("s1"))).expect("memory").is_empty());
    assert!(block_on(bed.store().open_runs(&id("s1"))).expect("runs").is_empty());
    assert!(block_on(bed.store().kept(&id("s1"), "no")).expect("kept").is_empty());
}

fn a_write_without_events_has_the_newest_number<B: Bed>() {
    let bed = new::<B>();
    assert_eq!(promise(bed.store(), "s1", vec![message("m")]).expect("it is").seq, 0);
    promise(bed.store(), "s1", vec![event("1"), event("2")]).expect("it is");
    assert_eq!(promise(bed.store(), "s1", vec![message("m")]).expect("it is").seq, 2);
    assert_eq!(promise(bed.store(), "s1", vec![]).expect("it is").seq, 2);
}

fn nothing_is_written_to_a_session_that_is_not_there<B: Bed>() {
    let bed = new::<B>();
    for class in [Class::Promise, Class::Owed] {
        let recorded = queue(bed.store(), "nobody", class, vec![event("1")]).wait();
        assert_eq!(recorded, Err(StoreError::NoSession("nobody".to_owned())));
    }
    let nobody = id("nobody");
    let none = Err(StoreError::NoSession("nobody".to_owned()));
    assert_eq!(block_on(bed.store().session(&nobody)), none);
    assert!(block_on(bed.store().events(&nobody, 0, 1, 1)).is_err());
    assert!(block_on(bed.store().messages(&nobody, 1, 1)).is_err());
    assert!(block_on(bed.store().memory(&nobody)).is_err());
    assert!(block_on(bed.store().units(&nobody, 1)).is_err());
    assert!(block_on(bed.store().kept(&nobody, "run")).is_err());
    assert!(block_on(bed.store().open_runs(&nobody)).is_err());
    assert!(block_on(bed.store().sessions(Some(nobody), 1)).is_err());
}

fn a_name_is_not_used_twice<B: Bed>() {
    let mut bed = new::<B>();
    let exists = Err(StoreError::Exists("s1".to_owned()));
    assert_eq!(promise(bed.store(), "s1", vec![created()]), exists);
    promise(bed.store(), "s1", vec![Change::Deleted]).expect("it may go");
    assert_eq!(promise(bed.store(), "s1", vec![created()]), exists);
    bed.reopen();
    assert_eq!(promise(bed.store(), "s1", vec![created()]), exists);
}

fn pages_have_no_gap_and_no_repeat<B: Bed>() {
    let bed = new::<B>();
    let changes = (1..=50).map(|n| event(&"x".repeat(n))).collect();
    promise(bed.store(), "s1", changes).expect("it is");
    for limit in [1, 3, 50, 100] {
        let all = all_events(bed.store(), "s1", limit);
        assert_eq!(all.iter().map(|event| event.seq).collect::<Vec<_>>(), Vec::from_iter(1..=50));
    }
    let page = block_on(bed.store().events(&id("s1"), 10, 100, 11 + 12 + 13)).expect("a page");
    assert_eq!(page.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [11, 12, 13]);
    assert_eq!(page.first, 1);
    for after in [50, 51, u64::MAX] {
        let page = block_on(bed.store().events(&id("s1"), after, 100, 100)).expect("a page");
        assert!(page.events.is_empty());
    }
}

fn a_page_has_an_event_however_large_it_is<B: Bed>() {
    let bed = new::<B>();
    promise(bed.store(), "s1", vec![event(&"x".repeat(1000)), event("2")]).expect("it is");
    let page = block_on(bed.store().events(&id("s1"), 0, 9, 1)).expect("a page");
    assert_eq!(page.events.len(), 1);
}

fn messages_are_the_newest_in_their_order<B: Bed>() {
    let mut bed = new::<B>();
    for n in 1..=9 {
        promise(bed.store(), "s1", vec![message(&format!("m{n}"))]).expect("it is");
    }
    bed.reopen();
    let newest = block_on(bed.store().messages(&id("s1"), 3, 1000)).expect("messages");
    assert_eq!(newest.iter().map(|row| row.number).collect::<Vec<_>>(), [7, 8, 9]);
    assert_eq!(newest.iter().map(|row| &*row.body).collect::<Vec<_>>(), ["m7", "m8", "m9"]);
    let few = block_on(bed.store().messages(&id("s1"), 9, 5)).expect("messages");
    assert_eq!(few.iter().map(|row| &*row.body).collect::<Vec<_>>(), ["m8", "m9"]);
    let row = row(bed.store(), "s1");
    assert_eq!((row.messages, row.message_bytes), (9, 18));
}

fn memory_holds_the_last_value<B: Bed>() {
    let mut bed = new::<B>();
    let set = |key: &str, value: Option<&[u8]>| Change::Memory {
        key: key.to_owned(),
        value: value.map(<[u8]>::to_vec),
    };
    promise(bed.store(), "s1", vec![set("b", Some(b"1")), set("a", Some(b"\xff\0"))]).expect("it");
    promise(bed.store(), "s1", vec![set("b", Some(b"2")), set("c", Some(b"3"))]).expect("it is");
    promise(bed.store(), "s1", vec![set("c", None), set("never", None)]).expect("it is");
    bed.reopen();
    let memory = block_on(bed.store().memory(&id("s1"))).expect("memory");
    assert_eq!(memory, [("a".to_owned(), b"\xff\0".to_vec()), ("b".to_owned(), b"2".to_vec())]);
}

fn a_turn_is_found_until_it_has_ended<B: Bed>() {
    let mut bed = new::<B>();
    promise(bed.store(), "s1", vec![began(1, "w1")]).expect("it is");
    bed.reopen();
    let running = row(bed.store(), "s1").running.expect("it runs");
    assert_eq!((running.generation, &*running.run, running.brings), (1, "w1", None));
    promise(bed.store(), "s1", vec![ended(1)]).expect("it is");
    bed.reopen();
    let row = row(bed.store(), "s1");
    assert_eq!((row.running, row.generation), (None, 1));
}

fn turns_come_one_after_the_other<B: Bed>() {
    let bed = new::<B>();
    invalid(&promise(bed.store(), "s1", vec![began(0, "w")]));
    invalid(&promise(bed.store(), "s1", vec![ended(1)]));
    promise(bed.store(), "s1", vec![began(1, "w")]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![began(2, "w")]));
    invalid(&promise(bed.store(), "s1", vec![ended(2)]));
    promise(bed.store(), "s1", vec![ended(1)]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![ended(1)]));
    invalid(&promise(bed.store(), "s1", vec![began(1, "w")]));
    promise(bed.store(), "s1", vec![began(2, "w"), ended(2)]).expect("it is");
    // Those between were never recorded.
    promise(bed.store(), "s1", vec![began(5, "w"), ended(5)]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![began(4, "w")]));
    assert_eq!(row(bed.store(), "s1").generation, 5);
}

fn what_is_kept_is_there_until_the_run_has_ended<B: Bed>() {
    let mut bed = new::<B>();
    invalid(&promise(bed.store(), "s1", vec![kept("w", "early")]));
    promise(bed.store(), "s1", vec![began(1, "w"), kept("w", "1")]).expect("it is");
    promise(bed.store(), "s1", vec![kept("w", "2")]).expect("it is");
    let side = Change::RunBegan { run: Arc::from("side"), body: text("aside") };
    promise(bed.store(), "s1", vec![side, kept("side", "3")]).expect("it is");
    bed.reopen();
    let of = |bed: &B, run: &str| block_on(bed.store().kept(&id("s1"), run)).expect("kept");
    assert_eq!(of(&bed, "w"), ["1", "2"]);
    assert_eq!(of(&bed, "side"), ["3"]);
    let many = (0..MOST_KEPT).map(|n| kept("w", &n.to_string()));
    promise(bed.store(), "s1", many.collect()).expect("it is");
    assert_eq!(of(&bed, "w").len(), MOST_KEPT, "the newest are kept");
    assert_eq!(of(&bed, "w")[0], "0");
    promise(bed.store(), "s1", vec![ended(1)]).expect("it is");
    assert_eq!(of(&bed, "w"), [""; 0]);
    assert_eq!(of(&bed, "side"), ["3"]);
    promise(bed.store(), "s1", vec![Change::RunEnded { run: Arc::from("side") }]).expect("it is");
    assert_eq!(of(&bed, "side"), [""; 0]);
    invalid(&promise(bed.store(), "s1", vec![kept("w", "late")]));
}

fn runs_outside_the_turn_are_found_until_they_have_ended<B: Bed>() {
    let mut bed = new::<B>();
    let begin = |run: &str| Change::RunBegan { run: Arc::from(run), body: text(run) };
    let end = |run: &str| Change::RunEnded { run: Arc::from(run) };
    promise(bed.store(), "s1", vec![begin("b"), begin("a"), begin("c")]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![begin("a")]));
    bed.reopen();
    promise(bed.store(), "s1", vec![end("a")]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![end("a")]));
    let open = block_on(bed.store().open_runs(&id("s1"))).expect("runs");
    let pair = |run: &str| (run.to_owned(), run.to_owned());
    assert_eq!(open, [pair("b"), pair("c")]);
    promise(bed.store(), "s1", vec![begin("a"), end("a"), begin("a")]).expect("it is");
    let open = block_on(bed.store().open_runs(&id("s1"))).expect("runs");
    assert_eq!(open, [pair("b"), pair("c"), pair("a")]);
}

fn a_unit_goes_its_way<B: Bed>() {
    let mut bed = new::<B>();
    let child = |task| Change::ChildEnded { unit: 5, task, body: text(&format!("child {task}")) };
    promise(bed.store(), "s1", vec![accepted(5), accepted(6)]).expect("it is");
    promise(bed.store(), "s1", vec![child(1)]).expect("it is");
    promise(bed.store(), "s1", vec![child(0), child(1)]).expect("it is");
    bed.reopen();
    let found = units(bed.store(), "s1");
    assert_eq!(found.iter().map(|unit| unit.unit).collect::<Vec<_>>(), [5, 6]);
    let five = &found[0];
    assert_eq!((five.state, &*five.body, five.ended), (UnitState::Accepted, "task", 0));
    assert_eq!(five.session, id("s1"));
    assert_eq!(five.children, [(0, Arc::from("child 0")), (1, Arc::from("child 1"))]);
    assert_eq!(five.completion, None);
    invalid(&promise(bed.store(), "s1", vec![read(5)]));
    promise(bed.store(), "s1", vec![done(6)]).expect("it is");
    promise(bed.store(), "s1", vec![done(5), event("told")]).expect("it is");
    bed.reopen();
    let found = units(bed.store(), "s1");
    let five = &found[0];
    assert_eq!((five.state, five.ended), (UnitState::Ended, 2));
    assert_eq!(five.completion.as_deref(), Some("done 5"));
    assert_eq!(five.children.len(), 2);
    let counted = row(bed.store(), "s1");
    assert_eq!((counted.units_open, counted.units_unread), (0, 2));
    promise(bed.store(), "s1", vec![read(5)]).expect("it is");
    // Saying it twice changes nothing.
    promise(bed.store(), "s1", vec![read(5)]).expect("it is");
    bed.reopen();
    assert_eq!(units(bed.store(), "s1")[0].state, UnitState::Acknowledged);
    assert_eq!(row(bed.store(), "s1").units_unread, 1);
    let unread = block_on(bed.store().units(&id("s1"), 0)).expect("units");
    assert_eq!(unread.iter().map(|unit| unit.unit).collect::<Vec<_>>(), [6]);
}

/// Rule C1.
fn the_first_end_of_a_unit_stays<B: Bed>() {
    let mut bed = new::<B>();
    promise(bed.store(), "s1", vec![accepted(1), done(1)]).expect("it is");
    let again = |body: &str| Change::UnitEnded { unit: 1, body: text(body) };
    promise(bed.store(), "s1", vec![again("again"), event("beside")]).expect("it is");
    let late = Change::ChildEnded { unit: 1, task: 0, body: text("late") };
    promise(bed.store(), "s1", vec![late]).expect("it is");
    bed.reopen();
    promise(bed.store(), "s1", vec![again("again")]).expect("it is");
    let found = units(bed.store(), "s1");
    assert_eq!((found[0].completion.as_deref(), found[0].ended), (Some("done 1"), 1));
    assert!(found[0].children.is_empty());
    assert_eq!(row(bed.store(), "s1").units_unread, 1);
    assert_eq!(bodies(&all_events(bed.store(), "s1", 9)), ["beside"]);
    invalid(&promise(bed.store(), "s1", vec![done(2)]));
}

fn a_unit_that_is_withdrawn_is_gone<B: Bed>() {
    let bed = new::<B>();
    promise(bed.store(), "s1", vec![accepted(1)]).expect("it is");
    promise(bed.store(), "s1", vec![Change::UnitWithdrawn { unit: 1 }]).expect("it is");
    assert!(units(bed.store(), "s1").is_empty());
    assert_eq!(row(bed.store(), "s1").units_open, 0);
    invalid(&promise(bed.store(), "s1", vec![done(1)]));
    invalid(&promise(bed.store(), "s1", vec![Change::UnitWithdrawn { unit: 1 }]));
    promise(bed.store(), "s1", vec![accepted(2), done(2)]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![Change::UnitWithdrawn { unit: 2 }]));
}

fn units_are_their_sessions_own<B: Bed>() {
    let bed = new::<B>();
    promise(bed.store(), "s2", vec![created(), accepted(1)]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![accepted(1)]));
    invalid(&promise(bed.store(), "s1", vec![done(1)]));
    promise(bed.store(), "s2", vec![done(1)]).expect("it is");
    // What is not there was acknowledged long ago, as far as this session is concerned.
    promise(bed.store(), "s1", vec![read(1)]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![brings(1, 1)]));
    assert!(units(bed.store(), "s1").is_empty());
    assert_eq!(row(bed.store(), "s2").units_unread, 1);
}

/// Rule C6.
fn a_turn_that_brings_a_completion_counts_as_a_delivery<B: Bed>() {
    let mut bed = new::<B>();
    promise(bed.store(), "s1", vec![accepted(1)]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![brings(1, 1)]));
    promise(bed.store(), "s1", vec![done(1)]).expect("it is");
    promise(bed.store(), "s1", vec![brings(1, 1)]).expect("it is");
    bed.reopen();
    assert_eq!(row(bed.store(), "s1").running.and_then(|running| running.brings), Some(1));
    promise(bed.store(), "s1", vec![ended(1), brings(2, 1)]).expect("it is");
    bed.reopen();
    assert_eq!(units(bed.store(), "s1")[0].deliveries, 2);
    promise(bed.store(), "s1", vec![read(1), ended(2)]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![brings(3, 1)]));
}

fn a_session_in_use_is_not_deleted<B: Bed>() {
    let bed = new::<B>();
    let in_use = || {
        let refused = promise(bed.store(), "s1", vec![Change::Deleted]);
        assert!(matches!(refused, Err(StoreError::InUse { .. })), "{refused:?}");
    };
    promise(bed.store(), "s1", vec![began(1, "w")]).expect("it is");
    in_use();
    promise(bed.store(), "s1", vec![ended(1), accepted(1)]).expect("it is");
    in_use();
    promise(bed.store(), "s1", vec![done(1)]).expect("it is");
    in_use();
    promise(bed.store(), "s1", vec![read(1)]).expect("it is");
    promise(bed.store(), "s1", vec![Change::Deleted]).expect("nothing holds it");
}

fn a_deleted_session_is_gone<B: Bed>() {
    let mut bed = new::<B>();
    let side = Change::RunBegan { run: Arc::from("side"), body: text("aside") };
    promise(
        bed.store(),
        "s1",
        vec![event("1"), message("1"), side, kept("side", "1"), accepted(1), done(1), read(1)],
    )
    .expect("it is");
    promise(bed.store(), "s2", vec![created(), event("other")]).expect("it is");
    invalid(&promise(bed.store(), "s1", vec![Change::Deleted, event("late")]));
    promise(bed.store(), "s1", vec![Change::Deleted]).expect("nothing holds it");
    for _ in 0..2 {
        let none = Err(StoreError::NoSession("s1".to_owned()));
        assert_eq!(block_on(bed.store().session(&id("s1"))), none);
        assert!(block_on(bed.store().events(&id("s1"), 0, 9, 9)).is_err());
        let late = queue(bed.store(), "s1", Class::Owed, vec![event("late")]).wait();
        assert_eq!(late, Err(StoreError::NoSession("s1".to_owned())));
        let left = block_on(bed.store().sessions(None, 9)).expect("a list");
        assert_eq!(left.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["s2"]);
        assert!(block_on(bed.store().unfinished()).expect("a list").is_empty());
        bed.reopen();
        block_on(bed.store().compact()).expect("it compacts");
    }
    assert_eq!(bodies(&all_events(bed.store(), "s2", 9)), ["other"]);
}

fn sessions_are_listed_in_the_order_of_their_creation<B: Bed>() {
    let mut bed = B::new(Retention::default());
    let names = ["z", "b", "y", "a", "x"];
    for name in names {
        promise(bed.store(), name, vec![created()]).expect("it is");
    }
    bed.reopen();
    let list = |bed: &B, after: Option<&str>, limit| {
        let rows = block_on(bed.store().sessions(after.map(id), limit)).expect("a list");
        rows.into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(&bed, None, 99), names);
    assert_eq!(list(&bed, None, 2), ["z", "b"]);
    assert_eq!(list(&bed, Some("b"), 2), ["y", "a"]);
    assert_eq!(list(&bed, Some("x"), 2), [""; 0]);
    // Whoever pages goes on from a session that was deleted meanwhile.
    promise(bed.store(), "b", vec![Change::Deleted]).expect("it is");
    assert_eq!(list(&bed, Some("b"), 2), ["y", "a"]);
    let row = row(bed.store(), "y");
    assert_eq!((&*row.agent, &*row.settings), ("agent", "{\"a\":1}"));
    assert!(row.created_ms > 0 && row.updated_ms >= row.created_ms);
}

/// Rule C8.
fn unfinished_sessions_are_found<B: Bed>() {
    let mut bed = B::new(Retention::default());
    let side = Change::RunBegan { run: Arc::from("side"), body: text("aside") };
    let sessions: Vec<(&str, Vec<Change>)> = vec![
        ("idle", vec![began(1, "w"), ended(1)]),
        ("turn", vec![began(1, "w")]),
        ("run", vec![side.clone()]),
        ("unit", vec![accepted(1)]),
        ("unread", vec![accepted(2), done(2)]),
        ("read", vec![accepted(3), done(3), read(3)]),
        ("over", vec![side, Change::RunEnded { run: Arc::from("side") }]),
    ];
    for (name, changes) in sessions {
        promise(bed.store(), name, vec![created()]).expect("it is");
        promise(bed.store(), name, changes).expect("it is");
    }
    bed.reopen();
    let found = block_on(bed.store().unfinished()).expect("a list");
    let found: Vec<&str> = found.iter().map(|id| id.as_str()).collect();
    assert_eq!(found, ["turn", "run", "unit", "unread"]);
}

fn small() -> Retention {
    Retention {
        events_per_session: 10,
        event_bytes_per_session: 1_000,
        transcript_bytes_per_session: 100,
        transcript: Transcript::Refuse,
        read_units_per_session: 3,
        ..Retention::default()
    }
}

fn old_events_go_and_numbers_stay<B: Bed>() {
    let mut bed = B::new(small());
    promise(bed.store(), "s1", vec![created()]).expect("it is");
    for n in 1..=100 {
        promise(bed.store(), "s1", vec![event(&n.to_string())]).expect("it is");
        let row = row(bed.store(), "s1");
        assert!(row.last_seq + 1 - row.first_seq <= 11, "{row:?}");
    }
    bed.reopen();
    block_on(bed.store().compact()).expect("it compacts");
    let kept = row(bed.store(), "s1");
    assert_eq!((kept.first_seq, kept.last_seq, kept.event_bytes), (91, 100, 21));
    let page = block_on(bed.store().events(&id("s1"), 5, 99, 999)).expect("a page");
    assert_eq!((page.first, page.events.len(), page.events[0].seq), (91, 10, 91));
    bed.reopen();
    assert_eq!(promise(bed.store(), "s1", vec![event("n")]).expect("it is").seq, 101);
}

/// Sessions that say something in turn, each at a pace of its own, with more events than are marked or kept.
fn events_of_many_sessions_are_read_from_any_place<B: Bed>() {
    let mut bed = B::new(Retention { events_per_session: 300, ..Retention::default() });
    let names = ["s1", "s2", "s3", "s4"];
    for name in names {
        promise(bed.store(), name, vec![created()]).expect("it is");
    }
    let mut said = [0_u64; 4];
    for round in 0..500_usize {
        for (place, name) in names.iter().enumerate().filter(|(place, _)| round % (place + 1) == 0)
        {
            let mut changes = Vec::new();
            for _ in 0..=round % 2 {
                said[place] += 1;
                changes.push(event(&format!("{name}:{}", said[place])));
            }
            drop(queue(bed.store(), name, Class::Owed, changes));
        }
    }
    let look = |bed: &B, place: usize| {
        let (name, last) = (names[place], said[place]);
        let first = row(bed.store(), name).first_seq;
        for after in (0..=last).step_by(13).chain([first - 1, first, 63, 64, 65, last - 1]) {
            for limit in [1, 7, 64, 1_000] {
                let page = block_on(bed.store().events(&id(name), after, limit, 99_999));
                let page = page.expect("a page");
                let expected: Vec<String> = (first.max(after + 1)..=last)
                    .take(limit)
                    .map(|seq| format!("{name}:{seq}"))
                    .collect();
                assert_eq!((page.first, bodies(&page.events)), (first, expected), "{after}");
            }
        }
    };
    bed.reopen();
    (0..4).for_each(|place| look(&bed, place));
    block_on(bed.store().compact()).expect("it compacts");
    assert_eq!(row(bed.store(), "s1").first_seq, said[0] - 299);
    (0..4).for_each(|place| look(&bed, place));
    promise(bed.store(), "s3", vec![Change::Deleted]).expect("it goes");
    promise(bed.store(), "s5", vec![created(), event("meanwhile")]).expect("it is");
    block_on(bed.store().compact()).expect("it compacts");
    promise(bed.store(), "s5", vec![event("afterwards")]).expect("it is");
    [0, 1, 3].into_iter().for_each(|place| look(&bed, place));
    assert_eq!(bodies(&all_events(bed.store(), "s5", 9)), ["meanwhile", "afterwards"]);
}

fn many_bytes_of_events_go_too<B: Bed>() {
    let bed = B::new(small());
    promise(bed.store(), "s1", vec![created()]).expect("it is");
    for _ in 1..=20 {
        promise(bed.store(), "s1", vec![event(&"x".repeat(300))]).expect("it is");
        assert!(row(bed.store(), "s1").event_bytes <= 1_100);
    }
    block_on(bed.store().compact()).expect("it compacts");
    let kept = row(bed.store(), "s1");
    assert_eq!((kept.event_bytes, kept.first_seq, kept.last_seq), (900, 18, 20));
}

fn other_bounds_count_from_when_they_are_given<B: Bed>() {
    let bed = new::<B>();
    promise(bed.store(), "s1", vec![message(&"x".repeat(101)), accepted(1)]).expect("it is");
    promise(bed.store(), "s1", vec![done(1), read(1)]).expect("it is");
    for n in 1..=50 {
        promise(bed.store(), "s1", vec![event(&n.to_string())]).expect("it is");
    }
    assert_eq!(row(bed.store(), "s1").first_seq, 1);
    bed.store().retain(Retention { read_units_per_session: 0, ..small() });
    let refused = promise(bed.store(), "s1", vec![began(1, "w")]);
    assert!(matches!(refused, Err(StoreError::TooLarge { most: 100, .. })), "{refused:?}");
    block_on(bed.store().compact()).expect("it compacts");
    let kept = row(bed.store(), "s1");
    assert_eq!((kept.first_seq, kept.last_seq), (41, 50), "{kept:?}");
    assert_eq!(units(bed.store(), "s1").len(), 0);
    bed.store().retain(Retention::default());
    promise(bed.store(), "s1", vec![began(1, "w")]).expect("it is below the bound again");
    assert_eq!(messages(bed.store(), "s1").len(), 1, "the conversation stays");
}

fn the_newest_event_stays_however_large_it_is<B: Bed>() {
    let bed = B::new(small());
    promise(bed.store(), "s1", vec![created(), event("1")]).expect("it is");
    promise(bed.store(), "s1", vec![event(&"x".repeat(5_000))]).expect("it is");
    block_on(bed.store().compact()).expect("it compacts");
    let kept = row(bed.store(), "s1");
    assert_eq!((kept.event_bytes, kept.first_seq, kept.last_seq), (5_000, 2, 2));
    assert_eq!(all_events(bed.store(), "s1", 9).len(), 1);
}

fn a_long_conversation_refuses_turns<B: Bed>() {
    let bed = B::new(small());
    promise(bed.store(), "s1", vec![created()]).expect("it is");
    promise(bed.store(), "s1", vec![message(&"x".repeat(100))]).expect("it is");
    promise(bed.store(), "s1", vec![began(1, "w")]).expect("it is not above the bound");
    promise(bed.store(), "s1", vec![message("y"), ended(1)]).expect("what was said is kept");
    let refused = promise(bed.store(), "s1", vec![began(2, "w")]);
    let Err(StoreError::TooLarge { what, bytes, most, limit, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((bytes, most, limit), (101, 100, "transcript-bytes-per-session"));
    assert!(what.contains("s1"), "{what}");
    assert_eq!(messages(bed.store(), "s1").len(), 2);
    block_on(bed.store().compact()).expect("it compacts");
    assert_eq!(messages(bed.store(), "s1").len(), 2);
    promise(bed.store(), "s2", vec![created(), began(1, "w")]).expect("others go on");
}

fn a_long_conversation_loses_its_beginning<B: Bed>() {
    let mut bed = B::new(Retention { transcript: Transcript::DropOldest, ..small() });
    promise(bed.store(), "s1", vec![created()]).expect("it is");
    for n in 1..=50 {
        promise(bed.store(), "s1", vec![message(&format!("{n:020}"))]).expect("it is");
        assert!(row(bed.store(), "s1").message_bytes <= 120);
    }
    promise(bed.store(), "s1", vec![began(1, "w"), ended(1)]).expect("it goes on");
    bed.reopen();
    block_on(bed.store().compact()).expect("it compacts");
    let rows = block_on(bed.store().messages(&id("s1"), 99, 9_999)).expect("messages");
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [46, 47, 48, 49, 50]);
    let kept = row(bed.store(), "s1");
    assert_eq!((kept.messages, kept.message_bytes), (5, 100));
    promise(bed.store(), "s1", vec![message(&"x".repeat(500))]).expect("it is");
    block_on(bed.store().compact()).expect("it compacts");
    let rows = block_on(bed.store().messages(&id("s1"), 99, 9_999)).expect("messages");
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [51]);
}

/// Rule C8.
fn acknowledged_units_go_and_others_stay<B: Bed>() {
    let mut bed = B::new(small());
    promise(bed.store(), "s1", vec![created()]).expect("it is");
    for unit in 1..=30 {
        promise(bed.store(), "s1", vec![accepted(unit)]).expect("it is");
        if unit % 3 > 0 {
            promise(bed.store(), "s1", vec![done(unit)]).expect("it is");
        }
        if unit % 3 > 1 {
            promise(bed.store(), "s1", vec![read(unit)]).expect("it is");
        }
    }
    bed.reopen();
    block_on(bed.store().compact()).expect("it compacts");
    let found = units(bed.store(), "s1");
    let of = |state| {
        let units = found.iter().filter(|unit| unit.state == state);
        units.map(|unit| unit.unit).collect::<Vec<_>>()
    };
    assert_eq!(of(UnitState::Accepted), (1..=10).map(|n| 3 * n).collect::<Vec<_>>());
    assert_eq!(of(UnitState::Ended), (0..10).map(|n| 3 * n + 1).collect::<Vec<_>>());
    assert_eq!(of(UnitState::Acknowledged), [23, 26, 29]);
    let two = block_on(bed.store().units(&id("s1"), 2)).expect("units");
    assert_eq!(two.len(), 22);
    let row = row(bed.store(), "s1");
    assert_eq!((row.units_open, row.units_unread), (10, 10));
}

struct Counted(Arc<AtomicUsize>);

impl Encode for Counted {
    fn encode(&self) -> String {
        self.0.fetch_add(1, Ordering::Relaxed);
        "said later".to_owned()
    }

    fn weight(&self) -> usize {
        100
    }
}

fn what_is_put_into_words_later_reads_the_same<B: Bed>() {
    let mut bed = B::new(Retention::default());
    let times = Arc::new(AtomicUsize::new(0));
    let later = || Body::Later(Arc::new(Counted(Arc::clone(&times))));
    let changes = vec![
        Change::Created { agent: "agent".to_owned(), settings: later() },
        Change::Event { run: Arc::from("w"), body: later() },
        Change::Message { body: later() },
        Change::TurnBegan { generation: 1, run: Arc::from("w"), brings: None },
        Change::Kept { run: Arc::from("w"), body: later() },
        Change::RunBegan { run: Arc::from("side"), body: later() },
        Change::UnitAccepted { unit: 1, body: later() },
        Change::ChildEnded { unit: 1, task: 0, body: later() },
        Change::UnitEnded { unit: 1, body: later() },
    ];
    promise(bed.store(), "s1", changes).expect("it is");
    bed.reopen();
    let said = "said later";
    assert_eq!(&*row(bed.store(), "s1").settings, said);
    assert_eq!(bodies(&all_events(bed.store(), "s1", 9)), [said]);
    assert_eq!(messages(bed.store(), "s1"), [said]);
    assert_eq!(block_on(bed.store().kept(&id("s1"), "w")).expect("kept"), [said]);
    let runs = block_on(bed.store().open_runs(&id("s1"))).expect("runs");
    assert_eq!(runs, [("side".to_owned(), said.to_owned())]);
    let unit = units(bed.store(), "s1").remove(0);
    assert_eq!((&*unit.body, unit.completion.as_deref()), (said, Some(said)));
    assert_eq!(&*unit.children[0].1, said);
}

fn many_threads_write_many_sessions<B: Bed>() {
    let mut bed = B::new(Retention::default());
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let store = bed.store();
            scope.spawn(move || {
                let name = |n: u64| format!("s{thread}-{n}");
                for n in 0..4 {
                    let made = queue(store, &name(n), Class::Promise, vec![created()]);
                    made.wait().expect("it is");
                }
                let mut last = Vec::new();
                for round in 0..50_u64 {
                    for n in 0..4 {
                        let unit = (thread * 4 + n) * 50 + round + 1;
                        let changes = vec![event(&round.to_string()), accepted(unit), done(unit)];
                        last.push(queue(store, &name(n), Class::Owed, changes));
                    }
                }
                for (index, pending) in last.into_iter().enumerate() {
                    assert_eq!(pending.wait().expect("it is").seq, index as u64 / 4 + 1);
                }
            });
        }
    });
    bed.reopen();
    let rows = block_on(bed.store().sessions(None, 99)).expect("a list");
    assert_eq!(rows.len(), 32);
    let mut seen = HashSet::new();
    for row in rows {
        let events = all_events(bed.store(), row.id.as_str(), 16);
        let expected: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        assert_eq!(bodies(&events), expected);
        for unit in units(bed.store(), row.id.as_str()) {
            assert!(seen.insert(unit.unit));
        }
    }
    assert_eq!(seen.len(), 32 * 50);
}

fn a_closed_store_says_so<B: Bed>() {
    let bed = new::<B>();
    let last = queue(bed.store(), "s1", Class::Owed, vec![event("last")]);
    block_on(bed.store().close()).expect("it closes");
    assert_eq!(last.told().expect("what was queued is written").expect("it is").seq, 1);
    assert_eq!(promise(bed.store(), "s1", vec![event("late")]), Err(StoreError::Closed));
    assert_eq!(block_on(bed.store().session(&id("s1"))), Err(StoreError::Closed));
    block_on(bed.store().close()).expect("once more does no harm");
}

fn what_hears_of_a_write_may_write<B: Bed>() {
    let bed = Arc::new(new::<B>());
    let (tell, told) = std::sync::mpsc::channel();
    let again = Arc::clone(&bed);
    let then = move |recorded: Result<Recorded, StoreError>| {
        assert_eq!(recorded.expect("it is").seq, 1);
        let then = move |recorded| drop(tell.send(recorded));
        let changes = vec![event("2")];
        let write =
            Write { session: id("s1"), changes, class: Class::Owed, then: Some(Box::new(then)) };
        again.store().write(write);
    };
    bed.store().write(Write {
        session: id("s1"),
        changes: vec![event("1")],
        class: Class::Owed,
        then: Some(Box::new(then)),
    });
    assert_eq!(told.recv_timeout(super::talk::LONG).expect("told").expect("it is").seq, 2);
}
