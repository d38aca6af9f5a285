//! The report of the last shutdown of a service, beside its profiles.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::work::shutdown::{Report, StepError};

/// The report of the last shutdown, in the directory of the profiles.
const REPORT: &str = "shutdown.json";

/// Keeps the report in the place of the one before. A reader finds that or this, also after a loss of power.
pub(super) fn keep(directory: &Path, report: &Report) -> Result<(), StepError> {
    let (path, new) = (directory.join(REPORT), directory.join(format!(".{REPORT}.new")));
    // One that was left half written, or a link that somebody put there.
    fs::remove_file(&new).ok();
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&new)?;
    file.write_all(&serde_json::to_vec_pretty(report)?)?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    Ok(())
}
