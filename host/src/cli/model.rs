//! `--model`: a model of the configuration, or one that is described on the spot.

use std::io;
use std::path::Path;
use std::sync::Arc;

use checkrein::HostBuilder;
use checkrein::model::{ConfigError, Kind, Lookup, Provider, ProviderConfig};
use checkrein::plugin::Configuration;

use super::code::Code;
use super::problem::Problem;
use super::setup::variable;

/// Says to the host which model answers agents that name none.
pub(super) fn choose(
    text: &str,
    configuration: &Configuration,
    builder: HostBuilder,
) -> Result<HostBuilder, Problem> {
    if configuration.models().any(|model| model.as_str() == text) {
        return Ok(builder.default_model(text));
    }
    let provider = match text.split_once(':') {
        // A path would make a poor name.
        Some(("scripted", file)) => {
            open("scripted", &ProviderConfig { script: Some(file.into()), ..of(Kind::Scripted) })
        }
        Some(("openai", model)) => {
            open(text, &ProviderConfig { model: Some(model.to_owned()), ..of(Kind::OpenAi) })
        }
        Some(("anthropic", model)) => {
            open(text, &ProviderConfig { model: Some(model.to_owned()), ..of(Kind::Anthropic) })
        }
        Some(_) | None => return Err(unknown(text, configuration)),
    };
    let provider = provider.map_err(|error| {
        Problem::because(Code::Usage, format!("could not use --model {text}"), error)
    })?;
    Ok(builder.default_model(provider.name()).model(provider))
}

fn of(kind: Kind) -> ProviderConfig {
    ProviderConfig::new(kind)
}

fn open(name: &str, config: &ProviderConfig) -> Result<Arc<dyn Provider>, ConfigError> {
    config.open(name, &Process)
}

fn unknown(text: &str, configuration: &Configuration) -> Problem {
    let names: Vec<&str> = configuration.models().map(|model| model.as_str()).collect();
    let known = match names.is_empty() {
        true => "the configuration has none".to_owned(),
        false => format!("the configuration has {}", names.join(", ")),
    };
    Problem::new(Code::Usage, format!("there is no model `{text}`; {known}"))
        .advise("without a configuration write scripted:FILE, openai:MODEL or anthropic:MODEL")
}

/// Finds keys and scripts where this process runs.
struct Process;

impl Lookup for Process {
    fn variable(&self, name: &str) -> Option<String> {
        variable(name)
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }
}
