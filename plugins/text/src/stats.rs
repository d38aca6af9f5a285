//! The tool `stats`: lines, words, characters, encoding and line ends.

use checkrein_guest::prelude::*;
use checkrein_reading::{CHUNK, Content, Regular, SAMPLE, Whole, look, paths};

use crate::batch::{self, Batch, Entry};
use crate::counter::Counter;

/// What to count.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// A text to count.
    #[serde(default)]
    text: Option<String>,
    /// In place of `text`: files to count, up to 10000.
    #[serde(default)]
    paths: Vec<String>,
}

/// The counts of one text.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counts {
    /// The file, as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Why there are no counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Its size.
    bytes: u64,
    /// What sort of binary data it is; there are no counts then.
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<&'static str>,
    /// The counts of a text.
    #[serde(flatten)]
    text: Option<TextCounts>,
}

/// The counts of something that is text.
#[derive(Debug, Serialize)]
struct TextCounts {
    /// Lines; the last one needs no line end.
    lines: u64,
    /// Lines with nothing but white space.
    blank_lines: u64,
    /// What stands between white space.
    words: u64,
    /// Characters, line ends included.
    characters: u64,
    /// The longest line, in characters.
    longest_line: u64,
    /// The number of that line.
    longest_line_number: u64,
    /// Such as `utf-8`; says when it is a guess.
    encoding: String,
    /// `lf`, `crlf`, `cr`, `mixed` or `none`.
    line_ends: &'static str,
    /// Whether the last line has an end.
    final_line_end: bool,
    /// Bytes that are no text in this encoding were counted as one character each, or each group of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    broken: bool,
}

impl Entry for Counts {
    fn failed(path: &str, error: String) -> Counts {
        Counts { path: Some(path.to_owned()), error: Some(error), ..Counts::default() }
    }

    fn weight(&self) -> usize {
        if self.text.is_some() { 260 } else { 100 }
    }
}

/// Counts texts.
#[derive(Debug)]
pub struct Stats;

impl Tool for Stats {
    const NAME: &str = "stats";
    const DESCRIPTION: &str = "Counts lines, blank lines, words and characters, finds the longest line, the encoding \
        and the kind of line ends, of a text or of many files in one call. Answers with JSON. Binary files are named \
        as such and not counted; a file that cannot be read has an `error`, and the others are counted all the same.";
    const HINTS: &[Hint] = &[Hint::ReadOnly, Hint::Idempotent];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
        Output::json(&stats(&arguments)?)
    }
}

pub(crate) fn stats(arguments: &Arguments) -> Result<Batch<Counts>, Failure> {
    batch::check(arguments.text.as_ref(), &arguments.paths)?;
    if let Some(text) = &arguments.text {
        let mut counter = Counter::default();
        counter.push(text);
        let text_counts = TextCounts::new(counter, "utf-8".to_owned(), false);
        let counts =
            Counts { bytes: text.len() as u64, text: Some(text_counts), ..Counts::default() };
        return Ok(Batch { results: vec![counts], next_path: None });
    }
    let mut buffer = vec![0; CHUNK];
    let count = |path: &str, file: Regular, _| count(path, file, &mut buffer);
    Ok(batch::each(&arguments.paths, u64::MAX, count))
}

fn count(path: &str, mut file: Regular, buffer: &mut [u8]) -> Result<Counts, String> {
    let mut counts = Counts { path: Some(path.to_owned()), ..Counts::default() };
    let (mut counter, mut stream, mut encoding) = (Counter::default(), None, String::new());
    let mut text = String::new();
    loop {
        let filled = file.fill(buffer).map_err(|error| paths::reason(&error))?;
        let whole = if filled < buffer.len() { Whole::Yes } else { Whole::No };
        let piece = &buffer[..filled];
        counts.bytes += filled as u64;
        let stream = match &mut stream {
            Some(stream) => stream,
            None => {
                let sample = &piece[..piece.len().min(SAMPLE)];
                let complete = if sample.len() == piece.len() { whole } else { Whole::No };
                match look(sample, complete) {
                    Content::Text(decoding) => {
                        encoding = decoding.describe();
                        stream.insert(decoding.stream())
                    }
                    Content::Binary(kind) => {
                        counts.binary = Some(kind);
                        counts.bytes = file.size().map_err(|error| paths::reason(&error))?;
                        return Ok(counts);
                    }
                }
            }
        };
        text.clear();
        stream.push(piece, whole, &mut text);
        counter.push(&text);
        if whole == Whole::Yes {
            counts.text = Some(TextCounts::new(counter, encoding, stream.replaced()));
            return Ok(counts);
        }
    }
}

impl TextCounts {
    fn new(mut counter: Counter, encoding: String, broken: bool) -> TextCounts {
        let final_line_end = counter.finish();
        TextCounts {
            lines: counter.lines,
            blank_lines: counter.blank,
            words: counter.words,
            characters: counter.characters,
            longest_line: counter.longest.0,
            longest_line_number: counter.longest.1,
            encoding,
            line_ends: counter.line_ends(),
            final_line_end,
            broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn ask(arguments: Value) -> Value {
        let arguments = serde_json::from_value(arguments).expect("arguments");
        serde_json::to_value(stats(&arguments).expect("counted")).expect("json")
    }

    #[test]
    fn a_text_is_counted_as_it_is() {
        let answer = ask(json!({"text": "two words\nänd\n"}));
        assert_eq!(
            answer["results"][0],
            json!({
                "bytes": 15, "lines": 2, "blank_lines": 0, "words": 3, "characters": 14, "longest_line": 9,
                "longest_line_number": 1, "encoding": "utf-8", "line_ends": "lf", "final_line_end": true
            })
        );
    }

    #[test]
    fn files_of_every_sort_are_told_apart_in_one_call() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("written");
            path
        };
        let paths = [
            file("a", b"a\r\nb"),
            file("b", b"\xff\xfea\0\n\0"),
            file("c", b"\0\x01\x02"),
            folder.path().join("gone"),
            file("e", b""),
            file("f", &[&b"\xc3\xa4\xc3\xb6\xc3\xbc".repeat(5)[..], b"\xff"].concat()),
        ];
        let answer = ask(json!({"paths": paths}));
        let of = |place: usize, name: &str| answer["results"][place][name].clone();
        assert_eq!(
            (of(0, "line_ends"), of(0, "lines"), of(0, "final_line_end")),
            (json!("crlf"), json!(2), json!(false))
        );
        assert_eq!(
            (of(1, "encoding"), of(1, "characters")),
            (json!("utf-16le (byte order mark)"), json!(2))
        );
        assert_eq!(
            (of(2, "binary"), of(2, "bytes"), of(2, "lines")),
            (json!("binary data"), json!(3), Value::Null)
        );
        assert_eq!(of(3, "error"), json!("does not exist"));
        assert_eq!((of(4, "lines"), of(4, "line_ends")), (json!(0), json!("none")));
        assert_eq!((of(5, "broken"), of(5, "characters")), (json!(true), json!(16)));
    }

    #[test]
    fn a_large_file_is_counted_in_pieces() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("a");
        fs::write(&path, "äöü wörter\r\n".repeat(100_000)).expect("written");
        let answer = ask(json!({"paths": [path]}));
        assert_eq!(answer["results"][0]["lines"], 100_000);
        assert_eq!(answer["results"][0]["words"], 200_000);
        assert_eq!(answer["results"][0]["characters"], 1_200_000);
        assert_eq!(answer["results"][0]["line_ends"], "crlf");
    }

    #[test]
    fn senseless_arguments_are_refused() {
        for wrong in [json!({}), json!({"text": "a", "paths": ["/b"]})] {
            let arguments = serde_json::from_value(wrong).expect("arguments");
            assert_eq!(stats(&arguments).expect_err("refused").code, Failure::INVALID);
        }
        let many = json!({"paths": vec!["/a"; 10_001]});
        let failure =
            stats(&serde_json::from_value(many).expect("arguments")).expect_err("refused");
        assert_eq!(failure.code, Failure::TOO_LARGE);
    }
}
