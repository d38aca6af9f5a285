//! The count of live work in a home.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::super::{CountWriter, HomeLock, Life, WorkCount};
use super::{OtherProcess, lock, runtime, soon, until};
use crate::work::{Kind, Tree, Work};

fn kinds(home: &Path) -> (usize, Vec<(String, usize)>) {
    let reading = WorkCount::read(home).unwrap().unwrap();
    assert_eq!(reading.writer, Life::Alive);
    (reading.written.count, reading.written.kinds.into_iter().collect())
}

fn profile(root: &Work) -> Work {
    root.open(Kind::Profile, "profile").unwrap()
}

/// Rules N1, N2, W2, G1: written at both ends of everything, and it is what the tree says.
#[test]
fn the_count_is_written_at_both_ends_of_a_piece_of_work() {
    let (runtime, home) = (runtime(), tempfile::tempdir().unwrap());
    let (tree, root) = Tree::new("host");
    let profile = profile(&root);
    let elsewhere = root.open(Kind::SideRun, "elsewhere").unwrap();
    let count = CountWriter::start(&profile, Arc::new(lock(home.path()))).unwrap();
    let written = || {
        soon(&runtime, count.settled());
        let (count, kinds) = kinds(home.path());
        assert_eq!(count, tree.pieces(profile.id()), "W2");
        kinds.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>()
    };
    assert_eq!(written(), [""; 0]);
    let session = profile.open(Kind::Session, "session").unwrap();
    let worker = session.open(Kind::Worker, "worker").unwrap();
    assert_eq!(written(), ["worker 1"]);
    let turn = session.open(Kind::Turn, "turn").unwrap();
    assert_eq!(written(), ["turn 1"], "W8: one execution of one session");
    let side = session.open(Kind::SideRun, "side run").unwrap();
    assert_eq!(written(), ["side run 1", "turn 1"]);
    let call = turn.open(Kind::ToolCall, "call").unwrap();
    drop((turn, worker));
    assert_eq!(written(), ["side run 1", "turn 1"], "W3: the call is left");
    drop(call);
    assert_eq!(written(), ["side run 1"]);
    drop(side);
    assert_eq!(written(), [""; 0], "N2");
    drop(elsewhere);
}

/// Rule N2: after the last piece the last value is 0, however fast they come and go, without being asked to look.
#[test]
fn the_last_count_is_zero_after_many_fast_pieces() {
    let home = tempfile::tempdir().unwrap();
    let (_tree, root) = Tree::new("host");
    let profile = profile(&root);
    let held = Arc::new(lock(home.path()));
    let count = CountWriter::start(&profile, Arc::clone(&held)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    drop(profile.open(Kind::SideRun, "side run").unwrap());
                }
            });
        }
    });
    // The end comes in the middle of the write of the beginning, or right after it.
    for _ in 0..30 {
        let last = profile.open(Kind::SideRun, "the last").unwrap();
        until(|| kinds_or_none(home.path()) == Some(1));
        drop(last);
        until(|| kinds_or_none(home.path()) == Some(0));
    }
    drop(count);
    drop(held);
    until(|| HomeLock::take(home.path()).is_ok());
    assert_eq!(kinds(home.path()).0, 0);
}

fn kinds_or_none(home: &Path) -> Option<usize> {
    WorkCount::read(home).unwrap().map(|reading| reading.written.count)
}

/// Rule N1: a fast tree does not make a write of each change. What is between two writes is left out.
#[test]
fn a_fast_tree_is_written_a_bounded_number_of_times() {
    let (runtime, home) = (runtime(), tempfile::tempdir().unwrap());
    let (_tree, root) = Tree::new("host");
    let profile = profile(&root);
    let count = CountWriter::start(&profile, Arc::new(lock(home.path()))).unwrap();
    soon(&runtime, count.settled());
    let begun = std::time::Instant::now();
    let before = count.writes();
    let mut open = Vec::new();
    for step in 0..100_000 {
        open.push(profile.open(Kind::SideRun, "side run").unwrap());
        open.truncate(step % 7);
    }
    let most = 2 + begun.elapsed().as_millis() / 10;
    let writes = count.writes() - before;
    assert!(u128::from(writes) <= most, "{writes} writes, and {most} would do");
}

/// Rule N1: a write that fails harms nobody and is tried again.
#[test]
fn a_count_that_cannot_be_written_is_written_later() {
    let (runtime, home) = (runtime(), tempfile::tempdir().unwrap());
    let (_tree, root) = Tree::new("host");
    let profile = profile(&root);
    let in_the_way = home.path().join("work.json.next");
    fs::create_dir(&in_the_way).unwrap();
    let count = CountWriter::start(&profile, Arc::new(lock(home.path()))).unwrap();
    let _run = profile.open(Kind::SideRun, "side run").unwrap();
    soon(&runtime, count.settled());
    assert_eq!(WorkCount::read(home.path()).unwrap(), None);
    fs::remove_dir(&in_the_way).unwrap();
    // Nothing changes in the tree any more.
    until(|| WorkCount::read(home.path()).unwrap().is_some());
    assert_eq!(kinds(home.path()).0, 1);
}

/// Rule N3: a reader tells a dead writer from a live one, whatever the file says and however new it is.
#[test]
fn a_reader_tells_a_dead_host_from_a_live_one() {
    let (runtime, home) = (runtime(), tempfile::tempdir().unwrap());
    assert_eq!(WorkCount::read(home.path()).unwrap(), None);
    let (_tree, root) = Tree::new("host");
    let count = CountWriter::start(&profile(&root), Arc::new(lock(home.path()))).unwrap();
    soon(&runtime, count.finish());
    let mut written = WorkCount::read(home.path()).unwrap().unwrap().written;

    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = OtherProcess::holding(elsewhere.path());
    let text = fs::read(elsewhere.path().join("lock")).unwrap();
    let holder: super::super::Holder = serde_json::from_slice(&text).unwrap();
    (written.process, written.count) = (holder.process, 7);
    fs::write(home.path().join("work.json"), serde_json::to_vec(&written).unwrap()).unwrap();
    assert_eq!(WorkCount::read(home.path()).unwrap().unwrap().writer, Life::Alive);
    other.kill();
    other.reap();
    let reading = WorkCount::read(home.path()).unwrap().unwrap();
    assert_eq!((reading.written.count, reading.writer), (7, Life::Dead));

    fs::write(home.path().join("work.json"), "{").unwrap();
    assert!(WorkCount::read(home.path()).is_err());
}
