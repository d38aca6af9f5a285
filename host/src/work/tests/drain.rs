//! Waiting until nothing is left.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::super::{Activity, Kind, Refused};
use super::{Kit, poll};

const LONG: Duration = Duration::from_secs(3600);

/// Rule D2: refused before the first wait.
#[test]
fn a_drain_refuses_new_work_from_its_first_poll() {
    let kit = Kit::new();
    let _in = kit.control.enter();
    let turn = kit.open();
    let mut drain = pin!(kit.root.drain("shutting down", LONG));
    assert!(poll(drain.as_mut()).is_pending());
    let refused = kit.root.open(Kind::Turn, "late").unwrap_err();
    assert!(matches!(refused, Refused::Closed { reason, .. } if &*reason == "shutting down"));
    drop(turn);
    assert!(matches!(poll(drain.as_mut()), Poll::Ready(Ok(_))));
}

/// Rules D1, D2: containers are not waited for; an empty tree is drained at once.
#[test]
fn a_drain_of_nothing_but_containers_ends_at_once() {
    let kit = Kit::new();
    let session = kit.root.open(Kind::Session, "session").unwrap();
    let _registry = session.open(Kind::Registry, "background").unwrap();
    assert!(matches!(
        poll(pin!(kit.root.drain("shutting down", Duration::ZERO))),
        Poll::Ready(Ok(_))
    ));
    assert!(matches!(
        poll(pin!(kit.root.drain("shutting down", Duration::MAX))),
        Poll::Ready(Ok(_))
    ));
}

/// Rules M3, D7: with no time the answer is the real state, and names who is left.
#[test]
fn a_drain_without_time_names_who_is_left() {
    let kit = Kit::new();
    let turn = kit.open();
    let _tool = turn.open(Kind::ToolCall, "files_read").unwrap();
    turn.set_activity(Some(Activity {
        what: "tools.call",
        detail: Some("files_read".into()),
        since: None,
    }));
    let Poll::Ready(Err(left)) = poll(pin!(kit.root.drain("shutting down", Duration::ZERO))) else {
        panic!("this should end at once, and with somebody left");
    };
    assert_eq!(left.nodes.len(), 2);
    assert_eq!(left.nodes[0].activity.as_ref().unwrap().what, "tools.call");
    assert!(
        left.to_string().contains(&format!("tool call files_read ({})", left.nodes[1].id)),
        "{left}"
    );
    assert!(!turn.signal().is_raised(), "nothing was stopped");
}

/// Rule D1: who waits is woken by the last of all, also when it lingered.
#[test]
fn a_drain_waits_for_everything_below() {
    let kit = Kit::new();
    let _in = kit.control.enter();
    let session = kit.root.open(Kind::Session, "session").unwrap();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    let child = turn.open(Kind::Child, "child").unwrap();
    let mut drain = pin!(kit.root.drain("shutting down", Duration::MAX));
    assert!(poll(drain.as_mut()).is_pending());
    drop(turn);
    assert!(poll(drain.as_mut()).is_pending(), "its child is left");
    drop(child);
    assert!(matches!(poll(drain.as_mut()), Poll::Ready(Ok(_))));
}

/// Rule H5: what was handed over is no longer waited for.
#[test]
fn a_drain_ends_when_the_last_execution_was_adopted_elsewhere() {
    let kit = Kit::new();
    let _in = kit.control.enter();
    let registry = kit.root.open(Kind::Registry, "background").unwrap();
    let turn = kit.open();
    let unit = turn.open(Kind::Unit, "unit").unwrap();
    let mut drain = pin!(turn.drain("the turn is over", LONG));
    assert!(poll(drain.as_mut()).is_pending());
    registry.adopt(&[&unit]).unwrap();
    assert!(matches!(poll(drain.as_mut()), Poll::Ready(Ok(_))));
    assert_eq!(registry.count(), 1);
}

#[test]
fn a_drain_can_be_given_up_and_begun_again() {
    let kit = Kit::new();
    let _in = kit.control.enter();
    let turn = kit.open();
    assert!(poll(pin!(kit.root.drain("shutting down", LONG))).is_pending());
    assert!(kit.root.open(Kind::Turn, "late").is_err(), "the node stays closed");
    drop(turn);
    assert!(matches!(poll(pin!(kit.root.drain("again", LONG))), Poll::Ready(Ok(_))));
}

/// The bound is kept also when executions come and go meanwhile.
#[test]
fn a_drain_ends_with_its_bound() {
    let kit = Kit::new();
    let _turn = kit.open();
    let left = kit.soon(kit.root.drain("shutting down", Duration::from_millis(1))).unwrap_err();
    assert_eq!(left.nodes.len(), 1);
}
