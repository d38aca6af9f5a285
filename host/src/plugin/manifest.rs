//! `plugin.toml`: what a plugin says about itself, and what it asks for.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde::de::Deserializer;

use super::document::{self, DocumentError, from_text, table, tables};
use super::file::{self, FileError, Folder};
use super::hosts::HostEntry;
use super::limits::LimitsTable;
use super::names::{Mount, Name, SecretName, Variable, Version};
use super::patterns::Patterns;
use super::settings::Settings;
use super::text::{Place, is_plain, printable};
use crate::sandbox::Access;

/// The name of the file, beside the component.
pub const FILE_NAME: &str = "plugin.toml";

/// The most bytes of a manifest.
pub(super) const MOST: u64 = 64 << 10;

/// A manifest. Reading one does no harm whatever it says: it asks, and gets what an operator gives.
///
/// ```toml
/// name = "greeter"
/// version = "0.1.0"
/// kind = "agent"
/// component = "greeter.wasm"
/// description = "Greets whoever the task names."
///
/// [grants]
/// tools = ["files_*"]
///
/// [limits]
/// memory = "16MiB"
///
/// [configuration]
/// greeting = "Good day"
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// The name by which it is run, and which begins the names of its tools.
    pub name: Name,
    /// Its version.
    pub version: Version,
    /// Whether it is an agent or a tool.
    pub kind: Kind,
    /// The component, as a path inside the plugin's folder.
    pub component: ComponentPath,
    /// What it does, in a sentence.
    pub description: Description,
    /// The version of the package `checkrein:plugin` that the component needs, such as `"0.1"`.
    #[serde(default)]
    pub interface: Option<Interface>,
    /// What it asks for.
    #[serde(default, deserialize_with = "table")]
    pub grants: Requested,
    /// What it says it needs at most. A manifest can only lower the ceiling.
    #[serde(default, deserialize_with = "table")]
    pub limits: LimitsTable,
    /// What its guest reads as its configuration, where the operator says nothing else.
    #[serde(default)]
    pub configuration: Settings,
}

/// What a plugin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Decides what to do; exports `run`.
    Agent,
    /// One or several tools; exports `describe` and `call`.
    Tool,
}

/// The `[grants]` of a manifest: requests, nothing more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Requested {
    /// Directories, by the names under which the guest looks for them.
    #[serde(deserialize_with = "tables")]
    pub directories: Vec<RequestedDirectory>,
    /// Hosts to connect to.
    #[serde(deserialize_with = "tables")]
    pub network: Vec<HostEntry>,
    /// Environment variables to read.
    pub environment: Vec<Variable>,
    /// Secrets to read. Only tools can.
    pub secrets: Vec<SecretName>,
    /// Tools to call, such as `files_read` or `files_*`. Only agents can.
    pub tools: Patterns,
    /// Models to ask, by the operator's names. Only agents can.
    pub models: Patterns,
    /// Agents to hand tasks to; `true` for all of them. Only agents can.
    pub delegation: Patterns,
}

/// One directory that a manifest asks for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RequestedDirectory {
    /// Its name, or `*` for every directory that the operator gives.
    pub mount: RequestedMount,
    /// `read` (when left out) or `read-write`.
    #[serde(default = "read_only", deserialize_with = "access")]
    pub access: Access,
}

/// Which directories are meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestedMount {
    /// All that are given and not asked for by name.
    Any,
    /// The one of that name.
    Named(Mount),
}

pub(super) fn read_only() -> Access {
    Access::Read
}

pub(super) fn access<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Access, D::Error> {
    from_text(deserializer, "\"read\" or \"read-write\"", |text| match text {
        "read" => Ok(Access::Read),
        "read-write" => Ok(Access::ReadWrite),
        _ => Err(format!(
            "`{}` is no kind of access; write \"read\" or \"read-write\"",
            printable(text)
        )),
    })
}

impl<'de> Deserialize<'de> for RequestedMount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequestedMount, D::Error> {
        from_text(deserializer, "the name of a directory, or \"*\"", |text| match text {
            "*" => Ok(RequestedMount::Any),
            _ => Mount::parse(text).map(RequestedMount::Named).map_err(|error| error.to_string()),
        })
    }
}

impl fmt::Display for RequestedMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestedMount::Any => f.write_str("*"),
            RequestedMount::Named(mount) => mount.fmt(f),
        }
    }
}

impl Kind {
    /// The name, as manifests spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Agent => "agent",
            Kind::Tool => "tool",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A path inside the plugin's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentPath(PathBuf);

impl ComponentPath {
    /// The path, relative to the folder.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ComponentPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ComponentPath, D::Error> {
        from_text(deserializer, "a path inside the plugin's folder", |text| {
            let path = Path::new(text);
            let mut parts = path.components();
            let inside =
                parts.by_ref().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
            // Backslashes and drive letters mean something on other systems: a manifest means the same everywhere.
            let plain = text.chars().all(|c| is_plain(c) && !matches!(c, '\\' | ':'));
            if inside && plain && path.file_name().is_some() && text.len() <= 255 {
                Ok(ComponentPath(path.to_owned()))
            } else {
                Err(format!(
                    "`{}` is not a path inside the plugin's folder; put the component beside {FILE_NAME} and write its name",
                    printable(text)
                ))
            }
        })
    }
}

/// A line of text that can be shown as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description(String);

impl Description {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Description {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Description, D::Error> {
        from_text(deserializer, "a line of text", |text| {
            let text = text.trim();
            if !text.is_empty() && text.len() <= 1024 && text.chars().all(is_plain) {
                Ok(Description(text.to_owned()))
            } else {
                Err("a description is one line of at most 1024 bytes, without control characters"
                    .to_owned())
            }
        })
    }
}

/// A version of the package `checkrein:plugin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Interface {
    /// The version that this host serves.
    pub const SERVED: Interface = Interface { major: 0, minor: 1, patch: 0 };

    /// Whether a host that serves `self` can run a component that needs `needed`. While the first number is 0,
    /// the second one stands for breaks.
    fn serves(self, needed: Interface) -> bool {
        let same = self.major == needed.major && (self.major > 0 || self.minor == needed.minor);
        same && (self.minor, self.patch) >= (needed.minor, needed.patch)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl<'de> Deserialize<'de> for Interface {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Interface, D::Error> {
        from_text(deserializer, "a version of checkrein:plugin such as \"0.1\"", |text| {
            let refused =
                || format!("`{}` is not a version such as \"0.1\" or \"0.1.0\"", printable(text));
            let digits = |part: &str| part.len() <= 9 && part.bytes().all(|c| c.is_ascii_digit());
            let numbers = text
                .split('.')
                .map(|part| if digits(part) { part.parse::<u32>().ok() } else { None });
            match numbers.collect::<Option<Vec<u32>>>().as_deref() {
                Some([major, minor]) => Ok(Interface { major: *major, minor: *minor, patch: 0 }),
                Some([major, minor, patch]) => {
                    Ok(Interface { major: *major, minor: *minor, patch: *patch })
                }
                Some(_) | None => Err(refused()),
            }
        })
    }
}

impl Manifest {
    /// Reads a manifest. `file` is what errors name as its place; nothing is opened.
    ///
    /// # Errors
    /// When it is no manifest, asks for what its kind cannot use, or needs another version of the interface.
    pub fn parse(text: &str, file: &Path) -> Result<Manifest, ManifestError> {
        if text.len() as u64 > MOST {
            return Err(ManifestError::File(FileError::TooLarge {
                path: file.to_owned(),
                most: MOST,
            }));
        }
        let manifest: Manifest = document::read(text, file)?;
        let place = |path: &[&str]| document::locate(text, file, path);
        if let Some(needed) = manifest.interface.filter(|needed| !Interface::SERVED.serves(*needed))
        {
            return Err(ManifestError::Interface {
                place: place(&["interface"]),
                needed,
                served: Interface::SERVED,
            });
        }
        if let Some(grant) = manifest.beyond_its_kind() {
            let place = place(&["grants", grant]);
            return Err(ManifestError::NotForKind { place, grant, kind: manifest.kind });
        }
        if let Some((index, mount)) = manifest.grants.repeated_mount() {
            let place = place(&["grants", "directories", &index.to_string()]);
            return Err(ManifestError::Repeated { place, mount });
        }
        Ok(manifest)
    }

    /// Reads the manifest in an open folder.
    pub(super) fn load(folder: &Folder, shown: &Path) -> Result<Manifest, ManifestError> {
        let bytes = folder.read(Path::new(FILE_NAME), MOST)?;
        Manifest::parse(&file::text(shown, bytes)?, shown)
    }

    /// A request that nothing would serve, because the interface of this kind does not have it.
    fn beyond_its_kind(&self) -> Option<&'static str> {
        let grants = &self.grants;
        match self.kind {
            Kind::Agent => (!grants.secrets.is_empty()).then_some("secrets"),
            Kind::Tool if !grants.tools.is_empty() => Some("tools"),
            Kind::Tool if !grants.models.is_empty() => Some("models"),
            Kind::Tool if !grants.delegation.is_empty() => Some("delegation"),
            Kind::Tool => None,
        }
    }
}

impl Requested {
    fn repeated_mount(&self) -> Option<(usize, RequestedMount)> {
        let mut seen = std::collections::HashSet::new();
        let repeated = self
            .directories
            .iter()
            .enumerate()
            .find(|(_, directory)| !seen.insert(&directory.mount));
        repeated.map(|(index, directory)| (index, directory.mount.clone()))
    }
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It is not what a manifest looks like: mend the text.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It asks for what its kind of plugin can never use: remove it.
    #[error(
        "{place}: the interface of {kind}s has no {grant}, so nothing could use them; remove the key"
    )]
    NotForKind {
        /// Where.
        place: Place,
        /// The key.
        grant: &'static str,
        /// The kind of the plugin.
        kind: Kind,
    },
    /// It asks twice for one directory: keep one of the two.
    #[error("{place}: the directory `{mount}` is asked for twice; keep one of the two")]
    Repeated {
        /// The second one.
        place: Place,
        /// Its name.
        mount: RequestedMount,
    },
    /// It was made for another version of the interface: use another version of the plugin or of the host.
    #[error(
        "{place}: this plugin needs checkrein:plugin {needed}, and this host serves {served}; use another version of one of them"
    )]
    Interface {
        /// Where it says so.
        place: Place,
        /// What it needs.
        needed: Interface,
        /// What there is.
        served: Interface,
    },
}
