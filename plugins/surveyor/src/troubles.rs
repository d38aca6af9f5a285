//! What could not be looked at, and why: a few told, all counted.

use checkrein_guest::prelude::*;

/// So many are kept with their reasons.
const KEPT: usize = 200;

/// What could not be looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Troubles {
    /// Path and reason.
    pub(crate) kept: Vec<(String, String)>,
    /// Further ones.
    pub(crate) more: u64,
}

impl Troubles {
    /// Adds one, unless it is known: several tools stumble over the same file.
    pub(crate) fn add(&mut self, path: impl Into<String>, why: impl Into<String>) {
        let (path, why) = (path.into(), why.into());
        if self.kept.iter().any(|(known, _)| *known == path) {
            return;
        }
        if self.kept.len() < KEPT {
            self.kept.push((path, why));
        } else {
            self.more += 1;
        }
    }

    /// Adds those of another part.
    pub(crate) fn merge(&mut self, other: Troubles) {
        for (path, why) in other.kept {
            self.add(path, why);
        }
        self.more += other.more;
    }

    /// Keeps at most that many with their reasons.
    pub(crate) fn cut(&mut self, keep: usize) {
        self.more += self.kept.len().saturating_sub(keep) as u64;
        self.kept.truncate(keep);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.kept.len() as u64 + self.more
    }
}
