//! The reference of the configuration is generated from the types that read it, and checked in.
//!
//! After a change of a key or of its words: `CHECKREIN_BLESS=1 cargo test --test house configuration`.

use std::fmt::Write;
use std::fs;

use crate::source::root;

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

/// What the page begins with.
const HEAD: &str = "# Configuration

Every key of the configuration, as the program reads it: the file after `--config`, and the `profile.toml` of a profile.
A key that nobody reads is an error, and so is a value that nothing enforces; the error names file, line, column and key.
Paths are relative to the folder of the file. What is left out has the usual value.

`cache-directory`, `[sandbox]`, `[compile]`, `[workers]`, `[delegation]` and `[serve]` count for a whole host: they stand in
its own configuration and are refused in that of a profile. What `[serve]` does is described in [operating.md](operating.md),
what `[delegation]` does in [delegation.md](delegation.md).

Sizes are bytes, or text such as `\"64MiB\"`; times are text such as `\"250ms\"`, `\"30s\"` or `\"2h\"`.

This page is generated from the types.
";

struct Field {
    key: String,
    kind: String,
    words: String,
}

#[test]
fn the_reference_of_the_configuration_is_that_of_the_code() {
    let mut page = HEAD.to_owned();
    for (heading, file, name) in TABLES {
        let fields = fields(file, name);
        assert!(!fields.is_empty(), "{name} in {file} has no fields");
        write!(page, "\n## {heading}\n\n| key | value | what |\n| --- | --- | --- |\n")
            .expect("text can be written");
        for Field { key, kind, words } in fields {
            writeln!(page, "| `{key}` | {kind} | {words} |").expect("text can be written");
        }
    }
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

/// The fields of a struct that a file is read into, in their order.
fn fields(file: &str, name: &str) -> Vec<Field> {
    let text = read(file);
    let start = text.find(&format!("pub struct {name} {{")).unwrap_or_else(|| panic!("no {name}"));
    let body = text[start..].split("\n}\n").next().unwrap_or_default();
    let (mut found, mut words, mut attributes) = (Vec::new(), String::new(), String::new());
    let mut in_attribute = false;
    for line in body.lines().skip(1).map(str::trim) {
        if let Some(more) = line.strip_prefix("///") {
            words.push_str(more);
        } else if in_attribute || line.starts_with("#[") {
            attributes.push_str(line);
            in_attribute = !line.ends_with(']');
        } else if let Some((key, kind)) = line.trim_end_matches(',').split_once(": ") {
            let key = key.trim_start_matches("pub ");
            if !attributes.contains("serde(skip)") {
                let key = renamed(&attributes).unwrap_or_else(|| key.replace('_', "-"));
                let kind = if key.ends_with("-seconds") { "seconds" } else { kind_of(kind) };
                found.push(Field { key, kind: kind.to_owned(), words: told(&words) });
            }
            words.clear();
            attributes.clear();
        }
    }
    found
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
        let meant = fields("sandbox/limits.rs", "Limits");
        let field = field.replace('_', "-");
        let meant = meant.into_iter().find(|meant| meant.key == field);
        let meant = meant.unwrap_or_else(|| panic!("no limit {field}"));
        words = format!("{}{rest}", meant.words.trim_end_matches('.'));
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
    plain.replace('|', "\\|")
}

/// What stands behind a key, in words.
fn kind_of(kind: &str) -> &str {
    let kind = kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>')).unwrap_or(kind);
    match kind {
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
        other if other.starts_with("BTreeMap") || other.starts_with("Map<") => "table",
        other if other.ends_with("Table") || other == "Granted" || other == "Settings" => "table",
        other if other.ends_with("Limits") => "table",
        other if other.starts_with("Vec<") => "list of tables",
        other if other.ends_with("Pattern") => "host, with `*` for subdomains",
        _ => "text",
    }
}
