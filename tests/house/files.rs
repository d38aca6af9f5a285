//! How files begin, where work is spawned, and where the one unsafe call is.

use crate::source::{Source, sources};

fn all() -> Vec<Source> {
    ["host", "guest-sdk", "plugins", "tests"].into_iter().flat_map(sources).collect()
}

#[test]
fn every_file_says_first_what_it_is_for() {
    let silent: Vec<String> = all()
        .into_iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.path)
        .collect();
    assert!(silent.is_empty(), "no `//!` line at the top of:\n{}", silent.join("\n"));
}

/// Where spawning is written out. Clippy refuses it everywhere else, and each of these lines says why.
const SPAWNS: [&str; 6] = [
    "host/src/work/running.rs",
    "host/src/sandbox/compile/loader.rs",
    "host/src/sandbox/compile/child.rs",
    "host/src/sandbox/worker/child.rs",
    "host/src/cli/interrupt.rs",
    "host/src/store/sqlite/thread.rs",
];

#[test]
fn only_work_running_spawns() {
    let spawning = [
        "tokio::spawn",
        "spawn_blocking(",
        "thread::spawn",
        "Builder::new().name",
        "handle.spawn(",
        "control.spawn(",
    ];
    for source in sources("host/src") {
        let code = source.code();
        let spawns = spawning.iter().find(|spawn| code.contains(*spawn));
        let tests = source.path.contains("/tests") || source.path.ends_with("/testing.rs");
        let allowed = tests || SPAWNS.contains(&source.path.as_str());
        assert!(
            allowed || spawns.is_none(),
            "{} spawns with `{}`",
            source.path,
            spawns.unwrap_or(&"")
        );
    }
}

#[test]
fn there_is_one_place_with_unsafe_code() {
    let unsafe_word = concat!("un", "safe ");
    // The guests of the tests do what no plugin should, and a benchmark compares with the unchecked way.
    let unsafe_files: Vec<String> =
        ["host/src", "tests/kit", "tests/e2e", "tests/house", "plugins"]
            .into_iter()
            .flat_map(sources)
            .filter(|source| {
                source.code().contains(&format!("{unsafe_word}{{"))
                    || source.code().contains(&format!("{unsafe_word}fn"))
            })
            .map(|source| source.path)
            .collect();
    assert_eq!(unsafe_files, ["host/src/sandbox/compile/code.rs"]);
}

#[test]
fn nothing_is_left_for_later() {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    for source in ["host/src", "guest-sdk/src"].into_iter().flat_map(sources) {
        for line in source.text.lines().filter(|line| line.trim_start().starts_with("//")) {
            let found = words.iter().find(|word| line.contains(*word));
            assert!(found.is_none(), "{}: {line}", source.path);
        }
    }
}
