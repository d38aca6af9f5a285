//! All plugins that can be run, by name: which one a name means, and what is wrong with the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::configuration::{CompileTable, Configuration};
use super::file::{self, FileError};
use super::manifest;
use super::names::Name;
use super::package::{Embedded, Plugin, PluginError, Source, embedded_file, folder_of};
use super::text::{nearest, printable, shown};

/// The plugins that can be run.
///
/// Of several plugins of one name the first that was added counts; [`Catalogue::gather`] adds in the order of
/// the operator's word: `[plugins.NAME] path`, then the plugin directories in their order, then what was
/// built in. One that is broken keeps its name too: another one of that name is not run in its place.
#[derive(Debug)]
pub struct Catalogue {
    entries: BTreeMap<Name, Plugin>,
    broken: Vec<Broken>,
    hidden: Vec<Hidden>,
    most: u64,
}

/// A plugin that is there and cannot be run.
#[derive(Debug)]
pub struct Broken {
    /// Its name, as far as it is known: from its manifest, from the configuration, or that of its folder.
    pub name: Option<Name>,
    /// Its folder, or the plugin directory itself when that cannot be read.
    pub path: PathBuf,
    /// Why.
    pub error: Arc<PluginError>,
}

/// A plugin that another one of its name stands before.
#[derive(Debug, Clone, PartialEq)]
pub struct Hidden {
    /// The plugin that is not run.
    pub plugin: Plugin,
}

impl Default for Catalogue {
    fn default() -> Catalogue {
        Catalogue::new(CompileTable::COMPONENT_BYTES)
    }
}

impl Catalogue {
    /// An empty catalogue that takes components of at most `most` bytes.
    pub fn new(most: u64) -> Catalogue {
        Catalogue { entries: BTreeMap::new(), broken: Vec::new(), hidden: Vec::new(), most }
    }

    /// All plugins of a configuration and of the program itself. Reads manifests and no components.
    #[must_use]
    pub fn gather(configuration: &Configuration, embedded: &[Embedded]) -> Catalogue {
        let mut catalogue = Catalogue::new(configuration.compile.most_component_bytes());
        catalogue.add_configured(configuration);
        catalogue.add_embedded(embedded);
        catalogue
    }

    /// Adds the plugin at a path, as the command line names it, and says its name. To go before all others, it
    /// is added first.
    ///
    /// # Errors
    /// When it cannot be used; then it is not added.
    pub fn add_path(&mut self, path: &Path) -> Result<Name, PluginError> {
        let plugin = Plugin::open(path, self.most)?;
        let name = plugin.name().clone();
        self.add(plugin);
        Ok(name)
    }

    /// Adds what a configuration names, and what lies in its plugin directories.
    pub fn add_configured(&mut self, configuration: &Configuration) {
        for (name, table) in &configuration.plugins {
            let Some(path) = &table.path else { continue };
            let opened =
                Plugin::open(path, self.most).and_then(|plugin| match plugin.name() == name {
                    true => Ok(plugin),
                    false => Err(PluginError::OtherName {
                        path: folder_of(path),
                        found: plugin.name().clone(),
                        expected: name.clone(),
                    }),
                });
            match opened {
                Ok(plugin) => self.add(plugin),
                Err(error) => self.broken.push(Broken {
                    name: Some(name.clone()),
                    path: folder_of(path),
                    error: error.into(),
                }),
            }
        }
        for directory in &configuration.plugin_directories {
            self.add_directory(directory);
        }
    }

    /// Adds what was built into the program.
    pub fn add_embedded(&mut self, embedded: &[Embedded]) {
        for &one in embedded {
            match Plugin::embedded(one) {
                Ok(plugin) => self.add(plugin),
                Err(error) => self.broken.push(Broken {
                    name: None,
                    path: embedded_file(one),
                    error: error.into(),
                }),
            }
        }
    }

    /// Adds the plugins in the subfolders of a directory, in the order of their folders' names. What has no
    /// `plugin.toml` is passed over.
    fn add_directory(&mut self, directory: &Path) {
        let folders = match subfolders(directory) {
            Ok(folders) => folders,
            Err(error) => {
                self.broken.push(Broken {
                    name: None,
                    path: directory.to_owned(),
                    error: Arc::new(error.into()),
                });
                return;
            }
        };
        for folder in folders {
            match Plugin::open(&folder, self.most) {
                Ok(plugin) => self.add(plugin),
                Err(error) => {
                    let name = guess(&folder, &error);
                    self.broken.push(Broken { name, path: folder, error: error.into() });
                }
            }
        }
    }

    fn add(&mut self, plugin: Plugin) {
        let taken = self.entries.contains_key(plugin.name())
            || self.broken_one(plugin.name().as_str()).is_some();
        if taken {
            self.hidden.push(Hidden { plugin });
        } else {
            self.entries.insert(plugin.name().clone(), plugin);
        }
    }

    /// The plugins that can be run, by name.
    pub fn plugins(&self) -> impl Iterator<Item = &Plugin> {
        self.entries.values()
    }

    /// Those that cannot be run, and why.
    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    /// Those that another one of their name stands before.
    pub fn hidden(&self) -> &[Hidden] {
        &self.hidden
    }

    /// The plugin of that name.
    ///
    /// # Errors
    /// When there is none, or the one that has the name is broken.
    pub fn get(&self, name: &str) -> Result<&Plugin, NoPlugin> {
        if let Some(plugin) = self.entries.get(name) {
            return Ok(plugin);
        }
        if let Some(broken) = self.broken_one(name) {
            return Err(NoPlugin::Broken {
                name: printable(name),
                path: broken.path.clone(),
                error: broken.error.clone(),
            });
        }
        let near = nearest(name, self.entries.keys().map(Name::as_str));
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Err(NoPlugin::Unknown { name: printable(name), hint })
    }

    /// The plugins that a configuration speaks of and that are not there: mistyped names, most of the time.
    pub fn strangers(&self, configuration: &Configuration) -> impl Iterator<Item = NoPlugin> {
        let missing = configuration.plugins.keys().filter_map(|name| self.get(name.as_str()).err());
        missing.filter(|error| matches!(error, NoPlugin::Unknown { .. }))
    }

    fn broken_one(&self, name: &str) -> Option<&Broken> {
        self.broken
            .iter()
            .find(|broken| broken.name.as_ref().is_some_and(|own| own.as_str() == name))
    }
}

impl Hidden {
    /// Where the plugin comes from.
    pub fn source(&self) -> &Source {
        self.plugin.source()
    }
}

/// The name of a plugin that could not be opened: what its manifest said, if that could be read.
fn guess(folder: &Path, error: &PluginError) -> Option<Name> {
    match error {
        PluginError::Component { name, .. } => Some(name.clone()),
        PluginError::Manifest(_) | PluginError::Folder(_) | PluginError::OtherName { .. } => folder
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| Name::parse(name).ok()),
    }
}

/// The folders in a directory that are plugins, in the order of their names.
pub(crate) fn subfolders(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let failed = |source| file::open_error(directory, source);
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() && path.join(manifest::FILE_NAME).symlink_metadata().is_ok() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Why a name means no plugin that can be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlugin {
    /// Nothing has that name.
    #[error("there is no plugin called `{name}`{hint}")]
    Unknown {
        /// The name, escaped.
        name: String,
        /// What was probably meant.
        hint: String,
    },
    /// What has that name cannot be run.
    #[error("the plugin `{name}` in {} cannot be run", shown(path))]
    Broken {
        /// The name, escaped.
        name: String,
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        error: Arc<PluginError>,
    },
}
