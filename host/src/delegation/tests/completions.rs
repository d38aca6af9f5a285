//! One completion for each accepted unit, and how it is read.

use super::*;

async fn unit(host: &Host, session: &Session, tasks: std::ops::Range<u32>) -> Unit {
    let children = tasks.map(|task| session.child(task)).collect();
    accepted(host.slots.call(session.origin(), Policy::Inline).submit(children).await)
}

/// Rules C2, C5, A8: the completion is seen and the slot given back when the last child has ended physically, with
/// one entry for each task in task order, and the first word on a task stays.
#[tokio::test]
async fn a_unit_completes_when_its_last_child_has_ended() {
    let host = Host::with_capacity(1, 1, 0);
    let session = host.session("s");
    let mut unit = unit(&host, &session, 0..3).await;
    let id = unit.id();
    let mut children = unit.take_children();
    unit.record(outcome(2, ChildStatus::Failed));
    unit.record(outcome(0, ChildStatus::Limit { which: "fuel".to_owned() }));
    unit.record(outcome(0, ChildStatus::Completed));
    unit.record(outcome(9, ChildStatus::Completed));
    let view = &session.completions.status(&[id]).unwrap()[0];
    assert_eq!((view.state, view.entries.len()), (UnitState::Running, 2));

    // A call that cannot be interrupted outlives the child that made it.
    let late = children[0].work.open(Kind::Blocking, "a late call").unwrap();
    let last = children.pop();
    drop(children);
    let mut finished = Box::pin(unit.finish());
    assert!(futures::poll!(&mut finished).is_pending());
    drop(last);
    assert!(futures::poll!(&mut finished).is_pending());
    assert!(session.completions.list().is_empty());
    assert_eq!(host.slots.used().held, 1);
    drop(late);
    let completion = finished.await;

    assert_eq!(session.completions.list(), [Arc::clone(&completion)]);
    assert_eq!((completion.id, completion.origin.as_str()), (id, "s"));
    let statuses: Vec<_> =
        completion.entries.iter().map(|entry| (entry.task, entry.status.as_str())).collect();
    assert_eq!(statuses, [(0, "limit"), (1, "unknown"), (2, "failed")]);
    assert_eq!((host.slots.used().held, session.registry.count()), (0, 0));
    assert_eq!(*host.notes.ended.lock().unwrap(), [id]);
}

/// Rules C1, C4: a unit whose supervisor is lost completes all the same, when its last child has ended.
#[tokio::test]
async fn a_unit_that_is_dropped_completes_with_what_is_known() {
    for while_finishing in [false, true] {
        let host = Host::with_capacity(1, 1, 0);
        let session = host.session("s");
        let mut unit = unit(&host, &session, 0..3).await;
        let id = unit.id();
        let children = unit.take_children();
        unit.record(outcome(1, ChildStatus::Completed));
        children[0].work.stop(&hard("you end now"));
        if while_finishing {
            let mut finished = Box::pin(unit.finish());
            assert!(futures::poll!(&mut finished).is_pending());
        } else {
            drop(unit);
        }
        assert!(session.completions.list().is_empty());
        assert_eq!(host.slots.used().held, 1);
        let mut waiting = Box::pin(session.completions.next());
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(children);
        let completion = waiting.await;
        assert_eq!((completion.id, completion.status), (id, UnitStatus::Unknown));
        let statuses: Vec<_> =
            completion.entries.iter().map(|entry| entry.status.as_str()).collect();
        assert_eq!(statuses, ["interrupted", "completed", "unknown"]);
        assert_eq!(completion.entries[0].detail, "stopped by a test: you end now");
        assert_eq!((host.slots.used().held, session.registry.count()), (0, 0));
    }
}

/// Rules C3, C6: in the order of ending, again until acknowledged, and acknowledged once.
#[tokio::test]
async fn a_completion_is_delivered_until_it_is_acknowledged() {
    let host = Host::with_capacity(3, 3, 0);
    let session = host.session("s");
    let (one, two) = (unit(&host, &session, 0..1).await, unit(&host, &session, 0..1).await);
    let (first, second) = (one.id(), two.id());
    assert!(session.completions.acknowledge(first).is_none());
    two.finish().await;
    one.finish().await;
    for _ in 0..2 {
        assert_eq!(session.completions.next().await.id, second);
    }
    assert_eq!(session.completions.acknowledge(second).unwrap().id, second);
    assert!(session.completions.acknowledge(second).is_none());
    assert_eq!(session.completions.next().await.id, first);
    assert_eq!(session.completions.unread(), 1);
}

/// Rule W7: a name gets a terminal answer also after the unit was read, and a name that is not known at once.
#[tokio::test]
async fn waiting_for_a_unit_that_is_over_or_unknown_is_no_wait() {
    let host = Host::with_capacity(3, 3, 0);
    let (session, other) = (host.session("s"), host.session("other"));
    let unit = unit(&host, &session, 0..1).await;
    let id = unit.id();
    let ids = [id];
    let mut waiting = Box::pin(session.completions.ended(&ids));
    assert!(futures::poll!(&mut waiting).is_pending());
    unit.finish().await;
    assert_eq!(waiting.await.unwrap().state, UnitState::Unknown);
    session.completions.acknowledge(id);
    let view = session.completions.ended(&[id]).await.unwrap();
    assert_eq!((view.state, view.entries.len()), (UnitState::Unknown, 0));
    assert_eq!(session.completions.stop(&host.tree, &[id], &hard("late")), Ok(0));
    let unknown = UnknownUnit { id: Some(id) };
    assert_eq!(other.completions.ended(&[id]).await, Err(unknown));
    assert_eq!(other.completions.status(&[id]), Err(unknown));
    assert_eq!(other.completions.stop(&host.tree, &[id], &hard("not yours")), Err(unknown));
    assert_eq!(other.completions.ended(&[]).await, Err(UnknownUnit { id: None }));
}

/// A stop by name reaches the children of that unit and says how many.
#[tokio::test]
async fn a_stop_by_name_reaches_one_unit() {
    let host = Host::with_capacity(3, 3, 0);
    let session = host.session("s");
    let (mut one, mut two) = (unit(&host, &session, 0..3).await, unit(&host, &session, 0..1).await);
    let children = one.take_children();
    children[0].work.stop(&hard("already"));
    assert_eq!(session.completions.stop(&host.tree, &[one.id()], &hard("by name")), Ok(2));
    assert_eq!(one.work().signal().stop(), Some(hard("by name")));
    assert!(two.take_children()[0].work.signal().stop().is_none());
}

/// Completions are never dropped, so what a session has not read bounds what it may have out.
#[tokio::test]
async fn a_session_that_reads_nothing_gets_nothing_new() {
    let host = Host::new(DelegationLimits { unread_completions: 2, ..DelegationLimits::default() });
    let session = host.session("s");
    let first = unit(&host, &session, 0..1).await;
    let id = first.id();
    first.finish().await;
    let running = unit(&host, &session, 0..1).await;
    let mut call = host.slots.call(session.origin(), Policy::Queue);
    let answer = rejected(call.submit(vec![session.child(0)]).await);
    assert_eq!(answer.reason.retry(), Some(Retry::CompletionsRead));
    session.completions.acknowledge(id);
    drop(unit(&host, &session, 0..1).await);
    drop(running);
}

/// Looks at the world at the very moment at which something is woken.
struct Look<F>(F);

impl<F: Fn() + Send + Sync> std::task::Wake for Look<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Rules C2, D1: whoever sees a completion finds the slot free and the children gone, and whoever sees that a unit
/// is gone finds its completion.
#[tokio::test]
async fn the_slot_is_free_before_the_completion_is_seen_and_the_unit_gone_after_it() {
    use std::future::Future;
    use std::task::{Context, Waker};

    let host = Arc::new(Host::with_capacity(1, 1, 0));
    let session = Arc::new(host.session("s"));
    let mut unit = unit(&host, &session, 0..1).await;
    let (node, child) = (unit.work().id(), unit.take_children());
    let looks = Arc::new(Mutex::new(Vec::new()));
    let look = {
        let (host, session, looks) = (Arc::clone(&host), Arc::clone(&session), Arc::clone(&looks));
        Waker::from(Arc::new(Look(move || {
            let there = host.tree.contains(node);
            looks.lock().unwrap().push((
                session.completions.list().len(),
                host.slots.used().held,
                there,
            ));
        })))
    };
    let mut seen = Box::pin(session.completions.next());
    let mut drained =
        Box::pin(session.registry.drain("the session ends", std::time::Duration::MAX));
    assert!(seen.as_mut().poll(&mut Context::from_waker(&look)).is_pending());
    drop(child);
    assert!(drained.as_mut().poll(&mut Context::from_waker(&look)).is_pending());
    unit.finish().await;
    assert_eq!(*looks.lock().unwrap(), [(1, 0, true), (1, 0, false)]);
}
