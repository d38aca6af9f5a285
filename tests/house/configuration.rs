//! The reference of the configuration is generated from the types that read it, and checked in.
//!
//! After a change of a key or of its words: `CHECKREIN_BLESS=1 cargo test --test house configuration`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use checkrein::model::{Kind, ProviderConfig};
use checkrein::plugin::Configuration;

use crate::source::root;
use crate::usual::{Usual, constants, usual};

/// The tables of the configuration: heading, file, type.
const TABLES: &[(&str, &str, &str)] = &[
    ("The top of the file", "plugin/configuration.rs", "Configuration"),
    ("`[limits]` and `[plugins.NAME.limits]`", "plugin/limits.rs", "LimitsTable"),
    ("`[models.NAME]`", "model/config.rs", "ProviderConfig"),
    ("`[models.NAME.limits]`", "model/limits.rs", "TimeLimits"),
    ("`[plugins.NAME]`", "plugin/configuration.rs", "PluginTable"),
    ("`[plugins.NAME.grants]`", "plugin/configuration.rs", "Granted"),
    ("`directories` of `[plugins.NAME.grants]`", "plugin/configuration.rs", "GrantedDirectory"),
    ("`network` of `[plugins.NAME.grants]`", "plugin/hosts.rs", "HostEntry"),
    ("`[stop]`", "plugin/configuration.rs", "StopTable"),
    ("`[store]`", "plugin/configuration.rs", "StoreTable"),
    ("`[sandbox]`", "plugin/configuration.rs", "SandboxTable"),
    ("`[compile]`", "plugin/configuration.rs", "CompileTable"),
    ("`[workers]`", "plugin/configuration.rs", "WorkersTable"),
    ("`[delegation]`", "plugin/configuration.rs", "DelegationTable"),
    ("`[schedules.NAME]`", "plugin/schedules.rs", "ScheduleTable"),
    ("`[telemetry]`", "plugin/configuration.rs", "TelemetryTable"),
    ("`[serve]`", "plugin/configuration.rs", "ServeTable"),
    ("`[serve.rates]`", "plugin/configuration.rs", "RatesTable"),
];

/// What the page begins with. The two files in it are read by the program below.
const HEAD: &str = "# Configuration

Two kinds of files have these keys: that of the host, after `--config`, and the `profile.toml` of each profile. This page has every
key as the program reads it, with the value that it has when it is left out.

A key that nobody reads is an error, and so is a value that makes no sense or that nothing enforces; the error names file, line,
column and key. `checkrein doctor --config FILE` reads the file of a host and says what is wrong with it, and `checkrein reload` those of
all profiles.

## Two files to begin with

The file of a daemon, `checkrein.toml`:

```toml
[serve]
profiles = \"profiles\"
drain = \"1m\"

[sandbox]
pool-size = 512
```

A profile, `profiles/main/profile.toml`:

```toml
plugin-directories = [\"plugins\"]
default-model = \"main\"

[models.main]
kind = \"anthropic\"
model = \"claude-sonnet-4-5\"
key-file = \"key\"

[limits]
wall-time = \"30m\"
model-tokens = 1_000_000

[plugins.assistant.grants]
directories = [{ mount = \"work\", path = \"/srv/work\", access = \"read-write\" }]
network = [{ host = \"*.example.org\", port = 443 }]
tools = [\"*\"]
models = [\"main\"]

[plugins.assistant.limits]
memory = \"128MiB\"

[schedules.nightly]
cron = \"30 2 * * MON-FRI\"
time-zone = \"Europe/Berlin\"
agent = \"assistant\"
goal = \"Say what has changed since yesterday.\"
```

## How values are written

| value | written as |
| --- | --- |
| size | bytes, as a whole number or as text with a unit: `65536`, `\"64KiB\"`, `\"64MiB\"`, `\"2GiB\"`; `kB`, `MB` and `GB` are powers of 1000 |
| time | text with a unit: `\"250ms\"`, `\"30s\"`, `\"10m\"`, `\"2h\"` |
| seconds | a number without a unit, also with a fraction: `30`, `0.5` |
| whole number | `64`, `100_000` |
| path | text; relative to the folder of the file that it stands in |
| table | `[NAME]`, or `{ key = value }` on one line |

The column *left out* has what counts where the key is not there, as the file would say it. *Required* means that the table is an
error without it. Words there are no values to be written. A table that is left out, or *nothing*,
leaves each of its keys out.

This page is made from the types that read the files.
";

struct Field {
    key: String,
    kind: String,
    /// What counts where it is left out.
    unsaid: String,
    words: String,
}

#[test]
fn the_reference_of_the_configuration_is_that_of_the_code() {
    let mut page = HEAD.to_owned();
    let mut usual = usual();
    for (heading, file, name) in TABLES {
        let fields = fields(file, name, &mut usual);
        assert!(!fields.is_empty(), "{name} in {file} has no fields");
        let places = *name == "Configuration";
        let more = if places { [" where |", " --- |"] } else { ["", ""] };
        write!(page, "\n## {heading}\n\n").expect("text can be written");
        if places {
            page.push_str(PLACES);
        }
        writeln!(page, "| key | value | left out | what |{}", more[0])
            .expect("text can be written");
        writeln!(page, "| --- | --- | --- | --- |{}", more[1]).expect("text can be written");
        for Field { key, kind, unsaid, words } in fields {
            let place = if places { format!(" {} |", place(&key)) } else { String::new() };
            writeln!(page, "| `{key}` | {kind} | {unsaid} | {words} |{place}")
                .expect("text can be written");
        }
    }
    assert!(usual.is_empty(), "nobody reads these: {:?}", usual.keys());
    let path = root().join("docs/configuration.md");
    if std::env::var_os("CHECKREIN_BLESS").is_some() {
        fs::write(&path, &page).expect("it can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/configuration.md does not fit the code; run `CHECKREIN_BLESS=1 cargo test --test house configuration`"
    );
}

/// Of every number, size and time that bounds something `docs/operating.md` says whom it holds up.
#[test]
fn the_chapter_on_limits_has_every_bound() {
    let page = fs::read_to_string(root().join("docs/operating.md")).expect("it can be read");
    let (_, chapter) = page.split_once("\n## Limits\n").expect("a chapter on limits");
    let chapter = chapter.split("\n## ").next().unwrap_or_default();
    let no_bounds = ["executor-threads", "port", "retry-pause-seconds", "grace"];
    let mut usual = usual();
    let mut found = 0;
    for (_, file, name) in TABLES {
        let bounds = fields(file, name, &mut usual).into_iter().filter(|field| {
            let kinds = ["whole number", "size", "time", "seconds"];
            let is_amount = kinds.iter().any(|kind| {
                field.kind.strip_prefix(kind).is_some_and(|rest| !rest.starts_with(" zone"))
            });
            is_amount && !no_bounds.contains(&field.key.as_str())
        });
        for Field { key, .. } in bounds {
            found += 1;
            assert!(chapter.contains(&format!("`{key}`")), "nothing is said of `{key}` in {name}");
        }
    }
    assert!(found > 40, "{found}");
}

/// The examples of the page are what they say, and each value of the column can be written as it stands there.
#[test]
fn what_the_reference_says_can_be_written() {
    let examples: Vec<&str> = HEAD.split("```toml\n").skip(1).collect();
    let [host, profile] = examples[..] else { panic!("two examples") };
    let read = |text: &str| {
        let text = text.split("```").next().unwrap_or_default();
        let file = Path::new("checkrein.toml");
        Configuration::parse(text, file).unwrap_or_else(|error| panic!("{error}\n{text}"))
    };
    assert!(read(host).host_wide().is_some() && read(host).for_profiles().is_none());
    let profile = read(profile);
    assert!(profile.host_wide().is_none() && profile.profile_only().is_some());
    let model: Option<ProviderConfig> = profile.model("main").expect("it can be read");
    assert!(model.is_some());
    for ((table, key), value) in usual() {
        let line = format!("{key} = {value}\n");
        let text = match table {
            "Configuration" => line,
            "LimitsTable" => format!("[limits]\n{line}"),
            "ProviderConfig" => format!("[models.m]\nkind = \"scripted\"\n{line}"),
            "TimeLimits" => format!("[models.m]\nkind = \"scripted\"\n[models.m.limits]\n{line}"),
            "HostEntry" => {
                format!("[plugins.p.grants]\nnetwork = [{{ host = \"*\", {} }}]\n", line.trim())
            }
            "ScheduleTable" => {
                format!("[schedules.s]\ncron = \"0 0 * * *\"\nagent = \"a\"\ngoal = \"g\"\n{line}")
            }
            "GrantedDirectory" => format!(
                "[plugins.p.grants]\ndirectories = [{{ mount = \"m\", path = \".\", {} }}]\n",
                line.trim()
            ),
            "RatesTable" => format!("[serve.rates]\n{line}"),
            table => {
                let name = table.trim_end_matches("Table").to_lowercase();
                format!("[{name}]\n{line}")
            }
        };
        let read = read(&text);
        for model in read.models().map(ToString::to_string).collect::<Vec<_>>() {
            let model: Option<ProviderConfig> = read.model(&model).expect("it can be read");
            assert_eq!(model, Some(ProviderConfig::new(Kind::Scripted)), "{text}");
        }
    }
}

/// What the column `where` of the first table means.
const PLACES: &str = "A daemon takes what stands under *host* from its own file, where it counts for all profiles, and a `profile.toml` that has it is
refused. What stands under *profile* it takes from each `profile.toml` alone: nothing is handed down, and a daemon does not start with
it in its own file. Where both may have it, that of the profile goes first. `checkrein run` has one file for all of it, without
`schedules`.

";

/// Whose file a key of the top stands in, as the program tells.
fn place(key: &str) -> &'static str {
    let text = match key {
        "default-model" => "default-model = \"m\"\n[models.m]\nkind = \"scripted\"",
        "plugin-directories" => "plugin-directories = [\"plugins\"]",
        "cache-directory" => "cache-directory = \"cache\"",
        "isolation" => "isolation = \"process\"",
        "limits" => "[limits]\nmemory = 1",
        "models" => "[models.m]\nkind = \"scripted\"",
        "plugins" => "[plugins.p]\nisolation = \"process\"",
        "sandbox" => "[sandbox]\npool-size = 1",
        "compile" => "[compile]\njobs = 1",
        "workers" => "[workers]\nprocesses = 1",
        "stop" => "[stop]\ngrace = \"1s\"",
        "delegation" => "[delegation]\ndepth = 1",
        "store" => "[store]\nbytes = 1",
        "serve" => "[serve]\ndrain = \"1s\"",
        "schedules" => "[schedules.s]\ncron = \"0 0 * * *\"\nagent = \"a\"\ngoal = \"g\"",
        "telemetry" => "[telemetry]\notlp-endpoint = \"http://localhost\"",
        other => panic!("write an example of `{other}`, so that it can be told whose key it is"),
    };
    let read = Configuration::parse(text, Path::new("checkrein.toml"));
    let read = read.unwrap_or_else(|error| panic!("{error}"));
    match (read.host_wide(), read.for_profiles()) {
        (Some(found), None) if found == key => "host",
        (None, Some((found, _))) if found == key || key == "default-model" => "profile",
        (None, None) => "host and profile",
        other => panic!("{key} is taken for {other:?}"),
    }
}

/// Every table type of the configuration's file is on the page.
#[test]
fn no_table_of_the_configuration_is_missing() {
    let text = read("plugin/configuration.rs");
    for line in text.lines().filter_map(|line| line.strip_prefix("pub struct ")) {
        let name: String = line.chars().take_while(char::is_ascii_alphanumeric).collect();
        let is_on_it = TABLES.iter().any(|(_, _, table)| *table == name);
        assert!(is_on_it, "`{name}` is not among the tables of the reference");
    }
}

fn read(file: &str) -> String {
    let path = root().join("host/src").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fields of a struct that a file is read into, in their order. Takes what each of them usually is out of `usual`.
fn fields(file: &str, name: &'static str, usual: &mut Usual) -> Vec<Field> {
    let text = read(file);
    let start = text.find(&format!("pub struct {name} {{")).unwrap_or_else(|| panic!("no {name}"));
    let outer = text[..start].rsplit("\n\n").next().unwrap_or_default();
    let all_may_lack = outer.contains("serde(default");
    let mut found = Vec::new();
    for Raw { key, kind, attributes, words } in raw(&text[start..]) {
        let (words, rule) = match told(&words).split_once(" Left out: ") {
            Some((words, rule)) => (words.to_owned(), Some(rule.trim_end_matches('.').to_owned())),
            None => (told(&words), None),
        };
        let key = renamed(&attributes).unwrap_or(key);
        let known = usual.iter().find(|((table, known), _)| *table == name && *known == key);
        let known = known.map(|(id, value)| (*id, value.clone()));
        let may_lack = all_may_lack || attributes.contains("default") || kind.starts_with("Option");
        let shown = if key.ends_with("-seconds") { "seconds".to_owned() } else { kind_of(&kind) };
        let unsaid = match (known, rule) {
            (Some((id, value)), None) => {
                usual.remove(&id);
                format!("`{value}`")
            }
            (None, Some(rule)) => rule,
            (None, None) if !may_lack => "required".to_owned(),
            (None, None) if shown.starts_with("list") => "none".to_owned(),
            (None, None) if shown == "table" => "nothing".to_owned(),
            (Some(_), Some(_)) => panic!("{name}: `{key}` has a value and a rule"),
            (None, None) => {
                panic!("{name}: what is `{key}` when it is left out? See tests/house/usual.rs")
            }
        };
        let shown = format!("{shown}{}", range(&attributes));
        found.push(Field { key, kind: shown, unsaid, words });
    }
    found
}

/// A field as its source has it.
struct Raw {
    key: String,
    kind: String,
    attributes: String,
    words: String,
}

fn raw(text: &str) -> Vec<Raw> {
    let body = text.split("\n}\n").next().unwrap_or_default();
    let (mut found, mut words, mut attributes) = (Vec::new(), String::new(), String::new());
    let mut in_attribute = false;
    for line in body.lines().skip(1).map(str::trim) {
        if let Some(more) = line.strip_prefix("///") {
            words.push_str(more);
        } else if in_attribute || line.starts_with("#[") {
            attributes.push_str(line);
            in_attribute = !line.ends_with(']');
        } else if let Some((key, kind)) = line.trim_end_matches(',').split_once(": ") {
            let (words, attributes) = (std::mem::take(&mut words), std::mem::take(&mut attributes));
            if !attributes.contains("serde(skip)") {
                let key = key.trim_start_matches("pub ").replace('_', "-");
                found.push(Raw { key, kind: kind.to_owned(), attributes, words });
            }
        }
    }
    found
}

/// The bounds of a number, where the code has some.
fn range(attributes: &str) -> String {
    match attributes.split_once("at_most::<_, ") {
        Some((_, rest)) => {
            let most = rest.split('>').next().unwrap_or_default();
            format!(", 1 to {}", most.replace('_', ","))
        }
        None => String::new(),
    }
}

fn renamed(attributes: &str) -> Option<String> {
    let rest = attributes.split("rename = \"").nth(1)?;
    Some(rest.split('"').next()?.to_owned())
}

/// The words of a field. What refers to the field of another type has the words of that.
fn told(words: &str) -> String {
    let mut words = words.trim().to_owned();
    if let Some(rest) = words.strip_prefix("See [`Limits::")
        && let Some((field, rest)) = rest.split_once("`]")
    {
        let text = read("sandbox/limits.rs");
        let start = text.find("pub struct Limits {").expect("the limits");
        let field = field.replace('_', "-");
        let meant = raw(&text[start..]).into_iter().find(|meant| meant.key == field);
        let meant = meant.unwrap_or_else(|| panic!("no limit {field}"));
        words = format!("{}{rest}", meant.words.trim().trim_end_matches('.'));
    }
    // Links are for those who read the code.
    let mut plain = String::new();
    for (place, piece) in words.split("[`").enumerate() {
        match (place, piece.split_once("`]")) {
            (0, _) | (_, None) => plain.push_str(piece),
            (_, Some((name, rest))) => {
                let rest = match rest.strip_prefix('(') {
                    Some(target) => target.split_once(')').map_or("", |(_, rest)| rest),
                    None => rest,
                };
                write!(plain, "`{name}`{rest}").expect("text can be written");
            }
        }
    }
    for (name, value) in constants() {
        plain = plain.replace(name, &value);
    }
    plain.replace('|', "\\|")
}

/// What stands behind a key, in words.
fn kind_of(kind: &str) -> String {
    let kind = kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>')).unwrap_or(kind);
    let words = match kind {
        "Size" => "size",
        "Time" | "Duration" => "time",
        "Count" | "u64" | "u32" | "u16" => "whole number",
        "Bound<Count>" => "whole number or `\"none\"`",
        "Bound<Time>" => "time or `\"none\"`",
        "Grace" => "time or `\"never\"`",
        "PathBuf" => "path",
        "Vec<PathBuf>" => "list of paths",
        "SocketAddr" => "address and port",
        "bool" => "`true` or `false`",
        "Expression" => "cron expression",
        "Zone" => "time zone, such as `\"Europe/Berlin\"`",
        "Missed" => "`\"skip\"`, `\"once\"` or `{ all = N }`",
        "Overlap" => "`\"skip\"`, `\"queue\"` or `\"allow\"`",
        "ScheduleSession" => "`\"new\"` or `{ standing = \"NAME\" }`",
        "Isolation" => "`\"instance\"` or `\"process\"`",
        "Access" => "`\"read\"` or `\"read-write\"`",
        "Kind" => "`\"scripted\"`, `\"openai\"` or `\"anthropic\"`",
        "Patterns" => "list of names, with `*`",
        "String" | "ModelName" | "Mount" | "Variable" | "Name" => "text",
        "Vec<Variable>" => "list of names",
        "NonZeroU16" => "whole number, 1 to 65,535",
        other if other.starts_with("BTreeMap") || other.starts_with("Map<") => "table",
        other if other.ends_with("Table") || other == "Granted" || other == "Settings" => "table",
        other if other.ends_with("Limits") => "table",
        other if other.starts_with("Vec<") => "list of tables",
        other if other.ends_with("Pattern") => "host, with `*` for subdomains",
        _ => "text",
    };
    words.to_owned()
}
