//! Who hears of changes of what a node owns, for those who write down how much work there is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::state::{Node, State};
use super::sync::lock;
use super::tree::{Extra, Shared, Work};
use crate::ids::WorkId;

pub(super) type Told = Arc<dyn Fn() + Send + Sync>;

/// How many nodes are watched. While there are none, a change of the tree costs one load more.
#[derive(Default)]
pub(super) struct Watched {
    /// Changed before the lock of the tree is taken, read under it.
    count: AtomicUsize,
}

/// Those to be told, once the lock of the tree is free.
#[must_use = "they have to be told"]
pub(super) struct ToTell(Vec<Told>);

impl Watched {
    /// Those who hear of a change of what `owner` owns. Pieces of work are what containers own directly, so what goes
    /// on below an execution is nobody's business here.
    pub(super) fn of(&self, state: &State<Extra>, owner: WorkId) -> ToTell {
        if self.count.load(Ordering::Relaxed) == 0 {
            return ToTell(Vec::new());
        }
        let above = state.get(owner).filter(|node| node.kind.is_container());
        let above = above.into_iter().flat_map(|node| state.above(node.id));
        ToTell(above.filter_map(|node| node.extra.told.clone()).collect())
    }

    /// The same for the owners of nodes that are about to move.
    pub(super) fn of_owners(&self, state: &State<Extra>, children: &[WorkId]) -> ToTell {
        let mut all = ToTell(Vec::new());
        for child in children {
            if let Some(owner) = state.get(*child).and_then(|node| node.owner) {
                all.append(self.of(state, owner));
            }
        }
        all
    }

    /// The same for nodes that have just gone, lowest first.
    pub(super) fn of_gone(&self, state: &State<Extra>, gone: &[Node<Extra>]) -> ToTell {
        let mut all = ToTell(gone.iter().filter_map(|node| node.extra.told.clone()).collect());
        if let Some(owner) = gone.last().and_then(|node| node.owner) {
            all.append(self.of(state, owner));
        }
        all
    }
}

impl ToTell {
    pub(super) fn append(&mut self, mut others: ToTell) {
        self.0.append(&mut others.0);
    }

    /// Not under the lock of the tree.
    pub(super) fn tell(self) {
        self.0.into_iter().for_each(|told| told());
    }
}

impl Work {
    /// Has `told` called after each change of what a container from this node downwards owns directly: an opening, an
    /// end, a change of owner. The tree is not locked meanwhile, and may have changed again. `told` is called by
    /// whoever changed the tree: it must return at once and must not panic. A node has one watcher: the last one.
    pub fn watch(&self, told: impl Fn() + Send + Sync + 'static) -> Watch {
        let told: Told = Arc::new(told);
        self.shared.watched.count.fetch_add(1, Ordering::Relaxed);
        let set = lock(&self.shared.state)
            .set_extra(self.id(), |extra| extra.told.replace(Arc::clone(&told)));
        // The watcher before is dropped here, because what it holds may want the lock.
        drop(set);
        Watch { shared: Arc::clone(&self.shared), id: self.id(), told }
    }
}

/// A node is watched until this is dropped.
#[must_use = "dropping it ends the watch"]
pub struct Watch {
    shared: Arc<Shared>,
    id: WorkId,
    told: Told,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let ours = |extra: &mut Extra| {
            extra.told.take_if(|told| Arc::ptr_eq(told, &self.told));
        };
        lock(&self.shared.state).set_extra(self.id, ours);
        self.shared.watched.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.id).finish()
    }
}
