//! The tool `write`: making, replacing, extending and editing files, without losing what was there.
//!
//! New content goes into a file of its own beside the target first, and takes the target's place in one step. So a
//! failure, or the end of the run in the middle of it, leaves either the old file or the new one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use checkrein_guest::prelude::*;
use checkrein_reading::{Content, Decoding, Regular, SAMPLE, Unreadable, Whole, look, paths};
use memchr::memmem;

/// Files up to this size can be edited.
const MAX_EDIT: usize = 8 << 20;

/// What to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The file, such as `/work/src/main.rs`.
    path: String,
    /// `create` a file that is not there yet (the default, which never overwrites anything), `overwrite` one that may
    /// be there, `append` to its end, or `replace` parts of it, as `edits` say.
    #[serde(default)]
    mode: Mode,
    /// The text to write; for all modes but `replace`. It is written as UTF-8, or appended in the encoding of the
    /// file. Line ends are written as they are.
    #[serde(default)]
    content: Option<String>,
    /// In place of `content`: bytes as base64, for files that are not text.
    #[serde(default)]
    content_base64: Option<String>,
    /// For the mode `replace`: what to replace, one after the other. Nothing is written unless all of them fit.
    #[serde(default)]
    edits: Vec<Edit>,
    /// Make missing directories on the way.
    #[serde(default = "yes")]
    parents: bool,
    /// Write into an existing file in place of exchanging it for a new one. That keeps its permissions (such as being
    /// executable) and its other names, but a failure at the wrong moment can leave it half written. Left out: only
    /// for scripts, which begin with `#!`.
    #[serde(default)]
    in_place: Option<bool>,
}

fn yes() -> bool {
    true
}

/// What to do with the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// Make a file that is not there yet.
    #[default]
    Create,
    /// Make it, or replace all of it.
    Overwrite,
    /// Add to its end; make it if it is not there.
    Append,
    /// Replace parts of it.
    Replace,
}

/// A part of a file that gives way to another.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The exact text to replace, with all its spaces and line ends; enough of it that it is the only place.
    old: String,
    /// The text that takes its place.
    new: String,
    /// How often `old` must be in the file: all of these are replaced, and any other number is refused. 0: as often
    /// as it is there, but at least once.
    #[serde(default = "once")]
    count: u32,
}

fn once() -> u32 {
    1
}

/// What was written.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    /// The file.
    path: String,
    /// It was not there before.
    created: bool,
    /// Its size now, in bytes.
    size: u64,
    /// How many places each edit replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replaced: Vec<usize>,
    /// What was done differently than one might think.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Writes files.
#[derive(Debug)]
pub struct Write;

impl Tool for Write {
    const NAME: &str = "write";
    const DESCRIPTION: &str = "Writes a file: creates it, overwrites it, appends to it, or replaces exact pieces of \
        its text. Creating never overwrites; replacing checks how often the old text is there, and changes nothing \
        when that is not what was expected. Missing directories are made. The old content stays whole until the new \
        one is. Needs a directory that was granted for writing.";
    const HINTS: &[Hint] = &[Hint::Destructive];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
        Output::json(&write(&arguments)?)
    }
}

pub(crate) fn write(arguments: &Arguments) -> Result<Answer, Failure> {
    let path = paths::resolve(&arguments.path)?.path(&arguments.path)?;
    let content = arguments.bytes()?;
    let old = Old::at(&path)?;
    if arguments.mode == Mode::Create && old == Old::File {
        let message = format!(
            "{} exists already: use the mode `overwrite`, `append` or `replace`",
            paths::show(&path)
        );
        return Err(Failure::invalid(message));
    }
    if arguments.mode == Mode::Replace && old == Old::Nothing {
        return Err(paths::failure("edit", &path, &io::ErrorKind::NotFound.into()));
    }
    if old == Old::Nothing
        && arguments.parents
        && let Some(parent) = path.parent()
        && !parent.is_dir()
    {
        fs::create_dir_all(parent)
            .map_err(|error| refused("make the directory", parent, &error))?;
    }
    let mut answer =
        Answer { path: paths::show(&path), created: old == Old::Nothing, ..Answer::default() };
    match (arguments.mode, old) {
        (Mode::Append, Old::File) => {
            let content = match &arguments.content {
                Some(text) => in_encoding_of(&path, text, &mut answer)?,
                None => content,
            };
            append(&path, &content)?;
        }
        (Mode::Create | Mode::Append | Mode::Overwrite, Old::Nothing) => {
            Beside::write(&path, &content)?.settle(&path, arguments.mode)?;
        }
        (Mode::Replace, _) => {
            let edited = edit(&path, &arguments.edits, &mut answer)?;
            exchange(&path, &edited, arguments.in_place)?;
        }
        (Mode::Overwrite | Mode::Create, Old::File) => {
            exchange(&path, &content, arguments.in_place)?
        }
    }
    answer.size =
        fs::metadata(&path).map_err(|error| paths::failure("look at", &path, &error))?.len();
    Ok(answer)
}

impl Arguments {
    /// The bytes to write, once it is clear that the arguments make sense together.
    fn bytes(&self) -> Result<Vec<u8>, Failure> {
        match (&self.content, &self.content_base64, self.edits.is_empty(), self.mode) {
            (None, None, false, Mode::Replace) => Ok(Vec::new()),
            (_, _, _, Mode::Replace) => {
                Err(Failure::invalid("the mode `replace` takes `edits` and no content"))
            }
            (_, _, false, _) => Err(Failure::invalid("`edits` are for the mode `replace` only")),
            (Some(text), None, true, _) => Ok(text.clone().into_bytes()),
            (None, Some(text), true, _) => BASE64_STANDARD.decode(text.trim()).map_err(|error| {
                Failure::invalid(format!("`content_base64` is not base64: {error}"))
            }),
            (Some(_), Some(_), true, _) => {
                Err(Failure::invalid("`content` and `content_base64` exclude each other"))
            }
            (None, None, true, _) => {
                Err(Failure::invalid("give the text as `content`; it may be empty"))
            }
        }
    }
}

/// What is at the path before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Old {
    Nothing,
    File,
}

impl Old {
    fn at(path: &Path) -> Result<Old, Failure> {
        let kind = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Old::Nothing),
            Err(error) => return Err(refused("write", path, &error)),
        };
        let shown = paths::show(path);
        if kind.is_symlink() {
            let target = match fs::read_link(path) {
                Ok(target) => {
                    format!("to `{}`: write to the file that it stands for", paths::show(&target))
                }
                Err(_) => "that leads out of the granted directories".to_owned(),
            };
            let message = format!("{shown} is a symbolic link {target}");
            return Err(Failure::invalid(message));
        }
        if kind.is_dir() {
            return Err(Failure::invalid(format!("{shown} is a directory")));
        }
        if !kind.is_file() {
            return Err(Failure::invalid(format!("{shown} {}", Unreadable::Special.reason())));
        }
        // A new file could take the place of one that must not be written; but that is not what it means.
        File::options().write(true).open(path).map_err(|error| refused("write", path, &error))?;
        Ok(Old::File)
    }
}

/// New content in a file of its own, beside the one that it is for.
#[derive(Debug)]
struct Beside {
    path: PathBuf,
}

impl Beside {
    fn write(target: &Path, content: &[u8]) -> Result<Beside, Failure> {
        let name: String = target
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or_default()
            .chars()
            .take(40)
            .collect();
        let number = RandomState::new().hash_one(name.as_str());
        let path = target.with_file_name(format!(".{name}.{number:016x}.tmp"));
        let mut file = File::create_new(&path).map_err(|error| refused("write", target, &error))?;
        let beside = Beside { path };
        file.write_all(content)
            .and_then(|()| file.sync_all())
            .map_err(|error| beside.drop_for(refused("write", target, &error)))?;
        Ok(beside)
    }

    /// Takes the place of the target, in one step.
    fn settle(self, target: &Path, mode: Mode) -> Result<(), Failure> {
        if mode == Mode::Create {
            // A second name, unlike a new name, is never given to a file that exists meanwhile.
            match fs::hard_link(&self.path, target) {
                Ok(()) => {
                    remove(&self.path);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(self.drop_for(refused("create", target, &error)));
                }
                // Not every file system has second names.
                Err(_) => {}
            }
        }
        fs::rename(&self.path, target)
            .map_err(|error| self.drop_for(refused("write", target, &error)))
    }

    /// Cleans up after what went wrong.
    fn drop_for(&self, failure: Failure) -> Failure {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let left =
                    format!("{}; {} was left behind", failure.message, paths::show(&self.path));
                Failure { message: left, ..failure }
            }
            _ => failure,
        }
    }
}

/// Removes a file that has done its work. What was asked for is done, even if this fails.
fn remove(beside: &Path) {
    drop(fs::remove_file(beside));
}

/// Gives an existing file new content.
fn exchange(path: &Path, content: &[u8], in_place: Option<bool>) -> Result<(), Failure> {
    let in_place = match in_place {
        Some(in_place) => in_place,
        None => is_script(path),
    };
    let beside = Beside::write(path, content)?;
    if !in_place {
        return beside.settle(path, Mode::Overwrite);
    }
    let written = File::options().write(true).open(path).and_then(|mut file| {
        file.write_all(content)?;
        file.set_len(content.len() as u64)?;
        file.sync_all()
    });
    match written {
        Ok(()) => {
            remove(&beside.path);
            Ok(())
        }
        Err(error) => {
            let failure = refused("write", path, &error);
            let message = format!(
                "{}; the new content is whole in {}",
                failure.message,
                paths::show(&beside.path)
            );
            Err(Failure { message, ..failure })
        }
    }
}

fn is_script(path: &Path) -> bool {
    let mut start = [0; 2];
    Regular::found(path).is_ok_and(|mut file| file.fill(&mut start).is_ok() && start == *b"#!")
}

/// A failure to write, with the likely reason.
fn refused(doing: &str, path: &Path, error: &io::Error) -> Failure {
    let failure = paths::failure(doing, path, error);
    if failure.code != Failure::DENIED {
        return failure;
    }
    let message = format!("{} (it may be granted for reading only)", failure.message);
    Failure { message, ..failure }
}

fn append(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let appended = File::options().append(true).open(path).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    appended.map_err(|error| refused("append to", path, &error))
}

/// The text as bytes in the encoding that the file has.
fn in_encoding_of(path: &Path, text: &str, answer: &mut Answer) -> Result<Vec<u8>, Failure> {
    let mut sample = vec![0; SAMPLE];
    let unreadable = |why: Unreadable| {
        Failure::failed(format!("cannot read {}: {}", paths::show(path), why.reason()))
    };
    let filled = Regular::found(path)
        .and_then(|mut file| Ok(file.fill(&mut sample)?))
        .map_err(unreadable)?;
    let whole = if filled < SAMPLE { Whole::Yes } else { Whole::No };
    match look(&sample[..filled], whole) {
        Content::Text(decoding) if !decoding.is_utf8() => {
            answer
                .notes
                .push(format!("written in the encoding of the file: {}", decoding.describe()));
            encode(&decoding, text)
        }
        Content::Text(_) | Content::Binary(_) => Ok(text.as_bytes().to_vec()),
    }
}

fn encode(decoding: &Decoding, text: &str) -> Result<Vec<u8>, Failure> {
    decoding.encode(text).ok_or_else(|| {
        let name = decoding.describe();
        Failure::invalid(format!(
            "the text has characters that the encoding of the file, {name}, does not have"
        ))
    })
}

/// The content of the file after all edits.
fn edit(path: &Path, edits: &[Edit], answer: &mut Answer) -> Result<Vec<u8>, Failure> {
    let unreadable = |why: Unreadable| {
        Failure::failed(format!("cannot edit {}: {}", paths::show(path), why.reason()))
    };
    let (mut file, size) = Regular::open(path).map_err(unreadable)?;
    let shown = paths::show(path);
    let fits = usize::try_from(size).ok().filter(|size| *size <= MAX_EDIT).ok_or_else(|| {
        Failure::too_large(format!(
            "{shown} has {size} bytes; files up to {MAX_EDIT} bytes can be edited"
        ))
    })?;
    // One byte more tells whether it has grown meanwhile.
    let mut content = vec![0; fits + 1];
    let filled = file.fill(&mut content).map_err(|error| paths::failure("read", path, &error))?;
    if filled > fits {
        return Err(Failure::failed(format!(
            "{shown} is being written by somebody else; nothing was done to it"
        )));
    }
    content.truncate(filled);
    let decoding = match look(&content[..content.len().min(SAMPLE)], Whole::No) {
        Content::Text(decoding) => decoding,
        Content::Binary(kind) => {
            let message =
                format!("{} is not text ({kind}): it can only be overwritten", paths::show(path));
            return Err(Failure::invalid(message));
        }
    };
    for (place, edit) in edits.iter().enumerate() {
        let (edited, count) = edit.apply(&content, &decoding, answer).map_err(|failure| {
            let which = if edits.len() > 1 {
                format!("edit {} of {}: ", place + 1, edits.len())
            } else {
                String::new()
            };
            let message = format!(
                "{which}{} (nothing was written to {})",
                failure.message,
                paths::show(path)
            );
            Failure { message, ..failure }
        })?;
        content = edited;
        answer.replaced.push(count);
    }
    Ok(content)
}

impl Edit {
    /// The content after this edit, and how many places it replaced.
    fn apply(
        &self,
        content: &[u8],
        decoding: &Decoding,
        answer: &mut Answer,
    ) -> Result<(Vec<u8>, usize), Failure> {
        if self.old.is_empty() {
            return Err(Failure::invalid("`old` is empty"));
        }
        let (mut old, mut new) = (encode(decoding, &self.old)?, encode(decoding, &self.new)?);
        let mut places = find(content, &old, decoding.unit());
        if places.is_empty() && self.old.contains('\n') && !self.old.contains('\r') {
            // Who reads lines does not see how they end.
            let crlf =
                |text: &str| encode(decoding, &text.replace("\r\n", "\n").replace('\n', "\r\n"));
            (old, new) = (crlf(&self.old)?, crlf(&self.new)?);
            places = find(content, &old, decoding.unit());
            if !places.is_empty() {
                answer.notes.push(
                    "the lines of the file end in \\r\\n; `old` and `new` were adapted".to_owned(),
                );
            }
        }
        let wanted = self.count as usize;
        if places.is_empty() {
            return Err(Failure::invalid(format!(
                "`old` is not in the file{}",
                self.hint(content, decoding)
            )));
        }
        if wanted != 0 && places.len() != wanted {
            let lines: Vec<String> = places
                .iter()
                .take(10)
                .map(|at| line_of(content, *at, decoding).to_string())
                .collect();
            return Err(Failure::invalid(format!(
                "`old` is in the file {} times and not {wanted}, first at line {}: make `old` longer, or set `count`",
                places.len(),
                lines.join(", ")
            )));
        }
        let mut edited = Vec::with_capacity(content.len());
        let mut from = 0;
        for at in &places {
            edited.extend_from_slice(&content[from..*at]);
            edited.extend_from_slice(&new);
            from = at + old.len();
        }
        edited.extend_from_slice(&content[from..]);
        Ok((edited, places.len()))
    }

    /// Where something like `old` is, when its first line is there.
    fn hint(&self, content: &[u8], decoding: &Decoding) -> String {
        let first = self.old.lines().map(str::trim).find(|line| !line.is_empty());
        let place = first
            .and_then(|line| decoding.encode(line))
            .and_then(|line| find(content, &line, decoding.unit()).first().copied());
        match place {
            Some(at) => format!(
                ", but its first line is, at line {}: read that part again and copy it with all its spaces",
                line_of(content, at, decoding)
            ),
            None => ": read the file again".to_owned(),
        }
    }
}

/// Where `old` is in the content; places do not overlap.
fn find(content: &[u8], old: &[u8], unit: usize) -> Vec<usize> {
    let finder = memmem::Finder::new(old);
    let (mut places, mut from) = (Vec::new(), 0);
    while let Some(at) = finder.find(&content[from..]).map(|at| from + at) {
        if at % unit == 0 {
            places.push(at);
            from = at + old.len();
        } else {
            from = at + 1;
        }
    }
    places
}

fn line_of(content: &[u8], at: usize, decoding: &Decoding) -> usize {
    decoding.newlines(&content[..at]) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    fn ask(path: &Path, mut rest: Value) -> Result<Answer, Failure> {
        rest["path"] = json!(path);
        write(&serde_json::from_value(rest).expect("arguments"))
    }

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.expect("an entry").file_name().into_string().expect("utf-8")
        };
        let mut names: Vec<String> = fs::read_dir(folder).expect("listed").map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_made_with_its_directories_and_nothing_else_is_left() {
        let folder = folder();
        let path = folder.path().join("a/b/c.txt");
        let answer = ask(&path, json!({"content": "hi\n"})).expect("written");
        assert_eq!((answer.created, answer.size), (true, 3));
        assert_eq!(fs::read(&path).expect("there"), b"hi\n");
        assert_eq!(names(&folder.path().join("a/b")), ["c.txt"]);
    }

    #[test]
    fn creating_never_overwrites_and_overwriting_leaves_nothing_beside() {
        let folder = folder();
        let path = folder.path().join("a");
        fs::write(&path, "old").expect("written");
        let failure = ask(&path, json!({"content": "new"})).expect_err("exists");
        assert!(failure.message.contains("exists already"), "{failure}");
        assert_eq!(fs::read(&path).expect("there"), b"old");
        let answer = ask(&path, json!({"content": "new", "mode": "overwrite"})).expect("written");
        assert!(!answer.created);
        assert_eq!(
            (fs::read(&path).expect("there"), names(folder.path())),
            (b"new".to_vec(), vec!["a".to_owned()])
        );
    }

    #[test]
    fn without_parents_a_missing_directory_is_an_error() {
        let folder = folder();
        let failure = ask(&folder.path().join("x/y"), json!({"content": "", "parents": false}))
            .expect_err("no directory");
        assert_eq!(failure.code, Failure::NOT_FOUND);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn appending_adds_to_the_end_in_the_encoding_of_the_file() {
        let folder = folder();
        let path = folder.path().join("a");
        ask(&path, json!({"content": "one\n", "mode": "append"})).expect("made");
        let answer = ask(&path, json!({"content": "two\n", "mode": "append"})).expect("appended");
        assert_eq!(
            (answer.created, fs::read(&path).expect("there")),
            (false, b"one\ntwo\n".to_vec())
        );
        let wide = folder.path().join("wide");
        fs::write(&wide, b"\xff\xfea\0").expect("written");
        let answer = ask(&wide, json!({"content": "b", "mode": "append"})).expect("appended");
        assert_eq!(fs::read(&wide).expect("there"), b"\xff\xfea\0b\0");
        assert!(answer.notes[0].contains("utf-16le"));
    }

    #[test]
    fn bytes_are_written_from_base64() {
        let folder = folder();
        let path = folder.path().join("a");
        ask(&path, json!({"content_base64": "AP8A"})).expect("written");
        assert_eq!(fs::read(&path).expect("there"), [0, 255, 0]);
        assert!(ask(&path, json!({"content_base64": "?", "mode": "overwrite"})).is_err());
    }

    #[test]
    fn edits_apply_in_turn_and_all_or_none() {
        let folder = folder();
        let path = folder.path().join("a");
        fs::write(&path, "let a = 1;\nlet b = 1;\n").expect("written");
        let edits =
            json!([{"old": "let a", "new": "let c"}, {"old": "= 1", "new": "= 2", "count": 2}]);
        let answer = ask(&path, json!({"mode": "replace", "edits": edits})).expect("edited");
        assert_eq!(answer.replaced, [1, 2]);
        assert_eq!(fs::read_to_string(&path).expect("there"), "let c = 2;\nlet b = 2;\n");
        let edits = json!([{"old": "let c", "new": "let d"}, {"old": "gone", "new": ""}]);
        let failure =
            ask(&path, json!({"mode": "replace", "edits": edits})).expect_err("not there");
        assert!(failure.message.starts_with("edit 2 of 2: `old` is not in the file"), "{failure}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "let c = 2;\nlet b = 2;\n");
    }

    #[test]
    fn a_wrong_count_names_the_lines_and_a_near_miss_the_place() {
        let folder = folder();
        let path = folder.path().join("a");
        fs::write(&path, "x\n    y\nx\n").expect("written");
        let edit = |edit: Value| {
            ask(&path, json!({"mode": "replace", "edits": [edit]})).expect_err("refused").message
        };
        assert!(
            edit(json!({"old": "x", "new": "z"})).contains("2 times and not 1, first at line 1, 3")
        );
        assert!(
            edit(json!({"old": "x\n  y", "new": "z"})).contains("its first line is, at line 1")
        );
        assert!(edit(json!({"old": "", "new": "z"})).contains("empty"));
        let all = json!({"mode": "replace", "edits": [{"old": "x", "new": "z", "count": 0}]});
        assert_eq!(ask(&path, all).expect("edited").replaced, [2]);
    }

    #[test]
    fn edits_follow_the_line_ends_and_the_encoding_of_the_file() {
        let folder = folder();
        let path = folder.path().join("a");
        fs::write(&path, "a\r\nb\r\nc\r\n").expect("written");
        let edits = json!([{"old": "a\nb\n", "new": "1\n2\n3\n"}]);
        let answer = ask(&path, json!({"mode": "replace", "edits": edits})).expect("edited");
        assert_eq!(fs::read_to_string(&path).expect("there"), "1\r\n2\r\n3\r\nc\r\n");
        assert!(answer.notes[0].contains("\\r\\n"));
        let wide: Vec<u8> = [0xfe, 0xff]
            .into_iter()
            .chain("aĀb".encode_utf16().flat_map(u16::to_be_bytes))
            .collect();
        fs::write(&path, wide).expect("written");
        ask(&path, json!({"mode": "replace", "edits": [{"old": "Āb", "new": "ü"}]}))
            .expect("edited");
        assert_eq!(fs::read(&path).expect("there"), b"\xfe\xff\0a\0\xfc");
        fs::write(&path, b"sch\xf6n und gr\xfcn\n").expect("written");
        ask(&path, json!({"mode": "replace", "edits": [{"old": "schön", "new": "häßlich"}]}))
            .expect("edited");
        assert_eq!(fs::read(&path).expect("there"), b"h\xe4\xdflich und gr\xfcn\n");
        let lacking = json!({"mode": "replace", "edits": [{"old": "und", "new": "和"}]});
        assert!(ask(&path, lacking).expect_err("lacking").message.contains("windows-1252"));
    }

    #[test]
    fn bytes_that_are_no_text_survive_an_edit_elsewhere() {
        let folder = folder();
        let path = folder.path().join("a");
        let mut content = "äöüäöü old ".as_bytes().to_vec();
        content.push(0xff);
        fs::write(&path, &content).expect("written");
        ask(&path, json!({"mode": "replace", "edits": [{"old": "old", "new": "new"}]}))
            .expect("edited");
        let edited = fs::read(&path).expect("there");
        assert!(edited.ends_with(b" new \xff"));
        fs::write(&path, b"a\0b").expect("written");
        let binary = json!({"mode": "replace", "edits": [{"old": "a", "new": "b"}]});
        assert!(ask(&path, binary).expect_err("binary").message.contains("not text"));
    }

    #[cfg(unix)]
    #[test]
    fn a_script_stays_executable() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = folder();
        let path = folder.path().join("run");
        fs::write(&path, "#!/bin/sh\necho a long line\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permitted");
        ask(
            &path,
            json!({"mode": "replace", "edits": [{"old": "echo a long line", "new": "true"}]}),
        )
        .expect("edited");
        assert_eq!(fs::read_to_string(&path).expect("there"), "#!/bin/sh\ntrue\n");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o755);
        assert_eq!(names(folder.path()), ["run"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_directories_and_special_files_are_not_written() {
        let folder = folder();
        fs::write(folder.path().join("a"), "a").expect("written");
        std::os::unix::fs::symlink("a", folder.path().join("link")).expect("a link");
        let _socket =
            std::os::unix::net::UnixListener::bind(folder.path().join("socket")).expect("a socket");
        for (name, word) in
            [("link", "symbolic link to `a`"), ("socket", "a socket"), ("", "is a directory")]
        {
            let failure =
                ask(&folder.path().join(name), json!({"content": "x", "mode": "overwrite"}));
            let failure = failure.expect_err("refused");
            assert!(failure.message.contains(word), "{failure}");
        }
        assert_eq!(fs::read(folder.path().join("a")).expect("there"), b"a");
    }

    #[test]
    fn arguments_that_do_not_go_together_are_refused() {
        let folder = folder();
        let path = folder.path().join("a");
        for wrong in [
            json!({}),
            json!({"content": "a", "content_base64": "YQ=="}),
            json!({"content": "a", "mode": "replace"}),
            json!({"mode": "replace"}),
            json!({"content": "a", "edits": [{"old": "a", "new": "b"}]}),
        ] {
            assert_eq!(ask(&path, wrong).expect_err("refused").code, Failure::INVALID);
        }
        assert_eq!(names(folder.path()), [""; 0]);
    }
}
