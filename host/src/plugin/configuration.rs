//! The operator's configuration file: what plugins are given, the ceilings, and the settings of the host.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::amounts::{Count, Grace, Size, Time};
use super::document::{
    self, DocumentError, Refusal, from_text, from_whole, named_tables, table, tables,
};
use super::file::{self, FileError};
use super::hosts::HostEntry;
use super::limits::LimitsTable;
use super::manifest::{access, read_only};
use super::names::{ModelName, Mount, Name, ScheduleName, SecretName, Variable};
use super::patterns::Patterns;
use super::schedules::ScheduleTable;
use super::secrets::SecretSource;
use super::settings::Settings;
use super::text::{Place, nearest, printable};
use crate::sandbox::{Access, Isolation, LimitKind, Limits};

/// The most bytes of a configuration file.
const MOST: u64 = 1 << 20;

/// A configuration. The default gives nothing to anybody and leaves every ceiling at its default.
///
/// Paths in the file are relative to the folder of the file.
///
/// ```toml
/// default-model = "main"
/// plugin-directories = ["plugins"]
///
/// [limits]
/// wall-time = "30m"
///
/// [models.main]
/// kind = "scripted"
///
/// [plugins.http.grants]
/// network = [{ host = "*.example.org", port = 443 }]
/// secrets = { token = { env = "EXAMPLE_TOKEN" } }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Configuration {
    /// The model of agents that name none: a key of `[models]`. Left out: they can ask none.
    pub default_model: Option<ModelName>,
    /// Folders whose subfolders are plugins. Of two plugins of one name that in the earlier folder counts.
    #[serde(deserialize_with = "paths")]
    pub plugin_directories: Vec<PathBuf>,
    /// Where compiled components are kept. Left out: the folder `checkrein` in `$XDG_CACHE_HOME` or `~/.cache`.
    #[serde(deserialize_with = "some_path")]
    pub cache_directory: Option<PathBuf>,
    /// Where the runs of every plugin are: in the process of the host, or each in a process of its own.
    #[serde(deserialize_with = "isolation")]
    pub isolation: Option<Isolation>,
    /// The ceilings of every plugin: no manifest can ask for more.
    #[serde(deserialize_with = "table")]
    pub limits: LimitsTable,
    /// The models, by the names under which agents ask for them.
    models: BTreeMap<ModelName, Table>,
    /// What single plugins are given, and where they differ from the others, by name.
    #[serde(deserialize_with = "named_tables")]
    pub plugins: BTreeMap<Name, PluginTable>,
    /// How many runs live at one time, and on how many threads.
    #[serde(deserialize_with = "table")]
    pub sandbox: SandboxTable,
    /// What the compilation of components may use.
    #[serde(deserialize_with = "table")]
    pub compile: CompileTable,
    /// What the processes of single runs may use, for `isolation = "process"`.
    #[serde(deserialize_with = "table")]
    pub workers: WorkersTable,
    /// How stops behave.
    #[serde(deserialize_with = "table")]
    pub stop: StopTable,
    /// How much agents may hand to others.
    #[serde(deserialize_with = "table")]
    pub delegation: DelegationTable,
    /// How much is kept of the sessions in a home.
    #[serde(deserialize_with = "table")]
    pub store: StoreTable,
    /// The daemon: what it serves, where, and how it ends.
    #[serde(deserialize_with = "table")]
    pub serve: ServeTable,
    /// Runs that begin by the clock, by name.
    #[serde(deserialize_with = "named_tables")]
    pub schedules: BTreeMap<ScheduleName, ScheduleTable>,
    /// Spans for a collector.
    #[serde(deserialize_with = "table")]
    pub telemetry: TelemetryTable,
    /// The text itself, for the parts that are read later.
    #[serde(skip)]
    source: Source,
}

/// `[plugins.NAME]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PluginTable {
    /// The folder of the plugin, or its `plugin.toml`. It goes before every other plugin of that name. Left out: it is looked for in
    /// `plugin-directories`, and among those that are built in.
    #[serde(deserialize_with = "some_path")]
    pub path: Option<PathBuf>,
    /// Where its runs are. Left out: as is said for every plugin.
    #[serde(deserialize_with = "isolation")]
    pub isolation: Option<Isolation>,
    /// What it may touch and use, as far as its manifest asks for it.
    #[serde(deserialize_with = "table")]
    pub grants: Granted,
    /// Its ceilings, lower or higher than those for every plugin; a key that is left out has the value of these.
    #[serde(deserialize_with = "table")]
    pub limits: LimitsTable,
    /// What its guest reads as its configuration. A key goes before the same key of the manifest.
    pub configuration: Settings,
}

/// `[plugins.NAME.grants]`. A key that is left out gives nothing to a plugin that was only found; see
/// [`Standing`](super::Standing) for the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Granted {
    /// Directories of this host that its guests see.
    #[serde(deserialize_with = "tables")]
    pub directories: Vec<GrantedDirectory>,
    /// Hosts that may be connected to.
    #[serde(deserialize_with = "tables")]
    pub network: Vec<HostEntry>,
    /// Variables of the host's environment that its guests see.
    pub environment: Vec<Variable>,
    /// Secrets that it may ask for by name, and where each is kept: `{ env = "VARIABLE" }` or `{ file = "PATH" }`.
    pub secrets: BTreeMap<SecretName, SecretSource>,
    /// Tools that may be called. Left out: none, and all for a plugin that is built in or named on the command line.
    pub tools: Option<Patterns>,
    /// Models that may be asked. Left out: none, and all for a plugin that is built in or named on the command line.
    pub models: Option<Patterns>,
    /// Agents that may be handed tasks. Left out: none, and all for a plugin that is built in or named on the command line.
    pub delegation: Option<Patterns>,
}

/// One directory that an operator gives.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GrantedDirectory {
    /// The name under which guests find it.
    pub mount: Mount,
    /// The directory on the host.
    #[serde(deserialize_with = "path")]
    pub path: PathBuf,
    /// Whether files may be changed in it.
    #[serde(default = "read_only", deserialize_with = "access")]
    pub access: Access,
}

/// `[sandbox]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SandboxTable {
    /// Runs at one time (turns, children, tool calls, side runs): so many without a limit on fuel, and as many with one. A run that
    /// finds no place is refused. Left out: as many as the limits of the machine allow, at most `Pool::USEFUL_SLOTS`; see [sizing](operating.md#sizing).
    #[serde(deserialize_with = "at_most::<_, 100_000>")]
    pub pool_size: Option<Count>,
    /// Threads that execute guests. Left out: one for each processor.
    #[serde(deserialize_with = "at_most::<_, 1_024>")]
    pub executor_threads: Option<Count>,
}

/// `[compile]`: what one compilation may use, and how many there are at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CompileTable {
    /// How long one may take.
    pub time: Option<Time>,
    /// Memory of the process that compiles one.
    pub memory: Option<Size>,
    /// Compilations at one time; more of them wait. Left out: half the processors, at least 1 and at most `CompileLimits::MOST_JOBS`.
    #[serde(deserialize_with = "at_most::<_, 256>")]
    pub jobs: Option<Count>,
    /// The largest component. A larger one is refused before it is read.
    pub component_bytes: Option<Size>,
}

/// `[workers]`: what the process of one run may use, and how many there are at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct WorkersTable {
    /// Processes at one time. A run that finds them all taken is refused.
    #[serde(deserialize_with = "at_most::<_, 10_000>")]
    pub processes: Option<Count>,
    /// Memory of one process. Left out: what its run may have, and 256 MiB and room for its code and its frames.
    pub memory: Option<Size>,
    /// Processor time of one process. Left out: twice the wall time of its run, and none where that has none.
    pub processor_time: Option<Time>,
    /// How long one may take to end after a hard stop, before it is killed.
    pub stop_bound: Option<Time>,
}

/// `[delegation]`: how much agents may hand to others. What is not said has the host's usual bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct DelegationTable {
    /// How many delegations may lie above a run; 0 for none at all.
    #[serde(deserialize_with = "number")]
    pub depth: Option<u64>,
    /// Tasks of one call.
    #[serde(deserialize_with = "number")]
    pub children_per_call: Option<u64>,
    /// Runs that a turn may start below itself, at any depth.
    #[serde(deserialize_with = "number")]
    pub descendants_per_tree: Option<u64>,
    /// Calls that have something in the background at one time, in all sessions; 0 for nothing in the background.
    #[serde(deserialize_with = "number")]
    pub units_per_host: Option<u64>,
    /// The same, for each session.
    #[serde(deserialize_with = "number")]
    pub units_per_session: Option<u64>,
    /// Units that may wait in line for a place in the background.
    #[serde(deserialize_with = "number")]
    pub queued_units: Option<u64>,
    /// Background units of a session that run or whose result nobody has read.
    #[serde(deserialize_with = "number")]
    pub unread_completions: Option<u64>,
}

/// `[store]`: how much a profile keeps. What is not said has the usual bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct StoreTable {
    /// Events that are kept of a session; the oldest go first.
    #[serde(deserialize_with = "number")]
    pub events_per_session: Option<u64>,
    /// The size of the events that are kept of a session; the oldest go first.
    pub event_bytes_per_session: Option<Size>,
    /// The size of the messages of a session. A turn that would begin above it is refused.
    pub transcript_bytes_per_session: Option<Size>,
    /// Background units of a session whose results were read and can still be asked for; the oldest go first.
    #[serde(deserialize_with = "number")]
    pub read_units_per_session: Option<u64>,
    /// The size of the database. New sessions and turns are refused above it; what runs is still recorded.
    pub bytes: Option<Size>,
}

/// `[telemetry]`: spans for a collector. It counts in the configuration of the host, not in that of a profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TelemetryTable {
    /// Where spans are sent over OTLP/HTTP, whole with its path. The command sends them if it was built with the feature `otel`,
    /// and refuses this key otherwise. Left out: nothing is sent.
    #[serde(deserialize_with = "endpoint")]
    pub otlp_endpoint: Option<String>,
}

/// `[serve.rates]`: how often may be asked. What is not said has the usual bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RatesTable {
    /// Requests of one token in a minute, in the long run.
    #[serde(deserialize_with = "at_most::<_, 1_000_000>")]
    pub requests_per_minute: Option<Count>,
    /// Requests of one token at once.
    #[serde(deserialize_with = "at_most::<_, 1_000_000>")]
    pub burst: Option<Count>,
    /// Requests of one address in a minute, in the long run, whatever its tokens; also where there are no tokens.
    #[serde(deserialize_with = "at_most::<_, 1_000_000>")]
    pub peer_requests_per_minute: Option<Count>,
    /// Requests of one address at once.
    #[serde(deserialize_with = "at_most::<_, 1_000_000>")]
    pub peer_burst: Option<Count>,
}

/// `[serve]`: the daemon. It counts in the configuration of the host, not in that of a profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServeTable {
    /// The directory of the profiles: each folder in it with a `profile.toml` is one. Left out: it has to be given as `--profiles`,
    /// which goes before it.
    #[serde(deserialize_with = "some_path")]
    pub profiles: Option<PathBuf>,
    /// The Unix socket; `--socket` goes before it. Left out: `$CHECKREIN_SOCKET`, else `checkrein/api.sock` in `$XDG_RUNTIME_DIR`.
    #[serde(deserialize_with = "some_path")]
    pub socket: Option<PathBuf>,
    /// An address to listen on beside the socket; `--tcp` goes before it. Left out: none.
    #[serde(deserialize_with = "address")]
    pub tcp: Option<SocketAddr>,
    /// Connections of each listener at one time.
    #[serde(deserialize_with = "at_most::<_, 100_000>")]
    pub connections: Option<Count>,
    /// How many of them one client may have: an address, or a process of this machine. Left out: half of them.
    #[serde(deserialize_with = "at_most::<_, 100_000>")]
    pub peer_connections: Option<Count>,
    /// Requests at one time that start something, and as many that read. Those that stop something are not counted.
    #[serde(deserialize_with = "at_most::<_, 100_000>")]
    pub requests: Option<Count>,
    /// The largest body of a request.
    pub body_bytes: Option<Size>,
    /// The largest session that is sent to be read in.
    pub import_bytes: Option<Size>,
    /// How long the body of a request may take.
    pub body_time: Option<Time>,
    /// How long the head of a request may take, from the end of the one before.
    pub head_time: Option<Time>,
    /// How long a client may take nothing of an answer before it is cut off.
    pub write_time: Option<Time>,
    /// The file with the tokens of those who may ask through the address. Left out: nobody has to say who they are, and only loopback
    /// addresses can be listened on.
    #[serde(deserialize_with = "some_path")]
    pub tokens: Option<PathBuf>,
    /// How often may be asked through the address.
    #[serde(deserialize_with = "table")]
    pub rates: RatesTable,
    /// How long work may go on after a shutdown was asked for.
    pub drain: Option<Time>,
    /// How long what is stopped hard then may take to end.
    pub settle: Option<Time>,
}

/// `[stop]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct StopTable {
    /// How long a soft stop stays soft before it becomes hard.
    pub grace: Option<Grace>,
}

impl StopTable {
    /// How long a soft stop stays soft, where the operator says nothing else.
    pub const GRACE: Duration = Duration::from_secs(30);
}

impl ServeTable {
    /// How long what is stopped hard may take to end, where the operator says nothing else.
    pub const SETTLE: Duration = Duration::from_secs(10);
}

impl CompileTable {
    /// The bytes of a component, where the operator says nothing else: enough for components that bring an
    /// interpreter along.
    pub const COMPONENT_BYTES: u64 = 64 << 20;

    /// The most bytes of a component.
    pub fn most_component_bytes(&self) -> u64 {
        self.component_bytes.map_or(CompileTable::COMPONENT_BYTES, |size| size.0)
    }
}

impl Configuration {
    /// Reads a configuration. `file` is what errors name and what paths are relative to; nothing is opened.
    ///
    /// # Errors
    /// When it is no configuration, or names a model or a directory that it must not.
    pub fn parse(text: &str, file: &Path) -> Result<Configuration, ConfigurationError> {
        let mut read: Configuration = document::read(text, file)?;
        let folder = file.parent().unwrap_or(Path::new(""));
        read.source =
            Source { file: file.to_owned(), text: text.to_owned(), folder: folder.to_owned() };
        read.check()?;
        read.resolve(folder);
        Ok(read)
    }

    /// Reads the configuration in a file. The path is taken as it is meant now, whatever becomes the current directory.
    ///
    /// # Errors
    /// When the file cannot be read, or is no configuration.
    pub fn load(file: &Path) -> Result<Configuration, ConfigurationError> {
        let text = file::text(file, file::read(file, MOST)?)?;
        let mut read = Configuration::parse(&text, file)?;
        // A bare name has no folder to tell of; it lies in the current directory.
        if let Ok(file) = std::path::absolute(file)
            && let Some(folder) = file.parent()
        {
            read.source.folder = folder.to_owned();
        }
        Ok(read)
    }

    /// What it sets that counts for a whole host, and for none of its profiles: the name of the first such key.
    pub fn host_wide(&self) -> Option<&'static str> {
        let Configuration {
            cache_directory,
            sandbox,
            compile,
            delegation,
            serve,
            telemetry,
            workers,
            ..
        } = self;
        let set = [
            ("cache-directory", cache_directory.is_some()),
            ("sandbox", *sandbox != SandboxTable::default()),
            ("compile", *compile != CompileTable::default()),
            ("delegation", *delegation != DelegationTable::default()),
            ("serve", *serve != ServeTable::default()),
            ("telemetry", *telemetry != TelemetryTable::default()),
            ("workers", *workers != WorkersTable::default()),
        ];
        set.into_iter().find(|(_, set)| *set).map(|(key, _)| key)
    }

    /// The place of the first thing in it that makes sense for a profile and not for a host; none when there is no such thing.
    pub fn profile_only(&self) -> Option<Place> {
        let name = self.schedules.keys().next()?;
        self.place(&["schedules", name.as_str()])
    }

    /// Where that key stands, the names of its tables first; none when it stands nowhere, as in a configuration that was made
    /// and not read.
    pub fn place(&self, key: &[&str]) -> Option<Place> {
        let Source { text, file, .. } = &self.source;
        document::stands(text, key).then(|| document::locate(text, file, key))
    }

    /// The error for a key whose value makes sense and cannot be done. It names the place where the key stands somewhere.
    pub fn refuse(&self, key: &[&str], reason: &dyn fmt::Display) -> ConfigurationError {
        ConfigurationError::Refused(Refusal { place: self.place(key), reason: reason.to_string() })
    }

    /// What it sets that a daemon takes from its profiles alone: the first such key, and its place.
    pub fn for_profiles(&self) -> Option<(&'static str, Place)> {
        let Configuration {
            default_model,
            plugin_directories,
            isolation,
            limits,
            models,
            plugins,
            store,
            schedules,
            ..
        } = self;
        let set = [
            ("default-model", default_model.is_some()),
            ("plugin-directories", !plugin_directories.is_empty()),
            ("isolation", isolation.is_some()),
            ("limits", *limits != LimitsTable::default()),
            ("models", !models.is_empty()),
            ("plugins", !plugins.is_empty()),
            ("store", *store != StoreTable::default()),
            ("schedules", !schedules.is_empty()),
        ];
        let (key, _) = set.into_iter().find(|(_, set)| *set)?;
        let Source { text, file, .. } = &self.source;
        Some((key, document::locate(text, file, &[key])))
    }

    /// The names of the models.
    pub fn models(&self) -> impl Iterator<Item = &ModelName> {
        self.models.keys()
    }

    /// What is said about a model, in the form of whoever reads it; none when there is no such model.
    ///
    /// # Errors
    /// When the table does not have that form; the error names the place.
    pub fn model<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ConfigurationError> {
        if !self.models.contains_key(name) {
            return Ok(None);
        }
        Ok(document::read_part(&self.source.text, &self.source.file, &["models", name])?)
    }

    /// The folder that paths in the file are relative to.
    pub fn folder(&self) -> &Path {
        &self.source.folder
    }

    /// The ceilings of a plugin.
    pub fn ceiling(&self, name: &Name) -> Limits {
        let all = self.limits.over(&Limits::default());
        match self.plugins.get(name) {
            Some(plugin) => plugin.limits.over(&all),
            None => all,
        }
    }

    /// Where the runs of a plugin are.
    pub fn isolation(&self, name: &Name) -> Isolation {
        let own = self.plugins.get(name).and_then(|plugin| plugin.isolation);
        own.or(self.isolation).unwrap_or_default()
    }

    /// Whether some plugin shall run in processes of its own.
    pub fn needs_workers(&self) -> bool {
        self.key_of_workers().is_some()
    }

    /// The key by which some plugin shall run in processes of its own.
    pub fn key_of_workers(&self) -> Option<Vec<&str>> {
        let is_process = |isolation: Option<Isolation>| isolation == Some(Isolation::Process);
        if is_process(self.isolation) {
            return Some(vec!["isolation"]);
        }
        let plugin = self.plugins.iter().find(|(_, plugin)| is_process(plugin.isolation));
        plugin.map(|(name, _)| vec!["plugins", name.as_str(), "isolation"])
    }

    /// The key that sets a ceiling of a plugin: its own, or that for all.
    pub fn key_of_ceiling<'a>(&self, plugin: &'a Name, limit: LimitKind) -> Vec<&'a str> {
        let own = self.plugins.get(plugin).is_some_and(|own| own.limits.kinds().contains(&limit));
        match own {
            true => vec!["plugins", plugin.as_str(), "limits", limit.as_str()],
            false => vec!["limits", limit.as_str()],
        }
    }

    fn check(&self) -> Result<(), ConfigurationError> {
        let place = |path: &[&str]| document::locate(&self.source.text, &self.source.file, path);
        if let Some(name) =
            self.default_model.as_ref().filter(|name| !self.models.contains_key(*name))
        {
            let near = nearest(name.as_str(), self.models.keys().map(ModelName::as_str));
            let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(ConfigurationError::UnknownModel {
                place: place(&["default-model"]),
                name: name.clone(),
                hint,
            });
        }
        for (name, plugin) in &self.plugins {
            let mut seen = std::collections::BTreeSet::new();
            for (index, directory) in plugin.grants.directories.iter().enumerate() {
                if !seen.insert(&directory.mount) {
                    let index = index.to_string();
                    let place = place(&["plugins", name.as_str(), "grants", "directories", &index]);
                    return Err(ConfigurationError::Repeated {
                        place,
                        mount: directory.mount.clone(),
                    });
                }
            }
        }
        for (name, schedule) in &self.schedules {
            let input = &schedule.input;
            if !input.is_empty()
                && let Err(error) = serde_json::from_str::<IgnoredAny>(input)
            {
                let place = place(&["schedules", name.as_str(), "input"]);
                return Err(ConfigurationError::Input { place, reason: error.to_string() });
            }
        }
        Ok(())
    }

    fn resolve(&mut self, folder: &Path) {
        let plugins = self.plugins.values_mut().flat_map(|plugin| {
            let secrets = plugin.grants.secrets.values_mut().filter_map(|source| match source {
                SecretSource::File(path) => Some(path),
                SecretSource::Environment(_) => None,
            });
            plugin
                .path
                .iter_mut()
                .chain(plugin.grants.directories.iter_mut().map(|given| &mut given.path))
                .chain(secrets)
        });
        let ServeTable { profiles, socket, tokens, .. } = &mut self.serve;
        let serve = profiles.iter_mut().chain(socket).chain(tokens);
        for path in self
            .plugin_directories
            .iter_mut()
            .chain(&mut self.cache_directory)
            .chain(serve)
            .chain(plugins)
        {
            *path = folder.join(&*path);
        }
    }
}

pub(super) fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    from_text(deserializer, "a path", |text| match text {
        "" => Err("a path cannot be empty; write \".\" for the folder of this file".to_owned()),
        _ if text.contains('\0') => Err("a path cannot contain a zero byte".to_owned()),
        _ if text == "~" || text.starts_with("~/") => {
            Err("`~` is not replaced here; write the whole path".to_owned())
        }
        _ => Ok(PathBuf::from(text)),
    })
}

fn endpoint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    from_text(deserializer, "an address such as \"http://127.0.0.1:4318/v1/traces\"", |text| {
        let read = text.parse::<http::Uri>().ok();
        let web = read.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
        web.map(|_| Some(text.to_owned())).ok_or_else(|| {
            format!(
                "`{}` is no address of the web; write one such as \"http://127.0.0.1:4318/v1/traces\"",
                printable(text)
            )
        })
    })
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    from_text(deserializer, "an address such as \"127.0.0.1:7711\"", |text| {
        let read = text.parse::<SocketAddr>();
        read.map(Some).map_err(|_| {
            format!(
                "`{}` is no address with a port; write one such as \"127.0.0.1:7711\"",
                printable(text)
            )
        })
    })
}

/// A count that is the number of something this machine has to hold.
fn at_most<'de, D: Deserializer<'de>, const MOST: u64>(
    deserializer: D,
) -> Result<Option<Count>, D::Error> {
    from_whole(deserializer, "a whole number", |whole| match whole {
        0 => Err("0 would let nothing run; leave the key out for the default".to_owned()),
        whole if whole <= MOST => Ok(Some(Count(whole))),
        whole => Err(format!("{whole} is too many; at most {MOST}")),
    })
}

fn isolation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Isolation>, D::Error> {
    from_text(deserializer, "\"instance\" or \"process\"", |text| {
        let known = [Isolation::Instance, Isolation::Process];
        known.into_iter().find(|known| known.as_str() == text).map(Some).ok_or_else(|| {
            let text = printable(text);
            format!("`{text}` is no kind of isolation; write \"instance\" or \"process\"")
        })
    })
}

/// A number for which 0 means none at all.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    from_whole(deserializer, "a whole number", |whole| Ok(Some(whole)))
}

/// A path inside an array.
struct Given(PathBuf);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Given, D::Error> {
        path(deserializer).map(Given)
    }
}

fn some_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    path(deserializer).map(Some)
}

fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    Ok(Vec::<Given>::deserialize(deserializer)?.into_iter().map(|path| path.0).collect())
}

/// The text of a configuration. It may hold what should not be shown.
#[derive(Clone, Default, PartialEq, Eq)]
struct Source {
    file: PathBuf,
    text: String,
    /// What paths in the file are relative to.
    folder: PathBuf,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("file", &self.file).field("bytes", &self.text.len()).finish()
    }
}

/// A table that somebody else will read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table;

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Table, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Table;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Table, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Table)
            }
        }
        deserializer.deserialize_map(Any)
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// It is not what a configuration looks like: mend the text.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The default model is not among the models: name one of them, or add it.
    #[error("{place}: there is no [models.{name}]{hint}")]
    UnknownModel {
        /// Where.
        place: Place,
        /// The name.
        name: ModelName,
        /// What was probably meant.
        hint: String,
    },
    /// One plugin is given two directories of one name: rename or remove one.
    #[error(
        "{place}: the directory `{mount}` is given twice to this plugin; rename or remove one of the two"
    )]
    Repeated {
        /// The second one.
        place: Place,
        /// Its name.
        mount: Mount,
    },
    /// The input of a scheduled run is not JSON: mend it.
    #[error(
        "{place}: this is not JSON: {reason}; write JSON in a text, such as '{{\"days\": 7}}', or leave it out"
    )]
    Input {
        /// Where.
        place: Place,
        /// What is wrong with it.
        reason: String,
    },
    /// It asks for what makes sense and cannot be done, here or by this host: change it.
    #[error(transparent)]
    Refused(Refusal),
}

impl ConfigurationError {
    /// Where it is, if it is at any place of the file.
    pub fn place(&self) -> Option<&Place> {
        match self {
            ConfigurationError::Document(error) => Some(error.place()),
            ConfigurationError::File(_) => None,
            ConfigurationError::UnknownModel { place, .. }
            | ConfigurationError::Repeated { place, .. }
            | ConfigurationError::Input { place, .. } => Some(place),
            ConfigurationError::Refused(refusal) => refusal.place.as_ref(),
        }
    }

    /// What is wrong, without the place.
    pub fn words(&self) -> String {
        let whole = self.to_string();
        let Some(place) = self.place() else { return whole };
        let rest = whole.strip_prefix(&place.to_string());
        let rest = rest.or_else(|| whole.strip_prefix(&place.position()));
        rest.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&whole).to_owned()
    }
}
