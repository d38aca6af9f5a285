//! Units that wait in line.

use super::*;

/// Rules A3, H2: in line a unit is the turn's and can be seen by its name; when a slot is free it goes, in order.
#[tokio::test]
async fn a_unit_in_line_gets_the_slot_in_order() {
    let host = Host::with_capacity(1, 1, 2);
    let (one, two, three) = (host.session("1"), host.session("2"), host.session("3"));
    let running =
        accepted(host.slots.call(one.origin(), Policy::Queue).submit(vec![one.child(0)]).await);
    let (mut second, mut third) = (
        host.slots.call(two.origin(), Policy::Queue),
        host.slots.call(three.origin(), Policy::Queue),
    );
    let mut second = Box::pin(second.submit(vec![two.child(0)]));
    let mut third = Box::pin(third.submit(vec![three.child(0)]));
    assert!(futures::poll!(&mut second).is_pending() && futures::poll!(&mut third).is_pending());
    let views = two.completions.status(&[]).unwrap();
    assert_eq!((views.len(), views[0].state), (1, UnitState::Queued));
    assert_eq!((two.owned_by_turn(), two.registry.count()), (1, 0));

    running.finish().await;
    assert!(futures::poll!(&mut third).is_pending());
    let second = accepted(second.await);
    assert_eq!(second.id(), views[0].id);
    assert_eq!(two.completions.status(&[second.id()]).unwrap()[0].state, UnitState::Running);
    assert!(futures::poll!(&mut third).is_pending());
    drop(second);
    drop(accepted(third.await));
    assert_eq!(host.slots.used(), SlotsUsed { held: 0, waiting: 0 });
}

/// Rules A3, H2, H3: a stop of the turn, or of that unit by its name, takes it out of the line with its children.
#[tokio::test]
async fn a_unit_in_line_that_is_stopped_leaves_the_line() {
    for by_name in [false, true] {
        let host = Host::with_capacity(0, 1, 2);
        let session = host.session("s");
        let mut call = host.slots.call(session.origin(), Policy::Queue);
        let mut submitted = Box::pin(call.submit(vec![session.child(0), session.child(1)]));
        assert!(futures::poll!(&mut submitted).is_pending());
        let id = session.completions.status(&[]).unwrap()[0].id;
        if by_name {
            assert_eq!(session.completions.stop(&host.tree, &[id], &soft("no more")), Ok(2));
        } else {
            session.turn.stop(&soft("no more"));
        }
        let answer = rejected(submitted.await);
        assert_eq!((answer.id, answer.reason.code()), (id, "stopped"));
        for child in &answer.children {
            assert_eq!(child.work.signal().stop(), Some(soft("no more")));
        }
        assert_eq!((host.slots.used().waiting, session.completions.unread()), (0, 0));
    }
}

/// A stop of one child of several does not end the wait for the others.
#[tokio::test]
async fn a_unit_in_line_waits_on_while_one_child_is_not_stopped() {
    let host = Host::with_capacity(0, 1, 2);
    let session = host.session("s");
    let children = vec![session.child(0), session.child(1)];
    let first = children[0].work.id();
    let mut call = host.slots.call(session.origin(), Policy::Queue);
    let mut submitted = Box::pin(call.submit(children));
    assert!(futures::poll!(&mut submitted).is_pending());
    host.tree.stop(first, &soft("only you")).unwrap();
    assert!(futures::poll!(&mut submitted).is_pending());
    session.turn.stop(&hard("and you"));
    assert_eq!(rejected(submitted.await).reason, Reason::Stopped);
}

/// Rule D2: closing the host empties the line.
#[tokio::test]
async fn closing_the_host_empties_the_line() {
    let host = Host::with_capacity(0, 1, 2);
    let session = host.session("s");
    let mut call = host.slots.call(session.origin(), Policy::Queue);
    let mut submitted = Box::pin(call.submit(vec![session.child(0)]));
    assert!(futures::poll!(&mut submitted).is_pending());
    host.slots.close("going down");
    let answer = rejected(submitted.await);
    assert_eq!(answer.reason, Reason::Draining { words: "going down".into() });
    assert_eq!(session.owned_by_turn(), 1);
}

/// Rule D2: a unit that gets its slot when its session has closed is rejected, and the slot goes on to the next.
#[tokio::test]
async fn a_slot_that_a_closed_session_cannot_use_goes_to_the_next() {
    let host = Host::with_capacity(1, 1, 2);
    let (one, two, three) = (host.session("1"), host.session("2"), host.session("3"));
    let running =
        accepted(host.slots.call(one.origin(), Policy::Queue).submit(vec![one.child(0)]).await);
    let (mut second, mut third) = (
        host.slots.call(two.origin(), Policy::Queue),
        host.slots.call(three.origin(), Policy::Queue),
    );
    let mut second = Box::pin(second.submit(vec![two.child(0)]));
    let mut third = Box::pin(third.submit(vec![three.child(0)]));
    assert!(futures::poll!(&mut second).is_pending() && futures::poll!(&mut third).is_pending());
    two.registry.close("the session ends");
    drop(running);
    assert_eq!(rejected(second.await).reason.code(), "draining");
    drop(accepted(third.await));
}
