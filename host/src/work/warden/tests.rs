//! The warden's own life: when it sleeps, who calls it, and when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::super::{BudgetUse, Ending, Executor, Gauge, Kind, Tree};

struct Nothing;

impl Gauge for Nothing {
    fn budgets(&self) -> Vec<BudgetUse> {
        Vec::new()
    }

    fn doing(&self) -> Option<&'static str> {
        None
    }
}

fn until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

/// Rule S11: ticks go on as soon as a guest computes, also after a time in which none did.
#[test]
fn a_guest_on_a_processor_calls_a_warden_that_sleeps() {
    let control =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (tree, root) = Tree::new("host");
    let ticks = Arc::new(AtomicUsize::new(0));
    let (counted, seen) = (Arc::clone(&ticks), Arc::clone(&ticks));
    let tick = move || {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    let executor = Executor::new(&tree, 1, control.handle().clone(), tick).unwrap();
    until(|| tree.shared.alarm.asleep.load(Ordering::SeqCst));
    assert_eq!(ticks.load(Ordering::SeqCst), 0, "no ticks while no guest computes");
    let computes = async move { until(|| seen.load(Ordering::SeqCst) >= 2) };
    let work = root.open(Kind::Turn, "turn").unwrap();
    let running = executor.start(work, Arc::new(|| {}), Arc::new(Nothing), computes);
    let bounded = async { tokio::time::timeout(Duration::from_secs(60), running.ended()).await };
    assert!(matches!(control.block_on(bounded).unwrap().ending, Ending::Returned(())));
}

/// Rule W4: no thread is left of a tree that is gone, however the warden slept.
#[test]
fn the_warden_ends_with_its_tree() {
    let control =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for _ in 0..20 {
        let (tree, root) = Tree::new("host");
        let executor = Executor::new(&tree, 1, control.handle().clone(), || {}).unwrap();
        let alarm = Arc::downgrade(&tree.shared.alarm);
        drop(executor);
        assert!(alarm.upgrade().is_some(), "it keeps the deadlines of what is left");
        drop((tree, root));
        until(|| alarm.strong_count() == 0);
    }
}
