//! What decides about agents and tools in one place: configuration, plugins, models, guarded places.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::beside::Beside;
use super::guard::Guards;
use crate::error::{Error, ErrorKind};
use crate::model::{Lookup, ModelFigures, Models, Provider, ProviderConfig};
use crate::plugin::{self, Catalogue, Configuration, Embedded, ModelName, Name};
use crate::sandbox::check_caps;
use crate::tool::Environment;
use crate::work::Grace;

/// A configuration with all that it names, looked up.
pub(super) struct Setting {
    pub(super) configuration: Configuration,
    pub(super) catalogue: Catalogue,
    /// The plugins that the operator named on the command line or in code.
    pub(super) named: BTreeSet<Name>,
    pub(super) models: Models,
    pub(super) guards: Guards,
    pub(super) grace: Grace,
    /// What the configuration names, as it was before it was read.
    pub(super) beside: Beside,
}

/// What a setting is made of.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) configuration: Configuration,
    /// How long a soft stop stays soft where the configuration does not say it.
    pub(super) grace: Option<plugin::Grace>,
    /// Models that go before those of the configuration.
    pub(super) models: Vec<Arc<dyn Provider>>,
    pub(super) default_model: Option<String>,
    /// Where requests to them are counted.
    pub(super) model_figures: Arc<ModelFigures>,
    pub(super) embedded: Vec<Embedded>,
    /// Folders of plugins that the operator named.
    pub(super) named: Vec<PathBuf>,
    pub(super) environment: Environment,
    /// Places that no guest may write, and what is there.
    pub(super) guarded: Vec<(String, PathBuf)>,
    pub(super) cache: Option<PathBuf>,
    /// The most bytes of a component that the host compiles, for a profile as well.
    pub(super) component_bytes: u64,
}

impl Setting {
    pub(super) fn new(given: Given) -> Result<Setting, Error> {
        let configuration = given.configuration;
        let described = described(&configuration)?;
        let beside = Beside::of(&configuration, &described, &given.named);
        let models = models(
            &configuration,
            &described,
            (given.models, &given.model_figures),
            given.default_model,
            &given.environment,
        );
        let empty = Catalogue::new(given.component_bytes);
        let (catalogue, named) = catalogue(empty, &configuration, &given.embedded, &given.named)?;
        check_ceilings(&configuration, &catalogue)?;
        let guards = Guards::new(
            given.guarded,
            given.cache.as_deref(),
            &configuration,
            &described,
            &catalogue,
        );
        let grace = match configuration.stop.grace.or(given.grace) {
            Some(plugin::Grace::After(time)) => Grace::After(time),
            Some(plugin::Grace::Never) => Grace::Never,
            None => Grace::After(plugin::StopTable::GRACE),
        };
        Ok(Setting { configuration, catalogue, named, models, guards, grace, beside })
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting").finish_non_exhaustive()
    }
}

/// Refuses a ceiling above what the engine can give to any run: it would be a limit that nothing enforces.
fn check_ceilings(configuration: &Configuration, catalogue: &Catalogue) -> Result<(), Error> {
    for plugin in catalogue.plugins() {
        let name = plugin.name();
        check_caps(&configuration.ceiling(name)).map_err(|error| {
            let attempt =
                format!("the limits that the configuration sets for `{name}` cannot be enforced");
            let key = configuration.key_of_ceiling(name, error.limit);
            Error::because(ErrorKind::Configuration, attempt, configuration.refuse(&key, &error))
        })?;
    }
    Ok(())
}

/// All plugins, and the names of those that the operator named.
fn catalogue(
    mut catalogue: Catalogue,
    configuration: &Configuration,
    embedded: &[Embedded],
    folders: &[PathBuf],
) -> Result<(Catalogue, BTreeSet<Name>), Error> {
    let mut named = BTreeSet::new();
    for folder in folders {
        named.insert(catalogue.add_path(folder).map_err(|error| {
            let attempt = format!("could not open the plugin in {}", folder.display());
            Error::because(ErrorKind::Configuration, attempt, error)
        })?);
    }
    catalogue.add_configured(configuration);
    catalogue.add_embedded(embedded);
    for stranger in catalogue.strangers(configuration) {
        tracing::warn!("the configuration speaks of a plugin that is not there: {stranger}");
    }
    Ok((catalogue, named))
}

/// What model descriptions name, looked up through the host's own means.
struct Finds<'a>(&'a Environment, &'a Path);

impl Lookup for Finds<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(self.1.join(path))
    }
}

/// A configured model that cannot be opened, for want of a key for instance, is left out with a warning: it must
/// not keep the others from working. Whoever asks for it hears that there is no such model.
fn models(
    configuration: &Configuration,
    described: &[(ModelName, ProviderConfig)],
    (given, figures): (Vec<Arc<dyn Provider>>, &ModelFigures),
    default: Option<String>,
    environment: &Environment,
) -> Models {
    let mut models = Models::new();
    for (name, described) in described {
        let finds = Finds(environment, configuration.folder());
        match described.open(name.as_str(), &finds) {
            Ok(provider) => models = models.with(figures.counting(provider)),
            Err(error) => tracing::warn!(model = %name, error = %error, "the model is left out"),
        }
    }
    for provider in given {
        models = models.with(figures.counting(provider));
    }
    let default = default.or_else(|| configuration.default_model.as_ref().map(ToString::to_string));
    match default {
        Some(default) => models.with_default(default),
        None => models,
    }
}

/// What the configuration says of its models.
fn described(configuration: &Configuration) -> Result<Vec<(ModelName, ProviderConfig)>, Error> {
    let mut all = Vec::new();
    for name in configuration.models() {
        let described = configuration.model(name.as_str()).map_err(|error| {
            let attempt = format!("could not read the model `{name}` of the configuration");
            Error::because(ErrorKind::Configuration, attempt, error)
        })?;
        all.extend(described.map(|described| (name.clone(), described)));
    }
    Ok(all)
}
