//! The tool `hash`: checksums of texts and files.

use checkrein_guest::prelude::*;
use checkrein_reading::{CHUNK, Regular, paths};
use sha2::Digest as _;

use crate::batch::{self, Batch, Entry};

/// What to hash.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// A text to hash, as UTF-8.
    #[serde(default)]
    text: Option<String>,
    /// In place of `text`: files to hash, up to 10000.
    #[serde(default)]
    paths: Vec<String>,
    /// Which checksums: `sha256` (when left out), `sha512`, `blake3`, and the old `sha1` and `md5`, which protect
    /// against accidents only.
    #[serde(default = "sha256")]
    algorithms: Vec<Algorithm>,
    /// Hash only so many bytes of each file, from its beginning: a quick way to see that files differ. `partial`
    /// tells which files have more.
    #[serde(default)]
    max_bytes: Option<u64>,
}

fn sha256() -> Vec<Algorithm> {
    vec![Algorithm::Sha256]
}

/// A way to compute a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// BLAKE3, the fastest.
    Blake3,
    /// SHA-1.
    Sha1,
    /// MD5.
    Md5,
}

/// The checksums of one text.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Sums {
    /// The file, as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Why there are no checksums.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// How many bytes were hashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// The file has more than `max_bytes` bytes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha512: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blake3: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha1: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
}

impl Entry for Sums {
    fn failed(path: &str, error: String) -> Sums {
        Sums { path: Some(path.to_owned()), error: Some(error), ..Sums::default() }
    }

    fn weight(&self) -> usize {
        let sums = [&self.sha256, &self.sha512, &self.blake3, &self.sha1, &self.md5];
        50 + sums.into_iter().flatten().map(|sum| sum.len() + 13).sum::<usize>()
    }
}

/// Hashes texts and files.
#[derive(Debug)]
pub struct Hash;

impl Tool for Hash {
    const NAME: &str = "hash";
    const DESCRIPTION: &str = "Computes checksums (SHA-256 and others) of a text or of many files in one call, as JSON \
        with hexadecimal numbers. Files are read in pieces; of one with more than 768 MiB only the beginning can be \
        hashed, with `max_bytes`. A file that cannot be read \
        has an `error`; the others are hashed all the same. To find files with the same content, compare their sizes \
        first, then hash those that agree.";
    const HINTS: &[Hint] = &[Hint::ReadOnly, Hint::Idempotent];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
        Output::json(&hash(&arguments)?)
    }
}

pub(crate) fn hash(arguments: &Arguments) -> Result<Batch<Sums>, Failure> {
    batch::check(arguments.text.as_ref(), &arguments.paths)?;
    if arguments.algorithms.is_empty() {
        return Err(Failure::invalid("`algorithms` is empty; leave it out for SHA-256"));
    }
    if arguments.max_bytes == Some(0) {
        return Err(Failure::invalid("`max_bytes` is 0; leave it out to hash whole files"));
    }
    if let Some(text) = &arguments.text {
        let most =
            arguments.max_bytes.and_then(|most| usize::try_from(most).ok()).unwrap_or(text.len());
        let bytes = &text.as_bytes()[..text.len().min(most)];
        let mut hashing = Hashing::new(&arguments.algorithms);
        hashing.push(bytes);
        let sums = Sums { partial: bytes.len() < text.len(), ..hashing.finish() };
        return Ok(Batch { results: vec![sums], next_path: None });
    }
    let mut buffer = vec![0; CHUNK];
    let most = arguments.max_bytes.unwrap_or(u64::MAX);
    Ok(batch::each(&arguments.paths, most, |path, mut file: Regular, _| {
        let mut hashing = Hashing::new(&arguments.algorithms);
        let mut left = arguments.max_bytes.unwrap_or(u64::MAX);
        loop {
            let wanted = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            let filled = file.fill(&mut buffer[..wanted]).map_err(|error| paths::reason(&error))?;
            hashing.push(&buffer[..filled]);
            left -= filled as u64;
            if filled < wanted || left == 0 {
                break;
            }
        }
        let partial =
            left == 0 && file.fill(&mut buffer[..1]).map_err(|error| paths::reason(&error))? > 0;
        Ok(Sums { path: Some(path.to_owned()), partial, ..hashing.finish() })
    }))
}

/// Several checksums of the same bytes.
#[derive(Debug, Default)]
struct Hashing {
    bytes: u64,
    sha256: Option<sha2::Sha256>,
    sha512: Option<sha2::Sha512>,
    blake3: Option<Box<blake3::Hasher>>,
    sha1: Option<sha1::Sha1>,
    md5: Option<md5::Md5>,
}

impl Hashing {
    fn new(algorithms: &[Algorithm]) -> Hashing {
        let mut hashing = Hashing::default();
        for algorithm in algorithms {
            match algorithm {
                Algorithm::Sha256 => hashing.sha256 = Some(sha2::Sha256::new()),
                Algorithm::Sha512 => hashing.sha512 = Some(sha2::Sha512::new()),
                Algorithm::Blake3 => hashing.blake3 = Some(Box::new(blake3::Hasher::new())),
                Algorithm::Sha1 => hashing.sha1 = Some(sha1::Sha1::new()),
                Algorithm::Md5 => hashing.md5 = Some(md5::Md5::new()),
            }
        }
        hashing
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(hasher) = &mut self.sha256 {
            hasher.update(bytes);
        }
        if let Some(hasher) = &mut self.sha512 {
            hasher.update(bytes);
        }
        if let Some(hasher) = &mut self.blake3 {
            hasher.update(bytes);
        }
        if let Some(hasher) = &mut self.sha1 {
            hasher.update(bytes);
        }
        if let Some(hasher) = &mut self.md5 {
            hasher.update(bytes);
        }
    }

    fn finish(self) -> Sums {
        Sums {
            bytes: Some(self.bytes),
            sha256: self.sha256.map(|hasher| hex(&hasher.finalize())),
            sha512: self.sha512.map(|hasher| hex(&hasher.finalize())),
            blake3: self.blake3.map(|hasher| hasher.finalize().to_hex().to_string()),
            sha1: self.sha1.map(|hasher| hex(&hasher.finalize())),
            md5: self.md5.map(|hasher| hex(&hasher.finalize())),
            ..Sums::default()
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn ask(arguments: Value) -> Value {
        let arguments = serde_json::from_value(arguments).expect("arguments");
        serde_json::to_value(hash(&arguments).expect("hashed")).expect("json")
    }

    #[test]
    fn known_texts_have_their_known_sums() {
        let all = json!(["sha256", "sha512", "blake3", "sha1", "md5"]);
        let answer = ask(json!({"text": "abc", "algorithms": all}));
        let sums = &answer["results"][0];
        assert_eq!(
            sums["sha256"],
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(
            sums["sha512"].as_str().expect("a sum").starts_with("ddaf35a193617abacc417349ae204131")
        );
        assert_eq!(
            sums["blake3"],
            "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
        );
        assert_eq!(sums["sha1"], "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(sums["md5"], "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(sums["bytes"], 3);
    }

    #[test]
    fn a_file_has_the_sum_of_its_text_whatever_its_size() {
        let folder = tempfile::tempdir().expect("a directory");
        for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let path = folder.path().join("a");
            let text = "x".repeat(size);
            fs::write(&path, &text).expect("written");
            let (file, text) = (ask(json!({"paths": [path]})), ask(json!({"text": text})));
            assert_eq!(file["results"][0]["sha256"], text["results"][0]["sha256"], "{size}");
            assert_eq!(file["results"][0]["bytes"], size);
        }
    }

    #[test]
    fn a_beginning_is_hashed_and_said_to_be_one() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("a");
        fs::write(&path, "abcdef").expect("written");
        let answer =
            |most: u64| ask(json!({"paths": [path], "max_bytes": most}))["results"][0].clone();
        assert_eq!(answer(3)["sha256"], ask(json!({"text": "abc"}))["results"][0]["sha256"]);
        assert_eq!((&answer(3)["partial"], &answer(3)["bytes"]), (&json!(true), &json!(3)));
        assert_eq!((&answer(6)["partial"], &answer(7)["partial"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn a_missing_file_does_not_spoil_the_others() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("a");
        fs::write(&path, "abc").expect("written");
        let answer = ask(json!({"paths": [folder.path().join("gone"), folder.path(), path]}));
        assert_eq!(answer["results"][0]["error"], "does not exist");
        assert_eq!(answer["results"][1]["error"], "is a directory");
        assert_eq!(answer["results"][2]["bytes"], 3);
    }

    #[test]
    fn ten_thousand_files_come_in_pages() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder
            .path()
            .join("a-name-that-is-long-enough-to-fill-an-answer-with-a-few-thousand-of-them");
        fs::write(&path, "abc").expect("written");
        let arguments = Arguments {
            text: None,
            paths: vec![path.display().to_string(); 10_000],
            algorithms: vec![Algorithm::Sha256],
            max_bytes: None,
        };
        let batch = hash(&arguments).expect("hashed");
        let next = batch.next_path.expect("more than one page");
        assert_eq!(batch.results.len(), next);
        assert!(serde_json::to_string(&batch).expect("json").len() < 800 << 10);
    }

    #[test]
    fn senseless_arguments_are_refused() {
        for wrong in [
            json!({}),
            json!({"text": "a", "algorithms": []}),
            json!({"text": "a", "max_bytes": 0}),
        ] {
            assert!(hash(&serde_json::from_value(wrong).expect("arguments")).is_err());
        }
        let unknown =
            serde_json::from_value::<Arguments>(json!({"text": "a", "algorithms": ["crc"]}));
        assert!(
            unknown
                .expect_err("unknown")
                .to_string()
                .contains("expected one of `sha256`, `sha512`")
        );
    }
}
