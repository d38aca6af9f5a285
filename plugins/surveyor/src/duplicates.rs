//! Files with the same content: candidates by size, certain by hash.

use std::collections::BTreeMap;

use checkrein_guest::prelude::*;

use crate::asking::{Ask, Asker, Ended, Job, Jobs, More, run_jobs};
use crate::inventory::File;
use crate::troubles::Troubles;

/// Smaller files are alike by accident.
const LEAST: u64 = 32;
/// Larger ones are not read for this.
const MOST: u64 = 256 << 20;
/// So many files, and so many bytes, are in one call.
const CHUNK_FILES: usize = 200;
const CHUNK_BYTES: u64 = 64 << 20;

/// Files with the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The size of each.
    pub(crate) size: u64,
    /// The files, sorted.
    pub(crate) paths: Vec<String>,
}

impl Group {
    /// How many bytes all but one of them take.
    pub(crate) fn spare(&self) -> u64 {
        self.size * (self.paths.len() as u64 - 1)
    }
}

/// What is known about duplicates.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    /// How many files share their size with another one.
    pub(crate) candidates: u64,
    /// How many of them were compared.
    pub(crate) compared: u64,
    /// What could not be compared.
    pub(crate) troubles: Troubles,
    hashes: BTreeMap<(u64, String), Vec<String>>,
}

/// Files that share their size with another one: by size, largest first.
pub(crate) fn candidates(files: &[File]) -> Vec<&File> {
    let mut by_size: BTreeMap<u64, u32> = BTreeMap::new();
    let fits = |file: &&File| (LEAST..=MOST).contains(&file.size);
    for file in files.iter().filter(fits) {
        *by_size.entry(file.size).or_default() += 1;
    }
    let mut candidates: Vec<&File> = files
        .iter()
        .filter(fits)
        .filter(|file| by_size.get(&file.size).is_some_and(|count| *count > 1))
        .collect();
    candidates.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.path.cmp(&b.path)));
    candidates
}

/// Compares candidates by their hashes.
pub(crate) fn compare(
    asker: &Asker<'_>,
    candidates: &[&File],
    found: &mut Duplicates,
) -> Result<(), Ended> {
    found.candidates = candidates.len() as u64;
    let mut jobs: Vec<Job<'_, ()>> = Vec::new();
    let mut bytes = 0;
    for file in candidates {
        match jobs.last_mut() {
            Some(job) if job.paths.len() < CHUNK_FILES && bytes + file.size <= CHUNK_BYTES => {
                job.paths.push(&file.path)
            }
            _ => {
                jobs.push(Job { kind: (), paths: vec![&file.path], cursor: None });
                bytes = 0;
            }
        }
        bytes += file.size;
    }
    let sizes = candidates.iter().map(|file| (file.path.as_str(), file.size)).collect();
    run_jobs(asker, jobs, &mut Hashing { found, sizes })
}

impl Duplicates {
    /// The groups, the one with most to spare first.
    pub(crate) fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = self
            .hashes
            .iter()
            .filter(|(_, paths)| paths.len() > 1)
            .map(|((size, _), paths)| {
                let mut paths = paths.clone();
                paths.sort();
                Group { size: *size, paths }
            })
            .collect();
        groups.sort_by(|a, b| b.spare().cmp(&a.spare()).then_with(|| a.paths.cmp(&b.paths)));
        groups
    }
}

struct Hashing<'d, 'f> {
    found: &'d mut Duplicates,
    sizes: BTreeMap<&'f str, u64>,
}

impl Jobs<()> for Hashing<'_, '_> {
    fn ask(&self, job: &Job<'_, ()>) -> Ask {
        Ask { tool: "text_hash", arguments: json!({"paths": job.paths, "algorithms": ["blake3"]}) }
    }

    fn take(&mut self, _: &Job<'_, ()>, answer: &str) -> Result<More, Failure> {
        let answer: Answer = serde_json::from_str(answer).map_err(|error| {
            Failure::failed(format!("the answer of the tool is not what was expected: {error}"))
        })?;
        for file in answer.results {
            self.found.compared += 1;
            match (file.blake3, self.sizes.get(file.path.as_str())) {
                (Some(hash), Some(size)) => {
                    self.found.hashes.entry((*size, hash)).or_default().push(file.path);
                }
                (None, _) => {
                    let why = file.error.unwrap_or_else(|| "the tool gave no hash".to_owned());
                    self.found.troubles.add(file.path, why);
                }
                (Some(_), None) => {}
            }
        }
        Ok(answer.next_path.map_or(More::Nothing, More::From))
    }

    fn trouble(&mut self, _: &Job<'_, ()>, path: &str, why: &str) {
        self.found.compared += 1;
        self.found.troubles.add(path, format!("not compared: {why}"));
    }
}

/// An answer of `text_hash`.
#[derive(Debug, Deserialize)]
struct Answer {
    results: Vec<FileHash>,
    #[serde(default)]
    next_path: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct FileHash {
    path: String,
    #[serde(default)]
    blake3: Option<String>,
    #[serde(default)]
    error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::Moment;

    #[test]
    fn only_files_of_the_same_size_are_candidates() {
        let file =
            |path: &str, size| File { path: path.to_owned(), size, modified: Moment::default() };
        let files = [
            file("a", 100),
            file("b", 100),
            file("c", 101),
            file("d", 5),
            file("e", 5),
            file("f", 500),
            file("g", 500),
        ];
        let paths: Vec<&str> = candidates(&files).iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["f", "g", "a", "b"]);
    }

    #[test]
    fn groups_come_by_what_they_waste() {
        let mut found = Duplicates::default();
        let mut add = |size, hash: &str, paths: &[&str]| {
            found.hashes.insert(
                (size, hash.to_owned()),
                paths.iter().map(|path| (*path).to_owned()).collect(),
            );
        };
        add(100, "x", &["b", "a"]);
        add(100, "y", &["c"]);
        add(60, "z", &["1", "2", "3"]);
        let groups: Vec<(u64, String)> =
            found.groups().iter().map(|group| (group.spare(), group.paths.concat())).collect();
        assert_eq!(groups, [(120, "123".to_owned()), (100, "ab".to_owned())]);
    }
}
