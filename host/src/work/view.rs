//! What an operator sees of a node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stop::Stop;
use super::tree::Kind;
use crate::ids::WorkId;

/// One node of the tree, as it was when the snapshot was taken.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// Its name.
    pub id: WorkId,
    /// The one node that owns it; none for the root.
    pub owner: Option<WorkId>,
    /// What sort of work it is.
    pub kind: Kind,
    /// Its name for people.
    pub label: Arc<str>,
    /// The highest stop that it carries.
    pub stop: Option<Stop>,
    /// Why it takes no new work, when it takes none.
    pub closed: Option<Arc<str>>,
    /// How long ago it was opened.
    pub age: Duration,
    /// What it is doing.
    pub activity: Option<Activity>,
    /// What it has used of its budgets.
    pub budgets: Vec<BudgetUse>,
}

/// What a piece of work is doing.
#[derive(Debug, Clone)]
pub struct Activity {
    /// The call that it is in, such as `model.complete`, or `computing`.
    pub what: &'static str,
    /// What exactly, such as the name of a model.
    pub detail: Option<Arc<str>>,
    /// Since when, for a wait.
    pub since: Option<Instant>,
}

/// What a piece of work has used of one budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetUse {
    /// The name of the limit.
    pub name: &'static str,
    /// How much was used, in the limit's unit.
    pub used: u64,
    /// How much there is; none where there is no bound.
    pub limit: Option<u64>,
}
