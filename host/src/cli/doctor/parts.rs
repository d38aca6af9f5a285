//! What the configuration names, and the child that compiles.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use checkrein::model::{Lookup, ProviderConfig};
use checkrein::plugin::{Configuration, SecretSource};
use checkrein::sandbox::{CompileLimits, Compiler, Engines, Loader, Metering};
use checkrein::work::Tree;

use super::check::{Check, words};
use super::places;
use crate::cli::COMPILE_CHILD;
use crate::cli::setup::variable;
use crate::cli::text;

/// A component with nothing in it.
const EMPTY: [u8; 8] = *b"\0asm\x0d\0\x01\0";

/// What one compilation may use, and how many there are at one time.
pub(super) fn limits(configuration: &Configuration) -> CompileLimits {
    let (table, usual) = (&configuration.compile, CompileLimits::default());
    CompileLimits {
        component_bytes: table.most_component_bytes(),
        memory: table.memory.map_or(usual.memory, |memory| memory.0),
        time: table.time.map_or(usual.time, |time| time.0),
        jobs: table.jobs.map_or(usual.jobs, |jobs| usize::try_from(jobs.0).unwrap_or(usize::MAX)),
    }
}

/// Looks models' keys and scripts up as the host does.
struct Finds<'a>(&'a Path);

impl Lookup for Finds<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        variable(name)
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(self.0.join(path))
    }
}

/// Whether each model has what it needs. Nothing is sent to any.
pub(super) fn models(configuration: &Configuration) -> Vec<Check> {
    let mut checks = Vec::new();
    for model in configuration.models() {
        let name = format!("model {model}");
        let advice =
            "mend it in the configuration, or set what it names; without it this model is left out";
        let described = match configuration.model::<ProviderConfig>(model.as_str()) {
            Ok(Some(described)) => described,
            Ok(None) => continue,
            Err(error) => {
                checks.push(Check::problem(&name, words(&error), advice));
                continue;
            }
        };
        checks.push(match described.open(model.as_str(), &Finds(configuration.folder())) {
            Ok(_) => {
                let key = match (&described.key_env, &described.key_file) {
                    (Some(variable), _) => format!("its key is set in {variable}"),
                    (None, Some(file)) => format!("its key is in {}", file.display()),
                    (None, None) => "it has what it needs".to_owned(),
                };
                let file = described.key_file.filter(|_| described.key_env.is_none());
                let file = file.map(|file| configuration.folder().join(file));
                kept(&name, format!("{}; {key}", described.kind), file.as_deref())
            }
            Err(error) => Check::problem(&name, words(&error), advice),
        });
    }
    if checks.is_empty() {
        let saw = "no model is configured";
        checks.push(Check::warning(
            "models",
            saw,
            "add one as [models.NAME], or give one with --model",
        ));
    }
    checks
}

/// Whether each secret that plugins are given is there.
pub(super) fn secrets(configuration: &Configuration) -> Vec<Check> {
    let given = configuration.plugins.iter().flat_map(|(plugin, table)| {
        table.grants.secrets.iter().map(move |(secret, source)| (plugin, secret, source))
    });
    given
        .map(|(plugin, secret, source)| {
            let name = format!("secret {secret} of {plugin}");
            match source.fetch(&variable) {
                Ok(_) => match source {
                    SecretSource::Environment(variable) => {
                        kept(&name, format!("it is set in {variable}"), None)
                    }
                    SecretSource::File(path) => {
                        kept(&name, format!("it is in {}", path.display()), Some(path))
                    }
                },
                Err(error) => {
                    let advice = format!("set it, or take it from [plugins.{plugin}.grants]");
                    Check::problem(&name, words(&error), advice)
                }
            }
        })
        .collect()
}

/// A key or a secret that is there: well, unless it is in a file that others can read.
fn kept(name: &str, saw: String, file: Option<&Path>) -> Check {
    match file.and_then(places::open_to_others) {
        None => Check::ok(name, saw),
        Some(why) => {
            let advice =
                "give the file to the user that runs this, and to nobody else: `chmod 600`";
            Check::warning(name, format!("{saw}, and {why}"), advice)
        }
    }
}

/// Whether the child that compiles can be started, and answers.
pub(super) async fn compilation(engines: &Engines, limits: CompileLimits) -> Check {
    let name = "compilation";
    let advice = "components cannot be compiled: see whether this program may start itself, and has memory and processes left";
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            return Check::problem(name, format!("this program cannot be found: {error}"), advice);
        }
    };
    let compiler = Compiler::child(program, vec![COMPILE_CHILD.into()], limits);
    let loader = Loader::new(engines.clone(), compiler, None);
    let (_tree, root) = Tree::new("doctor");
    let began = Instant::now();
    match loader.load(Arc::from(EMPTY), Metering::None, &root).await {
        Ok(_) => Check::ok(
            name,
            format!("a child compiled a component after {}", text::time(began.elapsed())),
        ),
        Err(error) => Check::problem(name, words(&error), advice),
    }
}
