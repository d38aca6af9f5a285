//! What is there: the files to survey, and what is counted apart. Built from pages of `files_list`.

use std::collections::BTreeMap;

use checkrein_guest::prelude::*;

use crate::apart::{self, Apart};
use crate::moment::Moment;
use crate::options::Options;
use crate::troubles::Troubles;

/// A file to survey.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    /// The whole path, as tools take it.
    pub(crate) path: String,
    /// In bytes.
    pub(crate) size: u64,
    /// The last change.
    #[serde(default)]
    pub(crate) modified: Moment,
}

/// How many files, lines and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Files.
    pub(crate) files: u64,
    /// Lines, where they were counted.
    pub(crate) lines: u64,
    /// Bytes.
    pub(crate) bytes: u64,
}

impl Tally {
    /// One more file.
    pub(crate) fn count(&mut self, lines: u64, bytes: u64) {
        self.add(Tally { files: 1, lines, bytes });
    }

    /// All of another tally.
    pub(crate) fn add(&mut self, other: Tally) {
        self.files += other.files;
        self.lines += other.lines;
        self.bytes += other.bytes;
    }
}

/// The folders that are surveyed: how paths are shown, and to which area they belong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ground {
    folders: Vec<String>,
}

impl Ground {
    /// These folders, none within another.
    pub(crate) fn new(folders: Vec<String>) -> Ground {
        Ground { folders }
    }

    /// The folders.
    pub(crate) fn folders(&self) -> &[String] {
        &self.folders
    }

    /// The path below its folder.
    pub(crate) fn below<'p>(&self, path: &'p str) -> &'p str {
        let below =
            |folder: &String| path.strip_prefix(folder.trim_end_matches('/'))?.strip_prefix('/');
        self.folders.iter().find_map(below).unwrap_or(path)
    }

    /// The path as a report shows it: without the folder, when there is only one.
    pub(crate) fn show<'p>(&self, path: &'p str) -> &'p str {
        if self.folders.len() == 1 { self.below(path) } else { path }
    }

    /// The folder, or the part of it, that a table of areas counts the file for.
    pub(crate) fn area(&self, path: &str) -> String {
        let below = self.below(path);
        let folder = &path[..path.len() - below.len()];
        match (below.split_once('/'), self.folders.len()) {
            (Some((first, _)), 1) => format!("{first}/"),
            (None, 1) => "(top level)".to_owned(),
            (Some((first, _)), _) => format!("{folder}{first}/"),
            (None, _) => folder.to_owned(),
        }
    }
}

/// What is there.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// The files to survey; sorted by path once the listing has ended.
    pub(crate) files: Vec<File>,
    /// What is counted apart, by reason.
    pub(crate) apart: BTreeMap<Apart, Tally>,
    /// Folders that are counted apart, as the report shows them.
    pub(crate) folders_apart: BTreeMap<String, Tally>,
    /// Binary files by their ending.
    pub(crate) binary: BTreeMap<String, Tally>,
    /// Directories that were entered.
    pub(crate) directories: u64,
    /// Symbolic links; never followed.
    pub(crate) links: u64,
    /// Devices, pipes and sockets.
    pub(crate) special: u64,
    /// Entries that git ignores.
    pub(crate) ignored: u64,
    /// Entries that are hidden, when they are not wanted.
    pub(crate) hidden: u64,
    /// Entries that were excluded: version control, and what the options name.
    pub(crate) excluded: u64,
    /// What could not be listed.
    pub(crate) troubles: Troubles,
    /// Files that were beyond the bound.
    pub(crate) beyond: bool,
}

/// One answer of `files_list`.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    entries: Vec<Entry>,
    /// The cursor of the next page.
    #[serde(default)]
    pub(crate) next: Option<String>,
    #[serde(default)]
    left_out: LeftOut,
    #[serde(default)]
    errors: Vec<PathError>,
    #[serde(default)]
    more_errors: u64,
}

#[derive(Debug, Deserialize)]
struct Entry {
    path: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    modified: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LeftOut {
    hidden: u64,
    ignored: u64,
    excluded: u64,
}

/// A path that a tool could not use.
#[derive(Debug, Deserialize)]
pub(crate) struct PathError {
    /// The path.
    #[serde(default)]
    pub(crate) path: String,
    /// Why.
    #[serde(default)]
    pub(crate) error: String,
}

impl Inventory {
    /// Takes in one page.
    pub(crate) fn take(&mut self, page: Page, ground: &Ground, options: &Options) {
        self.hidden += page.left_out.hidden;
        self.ignored += page.left_out.ignored;
        self.excluded += page.left_out.excluded;
        for error in page.errors {
            self.troubles.add(error.path, error.error);
        }
        self.troubles.more += page.more_errors;
        for entry in page.entries {
            match entry.kind.as_str() {
                "file" => self.file(entry, ground, options),
                "dir" => self.directories += 1,
                "symlink" => self.links += 1,
                _ => self.special += 1,
            }
        }
    }

    fn file(&mut self, entry: Entry, ground: &Ground, options: &Options) {
        let size = entry.size.unwrap_or(0);
        let below = ground.below(&entry.path);
        let why = apart::by_path(below)
            .or_else(|| (size > options.max_file_bytes).then_some(Apart::Large));
        if let Some(why @ (Apart::Vendored | Apart::Built)) = why {
            self.apart.entry(why).or_default().count(0, size);
            if let Some(folder) = apart::folder(below) {
                // A million folders are as good as a few here.
                if self.folders_apart.len() < 1_000 || self.folders_apart.contains_key(folder) {
                    self.folders_apart.entry(folder.to_owned()).or_default().count(0, size);
                }
            }
            return;
        }
        if self.files.len() >= options.max_files {
            self.beyond = true;
            return;
        }
        match why {
            Some(Apart::Binary) => self.count_binary(&entry.path, size),
            Some(why) => self.apart.entry(why).or_default().count(0, size),
            None => {}
        }
        let modified = entry.modified.as_deref().map_or(Moment::default(), Moment::parse);
        self.files.push(File { path: entry.path, size, modified });
    }

    /// Counts a binary file.
    pub(crate) fn count_binary(&mut self, path: &str, size: u64) {
        self.apart.entry(Apart::Binary).or_default().count(0, size);
        let sort = apart::sort_of(path);
        let sort = if self.binary.len() < 200 || self.binary.contains_key(&sort) {
            sort
        } else {
            "others".to_owned()
        };
        self.binary.entry(sort).or_default().count(0, size);
    }

    /// Sorts what was listed. Whoever plans parts needs it sorted.
    pub(crate) fn sort(&mut self) {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        self.files.dedup_by(|a, b| a.path == b.path);
    }

    /// All files that are neither vendored nor built.
    pub(crate) fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.files.iter().for_each(|file| total.count(0, file.size));
        total
    }
}

/// Whether the text of a file is worth reading.
pub(crate) fn is_read(file: &File, ground: &Ground, options: &Options) -> bool {
    file.size > 0
        && file.size <= options.max_file_bytes
        && apart::by_path(ground.below(&file.path)).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(entries: &Value) -> Inventory {
        let page: Page = serde_json::from_value(json!({
            "entries": entries,
            "left_out": {"ignored": 3},
            "errors": [{"path": "/work/x", "error": "permission denied"}],
        }))
        .unwrap();
        let mut inventory = Inventory::default();
        let options = Options { max_files: 4, max_file_bytes: 100, ..Options::default() };
        inventory.take(page, &Ground::new(vec!["/work".to_owned()]), &options);
        inventory.sort();
        inventory
    }

    fn file(path: &str, size: u64) -> Value {
        json!({"path": path, "kind": "file", "size": size, "modified": "2026-03-01T12:30:00Z"})
    }

    #[test]
    fn a_page_is_sorted_into_what_is_surveyed_and_what_is_apart() {
        let inventory = take(&json!([
            file("/work/src/main.rs", 10),
            file("/work/logo.png", 20),
            file("/work/node_modules/a.js", 30),
            file("/work/big.txt", 1_000),
            {"path": "/work/src", "kind": "dir"},
            {"path": "/work/link", "kind": "symlink", "target": "/etc"},
            {"path": "/work/pipe", "kind": "other"},
        ]));
        let paths: Vec<&str> = inventory.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["/work/big.txt", "/work/logo.png", "/work/src/main.rs"]);
        assert_eq!(inventory.apart[&Apart::Vendored], Tally { files: 1, lines: 0, bytes: 30 });
        assert_eq!(inventory.apart[&Apart::Large].bytes, 1_000);
        assert_eq!(inventory.binary[".png"].files, 1);
        assert_eq!(inventory.folders_apart["node_modules"].files, 1);
        assert_eq!(
            (inventory.directories, inventory.links, inventory.special, inventory.ignored),
            (1, 1, 1, 3)
        );
        assert_eq!(inventory.troubles.count(), 1);
        assert_eq!(inventory.total(), Tally { files: 3, lines: 0, bytes: 1_030 });
    }

    #[test]
    fn more_files_than_allowed_are_said() {
        let files: Vec<Value> = (0..6).map(|number| file(&format!("/work/{number}"), 1)).collect();
        let inventory = take(&json!(files));
        assert_eq!((inventory.files.len(), inventory.beyond), (4, true));
    }

    #[test]
    fn paths_are_shown_below_their_folder() {
        let one = Ground::new(vec!["/work".to_owned()]);
        assert_eq!((one.show("/work/src/a"), one.area("/work/src/a").as_str()), ("src/a", "src/"));
        assert_eq!(one.area("/work/a"), "(top level)");
        let two = Ground::new(vec!["/data".to_owned(), "/work".to_owned()]);
        assert_eq!(
            (two.show("/work/src/a"), two.area("/work/src/a").as_str()),
            ("/work/src/a", "/work/src/")
        );
        assert_eq!(two.area("/work/a"), "/work/");
        let root = Ground::new(vec!["/".to_owned()]);
        assert_eq!(root.show("/etc/passwd"), "etc/passwd");
    }
}
