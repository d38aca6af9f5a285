//! Waiting with a bound, so that a test that waits in vain says for what.

use std::time::Duration;

use anyhow::{Result, anyhow};

/// How long the kit waits for what should happen at once. It is only ever reached by a test that fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something, and says what it was if it does not come.
///
/// # Errors
///
/// When [`PATIENCE`] is over.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(PATIENCE, future)
        .await
        .map_err(|_| anyhow!("waited {PATIENCE:?} in vain: {what}"))
}
