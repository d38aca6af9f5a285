//! Executions in their slots, and how a stop takes them out.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::{Ended, Ending, Executor, Kind, Running, Tree, Work, blocking, spawn_charged};
use super::{Kit, Nothing, hard, poll, soft};
use crate::ids::WorkId;

/// Part of an execution: notes that it was dropped, and that its node was still there.
struct Trace {
    tree: Tree,
    id: WorkId,
    dropped_in_the_tree: Arc<AtomicBool>,
}

impl Trace {
    fn of(work: &Work) -> (Trace, Arc<AtomicBool>) {
        let dropped = Arc::new(AtomicBool::new(false));
        (
            Trace { tree: work.tree(), id: work.id(), dropped_in_the_tree: Arc::clone(&dropped) },
            dropped,
        )
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.dropped_in_the_tree.store(self.tree.contains(self.id), Ordering::SeqCst);
    }
}

fn assert_cut<T>(ended: &Ended<T>, message: &str) {
    assert!(matches!(ended.ending, Ending::Cut));
    assert_eq!(ended.stop.as_ref().map(|stop| stop.message()), Some(message));
    assert!(!ended.expired);
}

/// Spins until it was nudged so often, as a guest does that looks at its epoch; then gives its processor back.
fn spins(
    nudges: &Arc<AtomicUsize>,
    enough: usize,
    started: oneshot::Sender<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let nudges = Arc::clone(nudges);
    async move {
        started.send(()).unwrap();
        while nudges.load(Ordering::SeqCst) < enough {
            std::thread::yield_now();
        }
        pending::<()>().await;
    }
}

fn start_spinning(kit: &Kit, work: Work, enough: usize) -> (Running<()>, Arc<AtomicUsize>) {
    let (nudges, (started, has_started)) = (Arc::new(AtomicUsize::new(0)), oneshot::channel());
    let counted = Arc::clone(&nudges);
    let nudge = move || {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    let execution = spins(&nudges, enough, started);
    let running = kit.executor.start(work, Arc::new(nudge), Arc::new(Nothing), execution);
    kit.soon(has_started).unwrap();
    (running, nudges)
}

#[test]
fn an_execution_gives_what_it_returns_and_leaves_the_tree() {
    let kit = Kit::new();
    let work = kit.open();
    let (trace, dropped) = Trace::of(&work);
    let running = kit.start(work, async move {
        let _trace = trace;
        tokio::task::yield_now().await;
        7
    });
    let id = running.id();
    let ended = kit.soon(running.ended());
    assert!(matches!(
        ended,
        Ended { ending: Ending::Returned(7), stop: None, soft: None, expired: false }
    ));
    assert!(!kit.tree.contains(id));
    assert!(dropped.load(Ordering::SeqCst));
    kit.empty();
}

/// Rules S12, W4: dropped, then gone, then told.
#[test]
fn a_hard_stop_drops_an_execution_that_waits_before_its_node_is_gone() {
    let kit = Kit::new();
    let work = kit.open();
    let (trace, dropped) = Trace::of(&work);
    let (started, has_started) = oneshot::channel();
    let running = kit.start(work, async move {
        let _trace = trace;
        started.send(()).unwrap();
        pending::<()>().await;
    });
    let id = running.id();
    kit.soon(has_started).unwrap();
    assert_eq!(kit.tree.stop(id, &hard("enough")), Ok(1));
    let ended = kit.soon(running.ended());
    assert_cut(&ended, "enough");
    assert!(!kit.tree.contains(id));
    assert!(dropped.load(Ordering::SeqCst), "dropped while its node was in the tree");
    kit.empty();
}

/// Rules S4, S11: an execution that is known to wait is gone when the stop returns.
#[test]
fn a_stop_that_finds_an_execution_waiting_has_ended_it_when_it_returns() {
    let kit = Kit::with_threads(1);
    let work = kit.open();
    let (started, has_started) = oneshot::channel();
    let running = kit.start(work, async move {
        started.send(()).unwrap();
        pending::<()>().await;
    });
    kit.soon(has_started).unwrap();
    has_run(&kit);
    let id = running.id();
    assert_eq!(kit.tree.stop(id, &hard("enough")), Ok(1));
    assert!(!kit.tree.contains(id));
    assert_cut(&kit.soon(running.ended()), "enough");
}

/// Rule S11: on a processor it is nudged, and cut as soon as it comes back.
#[test]
fn a_hard_stop_nudges_an_execution_that_is_on_a_processor() {
    let kit = Kit::new();
    let (running, nudges) = start_spinning(&kit, kit.open(), 1);
    assert_eq!(kit.tree.stop(running.id(), &soft("please")), Ok(1));
    assert_eq!(nudges.load(Ordering::SeqCst), 0, "a soft stop leaves it alone");
    kit.tree.stop(running.id(), &hard("enough")).unwrap();
    assert!(nudges.load(Ordering::SeqCst) >= 1);
    assert_cut(&kit.soon(running.ended()), "enough");
    kit.empty();
}

/// Rule S11: one nudge can be lost, so it is repeated until the execution is gone.
#[test]
fn an_execution_is_nudged_until_it_comes_back() {
    let kit = Kit::new();
    let (running, nudges) = start_spinning(&kit, kit.open(), 20);
    kit.tree.stop(running.id(), &hard("enough")).unwrap();
    assert_cut(&kit.soon(running.ended()), "enough");
    assert!(nudges.load(Ordering::SeqCst) >= 20);
}

/// Rule S11: a stop does not wait for a processor. The one thread belongs to another execution all the time.
#[test]
fn a_hard_stop_ends_an_execution_that_has_never_had_a_processor() {
    let kit = Kit::with_threads(1);
    let (spinning, _) = start_spinning(&kit, kit.open(), 1);
    let polled = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&polled);
    let queued = kit.start(kit.open(), async move { noted.store(true, Ordering::SeqCst) });
    let id = queued.id();
    kit.tree.stop(id, &hard("too late")).unwrap();
    assert!(!kit.tree.contains(id));
    assert_cut(&kit.soon(queued.ended()), "too late");
    drop(spinning);
    kit.empty();
    assert!(!polled.load(Ordering::SeqCst));
}

/// Rules S2, S12: stopped before the start, it never runs, and ends with that stop.
#[test]
fn an_execution_of_stopped_work_is_never_polled() {
    let kit = Kit::new();
    let work = kit.open();
    work.stop(&hard("before the start"));
    let polled = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&polled);
    let (trace, dropped) = Trace::of(&work);
    let running = kit.start(work, async move {
        let _trace = trace;
        noted.store(true, Ordering::SeqCst);
    });
    assert!(!kit.tree.contains(running.id()));
    assert_cut(&kit.soon(running.ended()), "before the start");
    assert!(dropped.load(Ordering::SeqCst) && !polled.load(Ordering::SeqCst));
}

/// Rule S2: a soft stop from before the start is there at the first poll, and lets the execution run.
#[test]
fn an_execution_of_softly_stopped_work_runs_and_sees_the_stop() {
    let kit = Kit::new();
    let work = kit.open();
    work.stop(&soft("wrap up"));
    let signal = work.signal();
    let ended = kit.soon(kit.start(work, async move { signal.stop() }).ended());
    assert_eq!(ended.stop, Some(soft("wrap up")));
    assert!(matches!(ended.ending, Ending::Returned(Some(stop)) if stop == soft("wrap up")));
}

/// Rule S12: a hard stop that comes while it is polled leaves what it returned.
#[test]
fn what_an_execution_returned_is_kept_when_the_stop_came_too_late() {
    let kit = Kit::new();
    let work = kit.open();
    let held = work.share();
    let ended = kit.soon(kit.start(work, async move { held.stop(&hard("by itself")) }).ended());
    assert!(matches!(ended.ending, Ending::Returned(1)));
    assert_eq!(ended.stop, Some(hard("by itself")));
}

/// Rule S12: no instruction runs after the hard stop; the executor itself lets go of what it finds stopped.
#[test]
fn an_execution_that_stops_itself_is_cut_at_its_next_await() {
    let kit = Kit::new();
    let work = kit.open();
    let held = work.share();
    let went_on = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&went_on);
    let running = kit.start(work, async move {
        held.stop(&hard("by itself"));
        tokio::task::yield_now().await;
        noted.store(true, Ordering::SeqCst);
    });
    assert_cut(&kit.soon(running.ended()), "by itself");
    assert!(!went_on.load(Ordering::SeqCst));
    kit.empty();
}

/// Rule W4: a panic ends its own execution, with its words, and nothing else.
#[test]
fn a_panic_ends_the_execution_and_nobody_else() {
    let kit = Kit::with_threads(1);
    let neighbour = kit.start(kit.open(), pending::<()>());
    let work = kit.open();
    let (trace, dropped) = Trace::of(&work);
    let ended = kit.soon(
        kit.start(work, async move {
            let _trace = trace;
            let number = 7;
            assert!(number == 8, "it was {number}");
        })
        .ended(),
    );
    assert!(matches!(ended.ending, Ending::Panicked(words) if words == "it was 7"));
    assert!(dropped.load(Ordering::SeqCst));
    assert!(kit.tree.contains(neighbour.id()));
    assert!(matches!(
        kit.soon(kit.start(kit.open(), async { 1 }).ended()).ending,
        Ending::Returned(1)
    ));
    drop(neighbour);
    kit.empty();
}

/// Panics when it is dropped.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

/// Rules W4, S11: a destructor that panics takes along neither the stopper nor the warden.
#[test]
fn a_panic_in_a_destructor_ends_that_execution_only() {
    let kit = Kit::new();
    // More than a stopper cuts itself, so that the warden meets some too.
    let session = kit.root.open(Kind::Session, "session").unwrap();
    let running: Vec<_> = (0..20)
        .map(|_| {
            kit.start(session.open(Kind::SideRun, "mine").unwrap(), async {
                let _mine = Mine;
                pending::<()>().await;
            })
        })
        .collect();
    assert_eq!(session.stop(&hard("enough")), 21);
    for running in running {
        let ended = kit.soon(running.ended());
        // One that had no processor yet holds nothing that panics.
        let panicked =
            matches!(&ended.ending, Ending::Panicked(words) if words == "in a destructor");
        assert!(panicked || matches!(ended.ending, Ending::Cut));
    }
    let (after, _) = start_spinning(&kit, kit.open(), 3);
    kit.tree.stop(after.id(), &hard("enough")).unwrap();
    assert_cut(&kit.soon(after.ended()), "enough");
    drop(session);
    kit.empty();
}

/// Rule W4: nobody waits for it any more.
#[test]
fn dropping_what_waits_for_an_execution_stops_it_hard() {
    let kit = Kit::new();
    let work = kit.open();
    let signal = work.signal();
    let running = kit.start(work, pending::<()>());
    drop(running);
    assert_eq!(signal.stop().unwrap().message(), "nobody waits for it any more");

    let work = kit.open();
    let signal = work.signal();
    let mut ended = Box::pin(kit.start(work, pending::<()>()).ended());
    assert!(poll(ended.as_mut()).is_pending());
    assert!(!signal.is_raised());
    drop(ended);
    assert!(signal.is_hard());
    kit.empty();
}

/// Rule W3: an end is told when everything below has ended too, and a share may be the last of it.
#[test]
fn an_end_is_told_when_the_last_share_is_dropped() {
    let kit = Kit::with_threads(1);
    let work = kit.open();
    let (gate, blocked) = std::sync::mpsc::channel::<()>();
    let permit = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
    let call = move || blocked.recv().is_ok();
    let _answer = blocking(kit.control.handle(), &work, "read", permit, call).unwrap();
    let share = work.share();
    let running = kit.start(work, async {});
    let id = running.id();
    let mut ended = pin!(running.ended());
    has_run(&kit);
    let (waker, woken) = flag();
    assert!(ended.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // The blocking call keeps the node: no node goes with the share.
    drop(share);
    assert!(woken.0.load(Ordering::SeqCst), "nobody told it to look again");
    assert!(poll(ended.as_mut()).is_ready());
    assert_eq!(kit.tree.executions(id).len(), 1, "the call is still there");
    gate.send(()).unwrap();
    kit.empty();
}

/// Rule H5: an end does not wait for what was handed over.
#[test]
fn an_end_is_told_when_the_last_child_is_adopted() {
    let kit = Kit::with_threads(1);
    let registry = kit.root.open(Kind::Registry, "background").unwrap();
    let work = kit.open();
    let unit = work.open(Kind::Unit, "unit").unwrap();
    let mut ended = pin!(kit.start(work, async {}).ended());
    has_run(&kit);
    let (waker, woken) = flag();
    assert!(ended.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    registry.adopt(&[&unit]).unwrap();
    assert!(woken.0.load(Ordering::SeqCst), "nobody told it to look again");
    assert!(poll(ended.as_mut()).is_ready());
}

/// The one executor thread has let go of what was started before when it has run something else.
fn has_run(kit: &Kit) {
    assert!(matches!(
        kit.soon(kit.start(kit.open(), async {}).ended()).ending,
        Ending::Returned(())
    ));
}

/// Raised when somebody is woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn flag() -> (Waker, Arc<Woken>) {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    (Waker::from(Arc::clone(&woken)), woken)
}

/// Rules S4, S11: more executions than a stopper cuts itself.
#[test]
fn a_stop_of_many_ends_all_of_them() {
    let kit = Kit::new();
    let session = kit.root.open(Kind::Session, "session").unwrap();
    let running: Vec<_> = (0..500)
        .map(|number| {
            // One half waits, the other half is always in the queue for a processor.
            let execution = async move {
                if number % 2 == 0 {
                    pending::<()>().await;
                }
                loop {
                    tokio::task::yield_now().await;
                }
            };
            let running: Running<()> =
                kit.start(session.open(Kind::SideRun, "one of many").unwrap(), execution);
            running
        })
        .collect();
    assert_eq!(session.stop(&hard("all of you")), 501);
    for running in running {
        assert_cut(&kit.soon(running.ended()), "all of you");
    }
    drop(session);
    kit.empty();
}

/// Rule W4: executions end with their executor, those that wait and those on a processor.
#[test]
fn dropping_the_executor_ends_its_executions() {
    let kit = Kit::new();
    let Kit { executor, tree, root, ticks, control } = kit;
    let ticked = Arc::clone(&ticks);
    let begun = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&begun);
    // Gives its processor back when the tick changes, as a guest does.
    let spinning = async move {
        noted.store(true, Ordering::SeqCst);
        loop {
            let before = ticked.load(Ordering::SeqCst);
            while ticked.load(Ordering::SeqCst) == before {
                std::thread::yield_now();
            }
            tokio::task::yield_now().await;
        }
    };
    let open = || root.open(Kind::Turn, "turn").unwrap();
    let spinning: Running<()> =
        executor.start(open(), Arc::new(|| {}), Arc::new(Nothing), spinning);
    let waiting = executor.start(open(), Arc::new(|| {}), Arc::new(Nothing), pending::<()>());
    while !begun.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    drop(executor);
    let ended = async { (spinning.ended().await, waiting.ended().await) };
    let bounded = async { tokio::time::timeout(Duration::from_secs(60), ended).await };
    let (spinning, waiting) = control.block_on(bounded).unwrap();
    assert!(matches!(spinning.ending, Ending::Cut) && matches!(waiting.ending, Ending::Cut));
    assert_eq!(tree.count(tree.root()), 0);
}

#[test]
fn a_tree_has_one_executor() {
    let kit = Kit::new();
    assert!(Executor::new(&kit.tree, 1, kit.control.handle().clone(), || {}).is_err());
}

/// Executions see the timers of the control runtime, and what they spawn through it is charged to them.
#[test]
fn what_is_charged_to_an_execution_keeps_its_node() {
    let kit = Kit::new();
    let work = kit.open();
    let (held, control) = (work.share(), kit.control.handle().clone());
    let (gate, open) = oneshot::channel::<()>();
    let running = kit.start(work, async move {
        drop(spawn_charged(&control, held, async move { open.await.is_ok() }));
        tokio::time::timeout(Duration::ZERO, pending::<()>()).await.is_err()
    });
    let id = running.id();
    let mut ended = pin!(running.ended());
    assert!(poll(ended.as_mut()).is_pending());
    assert!(kit.tree.contains(id));
    gate.send(()).unwrap();
    assert!(matches!(kit.soon(ended).ending, Ending::Returned(true)));
    assert!(!kit.tree.contains(id));
}

/// The tick is what makes guests share a processor: it comes while one is on it.
#[test]
fn an_execution_on_a_processor_is_ticked() {
    let kit = Kit::new();
    let ticks = Arc::clone(&kit.ticks);
    let execution = async move {
        while ticks.load(Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
    };
    assert!(matches!(
        kit.soon(kit.start(kit.open(), execution).ended()).ending,
        Ending::Returned(())
    ));
}

/// What a poll leaves in the slot is polled again when it is woken, on whatever thread.
#[test]
fn an_execution_goes_on_when_it_is_woken() {
    let kit = Kit::new();
    let mut polls = 0;
    let execution = poll_fn(move |cx| {
        polls += 1;
        if polls == 1000 {
            return Poll::Ready(polls);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    assert!(matches!(
        kit.soon(kit.start(kit.open(), execution).ended()).ending,
        Ending::Returned(1000)
    ));
}
