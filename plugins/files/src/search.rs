//! The tool `search`: lines that match a regular expression.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use checkrein_guest::prelude::*;
use checkrein_reading::{Kind, MOST_READ, Regular, Unreadable, json_len, paths};
use regex::bytes::{Regex, RegexBuilder};

use crate::filter::{Filter, Hidden, Ignored};
use crate::matching::{Hits, Line, Outcome, Searcher, Wanted};
use crate::walk::{Found, LeftOut, Step, Trouble, Walk, is_zero};

/// An answer stays below this many bytes.
const MAX_ANSWER: usize = 600 << 10;
/// With less room than this left, no other file is begun: one match with its context must fit.
const MIN_ROOM: usize = 32 << 10;
/// That many problems are told one by one.
const MAX_ERRORS: usize = 50;
/// That many paths are in one call at most.
const MAX_PATHS: usize = 10_000;
/// What a compiled expression may take, in bytes.
const MAX_REGEX: usize = 4 << 20;

/// What to search for, and where.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// A regular expression in the syntax of Rust's `regex` (like Perl's, without look-around and backreferences).
    /// It is matched with one line at a time; `^` and `$` are the ends of the line.
    pattern: String,
    /// Take `pattern` as plain text.
    #[serde(default)]
    literal: bool,
    /// Let capital and small letters match each other.
    #[serde(default)]
    ignore_case: bool,
    /// The directory or file to search. Left out or `/`: all directories that you were granted.
    #[serde(default)]
    path: String,
    /// In place of `path`: exactly these files and directories, in this order, up to 10000. Globs and ignore files
    /// do not apply to files that are named here.
    #[serde(default)]
    paths: Vec<String>,
    /// Only files that match one of these globs. A pattern without a slash goes with the name (`*.rs`), one with a
    /// slash with the path below `path` (`src/**/*.rs`), one that ends in a slash means a directory and all below.
    #[serde(default)]
    include: Vec<String>,
    /// Leave out files and directories that match one of these globs.
    #[serde(default)]
    exclude: Vec<String>,
    /// Also search files and directories whose names start with a dot.
    #[serde(default)]
    hidden: bool,
    /// Leave out what `.gitignore` files name, and the folder `.git`.
    #[serde(default = "yes")]
    gitignore: bool,
    /// How many lines to show before and after each match, up to 20.
    #[serde(default)]
    context: u32,
    /// What to show: `lines` that match; only `files` that have a match; `counts` of matching lines for each file.
    #[serde(default)]
    show: Show,
    /// How many matching lines at most in this answer (files, when `show` is `files` or `counts`), up to 5000.
    #[serde(default = "max_matches")]
    max_matches: u32,
    /// How many matching lines at most of one file, up to 5000.
    #[serde(default = "max_per_file")]
    max_matches_per_file: u32,
    /// After how many seconds to answer with what there is, up to 300.
    #[serde(default = "max_seconds")]
    max_seconds: u32,
    /// `next` of the last answer, to go on behind it. All other arguments must be the same.
    #[serde(default)]
    cursor: Option<String>,
}

fn yes() -> bool {
    true
}

fn max_matches() -> u32 {
    200
}

fn max_per_file() -> u32 {
    50
}

fn max_seconds() -> u32 {
    20
}

/// What to show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Show {
    /// Lines that match.
    #[default]
    Lines,
    /// Files that have a match.
    Files,
    /// How many lines of each file match.
    Counts,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    /// The files with matches, in the order of the search.
    files: Vec<FileHits>,
    /// How many files were searched for this answer.
    searched: u64,
    /// How many bytes that were.
    bytes: u64,
    /// How many files were left alone because they are not text.
    #[serde(skip_serializing_if = "is_zero")]
    binary: u64,
    /// There may be more: call again with this as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Why it stopped before the end: `max_matches`, `size` of the answer, `time`, or the `bytes` that one call reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_by: Option<&'static str>,
    /// How many entries the walk did not look at, by reason.
    #[serde(skip_serializing_if = "LeftOut::is_nothing")]
    left_out: LeftOut,
    /// What could not be searched; all else is complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Trouble>,
    /// Further problems, only counted.
    #[serde(skip_serializing_if = "is_zero")]
    more_errors: u64,
}

/// The matches of one file.
#[derive(Debug, Serialize)]
struct FileHits {
    /// The file.
    path: String,
    /// How many lines match, when counts were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// The lines that match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lines: Vec<Line>,
    /// The file has more matches than `max_matches_per_file`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

/// Searches files.
#[derive(Debug)]
pub struct Search;

impl Tool for Search {
    const NAME: &str = "search";
    const DESCRIPTION: &str = "Searches files for lines that match a regular expression and answers with JSON: for \
        each file its path and the matching lines with their numbers. Takes a directory with globs, or an explicit \
        list of paths so that a large search can be split. Binary files are skipped and counted; hidden files and \
        those ignored by git are skipped unless asked for. Stops at a number of matches or after some seconds, and \
        `next` goes on from there.";
    const HINTS: &[Hint] = &[Hint::ReadOnly, Hint::Idempotent];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
        Output::json(&search(&arguments)?)
    }
}

impl Arguments {
    fn check(&self) -> Result<(), Failure> {
        let within = |name: &str, value: u32, range: std::ops::RangeInclusive<u32>| {
            if range.contains(&value) {
                return Ok(());
            }
            let (from, to) = (range.start(), range.end());
            Err(Failure::invalid(format!("`{name}` is {value}; it must be from {from} to {to}")))
        };
        within("context", self.context, 0..=20)?;
        within("max_matches", self.max_matches, 1..=5_000)?;
        within("max_matches_per_file", self.max_matches_per_file, 1..=5_000)?;
        within("max_seconds", self.max_seconds, 1..=300)?;
        if !self.paths.is_empty() && !self.path.is_empty() {
            return Err(Failure::invalid("`path` and `paths` cannot be given together"));
        }
        if self.paths.len() > MAX_PATHS {
            let count = self.paths.len();
            return Err(Failure::too_large(format!(
                "`paths` has {count} entries; split it: {MAX_PATHS} are allowed"
            )));
        }
        Ok(())
    }

    fn regex(&self) -> Result<Regex, Failure> {
        if self.pattern.is_empty() {
            return Err(Failure::invalid("`pattern` is empty"));
        }
        let pattern =
            if self.literal { regex::escape(&self.pattern) } else { self.pattern.clone() };
        RegexBuilder::new(&pattern)
            .case_insensitive(self.ignore_case)
            .multi_line(true)
            .crlf(true)
            .size_limit(MAX_REGEX)
            .dfa_size_limit(MAX_REGEX)
            .build()
            .map_err(|error| {
                let hint =
                    if self.literal { "" } else { " (set `literal` to search for plain text)" };
                Failure::invalid(format!("`pattern` is not a regular expression{hint}: {error}"))
            })
    }

    fn filter(&self, start: &Path) -> Result<Filter, Failure> {
        let hidden = if self.hidden { Hidden::Show } else { Hidden::Skip };
        let ignored = if self.gitignore { Ignored::Skip } else { Ignored::Show };
        Filter::new(start, &self.include, &self.exclude, hidden, ignored)
    }
}

pub(crate) fn search(arguments: &Arguments) -> Result<Answer, Failure> {
    search_up_to(MOST_READ, arguments)
}

/// The same, reading so many bytes at most.
fn search_up_to(most: u64, arguments: &Arguments) -> Result<Answer, Failure> {
    arguments.check()?;
    let regex = arguments.regex()?;
    let cursor = arguments.cursor.as_deref().map(Cursor::parse).transpose()?.unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(u64::from(arguments.max_seconds));
    let mut searching = Searching {
        arguments,
        searcher: Searcher::new(&regex, deadline, most),
        deadline,
        place: 0,
        matches: 0,
        size: 0,
        answer: Answer::default(),
    };
    if arguments.paths.is_empty() {
        let starts = paths::resolve(&arguments.path)?.starts();
        // One path that is wrong is an error; among several it is a problem of that one.
        let single = starts.len() == 1;
        for (place, start) in starts.iter().enumerate().skip(cursor.place) {
            match searching.start(place, start, cursor.within(place)) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(failure) if single => return Err(failure),
                Err(failure) => searching.trouble(Trouble::new(start, failure.message)),
            }
        }
    } else {
        for (place, given) in arguments.paths.iter().enumerate().skip(cursor.place) {
            let start = paths::resolve(given).and_then(|at| at.path(given));
            match start.and_then(|start| searching.start(place, &start, cursor.within(place))) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(failure) => {
                    searching.trouble(Trouble { path: given.clone(), error: failure.message })
                }
            }
        }
    }
    Ok(searching.answer)
}

/// A search under way.
struct Searching<'a> {
    arguments: &'a Arguments,
    searcher: Searcher<'a>,
    deadline: Instant,
    /// Which of the starts is searched.
    place: usize,
    matches: usize,
    size: usize,
    answer: Answer,
}

impl Searching<'_> {
    fn start(
        &mut self,
        place: usize,
        start: &Path,
        cursor: Option<&Cursor>,
    ) -> Result<ControlFlow<()>, Failure> {
        self.place = place;
        let filter = self.arguments.filter(start)?;
        // The last answer may have ended within this file.
        if let Some((path, line)) = cursor.and_then(|cursor| Some((&cursor.path, cursor.line?))) {
            let flow = match Regular::open(path) {
                Ok((mut file, _)) => self.file(path, &mut file, line),
                Err(why) => self.unreadable(path, &why),
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        let mut walk =
            Walk::new(start, &filter, usize::MAX, cursor.map(|cursor| cursor.path.as_path()))?;
        let mut flow = ControlFlow::Continue(());
        for step in walk.by_ref() {
            match step {
                Step::Failed(trouble) => self.trouble(trouble),
                Step::Found(Found { path, kind: Kind::File }) => {
                    flow = match Regular::found(&path) {
                        Ok(mut file) => self.file(&path, &mut file, 0),
                        Err(why) => self.unreadable(&path, &why),
                    };
                }
                // Asked for by name, unlike what a walk happens to meet.
                Step::Found(found) if found.path == start => {
                    flow = self.unreadable(start, &Unreadable::Special)
                }
                Step::Found(_) => {}
            }
            if flow.is_break() {
                break;
            }
        }
        self.answer.left_out.add(walk.left_out());
        Ok(flow)
    }

    /// Searches one file behind a line.
    fn file(&mut self, path: &Path, file: &mut Regular, behind: u64) -> ControlFlow<()> {
        let room = self.arguments.max_matches as usize - self.matches;
        let wanted = match self.arguments.show {
            Show::Lines => Wanted::Lines {
                at_most: room.min(self.arguments.max_matches_per_file as usize),
                context: self.arguments.context as usize,
                weight: MAX_ANSWER - self.size,
            },
            Show::Files => Wanted::Any,
            Show::Counts => Wanted::Count,
        };
        let hits = match self.searcher.search(file, wanted, behind) {
            Ok(hits) => hits,
            Err(error) => return self.unreadable(path, &Unreadable::from(error)),
        };
        let first = self.answer.bytes == 0;
        self.answer.bytes += hits.bytes;
        if hits.outcome == Outcome::Full && !first {
            // The next call has room for all of it.
            return self.stop("bytes", path, Some(behind));
        }
        match hits.outcome {
            Outcome::Binary => self.answer.binary += 1,
            Outcome::Whole | Outcome::Enough | Outcome::Heavy | Outcome::Late => {
                self.answer.searched += 1
            }
            Outcome::Full => {
                self.answer.searched += 1;
                let why = format!(
                    "so large that one call cannot read all of it: not searched behind line {}",
                    hits.last_line
                );
                self.trouble(Trouble::new(path, why));
            }
            Outcome::TurnedBinary => {
                self.answer.searched += 1;
                let why =
                    format!("binary data behind line {}: not searched further", hits.last_line);
                self.trouble(Trouble::new(path, why));
            }
        }
        let (outcome, last) = (hits.outcome, hits.last_line.max(behind));
        if hits.count > 0 {
            self.take(path, hits);
        }
        if self.matches >= self.arguments.max_matches as usize {
            let line = (self.arguments.show == Show::Lines).then_some(last);
            return self.stop("max_matches", path, line);
        }
        if outcome == Outcome::Heavy || self.size + MIN_ROOM > MAX_ANSWER {
            return self.stop("size", path, (outcome == Outcome::Heavy).then_some(last));
        }
        if outcome == Outcome::Late {
            return self.stop("time", path, Some(last));
        }
        if outcome == Outcome::Full {
            return self.stop("bytes", path, None);
        }
        self.in_time(path)
    }

    fn take(&mut self, path: &Path, hits: Hits) {
        let lines = self.arguments.show == Show::Lines;
        let file = FileHits {
            path: paths::show(path),
            count: (self.arguments.show == Show::Counts).then_some(hits.count),
            // Where the answer is full, the next one goes on in this file.
            more: lines
                && hits.outcome == Outcome::Enough
                && hits.lines.len() >= self.arguments.max_matches_per_file as usize,
            lines: hits.lines,
        };
        self.matches += if lines { file.lines.len() } else { 1 };
        self.size += json_len(&file.path) + 40 + file.lines.iter().map(Line::weight).sum::<usize>();
        self.answer.files.push(file);
    }

    fn unreadable(&mut self, path: &Path, why: &Unreadable) -> ControlFlow<()> {
        self.trouble(Trouble::new(path, why.reason()));
        self.in_time(path)
    }

    fn in_time(&mut self, path: &Path) -> ControlFlow<()> {
        if Instant::now() < self.deadline {
            ControlFlow::Continue(())
        } else {
            self.stop("time", path, None)
        }
    }

    /// Ends the search behind a line of this file, or behind the file.
    fn stop(&mut self, why: &'static str, path: &Path, line: Option<u64>) -> ControlFlow<()> {
        self.answer.stopped_by = Some(why);
        self.answer.next =
            Some(Cursor { place: self.place, line, path: path.to_owned() }.to_string());
        ControlFlow::Break(())
    }

    fn trouble(&mut self, trouble: Trouble) {
        if self.answer.errors.len() < MAX_ERRORS {
            self.answer.errors.push(trouble);
        } else {
            self.answer.more_errors += 1;
        }
    }
}

/// Where an answer ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cursor {
    /// Which of the starts.
    place: usize,
    /// The last line that was done; none when the file was.
    line: Option<u64>,
    path: PathBuf,
}

impl Cursor {
    fn parse(text: &str) -> Result<Cursor, Failure> {
        let parse = || {
            let mut parts = text.splitn(3, ':');
            let place = parts.next()?.parse().ok()?;
            let line = match parts.next()? {
                "-" => None,
                line => Some(line.parse().ok()?),
            };
            Some(Cursor { place, line, path: PathBuf::from(parts.next()?) })
        };
        parse().ok_or_else(|| {
            Failure::invalid(format!("`cursor` is `{text}`, which is not a `next` of this tool"))
        })
    }

    /// The cursor, if it lies in that start.
    fn within(&self, place: usize) -> Option<&Cursor> {
        (self.place == place && !self.path.as_os_str().is_empty()).then_some(self)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.place)?;
        match self.line {
            Some(line) => write!(f, "{line}")?,
            None => f.write_str("-")?,
        }
        write!(f, ":{}", paths::show(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(&path, text).expect("written");
        }
        directory
    }

    fn ask(value: &Value) -> Result<Answer, Failure> {
        search(&serde_json::from_value(value.clone()).expect("arguments"))
    }

    fn found(directory: &Path, answer: &Answer) -> Vec<(String, Vec<u64>)> {
        let prefix = format!("{}/", directory.display());
        let name = |path: &str| path.trim_start_matches(&prefix).to_owned();
        let lines = |file: &FileHits| file.lines.iter().map(|line| line.line).collect();
        answer.files.iter().map(|file| (name(&file.path), lines(file))).collect()
    }

    #[test]
    fn more_bytes_than_one_call_reads_are_for_the_next_call() {
        let line = "x".repeat(99);
        let long = |lines: usize| format!("{}TODO\n", format!("{line}\n").repeat(lines));
        let directory = tree(&[
            ("a", &long(5_000)),
            ("b", &long(5_000)),
            ("c", &long(20_000)),
            ("d", &long(1)),
        ]);
        let (mut cursor, mut calls) = (None::<String>, Vec::new());
        loop {
            let asked = json!({"pattern": "TODO", "path": directory.path(), "cursor": cursor});
            let arguments = serde_json::from_value(asked).expect("arguments");
            let answer = search_up_to(1 << 20, &arguments).expect("searched");
            assert!(answer.bytes <= 1 << 20);
            let names: Vec<String> =
                found(directory.path(), &answer).into_iter().map(|(name, _)| name).collect();
            calls.push((names.concat(), answer.stopped_by, answer.errors.len()));
            cursor = answer.next;
            if cursor.is_none() {
                break;
            }
        }
        let stopped = Some("bytes");
        let expected = [("ab", stopped, 0), ("", stopped, 1), ("d", None, 0)];
        let expected = expected.map(|(names, by, errors)| (names.to_owned(), by, errors));
        assert_eq!(calls, expected);
    }

    #[test]
    fn a_tree_is_searched_and_what_was_left_out_is_counted() {
        let directory = tree(&[
            ("a.rs", "fn a() {}\n// TODO: b\n"),
            ("sub/b.rs", "// TODO\n"),
            ("c.bin", "TODO\0"),
            (".hidden", "TODO"),
            ("d.txt", "nothing"),
        ]);
        let answer = ask(&json!({"pattern": "TODO", "path": directory.path()})).expect("searched");
        assert_eq!(
            found(directory.path(), &answer),
            [("a.rs".into(), vec![2]), ("sub/b.rs".into(), vec![1])]
        );
        assert_eq!((answer.searched, answer.binary, answer.left_out.hidden), (3, 1, 1));
        assert_eq!((answer.next, answer.stopped_by), (None, None));
    }

    #[test]
    fn pages_of_every_size_give_the_same_matches() {
        let directory = tree(&[
            ("a", "m\nm\nx\nm\n"),
            ("b/c", "x\nm\n"),
            ("b/d", "x\n"),
            ("e", "m\nm\nm\nm\nm"),
            ("f", "m"),
        ]);
        for by_paths in [false, true] {
            let start = if by_paths {
                let at = |name: &str| directory.path().join(name);
                json!({"pattern": "m", "paths": [at("a"), at("b"), at("e"), at("f")]})
            } else {
                json!({"pattern": "m", "path": directory.path()})
            };
            for size in 1..=12 {
                let mut arguments = start.clone();
                arguments["max_matches"] = json!(size);
                let mut all = Vec::new();
                loop {
                    let answer = ask(&arguments).expect("searched");
                    for (name, lines) in found(directory.path(), &answer) {
                        all.extend(lines.into_iter().map(|line| format!("{name}:{line}")));
                    }
                    assert!(all.len() < 100, "{all:?} {:?}", answer.next);
                    match answer.next {
                        Some(next) => arguments["cursor"] = json!(next),
                        None => break,
                    }
                }
                let whole =
                    ["a:1", "a:2", "a:4", "b/c:2", "e:1", "e:2", "e:3", "e:4", "e:5", "f:1"];
                assert_eq!(all, whole, "{size}");
            }
        }
    }

    #[test]
    fn many_matches_in_one_file_do_not_hide_the_others() {
        let directory = tree(&[("a", &"m\n".repeat(100)), ("b", "m\n")]);
        let answer =
            ask(&json!({"pattern": "m", "path": directory.path(), "max_matches_per_file": 3}))
                .expect("searched");
        assert_eq!(
            found(directory.path(), &answer),
            [("a".into(), vec![1, 2, 3]), ("b".into(), vec![1])]
        );
        assert_eq!((answer.files[0].more, answer.files[1].more), (true, false));
    }

    /// An answer that is full is no file with more matches than are wanted of one: the next answer goes on in it.
    #[test]
    fn a_full_answer_does_not_say_that_a_file_has_more_than_is_wanted_of_one() {
        let directory = tree(&[("a", &"m\n".repeat(8))]);
        let mut arguments = json!({
            "pattern": "m", "path": directory.path(), "max_matches": 5, "max_matches_per_file": 6
        });
        let first = ask(&arguments).expect("searched");
        assert_eq!((first.files[0].lines.len(), first.files[0].more), (5, false));
        arguments["cursor"] = json!(first.next.expect("more"));
        let second = ask(&arguments).expect("searched");
        assert_eq!((second.files[0].lines.len(), second.files[0].more), (3, false));
    }

    #[test]
    fn an_answer_stays_small_however_much_matches() {
        let line = format!("m{}\n", "\"".repeat(390));
        let directory = tree(&[("a", &line.repeat(4_000)), ("b", "m\n")]);
        let mut arguments = json!({
            "pattern": "m", "path": directory.path(), "max_matches": 5_000, "max_matches_per_file": 5_000, "context": 2
        });
        let mut lines = 0;
        for _ in 0..20 {
            let answer = ask(&arguments).expect("searched");
            assert!(serde_json::to_string(&answer).expect("json").len() < MAX_ANSWER + 10_000);
            lines += answer.files.iter().map(|file| file.lines.len()).sum::<usize>();
            match answer.next {
                Some(next) => arguments["cursor"] = json!(next),
                None => break,
            }
        }
        assert_eq!(lines, 4_001);
    }

    #[test]
    fn files_and_counts_need_no_lines() {
        let directory = tree(&[("a", "m\nm\n"), ("b", "x"), ("c", "m")]);
        let files = ask(&json!({"pattern": "m", "path": directory.path(), "show": "files"}))
            .expect("searched");
        assert_eq!(found(directory.path(), &files), [("a".into(), vec![]), ("c".into(), vec![])]);
        let counts = ask(&json!({"pattern": "m", "path": directory.path(), "show": "counts"}))
            .expect("searched");
        assert_eq!(
            counts.files.iter().map(|file| file.count).collect::<Vec<_>>(),
            [Some(2), Some(1)]
        );
        let page =
            json!({"pattern": "m", "path": directory.path(), "show": "files", "max_matches": 1});
        let first = ask(&page).expect("searched");
        let mut second = page.clone();
        second["cursor"] = json!(first.next.expect("more"));
        assert_eq!(
            found(directory.path(), &ask(&second).expect("searched")),
            [("c".into(), vec![])]
        );
    }

    #[test]
    fn named_files_are_searched_whatever_their_names_and_problems_are_told_apart() {
        let directory = tree(&[(".env", "m"), ("a", "m")]);
        let at = |name: &str| directory.path().join(name);
        let answer = ask(&json!({"pattern": "m", "paths": [at(".env"), at("gone"), at("a")]}))
            .expect("searched");
        assert_eq!(
            found(directory.path(), &answer),
            [(".env".into(), vec![1]), ("a".into(), vec![1])]
        );
        assert!(
            answer.errors[0].path.ends_with("gone")
                && answer.errors[0].error.contains("does not exist")
        );
    }

    #[test]
    fn plain_text_and_letter_case_can_be_chosen() {
        let directory = tree(&[("a", "a.b\naxb\nA.B\n")]);
        let lines = |rest: Value| {
            let mut arguments = rest;
            arguments["path"] = json!(directory.path());
            found(directory.path(), &ask(&arguments).expect("searched"))[0].1.clone()
        };
        assert_eq!(lines(json!({"pattern": "a.b"})), [1, 2]);
        assert_eq!(lines(json!({"pattern": "a.b", "literal": true})), [1]);
        assert_eq!(lines(json!({"pattern": "a.b", "literal": true, "ignore_case": true})), [1, 3]);
    }

    #[test]
    fn senseless_arguments_are_refused_with_a_reason() {
        let directory = tree(&[]);
        let refused = |mut arguments: Value| {
            if arguments.get("paths").is_none() {
                arguments["path"] = json!(directory.path());
            }
            ask(&arguments).expect_err("senseless").to_string()
        };
        assert!(refused(json!({"pattern": "("})).contains("`literal`"));
        assert!(refused(json!({"pattern": "(?=a)"})).contains("look-around"));
        assert!(refused(json!({"pattern": "(\\w{100}){100}{100}"})).contains("size limit"));
        assert!(refused(json!({"pattern": ""})).contains("empty"));
        assert!(refused(json!({"pattern": "a", "context": 21})).contains("from 0 to 20"));
        assert!(refused(json!({"pattern": "a", "cursor": "x"})).contains("cursor"));
        assert!(
            refused(json!({"pattern": "a", "path": "/a", "paths": ["/b"]})).contains("together")
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_and_special_files_are_not_searched() {
        let directory = tree(&[("a", "m")]);
        std::os::unix::fs::symlink("a", directory.path().join("b")).expect("a link");
        let socket = directory.path().join("s");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let answer = ask(&json!({"pattern": "m", "path": directory.path()})).expect("searched");
        assert_eq!(found(directory.path(), &answer), [("a".into(), vec![1])]);
        let answer = ask(&json!({"pattern": "m", "paths": [socket, directory.path().join("b")]}))
            .expect("searched");
        assert!(answer.errors[0].error.contains("a socket"));
        // A link that is asked for by name is followed.
        assert_eq!(found(directory.path(), &answer), [("b".into(), vec![1])]);
    }
}
