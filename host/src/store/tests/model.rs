//! Random writes, reads and reopenings against a model that is plain enough to be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::contract::{Bed, InFile, InMemory};
use super::talk::{all_events, block_on, bodies, id, messages, promise, queue, row, text, units};
use crate::store::{Change, Class, Retention, StoreError, UnitState};

/// A session as plainly as it can be said.
#[derive(Debug, Clone, Default)]
struct Plain {
    events: Vec<String>,
    messages: Vec<String>,
    memory: BTreeMap<String, Vec<u8>>,
    turns: u64,
    turn: Option<String>,
    runs: Vec<String>,
    kept: Vec<(String, String)>,
    units: BTreeMap<u64, PlainUnit>,
    ended: u64,
}

#[derive(Debug, Clone, Default)]
struct PlainUnit {
    completion: Option<String>,
    read: bool,
    ended: u64,
    deliveries: u32,
    children: BTreeMap<u32, String>,
}

#[derive(Debug, Clone, Default)]
struct Model {
    sessions: BTreeMap<String, Plain>,
    names: BTreeSet<String>,
    order: Vec<String>,
}

/// What a write is expected to come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Seq(u64),
    NoSession,
    Exists,
    InUse,
    Invalid,
}

impl Model {
    fn write(&mut self, name: &str, changes: &[Change]) -> Expected {
        let mut after = self.clone();
        match after.all(name, changes) {
            Ok(seq) => {
                *self = after;
                Expected::Seq(seq)
            }
            Err(why) => why,
        }
    }

    fn all(&mut self, name: &str, changes: &[Change]) -> Result<u64, Expected> {
        let mut changes = changes.iter();
        if let Some(Change::Created { .. }) = changes.as_slice().first() {
            changes.next();
            if !self.names.insert(name.to_owned()) {
                return Err(Expected::Exists);
            }
            self.order.push(name.to_owned());
            self.sessions.insert(name.to_owned(), Plain::default());
        }
        if !self.sessions.contains_key(name) {
            return Err(Expected::NoSession);
        }
        let mut seq = 0;
        let mut deleted = false;
        for change in changes {
            if deleted {
                return Err(Expected::Invalid);
            }
            if let Change::UnitAccepted { unit, .. } = change
                && self.sessions.values().any(|plain| plain.units.contains_key(unit))
            {
                return Err(Expected::Invalid);
            }
            if matches!(change, Change::Deleted) {
                let plain = &self.sessions[name];
                if plain.turn.is_some() || plain.units.values().any(|unit| !unit.read) {
                    return Err(Expected::InUse);
                }
                seq = plain.events.len() as u64;
                deleted = true;
                continue;
            }
            self.sessions.get_mut(name).expect("it is there").one(change)?;
        }
        if deleted {
            self.sessions.remove(name);
            return Ok(seq);
        }
        Ok(self.sessions[name].events.len() as u64)
    }
}

impl Plain {
    fn one(&mut self, change: &Change) -> Result<(), Expected> {
        let fits = |fits: bool| if fits { Ok(()) } else { Err(Expected::Invalid) };
        match change {
            Change::Created { .. } => return Err(Expected::Exists),
            Change::Deleted | Change::GoesOn { .. } | Change::At { .. } => {}
            Change::Event { body, .. } => self.events.push(body.text().to_string()),
            Change::Message { body } => self.messages.push(body.text().to_string()),
            Change::Memory { key, value } => match value {
                Some(value) => drop(self.memory.insert(key.clone(), value.clone())),
                None => drop(self.memory.remove(key)),
            },
            Change::TurnBegan { generation, run, brings } => {
                fits(self.turn.is_none() && *generation > self.turns)?;
                if let Some(unit) = brings {
                    let unit = self.units.get_mut(unit).ok_or(Expected::Invalid)?;
                    fits(unit.completion.is_some() && !unit.read)?;
                    unit.deliveries += 1;
                }
                self.turns = *generation;
                self.turn = Some(run.to_string());
            }
            Change::TurnEnded { generation } => {
                fits(*generation == self.turns)?;
                let run = self.turn.take().ok_or(Expected::Invalid)?;
                self.kept.retain(|(of, _)| *of != run);
            }
            Change::RunBegan { run, .. } => {
                fits(!self.runs.iter().any(|open| **open == **run))?;
                self.runs.push(run.to_string());
            }
            Change::RunEnded { run } => {
                fits(self.runs.iter().any(|open| **open == **run))?;
                self.runs.retain(|open| **open != **run);
                self.kept.retain(|(of, _)| **of != **run);
            }
            Change::Kept { run, body } => {
                let turn = self.turn.as_deref() == Some(&**run);
                fits(turn || self.runs.iter().any(|open| **open == **run))?;
                self.kept.push((run.to_string(), body.text().to_string()));
            }
            Change::UnitAccepted { unit, .. } => {
                self.units.insert(*unit, PlainUnit::default());
            }
            Change::UnitWithdrawn { unit } => {
                let found = self.units.get(unit).ok_or(Expected::Invalid)?;
                fits(found.completion.is_none())?;
                self.units.remove(unit);
            }
            Change::ChildEnded { unit, task, body } => {
                let found = self.units.get_mut(unit).ok_or(Expected::Invalid)?;
                if found.completion.is_none() {
                    found.children.entry(*task).or_insert_with(|| body.text().to_string());
                }
            }
            Change::UnitEnded { unit, body } => {
                let found = self.units.get_mut(unit).ok_or(Expected::Invalid)?;
                if found.completion.is_none() {
                    self.ended += 1;
                    found.ended = self.ended;
                    found.completion = Some(body.text().to_string());
                }
            }
            Change::UnitAcknowledged { unit } => {
                if let Some(found) = self.units.get_mut(unit) {
                    fits(found.completion.is_some())?;
                    found.read = true;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum Act {
    Write(String, Class, Vec<Change>),
    Reopen,
    Compact,
}

fn name() -> impl Strategy<Value = String> {
    (1..4_u8).prop_map(|n| format!("s{n}"))
}

fn run() -> impl Strategy<Value = Arc<str>> {
    (1..4_u8).prop_map(|n| Arc::from(format!("w{n}")))
}

fn change() -> impl Strategy<Value = Change> {
    let unit = || 1..6_u64;
    let body = || "[a-z\u{e9}\u{0}]{0,5}".prop_map(|body| text(&body));
    prop_oneof![
        1 => Just(Change::Created { agent: "agent".to_owned(), settings: text("{}") }),
        1 => Just(Change::Deleted),
        8 => (run(), body()).prop_map(|(run, body)| Change::Event { run, body }),
        4 => body().prop_map(|body| Change::Message { body }),
        2 => ("[ab]", proptest::option::of(proptest::collection::vec(any::<u8>(), 0..4)))
            .prop_map(|(key, value)| Change::Memory { key, value }),
        4 => (1..5_u64, run(), proptest::option::of(unit()))
            .prop_map(|(generation, run, brings)| Change::TurnBegan { generation, run, brings }),
        4 => (1..5_u64).prop_map(|generation| Change::TurnEnded { generation }),
        2 => (run(), body()).prop_map(|(run, body)| Change::RunBegan { run, body }),
        2 => run().prop_map(|run| Change::RunEnded { run }),
        2 => (run(), body()).prop_map(|(run, body)| Change::Kept { run, body }),
        3 => (unit(), body()).prop_map(|(unit, body)| Change::UnitAccepted { unit, body }),
        1 => unit().prop_map(|unit| Change::UnitWithdrawn { unit }),
        2 => (unit(), 0..3_u32, body())
            .prop_map(|(unit, task, body)| Change::ChildEnded { unit, task, body }),
        3 => (unit(), body()).prop_map(|(unit, body)| Change::UnitEnded { unit, body }),
        3 => unit().prop_map(|unit| Change::UnitAcknowledged { unit }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let class = prop_oneof![Just(Class::Promise), Just(Class::Owed)];
    let created = Change::Created { agent: "agent".to_owned(), settings: text("{}") };
    prop_oneof![
        40 => (name(), class, proptest::collection::vec(change(), 1..4))
            .prop_map(|(name, class, changes)| Act::Write(name, class, changes)),
        3 => name().prop_map(move |name| Act::Write(name, Class::Promise, vec![created.clone()])),
        1 => Just(Act::Reopen),
        1 => Just(Act::Compact),
    ]
}

/// Writes that follow each other are queued without a wait, so that they share transactions.
fn plays<B: Bed>(acts: &[Act]) {
    let mut bed = B::new(Retention::default());
    let mut model = Model::default();
    for name in ["s1", "s2"] {
        let created = vec![Change::Created { agent: "agent".to_owned(), settings: text("{}") }];
        model.write(name, &created);
        promise(bed.store(), name, created).expect("a session");
    }
    let mut waiting = Vec::new();
    let settle = |waiting: &mut Vec<(super::talk::Pending, Expected)>| {
        for (pending, expected) in waiting.drain(..) {
            let found = match pending.wait() {
                Ok(recorded) => Expected::Seq(recorded.seq),
                Err(StoreError::NoSession(_)) => Expected::NoSession,
                Err(StoreError::Exists(_)) => Expected::Exists,
                Err(StoreError::InUse { .. }) => Expected::InUse,
                Err(StoreError::Invalid(_)) => Expected::Invalid,
                Err(other) => panic!("{other:?}"),
            };
            assert_eq!(found, expected);
        }
    };
    for act in acts {
        match act {
            Act::Write(name, class, changes) => {
                let expected = model.write(name, changes);
                waiting.push((queue(bed.store(), name, *class, changes.clone()), expected));
            }
            Act::Reopen => {
                settle(&mut waiting);
                bed.reopen();
            }
            Act::Compact => {
                block_on(bed.store().compact()).expect("it compacts");
            }
        }
    }
    settle(&mut waiting);
    compare(&bed, &model);
    bed.reopen();
    compare(&bed, &model);
}

fn compare<B: Bed>(bed: &B, model: &Model) {
    let store = bed.store();
    let listed = block_on(store.sessions(None, 99)).expect("a list");
    let listed: Vec<String> = listed.iter().map(|row| row.id.to_string()).collect();
    let here = |name: &&String| model.sessions.contains_key(*name);
    let expected: Vec<String> = model.order.iter().filter(here).cloned().collect();
    assert_eq!(listed, expected);
    let open = |plain: &Plain| {
        plain.turn.is_some()
            || !plain.runs.is_empty()
            || plain.units.values().any(|unit| !unit.read)
    };
    let unfinished: Vec<String> =
        expected.iter().filter(|name| open(&model.sessions[*name])).cloned().collect();
    let found = block_on(store.unfinished()).expect("a list");
    assert_eq!(found.iter().map(|id| id.to_string()).collect::<Vec<_>>(), unfinished);
    for (name, plain) in &model.sessions {
        let row = row(store, name);
        assert_eq!(bodies(&all_events(store, name, 3)), plain.events);
        assert_eq!(messages(store, name), plain.messages);
        let memory = block_on(store.memory(&id(name))).expect("memory");
        assert_eq!(memory, plain.memory.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(row.generation, plain.turns);
        assert_eq!(row.running.map(|running| running.run.to_string()), plain.turn);
        assert_eq!((row.first_seq, row.last_seq), (1, plain.events.len() as u64));
        assert_eq!(row.messages, plain.messages.len() as u64);
        let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>() as u64;
        assert_eq!(row.message_bytes, bytes(&plain.messages));
        assert_eq!(row.event_bytes, bytes(&plain.events));
        let runs = block_on(store.open_runs(&id(name))).expect("runs");
        assert_eq!(runs.into_iter().map(|(run, _)| run).collect::<Vec<_>>(), plain.runs);
        for run in ["w1", "w2", "w3"] {
            let kept = plain.kept.iter().filter(|(of, _)| of == run);
            let kept: Vec<String> = kept.map(|(_, body)| body.clone()).collect();
            assert_eq!(block_on(store.kept(&id(name), run)).expect("kept"), kept);
        }
        let found = units(store, name);
        assert_eq!(found.len(), plain.units.len());
        let unread = plain.units.values().filter(|unit| unit.completion.is_some() && !unit.read);
        assert_eq!(row.units_unread, unread.count() as u64);
        let accepted = plain.units.values().filter(|unit| unit.completion.is_none());
        assert_eq!(row.units_open, accepted.count() as u64);
        for (unit, (number, plain)) in found.iter().zip(&plain.units) {
            assert_eq!((unit.unit, unit.ended), (*number, plain.ended));
            assert_eq!(unit.completion.as_deref(), plain.completion.as_deref());
            assert_eq!(unit.state == UnitState::Acknowledged, plain.read);
            assert_eq!(unit.deliveries, plain.deliveries);
            let children: Vec<(u32, String)> =
                unit.children.iter().map(|(task, body)| (*task, body.to_string())).collect();
            assert_eq!(children, plain.children.clone().into_iter().collect::<Vec<_>>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn a_database_does_what_the_model_says(acts in proptest::collection::vec(act(), 1..80)) {
        plays::<InFile>(&acts);
    }

    #[test]
    fn a_store_in_memory_does_what_the_model_says(acts in proptest::collection::vec(act(), 1..80)) {
        plays::<InMemory>(&acts);
    }
}
