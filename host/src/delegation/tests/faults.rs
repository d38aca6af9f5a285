//! A failure at every point of the admission, one after the other.

use super::*;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    OneShot,
    SchedulerSaysNo,
    SchedulerPanics,
    SchedulerPanicsLater,
    TooMuchUnread,
    NoSlotOfTheHost,
    NoSlotOfTheSession,
    LineFull,
    HostClosed,
    RegistryClosed,
    SessionClosed,
    RecorderFails,
    RecorderPanics,
    ChildrenCannotMove,
}

use Fault::*;

const FAULTS: [(Fault, &str, Option<Retry>); 14] = [
    (OneShot, "one-shot", None),
    (SchedulerSaysNo, "scheduler", None),
    (SchedulerPanics, "scheduler", None),
    (SchedulerPanicsLater, "scheduler", None),
    (TooMuchUnread, "capacity", Some(Retry::CompletionsRead)),
    (NoSlotOfTheHost, "capacity", Some(Retry::UnitOfHostEnds)),
    (NoSlotOfTheSession, "capacity", Some(Retry::UnitOfSessionEnds)),
    (LineFull, "capacity", Some(Retry::LineMoves)),
    (HostClosed, "draining", None),
    (RegistryClosed, "draining", None),
    (SessionClosed, "draining", None),
    (RecorderFails, "store", None),
    (RecorderPanics, "store", None),
    (ChildrenCannotMove, "ownership", None),
];

fn limits(fault: Fault) -> DelegationLimits {
    let all = DelegationLimits::default();
    match fault {
        TooMuchUnread => DelegationLimits { unread_completions: 0, ..all },
        NoSlotOfTheHost => DelegationLimits { units_per_host: 0, ..all },
        NoSlotOfTheSession => DelegationLimits { units_per_session: 0, ..all },
        LineFull => DelegationLimits { units_per_host: 0, queued_units: 0, ..all },
        OneShot | SchedulerSaysNo | SchedulerPanics | SchedulerPanicsLater | HostClosed
        | RegistryClosed | SessionClosed | RecorderFails | RecorderPanics | ChildrenCannotMove => {
            all
        }
    }
}

async fn check(fault: Fault, code: &str, retry: Option<Retry>, policy: Policy) {
    let host = Host::new(limits(fault));
    let session = host.session("s");
    let mut origin = session.origin();
    match fault {
        OneShot => origin.receives = Receives::Never,
        SchedulerSaysNo => host.door.set(Verdict::No),
        SchedulerPanics => host.door.set(Verdict::PanicAtOnce),
        SchedulerPanicsLater => host.door.set(Verdict::PanicLater),
        HostClosed => host.slots.close("going down"),
        RegistryClosed => session.registry.close("the session ends"),
        SessionClosed => session.work.close("the session ends"),
        RecorderFails => host.notes.fails.store(true, Ordering::SeqCst),
        RecorderPanics => host.notes.panics.store(true, Ordering::SeqCst),
        TooMuchUnread | NoSlotOfTheHost | NoSlotOfTheSession | LineFull | ChildrenCannotMove => {}
    }
    // In a closed session the turn itself still opens its children: it was admitted before.
    let mut children = vec![session.child(0), session.child(1)];
    let ids: Vec<WorkId> = children.iter().map(|child| child.work.id()).collect();
    if fault == ChildrenCannotMove {
        children.push(Child { task: 2, goal: String::new(), work: session.registry.share() });
    }
    let mut call = host.slots.call(origin, policy);
    let mut answer = rejected(call.submit(children).await);

    let told = format!("{fault:?} with {policy:?}: {}", answer.reason);
    assert_eq!((answer.reason.code(), answer.reason.retry()), (code, retry), "{told}");
    let then = if policy == Policy::Refuse { Then::Refuse } else { Then::RunInline };
    assert_eq!(answer.then, then, "{told}");
    assert_eq!(host.slots.used(), SlotsUsed { held: 0, waiting: 0 }, "{told}");
    assert_eq!(host.tree.snapshot(session.registry.id()).len(), 1, "no unit is left: {told}");
    assert_eq!(session.completions.unread(), 0, "{told}");
    let unknown = Err(UnknownUnit { id: Some(answer.id) });
    assert_eq!(session.completions.status(&[answer.id]), unknown, "{told}");
    assert_eq!(
        session.completions.ended(&[answer.id]).await,
        Err(UnknownUnit { id: Some(answer.id) }),
        "{told}"
    );
    let withdrawn = host.notes.withdrawn.lock().unwrap().clone();
    assert_eq!(*host.notes.accepted.lock().unwrap(), withdrawn, "{told}");

    // Rule H2: the turn owns them, and what it is told reaches them.
    answer.children.truncate(2);
    assert_eq!(
        ids.iter().map(|id| host.owner(*id)).collect::<Vec<_>>(),
        vec![Some(session.turn.id()); 2],
        "{told}"
    );
    assert_eq!(session.registry.stop_children(&hard("the background")), 0, "{told}");
    session.turn.stop(&soft("the turn"));
    for child in &answer.children {
        assert_eq!(child.work.signal().stop(), Some(soft("the turn")), "{told}");
    }
    // Rule H5.
    drop(answer);
    assert_eq!(session.owned_by_turn(), 0, "{told}");
}

/// Rules A2, C1, H2: wherever it fails, slot, ownership and book are as before, and the answer says what it was.
#[tokio::test]
async fn a_failure_at_any_point_gives_everything_back() {
    for (fault, code, retry) in FAULTS {
        for policy in [Policy::Inline, Policy::Refuse, Policy::Queue] {
            match (fault, policy) {
                // These wait in line with that policy; and there is no line without it.
                (NoSlotOfTheHost | NoSlotOfTheSession, Policy::Queue) => {}
                (LineFull, Policy::Inline | Policy::Refuse) => {}
                _ => check(fault, code, retry, policy).await,
            }
        }
    }
}

/// Rules A2, W4: a call that is given up while its unit is undecided leaves nothing behind.
#[tokio::test]
async fn an_admission_that_is_given_up_leaves_nothing_behind() {
    let host = Host::with_capacity(0, 8, 8);
    let session = host.session("s");
    for (verdict, waiting) in [(Verdict::Open, 0), (Verdict::Yes, 1)] {
        host.door.set(verdict);
        let mut call = host.slots.call(session.origin(), Policy::Queue);
        let mut submitted = Box::pin(call.submit(vec![session.child(0)]));
        assert!(futures::poll!(&mut submitted).is_pending());
        assert_eq!((host.slots.used().waiting, session.owned_by_turn()), (waiting, 1));
        drop(submitted);
        assert_eq!(host.slots.used(), SlotsUsed { held: 0, waiting: 0 });
        assert_eq!((session.completions.unread(), session.owned_by_turn()), (0, 0));
    }
}

/// Rule C1: a recorder that fails at the end does not cost the session its result, nor the host its slot.
#[tokio::test]
async fn a_completion_is_delivered_although_it_could_not_be_written_down() {
    let host = Host::with_capacity(1, 1, 0);
    let session = host.session("s");
    for fault in [&host.notes.fails, &host.notes.panics] {
        let mut unit = accepted(
            host.slots.call(session.origin(), Policy::Inline).submit(vec![session.child(0)]).await,
        );
        let id = unit.id();
        drop(unit.take_children());
        unit.record(outcome(0, ChildStatus::Completed));
        fault.store(true, Ordering::SeqCst);
        unit.finish().await;
        fault.store(false, Ordering::SeqCst);
        assert_eq!(session.completions.acknowledge(id).unwrap().status, UnitStatus::Completed);
        assert_eq!(host.slots.used().held, 0);
    }
}
