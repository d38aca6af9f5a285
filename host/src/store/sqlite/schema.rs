//! The steps from one version of the schema to the next.

use rusqlite::Connection;

use super::fault::fault;
use crate::store::StoreError;

/// What a database of this program says of itself: `ckrn`.
pub(super) const APPLICATION: i32 = 0x636b_726e;

/// Step n makes a database of version n out of one of version n - 1. A step that was released is never changed.
pub(in crate::store) const STEPS: &[&str] =
    &[include_str!("schema-1.sql"), include_str!("schema-2.sql"), include_str!("schema-3.sql")];

/// The version that this program knows.
pub(super) fn known() -> u32 {
    u32::try_from(STEPS.len()).unwrap_or(u32::MAX)
}

/// The version of a database, after a look at whether it is one of ours. An empty one has version 0.
pub(super) fn found(connection: &Connection) -> Result<u32, StoreError> {
    let pragma = |name: &str| {
        connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(fault)
    };
    let version = u32::try_from(pragma("user_version")?).unwrap_or(u32::MAX);
    let application = pragma("application_id")?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(fault)?;
    let empty = version == 0 && application == 0 && tables == 0;
    if !empty && application != APPLICATION {
        return Err(StoreError::Failed(
            "it is a database of another program: give another path".to_owned(),
        ));
    }
    if version > known() {
        return Err(StoreError::Newer { found: version, known: known() });
    }
    Ok(version)
}

/// Takes a database step by step to the version that is known. Each step is done whole or not at all.
pub(super) fn migrate(connection: &mut Connection, from: u32) -> Result<(), StoreError> {
    for (version, step) in (1_i32..).zip(STEPS).skip(from as usize) {
        let transaction = connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(fault)?;
        transaction.execute_batch(step).map_err(fault)?;
        transaction.pragma_update(None, "user_version", version).map_err(fault)?;
        transaction.pragma_update(None, "application_id", APPLICATION).map_err(fault)?;
        transaction.commit().map_err(fault)?;
    }
    Ok(())
}
