//! What a stop reaches, and what it says there.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use super::super::{Body, Cutting, Grace, Kind, Stop, StopKind, Tree, Work};
use super::{hard, poll, soft};

fn turn() -> (Work, Work, Work) {
    let (_tree, root) = Tree::new("host");
    let session = root.open(Kind::Session, "session").unwrap();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    (root, session, turn)
}

fn words(work: &Work) -> Option<(StopKind, String, String)> {
    work.signal()
        .stop()
        .map(|stop| (stop.kind(), stop.message().to_owned(), stop.issuer().to_owned()))
}

/// Rule S1: the kind, the exact message, and who asked.
#[test]
fn a_receiver_reads_kind_message_and_issuer() {
    let (_root, _session, turn) = turn();
    turn.stop(&Stop::soft("ada", "please\nleave  ✋", Grace::Never));
    assert_eq!(words(&turn), Some((StopKind::Soft, "please\nleave  ✋".into(), "ada".into())));
    turn.stop(&Stop::hard("bob", "now"));
    assert_eq!(words(&turn), Some((StopKind::Hard, "now".into(), "bob".into())));
    assert_eq!(
        turn.signal().soft().unwrap().message(),
        "please\nleave  ✋",
        "the soft stop can still be read"
    );
}

/// Rules W6, S2: same kind, same message, from the first moment.
#[test]
fn work_under_stopped_work_starts_stopped() {
    let (_root, session, turn) = turn();
    session.stop(&soft("wrap up"));
    let late = turn.open(Kind::Child, "late").unwrap();
    assert_eq!(words(&late), words(&turn));
    session.stop(&hard("now"));
    let later = late.open(Kind::ToolCall, "later").unwrap();
    assert_eq!(later.signal().stop(), Some(hard("now")));
    assert_eq!(later.signal().soft(), Some(soft("wrap up")));
}

/// Rule S3: the run, its tool calls and its model request, and nothing outside.
#[test]
fn a_stop_reaches_what_is_below_and_nothing_else() {
    let (root, session, turn) = turn();
    let tool = turn.open(Kind::ToolCall, "tool").unwrap();
    let request = turn.open(Kind::ModelRequest, "model").unwrap();
    let beside = session.open(Kind::SideRun, "beside").unwrap();
    assert_eq!(turn.stop(&soft("enough")), 3);
    for reached in [&turn, &tool, &request] {
        assert_eq!(reached.signal().stop(), Some(soft("enough")));
    }
    for outside in [&root, &session, &beside] {
        assert!(!outside.signal().is_raised());
    }
}

/// Rule S4: when the call has returned everything below carries the stop, and is counted.
#[test]
fn a_stop_has_reached_every_child_when_it_returns() {
    let (_root, _session, turn) = turn();
    let children: Vec<Work> = (0..100).map(|_| turn.open(Kind::Child, "child").unwrap()).collect();
    let grandchildren: Vec<Work> =
        children.iter().map(|child| child.open(Kind::ToolCall, "tool").unwrap()).collect();
    assert_eq!(
        turn.stop_children(&soft("wrap up")),
        100,
        "children are counted, not what is below them"
    );
    assert!(!turn.signal().is_raised());
    for node in children.iter().chain(&grandchildren) {
        assert_eq!(node.signal().stop(), Some(soft("wrap up")));
    }
    assert_eq!(turn.stop(&hard("now")), 201);
    assert_eq!(turn.stop_children(&hard("now")), 0, "they carry it already");
}

/// Rule S5: soft may rise, hard never falls, and the first message of a kind stays.
#[test]
fn stops_are_idempotent_and_only_rise() {
    let (_root, _session, turn) = turn();
    assert_eq!(turn.stop(&soft("first")), 1);
    assert_eq!(turn.stop(&soft("second")), 0);
    assert_eq!(turn.signal().stop(), Some(soft("first")));
    assert_eq!(turn.stop(&hard("third")), 1);
    assert_eq!(turn.stop(&hard("fourth")), 0);
    assert_eq!(turn.stop(&soft("fifth")), 0);
    assert_eq!(turn.signal().stop(), Some(hard("third")));
    assert_eq!(turn.signal().soft(), Some(soft("first")));
}

/// Rule S5: a soft stop after a hard one leaves no trace, in the work or in what is opened below it.
#[test]
fn a_hard_stop_covers_a_later_soft_one() {
    let (_root, _session, turn) = turn();
    turn.stop(&hard("now"));
    turn.stop(&soft("late"));
    assert_eq!(turn.signal().soft(), None);
    assert_eq!(turn.open(Kind::Child, "child").unwrap().signal().soft(), None);
}

/// Rules S6, S7, H1: the turn's stops do not reach an accepted unit; the session-level stop does.
#[test]
fn a_stop_of_the_turn_does_not_reach_an_adopted_unit() {
    let (_root, session, turn) = turn();
    let registry = session.open(Kind::Registry, "background").unwrap();
    assert_eq!(registry.stop_children(&hard("everything")), 0, "selecting nothing stops nothing");
    let unit = turn.open(Kind::Unit, "unit").unwrap();
    let child = unit.open(Kind::Child, "child").unwrap();
    registry.adopt(&[&unit]).unwrap();
    assert_eq!(turn.stop(&soft("wrap up")), 1);
    assert_eq!(turn.stop(&hard("now")), 1);
    assert!(!unit.signal().is_raised() && !child.signal().is_raised());
    assert_eq!(registry.stop_children(&hard("everything")), 1);
    assert_eq!(unit.signal().stop(), Some(hard("everything")));
    assert_eq!(child.signal().stop(), Some(hard("everything")));
    assert!(!registry.signal().is_raised(), "the registry takes the next unit");
}

/// Rules H1, A7: a stop that came before the hand-over travels with the unit.
#[test]
fn a_stop_that_came_before_the_adoption_travels_along() {
    let (_root, session, turn) = turn();
    let registry = session.open(Kind::Registry, "background").unwrap();
    let unit = turn.open(Kind::Unit, "unit").unwrap();
    turn.stop(&soft("wrap up"));
    registry.adopt(&[&unit]).unwrap();
    turn.stop(&hard("now"));
    assert_eq!(unit.signal().stop(), Some(soft("wrap up")));
}

/// Rules W6, S4: adoption by a stopped owner is a stop, and wakes who waits for one.
#[test]
fn the_stops_of_a_new_owner_reach_what_it_adopts() {
    let (_root, session, turn) = turn();
    let registry = session.open(Kind::Registry, "background").unwrap();
    let unit = turn.open(Kind::Unit, "unit").unwrap();
    let child = unit.open(Kind::Child, "child").unwrap();
    let signal = child.signal();
    let mut waiting = pin!(signal.raised(StopKind::Hard));
    assert!(poll(waiting.as_mut()).is_pending());
    registry.stop(&soft("wrap up"));
    registry.stop(&hard("everything"));
    registry.adopt(&[&unit]).unwrap();
    assert_eq!(poll(waiting.as_mut()), Poll::Ready(hard("everything")));
    assert_eq!(unit.signal().soft(), Some(soft("wrap up")));
}

/// Rule S13: the next run in the same place starts without a stop.
#[test]
fn a_stop_ends_with_the_run_that_carried_it() {
    let (_root, session, turn) = turn();
    let (signal, id) = (turn.signal(), turn.id());
    turn.stop(&hard("now"));
    drop(turn);
    let next = session.open(Kind::Turn, "next").unwrap();
    assert_eq!(next.id().place, id.place, "otherwise this test shows nothing");
    assert_eq!(next.signal().stop(), None);
    assert_eq!(signal.stop(), Some(hard("now")), "who watched the old run still reads its stop");
    next.stop(&soft("another"));
    assert_eq!(signal.soft(), None);
}

/// Rule S1: who waits for a kind of stop hears of that kind or a higher one.
#[test]
fn waiting_for_a_stop_ends_with_the_kind_that_was_waited_for() {
    let (_root, _session, turn) = turn();
    let signal = turn.signal();
    let (mut any, mut only_hard) =
        (pin!(signal.raised(StopKind::Soft)), pin!(signal.raised(StopKind::Hard)));
    assert!(poll(any.as_mut()).is_pending() && poll(only_hard.as_mut()).is_pending());
    turn.stop(&soft("wrap up"));
    assert_eq!(poll(any.as_mut()), Poll::Ready(soft("wrap up")));
    assert!(poll(only_hard.as_mut()).is_pending());
    turn.stop(&hard("now"));
    assert_eq!(poll(only_hard.as_mut()), Poll::Ready(hard("now")));
    assert_eq!(poll(pin!(signal.raised(StopKind::Soft))), Poll::Ready(hard("now")));
}

/// Counts attempts. The first ones find it busy.
#[derive(Default)]
struct Cuts(AtomicUsize);

impl Body for Cuts {
    fn cut(&self) -> Cutting {
        self.0.fetch_add(1, Ordering::SeqCst);
        Cutting::Done
    }
}

/// Rule S5: what was ended is not ended again.
#[test]
fn only_the_first_hard_stop_cuts() {
    let (_root, session, turn) = turn();
    let body = Arc::new(Cuts::default());
    turn.set_body(Arc::clone(&body) as Arc<dyn Body>);
    turn.stop(&soft("wrap up"));
    assert_eq!(body.0.load(Ordering::SeqCst), 0, "a soft stop cuts nobody");
    session.stop(&hard("now"));
    session.stop(&hard("now"));
    turn.stop(&hard("now"));
    assert_eq!(body.0.load(Ordering::SeqCst), 1);
}

/// Rule S2: a body that comes after the hard stop is cut when it comes.
#[test]
fn a_body_of_stopped_work_is_cut_at_once() {
    let (_root, _session, turn) = turn();
    let body = Arc::new(Cuts::default());
    turn.stop(&hard("now"));
    turn.set_body(Arc::clone(&body) as Arc<dyn Body>);
    assert_eq!(body.0.load(Ordering::SeqCst), 1);
}

/// A body whose end panics.
struct Panics;

impl Body for Panics {
    fn cut(&self) -> Cutting {
        panic!("in a body")
    }
}

#[test]
fn a_body_that_panics_does_not_keep_the_stop_from_the_others() {
    let (_root, session, turn) = turn();
    let other = session.open(Kind::SideRun, "beside").unwrap();
    let body = Arc::new(Cuts::default());
    turn.set_body(Arc::new(Panics));
    other.set_body(Arc::clone(&body) as Arc<dyn Body>);
    assert_eq!(session.stop(&hard("now")), 3);
    assert_eq!(body.0.load(Ordering::SeqCst), 1);
}
