//! What went wrong, in the words of the store.

use std::fmt;
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode};

use crate::store::StoreError;

/// What SQLite said, as a decision.
#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
#[allow(clippy::wildcard_enum_match_arm, reason = "whatever else there is is one decision")]
pub(super) fn fault(error: rusqlite::Error) -> StoreError {
    let said = error.to_string();
    let rusqlite::Error::SqliteFailure(failure, _) = &error else {
        return match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..) => StoreError::Corrupt(said),
            _ => StoreError::Failed(said),
        };
    };
    match failure.code {
        ErrorCode::DiskFull => StoreError::Full(said),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => StoreError::ReadOnly(said),
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed => StoreError::Locked(said),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt(said),
        // These are of what was written, and would come again.
        ErrorCode::TooBig
        | ErrorCode::ConstraintViolation
        | ErrorCode::TypeMismatch
        | ErrorCode::ParameterOutOfRange => StoreError::Invalid(said),
        _ => StoreError::Failed(said),
    }
}

/// A number as SQLite has them.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number of SQLite as we have them.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Where the writer can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::store) enum Point {
    /// Before a transaction.
    Begin,
    /// Before a step of a write is carried out.
    Step,
    /// When all steps have been carried out, before what is counted is written.
    Heads,
    /// Before the commit.
    Commit,
    /// Before something that is beyond the bounds is dropped.
    Tidy,
}

/// What may make it fail.
pub(in crate::store) type Failing =
    Arc<dyn Fn(Point, &Connection) -> Option<StoreError> + Send + Sync>;

/// Whether something makes the writer fail at that point.
#[derive(Clone, Default)]
pub(in crate::store) struct Faults(pub(in crate::store) Option<Failing>);

impl Faults {
    pub(super) fn at(&self, point: Point, connection: &Connection) -> Result<(), StoreError> {
        match self.0.as_ref().and_then(|failing| failing(point, connection)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&self.0.is_some()).finish()
    }
}
