//! The tool `read`: the text of files, whole or in ranges.

use std::io;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use checkrein_guest::prelude::*;
use checkrein_reading::{CHUNK, Content, Decoding, Regular, SAMPLE, Whole, look, paths};

/// So many bytes of files are in one answer at most.
const MAX_BYTES: usize = 400 << 10;
const MIN_BYTES: usize = 1 << 10;
/// What is read when nobody says how much: so much passes an agent that shortens long results, and then `next_line` says
/// where to go on.
const DEFAULT_BYTES: usize = 36 << 10;
/// So many files are in one call at most.
const MAX_FILES: usize = 500;

/// What to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The files, each with the part of it that you want.
    files: Vec<Part>,
    /// How many bytes at most in this answer, all files together, up to 409600.
    #[serde(default = "default_bytes")]
    max_bytes: u32,
    /// Put the number of each line in front of it.
    #[serde(default)]
    line_numbers: bool,
    /// Give the bytes as base64 in place of text: the way to read binary files.
    #[serde(default)]
    base64: bool,
}

fn default_bytes() -> u32 {
    DEFAULT_BYTES as u32
}

/// A part of a file: by lines, or by bytes, or all of it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// The file, such as `/work/src/main.rs`.
    path: String,
    /// The first line, counted from 1; a negative number counts from the end, so -20 starts 20 lines before it.
    #[serde(default)]
    from_line: Option<i64>,
    /// How many lines; left out: as many as fit.
    #[serde(default)]
    lines: Option<u64>,
    /// The first byte, counted from 0; not together with `from_line` and `lines`. The fast way into a large file.
    #[serde(default)]
    from_byte: Option<u64>,
    /// How many bytes; left out: as many as fit.
    #[serde(default)]
    bytes: Option<u64>,
    /// The encoding, when you know better than a look at the first bytes: `utf-8`, `utf-16le`, `latin1`,
    /// `shift_jis`, and all others that web browsers know.
    #[serde(default)]
    encoding: Option<String>,
}

/// What the files say.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    /// One for each file that was asked for, in the same order.
    files: Vec<FilePart>,
}

/// A part of a file.
#[derive(Debug, Default, Serialize)]
pub(crate) struct FilePart {
    /// The path that was asked for.
    path: String,
    /// Why there is nothing; the other files are not touched by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The size of the whole file in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// The encoding, where it is not UTF-8 or is marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    /// What sort of binary data it is; there is no text then.
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<String>,
    /// The number of the first line of `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_line: Option<u64>,
    /// The place of the first byte, when bytes were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_byte: Option<u64>,
    /// How many lines the whole file has, when the end was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    /// The text, with line ends as they are in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The bytes, when they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// There is more: go on with this as `from_line`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_line: Option<u64>,
    /// There is more: go on with this as `from_byte`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_byte: Option<u64>,
    /// What is odd about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<&'static str>,
}

/// Reads files.
#[derive(Debug)]
pub struct Read;

impl Tool for Read {
    const NAME: &str = "read";
    const DESCRIPTION: &str = "Reads the text of one or several files: whole, by lines or by bytes. Answers with \
        JSON, one object for each file, in which `text` is the text and `next_line` and `next_byte` say where to go \
        on when there is more. Knows UTF-8, UTF-16 and older encodings; says which it found, and whether bytes had \
        to be replaced. Binary files are named as such and given only as base64 when `base64` is true. A file that \
        cannot be read has an `error`; the others are read all the same.";
    const HINTS: &[Hint] = &[Hint::ReadOnly, Hint::Idempotent];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
        Output::json(&read(&arguments)?)
    }
}

pub(crate) fn read(arguments: &Arguments) -> Result<Answer, Failure> {
    if arguments.files.is_empty() || arguments.files.len() > MAX_FILES {
        let count = arguments.files.len();
        return Err(Failure::invalid(format!(
            "`files` has {count} entries; it must have from 1 to {MAX_FILES}"
        )));
    }
    let mut budget = arguments.max_bytes as usize;
    if !(MIN_BYTES..=MAX_BYTES).contains(&budget) {
        let wrong = format!("`max_bytes` is {budget}; it must be from {MIN_BYTES} to {MAX_BYTES}");
        return Err(Failure::invalid(wrong));
    }
    let form = match (arguments.base64, arguments.line_numbers) {
        (true, _) => Form::Base64,
        (false, true) => Form::Numbered,
        (false, false) => Form::Text,
    };
    let mut files = Vec::with_capacity(arguments.files.len());
    for part in &arguments.files {
        let answer = part.read(&mut budget, form).unwrap_or_else(FilePart::of_error);
        files.push(FilePart { path: part.path.clone(), ..answer });
    }
    Ok(Answer { files })
}

/// How the bytes are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Numbered,
    Base64,
}

impl Part {
    fn read(&self, budget: &mut usize, form: Form) -> Result<FilePart, String> {
        let by_line = self.from_line.is_some() || self.lines.is_some();
        let by_byte = self.from_byte.is_some() || self.bytes.is_some();
        if by_line && (by_byte || form == Form::Base64) {
            return Err("lines and bytes cannot be asked for together".to_owned());
        }
        if self.from_line == Some(0) || self.lines == Some(0) || self.bytes == Some(0) {
            return Err(
                "lines are counted from 1, and a part has at least one line or byte".to_owned()
            );
        }
        let path = paths::resolve(&self.path).and_then(|place| place.path(&self.path));
        let path = path.map_err(|failure| failure.message)?;
        let (mut file, size) = Regular::open(&path).map_err(|why| why.reason())?;
        // With a few bytes left, a part could end before its first character does.
        if *budget < 16 {
            return Err(
                "not read: `max_bytes` was used up by the files before it; ask for it again"
                    .to_owned(),
            );
        }
        let mut source = Source::new(&mut file, size).map_err(|error| paths::reason(&error))?;
        let mut answer = FilePart { size: Some(size), ..FilePart::default() };
        if form == Form::Base64 {
            let piece = source.base64(self, *budget).map_err(|error| paths::reason(&error))?;
            *budget -= piece.bytes.len();
            answer.from_byte = Some(piece.from_byte);
            answer.next_byte = piece.next_byte;
            answer.base64 = Some(BASE64_STANDARD.encode(&piece.bytes));
            return Ok(answer);
        }
        let decoding = match (&self.encoding, look(&source.sample, source.whole())) {
            (Some(label), _) => Decoding::named(label, &source.sample)
                .ok_or_else(|| format!("`{label}` is not the name of an encoding"))?,
            (None, Content::Text(decoding)) => decoding,
            (None, Content::Binary(kind)) => {
                answer.binary = Some(kind.to_owned());
                answer
                    .notes
                    .push("not text: put `\"base64\": true` beside `files` if you need the bytes");
                return Ok(answer);
            }
        };
        if !decoding.is_utf8() || decoding.bom() > 0 {
            answer.encoding = Some(decoding.describe());
        }
        let piece = if by_byte {
            source.bytes(self, &decoding, *budget)
        } else {
            source.lines(self, &decoding, *budget)
        };
        let piece = piece.map_err(|error| paths::reason(&error))?;
        *budget -= piece.bytes.len();
        answer.from_byte = by_byte.then_some(piece.from_byte);
        piece.into_answer(&decoding, form, &mut answer);
        Ok(answer)
    }
}

impl FilePart {
    fn of_error(error: String) -> FilePart {
        FilePart { error: Some(error), ..FilePart::default() }
    }
}

/// A file whose first bytes are known.
#[derive(Debug)]
struct Source<'a> {
    file: &'a mut Regular,
    /// Where the file ended when it was opened: what grows faster than it is read would have no end.
    end: u64,
    sample: Vec<u8>,
}

/// Bytes of a file, and where they lie in it.
#[derive(Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    from_line: Option<u64>,
    from_byte: u64,
    /// The line after the last one, when the piece ends with a line and more follows.
    next_line: Option<u64>,
    /// The byte after the last one, when more follows.
    next_byte: Option<u64>,
    total_lines: Option<u64>,
    notes: Vec<&'static str>,
}

impl<'a> Source<'a> {
    fn new(file: &'a mut Regular, size: u64) -> io::Result<Source<'a>> {
        let mut sample = vec![0; SAMPLE];
        let filled = file.fill(&mut sample)?;
        sample.truncate(filled);
        Ok(Source { file, end: size.max(filled as u64), sample })
    }

    fn whole(&self) -> Whole {
        if self.sample.len() < SAMPLE { Whole::Yes } else { Whole::No }
    }

    /// Up to `length` bytes from `start`, and whether the file goes on.
    fn take(
        &mut self,
        start: u64,
        length: Option<u64>,
        budget: usize,
    ) -> io::Result<(Vec<u8>, bool)> {
        let left = self.end.saturating_sub(start);
        let length = length.unwrap_or(left).min(left);
        let length = usize::try_from(length).map_or(budget, |length| length.min(budget));
        self.file.seek(start)?;
        let mut bytes = vec![0; length];
        let filled = self.file.fill(&mut bytes)?;
        bytes.truncate(filled);
        Ok((bytes, filled == length && start + (length as u64) < self.end))
    }

    fn base64(&mut self, part: &Part, budget: usize) -> io::Result<Piece> {
        let start = part.from_byte.unwrap_or(0);
        let (bytes, more) = self.take(start, part.bytes, budget)?;
        let next_byte = more.then(|| start + bytes.len() as u64);
        Ok(Piece { bytes, from_byte: start, next_byte, ..Piece::default() })
    }

    /// The part by bytes, shrunk to whole characters.
    fn bytes(&mut self, part: &Part, decoding: &Decoding, budget: usize) -> io::Result<Piece> {
        let bom = decoding.bom() as u64;
        let asked = part.from_byte.unwrap_or(0).max(bom);
        let mut start = asked - (asked - bom) % decoding.unit() as u64;
        let (mut bytes, more) = self.take(start, part.bytes, budget)?;
        if start > bom {
            let skip = decoding.continued(&bytes);
            bytes.drain(..skip);
            start += skip as u64;
        }
        let mut piece = Piece { from_byte: start, ..Piece::default() };
        if start != asked {
            piece
                .notes
                .push("`from_byte` lay within a character; the text starts at the nearest one");
        }
        let whole = decoding.whole_characters(&bytes);
        // A part smaller than a character must not stand still.
        if more && whole > 0 {
            bytes.truncate(whole);
        }
        piece.next_byte = more.then(|| start + bytes.len() as u64);
        piece.bytes = bytes;
        Ok(piece)
    }

    /// The part by lines.
    fn lines(&mut self, part: &Part, decoding: &Decoding, budget: usize) -> io::Result<Piece> {
        let first = match part.from_line {
            Some(line) if line < 0 => {
                (self.count(decoding)? + 1).saturating_sub(line.unsigned_abs()).max(1)
            }
            Some(line) => line.unsigned_abs(),
            None => 1,
        };
        let mut piece = Piece { from_line: Some(first), ..Piece::default() };
        let mut chunks = Chunks::new(self, decoding)?;
        let mut line = 1;
        let mut open = false;
        while line < first {
            let rest = chunks.rest()?;
            let here = decoding.newlines(rest) as u64;
            let mut skipped = rest.len();
            if line + here < first {
                line += here;
                open = !rest.is_empty() && !ends_line(decoding, rest);
            } else {
                skipped = 0;
                while line < first {
                    skipped += decoding.newline(&rest[skipped..]).unwrap_or(0);
                    line += 1;
                }
                open = false;
            }
            if skipped == 0 {
                break;
            }
            chunks.consume(skipped);
        }
        piece.from_byte = chunks.position();
        if first > 1 && chunks.rest()?.is_empty() {
            piece.total_lines = Some(line - 1 + u64::from(open));
            piece.from_line = None;
            piece.notes.push("the file has fewer lines than `from_line`");
            return Ok(piece);
        }
        let behind = part.lines.map(|lines| first.saturating_add(lines));
        let mut line_start = 0;
        while Some(line) != behind {
            let rest = chunks.rest()?;
            if rest.is_empty() {
                break;
            }
            let end = decoding.newline(rest);
            let length = end.unwrap_or(rest.len());
            let room = budget - piece.bytes.len();
            if length > room {
                if line_start > 0 {
                    // Whole lines are easier to go on from.
                    piece.bytes.truncate(line_start);
                    piece.next_line = Some(line);
                } else {
                    piece.bytes.extend_from_slice(&rest[..room]);
                    piece.bytes.truncate(decoding.whole_characters(&piece.bytes));
                    piece
                        .notes
                        .push("this line is longer than the answer may be: go on with `next_byte`");
                }
                piece.next_byte = Some(piece.from_byte + piece.bytes.len() as u64);
                return Ok(piece);
            }
            piece.bytes.extend_from_slice(&rest[..length]);
            chunks.consume(length);
            if end.is_some() {
                line += 1;
                line_start = piece.bytes.len();
            }
        }
        if chunks.rest()?.is_empty() {
            piece.total_lines = Some(line - 1 + u64::from(piece.bytes.len() > line_start));
        } else {
            piece.next_line = Some(line);
            piece.next_byte = Some(piece.from_byte + piece.bytes.len() as u64);
        }
        Ok(piece)
    }

    /// How many lines there are; the last one needs no line end.
    fn count(&mut self, decoding: &Decoding) -> io::Result<u64> {
        let mut chunks = Chunks::new(self, decoding)?;
        let (mut lines, mut open) = (0, false);
        loop {
            let rest = chunks.rest()?;
            if rest.is_empty() {
                return Ok(lines + u64::from(open));
            }
            lines += decoding.newlines(rest) as u64;
            open = !ends_line(decoding, rest);
            let length = rest.len();
            chunks.consume(length);
        }
    }
}

fn ends_line(decoding: &Decoding, bytes: &[u8]) -> bool {
    decoding.newline(&bytes[bytes.len().saturating_sub(decoding.unit())..]).is_some()
}

impl Piece {
    fn into_answer(self, decoding: &Decoding, form: Form, answer: &mut FilePart) {
        let decoded = decoding.decode(&self.bytes);
        if decoded.replaced {
            answer.notes.push("bytes that are no text in this encoding were replaced by U+FFFD");
        }
        answer.notes.extend(self.notes);
        answer.text = Some(match (form, self.from_line) {
            (Form::Numbered, Some(first)) => numbered(&decoded.text, first),
            _ => decoded.text,
        });
        answer.from_line = self.from_line;
        answer.next_line = self.next_line;
        answer.next_byte = self.next_byte;
        answer.total_lines = self.total_lines;
    }
}

fn numbered(text: &str, first: u64) -> String {
    let mut numbered = String::with_capacity(text.len() + text.len() / 8);
    for (number, line) in (first..).zip(text.split_inclusive('\n')) {
        numbered.push_str(&format!("{number:>6}\t{line}"));
    }
    numbered
}

/// The text of a file from its beginning, in pieces that never split a unit of UTF-16.
#[derive(Debug)]
struct Chunks<'a> {
    file: &'a mut Regular,
    buffer: Vec<u8>,
    /// How much of the buffer was consumed.
    at: usize,
    /// Where the buffer ends in the file.
    position: u64,
    end: u64,
}

impl<'a> Chunks<'a> {
    fn new(source: &'a mut Source<'_>, decoding: &Decoding) -> io::Result<Chunks<'a>> {
        let position = source.sample.len() as u64;
        source.file.seek(position)?;
        let buffer = source.sample[decoding.bom()..].to_vec();
        Ok(Chunks { file: source.file, buffer, at: 0, position, end: source.end })
    }

    /// What comes next; nothing at the end.
    fn rest(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len() && self.position < self.end {
            let length =
                usize::try_from(self.end - self.position).map_or(CHUNK, |left| left.min(CHUNK));
            self.buffer.resize(length, 0);
            let filled = self.file.fill(&mut self.buffer)?;
            self.buffer.truncate(filled);
            self.at = 0;
            self.position += filled as u64;
            if filled < length {
                self.end = self.position;
            }
        }
        Ok(&self.buffer[self.at..])
    }

    fn consume(&mut self, length: usize) {
        self.at += length;
    }

    /// Where the rest begins in the file.
    fn position(&self) -> u64 {
        self.position - (self.buffer.len() - self.at) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::{Path, PathBuf};

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().expect("a directory"))
        }

        fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, bytes).expect("written");
            path
        }
    }

    fn ask(path: &Path, part: Value, rest: Value) -> FilePart {
        let (mut part, mut arguments) = (part, rest);
        part["path"] = json!(path);
        arguments["files"] = json!([part]);
        let arguments: Arguments = serde_json::from_value(arguments).expect("arguments");
        read(&arguments).expect("read").files.remove(0)
    }

    fn text(part: &FilePart) -> &str {
        part.text.as_deref().unwrap_or_else(|| panic!("no text: {part:?}"))
    }

    #[test]
    fn a_small_file_comes_whole() {
        let folder = Folder::new();
        let part = ask(&folder.file("a", "one\ntwo\r\nthree"), json!({}), json!({}));
        assert_eq!(text(&part), "one\ntwo\r\nthree");
        assert_eq!((part.from_line, part.total_lines, part.next_line), (Some(1), Some(3), None));
        assert_eq!((part.size, part.encoding.as_deref(), part.notes.len()), (Some(14), None, 0));
        let empty = ask(&folder.file("b", ""), json!({}), json!({}));
        assert_eq!((text(&empty), empty.total_lines), ("", Some(0)));
    }

    #[test]
    fn lines_can_be_asked_for_from_either_end() {
        let folder = Folder::new();
        let path = folder.file("a", "1\n2\n3\n4\n5\n");
        let lines = |part: Value| {
            let part = ask(&path, part, json!({}));
            (text(&part).to_owned(), part.from_line, part.next_line, part.total_lines)
        };
        assert_eq!(
            lines(json!({"from_line": 2, "lines": 2})),
            ("2\n3\n".into(), Some(2), Some(4), None)
        );
        assert_eq!(lines(json!({"from_line": 4})), ("4\n5\n".into(), Some(4), None, Some(5)));
        assert_eq!(lines(json!({"from_line": -2})), ("4\n5\n".into(), Some(4), None, Some(5)));
        assert_eq!(
            lines(json!({"from_line": -3, "lines": 1})),
            ("3\n".into(), Some(3), Some(4), None)
        );
        assert_eq!(
            lines(json!({"from_line": -99, "lines": 1})),
            ("1\n".into(), Some(1), Some(2), None)
        );
        assert_eq!(
            lines(json!({"from_line": 5, "lines": 1})),
            ("5\n".into(), Some(5), None, Some(5))
        );
        assert_eq!(lines(json!({"from_line": 6})), (String::new(), None, None, Some(5)));
        assert_eq!(lines(json!({"from_line": 99})), (String::new(), None, None, Some(5)));
    }

    #[test]
    fn pages_join_to_the_whole_file() {
        let folder = Folder::new();
        let whole: String = (0..20_000).map(|number| format!("line {number} äöü€\n")).collect();
        for (name, bytes) in [
            ("utf8", whole.clone().into_bytes()),
            ("utf16", {
                let mut bytes = vec![0xff, 0xfe];
                bytes.extend(whole.encode_utf16().flat_map(u16::to_le_bytes));
                bytes
            }),
        ] {
            let path = folder.file(name, &bytes);
            let (mut joined, mut line, mut pages) = (String::new(), 1, 0);
            loop {
                let part = ask(&path, json!({"from_line": line}), json!({"max_bytes": 10_000}));
                assert_eq!(part.from_line, Some(line));
                joined.push_str(text(&part));
                pages += 1;
                match part.next_line {
                    Some(next) => line = next,
                    None => break,
                }
            }
            assert!(joined == whole && pages > 30, "{name}");
            let (mut joined, mut byte) = (String::new(), 0);
            loop {
                let part = ask(&path, json!({"from_byte": byte}), json!({"max_bytes": 10_001}));
                joined.push_str(text(&part));
                match part.next_byte {
                    Some(next) => byte = next,
                    None => break,
                }
            }
            assert!(joined == whole, "{name}");
        }
    }

    #[test]
    fn lines_deep_in_a_large_file_are_found() {
        let folder = Folder::new();
        let whole: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
        let part =
            ask(&folder.file("a", whole), json!({"from_line": 150_000, "lines": 2}), json!({}));
        assert_eq!(text(&part), "150000\n150001\n");
        let next = part.next_byte.expect("more");
        let path = folder.0.path().join("a");
        assert_eq!(
            text(&ask(&path, json!({"from_byte": next, "bytes": 7}), json!({}))),
            "150002\n"
        );
    }

    #[test]
    fn a_line_longer_than_the_answer_is_cut_between_characters_and_goes_on_by_bytes() {
        let folder = Folder::new();
        let path = folder.file("a", "ä".repeat(5_000));
        let part = ask(&path, json!({}), json!({"max_bytes": 1_025}));
        assert_eq!((text(&part).len(), part.next_line, part.next_byte), (1_024, None, Some(1_024)));
        assert!(part.notes[0].contains("next_byte"));
        let rest = ask(&path, json!({"from_byte": 1_025}), json!({}));
        assert_eq!((text(&rest).chars().count(), rest.from_byte), (5_000 - 513, Some(1_026)));
    }

    #[test]
    fn encodings_are_found_named_and_said_when_they_do_not_fit() {
        let folder = Folder::new();
        let latin =
            ask(&folder.file("a", b"gr\xf6\xdfer als gew\xf6hnlich\n"), json!({}), json!({}));
        assert_eq!(
            (text(&latin), latin.encoding.as_deref()),
            ("größer als gewöhnlich\n", Some("windows-1252 (guessed)"))
        );
        let marked = ask(&folder.file("b", b"\xef\xbb\xbfhi"), json!({}), json!({}));
        assert_eq!(
            (text(&marked), marked.encoding.as_deref()),
            ("hi", Some("utf-8 (byte order mark)"))
        );
        let broken = ask(
            &folder.file("c", "äöüäöü \u{0}".replace('\0', "x").as_bytes()),
            json!({}),
            json!({}),
        );
        assert!(broken.notes.is_empty());
        let mut bytes = "äöüäöü ".repeat(10).into_bytes();
        bytes.push(0xff);
        let broken = ask(&folder.file("d", bytes), json!({}), json!({}));
        assert!(text(&broken).ends_with('\u{fffd}') && broken.notes[0].contains("U+FFFD"));
        let asked =
            ask(&folder.file("e", b"\x83e\x83X\x83g"), json!({"encoding": "shift_jis"}), json!({}));
        assert_eq!(text(&asked), "テスト");
        let unknown = ask(&folder.file("f", "x"), json!({"encoding": "klingon"}), json!({}));
        assert!(unknown.error.expect("an error").contains("klingon"));
    }

    #[test]
    fn binary_files_are_said_to_be_and_given_only_as_base64() {
        let folder = Folder::new();
        let path = folder.file("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\x0d");
        let part = ask(&path, json!({}), json!({}));
        assert_eq!((part.text.as_deref(), part.binary.as_deref()), (None, Some("PNG image")));
        let part = ask(&path, json!({"from_byte": 1, "bytes": 3}), json!({"base64": true}));
        assert_eq!((part.base64.as_deref(), part.next_byte), (Some("UE5H"), Some(4)));
        let part = ask(&path, json!({}), json!({"base64": true}));
        assert_eq!((part.base64.map(|text| text.len()), part.next_byte), (Some(16), None));
    }

    #[test]
    fn one_file_that_fails_does_not_spoil_the_others() {
        let folder = Folder::new();
        let (a, b) = (folder.file("a", "A"), folder.file("b", "B"));
        let missing = folder.0.path().join("missing");
        let files = json!([{"path": a}, {"path": missing}, {"path": folder.0.path()}, {"path": b}]);
        let arguments: Arguments =
            serde_json::from_value(json!({"files": files})).expect("arguments");
        let answer = read(&arguments).expect("read");
        assert_eq!((text(&answer.files[0]), text(&answer.files[3])), ("A", "B"));
        assert_eq!(answer.files[1].error.as_deref(), Some("does not exist"));
        assert_eq!(answer.files[2].error.as_deref(), Some("is a directory"));
    }

    #[test]
    fn files_beyond_the_budget_are_said_to_be_left_out() {
        let folder = Folder::new();
        let (a, b) = (folder.file("a", "x\n".repeat(2_000)), folder.file("b", "B"));
        let arguments = json!({"files": [{"path": a}, {"path": b}], "max_bytes": 1_024});
        let answer = read(&serde_json::from_value(arguments).expect("arguments")).expect("read");
        assert_eq!(answer.files[0].next_line, Some(513));
        assert!(answer.files[1].error.as_deref().expect("an error").contains("max_bytes"));
    }

    #[test]
    fn line_numbers_stand_in_front_when_asked_for() {
        let folder = Folder::new();
        let part = ask(
            &folder.file("a", "x\ny\n"),
            json!({"from_line": 2}),
            json!({"line_numbers": true}),
        );
        assert_eq!(text(&part), "     2\ty\n");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = Folder::new();
        let socket = folder.0.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert!(
            ask(&socket, json!({}), json!({}))
                .error
                .expect("an error")
                .contains("a pipe or a socket")
        );
        let link = folder.0.path().join("link");
        std::os::unix::fs::symlink("gone", &link).expect("a link");
        let error = ask(&link, json!({}), json!({})).error.expect("an error");
        assert!(error.contains("symbolic link to `gone`"), "{error}");
    }

    #[test]
    fn senseless_parts_are_refused() {
        let folder = Folder::new();
        let path = folder.file("a", "x");
        for part in
            [json!({"from_line": 1, "from_byte": 1}), json!({"from_line": 0}), json!({"lines": 0})]
        {
            assert!(ask(&path, part, json!({})).error.is_some());
        }
        for wrong in
            [json!({"files": []}), json!({"files": [{"path": "/x"}], "max_bytes": 9_999_999})]
        {
            let arguments = serde_json::from_value(wrong).expect("arguments");
            assert_eq!(read(&arguments).expect_err("wrong").code, Failure::INVALID);
        }
    }
}
