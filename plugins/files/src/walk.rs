//! A walk through a directory tree, in the order of paths, that can be taken up again where it stopped.
//!
//! Entries of one directory come sorted by name, and what is in a directory comes right after it. So the path of
//! the last entry is enough to go on from, even when files have come and gone meanwhile. The walk keeps its place on
//! a stack of its own, because a guest's stack is small and trees can be deep. It never follows symbolic links.

use std::collections::{BinaryHeap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use checkrein_guest::prelude::*;
use checkrein_reading::{Kind, entries, paths};

use crate::filter::{Filter, Rules, Verdict};

/// Entries of one directory held at one time. A larger directory is read again for each further batch.
const BATCH: usize = 20_000;
/// Entries of one directory that may fail before it counts as broken.
const MAX_UNLISTED: usize = 1_000;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The whole path.
    pub(crate) path: PathBuf,
    /// What it is.
    pub(crate) kind: Kind,
}

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum Step {
    /// An entry that passed the filter.
    Found(Found),
    /// Something that could not be looked at, and why.
    Failed(Trouble),
}

/// A path that could not be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Trouble {
    /// The path.
    pub(crate) path: String,
    /// Why.
    pub(crate) error: String,
}

impl Trouble {
    /// That path, that reason.
    pub(crate) fn new(path: &Path, error: impl Into<String>) -> Trouble {
        Trouble { path: paths::show(path), error: error.into() }
    }
}

/// Entries that were not shown, by reason. What is below a directory that was left out is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    /// Names that start with a dot.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) hidden: u64,
    /// Named by ignore files.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) ignored: u64,
    /// Named by `exclude`.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) excluded: u64,
}

impl LeftOut {
    /// Whether nothing was left out.
    pub(crate) fn is_nothing(&self) -> bool {
        *self == LeftOut::default()
    }

    /// Counts those of another walk too.
    pub(crate) fn add(&mut self, other: LeftOut) {
        self.hidden += other.hidden;
        self.ignored += other.ignored;
        self.excluded += other.excluded;
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The walk.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    start: PathBuf,
    filter: &'a Filter,
    depth: usize,
    stack: Vec<Frame>,
    ready: VecDeque<Step>,
    left_out: LeftOut,
}

/// A directory on the way down.
#[derive(Debug)]
struct Frame {
    directory: PathBuf,
    entries: std::vec::IntoIter<(OsString, Kind)>,
    /// The directory has more entries than fit into a batch, after this name.
    more_after: Option<OsString>,
    rules: Option<Rc<Rules>>,
    /// The way back to where an earlier walk stopped: names below this directory, nearest first.
    resume: VecDeque<OsString>,
}

impl<'a> Walk<'a> {
    /// A walk over what is below `start`, at most `depth` levels down; `start` itself when it is a file. With
    /// `after`, the path of an entry, it goes on behind that entry.
    pub(crate) fn new(
        start: &Path,
        filter: &'a Filter,
        depth: usize,
        after: Option<&Path>,
    ) -> Result<Walk<'a>, Failure> {
        let kind = fs::metadata(start)
            .map_err(|error| paths::failure("look at", start, &error))?
            .file_type();
        let mut walk = Walk {
            start: start.to_owned(),
            filter,
            depth,
            stack: Vec::new(),
            ready: VecDeque::new(),
            left_out: LeftOut::default(),
        };
        if !kind.is_dir() {
            if after.is_none() {
                walk.ready
                    .push_back(Step::Found(Found { path: start.to_owned(), kind: kind.into() }));
            }
            return Ok(walk);
        }
        let resume = match after.map(|after| after.strip_prefix(start)) {
            None => VecDeque::new(),
            Some(Ok(below)) => below.iter().map(OsStr::to_owned).collect(),
            Some(Err(_)) => return Err(Failure::invalid("the cursor belongs to another path")),
        };
        let rules = filter.rules_above(start);
        walk.enter(start.to_owned(), rules, resume);
        Ok(walk)
    }

    /// What was not shown so far.
    pub(crate) fn left_out(&self) -> LeftOut {
        self.left_out
    }

    fn enter(&mut self, directory: PathBuf, above: Option<Rc<Rules>>, resume: VecDeque<OsString>) {
        let from = resume.front().map(|name| Since::Name(name.clone()));
        let listing = self.list(&directory, from.as_ref().unwrap_or(&Since::Start));
        let Some(listing) = listing else { return };
        let rules = if listing.has_rules || listing.is_repository {
            self.filter.rules(&directory, above, listing.is_repository)
        } else {
            above
        };
        self.stack.push(Frame {
            directory,
            entries: listing.entries.into_iter(),
            more_after: listing.more_after,
            rules,
            resume,
        });
    }

    fn list(&mut self, directory: &Path, from: &Since) -> Option<Listing> {
        match Listing::read(directory, from, BATCH) {
            Ok(listing) => {
                let troubles = listing.troubles.iter().map(|trouble| Step::Failed(trouble.clone()));
                self.ready.extend(troubles);
                Some(listing)
            }
            Err(error) => {
                self.ready.push_back(Step::Failed(Trouble::new(directory, paths::reason(&error))));
                None
            }
        }
    }

    fn entry(&mut self, name: &OsStr, kind: Kind) {
        let Some(frame) = self.stack.last_mut() else { return };
        let path = frame.directory.join(name);
        let resume = std::mem::take(&mut frame.resume);
        let (seen, below) = match resume.front() {
            Some(first) if first == name => (true, resume.into_iter().skip(1).collect()),
            _ => (false, VecDeque::new()),
        };
        let Some(text) = name.to_str() else {
            let step = Step::Failed(Trouble::new(
                &path,
                "its name is not UTF-8, so it cannot be named here",
            ));
            self.ready.push_back(step);
            return;
        };
        let rules = frame.rules.clone();
        let depth = self.stack.len();
        let relative = path.strip_prefix(&self.start).unwrap_or(&path).to_string_lossy();
        let verdict = self.filter.verdict(rules.as_deref(), &path, &relative, text, kind);
        match verdict {
            Verdict::Keep | Verdict::Pass => {}
            Verdict::Hidden => self.left_out.hidden += 1,
            Verdict::Ignored => self.left_out.ignored += 1,
            Verdict::Excluded => self.left_out.excluded += 1,
        }
        if verdict == Verdict::Keep && !seen {
            self.ready.push_back(Step::Found(Found { path: path.clone(), kind }));
        }
        if matches!(verdict, Verdict::Keep | Verdict::Pass)
            && kind == Kind::Dir
            && depth < self.depth
        {
            self.enter(path, rules, below);
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            let frame = self.stack.last_mut()?;
            if let Some((name, kind)) = frame.entries.next() {
                self.entry(&name, kind);
            } else if let Some(last) = frame.more_after.take() {
                let directory = frame.directory.clone();
                let listing = self.list(&directory, &Since::After(last));
                if let (Some(listing), Some(frame)) = (listing, self.stack.last_mut()) {
                    frame.entries = listing.entries.into_iter();
                    frame.more_after = listing.more_after;
                }
            } else {
                self.stack.pop();
            }
        }
    }
}

/// Where a listing starts.
#[derive(Debug)]
enum Since {
    Start,
    Name(OsString),
    After(OsString),
}

impl Since {
    fn admits(&self, name: &OsStr) -> bool {
        match self {
            Since::Start => true,
            Since::Name(first) => name >= first.as_os_str(),
            Since::After(last) => name > last.as_os_str(),
        }
    }
}

/// A batch of the entries of one directory, sorted by name.
#[derive(Debug)]
struct Listing {
    entries: Vec<(OsString, Kind)>,
    more_after: Option<OsString>,
    has_rules: bool,
    is_repository: bool,
    troubles: Vec<Trouble>,
}

impl Listing {
    fn read(directory: &Path, from: &Since, batch: usize) -> io::Result<Listing> {
        let mut listing = Listing {
            entries: Vec::new(),
            more_after: None,
            has_rules: false,
            is_repository: false,
            troubles: Vec::new(),
        };
        // The largest name is on top, so that the smallest ones stay.
        let mut heap = BinaryHeap::new();
        let mut more = false;
        let (mut unlisted, mut unlistable) = (0, None);
        for entry in entries(directory)? {
            let (name, kind) = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    // Some cannot be named here, which is no reason not to list the others; but a listing that
                    // is broken may fail for ever.
                    unlisted += 1;
                    unlistable = Some(error);
                    if unlisted > MAX_UNLISTED {
                        break;
                    }
                    continue;
                }
            };
            listing.has_rules |= name == ".gitignore";
            listing.is_repository |= name == ".git";
            if !from.admits(&name) {
                continue;
            }
            heap.push((name, kind));
            if heap.len() > batch {
                heap.pop();
                more = true;
            }
        }
        if let Some(error) = unlistable {
            let why = paths::reason(&error);
            let reason =
                format!("{unlisted} of its entries cannot be listed, the last one because: {why}");
            listing.troubles.push(Trouble::new(directory, reason));
        }
        listing.entries = heap.into_sorted_vec();
        listing.more_after = listing.entries.last().filter(|_| more).map(|(name, _)| name.clone());
        Ok(listing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Hidden, Ignored};

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[&str]) -> Tree {
            let tree = Tree(tempfile::tempdir().expect("a directory"));
            for file in files {
                tree.write(file, "");
            }
            tree
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, text).expect("written");
        }

        fn names(&self, steps: Walk<'_>) -> Vec<String> {
            let name =
                |path: &Path| path.strip_prefix(self.path()).expect("below").display().to_string();
            steps
                .map(|step| match step {
                    Step::Found(found) => name(&found.path),
                    Step::Failed(trouble) => format!("! {}", trouble.error),
                })
                .collect()
        }

        fn walk(&self, hidden: Hidden, ignored: Ignored) -> Vec<String> {
            let filter = Filter::new(self.path(), &[], &[], hidden, ignored).expect("a filter");
            self.names(Walk::new(self.path(), &filter, usize::MAX, None).expect("a walk"))
        }
    }

    #[test]
    fn a_walk_is_sorted_and_taken_up_after_any_entry() {
        let tree = Tree::new(&["a/b/c", "a/b.txt", "a.txt", "a-x", "z/1", "z/2", "m"]);
        let all = tree.walk(Hidden::Show, Ignored::Show);
        assert_eq!(all, ["a", "a/b", "a/b/c", "a/b.txt", "a-x", "a.txt", "m", "z", "z/1", "z/2"]);
        let filter =
            Filter::new(tree.path(), &[], &[], Hidden::Show, Ignored::Show).expect("a filter");
        for (place, entry) in all.iter().enumerate() {
            let after = tree.path().join(entry);
            let walk = Walk::new(tree.path(), &filter, usize::MAX, Some(&after)).expect("a walk");
            assert_eq!(tree.names(walk), all[place + 1..], "after {entry}");
        }
    }

    #[test]
    fn a_walk_goes_on_behind_an_entry_that_has_gone() {
        let tree = Tree::new(&["a/1", "a/3", "b"]);
        let filter =
            Filter::new(tree.path(), &[], &[], Hidden::Show, Ignored::Show).expect("a filter");
        let rest = |after: &str| {
            let after = tree.path().join(after);
            tree.names(Walk::new(tree.path(), &filter, usize::MAX, Some(&after)).expect("a walk"))
        };
        assert_eq!(rest("a/2"), ["a/3", "b"]);
        assert_eq!(rest("a/0/x/y"), ["a/1", "a/3", "b"]);
        assert_eq!(rest("aa"), ["b"]);
        assert_eq!(rest("c"), [""; 0]);
    }

    #[test]
    fn depth_ends_the_descent() {
        let tree = Tree::new(&["a/b/c", "d"]);
        let filter =
            Filter::new(tree.path(), &[], &[], Hidden::Show, Ignored::Show).expect("a filter");
        let walk =
            |depth| tree.names(Walk::new(tree.path(), &filter, depth, None).expect("a walk"));
        assert_eq!(walk(1), ["a", "d"]);
        assert_eq!(walk(2), ["a", "a/b", "d"]);
    }

    #[test]
    fn ignore_files_work_as_in_git() {
        let tree = Tree::new(&[
            "keep.log",
            "x.log",
            "sub/y.log",
            "sub/z.tmp",
            "build/out",
            "deep/build/out",
        ]);
        tree.write(".gitignore", "*.log\n!keep.log\n/build/\n# a comment\n");
        tree.write("sub/.gitignore", "!y.log\n*.tmp\n");
        tree.write(".git/config", "");
        tree.write(".git/info/exclude", "deep\n");
        assert_eq!(tree.walk(Hidden::Skip, Ignored::Skip), ["keep.log", "sub", "sub/y.log"],);
        let filter =
            Filter::new(tree.path(), &[], &[], Hidden::Skip, Ignored::Skip).expect("a filter");
        let mut walk = Walk::new(tree.path(), &filter, usize::MAX, None).expect("a walk");
        while walk.next().is_some() {}
        // .git and both ignore files are hidden; x.log, z.tmp, build and deep are ignored.
        assert_eq!(walk.left_out(), LeftOut { hidden: 3, ignored: 4, excluded: 0 });
    }

    #[test]
    fn rules_above_the_start_hold_only_within_a_repository() {
        let tree = Tree::new(&["sub/x.log", "sub/y"]);
        tree.write(".gitignore", "*.log\n");
        let start = tree.path().join("sub");
        let walk = || {
            let filter =
                Filter::new(&start, &[], &[], Hidden::Skip, Ignored::Skip).expect("a filter");
            tree.names(Walk::new(&start, &filter, usize::MAX, None).expect("a walk"))
        };
        assert_eq!(walk(), ["sub/x.log", "sub/y"]);
        tree.write(".git/config", "");
        assert_eq!(walk(), ["sub/y"]);
    }

    #[test]
    fn a_large_directory_comes_in_batches_without_gaps() {
        let tree = Tree::new(&[]);
        for number in 0..50 {
            tree.write(&format!("{number:02}"), "");
        }
        let (mut from, mut names) = (Since::Start, Vec::new());
        loop {
            let listing = Listing::read(tree.path(), &from, 7).expect("listed");
            names.extend(
                listing.entries.into_iter().map(|(name, _)| name.to_string_lossy().into_owned()),
            );
            match listing.more_after {
                Some(last) => from = Since::After(last),
                None => break,
            }
        }
        assert_eq!(names, (0..50).map(|number| format!("{number:02}")).collect::<Vec<_>>());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_shown_and_never_entered() {
        let tree = Tree::new(&["a/file"]);
        std::os::unix::fs::symlink("..", tree.path().join("a/up")).expect("a link");
        std::os::unix::fs::symlink("nowhere", tree.path().join("broken")).expect("a link");
        assert_eq!(tree.walk(Hidden::Show, Ignored::Skip), ["a", "a/file", "a/up", "broken"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_is_not_utf8_is_said_and_the_rest_is_listed() {
        use std::os::unix::ffi::OsStrExt as _;
        let tree = Tree::new(&["a", "z"]);
        fs::write(tree.path().join(OsStr::from_bytes(b"m\xff")), "").expect("written");
        let walk = tree.walk(Hidden::Show, Ignored::Skip);
        assert_eq!(walk, ["a", "! its name is not UTF-8, so it cannot be named here", "z"]);
    }

    #[test]
    fn a_very_deep_tree_does_not_exhaust_the_stack() {
        let tree = Tree::new(&[]);
        let mut path = tree.path().to_owned();
        for _ in 0..1_000 {
            path.push("d");
        }
        if fs::create_dir_all(&path).is_ok() {
            assert_eq!(tree.walk(Hidden::Show, Ignored::Skip).len(), 1_000);
        }
    }
}
