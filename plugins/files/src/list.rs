//! The tool `list`: what is in a directory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use checkrein_guest::prelude::*;
use checkrein_reading::{Kind, json_len, paths};

use crate::filter::{Filter, Hidden, Ignored};
use crate::time;
use crate::walk::{Found, LeftOut, Step, Trouble, Walk, is_zero};

/// An answer stays below this many bytes.
const MAX_ANSWER: usize = 700 << 10;
/// That many problems are told one by one.
const MAX_ERRORS: usize = 50;

/// What to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The directory, such as `/work/src`; a file is listed as itself. Left out or `/`: all directories that you
    /// were granted.
    #[serde(default)]
    path: String,
    /// How many levels to go down: 1 lists the directory itself, 0 everything below it.
    #[serde(default = "one")]
    depth: u32,
    /// Only entries that match one of these globs. A pattern without a slash goes with the name (`*.rs`), one with a
    /// slash with the path below `path` (`src/**/*.rs`), one that ends in a slash means a directory and all below
    /// it. Directories are searched whether they match or not.
    #[serde(default)]
    include: Vec<String>,
    /// Leave out entries that match one of these globs, and everything below them.
    #[serde(default)]
    exclude: Vec<String>,
    /// Only entries of these kinds; left out: all kinds.
    #[serde(default)]
    kinds: Vec<Kind>,
    /// Also names that start with a dot.
    #[serde(default)]
    hidden: bool,
    /// Leave out what `.gitignore` files name, and the folder `.git`.
    #[serde(default = "yes")]
    gitignore: bool,
    /// The order: `path`; `size`, largest first; `modified`, newest first.
    #[serde(default)]
    sort: Sort,
    /// How many entries at most in this answer, up to 10000.
    #[serde(default = "page")]
    limit: u32,
    /// `next` of the last answer, to go on behind it. All other arguments must be the same.
    #[serde(default)]
    cursor: Option<String>,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn page() -> u32 {
    500
}

/// The order of entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Sort {
    /// By path; what is in a directory follows it.
    #[default]
    Path,
    /// By size, largest first.
    Size,
    /// By the time of the last change, newest first.
    Modified,
}

/// What is there.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    /// The entries, in the order that was asked for.
    entries: Vec<Entry>,
    /// There is more: call again with this as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many entries this walk saw and did not show, by reason.
    #[serde(skip_serializing_if = "LeftOut::is_nothing")]
    left_out: LeftOut,
    /// What could not be looked at; all else is complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Trouble>,
    /// Further problems, only counted.
    #[serde(skip_serializing_if = "is_zero")]
    more_errors: u64,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Entry {
    /// The whole path, as the other tools take it.
    path: String,
    /// `file`, `dir`, `symlink` or `other`.
    kind: Kind,
    /// In bytes; only files have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// The last change, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
    /// Where a symbolic link points, as it is written there; not told of one that leads out of the granted directories.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Entry {
    fn new(path: &Path, kind: Kind, metadata: &Metadata) -> Entry {
        let target = if kind == Kind::Symlink { fs::read_link(path).ok() } else { None };
        Entry {
            path: paths::show(path),
            kind,
            size: (kind == Kind::File).then_some(metadata.len()),
            modified: metadata.modified().ok().map(time::utc),
            target: target.map(|target| paths::show(&target)),
        }
    }

    fn weight(&self) -> usize {
        json_len(&self.path) + self.target.as_deref().map_or(0, json_len) + 90
    }
}

/// Lists directories.
#[derive(Debug)]
pub struct List;

impl Tool for List {
    const NAME: &str = "list";
    const DESCRIPTION: &str = "Lists what is in a directory: path, kind, size and time of the last change of each \
        entry, as JSON. Goes down as many levels as asked, filters by glob, sorts by path, size or time, and pages \
        with a cursor. Symbolic links are shown with their target and not followed. Files and folders that are \
        hidden or ignored by git are left out unless asked for; `left_out` counts them.";
    const HINTS: &[Hint] = &[Hint::ReadOnly, Hint::Idempotent];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
        Output::json(&list(&arguments)?)
    }
}

pub(crate) fn list(arguments: &Arguments) -> Result<Answer, Failure> {
    let limit = match arguments.limit {
        1..=10_000 => arguments.limit as usize,
        other => {
            return Err(Failure::invalid(format!(
                "`limit` is {other}; it must be from 1 to 10000"
            )));
        }
    };
    let starts = match paths::resolve(&arguments.path)? {
        paths::Place::Path(path) => vec![path],
        paths::Place::Roots(roots) if arguments.depth == 1 => return Ok(Answer::of_roots(&roots)),
        paths::Place::Roots(roots) => roots,
    };
    let cursor = arguments.cursor.as_deref().map(Cursor::parse).transpose()?;
    match arguments.sort {
        Sort::Path => by_path(arguments, &starts, limit, cursor),
        Sort::Size | Sort::Modified => by_weight(arguments, &starts, limit, cursor.as_ref()),
    }
}

impl Arguments {
    fn filter(&self, start: &Path) -> Result<Filter, Failure> {
        let hidden = if self.hidden { Hidden::Show } else { Hidden::Skip };
        let ignored = if self.gitignore { Ignored::Skip } else { Ignored::Show };
        Filter::new(start, &self.include, &self.exclude, hidden, ignored)
    }

    fn depth(&self) -> usize {
        if self.depth == 0 { usize::MAX } else { self.depth as usize }
    }

    fn wants(&self, kind: Kind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }
}

/// In the order of the walk, which ends as soon as the page is full.
fn by_path(
    arguments: &Arguments,
    starts: &[PathBuf],
    limit: usize,
    cursor: Option<Cursor>,
) -> Result<Answer, Failure> {
    let mut page = Page::default();
    let first =
        cursor.as_ref().map_or(0, |cursor| usize::try_from(cursor.rank).unwrap_or(usize::MAX));
    let mut after = cursor.map(|cursor| PathBuf::from(cursor.path));
    for (place, start) in starts.iter().enumerate().skip(first) {
        let filter = arguments.filter(start)?;
        let mut walk = Walk::new(start, &filter, arguments.depth(), after.take().as_deref())?;
        for step in &mut walk {
            let Some((found, metadata)) = page.look(step, arguments) else { continue };
            let entry = Entry::new(&found.path, found.kind, &metadata);
            if page.answer.entries.len() >= limit || page.size + entry.weight() > MAX_ANSWER {
                page.answer.next =
                    page.answer.entries.last().map(|last| format!("{place}:{}", last.path));
                break;
            }
            page.size += entry.weight();
            page.answer.entries.push(entry);
        }
        page.answer.left_out.add(walk.left_out());
        if page.answer.next.is_some() {
            break;
        }
    }
    Ok(page.answer)
}

/// In the order of size or time: the whole tree is walked, and the first entries behind the cursor are kept.
fn by_weight(
    arguments: &Arguments,
    starts: &[PathBuf],
    limit: usize,
    cursor: Option<&Cursor>,
) -> Result<Answer, Failure> {
    let mut page = Page::default();
    let mut best: BinaryHeap<Ranked> = BinaryHeap::new();
    let mut more = false;
    for start in starts {
        let filter = arguments.filter(start)?;
        let mut walk = Walk::new(start, &filter, arguments.depth(), None)?;
        for step in &mut walk {
            let Some((found, metadata)) = page.look(step, arguments) else { continue };
            let rank = match arguments.sort {
                Sort::Modified => metadata.modified().map_or(0, nanoseconds),
                Sort::Size | Sort::Path if found.kind == Kind::File => u128::from(metadata.len()),
                Sort::Size | Sort::Path => 0,
            };
            let ranked =
                Ranked { rank: Reverse(rank), path: paths::show(&found.path), kind: found.kind };
            if cursor.is_some_and(|cursor| {
                ranked.place() <= (Reverse(cursor.rank), cursor.path.as_str())
            }) {
                continue;
            }
            best.push(ranked);
            if best.len() > limit {
                best.pop();
                more = true;
            }
        }
        page.answer.left_out.add(walk.left_out());
    }
    let mut last = None;
    for ranked in best.into_sorted_vec() {
        let path = PathBuf::from(&ranked.path);
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            // It was there a moment ago.
            Err(error) => {
                page.trouble(Trouble::new(&path, paths::reason_at(&path, &error)));
                continue;
            }
        };
        let entry = Entry::new(&path, ranked.kind, &metadata);
        if page.size + entry.weight() > MAX_ANSWER {
            more = true;
            break;
        }
        page.size += entry.weight();
        page.answer.entries.push(entry);
        last = Some(ranked);
    }
    page.answer.next = last.filter(|_| more).map(|last| format!("{}:{}", last.rank.0, last.path));
    Ok(page.answer)
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// An entry on its way into a page that is sorted by size or time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ranked {
    rank: Reverse<u128>,
    path: String,
    kind: Kind,
}

impl Ranked {
    fn place(&self) -> (Reverse<u128>, &str) {
        (self.rank, &self.path)
    }
}

/// Where a page ended.
#[derive(Debug)]
struct Cursor {
    /// The size or time of the last entry; in the order of paths, which of the starts it belongs to.
    rank: u128,
    path: String,
}

impl Cursor {
    fn parse(text: &str) -> Result<Cursor, Failure> {
        let wrong = || {
            Failure::invalid(format!("`cursor` is `{text}`, which is not a `next` of this tool"))
        };
        let (rank, path) = text.split_once(':').ok_or_else(wrong)?;
        Ok(Cursor { rank: rank.parse().map_err(|_| wrong())?, path: path.to_owned() })
    }
}

/// An answer in the making.
#[derive(Debug, Default)]
struct Page {
    answer: Answer,
    size: usize,
}

impl Page {
    /// The entry of a step with what the system says about it, when the entry is wanted.
    fn look(&mut self, step: Step, arguments: &Arguments) -> Option<(Found, Metadata)> {
        let found = match step {
            Step::Found(found) => found,
            Step::Failed(trouble) => {
                self.trouble(trouble);
                return None;
            }
        };
        if !arguments.wants(found.kind) {
            return None;
        }
        match fs::symlink_metadata(&found.path) {
            Ok(metadata) => Some((found, metadata)),
            Err(error) => {
                self.trouble(Trouble::new(&found.path, paths::reason_at(&found.path, &error)));
                None
            }
        }
    }

    fn trouble(&mut self, trouble: Trouble) {
        if self.answer.errors.len() < MAX_ERRORS {
            self.answer.errors.push(trouble);
        } else {
            self.answer.more_errors += 1;
        }
    }
}

impl Answer {
    fn of_roots(roots: &[PathBuf]) -> Answer {
        let entry = |root: &PathBuf| Entry {
            path: paths::show(root),
            kind: Kind::Dir,
            size: None,
            modified: None,
            target: None,
        };
        Answer { entries: roots.iter().map(entry).collect(), ..Answer::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::Duration;

    fn tree(files: &[(&str, usize)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (place, (name, size)) in files.iter().enumerate() {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(&path, vec![b'x'; *size]).expect("written");
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + place as u64);
            File::options()
                .write(true)
                .open(&path)
                .expect("opened")
                .set_modified(time)
                .expect("dated");
        }
        directory
    }

    fn arguments(path: &Path, rest: Value) -> Arguments {
        let mut value = rest;
        value["path"] = json!(path);
        serde_json::from_value(value).expect("arguments")
    }

    fn names(directory: &Path, answer: &Answer) -> Vec<String> {
        let prefix = format!("{}/", directory.display());
        answer
            .entries
            .iter()
            .map(|entry| entry.path.trim_start_matches(&prefix).to_owned())
            .collect()
    }

    fn all_pages(directory: &Path, mut rest: Value) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..100 {
            let answer = list(&arguments(directory, rest.clone())).expect("listed");
            all.extend(names(directory, &answer));
            match answer.next {
                Some(next) => rest["cursor"] = json!(next),
                None => return all,
            }
        }
        panic!("the pages have no end");
    }

    #[test]
    fn an_entry_says_what_it_is() {
        let directory = tree(&[("a.txt", 5), ("sub/b", 0)]);
        let answer = list(&arguments(directory.path(), json!({}))).expect("listed");
        assert_eq!(names(directory.path(), &answer), ["a.txt", "sub"]);
        assert_eq!(answer.entries[0].size, Some(5));
        assert_eq!(answer.entries[0].modified.as_deref(), Some("1970-01-12T13:46:40Z"));
        assert_eq!((answer.entries[1].kind, answer.entries[1].size), (Kind::Dir, None));
    }

    #[test]
    fn pages_of_every_size_give_the_same_entries() {
        let directory =
            tree(&[("a/1", 3), ("a/2", 9), ("b", 9), ("c/d/e", 1), ("f", 0), ("a.x", 7)]);
        for sort in ["path", "size", "modified"] {
            let whole = all_pages(directory.path(), json!({"depth": 0, "sort": sort}));
            assert_eq!(whole.len(), 9);
            for limit in 1..10 {
                let paged =
                    all_pages(directory.path(), json!({"depth": 0, "sort": sort, "limit": limit}));
                assert_eq!(paged, whole, "{sort} by {limit}");
            }
        }
    }

    #[test]
    fn the_largest_and_the_newest_come_first() {
        let directory = tree(&[("a", 3), ("b", 9), ("c", 1)]);
        let sorted = |sort| {
            all_pages(directory.path(), json!({"depth": 0, "kinds": ["file"], "sort": sort}))
        };
        assert_eq!(sorted("size"), ["b", "a", "c"]);
        assert_eq!(sorted("modified"), ["c", "b", "a"]);
    }

    #[test]
    fn filters_work_together_and_what_they_hide_is_counted() {
        let directory =
            tree(&[("a.rs", 1), ("b.txt", 1), (".env", 1), ("gen/c.rs", 1), ("src/d.rs", 1)]);
        let answer = list(&arguments(
            directory.path(),
            json!({"depth": 0, "include": ["*.rs"], "exclude": ["gen/"], "kinds": ["file"]}),
        ))
        .expect("listed");
        assert_eq!(names(directory.path(), &answer), ["a.rs", "src/d.rs"]);
        assert_eq!(answer.left_out, LeftOut { hidden: 1, ignored: 0, excluded: 1 });
    }

    #[test]
    fn a_file_is_listed_as_itself() {
        let directory = tree(&[("a.txt", 5)]);
        let answer = list(&arguments(&directory.path().join("a.txt"), json!({}))).expect("listed");
        assert_eq!(names(directory.path(), &answer), ["a.txt"]);
    }

    #[test]
    fn a_missing_directory_is_not_found_and_the_nearest_is_named() {
        let directory = tree(&[]);
        let failure =
            list(&arguments(&directory.path().join("x/y"), json!({}))).expect_err("missing");
        assert_eq!(failure.code, Failure::NOT_FOUND);
        assert!(
            failure.message.ends_with(&format!("that exists is {})", directory.path().display())),
            "{failure}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_name_their_target_and_special_files_are_other() {
        let directory = tree(&[("a", 1)]);
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("out")).expect("a link");
        let _socket =
            std::os::unix::net::UnixListener::bind(directory.path().join("s")).expect("a socket");
        let answer = list(&arguments(directory.path(), json!({}))).expect("listed");
        assert_eq!(answer.entries[1].target.as_deref(), Some("/etc/passwd"));
        assert_eq!(answer.entries[1].size, None);
        assert_eq!(answer.entries[2].kind, Kind::Other);
    }

    #[test]
    fn wrong_arguments_are_told() {
        let parse = |value: Value| {
            serde_json::from_value::<Arguments>(value).expect_err("wrong").to_string()
        };
        assert!(parse(json!({"pth": "x"})).contains("unknown field `pth`"));
        assert!(parse(json!({"sort": "colour"})).contains("unknown variant `colour`"));
        let directory = tree(&[]);
        for wrong in
            [json!({"limit": 0}), json!({"limit": 10_001}), json!({"sort": "size", "cursor": "x"})]
        {
            let failure = list(&arguments(directory.path(), wrong)).expect_err("wrong");
            assert_eq!(failure.code, Failure::INVALID);
        }
        let foreign = json!({"cursor": "0:/somewhere/else"});
        assert_eq!(
            list(&arguments(directory.path(), foreign)).expect_err("foreign").code,
            Failure::INVALID
        );
    }
}
