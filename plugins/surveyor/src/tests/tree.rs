//! A folder on disk, and tools that answer about it in the form of the real ones.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use checkrein_guest::prelude::*;
use checkrein_guest::testing::AgentTest;

/// A folder that is removed at the end of the test.
pub(super) struct Tree(tempfile::TempDir);

impl Tree {
    pub(super) fn new(files: &[(&str, &str)]) -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        for (name, text) in files {
            tree.write(name, text);
        }
        tree
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A file that is large and takes no room.
    pub(super) fn sparse(&self, name: &str, size: u64) {
        self.write(name, "");
        fs::File::options()
            .write(true)
            .open(self.path().join(name))
            .unwrap()
            .set_len(size)
            .unwrap();
    }

    /// A run of the surveyor on this folder, with all tools.
    pub(super) fn survey(&self) -> AgentTest {
        with_tools(AgentTest::new("").directory(self.path().display().to_string()))
    }
}

/// All tools.
pub(super) fn with_tools(test: AgentTest) -> AgentTest {
    test.tool("files_list", |arguments| list(&arguments))
        .tool("files_search", |arguments| search(&arguments))
        .tool("files_read", |arguments| read(&arguments))
        .tool("text_stats", |arguments| stats(&arguments))
        .tool("text_hash", |arguments| hash(&arguments))
}

fn json_of(value: &Value) -> Result<String, Failure> {
    Ok(value.to_string())
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn walk(folder: &Path, skip: &[String], all: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = format!("{}/", path.file_name().unwrap().to_string_lossy());
        if skip.contains(&name) {
            continue;
        }
        all.push(path.clone());
        if path.symlink_metadata().unwrap().is_dir() {
            walk(&path, skip, all);
        }
    }
}

pub(super) fn list(arguments: &Value) -> Result<String, Failure> {
    let folder = Path::new(arguments["path"].as_str().unwrap());
    if !folder.is_dir() {
        return Err(Failure::not_found(format!(
            "cannot look at {}: does not exist",
            folder.display()
        )));
    }
    let mut all = Vec::new();
    walk(folder, &texts(&arguments["exclude"]), &mut all);
    let from: usize = arguments["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
    let limit = usize::try_from(arguments["limit"].as_u64().unwrap()).unwrap();
    let entries: Vec<Value> = all.iter().skip(from).take(limit).map(|path| entry(path)).collect();
    let mut answer = json!({ "entries": entries });
    if from + limit < all.len() {
        answer["next"] = json!((from + limit).to_string());
    }
    json_of(&answer)
}

fn entry(path: &Path) -> Value {
    let metadata = path.symlink_metadata().unwrap();
    let kind = if metadata.is_dir() {
        "dir"
    } else if metadata.is_file() {
        "file"
    } else {
        "symlink"
    };
    json!({"path": path, "kind": kind, "size": metadata.len(), "modified": "2026-03-01T12:30:00Z"})
}

fn content(path: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(1 << 20).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

pub(super) fn search(arguments: &Value) -> Result<String, Failure> {
    let regex = regex::bytes::RegexBuilder::new(arguments["pattern"].as_str().unwrap())
        .multi_line(true)
        .build()
        .map_err(|error| Failure::invalid(error.to_string()))?;
    let paths = texts(&arguments["paths"]);
    let from: usize = arguments["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
    let most = usize::try_from(arguments["max_matches"].as_u64().unwrap()).unwrap();
    let per_file = usize::try_from(arguments["max_matches_per_file"].as_u64().unwrap()).unwrap();
    let (mut files, mut errors, mut found) = (Vec::new(), Vec::new(), 0);
    let mut next = None;
    for (place, path) in paths.iter().enumerate().skip(from) {
        let bytes = match content(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                errors.push(json!({"path": path, "error": error}));
                continue;
            }
        };
        if bytes.contains(&0) {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let all: Vec<Value> = (1..)
            .zip(text.lines())
            .filter(|(_, line)| regex.is_match(line.as_bytes()))
            .map(|(line, text): (u64, &str)| json!({"line": line, "column": 1, "text": text}))
            .collect();
        if all.is_empty() {
            continue;
        }
        let lines: Vec<&Value> = all.iter().take(per_file).collect();
        found += lines.len();
        files.push(json!({"path": path, "lines": lines, "more": all.len() > per_file}));
        if found >= most && place + 1 < paths.len() {
            next = Some((place + 1).to_string());
            break;
        }
    }
    json_of(&json!({"files": files, "searched": paths.len(), "next": next, "errors": errors}))
}

pub(super) fn read(arguments: &Value) -> Result<String, Failure> {
    let file = |part: &Value| match content(part["path"].as_str().unwrap()) {
        Ok(bytes) => json!({"path": part["path"], "text": String::from_utf8_lossy(&bytes)}),
        Err(error) => json!({"path": part["path"], "error": error}),
    };
    let files: Vec<Value> = arguments["files"].as_array().unwrap().iter().map(file).collect();
    json_of(&json!({ "files": files }))
}

pub(super) fn stats(arguments: &Value) -> Result<String, Failure> {
    each(arguments, |path, bytes| {
        if bytes.contains(&0) {
            return json!({"path": path, "bytes": bytes.len(), "binary": "binary data"});
        }
        json!({"path": path, "bytes": bytes.len(), "lines": String::from_utf8_lossy(bytes).lines().count()})
    })
}

pub(super) fn hash(arguments: &Value) -> Result<String, Failure> {
    each(arguments, |path, bytes| {
        let sum = bytes
            .iter()
            .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        json!({"path": path, "blake3": format!("{sum:x}")})
    })
}

/// An answer for at most 150 of the paths.
fn each(arguments: &Value, answer: impl Fn(&str, &[u8]) -> Value) -> Result<String, Failure> {
    let paths = texts(&arguments["paths"]);
    let one = |path: &String| match content(path) {
        Ok(bytes) => answer(path, &bytes),
        Err(error) => json!({"path": path, "error": error}),
    };
    let results: Vec<Value> = paths.iter().take(150).map(one).collect();
    let mut all = json!({ "results": results });
    if paths.len() > 150 {
        all["next_path"] = json!(150);
    }
    json_of(&all)
}
