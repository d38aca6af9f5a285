//! Host work on the control runtime.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;

use super::super::{Tree, spawn};
use super::{Kit, hard, soft};
use crate::ids::WorkId;

/// Rule W4: gone before its result can be seen.
#[test]
fn a_task_gives_its_result_when_its_work_is_gone() {
    let kit = Kit::new();
    for number in 0..100 {
        let work = kit.open();
        let id = work.id();
        let gone = kit.soon(async {
            assert_eq!(
                spawn(kit.control.handle(), work, async move { number }).await,
                Some(number)
            );
            !kit.tree.contains(id)
        });
        assert!(gone);
    }
}

/// Notes whether its node was there when it was dropped.
struct Trace(Tree, WorkId, Arc<AtomicBool>);

impl Drop for Trace {
    fn drop(&mut self) {
        self.2.store(self.0.contains(self.1), Ordering::SeqCst);
    }
}

/// Rules S3, W4: a hard stop ends it at its next await, its future first and its node last.
#[test]
fn a_hard_stop_ends_a_task_and_a_soft_one_does_not() {
    let kit = Kit::new();
    let work = kit.open();
    let (id, signal, dropped) = (work.id(), work.signal(), Arc::new(AtomicBool::new(false)));
    let trace = Trace(kit.tree.clone(), id, Arc::clone(&dropped));
    let (started, has_started) = oneshot::channel();
    let task = spawn(kit.control.handle(), work, async move {
        let _trace = trace;
        started.send(()).unwrap();
        signal.raised(super::super::StopKind::Soft).await;
        pending::<()>().await;
    });
    kit.soon(has_started).unwrap();
    kit.tree.stop(id, &soft("wrap up")).unwrap();
    assert!(kit.tree.contains(id));
    kit.tree.stop(id, &hard("now")).unwrap();
    assert_eq!(kit.soon(task), None);
    assert!(!kit.tree.contains(id) && dropped.load(Ordering::SeqCst));
}

/// Rules W6, S2: stopped before it began.
#[test]
fn a_task_of_stopped_work_ends() {
    let kit = Kit::new();
    let work = kit.open();
    work.stop(&hard("before the start"));
    assert_eq!(kit.soon(spawn(kit.control.handle(), work, pending::<()>())), None);
    kit.empty();
}

/// Rule W4: dropped and panicking tasks leave the tree.
#[test]
fn a_task_that_is_dropped_or_panics_leaves_the_tree() {
    let kit = Kit::new();
    drop(spawn(kit.control.handle(), kit.open(), pending::<()>()));
    let panics = spawn(kit.control.handle(), kit.open(), async { panic!("in a task") });
    assert_eq!(kit.soon(panics), None::<()>);
    kit.empty();
}

/// Rule W4: a runtime that is taken down takes its tasks out of the tree.
#[test]
fn a_task_ends_with_its_runtime() {
    let kit = Kit::new();
    let control = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let task = spawn(control.handle(), kit.open(), pending::<()>());
    control.shutdown_background();
    let late = spawn(kit.control.handle(), kit.open(), async { 1 });
    assert_eq!(kit.soon(task), None);
    assert_eq!(kit.soon(late), Some(1));
    kit.empty();
}
