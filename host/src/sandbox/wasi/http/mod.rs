//! `wasi:http/outgoing-handler`: one request, one checked connection, one answer. The types of `wasi:http` are those of
//! wasmtime-wasi-http, with bounds; how a request is made is ours.
//!
//! ```text
//!   handle ─▶ Plan: valid? granted? a place free? ─▶ task: look up, check, connect, TLS, send ─▶ answer
//!                │ no: the error code at once                 └─▶ task: carries the connection until the body is gone
//! ```
//!
//! Both tasks are spawned by the gate with a share of the run's work, and end when the guest drops the answer or ends itself.
//! Redirects are answers like any other: a guest that follows one makes a new request, which is checked anew.

mod body;
mod exchange;
mod plan;
#[cfg(test)]
mod tests;
mod types;

use std::time::Duration;

use ::http::HeaderName;
use wasmtime::component::Resource;
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HyperIncomingBody;
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, HostOutgoingRequest};
use wasmtime_wasi_http::p2::{HttpError, HttpResult};
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, Error, RequestOptions, WasiBody, WasiHttpHooks,
};

use super::state::WasiState;
pub(super) use exchange::connector;
use exchange::{Times, exchange};
use plan::Plan;
pub(super) use types::{BODIES, FIELDS_BYTES, bound};

/// What a request gives: the answer with the task that carries its connection, or why there is none.
pub(crate) type Answer =
    Result<(::http::Response<HyperIncomingBody>, AbortOnDropJoinHandle<()>), Error>;

/// How long requests wait, and how much they read ahead.
#[derive(Debug, Clone)]
pub(crate) struct HttpLimits {
    /// For the lookup, the connection and its encryption.
    pub(crate) connect: Wait,
    /// For the head of the answer, from the first byte of the request on.
    pub(crate) first_byte: Wait,
    /// For each further piece of the answer.
    pub(crate) between_bytes: Wait,
    /// Bytes of the head of an answer.
    pub(crate) head_bytes: usize,
}

/// How long something may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// When the guest does not say.
    pub(crate) usual: Duration,
    /// Whatever the guest says.
    pub(crate) longest: Duration,
}

impl Wait {
    /// Waits this long when the guest does not say, and at most that long.
    pub(crate) const fn new(usual: Duration, longest: Duration) -> Wait {
        Wait { usual, longest }
    }

    fn pick(self, asked: Option<Duration>) -> Duration {
        asked.unwrap_or(self.usual).min(self.longest)
    }
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        let seconds =
            |usual, longest| Wait::new(Duration::from_secs(usual), Duration::from_secs(longest));
        HttpLimits {
            connect: seconds(30, 60),
            first_byte: seconds(60, 600),
            between_bytes: seconds(60, 600),
            head_bytes: 64 << 10,
        }
    }
}

impl WasiState {
    /// `wasi:http/outgoing-handler.handle`.
    pub(super) fn handle(
        &mut self,
        request: Resource<HostOutgoingRequest>,
        options: Option<Resource<RequestOptions>>,
    ) -> HttpResult<Resource<HostFutureIncomingResponse>> {
        let options =
            options.map(|options| self.table.delete(options)).transpose()?.unwrap_or_default();
        let plan = Plan::new(self.table.delete(request)?)?;
        let Some(network) = self.network().cloned() else {
            self.gate.denied(&format!("network: {}: no network is granted", plan.host));
            return Err(ErrorCode::HttpRequestDenied.into());
        };
        network.grants(&plan.host, plan.port).map_err(|_| ErrorCode::HttpRequestDenied)?;
        self.gate.charge(plan.head_bytes()).map_err(HttpError::trap)?;
        let permit = self.permit().ok_or(ErrorCode::ConnectionLimitReached)?;
        let times = Times::new(network.outside().limits(), options);
        let task = Box::pin(exchange(network, plan, times, permit));
        let answer = self.gate.spawn_request("makes an HTTP request", task);
        Ok(self.table.push(HostFutureIncomingResponse::Pending(answer.into()))?)
    }
}

/// What the types of `wasi:http` ask their host.
pub(super) struct Hooks;

impl WasiHttpHooks for Hooks {
    fn is_forbidden_header(&mut self, name: &HeaderName) -> bool {
        DEFAULT_FORBIDDEN_HEADERS.contains(name)
    }

    fn p2_outgoing_body_buffer_chunks(&mut self) -> usize {
        1
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        types::CHUNK
    }

    /// Never called: requests are made by our own `handle`.
    fn send_request(
        &mut self,
        _request: ::http::Request<WasiBody>,
        _options: Option<RequestOptions>,
        _done: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        Box::new(std::future::ready(Err(Error::HttpRequestDenied)))
    }
}

/// What the library's own way of sending would give.
type Sent =
    Result<(::http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;
