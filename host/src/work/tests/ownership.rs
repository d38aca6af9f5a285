//! Who owns work, how it is counted, and when it is gone.

use std::sync::Arc;

use super::super::{Body, Cutting, Kind, Refused, Tree, Work};
use super::hard;
use crate::ids::WorkId;

fn session() -> (Tree, Work, Work, Work) {
    let (tree, root) = Tree::new("host");
    let session = root.open(Kind::Session, "session").unwrap();
    let registry = session.open(Kind::Registry, "background").unwrap();
    (tree, root, session, registry)
}

fn owner(tree: &Tree, id: WorkId) -> Option<WorkId> {
    tree.snapshot(tree.root()).into_iter().find(|node| node.id == id).and_then(|node| node.owner)
}

/// Rule W1: one owner before the hand-over and one after it.
#[test]
fn adopted_work_has_its_new_owner_and_no_other() {
    let (tree, _root, session, registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let units = [turn.open(Kind::Unit, "first").unwrap(), turn.open(Kind::Unit, "second").unwrap()];
    assert_eq!((turn.count(), registry.count()), (2, 0));
    registry.adopt(&[&units[0], &units[1]]).unwrap();
    assert_eq!((turn.count(), registry.count()), (0, 2));
    for unit in &units {
        assert_eq!(owner(&tree, unit.id()), Some(registry.id()));
    }
}

/// Rules W1, A2: all of them move or none does.
#[test]
fn a_refused_adoption_moves_nobody() {
    let (tree, _root, session, registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let unit = turn.open(Kind::Unit, "unit").unwrap();
    assert!(matches!(unit.adopt(&[&unit]), Err(Refused::Cycle { .. })));
    assert!(
        matches!(unit.adopt(&[&turn]), Err(Refused::Cycle { .. })),
        "an owner below what it owns"
    );
    let below = unit.open(Kind::ToolCall, "tool").unwrap();
    assert!(matches!(below.adopt(&[&unit, &turn]), Err(Refused::Cycle { .. })));
    registry.close("draining");
    assert!(
        matches!(registry.adopt(&[&unit]), Err(Refused::Closed { by, .. }) if by == registry.id())
    );
    assert_eq!(owner(&tree, unit.id()), Some(turn.id()));
    assert_eq!(owner(&tree, below.id()), Some(unit.id()));
}

/// Rule W8: a claimed execution and an open managed worker of one session count as one piece of work.
#[test]
fn a_turn_and_a_worker_of_one_session_are_one_piece() {
    let (tree, root, session, registry) = session();
    assert_eq!(tree.pieces(tree.root()), 0);
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let worker = session.open(Kind::Worker, "worker").unwrap();
    let _tool = turn.open(Kind::ToolCall, "tool").unwrap();
    assert_eq!(tree.pieces(tree.root()), 1);
    let unit = registry.open(Kind::Unit, "unit").unwrap();
    let _child = unit.open(Kind::Child, "child").unwrap();
    let other = root.open(Kind::Session, "other").unwrap();
    let _other_worker = other.open(Kind::Worker, "worker").unwrap();
    assert_eq!((tree.pieces(tree.root()), tree.pieces(session.id())), (3, 2));
    drop(turn);
    assert_eq!(
        tree.pieces(session.id()),
        2,
        "the turn lingers for its tool, and the worker is open"
    );
    drop(worker);
    assert_eq!(tree.pieces(session.id()), 2);
}

/// Rule W2: the figure, the list and the reach of a stop are the same.
#[test]
fn what_is_counted_is_what_is_listed_and_what_is_stopped() {
    let (tree, root, session, registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let _tool = turn.open(Kind::ToolCall, "tool").unwrap();
    let _request = turn.open(Kind::ModelRequest, "model").unwrap();
    let _unit = registry.open(Kind::Unit, "unit").unwrap();
    let containers = 3;
    assert_eq!(root.count(), 4);
    assert_eq!(tree.executions(tree.root()).len(), 4);
    assert_eq!(tree.snapshot(tree.root()).len(), 4 + containers);
    assert_eq!(root.stop(&hard("all of it")), 4 + containers);
}

/// Rule W3: work counts from the moment it is opened until its last hold is dropped.
#[test]
fn work_lasts_as_long_as_the_last_hold_on_it() {
    let (tree, _root, session, _registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let id = turn.id();
    let shares: Vec<Work> = (0..3).map(|_| turn.share()).collect();
    drop(turn);
    for share in shares {
        assert!(tree.contains(id));
        drop(share);
    }
    assert!(!tree.contains(id));
}

/// Rules W3, W4: an owner lingers until what it owns has gone, and then goes too.
#[test]
fn work_without_holds_lingers_until_the_last_below_it_is_gone() {
    let (tree, _root, session, _registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let child = turn.open(Kind::Child, "child").unwrap();
    let tool = child.open(Kind::ToolCall, "tool").unwrap();
    let ids = [turn.id(), child.id(), tool.id()];
    drop(turn);
    drop(child);
    assert!(ids.iter().all(|id| tree.contains(*id)));
    assert_eq!(session.count(), 3, "what lingers is counted");
    assert_eq!(tree.stop(ids[0], &hard("enough")), Ok(3), "what is counted can be stopped");
    drop(tool);
    assert!(ids.iter().all(|id| !tree.contains(*id)));
}

/// Rules W3, W4: an old owner that nothing kept but the adopted child is gone.
#[test]
fn a_lingering_owner_goes_when_its_last_child_is_adopted() {
    let (tree, _root, session, registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let unit = turn.open(Kind::Unit, "unit").unwrap();
    let id = turn.id();
    drop(turn);
    assert!(tree.contains(id));
    registry.adopt(&[&unit]).unwrap();
    assert!(!tree.contains(id));
    assert_eq!(tree.stop(unit.id(), &hard("enough")), Ok(1));
}

/// Rule W5: the refusal says which node refuses and why; the first reason stays.
#[test]
fn nothing_opens_under_a_closed_container() {
    let (_tree, _root, session, registry) = session();
    session.close("the profile is stopping");
    session.close("another reason");
    for owner in [&session, &registry] {
        let refused = owner.open(Kind::Turn, "late").unwrap_err();
        let Refused::Closed { by, label, reason } = &refused else {
            panic!("another refusal: {refused}")
        };
        assert_eq!(
            (*by, &**label, &**reason),
            (session.id(), "session", "the profile is stopping")
        );
        assert!(refused.to_string().contains("takes no new work: the profile is stopping"));
    }
    assert_eq!(session.count(), 0);
}

/// Rule W5: what was admitted may do what it takes to finish.
#[test]
fn work_that_was_admitted_before_the_close_still_opens_what_it_needs() {
    let (_tree, _root, session, _registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    session.close("draining");
    let tool = turn.open(Kind::ToolCall, "tool").unwrap();
    assert_eq!(session.count(), 2);
    turn.close("no more tools");
    assert!(
        matches!(turn.open(Kind::ToolCall, "tool"), Err(Refused::Closed { by, .. }) if by == turn.id())
    );
    assert!(tool.open(Kind::Blocking, "read").is_ok(), "under a run only its own mark counts");
}

/// Rule W7: ids work after the run that started the work has ended.
#[test]
fn an_id_stays_good_after_the_run_that_started_the_work_has_ended() {
    let (tree, _root, session, registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let unit = turn.open(Kind::Unit, "unit").unwrap();
    let id: WorkId = unit.id().to_string().parse().unwrap();
    registry.adopt(&[&unit]).unwrap();
    drop(turn);
    assert!(tree.snapshot(id).iter().any(|node| node.id == id && &*node.label == "unit"));
    assert_eq!(tree.stop(id, &hard("enough")), Ok(1));
}

/// Rule W7: a dead id and an unknown one get their answer at once.
#[test]
fn a_dead_id_gets_a_terminal_answer() {
    let (tree, _root, session, _registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let (dead, unknown) = (turn.id(), "w7000-7000".parse().unwrap());
    drop(turn);
    let next = session.open(Kind::Turn, "in the same place").unwrap();
    assert_eq!(next.id().place, dead.place, "otherwise this test shows nothing");
    for id in [dead, unknown] {
        assert_eq!(tree.stop(id, &hard("enough")).unwrap_err().id, id);
        assert_eq!(tree.stop_children(id, &hard("enough")).unwrap_err().id, id);
        assert!(!tree.contains(id) && tree.snapshot(id).is_empty() && tree.count(id) == 0);
    }
    assert!(!next.signal().is_raised());
}

/// A body that wants the lock of the tree when it is dropped.
struct Owner(#[expect(dead_code, reason = "kept for its drop")] Work);

impl Body for Owner {
    fn cut(&self) -> Cutting {
        Cutting::Done
    }
}

#[test]
fn a_body_that_is_replaced_is_dropped_outside_the_lock() {
    let (tree, _root, session, _registry) = session();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let owned = turn.open(Kind::ToolCall, "tool").unwrap();
    let id = owned.id();
    turn.set_body(Arc::new(Owner(owned)));
    turn.set_body(Arc::new(Owner(session.share())));
    assert!(!tree.contains(id));
    // Two nodes keep each other now; a stop of nothing but the session's bodies would not part them.
    turn.set_body(Arc::new(Idle));
}

/// A body that holds nothing.
struct Idle;

impl Body for Idle {
    fn cut(&self) -> Cutting {
        Cutting::Done
    }
}
