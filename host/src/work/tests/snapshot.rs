//! What an operator sees of the tree.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{Activity, Body, BudgetUse, Cutting, Kind, Tree, Work};
use super::hard;

/// A body that has used something.
struct Busy;

impl Body for Busy {
    fn cut(&self) -> Cutting {
        Cutting::Done
    }

    fn budgets(&self) -> Vec<BudgetUse> {
        vec![BudgetUse { name: "fuel", used: 7, limit: Some(10) }]
    }

    fn doing(&self) -> Option<&'static str> {
        Some("computing")
    }
}

/// Rule D7: a node is shown with its name, kind, label, owner, stop, age, what it is doing and what it has used.
#[test]
fn a_node_is_shown_with_all_that_is_known_of_it() {
    let (tree, root) = Tree::new("host");
    let session = root.open(Kind::Session, "session").unwrap();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    turn.set_body(Arc::new(Busy));
    let request = turn.open(Kind::ModelRequest, "model").unwrap();
    let (what, detail) = ("model.complete", Some("gpt-x".into()));
    request.set_activity(Some(Activity { what, detail, since: Some(Instant::now()) }));
    request.stop(&hard("enough"));
    session.close("it is over");

    let nodes = tree.snapshot(tree.root());
    let [_, seen_session, seen_turn, seen_request] = &nodes[..] else { panic!("{nodes:?}") };
    assert_eq!(
        (seen_session.id, seen_session.closed.as_deref()),
        (session.id(), Some("it is over"))
    );
    assert_eq!((seen_turn.id, seen_turn.owner), (turn.id(), Some(session.id())));
    assert_eq!((seen_turn.kind, &*seen_turn.label), (Kind::Turn, "turn"));
    assert_eq!(seen_turn.activity.as_ref().map(|doing| doing.what), Some("computing"));
    assert_eq!(seen_turn.budgets, [BudgetUse { name: "fuel", used: 7, limit: Some(10) }]);
    assert!(seen_turn.stop.is_none() && seen_turn.age >= seen_request.age);
    assert_eq!(seen_request.stop, Some(hard("enough")));
    let doing = seen_request.activity.as_ref().unwrap();
    assert_eq!((doing.what, doing.detail.as_deref()), ("model.complete", Some("gpt-x")));
    assert!(doing.since.is_some());
}

/// Cheap enough to be taken ten times a second of 10,000 nodes. The bound is wide: it is for a machine that is busy with
/// other tests, and for code that is not optimised.
#[test]
fn a_snapshot_of_ten_thousand_nodes_is_cheap() {
    let (tree, root) = Tree::new("host");
    let mut held: Vec<Work> = Vec::new();
    for session in 0..100 {
        let session = root.open(Kind::Session, format!("s{session}")).unwrap();
        for turn in 0..99 {
            let turn = session.open(Kind::Turn, format!("turn {turn}")).unwrap();
            turn.set_body(Arc::new(Busy));
            held.push(turn);
        }
        held.push(session);
    }
    let look = || {
        let start = Instant::now();
        assert_eq!(tree.snapshot(tree.root()).len(), 10_001);
        start.elapsed()
    };
    let quickest = (0..20).map(|_| look()).min().unwrap();
    assert!(quickest < Duration::from_millis(50), "{quickest:?}");
}
