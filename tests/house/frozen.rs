//! Released interfaces never change.

use std::collections::BTreeMap;
use std::fs;

use sha2::{Digest, Sha256};

use crate::source::root;

/// Every released file with its SHA-256. A line is added with a release and never changed.
const RELEASED: &str = include_str!("../../wit/frozen/SHA256SUMS");

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn released() -> BTreeMap<&'static str, &'static str> {
    RELEASED
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(hash, path)| (path, hash))
        .collect()
}

#[test]
fn released_interfaces_have_not_changed() {
    let frozen = root().join("wit/frozen");
    for (path, expected) in released() {
        let bytes = fs::read(frozen.join(path))
            .unwrap_or_else(|error| panic!("wit/frozen/{path}: {error}"));
        assert_eq!(
            hash(&bytes),
            expected,
            "wit/frozen/{path} has changed; a break is a new folder"
        );
    }
}

#[test]
fn every_frozen_file_is_in_the_list() {
    let frozen = root().join("wit/frozen");
    for folder in
        fs::read_dir(&frozen).expect("it is there").map(|entry| entry.expect("an entry").path())
    {
        if !folder.is_dir() {
            continue;
        }
        for file in
            fs::read_dir(&folder).expect("it is there").map(|entry| entry.expect("an entry").path())
        {
            let path = file.strip_prefix(&frozen).expect("it is below").display().to_string();
            assert!(
                released().contains_key(path.as_str()),
                "wit/frozen/{path} is not in SHA256SUMS"
            );
        }
    }
}

/// Until the next version is begun, the working copy is the newest release to the letter.
#[test]
fn the_working_copy_is_the_newest_release() {
    for (path, _) in released().iter().filter(|(path, _)| path.starts_with("0.1.0/")) {
        let name = path.trim_start_matches("0.1.0/");
        let working =
            fs::read(root().join("wit").join(name)).expect("the working copy has the same files");
        let frozen = fs::read(root().join("wit/frozen").join(path)).expect("it is there");
        assert!(
            working == frozen,
            "wit/{name} differs from wit/frozen/{path}: say in CHANGELOG.md what is added"
        );
    }
}
