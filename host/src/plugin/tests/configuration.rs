//! What an operator may write.

use std::path::Path;
use std::time::Duration;

use super::super::{
    Configuration, ConfigurationError, DocumentError, FileError, Grace, Name, SecretName,
    SecretSource,
};
use super::{configuration, configure};
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
        let error = refused(text);
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
