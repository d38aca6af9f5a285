//! Runs in processes of their own (rules M): real processes, with real guests in them.

mod counted;
mod crashes;
mod hostile;
mod settings;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use checkrein_testkit::{TestHostBuilder, within};
use tempfile::TempDir;

use crate::start::Result;

/// The command, whose workers are the real ones.
const PROGRAM: &str = env!("CARGO_BIN_EXE_checkrein");

/// A folder in which a worker of a test leaves something.
pub(crate) fn folder() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("checkrein-worker-").tempdir()?)
}

/// A real worker that leaves its number in a file of that folder before it does anything.
pub(crate) fn numbered(host: TestHostBuilder, folder: &Path) -> TestHostBuilder {
    let script = format!(": > {0}/$$ && exec {PROGRAM} worker", folder.display());
    host.workers("/bin/sh", &["-c", &script])
}

/// The numbers of the workers that were started, by [`numbered`].
pub(crate) async fn numbers(folder: &Path, count: usize) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    until("the workers", || {
        let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        found = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        found.len() >= count
    })
    .await?;
    Ok(found)
}

/// Waits for what another process does and nothing announces.
pub(crate) async fn until(what: &str, mut wanted: impl FnMut() -> bool) -> Result {
    let looking = async {
        while !wanted() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(what, looking).await
}

/// What a worker was told that keeps its input in that file: the kinds of its stops, in order.
pub(crate) fn stops_told(file: &Path) -> Result<Vec<String>> {
    let told = std::fs::read(file).context("what the worker was told")?;
    let told = String::from_utf8_lossy(&told);
    let stops = told.match_indices("{\"type\":\"stop\"").map(|(at, _)| {
        let rest = &told[at..];
        let end = rest.find('}').map_or(rest.len(), |end| end + 1);
        let stop: serde_json::Value = serde_json::from_str(&rest[..end])?;
        anyhow::Ok(stop["kind"].as_str().unwrap_or_default().to_owned())
    });
    stops.collect()
}

/// A worker that says that it has begun, and from then on listens and does nothing. Its output stays open.
pub(crate) fn deaf(file: &Path) -> String {
    format!("{}; exec /bin/cat 3>&1 > {}", says("{\"type\":\"started\"}"), file.display())
}

/// How a shell says one frame.
fn says(frame: &str) -> String {
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX).to_le_bytes();
    let octal: String = length.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("printf '{octal}'; printf '%s' '{frame}'")
}
