//! Tests of this room through its public items. Nothing sleeps: what must happen is waited for, what must not happen
//! is shown by a poll that stays pending.

mod blocking;
mod drain;
mod execution;
mod ownership;
mod rounds;
mod shutdown;
mod snapshot;
mod spawned;
mod stops;
mod times;
mod watch;
mod watchdog;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::{BudgetUse, Executor, Gauge, Grace, Kind, Running, Stop, Tree, Work};

/// A host of nothing but a tree and its two runtimes.
struct Kit {
    executor: Executor,
    tree: Tree,
    root: Work,
    ticks: Arc<AtomicUsize>,
    control: Runtime,
}

impl Kit {
    fn new() -> Kit {
        Kit::with_threads(2)
    }

    fn with_threads(threads: usize) -> Kit {
        let control = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (tree, root) = Tree::new("host");
        let ticks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ticks);
        let tick = move || {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let executor = Executor::new(&tree, threads, control.handle().clone(), tick).unwrap();
        Kit { executor, tree, root, ticks, control }
    }

    fn open(&self) -> Work {
        self.root.open(Kind::Turn, "turn").unwrap()
    }

    /// Starts an execution that needs no nudge: it gives its processor back by itself.
    fn start<T: Send + 'static>(
        &self,
        work: Work,
        execution: impl Future<Output = T> + Send + 'static,
    ) -> Running<T> {
        self.executor.start(work, Arc::new(|| {}), Arc::new(Nothing), execution)
    }

    /// Waits for what must happen. The bound is there for the day when it does not.
    fn soon<T>(&self, future: impl Future<Output = T>) -> T {
        let bounded = async { tokio::time::timeout(Duration::from_secs(60), future).await };
        self.control.block_on(bounded).expect("this should have happened at once")
    }

    /// Waits until nothing is left below the root.
    fn empty(&self) {
        self.soon(async { self.root.drain("the test is over", Duration::from_secs(30)).await })
            .unwrap();
        assert_eq!(self.tree.snapshot(self.tree.root()).len(), 1, "nothing but the root");
    }
}

/// A gauge of a body that uses nothing.
struct Nothing;

impl Gauge for Nothing {
    fn budgets(&self) -> Vec<BudgetUse> {
        Vec::new()
    }

    fn doing(&self) -> Option<&'static str> {
        None
    }
}

fn soft(message: &str) -> Stop {
    Stop::soft("a user", message, Grace::Never)
}

fn hard(message: &str) -> Stop {
    Stop::hard("a user", message)
}

/// One poll, of a future that is asked again by nobody but the test.
fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
