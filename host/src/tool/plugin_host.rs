//! What a plugin's own configuration, secrets and log are, for any guest of that plugin.

use std::fmt;
use std::sync::Arc;

use crate::message::{Failure, FailureCode};
use crate::plugin::{Effective, SecretName};
use crate::sandbox::{PluginHost, ToolHost};

/// Takes the log lines of guests: level, plugin, line.
pub type LogSink = Arc<dyn Fn(&str, &str, &str) + Send + Sync>;

/// Looks up a variable of the environment, for whoever is allowed to read it.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What the guests of one plugin share.
#[derive(Clone)]
pub struct Plugged {
    /// The plugin's name.
    pub name: Arc<str>,
    /// What it may touch.
    pub effective: Arc<Effective>,
    /// Where its log lines go.
    pub log: LogSink,
    /// Where its secrets are looked up.
    pub environment: Environment,
}

impl PluginHost for Plugged {
    fn config(&self, key: &str) -> Option<String> {
        self.effective.configuration.get(key).map(ToString::to_string)
    }

    fn config_keys(&self) -> Vec<String> {
        self.effective.configuration.iter().map(|(key, _)| key.to_owned()).collect()
    }

    fn log(&self, level: &str, message: &str) {
        (self.log)(level, &self.name, message);
    }
}

impl ToolHost for Plugged {
    fn secret(&self, name: &str) -> Result<String, Failure> {
        let denied = || {
            Failure::new(
                FailureCode::Denied,
                format!("the secret `{}` is not granted", name.escape_debug()),
            )
        };
        let wanted = SecretName::parse(name).map_err(|_| denied())?;
        let source = self.effective.secrets.get(&wanted).ok_or_else(denied)?;
        match source.fetch(&*self.environment) {
            Ok(secret) => Ok(secret.expose().to_owned()),
            Err(error) => {
                // Where the operator keeps it is not the guest's to know.
                tracing::warn!(plugin = %self.name, secret = name, error = %error, "a secret could not be fetched");
                Err(Failure::new(
                    FailureCode::NotFound,
                    format!("the operator has not set the secret `{name}`"),
                ))
            }
        }
    }
}

impl fmt::Debug for Plugged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugged").field("name", &self.name).finish_non_exhaustive()
    }
}
