//! A plugin of a test: a component and a manifest, written into a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// A plugin that a test makes. What is not said is not asked for, but for an agent's tools, models and children.
#[derive(Debug, Clone)]
#[must_use]
pub struct Plugin {
    name: String,
    kind: &'static str,
    component: Vec<u8>,
    grants: String,
    limits: String,
    configuration: String,
}

impl Plugin {
    /// An agent that may call every tool, ask every model and hand tasks to every agent there is.
    pub fn agent(name: &str, component: impl Into<Vec<u8>>) -> Plugin {
        Plugin {
            grants: "tools = [\"*\"]\nmodels = [\"*\"]\ndelegation = [\"*\"]".to_owned(),
            ..Plugin::new(name, "agent", component.into())
        }
    }

    /// A component with tools.
    pub fn tool(name: &str, component: impl Into<Vec<u8>>) -> Plugin {
        Plugin::new(name, "tool", component.into())
    }

    fn new(name: &str, kind: &'static str, component: Vec<u8>) -> Plugin {
        let (grants, limits, configuration) = Default::default();
        Plugin { name: name.to_owned(), kind, component, grants, limits, configuration }
    }

    /// What its manifest asks for: the lines of `[grants]`, in place of those that were there.
    pub fn grants(self, lines: &str) -> Plugin {
        Plugin { grants: lines.to_owned(), ..self }
    }

    /// Its limits: the lines of `[limits]`.
    pub fn limits(self, lines: &str) -> Plugin {
        Plugin { limits: lines.to_owned(), ..self }
    }

    /// Its configuration: the lines of `[configuration]`.
    pub fn configuration(self, lines: &str) -> Plugin {
        Plugin { configuration: lines.to_owned(), ..self }
    }

    /// The text of its manifest.
    pub fn manifest(&self) -> String {
        let Plugin { name, kind, grants, limits, configuration, .. } = self;
        format!(
            "name = \"{name}\"\nversion = \"0.1.0\"\nkind = \"{kind}\"\ncomponent = \"{name}.wasm\"\n\
             description = \"A guest of the tests.\"\n\n[grants]\n{grants}\n\n[limits]\n{limits}\n\n\
             [configuration]\n{configuration}\n"
        )
    }

    /// Writes it into a folder below `parent`, and gives that folder.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, parent: &Path) -> Result<PathBuf> {
        let folder = parent.join(&self.name);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("plugin.toml"), self.manifest())?;
        fs::write(folder.join(&self.name).with_extension("wasm"), &self.component)?;
        Ok(folder)
    }
}
