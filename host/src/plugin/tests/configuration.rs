//! What an operator may write.

use std::path::Path;
use std::time::Duration;

use super::super::{
    Configuration, ConfigurationError, DocumentError, FileError, Grace, Name, SecretName,
    SecretSource,
};
use super::{configuration, configure, keyless};
use crate::sandbox::{Isolation, Limits};

fn refused(text: &str) -> String {
    configure(text).unwrap_err().to_string()
}

const WHOLE: &str = r#"
default-model = "main"
plugin-directories = ["plugins", "/opt/plugins"]
cache-directory = "../cache"

[limits]
wall-time = "none"
memory = "128MiB"

[sandbox]
pool-size = 500
executor-threads = 2

[compile]
time = "1m"
memory = "2GiB"
jobs = 2
component-bytes = "32MiB"

[stop]
grace = "5s"

[models.main]
provider = "scripted"
script = "answers.toml"

[plugins.http]
path = "http"
limits = { memory = "1GiB" }
configuration = { agent = "x" }

[plugins.http.grants]
directories = [{ mount = "work", path = "data", access = "read-write" }]
network = [{ host = "*" }]
environment = ["LANG"]
secrets = { token = { env = "TOKEN" }, key = { file = "key.txt" } }

[serve]
profiles = "profiles"
socket = "/run/api.sock"
tokens = "keys/tokens.toml"
"#;

#[test]
fn a_whole_configuration_is_read_and_its_paths_are_relative_to_its_file() {
    let read = configuration(WHOLE);
    assert_eq!(
        read.plugin_directories,
        [Path::new("/etc/checkrein/plugins"), Path::new("/opt/plugins")]
    );
    assert_eq!(read.cache_directory.as_deref(), Some(Path::new("/etc/checkrein/../cache")));
    let serve = "[serve]\nprofiles = \"p\"\nsocket = \"s\"\ntokens = \"t\"\n";
    let serve = Configuration::parse(serve, Path::new("/etc/checkrein/c.toml")).unwrap().serve;
    for (path, name) in [(serve.profiles, "p"), (serve.socket, "s"), (serve.tokens, "t")] {
        assert_eq!(path, Some(Path::new("/etc/checkrein").join(name)));
    }
    assert_eq!(read.stop.grace, Some(Grace::After(Duration::from_secs(5))));
    assert_eq!(read.compile.most_component_bytes(), 32 << 20);
    let http = &read.plugins["http"];
    assert_eq!(http.path.as_deref(), Some(Path::new("/etc/checkrein/http")));
    assert_eq!(http.grants.directories[0].path, Path::new("/etc/checkrein/data"));
    assert_eq!(
        http.grants.secrets[&SecretName::parse("key").unwrap()],
        SecretSource::File("/etc/checkrein/key.txt".into())
    );
    let serve = &read.serve;
    for (path, whole) in [
        (&serve.profiles, "/etc/checkrein/profiles"),
        (&serve.socket, "/run/api.sock"),
        (&serve.tokens, "/etc/checkrein/keys/tokens.toml"),
    ] {
        assert_eq!(path.as_deref(), Some(Path::new(whole)));
    }
}

#[test]
fn an_empty_configuration_is_the_default() {
    let read = configuration("");
    assert_eq!(read.plugins, Configuration::default().plugins);
    assert_eq!(read.ceiling(&Name::parse("x").unwrap()), Limits::default());
}

#[test]
fn where_one_plugin_runs_goes_before_where_all_do() {
    let read = configuration(
        "isolation = \"process\"\n[workers]\nprocesses = 2\nmemory = \"1GiB\"\nprocessor-time = \"1m\"\n\
         stop-bound = \"500ms\"\n[plugins.own]\nisolation = \"instance\"\n",
    );
    let of = |name| read.isolation(&Name::parse(name).unwrap());
    assert_eq!((of("own"), of("other")), (Isolation::Instance, Isolation::Process));
    assert!(read.needs_workers() && !configuration(WHOLE).needs_workers());
    assert!(!format!("{:?}", read.workers).contains("None"), "{:?}", read.workers);
    let read = configuration("[plugins.one]\nisolation = \"process\"\n");
    let of = |name| read.isolation(&Name::parse(name).unwrap());
    assert_eq!((of("one"), of("other")), (Isolation::Process, Isolation::Instance));
    assert!(read.needs_workers());
}

#[test]
fn the_ceiling_of_one_plugin_goes_before_that_of_all() {
    let read = configuration(WHOLE);
    let http = read.ceiling(&Name::parse("http").unwrap());
    let other = read.ceiling(&Name::parse("other").unwrap());
    assert_eq!((http.memory, other.memory), (1 << 30, 128 << 20));
    assert_eq!((http.wall_time, other.wall_time), (None, None));
}

#[test]
fn a_model_is_read_by_whoever_knows_its_form() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Scripted {
        provider: String,
        script: String,
    }
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Other {
        #[serde(rename = "provider")]
        _provider: String,
    }
    let read = configuration(WHOLE);
    let model: Scripted = read.model("main").unwrap().unwrap();
    assert_eq!((model.provider.as_str(), model.script.as_str()), ("scripted", "answers.toml"));
    assert!(read.model::<Scripted>("other").unwrap().is_none());
    let error = read.model::<Other>("main").unwrap_err();
    assert_eq!(
        error.to_string(),
        "/etc/checkrein/config.toml:25:1: unknown key `script`; known here: provider"
    );
}

#[test]
fn a_key_that_nothing_reads_is_refused_with_its_place() {
    for (text, expected) in [
        (
            "plugin-directory = []",
            ":1:1: unknown key `plugin-directory`; did you mean `plugin-directories`?",
        ),
        ("[plugins.a]\ngrant = {}", ":2:1: unknown key `grant`; did you mean `grants`?"),
        ("[plugins.a.grants]\nsecrets = { t = { file = \"x\", env = \"Y\" } }", ":2:17: "),
        (
            "[plugins.a.grants]\nsecrets = { t = { vault = \"x\" } }",
            ":2:19: `vault` is not known here",
        ),
        ("[plugins.a.grants]\nsecrets = { t = \"inline\" }", ":2:17: "),
        (
            "[plugins.a.grants]\nsecrets = { t = { file = \"~/x\" } }",
            ":2:26: `~` is not replaced here",
        ),
        ("[plugins.A]\n", ":1:10: `A` cannot be the name of a plugin"),
        ("[plugins]\na = 1", ":2:5: invalid type: integer `1`, expected a table"),
        ("[plugins]\na = []", ":2:5: invalid type: sequence, expected a table"),
        ("[sandbox]\npool-size = 0", ":2:13: 0 would let nothing run"),
        ("[sandbox]\nexecutor-threads = 99999", ":2:20: 99999 is too many; at most 1024"),
        ("[stop]\ngrace = \"soon\"", ":2:9: `soon` is not a time"),
        ("cache-directory = \"\"", ":1:19: a path cannot be empty"),
        ("plugin-directories = [\"a\", \"~/b\"]", ":1:28: `~` is not replaced here"),
        ("[models]\nmain = 3", ":2:8: invalid type: integer `3`, expected a table"),
        (
            "default-model = \"man\"\n[models.main]\n",
            ":1:1: there is no [models.man]; did you mean `main`?",
        ),
        (
            "[[plugins.a.grants.directories]]\nmount = \"w\"\npath = \"x\"\n[[plugins.a.grants.directories]]\nmount = \"w\"\npath = \"y\"\n",
            ":4:1: the directory `w` is given twice",
        ),
        (
            "isolation = \"vm\"\n",
            ":1:13: `vm` is no kind of isolation; write \"instance\" or \"process\"",
        ),
        ("[plugins.a]\nisolation = true\n", ":2:13: "),
        ("[workers]\nprocesses = 0\n", ":2:13: 0 would let nothing run"),
        ("[workers]\nprocesses = 10001\n", ":2:13: 10001 is too many"),
        ("[workers]\nmemroy = \"1GiB\"\n", "memory"),
        (
            "[[plugins.a.grants.directories]]\nmount = \"*\"\npath = \"x\"\n",
            ":2:9: `*` cannot be the name of a directory",
        ),
    ] {
        let error = keyless(&refused(text));
        assert!(
            error.starts_with("/etc/checkrein/config.toml:") && error.contains(expected),
            "{text}: {error}"
        );
    }
    assert!(matches!(
        configure("x = 1"),
        Err(ConfigurationError::Document(DocumentError::UnknownKey { .. }))
    ));
}

#[test]
fn every_mistake_is_told_with_its_file_line_and_key() {
    for (text, line, key) in [
        ("x = 1", 1, "x"),
        ("\n\n\"a key\" = 1", 3, "\"a key\""),
        ("[serve]\nsokcet = 1", 2, "serve.sokcet"),
        ("[serve]\nconnections = 0", 2, "serve.connections"),
        ("[serve]\n\n  tcp = \"localhost\"", 3, "serve.tcp"),
        ("[serve.rates]\nburst = -1", 2, "serve.rates.burst"),
        ("serve = { rates = { burst = true } }", 1, "serve.rates.burst"),
        ("serve.rates.burst = \"x\"", 1, "serve.rates.burst"),
        ("[serve]\nsocket = \"\"\n[serve.rates]\nburst = 1", 2, "serve.socket"),
        ("serve = 3", 1, "serve"),
        ("plugin-directories = [\"a\",\n \"~/b\"]", 2, "plugin-directories[1]"),
        ("[limits]\nmemory = 0", 2, "limits.memory"),
        ("[plugins.a]\nlimits = { fuel = \"x\" }", 2, "plugins.a.limits.fuel"),
        ("[plugins.a]\n[plugins.b.limits]\nfuel = 0", 3, "plugins.b.limits.fuel"),
        ("[plugins.A]\n", 1, "plugins.A"),
        ("[plugins.a]\nisolation = \"vm\"", 2, "plugins.a.isolation"),
        (
            "[plugins.a.grants]\ndirectories = [{ path = \"x\" }]",
            2,
            "plugins.a.grants.directories[0].mount",
        ),
        (
            "[[plugins.a.grants.directories]]\nmount = \"m\"\npath = \"p\"\n[[plugins.a.grants.directories]]\npath = \"q\"\nmount = \"*\"",
            6,
            "plugins.a.grants.directories[1].mount",
        ),
        (
            "[[plugins.a.grants.directories]]\nmount = \"m\"\npath = \"p\"\n[[plugins.a.grants.directories]]\npath = \"q\"\nmount = \"m\"",
            4,
            "plugins.a.grants.directories[1]",
        ),
        (
            "[plugins.a.grants]\nnetwork = [{ host = \"a\" },\n{ host = \"http://a/\" }]",
            3,
            "plugins.a.grants.network[1].host",
        ),
        (
            "[plugins.a.grants.secrets]\nt = { file = \"~/x\" }",
            2,
            "plugins.a.grants.secrets.t.file",
        ),
        (
            "[plugins.a.grants.secrets]\nt = { vault = \"x\" }",
            2,
            "plugins.a.grants.secrets.t.vault",
        ),
        ("[plugins.a.grants.secrets]\nt = {}", 2, "plugins.a.grants.secrets.t"),
        ("[plugins.a.grants]\nenvironment = [\"A\", 3]", 2, "plugins.a.grants.environment[1]"),
        ("[plugins.a.grants]\ntools = [\"b*c\"]", 2, "plugins.a.grants.tools[0]"),
        ("[models]\nmain = 3", 2, "models.main"),
        ("\ndefault-model = \"main\"", 2, "default-model"),
        ("[stop]\ngrace = \"soon\"", 2, "stop.grace"),
        ("[store]\nbytes = []", 2, "store.bytes"),
        ("[telemetry]\notlp-endpoint = \"here\"", 2, "telemetry.otlp-endpoint"),
        ("[schedules.s]\ncron = \"0 * * * *\"\nagent = \"a\"", 1, "schedules.s.goal"),
        ("[schedules.s]\ncron = \"x\"\nagent = \"a\"\ngoal = \"g\"", 2, "schedules.s.cron"),
        (
            "[schedules.s]\ncron = \"0 * * * *\"\nagent = \"a\"\ngoal = \"g\"\ninput = \"{\"",
            5,
            "schedules.s.input",
        ),
    ] {
        let error = configure(text).unwrap_err();
        let (place, words) = (error.place().unwrap(), error.to_string());
        let told = (place.line, place.key.as_deref());
        assert_eq!(told, (line, Some(key)), "{text}: {words}");
        assert!(words.starts_with("/etc/checkrein/config.toml:"), "{words}");
        // One that has no other name is named by the table that it is missing in, or stands in.
        let last = key.rsplit('.').next().unwrap().trim_matches('"');
        assert!(
            words.contains(&format!("`{key}`")) || words.contains(&format!("`{last}`")),
            "{words}"
        );
        assert!(!error.words().contains("config.toml"), "{words}");
    }
    let error = configure("[serve\n").unwrap_err();
    assert_eq!(error.place().map(|place| (place.line, place.key.clone())), Some((1, None)));
}

#[test]
fn what_is_refused_later_has_its_place_where_it_stands_in_a_file() {
    let read =
        configuration("\n[limits]\nmemory = \"1GiB\"\n[plugins.a]\nisolation = \"process\"\n");
    let refused = read.refuse(&["limits", "memory"], &"too much");
    assert_eq!(refused.to_string(), "/etc/checkrein/config.toml:3:1: `limits.memory`: too much");
    assert_eq!(read.key_of_workers(), Some(vec!["plugins", "a", "isolation"]));
    assert_eq!(configuration("isolation = \"process\"").key_of_workers(), Some(vec!["isolation"]));
    assert_eq!(read.refuse(&["limits", "fuel"], &"too much").to_string(), "too much");
    let made = Configuration::default().refuse(&["limits"], &"too much");
    assert_eq!((made.to_string().as_str(), made.place()), ("too much", None));
}

#[test]
fn a_key_that_was_written_into_the_file_does_not_show_in_debug_output() {
    let read = configuration("[models.main]\napi-key = \"sk-hunter2\"\n");
    assert!(!format!("{read:?}").contains("hunter2"));
}

#[test]
fn a_file_without_a_folder_in_its_name_lies_in_the_current_directory() {
    let file = tempfile::NamedTempFile::new_in(".").unwrap();
    let name = Path::new(file.path().file_name().unwrap());
    let loaded = Configuration::load(name).unwrap();
    assert_eq!(loaded.folder(), std::env::current_dir().unwrap());
    assert_eq!(Configuration::default().folder(), Path::new(""));
}

#[test]
fn a_configuration_is_loaded_from_a_regular_file_only() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config.toml");
    std::fs::write(&path, "plugin-directories = [\"p\"]").unwrap();
    assert_eq!(Configuration::load(&path).unwrap().plugin_directories, [home.path().join("p")]);
    std::fs::write(&path, [b'a', 0xff]).unwrap();
    let error = Configuration::load(&path).unwrap_err();
    assert!(
        matches!(error, ConfigurationError::File(FileError::NotText { offset: 1, .. })),
        "{error}"
    );
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(matches!(
        Configuration::load(&path),
        Err(ConfigurationError::File(FileError::TooLarge { .. }))
    ));
    assert!(matches!(
        Configuration::load(home.path()),
        Err(ConfigurationError::File(FileError::NotRegular { .. }))
    ));
    let nowhere = home.path().join("nowhere");
    assert!(matches!(
        Configuration::load(&nowhere),
        Err(ConfigurationError::File(FileError::Missing { .. }))
    ));
}
