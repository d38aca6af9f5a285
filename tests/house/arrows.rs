//! Arrows between the rooms point down.

use std::collections::BTreeMap;

use crate::source::sources;

/// Each room, and the rooms that it may know. ARCHITECTURE.md shows the same table; a new arrow is a decision.
const ROOMS: &[(&str, &[&str])] = &[
    ("ids", &[]),
    ("error", &[]),
    ("message", &[]),
    ("metrics", &[]),
    ("secret", &[]),
    ("schedule", &[]),
    ("work", &["ids", "metrics"]),
    ("profile", &["ids", "work"]),
    ("model", &["message", "metrics", "secret"]),
    ("sandbox", &["ids", "message", "metrics", "model", "work"]),
    ("plugin", &["sandbox", "schedule", "secret"]),
    ("tool", &["message", "plugin", "sandbox", "work"]),
    ("store", &["ids", "metrics"]),
    ("delegation", &["ids", "metrics", "work"]),
    ("session", &["delegation", "ids", "message", "model", "sandbox", "store", "tool", "work"]),
    (
        "host",
        &[
            "delegation",
            "error",
            "ids",
            "message",
            "metrics",
            "model",
            "plugin",
            "profile",
            "sandbox",
            "schedule",
            "session",
            "store",
            "tool",
            "work",
        ],
    ),
    (
        "server",
        &[
            "delegation",
            "error",
            "host",
            "ids",
            "metrics",
            "plugin",
            "profile",
            "sandbox",
            "secret",
            "session",
            "store",
            "work",
        ],
    ),
    ("lib", &["error", "host", "sandbox"]),
];

fn room_of(path: &str) -> &str {
    let inside = path.strip_prefix("host/src/").unwrap_or(path);
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}

#[test]
fn every_use_of_another_room_is_an_arrow_of_the_table() {
    let allowed: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    let mut wrong = Vec::new();
    for source in sources("host/src") {
        let room = room_of(&source.path);
        // The command is built on the library alone, and names it by its own name.
        if matches!(room, "cli" | "main") {
            continue;
        }
        let Some(knows) = allowed.get(room) else {
            wrong.push(format!("{}: the room `{room}` is not in the table", source.path));
            continue;
        };
        for (at, _) in source.code().match_indices("crate::") {
            let code = source.code();
            let rest = &code[at + "crate::".len()..];
            let other: String =
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            // What loom puts in the place of a lock lies outside the crate.
            if other == "stand_in" {
                continue;
            }
            let is_type = other.chars().next().is_none_or(char::is_uppercase);
            if other != room && !is_type && !knows.contains(&other.as_str()) {
                wrong.push(format!("{}: `{room}` must not know `{other}`", source.path));
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_no_way_back_up() {
    let place = |room: &str| ROOMS.iter().position(|(name, _)| *name == room);
    for (room, knows) in ROOMS {
        for other in *knows {
            assert!(place(other) < place(room), "`{room}` knows `{other}`, which is not below it");
        }
    }
}

#[test]
fn the_table_in_the_architecture_is_this_one() {
    let page = std::fs::read_to_string(crate::source::root().join("ARCHITECTURE.md"))
        .expect("it is there");
    for (room, knows) in ROOMS.iter().filter(|(room, _)| *room != "lib") {
        let knows = if knows.is_empty() { "nothing".to_owned() } else { knows.join(", ") };
        let row = page.lines().find(|line| line.starts_with(&format!("| `{room}`")));
        let row = row.unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for `{room}`"));
        assert!(
            row.trim_end().ends_with(&format!("| {knows} |")),
            "`{room}` may know: {knows}\nbut: {row}"
        );
    }
}

#[test]
fn only_the_sandbox_names_wasmtime() {
    for source in sources("host/src") {
        let names = source.code().contains("wasmtime");
        assert!(!names || room_of(&source.path) == "sandbox", "{} names wasmtime", source.path);
    }
}

#[test]
fn the_command_knows_the_library_by_its_public_name_only() {
    for source in sources("host/src/cli") {
        for room in ROOMS.iter().map(|(room, _)| room).filter(|room| **room != "lib") {
            let inside = format!("crate::{room}::");
            assert!(!source.code().contains(&inside), "{} reaches into `{room}`", source.path);
        }
    }
}
