//! Watching what a node owns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::{Kind, Watch, Work};
use super::Kit;

/// Watches a node, and counts how often it was told.
fn watched(work: &Work) -> (Watch, impl Fn() -> usize + use<>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let watch = work.watch(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    (watch, move || count.swap(0, Ordering::SeqCst))
}

/// Rule N1: a watcher hears of each change of the pieces below its node, at both ends, and of nothing else.
#[test]
fn a_watcher_hears_of_each_change_of_the_pieces_below_its_node() {
    let kit = Kit::new();
    let profile = kit.root.open(Kind::Profile, "profile").unwrap();
    let other = kit.root.open(Kind::Profile, "other").unwrap();
    let (watch, told) = watched(&profile);
    let session = profile.open(Kind::Session, "session").unwrap();
    assert_eq!(told(), 1);
    let turn = session.open(Kind::Turn, "turn").unwrap();
    assert_eq!(told(), 1);

    let call = turn.open(Kind::ToolCall, "call").unwrap();
    let elsewhere = other.open(Kind::SideRun, "elsewhere").unwrap();
    assert_eq!(told(), 0, "neither what is below a piece nor what is elsewhere");

    drop(turn);
    assert_eq!(told(), 0, "it lingers, and is a piece still");
    drop(call);
    assert_eq!(told(), 1);

    profile.adopt(&[&elsewhere]).unwrap();
    assert_eq!(told(), 1);
    other.adopt(&[&elsewhere]).unwrap();
    assert_eq!(told(), 1, "what moves away is a change as well");

    drop(watch);
    drop(session);
    assert_eq!(told(), 0);
}

/// Rule N2: the end of the watched node is the last change.
#[test]
fn a_watcher_hears_of_the_end_of_its_node() {
    let kit = Kit::new();
    let profile = kit.root.open(Kind::Profile, "profile").unwrap();
    let (_watch, told) = watched(&profile);
    let run = profile.open(Kind::SideRun, "side run").unwrap();
    drop(profile);
    assert_eq!(told(), 1, "of the run's beginning");
    drop(run);
    assert_eq!(told(), 1);
}

/// Rule W8: one session with a turn and a managed worker is one piece, and by kind it is the turn.
#[test]
fn pieces_by_kind_add_up_to_the_pieces() {
    let kit = Kit::new();
    let session = kit.root.open(Kind::Session, "session").unwrap();
    let worker = session.open(Kind::Worker, "worker").unwrap();
    let by_kind =
        |kit: &Kit| kit.tree.pieces_by_kind(kit.tree.root()).into_iter().collect::<Vec<_>>();
    assert_eq!(by_kind(&kit), [(Kind::Worker, 1)]);
    let turn = session.open(Kind::Turn, "turn").unwrap();
    assert_eq!(by_kind(&kit), [(Kind::Turn, 1)]);
    let _side = session.open(Kind::SideRun, "side").unwrap();
    assert_eq!(by_kind(&kit), [(Kind::Turn, 1), (Kind::SideRun, 1)]);
    assert_eq!(kit.tree.pieces(kit.tree.root()), 2);
    drop((turn, worker));
    assert_eq!(by_kind(&kit), [(Kind::SideRun, 1)]);
}
