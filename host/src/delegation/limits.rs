//! How much may be handed out, and the refusals that come before anything is built (A9).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much may be handed out to children. Every field is enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationLimits {
    /// How many delegations may lie above a run; 0 for none at all.
    pub depth: u64,
    /// Tasks of one call.
    pub children_per_call: u64,
    /// Runs that a run may start below itself, at any depth and over its whole life.
    pub descendants_per_tree: u64,
    /// Slots of the host: calls that have units in the background at one time.
    pub units_per_host: u64,
    /// Slots of them that one session may hold.
    pub units_per_session: u64,
    /// Units of the host that may wait in line for a slot.
    pub queued_units: u64,
    /// Units of a session that run or have ended without having been acknowledged: what it has to read.
    pub unread_completions: u64,
}

impl Default for DelegationLimits {
    fn default() -> Self {
        DelegationLimits {
            depth: 4,
            children_per_call: 32,
            descendants_per_tree: 256,
            units_per_host: 64,
            units_per_session: 8,
            queued_units: 64,
            unread_completions: 256,
        }
    }
}

impl DelegationLimits {
    /// Whether a run with `depth` delegations above it may hand out that many tasks in one call.
    ///
    /// # Errors
    ///
    /// [`OverLimit`] names the limit that is in the way.
    pub fn allow(&self, depth: u64, tasks: u64) -> Result<(), OverLimit> {
        let over = |limit, allowed, wanted| Err(OverLimit { limit, allowed, wanted });
        if depth >= self.depth {
            return over(DelegationLimit::Depth, self.depth, depth.saturating_add(1));
        }
        if tasks > self.children_per_call {
            return over(DelegationLimit::ChildrenPerCall, self.children_per_call, tasks);
        }
        Ok(())
    }
}

/// The names of the limits of [`DelegationLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DelegationLimit {
    /// [`DelegationLimits::depth`].
    Depth,
    /// [`DelegationLimits::children_per_call`].
    ChildrenPerCall,
    /// [`DelegationLimits::descendants_per_tree`].
    DescendantsPerTree,
    /// [`DelegationLimits::units_per_host`].
    UnitsPerHost,
    /// [`DelegationLimits::units_per_session`].
    UnitsPerSession,
    /// [`DelegationLimits::queued_units`].
    QueuedUnits,
    /// [`DelegationLimits::unread_completions`].
    UnreadCompletions,
}

impl DelegationLimit {
    /// The name, as configuration and refusals spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            DelegationLimit::Depth => "depth",
            DelegationLimit::ChildrenPerCall => "children-per-call",
            DelegationLimit::DescendantsPerTree => "descendants-per-tree",
            DelegationLimit::UnitsPerHost => "units-per-host",
            DelegationLimit::UnitsPerSession => "units-per-session",
            DelegationLimit::QueuedUnits => "queued-units",
            DelegationLimit::UnreadCompletions => "unread-completions",
        }
    }
}

impl fmt::Display for DelegationLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How many runs have been started below a run, against how many may be. It counts in every run above too, so that a
/// tree of runs never has more than its root may.
#[derive(Debug, Clone)]
pub struct Descendants {
    count: Arc<Count>,
}

#[derive(Debug)]
struct Count {
    started: AtomicU64,
    allowed: u64,
    above: Option<Descendants>,
}

impl Descendants {
    /// A root below which nothing has been started.
    pub fn new(allowed: u64) -> Descendants {
        let count = Count { started: AtomicU64::new(0), allowed, above: None };
        Descendants { count: Arc::new(count) }
    }

    /// The count of a run below, which may start at most that many itself.
    #[must_use]
    pub fn below(&self, allowed: u64) -> Descendants {
        let count = Count { started: AtomicU64::new(0), allowed, above: Some(self.clone()) };
        Descendants { count: Arc::new(count) }
    }

    /// How many may still be started.
    pub fn left(&self) -> u64 {
        let Count { started, allowed, above } = &*self.count;
        let own = allowed.saturating_sub(started.load(Ordering::SeqCst));
        above.as_ref().map_or(own, |above| own.min(above.left()))
    }

    /// That many runs were claimed as started and will never be.
    pub fn give_back(&self, runs: u64) {
        let Count { started, above, .. } = &*self.count;
        started.fetch_sub(runs, Ordering::SeqCst);
        if let Some(above) = above {
            above.give_back(runs);
        }
    }

    /// Claims places for that many runs, all or none.
    ///
    /// # Errors
    ///
    /// [`OverLimit`] when there are fewer left.
    pub fn claim(&self, runs: u64) -> Result<Claimed, OverLimit> {
        let Count { started, allowed, above } = &*self.count;
        let above = above.as_ref().map(|above| above.claim(runs)).transpose()?;
        let more = |started: u64| started.checked_add(runs).filter(|sum| sum <= allowed);
        match started.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more) {
            Ok(_) => Ok(Claimed { descendants: self.clone(), runs, above: above.map(Box::new) }),
            Err(started) => Err(OverLimit {
                limit: DelegationLimit::DescendantsPerTree,
                allowed: *allowed,
                wanted: started.saturating_add(runs),
            }),
        }
    }
}

/// Places for runs that have not been started. Dropping it gives them back.
#[must_use = "dropping it gives the places back"]
#[derive(Debug)]
pub struct Claimed {
    descendants: Descendants,
    runs: u64,
    above: Option<Box<Claimed>>,
}

impl Claimed {
    /// The runs have been started; their places are used up for good.
    pub fn started(mut self) {
        self.use_up();
    }

    fn use_up(&mut self) {
        self.runs = 0;
        if let Some(above) = &mut self.above {
            above.use_up();
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.descendants.count.started.fetch_sub(self.runs, Ordering::SeqCst);
    }
}

/// More was asked for than a limit allows. Nothing was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct OverLimit {
    /// The limit.
    pub limit: DelegationLimit,
    /// How much it allows.
    pub allowed: u64,
    /// How much there would have been.
    pub wanted: u64,
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverLimit { limit, allowed, wanted } = self;
        match limit {
            DelegationLimit::Depth => {
                write!(
                    f,
                    "nothing was started: the children would be {wanted} delegations deep, and {allowed}"
                )?;
            }
            DelegationLimit::ChildrenPerCall => {
                write!(f, "nothing was started: the call has {wanted} tasks, and {allowed}")?;
            }
            DelegationLimit::DescendantsPerTree => {
                write!(
                    f,
                    "nothing was started: there would be {wanted} runs below the first one, and {allowed}"
                )?;
            }
            DelegationLimit::UnitsPerHost
            | DelegationLimit::UnitsPerSession
            | DelegationLimit::QueuedUnits
            | DelegationLimit::UnreadCompletions => {
                write!(f, "there would be {wanted}, and {allowed}")?
            }
        }
        write!(f, " is the most that the limit `{limit}` allows")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule A9: depth and the children of one call have limits, and a refusal names the one that is in the way.
    #[test]
    fn a_call_over_a_limit_is_refused_by_the_name_of_the_limit() {
        let limits =
            DelegationLimits { depth: 2, children_per_call: 3, ..DelegationLimits::default() };
        assert_eq!(limits.allow(1, 3), Ok(()));
        let deep = OverLimit { limit: DelegationLimit::Depth, allowed: 2, wanted: 3 };
        assert_eq!(limits.allow(2, 1), Err(deep));
        assert!(deep.to_string().contains("3 delegations deep, and 2 is the most"), "{deep}");
        let wide = OverLimit { limit: DelegationLimit::ChildrenPerCall, allowed: 3, wanted: 4 };
        assert_eq!(limits.allow(0, 4), Err(wide));
        assert!(wide.to_string().contains("`children-per-call`"), "{wide}");
    }

    /// Rule A9: the runs of a tree are counted together, and what was claimed and not started is given back.
    #[test]
    fn the_descendants_of_a_tree_are_counted_together() {
        let root = Descendants::new(5);
        let below = root.clone();
        root.claim(1).unwrap().started();
        let claimed = root.claim(2).unwrap();
        let over = below.claim(3).unwrap_err();
        let expected =
            OverLimit { limit: DelegationLimit::DescendantsPerTree, allowed: 5, wanted: 6 };
        assert_eq!((over, below.left()), (expected, 2));
        drop(claimed);
        assert_eq!(below.left(), 4);
        below.claim(4).unwrap().started();
        assert_eq!((root.left(), root.claim(u64::MAX).is_err()), (0, true));
    }

    /// Rule A10: a child that may start fewer starts no more, and what it starts counts above it too.
    #[test]
    fn a_share_of_the_descendants_counts_in_the_whole() {
        let root = Descendants::new(5);
        let (one, other) = (root.below(3), root.below(9));
        one.claim(2).unwrap().started();
        assert_eq!((root.left(), one.left(), other.left()), (3, 1, 3));
        assert!(one.claim(2).is_err());
        assert_eq!(root.left(), 3, "a refusal gives back what it claimed above");
        assert!(other.claim(4).is_err());
        other.claim(3).unwrap().started();
        assert_eq!((root.left(), one.left()), (0, 0));
        one.give_back(1);
        assert_eq!((root.left(), one.left(), other.left()), (1, 1, 1));
    }
}
