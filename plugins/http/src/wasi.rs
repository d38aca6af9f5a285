//! Requests by the interface `wasi:http`, each wait bounded by one moment.

use std::time::Duration;

use checkrein_guest::prelude::*;
use url::Url;
use wasip2::clocks::monotonic_clock;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest,
    RequestOptions, Scheme, http_error_code,
};
use wasip2::io::poll::{Pollable, poll};
use wasip2::io::streams::{InputStream, OutputStream, StreamError};

use crate::transport::{Body, Head, Next, Request, Transport};

/// So much of a body is written at one time.
const PIECE: usize = 32 << 10;

/// Carries requests until a moment.
#[derive(Debug)]
pub(crate) struct Wasi {
    timeout: Duration,
    /// When the time is up, by the clock of the host.
    end: u64,
}

impl Wasi {
    pub(crate) fn new(timeout: Duration) -> Wasi {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Wasi { timeout, end: monotonic_clock::now().saturating_add(nanoseconds) }
    }

    fn late(&self) -> Failure {
        Failure::failed(format!("no response within {} seconds", self.timeout.as_secs()))
    }

    /// Waits for one thing; false when the time was up first.
    fn wait(&self, ready: &Pollable) -> bool {
        wait(ready, self.end)
    }

    fn write(&self, stream: &OutputStream, bytes: &[u8]) -> Result<(), Failure> {
        let ready = stream.subscribe();
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = match stream.check_write() {
                Ok(0) => {
                    if !self.wait(&ready) {
                        return Err(self.late());
                    }
                    continue;
                }
                Ok(room) => usize::try_from(room).unwrap_or(PIECE).min(PIECE).min(rest.len()),
                // A server may answer before it has read everything.
                Err(_) => return Ok(()),
            };
            if stream.write(&rest[..room]).is_err() {
                return Ok(());
            }
            rest = &rest[room..];
        }
        if stream.flush().is_ok() && !self.wait(&ready) {
            return Err(self.late());
        }
        Ok(())
    }
}

impl Transport for Wasi {
    type Body = WasiBody;

    fn send(&mut self, request: &Request) -> Result<(Head, WasiBody), Failure> {
        let outgoing = outgoing(request)?;
        let body = outgoing.body().map_err(|()| Failure::failed("the request takes no body"))?;
        let options = RequestOptions::new();
        let left = self.end.saturating_sub(monotonic_clock::now());
        // The host is told too, and may then say more precisely what took so long. What it refuses is ours to watch.
        let told = options.set_connect_timeout(Some(left)).is_ok()
            && options.set_first_byte_timeout(Some(left)).is_ok();
        let response = outgoing_handler::handle(outgoing, told.then_some(options))
            .map_err(|code| failure(&code, &request.url))?;
        if !request.body.is_empty() {
            let stream = body.write().map_err(|()| Failure::failed("the request takes no body"))?;
            self.write(&stream, &request.body)?;
        }
        // An answer that came early explains better than this what went wrong.
        let finished = OutgoingBody::finish(body, None);
        let ready = response.subscribe();
        let incoming = loop {
            match response.get() {
                Some(Ok(Ok(incoming))) => break incoming,
                Some(Ok(Err(code))) => return Err(failure(&code, &request.url)),
                Some(Err(())) => return Err(Failure::failed("the response was taken already")),
                None if self.wait(&ready) => {}
                None => return Err(self.late()),
            }
        };
        drop(finished);
        let head = head(&incoming);
        let body = WasiBody::new(&incoming, self.end)?;
        Ok((head, body))
    }
}

fn outgoing(request: &Request) -> Result<OutgoingRequest, Failure> {
    let headers = Fields::new();
    for (name, value) in &request.headers {
        headers
            .append(name, value.as_bytes())
            .map_err(|_| Failure::invalid(format!("the host does not send the header `{name}`")))?;
    }
    if !request.body.is_empty() {
        let length = request.body.len().to_string();
        headers
            .append("content-length", length.as_bytes())
            .map_err(|_| Failure::failed("no content-length"))?;
    }
    let outgoing = OutgoingRequest::new(headers);
    let method = match request.method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        other => Method::Other(other.to_owned()),
    };
    let scheme = if request.url.scheme() == "https" { Scheme::Https } else { Scheme::Http };
    let path = match request.url.query() {
        Some(query) => format!("{}?{query}", request.url.path()),
        None => request.url.path().to_owned(),
    };
    let wrong = |()| Failure::invalid(format!("the host does not take the URL {}", request.url));
    outgoing.set_method(&method).map_err(wrong)?;
    outgoing.set_scheme(Some(&scheme)).map_err(wrong)?;
    outgoing.set_authority(Some(&authority(&request.url))).map_err(wrong)?;
    outgoing.set_path_with_query(Some(&path)).map_err(wrong)?;
    Ok(outgoing)
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn head(incoming: &IncomingResponse) -> Head {
    let headers = incoming.headers().entries();
    let headers =
        headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    Head { status: incoming.status(), headers }
}

/// Waits for one thing until a moment; false when the moment came first.
fn wait(ready: &Pollable, end: u64) -> bool {
    let alarm = monotonic_clock::subscribe_instant(end);
    // The list holds the places of those that are ready; ours is the first.
    poll(&[ready, &alarm]).contains(&0)
}

/// The body of a response. The stream must go before what it belongs to, and its pollable before the stream.
#[derive(Debug)]
pub(crate) struct WasiBody {
    ready: Pollable,
    stream: InputStream,
    _body: IncomingBody,
    end: u64,
}

impl WasiBody {
    fn new(incoming: &IncomingResponse, end: u64) -> Result<WasiBody, Failure> {
        let taken = |()| Failure::failed("the body of the response was taken already");
        let body = incoming.consume().map_err(taken)?;
        let stream = body.stream().map_err(taken)?;
        Ok(WasiBody { ready: stream.subscribe(), stream, _body: body, end })
    }
}

impl Body for WasiBody {
    fn next(&mut self, most: usize) -> Next {
        loop {
            // A body that drips or never ends is always ready, so the clock must be asked too.
            if monotonic_clock::now() >= self.end {
                return Next::Late;
            }
            match self.stream.read(most as u64) {
                Ok(bytes) if bytes.is_empty() => {
                    if !wait(&self.ready, self.end) {
                        return Next::Late;
                    }
                }
                Ok(bytes) => return Next::Bytes(bytes),
                Err(StreamError::Closed) => return Next::End,
                Err(StreamError::LastOperationFailed(error)) => {
                    let why = match http_error_code(&error) {
                        Some(code) => words(&code),
                        None => error.to_debug_string(),
                    };
                    return Next::Broken(why);
                }
            }
        }
    }
}

/// The failure that an agent reads.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the other codes mean the same to an agent: it did not work"
)]
fn failure(code: &ErrorCode, url: &Url) -> Failure {
    let host = authority(url);
    match code {
        ErrorCode::HttpRequestDenied => Failure::denied(format!(
            "this run was not granted {host}, or it stands for an address that was not"
        )),
        ErrorCode::DestinationIpProhibited => {
            Failure::denied(format!("{host} stands for an address that this run was not granted"))
        }
        ErrorCode::DnsError(_) | ErrorCode::DestinationNotFound => {
            Failure::not_found(format!("there is no server of the name {host}"))
        }
        other => Failure::failed(words(other)),
    }
}

/// What went wrong, in words.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the other codes mean the same to an agent: it did not work"
)]
fn words(code: &ErrorCode) -> String {
    let words = match code {
        ErrorCode::DnsTimeout | ErrorCode::ConnectionTimeout => {
            "the server could not be reached in time"
        }
        ErrorCode::ConnectionRefused => "the server refuses connections",
        ErrorCode::ConnectionTerminated => "the connection broke",
        ErrorCode::HttpResponseTimeout | ErrorCode::ConnectionReadTimeout => {
            "the server did not answer in time"
        }
        ErrorCode::HttpResponseIncomplete => "the connection ended before the response did",
        ErrorCode::TlsCertificateError => "the certificate of the server is not trusted",
        ErrorCode::HttpProtocolError => "the server does not speak HTTP as it should",
        ErrorCode::InternalError(Some(words)) => words,
        other => return format!("{other:?}"),
    };
    words.to_owned()
}
