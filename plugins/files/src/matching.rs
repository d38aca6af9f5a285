//! Matching the lines of one file, piece by piece, with the lines around each match.
//!
//! The expression runs over a whole piece at once, which is much faster than line by line. A match that reaches
//! beyond its line counts only if the line alone matches too; so the result is that of line by line.

use std::io;
use std::time::Instant;

use checkrein_guest::prelude::*;
use checkrein_reading::{CHUNK, Content, Regular, SAMPLE, Whole, json_len, look};
use memchr::{memchr, memchr_iter, memrchr};
use regex::bytes::Regex;

/// A line longer than this is searched in parts: a match across the border of two is not found.
const LONGEST_LINE: usize = 8 << 20;
/// Lines are shown up to this many bytes.
const SHOWN: usize = 400;
/// So much of that lies before the match.
const SHOWN_BEFORE: usize = 120;

/// What is wanted of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// Whether there is a match.
    Any,
    /// How many lines match.
    Count,
    /// The lines that match, with `context` lines around each, up to `weight` bytes of answer.
    Lines { at_most: usize, context: usize, weight: usize },
}

/// What a file gave.
#[derive(Debug)]
pub(crate) struct Hits {
    /// The matching lines, when they were wanted.
    pub(crate) lines: Vec<Line>,
    /// How many lines match, as far as the search went.
    pub(crate) count: u64,
    /// How the search ended.
    pub(crate) outcome: Outcome,
    /// The last line that is done with.
    pub(crate) last_line: u64,
    /// How many bytes were read.
    pub(crate) bytes: u64,
}

/// How the search of one file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// At the end of the file.
    Whole,
    /// With as many lines as were wanted, and there is another match.
    Enough,
    /// At the weight that was allowed.
    Heavy,
    /// At the deadline.
    Late,
    /// At the bytes that were allowed.
    Full,
    /// At once: it is no text.
    Binary,
    /// Where the text turned into something else.
    TurnedBinary,
}

/// A line that matches.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    /// Its number, from 1.
    pub(crate) line: u64,
    /// The character where the match begins, from 1.
    pub(crate) column: u64,
    /// The line without its end. A `…` at either end stands for a part that was too long to show.
    pub(crate) text: String,
    /// The lines before it, when context was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<String>,
    /// The lines after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) after: Vec<String>,
}

impl Line {
    /// About how many bytes it takes in an answer.
    pub(crate) fn weight(&self) -> usize {
        let around =
            self.before.iter().chain(&self.after).map(|line| json_len(line) + 1).sum::<usize>();
        json_len(&self.text) + around + 70
    }
}

/// The buffers of a search, kept from file to file.
#[derive(Debug)]
pub(crate) struct Searcher<'r> {
    regex: &'r Regex,
    /// The expression speaks of the ends of the text, so that each line must be searched alone.
    alone: bool,
    deadline: Instant,
    /// How many bytes may still be read.
    left: u64,
    raw: Vec<u8>,
    window: Vec<u8>,
}

impl<'r> Searcher<'r> {
    /// A search with that expression, until that moment, that reads so many bytes at most.
    pub(crate) fn new(regex: &'r Regex, deadline: Instant, left: u64) -> Searcher<'r> {
        let pattern = regex.as_str();
        let alone = pattern.contains("\\A") || pattern.contains("\\z") || pattern.contains("-m");
        Searcher {
            regex,
            alone,
            deadline,
            left,
            raw: vec![0; CHUNK],
            window: Vec::with_capacity(2 * CHUNK),
        }
    }

    /// Searches one file behind the line `behind`.
    pub(crate) fn search(
        &mut self,
        file: &mut Regular,
        wanted: Wanted,
        behind: u64,
    ) -> io::Result<Hits> {
        let mut scan = Scan {
            regex: self.regex,
            alone: self.alone,
            wanted,
            behind,
            line: 1,
            owed: 0,
            shown: 0,
            weight: 0,
            done: None,
            part: Part::default(),
            hits: Hits {
                lines: Vec::new(),
                count: 0,
                outcome: Outcome::Whole,
                last_line: 0,
                bytes: 0,
            },
        };
        self.window.clear();
        let mut decoding = None;
        let mut stream = None;
        // Where the first line that was not searched begins in the window.
        let mut from = 0;
        loop {
            if self.left < self.raw.len() as u64 {
                return Ok(scan.end(Outcome::Full));
            }
            let filled = file.fill(&mut self.raw)?;
            self.left -= filled as u64;
            let whole = if filled < self.raw.len() { Whole::Yes } else { Whole::No };
            scan.hits.bytes += filled as u64;
            let mut raw = &self.raw[..filled];
            match decoding {
                None => {
                    let sample = &raw[..raw.len().min(SAMPLE)];
                    let complete = if sample.len() == raw.len() { whole } else { Whole::No };
                    let Content::Text(found) = look(sample, complete) else {
                        return Ok(scan.end(Outcome::Binary));
                    };
                    if found.is_utf8() {
                        raw = &raw[found.bom()..];
                    } else {
                        stream = Some(found.stream());
                    }
                    decoding = Some(found);
                }
                Some(found) if found.unit() == 1 && memchr(0, raw).is_some() => {
                    return Ok(scan.end(Outcome::TurnedBinary));
                }
                Some(_) => {}
            }
            let known = self.window.len();
            match &mut stream {
                None => self.window.extend_from_slice(raw),
                Some(stream) => {
                    let mut text = String::new();
                    stream.push(raw, whole, &mut text);
                    self.window.extend_from_slice(text.as_bytes());
                }
            }
            // What was there already has no end of a line.
            let end = match memrchr(b'\n', &self.window[known..]) {
                _ if whole == Whole::Yes => self.window.len(),
                Some(at) => known + at + 1,
                None if self.window.len() - from > LONGEST_LINE => self.window.len(),
                None => continue,
            };
            scan.region(&self.window[..end], from);
            if let Some(outcome) = scan.done {
                return Ok(scan.end(outcome));
            }
            if whole == Whole::Yes {
                return Ok(scan.end(Outcome::Whole));
            }
            if Instant::now() >= self.deadline {
                return Ok(scan.end(Outcome::Late));
            }
            let keep = scan.keep(&self.window[..end]);
            self.window.drain(..keep);
            from = end - keep;
        }
    }
}

/// A search of one file under way.
struct Scan<'r> {
    regex: &'r Regex,
    alone: bool,
    wanted: Wanted,
    behind: u64,
    /// The number of the first line that was not searched.
    line: u64,
    /// So many lines of context are still missing after the last match.
    owed: usize,
    /// Up to here lines of the window were shown, as a match or around one.
    shown: usize,
    weight: usize,
    done: Option<Outcome>,
    part: Part,
    hits: Hits,
}

/// What was searched already of the line in which the next region begins.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    characters: u64,
    matched: bool,
}

fn characters(text: &[u8]) -> u64 {
    String::from_utf8_lossy(text).chars().count() as u64
}

/// Where a match lies in the window.
struct Hit {
    /// The line, without its end.
    line: (usize, usize),
    /// The match, within the line.
    part: (usize, usize),
    /// Where the next line begins.
    next: usize,
}

impl Scan<'_> {
    /// Searches whole lines from `from` to the end of `text`; what is before `from` serves as context.
    fn region(&mut self, text: &[u8], mut from: usize) {
        while self.line <= self.behind && from < text.len() {
            let Some(end) = memchr(b'\n', &text[from..]) else { return };
            from += end + 1;
            self.line += 1;
            self.shown = from;
            self.part = Part::default();
        }
        let mut at = from;
        if self.part.matched {
            at = memchr(b'\n', &text[from..]).map_or(text.len(), |newline| from + newline + 1);
        }
        let mut counted = from;
        while self.done.is_none() {
            let Some(hit) = self.next_hit(text, at) else { break };
            self.line += memchr_iter(b'\n', &text[counted..hit.line.0]).count() as u64;
            counted = hit.line.0;
            self.pay(text, at, hit.line.0);
            self.owed = 0;
            if hit.line.0 > from {
                self.part = Part::default();
            }
            self.take(text, &hit);
            self.part.matched = true;
            at = hit.next;
        }
        if self.done.is_none() {
            let last = memrchr(b'\n', &text[from..]).map_or(from, |newline| from + newline + 1);
            if last > from && last != counted {
                self.part = Part::default();
            }
            self.part.characters += characters(&text[last..]);
            if last < text.len() {
                // What comes next is the rest of this line, and the part of it that was here is no line before that.
                self.shown = text.len();
            }

            self.pay(text, at.min(text.len()), text.len());
            self.line += memchr_iter(b'\n', &text[counted..]).count() as u64;
            // A last line without an end may have matched already.
            self.hits.last_line = self.hits.last_line.max(self.line - 1);
        }
    }

    fn next_hit(&self, text: &[u8], mut at: usize) -> Option<Hit> {
        while at < text.len() {
            let start = if self.alone { at } else { self.regex.find_at(text, at)?.start() };
            if start >= text.len() && text.ends_with(b"\n") {
                return None;
            }
            let line_start =
                memrchr(b'\n', &text[..start]).map_or(0, |newline| newline + 1).max(at);
            let line_end =
                memchr(b'\n', &text[start..]).map_or(text.len(), |newline| start + newline);
            let next = line_end + 1;
            let mut line = &text[line_start..line_end];
            line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(part) = self.regex.find(line) {
                let line = (line_start, line_start + line.len());
                return Some(Hit { line, part: (part.start(), part.end()), next });
            }
            at = next;
        }
        None
    }

    fn take(&mut self, text: &[u8], hit: &Hit) {
        let (at_most, context, allowed) = match self.wanted {
            Wanted::Any => {
                self.hits.count += 1;
                self.done = Some(Outcome::Enough);
                return;
            }
            Wanted::Count => {
                self.hits.count += 1;
                return;
            }
            Wanted::Lines { at_most, context, weight } => (at_most, context, weight),
        };
        if self.hits.lines.len() == at_most {
            self.done = Some(Outcome::Enough);
            return;
        }
        let whole = &text[hit.line.0..hit.line.1];
        let line = Line {
            line: self.line,
            column: self.part.characters + characters(&whole[..hit.part.0]) + 1,
            text: shown(whole, hit.part.0),
            before: self.before(text, hit.line.0, context),
            after: Vec::new(),
        };
        // What follows it is not known yet; as much as that may be is set aside.
        let weight = line.weight();
        if self.weight + weight > allowed && !self.hits.lines.is_empty() {
            self.done = Some(Outcome::Heavy);
            return;
        }
        self.weight += weight;
        self.hits.count += 1;
        self.hits.last_line = self.line;
        self.hits.lines.push(line);
        self.owed = context;
        self.shown = hit.next;
    }

    /// Up to `context` lines before `at` that were not shown yet.
    fn before(&self, text: &[u8], at: usize, context: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let mut end = at;
        while lines.len() < context && end > self.shown {
            let start =
                memrchr(b'\n', &text[..end - 1]).map_or(0, |newline| newline + 1).max(self.shown);
            lines.push(shown(without_end(&text[start..end]), 0));
            end = start;
        }
        lines.reverse();
        lines
    }

    /// Gives the last match the lines after it that it still misses, from `at` on and before `end`.
    fn pay(&mut self, text: &[u8], mut at: usize, end: usize) {
        while self.owed > 0 && at < end {
            let next = memchr(b'\n', &text[at..end]).map_or(end, |newline| at + newline + 1);
            let line = shown(without_end(&text[at..next]), 0);
            self.weight += json_len(&line) + 1;
            if let Some(last) = self.hits.lines.last_mut() {
                last.after.push(line);
            }
            self.owed -= 1;
            self.shown = next;
            at = next;
        }
    }

    /// What must stay in the window as context for the next piece: the place where it begins.
    fn keep(&mut self, text: &[u8]) -> usize {
        let context = match self.wanted {
            Wanted::Lines { context, .. } => context,
            Wanted::Any | Wanted::Count => 0,
        };
        let mut start = text.len();
        for _ in 0..context {
            if start == 0 || text.len() - start > CHUNK {
                break;
            }
            start = memrchr(b'\n', &text[..start - 1]).map_or(0, |newline| newline + 1);
        }
        self.shown = self.shown.saturating_sub(start);
        start
    }

    fn end(mut self, outcome: Outcome) -> Hits {
        self.hits.outcome = outcome;
        self.hits
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The line as it is shown: the part around byte `around`, when it is long.
fn shown(line: &[u8], around: usize) -> String {
    if line.len() <= SHOWN {
        return String::from_utf8_lossy(line).into_owned();
    }
    let is_boundary = |at: &usize| line.get(*at).is_none_or(|byte| !matches!(byte, 0x80..=0xbf));
    let from = around.saturating_sub(SHOWN_BEFORE).min(line.len() - SHOWN);
    let start = (from.saturating_sub(3)..=from).rev().find(is_boundary).unwrap_or(from);
    let to = (from + SHOWN).min(line.len());
    let end = (to..to + 4).find(is_boundary).unwrap_or(to).min(line.len());
    let (left, right) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{left}{}{right}", String::from_utf8_lossy(&line[start..end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::bytes::RegexBuilder;
    use std::time::Duration;

    fn find(pattern: &str, text: impl AsRef<[u8]>, wanted: Wanted, behind: u64) -> Hits {
        let regex =
            RegexBuilder::new(pattern).multi_line(true).crlf(true).build().expect("a pattern");
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        std::fs::write(&path, text).expect("written");
        let mut file = Regular::found(&path).expect("opened");
        let mut searcher =
            Searcher::new(&regex, Instant::now() + Duration::from_secs(60), u64::MAX);
        searcher.search(&mut file, wanted, behind).expect("searched")
    }

    fn all(context: usize) -> Wanted {
        Wanted::Lines { at_most: 1_000_000, context, weight: usize::MAX }
    }

    fn numbers(pattern: &str, text: &str) -> Vec<u64> {
        find(pattern, text, all(0), 0).lines.iter().map(|line| line.line).collect()
    }

    #[test]
    fn a_line_is_matched_alone_whatever_stands_around_it() {
        assert_eq!(numbers("b", "a\nb\nab\n\nc\nb"), [2, 3, 6]);
        assert_eq!(numbers("^b$", "a\nb\nab\nb\r\n"), [2, 4]);
        assert_eq!(numbers(r"a\s+b", "a\nb\na b\n"), [3]);
        assert_eq!(numbers(r"a\s*", "a\nx\n a\n"), [1, 3]);
        assert_eq!(numbers("^$", "a\n\nb\n\n"), [2, 4]);
        assert_eq!(numbers("", "a\nb"), [1, 2]);
        assert_eq!(numbers("[^x]+y", "a\nb\ny\nzy\n"), [4]);
        assert_eq!(numbers(r"\Ab", "ab\nb\n"), [2]);
        assert_eq!(numbers(r"b\z", "b\nba\nab"), [1, 3]);
        assert_eq!(numbers("$", ""), [0; 0]);
    }

    #[test]
    fn a_match_has_its_column_in_characters() {
        let hits = find("x", "äöx\n", all(0), 0);
        assert_eq!((hits.lines[0].column, hits.lines[0].text.as_str()), (3, "äöx"));
    }

    #[test]
    fn context_is_shown_once_and_never_repeats_a_match() {
        let hits = find("m", "1\n2\nm3\n4\nm5\nm6\n7\n8\n9\n", all(2), 0);
        let view: Vec<_> = hits
            .lines
            .iter()
            .map(|line| (line.before.join(""), line.line, line.after.join("")))
            .collect();
        assert_eq!(
            view,
            [
                ("12".into(), 3, "4".into()),
                (String::new(), 5, String::new()),
                (String::new(), 6, "78".into())
            ]
        );
    }

    #[test]
    fn pieces_give_the_same_as_one() {
        // Lines of many lengths, so that matches and their context lie across the borders of pieces.
        let line = |number: usize| {
            format!(
                "{number} {}{}",
                if number.is_multiple_of(37) { "match " } else { "" },
                "y".repeat(number % 200)
            )
        };
        let lines: Vec<String> = (1..=9_000).map(line).collect();
        let text = lines.join("\n");
        assert!(text.len() > 3 * CHUNK);
        let hits = find("match", &text, all(3), 0);
        assert_eq!(hits.lines.len(), 9_000 / 37);
        for hit in &hits.lines {
            let number = hit.line as usize;
            assert_eq!(number % 37, 0);
            assert_eq!(hit.text, lines[number - 1]);
            assert_eq!(hit.before, lines[number - 4..number - 1]);
            let after = &lines[number..(number + 3).min(lines.len())];
            assert_eq!(hit.after, after);
        }
    }

    #[test]
    fn a_search_goes_on_behind_a_line() {
        let text = "m\nx\nm\nm\n";
        let first =
            find("m", text, Wanted::Lines { at_most: 1, context: 0, weight: usize::MAX }, 0);
        assert_eq!((first.lines[0].line, first.outcome, first.last_line), (1, Outcome::Enough, 1));
        let rest = find("m", text, all(1), first.last_line);
        assert_eq!(rest.lines.iter().map(|line| line.line).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(rest.outcome, Outcome::Whole);
    }

    #[test]
    fn one_match_and_counting_need_no_lines() {
        let one = find("m", "m\nm\n", Wanted::Any, 0);
        assert_eq!((one.count, one.outcome), (1, Outcome::Enough));
        let count = find("m", "m\nx\nmm\n", Wanted::Count, 0);
        assert_eq!((count.count, count.outcome, count.lines.len()), (2, Outcome::Whole, 0));
    }

    #[test]
    fn weight_ends_a_search_but_never_before_its_first_line() {
        let text = "match\n".repeat(100);
        let hits = find("m", &text, Wanted::Lines { at_most: 1_000, context: 0, weight: 1 }, 0);
        assert_eq!((hits.lines.len(), hits.outcome, hits.last_line), (1, Outcome::Heavy, 1));
        let hits = find("m", &text, Wanted::Lines { at_most: 1_000, context: 0, weight: 1_000 }, 0);
        assert!((5..20).contains(&hits.lines.len()));
    }

    #[test]
    fn a_line_of_many_parts_is_one_line() {
        let part = "x".repeat(LONGEST_LINE);
        let text = format!("ä\nneedle ä {part}{part} needle {part}\nä needle\n{part}ä needle");
        let hits = find("needle", &text, all(0), 0);
        let places: Vec<_> = hits.lines.iter().map(|line| (line.line, line.column)).collect();
        assert_eq!(places, [(2, 1), (3, 3), (4, LONGEST_LINE as u64 + 3)]);
        assert_eq!(find("needle", &text, Wanted::Count, 0).count, 3);
        let rest = find("needle", &text, all(0), 2);
        assert_eq!(
            rest.lines.iter().map(|line| line.column).collect::<Vec<_>>(),
            [3, LONGEST_LINE as u64 + 3]
        );
    }

    #[test]
    fn a_huge_line_is_shown_around_the_match() {
        let mut text = "ä".repeat(2 << 20);
        text.push_str("needle");
        text.push_str(&"ö".repeat(1_000));
        let hits = find("needle", &text, all(0), 0);
        let line = &hits.lines[0];
        assert_eq!(line.column, (2 << 20) + 1);
        assert!(
            line.text.starts_with('…') && line.text.ends_with('…') && line.text.contains("needle")
        );
        assert!(line.text.len() < 420 && !line.text.contains('\u{fffd}'), "{}", line.text);
    }

    #[test]
    fn other_encodings_are_searched_as_text() {
        let text = "eins\nzwölf\n";
        let mut wide = vec![0xfe, 0xff];
        wide.extend(text.encode_utf16().flat_map(u16::to_be_bytes));
        let hits = find("^zwölf$", &wide, all(0), 0);
        assert_eq!((hits.lines[0].line, hits.lines[0].text.as_str()), (2, "zwölf"));
        let latin = b"eins\nzw\xf6lf, gr\xfcn und sch\xf6n\n";
        assert_eq!(find("zwölf", latin, all(0), 0).lines[0].text, "zwölf, grün und schön");
        assert_eq!(find("^eins", b"\xef\xbb\xbfeins\n", all(0), 0).lines.len(), 1);
    }

    #[test]
    fn binary_data_is_left_alone_at_the_start_and_further_on() {
        assert_eq!(find("a", b"a\0b", all(0), 0).outcome, Outcome::Binary);
        let mut text = "match\n".repeat(CHUNK / 6 + 1).into_bytes();
        text.extend_from_slice(b"\0\0match\n");
        let hits = find("match", &text, Wanted::Count, 0);
        assert_eq!((hits.outcome, hits.count), (Outcome::TurnedBinary, (CHUNK / 6) as u64));
    }

    #[test]
    fn wrong_utf8_is_searched_and_shown_with_replacements() {
        let mut text = "äöü ".repeat(10).into_bytes();
        text.extend_from_slice(b"\xff needle\n");
        assert!(find("needle", &text, all(0), 0).lines[0].text.contains("\u{fffd} needle"));
    }
}
