//! A model at an endpoint, in one of two dialects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use reqwest::{Client, Url};
use serde_json::{Map, Value};

use super::dialect::{Asked, Dialect, Origin};
use super::exchange;
use super::fault::Fault;
use super::limits::TimeLimits;
use super::provider::{Provider, ResponseStream};
use super::request::Request;
use super::transport;
use crate::secret::Secret;

/// A model at an endpoint. Made by [`ProviderConfig::open`](super::ProviderConfig::open); clones share connections.
#[derive(Clone)]
pub struct Remote {
    endpoint: Arc<Endpoint>,
}

/// Everything about an endpoint that does not change from request to request.
pub(super) struct Endpoint {
    pub(super) name: String,
    pub(super) dialect: Dialect,
    pub(super) origin: Origin,
    pub(super) url: Url,
    pub(super) client: Client,
    /// Holds the key, marked as sensitive.
    pub(super) headers: HeaderMap,
    pub(super) key: Option<Secret>,
    pub(super) model: String,
    pub(super) limits: TimeLimits,
    pub(super) max_retries: u32,
    pub(super) retry_pause: Duration,
    pub(super) max_output_tokens: Option<u32>,
    pub(super) extra: Map<String, Value>,
}

impl Endpoint {
    /// The body of a request, ready to be sent any number of times.
    pub(super) fn body(&self, request: &Request) -> Result<Bytes, Fault> {
        request.check().map_err(Fault::Invalid)?;
        let bounds = [request.max_output_tokens, self.max_output_tokens];
        let asked = Asked {
            request,
            model: request.model.as_deref().unwrap_or(&self.model),
            max_output_tokens: bounds.into_iter().flatten().min(),
            origin: self.origin,
        };
        let mut body = self.dialect.body(asked)?;
        if let Value::Object(body) = &mut body {
            body.extend(self.extra.clone());
        }
        serde_json::to_vec(&body)
            .map(Bytes::from)
            .map_err(|error| Fault::Invalid(error.to_string()))
    }

    /// Text that came from outside, fit to be shown: without the key, one line, of bounded length.
    pub(super) fn clean(&self, text: &str) -> String {
        // The key goes before the text is cut: a cut could leave half of it.
        let text = self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.scrub(text));
        transport::shown(&text)
    }
}

impl Remote {
    pub(super) fn new(endpoint: Endpoint) -> Remote {
        Remote { endpoint: Arc::new(endpoint) }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { name, dialect, url, model, .. } = &*self.endpoint;
        f.debug_struct("Remote")
            .field("name", name)
            .field("dialect", dialect)
            .field("host", &url.host_str())
            .field("model", model)
            .finish_non_exhaustive()
    }
}

impl Provider for Remote {
    fn name(&self) -> &str {
        &self.endpoint.name
    }

    fn start(&self, request: Request) -> ResponseStream {
        exchange::start(Arc::clone(&self.endpoint), request)
    }
}
