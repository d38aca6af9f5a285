//! The races of the tree of work, in every order in which they can happen.
//!
//! Each test counts which side won, and fails when one side never did: then there was no race. Each was seen to
//! fail with the mutation that its comment names, which splits one step into a check and an act.

#![cfg(checkrein_loom)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use checkrein_loom::work::{Body, Cutting, Grace, Kind, Refused, Stop, StopKind, Tree, Work};

/// How often each side of a race won, over all the orders that loom tried.
#[derive(Default)]
struct Outcomes {
    one: AtomicUsize,
    other: AtomicUsize,
}

impl Outcomes {
    fn count(&self, one: bool) {
        let side = if one { &self.one } else { &self.other };
        side.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a race in every order. It returns which side won.
fn race(run: impl Fn() -> bool + Send + Sync + 'static) {
    let outcomes = Arc::new(Outcomes::default());
    let counted = Arc::clone(&outcomes);
    loom::model(move || counted.count(run()));
    let (one, other) =
        (outcomes.one.load(Ordering::Relaxed), outcomes.other.load(Ordering::Relaxed));
    println!("one side won {one} times, the other {other} times");
    assert!(one > 0 && other > 0, "one side never won: {one} against {other}");
}

fn tree() -> (Tree, Work, Work) {
    let (tree, root) = Tree::new("host");
    let session = root.open(Kind::Session, "session").unwrap();
    (tree, root, session)
}

fn hard() -> Stop {
    Stop::hard("a user", "enough")
}

/// Rules W5, D2: what was opened before the close is counted by who closed, and nothing is opened after it.
///
/// Mutation tried: `State::open` without `admits`, and `Work::open` calling `admits` under the lock, letting go of
/// the lock, and opening under the lock again.
#[test]
fn open_against_close() {
    race(|| {
        let (_tree, _root, session) = tree();
        let other = session.share();
        let closer = loom::thread::spawn(move || {
            other.close("draining");
            other.count()
        });
        let opened = session.open(Kind::Turn, "turn");
        let left = closer.join().unwrap();
        match &opened {
            Ok(_) => assert_eq!(
                left, 1,
                "who closed has seen an empty session, and then work was opened in it"
            ),
            Err(Refused::Closed { .. }) => assert_eq!(left, 0),
            Err(refused) => panic!("refused for another reason: {refused}"),
        }
        assert!(session.open(Kind::Turn, "late").is_err());
        opened.is_ok()
    });
}

/// Rules W6, S4: a child carries the stop of its owner, whether it was there when the stop came or was opened later.
///
/// Mutation tried: `Work::open` reading the owner's stops under the lock, letting go of the lock, and inserting the
/// child with them under the lock again.
#[test]
fn stop_against_open() {
    race(|| {
        let (_tree, _root, session) = tree();
        let other = session.share();
        let stopper = loom::thread::spawn(move || other.stop(&hard()));
        let turn = session.open(Kind::Turn, "turn").unwrap();
        let changed = stopper.join().unwrap();
        let stop = turn.signal().stop();
        assert_eq!(stop, Some(hard()), "a child of a stopped owner runs on");
        changed == 2
    });
}

/// Rules S6, H1: a stop of the turn reaches a unit while the turn owns it, and not once it was adopted.
///
/// Mutation tried: `Shared::stop` listing the nodes of the subtree under the lock, letting go of the lock, and marking
/// them under the lock again.
#[test]
fn adopt_against_a_stop_of_the_old_owner() {
    race(|| {
        let (tree, _root, session) = tree();
        let registry = session.open(Kind::Registry, "background").unwrap();
        let turn = session.open(Kind::Turn, "turn").unwrap();
        let unit = turn.open(Kind::Unit, "unit").unwrap();
        let stopper = loom::thread::spawn(move || (turn.stop(&hard()), turn));
        registry.adopt(&[&unit]).unwrap();
        let carried = unit.signal().is_hard();
        let (changed, turn) = stopper.join().unwrap();
        assert_eq!(
            unit.signal().is_hard(),
            carried,
            "a stop of the turn has reached an accepted unit"
        );
        assert_eq!(changed == 2, carried, "the stop says that it has reached what it has reached");
        assert_eq!(
            (tree.count(registry.id()), tree.count(turn.id())),
            (1, 0),
            "one owner, and no other (W1)"
        );
        carried
    });
}

/// Rules W6, S7: a stop of the new owner reaches a unit, whether it was there when the stop came or was adopted later.
///
/// Mutation tried: `Work::adopt` reading the new owner's stops under the lock, letting go of the lock, and moving the
/// unit and marking it with them under the lock again.
#[test]
fn adopt_against_a_stop_of_the_new_owner() {
    race(|| {
        let (_tree, _root, session) = tree();
        let registry = session.open(Kind::Registry, "background").unwrap();
        let turn = session.open(Kind::Turn, "turn").unwrap();
        let unit = turn.open(Kind::Unit, "unit").unwrap();
        let other = registry.share();
        let stopper = loom::thread::spawn(move || other.stop(&hard()));
        registry.adopt(&[&unit]).unwrap();
        let changed = stopper.join().unwrap();
        assert!(unit.signal().is_hard(), "a unit of a stopped registry runs on");
        changed == 2
    });
}

/// Rules D1, D2, W4: a drain that has found somebody is woken by the last one who leaves.
///
/// Mutation tried: `Work::drain` looking whether somebody is left before it asks to be notified. Then loom finds the
/// order in which the drain sleeps for ever, and reports a deadlock.
#[test]
fn last_drop_against_drain() {
    // The bound of the drain is a timer of tokio; nobody drives it, so it never ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _in = runtime.enter();
    race(|| {
        let (tree, _root, session) = tree();
        let turn = session.open(Kind::Turn, "turn").unwrap();
        let last = loom::thread::spawn(move || drop(turn));
        let waited = loom::future::block_on(async {
            let mut drain = pin!(session.drain("draining", Duration::from_secs(3600)));
            let mut polls = 0;
            let drained = std::future::poll_fn(|cx| {
                polls += 1;
                drain.as_mut().poll(cx)
            })
            .await;
            assert!(drained.is_ok());
            polls > 1
        });
        assert_eq!(tree.count(session.id()), 0);
        last.join().unwrap();
        waited
    });
}

/// Counts how often it was cut.
#[derive(Default)]
struct Cuts(AtomicUsize);

impl Body for Cuts {
    fn cut(&self) -> Cutting {
        self.0.fetch_add(1, Ordering::SeqCst);
        Cutting::Done
    }
}

/// Rule S2: an execution that is being started is cut by a hard stop, once.
///
/// Mutation tried: `Work::set_body` looking for a stop under the lock, letting go of the lock, and setting the body
/// under the lock again.
#[test]
fn stop_against_the_start_of_an_execution() {
    race(|| {
        let (_tree, _root, session) = tree();
        let turn = session.open(Kind::Turn, "turn").unwrap();
        let (body, other) = (Arc::new(Cuts::default()), turn.share());
        let stopper = loom::thread::spawn(move || other.stop(&hard()));
        turn.set_body(Arc::clone(&body) as Arc<dyn Body>);
        let cut_by_then = body.0.load(Ordering::SeqCst) == 1;
        stopper.join().unwrap();
        assert_eq!(
            body.0.load(Ordering::SeqCst),
            1,
            "a stopped execution was not cut, or was cut twice"
        );
        cut_by_then
    });
}

/// Rule S1: who waits for a stop hears of it, whether it came before the waiting or after.
///
/// Mutation tried: `StopSignal::raised` looking for a stop before it asks to be notified. Then loom reports a deadlock.
#[test]
fn stop_against_a_waiting_signal() {
    race(|| {
        let (_tree, _root, session) = tree();
        let (signal, other) = (session.signal(), session.share());
        let stopper =
            loom::thread::spawn(move || other.stop(&Stop::soft("a user", "please", Grace::Never)));
        let mut polls = 0;
        let stop = loom::future::block_on(async {
            let mut raised = pin!(signal.raised(StopKind::Soft));
            std::future::poll_fn(|cx| {
                polls += 1;
                raised.as_mut().poll(cx)
            })
            .await
        });
        assert_eq!(stop.message(), "please");
        assert_eq!(stopper.join().unwrap(), 1);
        polls > 1
    });
}
