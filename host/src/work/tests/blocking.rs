//! Calls that cannot be interrupted.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::{Ending, Kind, Refused, blocking};
use super::{Kit, hard, poll};

fn permit(permits: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(permits).try_acquire_owned().unwrap()
}

/// Rule W3: a waiter that gives up does not end the call. It stays counted, named, and in possession of its permit.
#[test]
fn a_blocking_call_that_outlives_its_waiter_stays_counted_and_named() {
    let kit = Kit::new();
    let permits = Arc::new(Semaphore::new(1));
    let work = kit.open();
    let (held, control, ticket) = (work.share(), kit.control.handle().clone(), permit(&permits));
    let (gate, blocked) = mpsc::channel::<()>();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let running = kit.start(work, async move {
        let call = move || {
            begun.send(()).unwrap();
            blocked.recv().unwrap();
        };
        let answer = blocking(&control, &held, "read of /mnt/slow", ticket, call).unwrap();
        answer.await.unwrap();
    });
    let id = running.id();
    kit.soon(has_begun).unwrap();
    kit.tree.stop(id, &hard("enough")).unwrap();
    let ended = kit.soon(running.ended());
    assert!(matches!(ended.ending, Ending::Cut), "the end of the run does not wait for the call");
    assert!(kit.tree.contains(id), "the run lingers as the owner of the call");

    let Poll::Ready(Err(left)) = poll(pin!(kit.root.drain("shutting down", Duration::ZERO))) else {
        panic!("the call should be left");
    };
    let call = left.nodes.iter().find(|node| node.kind == Kind::Blocking).unwrap();
    assert_eq!((call.owner, &*call.label), (Some(id), "read of /mnt/slow"));
    assert_eq!(call.stop, Some(hard("enough")));
    assert_eq!(permits.available_permits(), 0);

    gate.send(()).unwrap();
    kit.empty();
    assert!(!kit.tree.contains(id));
    assert_eq!(permits.available_permits(), 1);
}

/// Rule W3: gone before its answer can be seen.
#[test]
fn a_blocking_call_answers_when_its_work_is_gone() {
    let kit = Kit::new();
    let permits = Arc::new(Semaphore::new(1));
    let work = kit.open();
    for number in 0..200 {
        let answer =
            blocking(kit.control.handle(), &work, "read", permit(&permits), move || number)
                .unwrap();
        let left = kit.soon(async {
            assert_eq!(answer.await, Ok(number));
            (work.count(), permits.available_permits())
        });
        assert_eq!(left, (0, 1));
    }
}

/// Rule W4: a panic in the call is its end.
#[test]
fn a_blocking_call_that_panics_leaves_the_tree() {
    let kit = Kit::new();
    let permits = Arc::new(Semaphore::new(1));
    let work = kit.open();
    for _ in 0..20 {
        let call = || panic!("in a call");
        let answer =
            blocking::<()>(kit.control.handle(), &work, "read", permit(&permits), call).unwrap();
        let left = kit.soon(async {
            assert!(answer.await.is_err());
            (work.count(), permits.available_permits())
        });
        assert_eq!(left, (0, 1));
    }
}

/// Rule W5: refused before a thread is asked for, and the permit comes back.
#[test]
fn a_blocking_call_is_refused_by_closed_work() {
    let kit = Kit::new();
    let permits = Arc::new(Semaphore::new(1));
    let work = kit.open();
    work.close("the run has ended");
    let refused =
        blocking(kit.control.handle(), &work, "read", permit(&permits), || {}).unwrap_err();
    assert!(matches!(refused, Refused::Closed { .. }));
    assert_eq!((work.count(), permits.available_permits()), (0, 1));
}
