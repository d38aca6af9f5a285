//! Reading one part: lines, markers, secrets, licences. Nothing of a file comes here but the lines that matter.

use std::collections::{BTreeMap, BTreeSet};

use checkrein_guest::prelude::*;
use regex_lite::Regex;

use crate::asking::{Ask, Asker, Ended, Job, Jobs, More, run_jobs};
use crate::findings::{Findings, Marker};
use crate::inventory::{File, Ground, PathError, is_read};
use crate::languages::{Language, Languages, Use};
use crate::licences;
use crate::markers;
use crate::options::Options;
use crate::secrets::{self, Rules, Secret};

/// So many files, and so many bytes of them, are in one call at most.
const CHUNK_FILES: usize = 250;
const CHUNK_BYTES: u64 = 16 << 20;
/// So many lines are in one answer at most: eight such answers pass the door together.
const LINES: u32 = 800;
/// So many lines of one file.
const LINES_PER_FILE: u32 = 500;
/// How much of the text of a licence is read.
const LICENCE_BYTES: u32 = 13_000;
/// So many of those in one call: together no more than `files_read` gives in one answer.
const LICENCE_FILES: usize = 30;
/// What says that a program wrote the file stands in one of its first lines.
const GENERATED_LINES: u64 = 12;
/// So does the licence.
const SPDX_LINES: u64 = 80;

const GENERATED_PATTERN: &str = r"@generated\b|\bDO NOT EDIT\b|^[^A-Za-z0-9]{0,8}(?:[A-Za-z]+ )?[Gg]enerated by\b|(?i:\bauto(?:matically |-)generated\b)";

/// The name for text in a language that is not known here.
pub(crate) const OTHER: &str = "Other text";

/// What reading needs to know.
#[derive(Debug)]
pub(crate) struct Reader {
    ground: Ground,
    options: Options,
    languages: Languages,
    rules: Rules,
    generated: Option<Regex>,
    pattern: String,
}

/// What is asked about files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Which lines have a marker, a secret, or a word about origin and licence?
    Lines,
    /// What does the first line say?
    FirstLine,
    /// Which licence does the manifest name?
    Field,
    /// Which licence is that?
    Licence,
    /// How many lines are there?
    Stats,
}

impl Reader {
    /// Reads files on that ground in the way of those options.
    pub(crate) fn new(ground: Ground, options: Options) -> Reader {
        Reader {
            ground,
            options,
            languages: Languages::new(),
            rules: Rules::new(),
            generated: Regex::new(GENERATED_PATTERN).ok(),
            pattern: pattern(),
        }
    }

    /// Reads the files of a part, and puts what it finds to `findings`, also when it is cut short.
    pub(crate) fn read(
        &self,
        asker: &Asker<'_>,
        files: &[File],
        findings: &mut Findings,
    ) -> Result<(), Ended> {
        let read: Vec<&File> =
            files.iter().filter(|file| is_read(file, &self.ground, &self.options)).collect();
        let mut part = Part {
            reader: self,
            findings,
            sizes: read.iter().map(|file| (file.path.as_str(), file.size)).collect(),
            generated: BTreeSet::new(),
            languages: BTreeMap::new(),
            marked: BTreeSet::new(),
            licensed: BTreeSet::new(),
        };
        let result = part.read(asker, &read);
        part.count_empty(files);
        findings.trim(self.options.max_findings);
        result
    }

    fn language(&self, path: &str) -> Option<Language> {
        self.languages.by_name(path)
    }
}

/// One expression for everything that a line may have.
fn pattern() -> String {
    let mut all = vec![markers::PATTERN, licences::SPDX_PATTERN, GENERATED_PATTERN];
    all.extend(Rules::patterns());
    let joined = all.join("|");
    // Names of groups would be there more than once.
    let joined = ["(?P<s>", "(?P<k>", "(?P<h>"]
        .iter()
        .fold(joined, |joined, group| joined.replace(group, "(?:"));
    format!("(?-u)(?:{joined})")
}

/// A part that is being read.
struct Part<'r, 'f> {
    reader: &'r Reader,
    findings: &'r mut Findings,
    sizes: BTreeMap<&'f str, u64>,
    /// Files that say that a program wrote them.
    generated: BTreeSet<String>,
    /// Languages that first lines tell.
    languages: BTreeMap<String, &'static str>,
    /// Files with markers of a kind.
    marked: BTreeSet<(markers::Kind, String)>,
    /// Files whose SPDX line is counted.
    licensed: BTreeSet<String>,
}

impl<'f> Part<'_, 'f> {
    fn read(&mut self, asker: &Asker<'_>, files: &[&'f File]) -> Result<(), Ended> {
        let below = |file: &File| self.reader.ground.below(&file.path).to_owned();
        let nameless: Vec<&File> = files
            .iter()
            .filter(|file| self.reader.language(&file.path).is_none())
            .copied()
            .collect();
        let manifests: Vec<&File> =
            files.iter().filter(|file| licences::is_manifest(&below(file))).copied().collect();
        let texts: Vec<&File> =
            files.iter().filter(|file| licences::is_licence_file(&below(file))).copied().collect();
        let batch = asker.batch();
        let mut jobs = Vec::new();
        if asker.has("files_search") {
            jobs.extend(chunks(files, CHUNK_FILES, batch).map(|paths| job(Look::Lines, paths)));
            jobs.extend(
                chunks(&nameless, CHUNK_FILES * 2, 1).map(|paths| job(Look::FirstLine, paths)),
            );
            jobs.extend(chunks(&manifests, CHUNK_FILES, 1).map(|paths| job(Look::Field, paths)));
        }
        if asker.has("files_read") {
            jobs.extend(chunks(&texts, LICENCE_FILES, 1).map(|paths| job(Look::Licence, paths)));
        }
        run_jobs(asker, jobs, self)?;
        if asker.has("text_stats") {
            // Only now is it known which files a program wrote.
            let jobs =
                chunks(files, CHUNK_FILES, batch).map(|paths| job(Look::Stats, paths)).collect();
            return run_jobs(asker, jobs, self);
        }
        for file in files {
            self.count(&file.path, 0);
        }
        Ok(())
    }

    fn lines(&mut self, file: FileHits) {
        let below = self.reader.ground.below(&file.path).to_owned();
        let used_for =
            self.reader.language(&file.path).map_or(Use::Code, |language| language.used_for);
        self.findings.crowded += u64::from(file.more);
        for Line { line, text } in file.lines {
            let is_generated = |generated: &Regex| generated.is_match(&text);
            if line <= GENERATED_LINES && self.reader.generated.as_ref().is_some_and(is_generated) {
                self.generated.insert(file.path.clone());
            }
            if line <= SPDX_LINES
                && let Some(expression) = licences::spdx(&text)
                && self.licensed.insert(file.path.clone())
            {
                *self.findings.spdx.entry(expression).or_default() += 1;
            }
            let secrets = self.reader.rules.find(&text);
            if let Some((kind, says)) = markers::find(&text, used_for)
                && !self.generated.contains(&file.path)
            {
                // Words beside a secret may be the secret.
                let says = if secrets.is_empty() { says } else { String::new() };
                self.marker(Marker { kind, path: file.path.clone(), line, text: says });
            }
            self.findings.secret_count += secrets.len() as u64;
            let in_tests = secrets::is_in_tests(&below);
            self.findings.secrets.extend(secrets.into_iter().map(|(name, masked)| Secret {
                in_tests,
                path: file.path.clone(),
                line,
                name,
                masked,
            }));
        }
        let keep = self.reader.options.max_findings;
        if self.findings.markers.len() > 4 * keep + 1_000
            || self.findings.secrets.len() > 40 * keep + 1_000
        {
            self.findings.trim(keep);
        }
    }

    fn marker(&mut self, marker: Marker) {
        let count = self.findings.marker_counts.entry(marker.kind).or_default();
        count.markers += 1;
        count.files += u64::from(self.marked.insert((marker.kind, marker.path.clone())));
        self.findings.markers.push(marker);
    }

    fn count(&mut self, path: &str, lines: u64) {
        let bytes = self.sizes.get(path).copied().unwrap_or(0);
        if self.generated.contains(path) {
            self.findings.generated.count(lines, bytes);
            return;
        }
        let by_name = self.reader.language(path).map(|language| language.name);
        let name = by_name.or_else(|| self.languages.get(path).copied()).unwrap_or(OTHER);
        self.findings.count_text(&self.reader.ground, path, name, lines, bytes);
    }

    /// Empty files have a language too, as far as their name tells.
    fn count_empty(&mut self, files: &[File]) {
        let options = Options { max_file_bytes: u64::MAX, ..Options::default() };
        for file in files.iter().filter(|file| file.size == 0) {
            let sized = File { size: 1, ..file.clone() };
            if is_read(&sized, &self.reader.ground, &options) {
                self.findings.empty += 1;
                self.count(&file.path, 0);
            }
        }
    }
}

impl Jobs<Look> for Part<'_, '_> {
    fn ask(&self, job: &Job<'_, Look>) -> Ask {
        let search = |pattern: &str, per_file: u32| {
            let mut arguments = json!({
                "pattern": pattern,
                "paths": job.paths,
                "max_matches": LINES,
                "max_matches_per_file": per_file,
                "max_seconds": 60,
            });
            if let Some(cursor) = &job.cursor {
                arguments["cursor"] = json!(cursor);
            }
            Ask { tool: "files_search", arguments }
        };
        match job.kind {
            Look::Lines => search(&self.reader.pattern, LINES_PER_FILE),
            Look::FirstLine => search("^#!", 1),
            Look::Field => search(licences::FIELD_PATTERN, 3),
            Look::Licence => {
                let files: Vec<Value> = job
                    .paths
                    .iter()
                    .map(|path| json!({"path": path, "bytes": LICENCE_BYTES}))
                    .collect();
                Ask {
                    tool: "files_read",
                    arguments: json!({"files": files, "max_bytes": LICENCE_BYTES * LICENCE_FILES as u32}),
                }
            }
            Look::Stats => Ask { tool: "text_stats", arguments: json!({"paths": job.paths}) },
        }
    }

    fn take(&mut self, job: &Job<'_, Look>, answer: &str) -> Result<More, Failure> {
        match job.kind {
            Look::Lines | Look::FirstLine | Look::Field => {
                let answer: Search = read(answer)?;
                for error in answer.errors {
                    self.findings.troubles.add(error.path, error.error);
                }
                self.findings.troubles.more += answer.more_errors;
                for file in answer.files {
                    match job.kind {
                        Look::FirstLine => {
                            let first = file.lines.first().filter(|line| line.line == 1);
                            let language = first
                                .and_then(|line| self.reader.languages.by_first_line(&line.text));
                            if let Some(language) = language {
                                self.languages.insert(file.path, language.name);
                            }
                        }
                        Look::Field => {
                            if let Some(licence) =
                                file.lines.iter().find_map(|line| licences::field(&line.text))
                            {
                                self.findings.manifests.entry(licence).or_default().push(file.path);
                            }
                        }
                        Look::Lines | Look::Licence | Look::Stats => self.lines(file),
                    }
                }
                Ok(answer.next.map_or(More::Nothing, More::Cursor))
            }
            Look::Licence => {
                let answer: Read = read(answer)?;
                for file in answer.files {
                    if let Some(text) = file.text {
                        let licence = licences::by_text(&text).to_owned();
                        self.findings.licence_files.entry(licence).or_default().push(file.path);
                    }
                }
                Ok(More::Nothing)
            }
            Look::Stats => {
                let answer: Stats = read(answer)?;
                for file in answer.results {
                    let size = self.sizes.get(file.path.as_str()).copied().unwrap_or(0);
                    match (file.error, file.binary) {
                        (Some(error), _) => self.findings.troubles.add(file.path, error),
                        (None, Some(_)) => self.findings.binary.push((file.path, size)),
                        (None, _) => self.count(&file.path, file.lines),
                    }
                }
                Ok(answer.next_path.map_or(More::Nothing, More::From))
            }
        }
    }

    fn trouble(&mut self, job: &Job<'_, Look>, path: &str, why: &str) {
        let doing = match job.kind {
            Look::Lines | Look::FirstLine | Look::Field => "not searched",
            Look::Licence => "not read",
            Look::Stats => "not counted",
        };
        self.findings.troubles.add(path, format!("{doing}: {why}"));
    }
}

fn read<'a, T: Deserialize<'a>>(answer: &'a str) -> Result<T, Failure> {
    serde_json::from_str(answer).map_err(|error| {
        Failure::failed(format!("the answer of the tool is not what was expected: {error}"))
    })
}

fn job(kind: Look, paths: Vec<&str>) -> Job<'_, Look> {
    Job { kind, paths, cursor: None }
}

/// The files in chunks that suit one call; enough of them for a batch, unless they would be tiny.
fn chunks<'f>(
    files: &[&'f File],
    most: usize,
    batch: usize,
) -> impl Iterator<Item = Vec<&'f str>> + use<'f> {
    let count = files.len().div_ceil(batch.max(1)).clamp(20.min(most), most);
    let mut chunks: Vec<Vec<&'f str>> = Vec::new();
    let mut bytes = 0;
    for file in files {
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < count && bytes + file.size <= CHUNK_BYTES => {
                chunk.push(&file.path)
            }
            _ => {
                chunks.push(vec![&file.path]);
                bytes = 0;
            }
        }
        bytes += file.size;
    }
    chunks.into_iter()
}

/// An answer of `files_search`.
#[derive(Debug, Deserialize)]
struct Search {
    #[serde(default)]
    files: Vec<FileHits>,
    #[serde(default)]
    next: Option<String>,
    #[serde(default)]
    errors: Vec<PathError>,
    #[serde(default)]
    more_errors: u64,
}

#[derive(Debug, Deserialize)]
struct FileHits {
    path: String,
    #[serde(default)]
    lines: Vec<Line>,
    #[serde(default)]
    more: bool,
}

#[derive(Debug, Deserialize)]
struct Line {
    line: u64,
    text: String,
}

/// An answer of `files_read`.
#[derive(Debug, Deserialize)]
struct Read {
    files: Vec<FileText>,
}

#[derive(Debug, Deserialize)]
struct FileText {
    path: String,
    #[serde(default)]
    text: Option<String>,
}

/// An answer of `text_stats`.
#[derive(Debug, Deserialize)]
struct Stats {
    results: Vec<FileStats>,
    #[serde(default)]
    next_path: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct FileStats {
    path: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    binary: Option<String>,
    #[serde(default)]
    lines: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::Moment;

    #[test]
    fn the_pattern_is_one_that_the_search_tool_takes() {
        let pattern = pattern();
        // With these the tool would look at each line alone, which is slow.
        assert!(!pattern.contains("-m") && !pattern.contains("\\A") && !pattern.contains("\\z"));
        let regex = regex::bytes::RegexBuilder::new(&pattern)
            .multi_line(true)
            .crlf(true)
            .size_limit(4 << 20)
            .dfa_size_limit(4 << 20)
            .build()
            .unwrap();
        for line in [
            "// TODO: x",
            "API_KEY = 'abcdefgh12'",
            "/* @generated */",
            "# Generated by a tool",
            "-- Code generated by x",
        ] {
            assert!(regex.is_match(line.as_bytes()), "{line}");
        }
        for line in ["let x = 1;", "fn token(&self) -> &str {", "Generate by hand"] {
            assert!(!regex.is_match(line.as_bytes()), "{line}");
        }
        let fields = regex::bytes::RegexBuilder::new(licences::FIELD_PATTERN)
            .multi_line(true)
            .build()
            .unwrap();
        for line in [
            "license = \"MIT\"",
            "  \"license\": \"MIT\",",
            "  spec.license = 'MIT'",
            "<license>MIT</license>",
            "licence: MIT",
        ] {
            assert!(fields.is_match(line.as_bytes()), "{line}");
        }
        assert!(
            !fields.is_match(b"license-file = \"LICENSE\"")
                && !fields.is_match(b"license.workspace = true")
        );
    }

    #[test]
    fn chunks_are_bounded_and_fill_a_batch() {
        let files: Vec<File> = (0..1_000)
            .map(|number| File {
                path: format!("/w/{number}"),
                size: if number < 10 { 10 << 20 } else { 1 },
                modified: Moment::default(),
            })
            .collect();
        let all: Vec<&File> = files.iter().collect();
        let sizes: Vec<usize> = chunks(&all, 250, 8).map(|chunk| chunk.len()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 1_000);
        assert!(sizes.iter().all(|size| *size <= 125) && sizes[..9].iter().all(|size| *size == 1));
        let sizes: Vec<usize> = chunks(&all[10..40], 250, 8).map(|chunk| chunk.len()).collect();
        assert_eq!(sizes, [20, 10]);
        assert_eq!(chunks(&[], 250, 8).count(), 0);
    }
}
