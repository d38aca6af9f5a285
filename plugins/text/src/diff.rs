//! The tool `diff`: how one text becomes another.

use std::time::Duration;

use checkrein_guest::prelude::*;
use checkrein_reading::{Content, Decoding, SAMPLE, Whole, look, paths};
use similar::{ChangeTag, TextDiff};

use crate::batch;

/// Texts up to this size and this many lines are compared; what it takes grows faster than they do.
const MAX_BYTES: usize = 2 << 20;
const MAX_LINES: usize = 100_000;
/// A diff is cut behind this many bytes.
const MAX_DIFF: usize = 400 << 10;
/// A line of it is cut behind this many bytes.
const MAX_LINE: usize = 2 << 10;
/// After this time a diff is still right, but may be longer than it need be.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to compare.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The old text.
    #[serde(default)]
    old_text: Option<String>,
    /// In place of `old_text`: the file with the old text.
    #[serde(default)]
    old_path: Option<String>,
    /// The new text.
    #[serde(default)]
    new_text: Option<String>,
    /// In place of `new_text`: the file with the new text.
    #[serde(default)]
    new_path: Option<String>,
    /// How many unchanged lines to show around each change, up to 100.
    #[serde(default = "three")]
    context: u32,
    /// Take all line ends for the same.
    #[serde(default)]
    ignore_line_ends: bool,
}

fn three() -> u32 {
    3
}

/// How the texts differ.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    /// They do not.
    equal: bool,
    /// How many lines are only in the new text.
    added: usize,
    /// How many lines are only in the old text.
    removed: usize,
    /// The changes as a unified diff.
    #[serde(skip_serializing_if = "String::is_empty")]
    diff: String,
    /// The diff goes on, and was cut here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    /// What is odd about the texts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Compares texts.
#[derive(Debug)]
pub struct Diff;

impl Tool for Diff {
    const NAME: &str = "diff";
    const DESCRIPTION: &str = "Compares two texts or files line by line and gives the changes as a unified diff, in \
        JSON, with the numbers of added and removed lines. Files in different encodings are compared as text; of \
        binary files it only says whether they are equal.";
    const HINTS: &[Hint] = &[Hint::ReadOnly, Hint::Idempotent];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
        Output::json(&diff(&arguments)?)
    }
}

pub(crate) fn diff(arguments: &Arguments) -> Result<Answer, Failure> {
    if arguments.context > 100 {
        return Err(Failure::invalid(format!(
            "`context` is {}; it must be from 0 to 100",
            arguments.context
        )));
    }
    let old = Side::load("old", arguments.old_text.as_deref(), arguments.old_path.as_deref())?;
    let new = Side::load("new", arguments.new_text.as_deref(), arguments.new_path.as_deref())?;
    let mut answer = Answer { equal: old.bytes == new.bytes, ..Answer::default() };
    if answer.equal {
        return Ok(answer);
    }
    let (Some(old_text), Some(new_text)) = (old.text(&mut answer)?, new.text(&mut answer)?) else {
        answer.notes.push(format!(
            "the bytes differ: {} of them before, {} now",
            old.bytes.len(),
            new.bytes.len()
        ));
        return Ok(answer);
    };
    let (old_text, new_text) = if arguments.ignore_line_ends {
        (with_plain_ends(&old_text), with_plain_ends(&new_text))
    } else {
        (old_text, new_text)
    };
    if old_text == new_text {
        answer.equal = arguments.ignore_line_ends;
        answer.notes.push("the texts are the same; they are stored with other bytes".to_owned());
        return Ok(answer);
    }
    if with_plain_ends(&old_text) == with_plain_ends(&new_text) {
        answer.notes.push(
            "only the line ends differ: `ignore_line_ends` takes them for the same".to_owned(),
        );
    }
    let changes =
        TextDiff::configure().timeout(PATIENCE).diff_lines(old_text.as_str(), new_text.as_str());
    for change in changes.iter_all_changes() {
        match change.tag() {
            ChangeTag::Insert => answer.added += 1,
            ChangeTag::Delete => answer.removed += 1,
            ChangeTag::Equal => {}
        }
    }
    let mut unified = changes.unified_diff();
    unified.context_radius(arguments.context as usize);
    let mut text = format!("--- {}\n+++ {}\n", old.name, new.name);
    'all: for hunk in unified.iter_hunks() {
        push(&mut text, format_args!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            if text.len() > MAX_DIFF {
                answer.cut = true;
                break 'all;
            }
            let line = change.value();
            let shown = whole_characters(line, MAX_LINE);
            let cut = if shown.len() < line.len() { "… (a long line, cut)\n" } else { "" };
            push(&mut text, format_args!("{}{shown}{cut}", change.tag()));
            if cut.is_empty() && change.missing_newline() {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    answer.diff = text;
    Ok(answer)
}

fn push(text: &mut String, words: std::fmt::Arguments<'_>) {
    text.push_str(&words.to_string());
}

fn whole_characters(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn with_plain_ends(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// One of the two texts.
struct Side {
    name: String,
    bytes: Vec<u8>,
    /// Bytes that were already text when they came.
    plain: bool,
}

impl Side {
    fn load(side: &str, text: Option<&str>, path: Option<&str>) -> Result<Side, Failure> {
        match (text, path) {
            (Some(text), None) => {
                Ok(Side { name: side.to_owned(), bytes: text.as_bytes().to_vec(), plain: true })
            }
            (None, Some(path)) => {
                let unreadable =
                    |why: String| Failure::failed(format!("cannot read {path}: {why}"));
                let (mut file, size) = batch::open(path).map_err(unreadable)?;
                if size > MAX_BYTES as u64 {
                    let message = format!(
                        "{path} has {size} bytes; texts up to {MAX_BYTES} bytes can be compared"
                    );
                    return Err(Failure::too_large(message));
                }
                let mut bytes = vec![0; MAX_BYTES];
                let filled =
                    file.fill(&mut bytes).map_err(|error| unreadable(paths::reason(&error)))?;
                bytes.truncate(filled);
                bytes.shrink_to_fit();
                Ok(Side { name: path.to_owned(), bytes, plain: false })
            }
            (Some(_), Some(_)) => {
                Err(Failure::invalid(format!("`{side}_text` and `{side}_path` exclude each other")))
            }
            (None, None) => Err(Failure::invalid(format!("give `{side}_text` or `{side}_path`"))),
        }
    }

    /// The text; none when it is binary data.
    fn text(&self, answer: &mut Answer) -> Result<Option<String>, Failure> {
        let name = &self.name;
        let decoding = if self.plain {
            Decoding::utf8()
        } else {
            let whole = if self.bytes.len() <= SAMPLE { Whole::Yes } else { Whole::No };
            match look(&self.bytes[..self.bytes.len().min(SAMPLE)], whole) {
                Content::Text(decoding) => decoding,
                Content::Binary(kind) => {
                    answer.notes.push(format!("{name} is not text: {kind}"));
                    return Ok(None);
                }
            }
        };
        if !decoding.is_utf8() || decoding.bom() > 0 {
            answer.notes.push(format!("{name} is {}", decoding.describe()));
        }
        let piece = decoding.decode(&self.bytes[decoding.bom()..]);
        if piece.replaced {
            answer
                .notes
                .push(format!("{name} has bytes that are no text; they are shown as U+FFFD"));
        }
        let lines = piece.text.bytes().filter(|byte| *byte == b'\n').count();
        if lines > MAX_LINES {
            return Err(Failure::too_large(format!(
                "{name} has {lines} lines; up to {MAX_LINES} can be compared"
            )));
        }
        Ok(Some(piece.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    fn ask(arguments: Value) -> Result<Answer, Failure> {
        diff(&serde_json::from_value(arguments).expect("arguments"))
    }

    fn texts(old: &str, new: &str) -> Answer {
        ask(json!({"old_text": old, "new_text": new})).expect("compared")
    }

    fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("written");
        path
    }

    #[test]
    fn changes_are_shown_as_a_unified_diff() {
        let answer = texts("a\nb\nc\nd\ne\nf\n", "a\nb\nx\nd\ne\nf\ng");
        assert_eq!((answer.equal, answer.added, answer.removed), (false, 2, 1));
        assert_eq!(
            answer.diff,
            "--- old\n+++ new\n@@ -1,6 +1,7 @@\n a\n b\n-c\n+x\n d\n e\n f\n+g\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn equal_texts_have_no_diff() {
        let answer = texts("a\n", "a\n");
        assert_eq!((answer.equal, answer.diff.as_str()), (true, ""));
    }

    #[test]
    fn files_are_compared_as_text_whatever_their_encoding() {
        let folder = tempfile::tempdir().expect("a directory");
        let old = file(&folder, "old", "größer\n".as_bytes());
        let wide: Vec<u8> = [0xff, 0xfe]
            .into_iter()
            .chain("größer\nneu\n".encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        let new = file(&folder, "new", &wide);
        let answer = ask(json!({"old_path": old, "new_path": new})).expect("compared");
        assert_eq!((answer.added, answer.removed), (1, 0));
        assert!(answer.notes[0].contains("utf-16le"));
        let wide: Vec<u8> = [0xff, 0xfe]
            .into_iter()
            .chain("größer\n".encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        let same = file(&folder, "same", &wide);
        let answer = ask(json!({"old_path": old, "new_path": same})).expect("compared");
        assert!(!answer.equal && answer.notes[1].contains("stored with other bytes"));
    }

    #[test]
    fn line_ends_can_be_taken_for_the_same() {
        let answer = texts("a\r\nb\r\n", "a\nb\n");
        assert_eq!((answer.added, answer.removed), (2, 2));
        assert!(answer.notes[0].contains("ignore_line_ends"));
        let ignored =
            json!({"old_text": "a\r\nb\r\n", "new_text": "a\nb\n", "ignore_line_ends": true});
        assert!(ask(ignored).expect("compared").equal);
    }

    #[test]
    fn binary_files_are_only_said_to_differ() {
        let folder = tempfile::tempdir().expect("a directory");
        let (old, new) = (file(&folder, "old", b"a\0b"), file(&folder, "new", b"a\0bc"));
        let answer = ask(json!({"old_path": old, "new_path": new})).expect("compared");
        assert_eq!((answer.equal, answer.diff.as_str(), answer.notes.len()), (false, "", 3));
        assert!(answer.notes[2].contains("3 of them before, 4 now"));
    }

    #[test]
    fn a_large_diff_and_a_long_line_are_cut_and_said_to_be() {
        let old: String = (0..60_000).map(|number| format!("old {number}\n")).collect();
        let new: String = (0..60_000).map(|number| format!("new {number}\n")).collect();
        let answer = texts(&old, &new);
        assert_eq!((answer.cut, answer.added, answer.removed), (true, 60_000, 60_000));
        assert!(answer.diff.len() < MAX_DIFF + 2 * MAX_LINE);
        let answer = texts("a\n", &"ä".repeat(100_000));
        assert!(
            answer.diff.len() < 3_000 && answer.diff.ends_with("(a long line, cut)\n"),
            "{}",
            answer.diff.len()
        );
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let large = file(&folder, "large", &vec![b'x'; MAX_BYTES + 1]);
        let failure = ask(json!({"old_path": large, "new_text": ""})).expect_err("large");
        assert_eq!(failure.code, Failure::TOO_LARGE);
        let failure = ask(json!({"old_text": "\n".repeat(MAX_LINES + 1), "new_text": ""}))
            .expect_err("many lines");
        assert_eq!(failure.code, Failure::TOO_LARGE);
    }

    #[test]
    fn each_side_is_a_text_or_a_path() {
        for wrong in [
            json!({"old_text": ""}),
            json!({"old_text": "", "old_path": "/a", "new_text": ""}),
            json!({"old_text": "", "new_text": "", "context": 101}),
        ] {
            assert_eq!(ask(wrong).expect_err("refused").code, Failure::INVALID);
        }
        assert!(
            ask(json!({"old_path": "/no/such/file", "new_text": ""}))
                .expect_err("gone")
                .message
                .contains("does not exist")
        );
    }
}
