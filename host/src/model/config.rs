//! How an operator describes a model, and how that description becomes a provider.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Proxy, Url};
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use super::dialect::{Dialect, Origin};
use super::limits::{self, TimeLimits};
use super::provider::Provider;
use super::remote::{Endpoint, Remote};
use super::script::{Script, ScriptError};
use super::scripted::Scripted;
use super::transport;
use crate::secret::Secret;

/// A model, as the configuration file of an operator describes it under `[models.NAME]`:
///
/// ```toml
/// [models.main]
/// kind = "anthropic"                  # or "openai", or "scripted"
/// model = "claude-sonnet-4-5"
/// key-env = "ANTHROPIC_API_KEY"       # or key-file = "path"; never the key itself
///
/// [models.local]
/// kind = "openai"
/// model = "qwen3"
/// base-url = "http://127.0.0.1:8080/v1"
/// limits = { first-byte-seconds = 300 }
///
/// [models.demo]
/// kind = "scripted"
/// script = "demo.toml"
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProviderConfig {
    /// What answers.
    pub kind: Kind,
    /// The model, as the endpoint names it. Left out: an error, for every kind but `scripted`.
    pub model: Option<String>,
    /// Another endpoint that speaks the same protocol. For `openai` with its version, as in `http://host/v1`; for
    /// `anthropic` without, as in `https://host`. Left out: that of the maker of the protocol.
    pub base_url: Option<String>,
    /// The environment variable that holds the key. Left out: the maker's usual one, `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`, and
    /// that for the maker's endpoint alone.
    pub key_env: Option<String>,
    /// The file that holds the key, in place of `key-env`. White space around it does not matter. Left out: none.
    pub key_file: Option<PathBuf>,
    /// The script of a `scripted` model. Left out: an error, for that kind.
    pub script: Option<PathBuf>,
    /// A proxy for all requests. Left out: none, also where the environment or the system names one.
    pub proxy: Option<String>,
    /// An upper bound for one answer, in tokens; a request can only lower it. Left out: none.
    pub max_output_tokens: Option<u32>,
    /// How often a request is sent again before its answer has begun.
    #[serde(default = "max_retries")]
    pub max_retries: u32,
    /// The pause before the first retry; it doubles from there. What the endpoint asks for goes first.
    #[serde(
        default = "retry_pause",
        rename = "retry-pause-seconds",
        deserialize_with = "limits::seconds"
    )]
    pub retry_pause: Duration,
    /// How long its requests may take.
    #[serde(default)]
    pub limits: TimeLimits,
    /// Further keys for the body of every request, for what this endpoint alone knows.
    #[serde(default)]
    pub body: Map<String, Value>,
}

/// What answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// A script: no network.
    Scripted,
    /// An endpoint that speaks the protocol of OpenAI's chat completions.
    OpenAi,
    /// An endpoint that speaks the protocol of Anthropic's messages.
    Anthropic,
}

impl Kind {
    /// The name, as the configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Scripted => "scripted",
            Kind::OpenAi => "openai",
            Kind::Anthropic => "anthropic",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a description finds what it only names. The command answers from its process; tests from where they like.
pub trait Lookup {
    /// The environment variable of that name.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of the file at that path.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    fn file(&self, path: &Path) -> io::Result<String>;
}

impl ProviderConfig {
    /// A description with nothing but its kind; the rest are the defaults of the file.
    pub fn new(kind: Kind) -> ProviderConfig {
        ProviderConfig {
            kind,
            model: None,
            base_url: None,
            key_env: None,
            key_file: None,
            script: None,
            proxy: None,
            max_output_tokens: None,
            max_retries: max_retries(),
            retry_pause: retry_pause(),
            limits: TimeLimits::default(),
            body: Map::new(),
        }
    }

    /// Makes the provider, with its key or script looked up. Nothing is sent.
    ///
    /// Without `key-env` and `key-file` the usual variable of the maker of the protocol is looked up, but only for the
    /// endpoint of that maker: a key is never sent to a place that nobody meant it for.
    ///
    /// # Errors
    ///
    /// When something is missing, out of place, or cannot be read.
    pub fn open(&self, name: &str, lookup: &dyn Lookup) -> Result<Arc<dyn Provider>, ConfigError> {
        let wrong = |reason| ConfigError { model: name.to_owned(), reason };
        match self.kind {
            Kind::Scripted => Ok(Arc::new(self.scripted(name, lookup).map_err(wrong)?)),
            Kind::OpenAi => {
                Ok(Arc::new(self.remote(name, Dialect::OpenAi, lookup).map_err(wrong)?))
            }
            Kind::Anthropic => {
                Ok(Arc::new(self.remote(name, Dialect::Anthropic, lookup).map_err(wrong)?))
            }
        }
    }

    fn scripted(&self, name: &str, lookup: &dyn Lookup) -> Result<Scripted, Reason> {
        self.lack(&[
            ("model", self.model.is_some()),
            ("base-url", self.base_url.is_some()),
            ("key-env", self.key_env.is_some()),
            ("key-file", self.key_file.is_some()),
            ("proxy", self.proxy.is_some()),
            ("max-output-tokens", self.max_output_tokens.is_some()),
            ("body", !self.body.is_empty()),
        ])?;
        let path =
            self.script.as_deref().ok_or(Reason::Missing { key: "script", kind: self.kind })?;
        let text = lookup.file(path).map_err(|error| Reason::unreadable(path, &error))?;
        let script = Script::parse(&text)
            .map_err(|error| Reason::Script { path: path.to_owned(), error })?;
        Ok(Scripted::from_script(name, script))
    }

    fn remote(&self, name: &str, dialect: Dialect, lookup: &dyn Lookup) -> Result<Remote, Reason> {
        self.lack(&[("script", self.script.is_some())])?;
        let model = self.model.clone().ok_or(Reason::Missing { key: "model", kind: self.kind })?;
        if let Some(key) = ["model", "messages", "stream", "tools"]
            .into_iter()
            .find(|key| self.body.contains_key(*key))
        {
            return Err(Reason::Body { key });
        }
        let url = address("base-url", self.base_url.as_deref().unwrap_or(dialect.base_url()))?;
        let origin = if url == address("base-url", dialect.base_url())? {
            Origin::Maker
        } else {
            Origin::Other
        };
        let proxy = self.proxy.as_deref().map(|text| address("proxy", text)).transpose()?;
        let proxy = proxy
            .map(|url| Proxy::all(url).map_err(|error| Reason::Client(transport::explain(error))))
            .transpose()?;
        let key = self.key(dialect, origin, lookup)?;
        let headers = dialect.headers(key.as_ref()).ok_or(Reason::KeyText)?;
        Ok(Remote::new(Endpoint {
            name: name.to_owned(),
            dialect,
            origin,
            url: under(&url, dialect.path())?,
            client: transport::client(self.limits.connect, proxy).map_err(Reason::Client)?,
            headers,
            key,
            model,
            limits: self.limits,
            max_retries: self.max_retries,
            retry_pause: self.retry_pause,
            max_output_tokens: self.max_output_tokens,
            extra: self.body.clone(),
        }))
    }

    fn key(
        &self,
        dialect: Dialect,
        origin: Origin,
        lookup: &dyn Lookup,
    ) -> Result<Option<Secret>, Reason> {
        let variable = |name: &str| {
            lookup.variable(name).ok_or_else(|| Reason::Unset { variable: name.to_owned() })
        };
        let text = match (&self.key_env, &self.key_file) {
            (Some(_), Some(_)) => return Err(Reason::TwoKeys),
            (Some(name), None) => variable(name)?,
            (None, Some(path)) => {
                lookup.file(path).map_err(|error| Reason::unreadable(path, &error))?
            }
            (None, None) if origin == Origin::Maker => variable(dialect.variable())?,
            (None, None) => return Ok(None),
        };
        let text = text.trim();
        if text.is_empty() { Err(Reason::KeyText) } else { Ok(Some(Secret::new(text))) }
    }

    /// Refuses keys that make no sense for the kind: a setting that does nothing is a mistake.
    fn lack(&self, keys: &[(&'static str, bool)]) -> Result<(), Reason> {
        match keys.iter().find(|(_, present)| *present) {
            Some((key, _)) => Err(Reason::OutOfPlace { key, kind: self.kind }),
            None => Ok(()),
        }
    }
}

/// An address of HTTP without a user in it: passwords belong into the key, where they are not shown.
fn address(key: &'static str, text: &str) -> Result<Url, Reason> {
    let bad = |reason: String| Reason::Address { key, reason };
    let url = Url::parse(text).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("it must begin with http:// or https://".to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("it must not hold a user or a password".to_owned()));
    }
    Ok(url)
}

/// The address with a path added below its own; a query stays.
fn under(url: &Url, path: &str) -> Result<Url, Reason> {
    let mut url = url.clone();
    url.path_segments_mut()
        .map_err(|()| Reason::Address {
            key: "base-url",
            reason: "it cannot have a path".to_owned(),
        })?
        .pop_if_empty()
        .extend(path.split('/'));
    Ok(url)
}

fn max_retries() -> u32 {
    4
}

fn retry_pause() -> Duration {
    Duration::from_millis(500)
}

/// A description cannot become a provider.
#[derive(Debug, Error)]
#[error("the model `{model}` cannot be used: {reason}")]
pub struct ConfigError {
    /// The name of the model.
    pub model: String,
    reason: Reason,
}

#[derive(Debug, Error)]
enum Reason {
    #[error("`{key}` is missing, which a model of kind `{kind}` needs")]
    Missing { key: &'static str, kind: Kind },
    #[error("`{key}` has no meaning for a model of kind `{kind}`; take it out")]
    OutOfPlace { key: &'static str, kind: Kind },
    #[error("`{key}` is no usable address: {reason}")]
    Address { key: &'static str, reason: String },
    #[error("`body` must not set `{key}`, which comes from the request")]
    Body { key: &'static str },
    #[error("both `key-env` and `key-file` are given; keep one")]
    TwoKeys,
    #[error("the environment variable `{variable}`, which should hold its key, is not set")]
    Unset { variable: String },
    #[error("its key is empty or holds characters that no key has")]
    KeyText,
    #[error("{path} cannot be read: {error}")]
    Unreadable { path: PathBuf, error: String },
    #[error("its script {path} cannot be used: {error}")]
    Script { path: PathBuf, error: ScriptError },
    #[error("no HTTP client can be made for it: {0}")]
    Client(String),
}

impl Reason {
    fn unreadable(path: &Path, error: &io::Error) -> Reason {
        Reason::Unreadable { path: path.to_owned(), error: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Desk;

    impl Lookup for Desk {
        fn variable(&self, name: &str) -> Option<String> {
            match name {
                "OPENAI_API_KEY" => Some("sk-openai".to_owned()),
                "EMPTY" => Some(" ".to_owned()),
                "ODD" => Some("sk\n-1".to_owned()),
                _ => None,
            }
        }

        fn file(&self, path: &Path) -> io::Result<String> {
            match path.to_str() {
                Some("key") => Ok("sk-file\n".to_owned()),
                Some("demo.toml") => Ok("[[reply]]\ntext = \"hello\"\n".to_owned()),
                Some("odd.toml") => Ok("[[reply]]\nwords = 1\n".to_owned()),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        }
    }

    fn open(text: &str) -> Result<Arc<dyn Provider>, String> {
        let config: ProviderConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        config.open("main", &Desk).map_err(|error| error.to_string())
    }

    #[test]
    fn descriptions_that_make_sense_become_providers() {
        for text in [
            "kind = 'openai'\nmodel = 'gpt-5'",
            "kind = 'openai'\nmodel = 'm'\nbase-url = 'http://127.0.0.1:1/v1/'",
            "kind = 'anthropic'\nmodel = 'm'\nkey-file = 'key'\nproxy = 'http://localhost:3128'\nmax-retries = 0",
            "kind = 'scripted'\nscript = 'demo.toml'",
            "kind = 'openai'\nmodel = 'm'\nlimits = { idle-seconds = 0.5 }\nbody = { reasoning_effort = 'low' }",
        ] {
            let provider = open(text);
            assert!(provider.is_ok(), "{text}: {provider:?}");
            let shown = format!("{:?}", provider.unwrap());
            assert!(!shown.contains("sk-"), "{shown}");
        }
    }

    #[test]
    fn descriptions_that_make_no_sense_are_refused_with_the_reason() {
        for (text, reason) in [
            ("kind = 'openai'", "`model` is missing"),
            ("kind = 'scripted'", "`script` is missing"),
            ("kind = 'openai'\nmodel = 'm'\nscript = 'x'", "`script` has no meaning"),
            ("kind = 'scripted'\nscript = 'x'\nkey-env = 'X'", "`key-env` has no meaning"),
            ("kind = 'scripted'\nscript = 'gone.toml'", "gone.toml cannot be read"),
            ("kind = 'scripted'\nscript = 'odd.toml'", "line 2"),
            ("kind = 'anthropic'\nmodel = 'm'", "`ANTHROPIC_API_KEY`"),
            ("kind = 'openai'\nmodel = 'm'\nkey-env = 'NONE'", "`NONE`"),
            ("kind = 'openai'\nmodel = 'm'\nkey-env = 'EMPTY'", "its key is empty"),
            ("kind = 'openai'\nmodel = 'm'\nkey-env = 'ODD'", "characters that no key has"),
            ("kind = 'openai'\nmodel = 'm'\nkey-env = 'A'\nkey-file = 'key'", "keep one"),
            (
                "kind = 'openai'\nmodel = 'm'\nbase-url = 'ftp://x'",
                "`base-url` is no usable address",
            ),
            ("kind = 'openai'\nmodel = 'm'\nbase-url = 'http://a:b@x'", "must not hold a user"),
            ("kind = 'openai'\nmodel = 'm'\nbody = { stream = false }", "must not set `stream`"),
            ("kind = 'openai'\nmodell = 'm'", "line 2"),
            ("kind = 'openia'\nmodel = 'm'", "line 1"),
            ("kind = 'openai'\nmodel = 'm'\nlimits = { idle-seconds = 0 }", "line 3"),
            ("kind = 'openai'\nmodel = 'm'\nlimits = { idle = 1 }", "line 3"),
        ] {
            let error = open(text).err().unwrap_or_default();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(!error.contains("-1"), "no part of a key is shown: {error}");
        }
    }

    #[test]
    fn the_key_of_a_maker_goes_to_no_other_endpoint() {
        let config =
            ProviderConfig { model: Some("m".to_owned()), ..ProviderConfig::new(Kind::OpenAi) };
        let key = |origin| config.key(Dialect::OpenAi, origin, &Desk).unwrap();
        assert_eq!(key(Origin::Maker), Some(Secret::new("sk-openai")));
        assert_eq!(key(Origin::Other), None);
    }

    #[test]
    fn the_path_goes_below_the_base_and_a_query_stays() {
        let check = |base: &str, dialect: Dialect, expected: &str| {
            assert_eq!(
                under(&Url::parse(base).unwrap(), dialect.path()).unwrap().as_str(),
                expected
            );
        };
        check("http://h/v1", Dialect::OpenAi, "http://h/v1/chat/completions");
        check("http://h/v1/?v=2", Dialect::OpenAi, "http://h/v1/chat/completions?v=2");
        check("http://h", Dialect::Anthropic, "http://h/v1/messages");
    }
}
