//! The models that an operator configured, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use super::provider::Provider;

/// Models by name, one of them the default.
#[derive(Debug, Clone, Default)]
pub struct Models {
    providers: BTreeMap<String, Arc<dyn Provider>>,
    default: Option<String>,
}

impl Models {
    /// None at all.
    pub fn new() -> Models {
        Models::default()
    }

    /// Adds a model under its own name; one that had the name before is replaced.
    #[must_use]
    pub fn with(mut self, provider: Arc<dyn Provider>) -> Models {
        self.providers.insert(provider.name().to_owned(), provider);
        self
    }

    /// Says which model answers a request that names none. Without this it is the only one, where there is only one.
    #[must_use]
    pub fn with_default(mut self, name: impl Into<String>) -> Models {
        self.default = Some(name.into());
        self
    }

    /// The model of that name, or the default.
    ///
    /// # Errors
    ///
    /// When there is no such model, or no name was given and there is no default.
    pub fn get(&self, name: Option<&str>) -> Result<&Arc<dyn Provider>, UnknownModel> {
        let Some(name) = name.or(self.default.as_deref()) else {
            return match self.providers.values().next() {
                Some(only) if self.providers.len() == 1 => Ok(only),
                _ => Err(UnknownModel { name: None, known: self.list() }),
            };
        };
        self.providers
            .get(name)
            .ok_or_else(|| UnknownModel { name: Some(name.to_owned()), known: self.list() })
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }

    /// Whether there is no model at all.
    pub fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    fn list(&self) -> String {
        if self.providers.is_empty() {
            return "no model is configured".to_owned();
        }
        format!("configured are: {}", self.names().collect::<Vec<_>>().join(", "))
    }
}

/// There is no model of that name, or no default.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}; {known}", match name { Some(name) => format!("there is no model `{name}`"), None => "no model was named, and there is no default".to_owned() })]
pub struct UnknownModel {
    /// The name that was asked for.
    pub name: Option<String>,
    known: String,
}

#[cfg(test)]
mod tests {
    use super::super::scripted::Scripted;
    use super::*;

    fn scripted(name: &str) -> Arc<dyn Provider> {
        Arc::new(Scripted::new(name, []))
    }

    #[test]
    fn the_only_model_is_the_default() {
        let models = Models::new().with(scripted("one"));
        assert_eq!(models.get(None).map(|model| model.name().to_owned()), Ok("one".to_owned()));
    }

    #[test]
    fn of_two_models_none_is_the_default_until_it_is_named() {
        let models = Models::new().with(scripted("one")).with(scripted("two"));
        let error = models.get(None).err().map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some("no model was named, and there is no default; configured are: one, two")
        );
        assert!(models.clone().with_default("two").get(None).is_ok());
        assert!(models.with_default("three").get(None).is_err());
    }
}
