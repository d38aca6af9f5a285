//! Grace periods and deadlines. The clock is the real one; what is due is waited for.

use std::future::pending;
use std::pin::pin;
use std::time::{Duration, Instant};

use super::super::{Ending, Grace, Kind, Stop, StopKind};
use super::{Kit, hard, poll, soft};

fn shortly() -> Stop {
    Stop::soft("ada", "wrap up", Grace::After(Duration::from_millis(1)))
}

/// Rule S10: at the end of the grace period the stop is hard, in the same words.
#[test]
fn a_soft_stop_rises_when_its_grace_period_ends() {
    let kit = Kit::new();
    let work = kit.open();
    let child = work.open(Kind::Child, "child").unwrap();
    let signal = child.signal();
    let running = kit.start(work, pending::<()>());
    assert_eq!(kit.tree.stop(running.id(), &shortly()), Ok(2));
    let risen = kit.soon(signal.raised(StopKind::Hard));
    assert_eq!((risen.kind(), risen.message(), risen.issuer()), (StopKind::Hard, "wrap up", "ada"));
    drop(child);
    let ended = kit.soon(running.ended());
    assert!(matches!(ended.ending, Ending::Cut));
    assert_eq!(ended.stop, Some(risen));
    assert!(!ended.expired);
    assert_eq!(signal.soft(), Some(shortly()), "the soft stop can still be read");
}

/// Rule S10: a period without end, and one beyond the end of time.
#[test]
fn a_soft_stop_without_a_grace_period_stays_soft() {
    let kit = Kit::new();
    let (never, far, other) = (kit.open(), kit.open(), kit.open());
    never.stop(&soft("wrap up"));
    far.stop(&Stop::soft("ada", "wrap up", Grace::After(Duration::MAX)));
    other.stop(&shortly());
    kit.soon(other.signal().raised(StopKind::Hard));
    for work in [&never, &far] {
        let signal = work.signal();
        assert!(poll(pin!(signal.raised(StopKind::Hard))).is_pending());
    }
}

/// Rules S10, S13: a grace period ends with the work that it was given to.
#[test]
fn a_grace_period_does_not_reach_the_next_run() {
    let kit = Kit::new();
    let first = kit.open();
    let place = first.id().place;
    first.stop(&shortly());
    drop(first);
    let (next, other) = (kit.open(), kit.open());
    assert_eq!(next.id().place, place, "otherwise this test shows nothing");
    other.stop(&shortly());
    kit.soon(other.signal().raised(StopKind::Hard));
    assert!(!next.signal().is_raised());
}

/// Rules S10, H1: the stop travels with an adopted unit, and so does its grace period.
#[test]
fn a_grace_period_goes_on_after_an_adoption() {
    let kit = Kit::new();
    let registry = kit.root.open(Kind::Registry, "background").unwrap();
    let turn = kit.open();
    let unit = turn.open(Kind::Unit, "unit").unwrap();
    turn.stop(&shortly());
    registry.adopt(&[&unit]).unwrap();
    drop(turn);
    let risen = kit.soon(unit.signal().raised(StopKind::Hard));
    assert_eq!(risen.message(), "wrap up");
    assert!(!registry.signal().is_raised());
}

/// The wall-time limit: a hard stop by the host, told apart from a user's.
#[test]
fn a_deadline_stops_hard_and_says_so() {
    let kit = Kit::new();
    let work = kit.open();
    let child = work.open(Kind::Child, "child").unwrap();
    work.set_deadline(Instant::now() + Duration::from_secs(3600));
    work.set_deadline(Instant::now() + Duration::from_millis(1));
    work.set_deadline(Instant::now() + Duration::from_secs(3600));
    let running = kit.start(work, pending::<()>());
    kit.soon(child.signal().raised(StopKind::Hard));
    assert!(!child.signal().expired(), "it was not the child's own deadline");
    drop(child);
    let ended = kit.soon(running.ended());
    assert!(matches!(ended.ending, Ending::Cut) && ended.expired);
    assert_eq!(ended.stop.unwrap().message(), "the wall-time limit is reached");
}

/// A run that a user has ended has not run out of time, however long it takes to go.
#[test]
fn a_deadline_after_a_hard_stop_says_nothing() {
    let kit = Kit::new();
    let (work, other) = (kit.open(), kit.open());
    work.stop(&hard("enough"));
    let due = Instant::now();
    work.set_deadline(due);
    other.set_deadline(due);
    kit.soon(other.signal().raised(StopKind::Hard));
    // Deadlines are taken in their order, so the first of the two was taken too.
    assert!(other.signal().expired() && !work.signal().expired());
    assert_eq!(work.signal().stop(), Some(hard("enough")));
}

/// Deadlines are kept while nobody runs and the warden sleeps.
#[test]
fn a_deadline_is_kept_when_nothing_runs() {
    let kit = Kit::new();
    for _ in 0..20 {
        let work = kit.open();
        work.set_deadline(Instant::now() + Duration::from_micros(100));
        kit.soon(work.signal().raised(StopKind::Hard));
    }
}
