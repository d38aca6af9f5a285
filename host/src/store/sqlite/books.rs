//! What the writer remembers of sessions, so that it does not look it up for every write.

use std::collections::HashMap;

use super::tables::{Counters, Tables};
use crate::ids::SessionId;
use crate::store::StoreError;
use crate::store::rules::{Head, Known};

/// Sessions that are remembered at most. Beyond it all are forgotten, and looked up again.
const REMEMBERED: usize = 4_096;

/// What is committed, as far as it is remembered.
#[derive(Debug, Default)]
pub(super) struct Books {
    heads: HashMap<SessionId, Head>,
    counters: Option<Counters>,
    /// What SQLite counts up when another connection has written.
    version: i64,
}

/// What a transaction has changed so far. It is thrown away when the transaction fails.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) heads: HashMap<SessionId, Standing>,
    pub(super) counters: Counters,
    /// The counters as they are committed.
    pub(super) before: Counters,
}

/// A session in a transaction.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    /// It is there. Whether this transaction has changed it, too.
    Here(Head, bool),
    /// It was there.
    Gone,
}

impl Books {
    /// Begins a draft. Whatever another process has written is read anew.
    pub(super) fn draft(&mut self, tables: &Tables<'_>) -> Result<Draft, StoreError> {
        let version = tables.data_version()?;
        if version != self.version || self.heads.len() > REMEMBERED {
            self.heads.clear();
            self.counters = None;
        }
        let counters = match self.counters {
            Some(counters) => counters,
            None => tables.counters()?,
        };
        self.version = version;
        self.counters = Some(counters);
        Ok(Draft { heads: HashMap::new(), counters, before: counters })
    }

    /// The draft has been committed.
    pub(super) fn commit(&mut self, draft: Draft) {
        self.counters = Some(draft.counters);
        for (id, standing) in draft.heads {
            match standing {
                Standing::Here(head, _) => drop(self.heads.insert(id, head)),
                Standing::Gone => drop(self.heads.remove(&id)),
            }
        }
    }

    /// Nothing that is remembered can be relied on.
    pub(super) fn forget(&mut self) {
        self.heads.clear();
        self.counters = None;
    }

    /// Where a session stands in what is committed, if that is remembered.
    pub(super) fn committed(&self, id: &SessionId) -> Option<&Head> {
        self.heads.get(id)
    }

    /// What is known of a session: from the draft, from memory, or from the database.
    pub(super) fn known(
        &self,
        draft: &Draft,
        tables: &Tables<'_>,
        id: &SessionId,
    ) -> Result<Known, StoreError> {
        if let Some(standing) = draft.heads.get(id) {
            return Ok(match standing {
                Standing::Here(head, _) => Known::Here(head.clone()),
                Standing::Gone => Known::Gone,
            });
        }
        match self.heads.get(id) {
            Some(head) => Ok(Known::Here(head.clone())),
            None => tables.known(id, draft.counters.last_key + 1),
        }
    }
}
