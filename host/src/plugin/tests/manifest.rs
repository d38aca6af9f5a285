//! What a manifest may say, and what hostile ones get.

use super::super::{DocumentError, Kind, ManifestError, Patterns};
use super::{HEAD, keyless, manifest, manifest_error, parse};
use crate::sandbox::{Access, Limits};

/// The error for a manifest whose head is fine and that goes on like this. The head has five lines.
fn refused(rest: &str) -> String {
    manifest_error(&format!("{HEAD}{rest}"))
}

#[test]
fn a_whole_manifest_is_read() {
    let manifest = manifest(
        r#"interface = "0.1"

[grants]
directories = [{ mount = "work" }, { mount = "*", access = "read-write" }]
network = [{ host = "API.example.org", port = 443, private = true }]
environment = ["LANG"]
tools = ["files_*", "text_hash"]
models = true
delegation = ["surveyor"]

[limits]
memory = "16MiB"
wall-time = "30s"
fuel = 1_000_000

[configuration]
rounds = 20
"#,
    );
    assert_eq!(manifest.name.as_str(), "probe");
    assert_eq!(manifest.kind, Kind::Agent);
    assert_eq!(manifest.grants.directories[0].access, Access::Read);
    assert_eq!(manifest.grants.directories[1].access, Access::ReadWrite);
    assert_eq!(manifest.grants.network[0].host.as_str(), "api.example.org");
    assert!(
        manifest.grants.tools.allows("files_read") && !manifest.grants.tools.allows("text_diff")
    );
    assert_eq!(manifest.grants.models, Patterns::any());
    let limits = manifest.limits.over(&Limits::default());
    assert_eq!((limits.memory, limits.fuel), (16 << 20, Some(1_000_000)));
    assert_eq!(manifest.configuration.get("rounds"), Some(&serde_json::json!(20)));
}

#[test]
fn a_manifest_asks_for_nothing_where_it_says_nothing() {
    let manifest = manifest("");
    assert_eq!(manifest.grants, super::super::Requested::default());
    assert!(manifest.grants.models.is_empty() && manifest.limits.kinds().is_empty());
}

#[test]
fn unknown_keys_are_taken_apart() {
    assert_eq!(
        refused("[limits]\nmemroy = 1\n"),
        "probe/plugin.toml:7:1: unknown key `memroy`; did you mean `memory`?"
    );
    assert_eq!(
        refused("[grants]\nnetwork = [{ host = \"a.org\", prot = 1 }]\n"),
        "probe/plugin.toml:7:30: unknown key `prot`; did you mean `port`?"
    );
    assert!(
        refused("colour = 1\n")
            .starts_with("probe/plugin.toml:6:1: unknown key `colour`; known here: name, ")
    );
    assert!(
        refused("[limits]\n\"a`, expected `b\" = 1\n")
            .contains(":7:1: unknown key `a`, expected `b`; known here")
    );
    assert!(matches!(
        parse(&format!("{HEAD}x = 1")),
        Err(ManifestError::Document(DocumentError::UnknownKey { .. }))
    ));
}

#[test]
fn a_missing_key_is_named() {
    assert_eq!(manifest_error(""), "probe/plugin.toml:1:1: the key `name` is missing here; add it");
    let without = HEAD.replace("version = \"0.1.0\"\n", "");
    assert!(
        manifest_error(&without).contains("the key `version` is missing here"),
        "{}",
        manifest_error(&without)
    );
}

#[test]
fn wrong_types_and_values_are_refused_where_they_stand() {
    for (rest, expected) in [
        ("[limits]\nmemory = true\n", ":7:10: invalid type: boolean `true`, expected a size"),
        ("[limits]\nmemory = -1\n", ":7:10: -1 is below zero"),
        ("[limits]\nmemory = 1.5\n", ":7:10: invalid type: floating point"),
        ("[limits]\nmemory = 0\n", ":7:10: 0 would let nothing run"),
        (
            "[limits]\nmemory = \"99999999999GiB\"\n",
            ":7:10: `99999999999GiB` is more than can be counted",
        ),
        ("[limits]\nmemory = 99999999999999999999999\n", ":7:10: "),
        (
            "[limits]\nwall-time = 30\n",
            ":7:13: invalid type: integer `30`, expected a time such as",
        ),
        ("[limits]\nfuel = \"much\"\n", ":7:8: `much` is not a whole number"),
        ("limits = 3\n", ":6:10: invalid type: integer `3`"),
        ("grants = []\n", ":6:10: invalid type: sequence, expected a table"),
        ("[grants]\nnetwork = [[\"a.org\"]]\n", ":7:12: invalid type: sequence, expected a table"),
        ("[grants]\ndirectories = [{}]\n", ":7:16: the key `mount` is missing here"),
        ("[grants]\ntools = [\"a\", \"b*c\"]\n", ":7:15: `b*c` is not a name or pattern"),
        ("[grants]\ntools = \"a\"\n", ":7:9: invalid type: string \"a\", expected a list of names"),
        (
            "[grants]\ndirectories = [{ mount = \"../x\" }]\n",
            ":7:26: `../x` cannot be the name of a directory",
        ),
        (
            "[grants]\ndirectories = [{ mount = \"x\", access = \"rw\" }]\n",
            ":7:40: `rw` is no kind of access",
        ),
        ("[grants]\nnetwork = [{ host = \"a\", port = 70000 }]\n", ":7:33: "),
        ("[grants]\nnetwork = [{ host = \"a\", port = 0 }]\n", ":7:33: "),
        ("[grants]\nnetwork = [{ host = \"http://a/\" }]\n", ":7:21: `http://a/` is not a host"),
        (
            "[grants]\nenvironment = [\"A=B\"]\n",
            ":7:16: `A=B` cannot be the name of an environment variable",
        ),
        ("[grants]\ndelegation = 3\n", ":7:14: invalid type: integer `3`"),
        ("interface = \"latest\"\n", ":6:13: `latest` is not a version"),
        ("[configuration]\na = nan\n", ": the value of `a` cannot be handed to the plugin"),
    ] {
        let error = keyless(&refused(rest));
        assert!(error.contains(expected), "{rest}: {error}");
    }
    for (from, to, expected) in [
        ("\"agent\"", "\"agnet\"", ":3:8: `agnet` is not known here; did you mean `agent`?"),
        ("\"probe\"", "\"Probe\"", ":1:8: `Probe` cannot be the name of a plugin"),
        ("\"probe\"", "7", ":1:8: invalid type: integer `7`"),
        ("\"0.1.0\"", "\"new\"", ":2:11: `new` cannot be the version of a plugin"),
        ("\"Probes.\"", "\"two\\nlines\"", ":5:15: a description is one line"),
        ("\"Probes.\"", "\"\"", ":5:15: a description is one line"),
    ] {
        let error = keyless(&manifest_error(&HEAD.replacen(from, to, 1)));
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn no_component_lies_outside_the_folder() {
    for bad in [
        "../x.wasm",
        "a/../../x.wasm",
        "/x.wasm",
        "",
        ".",
        "..",
        "c:x.wasm",
        "a\\\\b.wasm",
        "a\\u0000b",
        "a/..",
    ] {
        let error = manifest_error(&HEAD.replace("probe.wasm", bad));
        assert!(
            error.contains(":4:13: ") && error.contains("is not a path inside the plugin's folder"),
            "{bad}: {error}"
        );
    }
    assert!(parse(&HEAD.replace("probe.wasm", "./out/probe.wasm")).is_ok());
}

#[test]
fn a_kind_asks_only_for_what_its_interface_has() {
    let error = refused("[grants]\nsecrets = [\"token\"]\n");
    assert_eq!(
        error,
        "probe/plugin.toml:7:1: `grants.secrets`: the interface of agents has no secrets, so nothing could use them; remove the key"
    );
    let tool = HEAD.replace("\"agent\"", "\"tool\"");
    for grant in ["tools", "models", "delegation"] {
        let error = manifest_error(&format!("{tool}[grants]\n{grant} = [\"*\"]\n"));
        assert!(
            error.contains(&format!(
                ":7:1: `grants.{grant}`: the interface of tools has no {grant}"
            )),
            "{error}"
        );
    }
    assert!(parse(&format!("{tool}[grants]\nsecrets = [\"token\"]\ntools = []\n")).is_ok());
}

#[test]
fn a_directory_is_asked_for_once() {
    let error = refused(
        "[grants]\ndirectories = [\n  { mount = \"a\" },\n  { mount = \"a\", access = \"read-write\" },\n]\n",
    );
    assert!(
        error.contains(":9:3: `grants.directories[1]`: the directory `a` is asked for twice"),
        "{error}"
    );
}

#[test]
fn a_manifest_for_another_interface_says_so() {
    for good in ["0.1", "0.1.0"] {
        manifest(&format!("interface = \"{good}\"\n"));
    }
    for bad in ["0.2", "0.1.1", "1.0", "0.0.1"] {
        let error = refused(&format!("interface = \"{bad}\"\n"));
        assert!(
            error.contains(":6:1: `interface`: this plugin needs checkrein:plugin "),
            "{error}"
        );
    }
}

#[test]
fn what_is_not_toml_is_refused_with_its_place() {
    for (text, place) in [
        ("name = ", "probe/plugin.toml:1:"),
        ("name = \"a\"\nname = \"b\"\n", "probe/plugin.toml:2:1: this is not TOML: duplicate key"),
        ("\0\u{1}\u{2}", "probe/plugin.toml:1:4: this is not TOML"),
        ("[[[[", "probe/plugin.toml:1:"),
        ("a = 'x\n", "probe/plugin.toml:1:"),
    ] {
        let error = manifest_error(text);
        assert!(error.starts_with(place), "{text:?}: {error}");
    }
}

#[test]
fn deep_nesting_is_refused_and_not_followed() {
    for deep in [
        format!("x = {}", "[".repeat(30_000)),
        format!("x = {}", "{a=".repeat(20_000)),
        format!("[{}a]", "a.".repeat(30_000)),
        format!("{HEAD}[configuration]\nx = {}1{}\n", "[".repeat(70), "]".repeat(70)),
    ] {
        assert!(parse(&deep).is_err());
    }
}

#[test]
fn a_huge_manifest_is_refused_before_it_is_read() {
    let huge = format!("{HEAD}# {}\n", "x".repeat(64 << 10));
    assert!(manifest_error(&huge).contains("larger than 64 KiB"));
}

#[test]
fn many_requests_are_read_in_good_time() {
    let many = (0..5_000).map(|n| format!("\"t{n}\"")).collect::<Vec<_>>().join(",");
    let manifest = manifest(&format!("[grants]\ntools = [{many}]\n"));
    assert_eq!(manifest.grants.tools.iter().count(), 5_000);
}

#[test]
fn nothing_foreign_comes_back_raw() {
    let escape = "\\u001b]0;owned\\u0007";
    for text in [
        HEAD.replace("probe\"\n", &format!("{escape}\"\n")),
        HEAD.replace("agent", escape),
        HEAD.replace("probe.wasm", escape),
        format!("{HEAD}\"{escape}\" = 1\n"),
        format!("{HEAD}\"\\u202e\" = 1\n"),
        format!("{HEAD}[limits]\n\"{escape}\" = 1\n"),
        format!("{HEAD}[limits]\nmemory = \"{escape}\"\n"),
        format!("{HEAD}[limits]\nfuel = [\"{escape}\"]\n"),
        format!("{HEAD}[limits]\nfuel = \"{escape}\"\n"),
        format!("{HEAD}[grants]\nnetwork = [{{ host = \"{escape}\" }}]\n"),
        format!("{HEAD}[grants]\ntools = \"{escape}\"\n"),
        format!("{HEAD}\x1b]0;owned\x07 = 1\n"),
    ] {
        let error = parse(&text).unwrap_err();
        let shown = format!("{error}{error:?}");
        assert!(shown.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{text:?}: {shown:?}");
    }
}
