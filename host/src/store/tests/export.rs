//! Sessions on their way out of a store and into another.

use std::sync::Arc;

use tempfile::TempDir;

use super::talk::{
    accepted, all_events, began, block_on, bodies, brings, created, done, ended, event, id,
    message, messages, promise, read, row, text, units,
};
use crate::store::{
    Archive, ArchiveError, Change, Memory, Retention, RunningTurn, Sqlite, Store, StoreError,
    UnitState,
};

/// Texts that lines could spoil.
const TEXTS: [&str; 9] = [
    "{\"a\": [1,  2]}",
    "null",
    "\"a\\u0041\"",
    "two\nlines",
    " 1 ",
    "",
    "no JSON {",
    "\u{0}é",
    "1.0e2",
];

const MOST: u64 = 1 << 20;

fn full(store: &dyn Store) {
    promise(store, "s1", vec![created()]).expect("a session");
    promise(store, "s1", TEXTS.iter().map(|text| event(text)).collect()).expect("it is");
    promise(store, "s1", TEXTS.iter().map(|text| message(text)).collect()).expect("it is");
    let memory = |key: &str, value: &[u8]| Change::Memory {
        key: key.to_owned(),
        value: Some(value.to_vec()),
    };
    promise(store, "s1", vec![memory("b", b"\0\xff"), memory("a", b"")]).expect("it is");
    let child = |unit, task| Change::ChildEnded { unit, task, body: text("two\nlines") };
    promise(
        store,
        "s1",
        vec![accepted(3), accepted(5), accepted(8), child(3, 1), child(3, 0), child(8, 4)],
    )
    .expect("it is");
    promise(store, "s1", vec![done(8), done(5), brings(1, 8), ended(1), read(8)]).expect("it is");
    promise(store, "s1", vec![brings(2, 5), ended(2)]).expect("it is");
}

fn lines(archive: &Archive) -> String {
    let mut out = Vec::new();
    archive.write_to(&mut out).expect("memory can be written to");
    String::from_utf8(out).expect("it is text")
}

fn of(store: &dyn Store, name: &str) -> Archive {
    block_on(Archive::of(store, &id(name), RunningTurn::Refuse)).expect("it is exported")
}

fn parsed(lines: &str) -> Result<Archive, ArchiveError> {
    Archive::read_from(lines.as_bytes(), MOST)
}

fn there_and_back(from: &dyn Store, to: &dyn Store) {
    full(from);
    let archive = of(from, "s1");
    let out = lines(&archive);
    let read = parsed(&out).expect("what was written can be read");
    assert_eq!(lines(&read), out);
    let imported = block_on(read.put(to, id("new"), 100)).expect("it is imported");
    assert_eq!(imported.units, [(3, 100), (5, 101), (8, 102)]);
    let (old, new) = (row(from, "s1"), row(to, "new"));
    assert_eq!(imported.recorded.seq, old.last_seq);
    assert_eq!((&new.agent, &new.settings), (&old.agent, &old.settings));
    assert_eq!((new.created_ms, new.generation), (old.created_ms, old.generation));
    assert_eq!((new.first_seq, new.last_seq), (old.first_seq, old.last_seq));
    assert_eq!((new.units_open, new.units_unread), (1, 1));
    assert_eq!(all_events(to, "new", 2), all_events(from, "s1", 5));
    let of =
        |store: &dyn Store, name| block_on(store.messages(&id(name), 99, 9_999)).expect("messages");
    assert_eq!(of(to, "new"), of(from, "s1"));
    assert_eq!(messages(to, "new"), TEXTS);
    let memory = |store: &dyn Store, name| block_on(store.memory(&id(name))).expect("memory");
    assert_eq!(memory(to, "new"), memory(from, "s1"));
    let found = units(to, "new");
    let told: Vec<_> = found.iter().map(|unit| (unit.unit, unit.state, unit.ended)).collect();
    let expected = [
        (100, UnitState::Accepted, 0),
        (101, UnitState::Ended, 2),
        (102, UnitState::Acknowledged, 1),
    ];
    assert_eq!(told, expected);
    assert_eq!(found[1].completion.as_deref(), Some("done 5"));
    assert_eq!(found[0].children, units(from, "s1")[0].children);
    assert_eq!(block_on(to.unfinished()).expect("a list"), [id("new")]);
    // It goes on where it was.
    let seq = old.last_seq + 1;
    promise(to, "new", vec![began(3, "w"), ended(3), done(100)]).expect("it goes on");
    assert_eq!(promise(to, "new", vec![event("on")]).expect("it goes on").seq, seq);
}

#[test]
fn a_session_goes_from_memory_into_a_database_and_back() {
    let folder = TempDir::new().expect("a folder");
    let open = |name: &str| {
        Sqlite::open(folder.path().join(name), Retention::default()).expect("it opens")
    };
    there_and_back(&Memory::new(Retention::memory()), &open("one.db"));
    there_and_back(&open("two.db"), &Memory::new(Retention::memory()));
    there_and_back(&open("three.db"), &open("four.db"));
}

#[test]
fn what_was_dropped_stays_dropped_and_numbers_stay() {
    let few = Retention { events_per_session: 2, ..Retention::memory() };
    let store = Memory::new(few);
    promise(&store, "s1", vec![created()]).expect("a session");
    promise(&store, "s1", (1..=5).map(|n| event(&n.to_string())).collect()).expect("it is");
    let archive = parsed(&lines(&of(&store, "s1"))).expect("it can be read");
    block_on(archive.put(&store, id("s2"), 1)).expect("it is imported");
    let row = row(&store, "s2");
    assert_eq!((row.first_seq, row.last_seq), (4, 5));
    assert_eq!(bodies(&all_events(&store, "s2", 9)), ["4", "5"]);
}

#[test]
fn a_session_is_imported_whole_or_not_at_all() {
    let folder = TempDir::new().expect("a folder");
    let store =
        Sqlite::open(folder.path().join("store.db"), Retention::default()).expect("it opens");
    full(&store);
    let archive = of(&store, "s1");
    let taken = block_on(archive.clone().put(&store, id("s1"), 100));
    assert!(matches!(taken, Err(ArchiveError::Store(StoreError::Exists(_)))), "{taken:?}");
    // Its second unit would have a number that is taken.
    let taken = block_on(archive.put(&store, id("s2"), 2));
    assert!(matches!(taken, Err(ArchiveError::Store(StoreError::Invalid(_)))), "{taken:?}");
    assert!(block_on(store.session(&id("s2"))).is_err());
    assert_eq!(units(&store, "s1").len(), 3);
}

#[test]
fn a_session_that_works_is_exported_only_on_demand() {
    let store = Memory::new(Retention::memory());
    promise(&store, "s1", vec![created(), message("m"), began(1, "w")]).expect("it is");
    let refused = block_on(Archive::of(&store, &id("s1"), RunningTurn::Refuse));
    assert!(matches!(refused, Err(ArchiveError::Running(_))), "{refused:?}");
    let cut = block_on(Archive::of(&store, &id("s1"), RunningTurn::CutOff)).expect("it is");
    let cut = parsed(&lines(&cut)).expect("it can be read");
    block_on(cut.put(&store, id("s2"), 1)).expect("it is imported");
    let row = row(&store, "s2");
    assert_eq!((row.running, row.generation, row.messages), (None, 1, 1));
    promise(&store, "s2", vec![began(2, "w")]).expect("it goes on");
}

#[test]
fn only_a_new_session_goes_on_from_somewhere_else() {
    let store = Memory::new(Retention::memory());
    let goes_on = || Change::GoesOn { created_ms: 1, generation: 1, events: 1, messages: 1 };
    for changes in [
        vec![created(), event("1"), goes_on()],
        vec![created(), goes_on(), goes_on()],
        vec![
            created(),
            Change::GoesOn { created_ms: 1, generation: u64::MAX, events: 0, messages: 0 },
        ],
    ] {
        let refused = promise(&store, "s1", changes);
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
    }
    promise(&store, "s1", vec![created()]).expect("a session");
    assert!(promise(&store, "s1", vec![goes_on()]).is_err());
}

/// Fields that nobody knows are passed over.
#[test]
fn a_line_may_say_more_than_is_known() {
    let store = Memory::new(Retention::memory());
    full(&store);
    let archive = of(&store, "s1");
    let out = lines(&archive);
    let more = out.replace("{\"type\"", "{\"more\":{\"than\":[\"known\"]},\"type\"");
    assert_eq!(lines(&parsed(&more).expect("it is read")), out);
}

#[test]
fn an_error_names_its_line() {
    let store = Memory::new(Retention::memory());
    full(&store);
    let out = lines(&of(&store, "s1"));
    let all: Vec<&str> = out.lines().collect();
    let count = all.len();
    let without = |index: usize| {
        let mut kept = all.clone();
        kept.remove(index);
        kept.join("\n")
    };
    let with = |index: usize, from: &str, to: &str| {
        let changed = all[index].replace(from, to);
        assert_ne!(changed, all[index], "{}", all[index]);
        let mut kept = all.clone();
        kept[index] = &changed;
        kept.join("\n")
    };
    let swapped = |one: usize, other: usize| {
        let mut kept = all.clone();
        kept.swap(one, other);
        kept.join("\n")
    };
    // One line for the session, nine messages, nine events, two of memory, three units, and the end.
    let cases: Vec<(String, usize, &str)> = vec![
        (String::new(), 1, "not the whole"),
        ("no JSON".to_owned(), 1, "expected"),
        (without(0), 1, "the line `session`"),
        (with(0, "checkrein-session", "other"), 1, "the format is `other`"),
        (with(0, "\"version\":1", "\"version\":2"), 1, "the version is 2"),
        (with(0, "\"first-seq\":1", "\"first-seq\":0"), 1, "begin with 1"),
        (with(0, "\"last-seq\":9", "\"last-seq\":9007199254740992"), 1, "too large"),
        (with(0, "\"last-seq\":9", "\"last-seq\":8"), count, "there are 9 events"),
        (with(0, "\"messages\":9", "\"messages\":8"), count, "there are 9 messages"),
        (with(0, "\"agent\":", "\"no\":"), 1, "agent"),
        (without(2), 3, "it is message 3, and 2 comes next"),
        (without(12), 13, "it is event 4, and 3 comes next"),
        (swapped(1, 2), 2, "it is message 2, and 1 comes next"),
        (swapped(9, 10), 11, "in its place"),
        (with(1, "\"body\"", "\"none\""), 2, "no body"),
        (with(1, "\"body\"", "\"text\":\"x\",\"body\""), 2, "two of them"),
        (with(3, "message", "other"), 4, "unknown variant `other`"),
        (with(20, "AP8=", "AP8"), 21, "its value"),
        (swapped(19, 20), 21, "is not after the one before"),
        (swapped(21, 22), 23, "is not after the one before"),
        (with(21, "accepted", "ended"), 22, "do not fit"),
        (with(22, "\"ended\":2", "\"ended\":0"), 23, "do not fit"),
        (with(22, "\"ended\":2", "\"ended\":1"), count, "at the same place"),
        (with(21, "\"task\":1", "\"task\":0"), 22, "child 0 is not after"),
        (without(count - 1), count, "not the whole"),
        (with(count - 1, "24", "23"), count, "there were 23 lines"),
        (format!("{out}{}", all[count - 1]), count + 1, "after the line `end`"),
        (out[..out.len() / 2].to_owned(), 0, ""),
    ];
    for (lines, line, why) in cases {
        match parsed(&lines) {
            Err(ArchiveError::Line { line: found, why: said }) => {
                assert!(line == 0 || found == line as u64, "line {found}: {said}; {line}: {why}");
                assert!(said.contains(why), "line {found}: {said}; {why}");
            }
            other => panic!("{line} {why}: {other:?}"),
        }
    }
    let long = Archive::read_from(out.as_bytes(), out.len() as u64 - 1);
    assert!(matches!(long, Err(ArchiveError::TooLong(_))), "{long:?}");
    Archive::read_from(out.as_bytes(), out.len() as u64).expect("it is not longer");
    let not_text = [out.as_bytes(), b"\xff\xfe\n"].concat();
    let refused = Archive::read_from(&not_text[..], MOST);
    assert!(matches!(refused, Err(ArchiveError::Line { .. })), "{refused:?}");
}

/// The example in the documentation is one.
#[test]
fn the_documented_example_can_be_read() {
    let page = include_str!("../../../../docs/session-export.md");
    let example = page.split("```jsonl\n").nth(1).expect("there is an example");
    let example = example.split("```").next().expect("it ends");
    let archive = parsed(example).expect("it is right");
    assert_eq!(lines(&archive), example, "and it is what would be written");
    let names: Vec<Arc<str>> =
        archive.events().iter().map(|event| Arc::clone(&event.run)).collect();
    assert!(!names.is_empty() && !archive.messages().is_empty() && !archive.units().is_empty());
}
