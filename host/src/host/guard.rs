//! What no guest may write, whatever is given: what says which guests may do what, and the code that they run.
//!
//! A directory that is given for writing neither contains such a place nor lies in one. Links are followed when a
//! session is opened, and both the link and what it leads to are guarded: who replaces either replaces the file.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};
use crate::model::ProviderConfig;
use crate::plugin::{Catalogue, Configuration, ModelName, SecretSource, Source, printable};
use crate::sandbox::Access;

/// All guarded places of a host.
#[derive(Debug)]
pub(super) struct Guards(Vec<Guard>);

#[derive(Debug)]
struct Guard {
    /// What is there, in words.
    what: String,
    path: PathBuf,
    extent: Extent,
    /// How it is kept elsewhere, where that needs words.
    hint: &'static str,
}

/// How much of a place is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All of it.
    Whole,
    /// What lies in it. Its subfolders are free.
    Surface,
}

impl Guards {
    /// The places that the parts of a host have in common: `own` are those that the embedder names.
    pub(super) fn new(
        own: Vec<(String, PathBuf)>,
        cache: Option<&Path>,
        configuration: &Configuration,
        models: &[(ModelName, ProviderConfig)],
        catalogue: &Catalogue,
    ) -> Guards {
        let mut guards = Guards(Vec::new());
        for (what, path) in own {
            guards.add(what, path);
        }
        guards.configuration(configuration, models);
        if let Some(cache) = cache {
            guards.add("compiled code", cache);
            guards.hint(" (`cache-directory` in the configuration)");
        }
        for directory in &configuration.plugin_directories {
            guards.add("plugins", directory);
        }
        for (name, table) in &configuration.plugins {
            if let Some(path) = &table.path {
                guards.add(format!("the plugin `{name}`"), path);
            }
            for (secret, source) in &table.grants.secrets {
                if let SecretSource::File(path) = source {
                    guards.add(format!("the secret `{secret}` of `{name}`"), path);
                }
            }
        }
        for plugin in catalogue.plugins() {
            if let Source::Folder(path) = plugin.source() {
                guards.add(format!("the plugin `{}`", plugin.name()), path);
            }
        }
        guards
    }

    /// The folder of the file itself, and the keys of its models.
    fn configuration(
        &mut self,
        configuration: &Configuration,
        models: &[(ModelName, ProviderConfig)],
    ) {
        let folder = configuration.folder();
        // Without a folder it is the default, or was never in a file.
        if !folder.as_os_str().is_empty() {
            self.add("the configuration", folder);
            self.0.iter_mut().last().into_iter().for_each(|last| last.extent = Extent::Surface);
        }
        for (name, described) in models {
            if let Some(path) = &described.key_file {
                self.add(format!("the key of the model `{name}`"), folder.join(path));
            }
        }
    }

    /// The path is taken as it is meant now, whatever becomes the current directory.
    fn add(&mut self, what: impl Into<String>, path: impl AsRef<Path>) {
        let path = path.as_ref();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.0.push(Guard { what: what.into(), path, extent: Extent::Whole, hint: "" });
    }

    fn hint(&mut self, hint: &'static str) {
        self.0.iter_mut().last().into_iter().for_each(|last| last.hint = hint);
    }

    /// Refuses directories given for writing in which, or around which, something is guarded. Asks the disk.
    pub(super) fn check<'a>(
        &self,
        given: impl IntoIterator<Item = (&'a Path, Access)>,
    ) -> Result<(), Error> {
        for (path, access) in given {
            if access == Access::ReadWrite {
                let real = real(path);
                for guard in &self.0 {
                    guard.check(path, &real)?;
                }
            }
        }
        Ok(())
    }
}

impl Guard {
    fn check(&self, given: &Path, real_given: &Path) -> Result<(), Error> {
        let place = real(&self.path);
        let link = match (self.path.parent(), self.path.file_name()) {
            (Some(parent), Some(name)) => real(parent).join(name),
            _ => place.clone(),
        };
        let way_out = if place.starts_with(real_given) || link.starts_with(real_given) {
            "a subfolder without it"
        } else if self.extent == Extent::Whole && real_given.starts_with(&place) {
            "a folder outside it"
        } else {
            return Ok(());
        };
        let shown = |path: &Path| printable(&path.to_string_lossy());
        let words = format!(
            "{} cannot be given for writing, because {} holds {}: give {way_out}, give it for reading only (`:ro`), \
             or keep {} elsewhere{}",
            shown(given),
            shown(&self.path),
            self.what,
            self.what,
            self.hint
        );
        Err(Error::new(ErrorKind::Configuration, words))
    }
}

/// A path with its links followed. What is not there yet lies in what is there.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut ancestors = path.ancestors();
    let found = ancestors.find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    match found {
        Some((ancestor, real)) => match path.strip_prefix(ancestor) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const TEXT: &str = r#"
        plugin-directories = ["plugins"]
        [models.main]
        kind = "openai"
        model = "m"
        key-file = "keys/main"
        [plugins.http]
        path = "alone/http"
        [plugins.http.grants.secrets]
        token = { file = "secrets/token" }
    "#;

    /// What is said when a directory of this home is given for writing.
    fn refusal(home: &Path, directory: &str) -> Option<String> {
        let configuration = Configuration::parse(TEXT, &home.join("etc/operator.toml")).unwrap();
        let own = vec![("the list".to_owned(), home.join("own/list"))];
        let cache = home.join("cache");
        let main = configuration.model("main").unwrap().unwrap();
        let models = [("main".parse().unwrap(), main)];
        let guards = Guards::new(own, Some(&cache), &configuration, &models, &Catalogue::default());
        let directory = home.join(directory);
        assert!(guards.check([(&*directory, Access::Read)]).is_ok());
        let refused = guards.check([(&*directory, Access::ReadWrite)]).err()?;
        assert_eq!(refused.kind(), ErrorKind::Configuration);
        Some(refused.to_string())
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for folder in ["etc/plugins/a", "etc/keys", "etc/work", "cache/x", "own", "work", "aside"] {
            fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        home
    }

    #[test]
    fn what_contains_or_lies_in_a_guarded_place_is_refused_with_what_to_do() {
        let home = home();
        for (directory, holds, advice) in [
            ("", "own/list holds the list", "a subfolder without it"),
            ("own", "own/list holds the list", "keep the list elsewhere"),
            ("etc", "etc holds the configuration", "`:ro`"),
            ("etc/keys", "keys/main holds the key of the model `main`", "a subfolder"),
            ("etc/plugins", "etc/plugins holds plugins", "a subfolder without it"),
            ("etc/plugins/a", "etc/plugins holds plugins", "a folder outside it"),
            ("etc/alone", "alone/http holds the plugin `http`", "keep the plugin `http` elsewhere"),
            ("etc/secrets", "secrets/token holds the secret `token` of `http`", "a subfolder"),
            ("cache", "cache holds compiled code", "`cache-directory`"),
            ("cache/x", "cache holds compiled code", "a folder outside it"),
        ] {
            let words = refusal(home.path(), directory).unwrap_or_else(|| panic!("{directory}"));
            for part in [holds, advice] {
                assert!(words.contains(part), "{directory}: `{part}` is not in: {words}");
            }
        }
        for free in ["work", "etc/work", "aside", "none"] {
            assert_eq!(refusal(home.path(), free), None, "{free}");
        }
    }

    #[test]
    fn a_link_is_guarded_and_so_is_what_it_leads_to() {
        let home = home();
        let at = |path: &str| home.path().join(path);
        symlink(at("aside/key"), at("etc/keys/main")).unwrap();
        assert!(refusal(home.path(), "aside").is_none(), "it leads nowhere yet");
        fs::write(at("aside/key"), "key").unwrap();
        for directory in ["aside", "etc/keys"] {
            let words = refusal(home.path(), directory).unwrap_or_else(|| panic!("{directory}"));
            assert!(words.contains("the key of the model `main`"), "{words}");
        }
        symlink(at("cache"), at("work/link")).unwrap();
        assert!(refusal(home.path(), "work/link").is_some());
        assert_eq!(refusal(home.path(), "work"), None, "a link to it is not it");
    }
}
