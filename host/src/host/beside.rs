//! What a configuration names beside itself, as it was when that was taken over: plugins, keys and scripts of models.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::model::ProviderConfig;
use crate::plugin::{Configuration, ModelName, Print, files_of, printable, subfolders};
use crate::profile::Places;

/// Where these things are, and how they looked.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    /// Folders of plugins that are named one by one.
    folders: Vec<PathBuf>,
    /// Directories whose subfolders are plugins.
    directories: Vec<PathBuf>,
    /// Single files.
    files: Vec<(Thing, PathBuf)>,
    seen: BTreeMap<Thing, Vec<(PathBuf, Print)>>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    /// The plugin in a folder.
    Plugin(PathBuf),
    /// The key of a model.
    Key(ModelName),
    /// What a scripted model says.
    Script(ModelName),
}

impl Beside {
    /// Looks at them. To be called before they are read, so that what changes meanwhile is a change. Blocks on the disk.
    pub(super) fn of(
        configuration: &Configuration,
        models: &[(ModelName, ProviderConfig)],
        named: &[PathBuf],
    ) -> Beside {
        let configured = configuration.plugins.values().filter_map(|plugin| plugin.path.as_ref());
        let folder = configuration.folder();
        let files = models.iter().flat_map(|(name, described)| {
            let of = |thing: fn(ModelName) -> Thing, file: &Option<PathBuf>| {
                file.as_ref().map(|file| (thing(name.clone()), folder.join(file)))
            };
            [of(Thing::Key, &described.key_file), of(Thing::Script, &described.script)]
        });
        let beside = Beside {
            folders: named.iter().chain(configured).cloned().collect(),
            directories: configuration.plugin_directories.clone(),
            files: files.flatten().collect(),
            seen: BTreeMap::new(),
        };
        beside.again()
    }

    /// Looks at the same places again. Blocks on the disk.
    pub(super) fn again(&self) -> Beside {
        let lying = self.directories.iter().flat_map(|directory| subfolders(directory));
        let folders = self.folders.iter().cloned().chain(lying.flatten());
        let prints = |files: Vec<PathBuf>| {
            files.into_iter().map(|file| (file.clone(), Print::of(&file))).collect()
        };
        let plugins = folders.map(|folder| {
            let files = files_of(&folder);
            (Thing::Plugin(folder), prints(files))
        });
        let files = self.files.iter();
        let files = files.map(|(thing, file)| (thing.clone(), prints(vec![file.clone()])));
        Beside { seen: plugins.chain(files).collect(), ..self.clone() }
    }

    /// Whether all of it is as it was then.
    pub(super) fn is_as(&self, then: &Beside) -> bool {
        self.seen == then.seen
    }

    /// What differs from what was there then, in words.
    pub(super) fn since(&self, then: &Beside) -> Vec<String> {
        let words = |thing: &Thing, what: &str| match thing {
            Thing::Plugin(folder) => {
                format!("the plugin in {} {what}", printable(&folder.to_string_lossy()))
            }
            Thing::Key(model) => format!("the key of the model `{model}` {what}"),
            Thing::Script(model) => format!("the script of the model `{model}` {what}"),
        };
        let there = self.seen.iter().filter_map(|(thing, seen)| match then.seen.get(thing) {
            None => Some(words(thing, "is new")),
            Some(before) if before != seen => Some(words(thing, "has changed")),
            Some(_) => None,
        });
        let gone = then.seen.keys().filter(|thing| !self.seen.contains_key(thing));
        there.chain(gone.map(|thing| words(thing, "is gone"))).collect()
    }

    /// The places whose changes may matter.
    pub(super) fn places(&self) -> Places {
        let files = self.seen.values().flatten().map(|(file, _)| file.clone());
        Places { files: files.collect(), directories: self.directories.iter().cloned().collect() }
    }
}
