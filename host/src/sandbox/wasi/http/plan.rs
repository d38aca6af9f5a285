//! From what a guest put together to a request that can be sent: where to, and exactly what.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http_body_util::{BodyExt, Empty};
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Method, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;

use super::super::network::Host;

/// Bytes of the path and the query.
pub(super) const TARGET_BYTES: usize = 16 << 10;

/// A request and its destination.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) transport: Transport,
    pub(super) request: http::Request<HyperOutgoingBody>,
}

/// Whether the connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Plain,
    Tls,
}

impl Plan {
    /// Checks the request. The host that is looked at here is the one that is connected to: both come from the same place.
    pub(super) fn new(asked: HostOutgoingRequest) -> Result<Plan, ErrorCode> {
        let (transport, usual_port) = match asked.scheme {
            None | Some(Scheme::Https) => (Transport::Tls, 443),
            Some(Scheme::Http) => (Transport::Plain, 80),
            Some(Scheme::Other(_)) => return Err(ErrorCode::HttpProtocolError),
        };
        let (host, port, name) = destination(asked.authority.as_deref().unwrap_or_default())?;
        let mut headers: HeaderMap = asked.headers.into();
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if asked.body.is_none() && length.is_some_and(|length| length > 0) {
            return Err(ErrorCode::HttpRequestBodySize(Some(0)));
        }
        headers.insert(
            HOST,
            HeaderValue::from_str(&name).map_err(|_| ErrorCode::HttpRequestUriInvalid)?,
        );
        let body = asked.body.unwrap_or_else(|| {
            Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync()
        });
        let mut request = http::Request::new(body);
        *request.method_mut() = method(&asked.method)?;
        *request.uri_mut() = target(asked.path_with_query.as_deref().unwrap_or_default())?.into();
        *request.headers_mut() = headers;
        Ok(Plan { host, port: port.unwrap_or(usual_port), transport, request })
    }

    /// About how long the head of the request is.
    pub(super) fn head_bytes(&self) -> usize {
        let target = self.request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        target + head_bytes(self.request.headers())
    }
}

/// About how long these headers are on the wire.
pub(super) fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// Host and port of an authority, and how both are written in the `host` header.
fn destination(text: &str) -> Result<(Host, Option<u16>, String), ErrorCode> {
    let invalid = ErrorCode::HttpRequestUriInvalid;
    let authority: Authority = text.parse().map_err(|_| invalid.clone())?;
    let host = Host::parse(authority.host()).ok_or(invalid.clone())?;
    let name = match authority.port() {
        Some(port) => format!("{}:{}", authority.host(), port.as_u16()),
        None => authority.host().to_owned(),
    };
    // Whatever else is there, a user name or a port out of range, could make the two sides read different hosts.
    if name != text || authority.port_u16() == Some(0) {
        return Err(invalid);
    }
    Ok((host, authority.port_u16(), name))
}

/// Path and query in the form that servers expect. An absolute address here would name another host.
fn target(text: &str) -> Result<PathAndQuery, ErrorCode> {
    if text.len() > TARGET_BYTES {
        return Err(ErrorCode::HttpRequestUriTooLong);
    }
    let slashed = match text.as_bytes().first() {
        Some(b'/') => text.to_owned(),
        None | Some(b'?') => format!("/{text}"),
        Some(_) => return Err(ErrorCode::HttpRequestUriInvalid),
    };
    slashed.parse().map_err(|_| ErrorCode::HttpRequestUriInvalid)
}

fn method(method: &Method) -> Result<http::Method, ErrorCode> {
    Ok(match method {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Delete => http::Method::DELETE,
        Method::Options => http::Method::OPTIONS,
        Method::Trace => http::Method::TRACE,
        Method::Patch => http::Method::PATCH,
        // A tunnel would lead to a host that nobody checked.
        Method::Connect => return Err(ErrorCode::HttpRequestDenied),
        Method::Other(name) if name.eq_ignore_ascii_case("connect") => {
            return Err(ErrorCode::HttpRequestDenied);
        }
        Method::Other(name) => http::Method::from_bytes(name.as_bytes())
            .map_err(|_| ErrorCode::HttpRequestMethodInvalid)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_host_and_perhaps_a_port() {
        let good = [
            ("example.org", "example.org", None),
            ("example.org:8080", "example.org", Some(8080)),
            ("127.0.0.1:80", "127.0.0.1", Some(80)),
            ("[::1]", "::1", None),
            ("[::1]:8443", "::1", Some(8443)),
        ];
        for (text, host, port) in good {
            let (found, found_port, name) = destination(text).unwrap();
            assert_eq!((found, found_port), (Host::parse(host).unwrap(), port), "{text}");
            assert_eq!(name, text);
        }
        for text in [
            "",
            ":80",
            "user@example.org",
            "user:secret@example.org:80",
            "granted.test@evil.test",
            "example.org:99999",
            "example.org:",
            "example.org:0",
            "example.org:080",
            "a b",
            "example.org/path",
            "http://example.org",
            "[::1",
        ] {
            assert!(destination(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_target_is_a_path() {
        for (text, sent) in [
            ("", "/"),
            ("/", "/"),
            ("/a?b=c", "/a?b=c"),
            ("?x", "/?x"),
            ("//evil.test/", "//evil.test/"),
        ] {
            assert_eq!(target(text).unwrap().as_str(), sent);
        }
        for text in ["http://evil.test/", "a", "*", "/a b", "/a\r\nhost: evil"] {
            assert!(matches!(target(text), Err(ErrorCode::HttpRequestUriInvalid)), "{text}");
        }
        assert!(matches!(
            target(&"/x".repeat(TARGET_BYTES)),
            Err(ErrorCode::HttpRequestUriTooLong)
        ));
    }

    #[test]
    fn a_tunnel_is_denied() {
        assert!(matches!(method(&Method::Connect), Err(ErrorCode::HttpRequestDenied)));
        assert!(matches!(
            method(&Method::Other("CONNECT".to_owned())),
            Err(ErrorCode::HttpRequestDenied)
        ));
        assert_eq!(method(&Method::Other("PURGE".to_owned())).unwrap().as_str(), "PURGE");
        assert!(method(&Method::Other("a b".to_owned())).is_err());
    }
}
