//! Why the store did not do something.

/// Something was not written or not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such session.
    #[error("there is no session `{0}` in this store")]
    NoSession(String),
    /// A session of that name is or was there.
    #[error("the session `{0}` is there already; names of sessions are not used twice")]
    Exists(String),
    /// The session cannot be deleted now.
    #[error("the session `{session}` cannot be deleted: {why}")]
    InUse {
        /// Which.
        session: String,
        /// What holds it.
        why: String,
    },
    /// A bound of what is kept would be passed.
    #[error("{what} has {bytes} bytes, and at most {most} are kept (`{limit}`): {todo}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// How large it is or would be.
        bytes: u64,
        /// The bound.
        most: u64,
        /// The name of the limit.
        limit: &'static str,
        /// What to do.
        todo: &'static str,
    },
    /// The disk is full.
    #[error("the disk is full ({0}): make room, and try again")]
    Full(String),
    /// The file can be read and not written.
    #[error("the database cannot be written ({0}): check its permissions and its file system")]
    ReadOnly(String),
    /// Somebody else holds the database.
    #[error("the database is held by another process ({0}): find out who, and try again")]
    Locked(String),
    /// The file is damaged.
    #[error(
        "the database is damaged ({0}): restore it from a backup, or export what can still be read"
    )]
    Corrupt(String),
    /// The database is from a later version of this program.
    #[error(
        "the database has the schema {found}, and this program knows up to {known}: use a newer one"
    )]
    Newer {
        /// What it has.
        found: u32,
        /// What is known.
        known: u32,
    },
    /// A change does not fit what is there: a defect of the caller.
    #[error("a change does not fit what is recorded: {0}")]
    Invalid(String),
    /// The system refused something else.
    #[error("the database failed: {0}")]
    Failed(String),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Whether the same may be taken later.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            StoreError::Full(_)
                | StoreError::ReadOnly(_)
                | StoreError::Locked(_)
                | StoreError::Failed(_)
        )
    }
}
