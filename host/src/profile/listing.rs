//! Which profiles a directory wants: a folder each, with its configuration in it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The configuration in a profile's home.
pub const CONFIGURATION: &str = "profile.toml";

/// No configuration is longer; what is longer is compared by its beginning.
const LONGEST: u64 = 1 << 20;

/// A profile that is to be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name: that of its folder. No two profiles have the same.
    pub name: String,
    /// Its home.
    pub home: PathBuf,
    /// Its configuration.
    pub configuration: PathBuf,
    /// Says whether the configuration is the same as before; it means nothing else.
    pub version: Arc<str>,
}

/// The profiles of a directory, by name: each folder that has a [`CONFIGURATION`]. A folder whose name begins with a dot,
/// or is not text, is none.
///
/// # Errors
///
/// When the directory cannot be read. A configuration that cannot be read is listed, so that whoever opens it says why.
pub fn listing(directory: &Path) -> io::Result<Vec<Wanted>> {
    let mut listed = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let home = directory.join(&name);
        let configuration = home.join(CONFIGURATION);
        // What else may be at that place, such as a FIFO, is not opened.
        let is_file = fs::metadata(&configuration).is_ok_and(|found| found.is_file());
        if !name.starts_with('.') && is_file {
            let version = version(&configuration).into();
            listed.push(Wanted { name, home, configuration, version });
        }
    }
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(listed)
}

fn version(file: &Path) -> String {
    let mut bytes = Vec::new();
    match File::open(file).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)) {
        Ok(_) => Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(error) => format!("not readable: {error}"),
    }
}
