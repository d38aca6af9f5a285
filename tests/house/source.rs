//! Reading the sources that the checks look at.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// One source file: its path from the root, and its text.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    /// The text without comments, so that prose about a thing is not taken for its use.
    pub(crate) fn code(&self) -> String {
        self.text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Every Rust file below a folder, leaving out what is generated or built.
pub(crate) fn sources(below: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root(), &root().join(below), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "there are no sources below {below}");
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a folder of sources can be read") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !matches!(name, "target" | "bindings" | ".git") {
                collect(root, &path, found);
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).expect("a source is text");
            let path = path.strip_prefix(root).expect("it is below the root").display().to_string();
            found.push(Source { path, text });
        }
    }
}
