//! Waiting until nothing is left, with a bound.

use std::time::{Duration, Instant};

use super::sync::lock;
use super::tree::{Kind, Tree, Work};
use super::view::NodeView;
use crate::ids::WorkId;

/// The proof that a node was closed for new work and had no execution below it.
#[derive(Debug)]
pub struct Drained {
    _proof: (),
}

/// What was still alive when the time was over.
#[derive(Debug, thiserror::Error)]
#[error("{} piece(s) of work were still alive when the time was over: {}", .nodes.len(), names(.nodes))]
pub struct Left {
    /// Each execution that is left.
    pub nodes: Vec<NodeView>,
}

impl Work {
    /// Closes this node for new work, and waits until no execution is below it (D1, D2). With a bound of zero it
    /// answers at once, from the real state.
    ///
    /// # Errors
    ///
    /// [`Left`] when the bound has passed. Nothing was stopped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the node stays closed, and draining again goes on where this ended.
    pub async fn drain(&self, reason: &str, bound: Duration) -> Result<Drained, Left> {
        self.close(reason);
        let tree = self.tree();
        // A bound beyond the end of time is none.
        let until = Instant::now().checked_add(bound);
        loop {
            let mut left = std::pin::pin!(self.shared.left.notified());
            left.as_mut().enable();
            if tree.is_drained(self.id()) {
                return Ok(Drained { _proof: () });
            }
            let bound =
                until.map_or(bound, |until| until.saturating_duration_since(Instant::now()));
            if bound.is_zero() || tokio::time::timeout(bound, left).await.is_err() {
                return match tree.executions(self.id()) {
                    nodes if nodes.is_empty() => Ok(Drained { _proof: () }),
                    nodes => Err(Left { nodes }),
                };
            }
        }
    }
}

impl Work {
    /// Waits until nothing is below this node but calls that cannot be interrupted, and processes in which work runs that
    /// goes on. It stops nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn alone(&self) {
        loop {
            let mut left = std::pin::pin!(self.shared.left.notified());
            left.as_mut().enable();
            if lock(&self.shared.state)
                .executions_below(self.id())
                .all(|node| matches!(node.kind, Kind::Blocking | Kind::Worker))
            {
                return;
            }
            left.await;
        }
    }
}

impl Tree {
    /// Waits until that work has gone, with everything below it. It stops nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn gone(&self, id: WorkId) {
        loop {
            let mut left = std::pin::pin!(self.shared.left.notified());
            left.as_mut().enable();
            if !self.contains(id) {
                return;
            }
            left.await;
        }
    }

    /// Waits until no execution is below that node. It closes and stops nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn idle(&self, id: WorkId) {
        loop {
            let mut left = std::pin::pin!(self.shared.left.notified());
            left.as_mut().enable();
            if self.is_drained(id) {
                return;
            }
            left.await;
        }
    }

    fn is_drained(&self, id: WorkId) -> bool {
        lock(&self.shared.state).executions_below(id).next().is_none()
    }

    /// The executions below a node.
    pub fn executions(&self, id: WorkId) -> Vec<NodeView> {
        let mut nodes = self.snapshot(id);
        nodes.retain(|node| node.id != id && !node.kind.is_container());
        nodes
    }
}

fn names(nodes: &[NodeView]) -> String {
    let name = |node: &NodeView| format!("{} {} ({})", node.kind.as_str(), node.label, node.id);
    nodes.iter().take(10).map(name).collect::<Vec<_>>().join(", ")
}
