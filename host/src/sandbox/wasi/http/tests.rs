//! Requests over real connections to a server that a test scripts byte by byte.

#![expect(
    clippy::disallowed_methods,
    reason = "the other side of a connection is a task of the test"
)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use wasmtime::component::Resource;
use wasmtime_wasi_http::FieldMap;
use wasmtime_wasi_http::p2::bindings::http::types::{
    ErrorCode, HostFutureIncomingResponse as _, HostIncomingBody as _, HostIncomingResponse as _,
    HostOutgoingBody, Method, Scheme,
};
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, HostOutgoingRequest};
use wasmtime_wasi_io::bindings::wasi::io::streams::{HostInputStream, HostOutputStream};
use wasmtime_wasi_io::poll::Pollable as _;
use wasmtime_wasi_io::streams::StreamError;

use super::super::gate::Gate;
use super::super::state::{Outside, WasiState};
use super::super::testing::{Names, TestGate};
use super::{HttpLimits, Wait};
use crate::sandbox::reach::{Addresses, Endpoint, Reach};

const NAMES: &[(&str, &[&str])] = &[
    ("local.test", &["127.0.0.1"]),
    ("both.test", &["10.255.255.1", "127.0.0.1"]),
    ("other.test", &["127.0.0.1"]),
];

struct Guest {
    gate: Arc<TestGate>,
    wasi: WasiState,
}

impl Guest {
    fn new(endpoints: &[(&str, Option<u16>, Addresses)]) -> Guest {
        Guest::with(endpoints, Outside::new().unwrap())
    }

    fn with(endpoints: &[(&str, Option<u16>, Addresses)], outside: Outside) -> Guest {
        let endpoint = |(host, port, addresses): &(&str, _, _)| Endpoint {
            host: (*host).to_owned(),
            port: *port,
            addresses: *addresses,
        };
        let gate = TestGate::new();
        let reach = Arc::new(Reach {
            network: endpoints.iter().map(endpoint).collect(),
            ..Reach::default()
        });
        let shared: Arc<dyn Gate> = gate.clone();
        let outside = Arc::new(outside.with_resolver(Arc::new(Names::new(NAMES))));
        Guest { gate, wasi: WasiState::new(reach, Default::default(), shared, outside) }
    }

    fn request(
        &mut self,
        scheme: Scheme,
        authority: &str,
        path: &str,
    ) -> Resource<HostOutgoingRequest> {
        let request = HostOutgoingRequest {
            method: Method::Get,
            scheme: Some(scheme),
            authority: Some(authority.to_owned()),
            path_with_query: Some(path.to_owned()),
            headers: FieldMap::new_mutable(1 << 16),
            body: None,
        };
        self.wasi.table.push(request).unwrap()
    }

    fn start(
        &mut self,
        request: Resource<HostOutgoingRequest>,
    ) -> Result<Resource<HostFutureIncomingResponse>, ErrorCode> {
        self.wasi
            .handle(request, None)
            .map_err(|error| error.downcast().expect("an error code, not a trap"))
    }

    async fn finish(
        &mut self,
        future: Resource<HostFutureIncomingResponse>,
    ) -> Result<Response, ErrorCode> {
        self.wasi.table.get_mut(&future).unwrap().ready().await;
        let answer =
            self.wasi.http().get(Resource::new_borrow(future.rep())).unwrap().unwrap().unwrap();
        self.wasi.http().table.delete(future).unwrap();
        let response = answer?;
        let status = self.wasi.http().status(Resource::new_borrow(response.rep())).unwrap();
        let body = self.wasi.http().consume(Resource::new_borrow(response.rep())).unwrap().unwrap();
        let stream =
            self.wasi.http().stream(Resource::new_borrow(body.rep())).unwrap().unwrap().rep();
        Ok(Response { status, stream })
    }

    async fn fetch(
        &mut self,
        scheme: Scheme,
        authority: &str,
        path: &str,
    ) -> Result<Response, ErrorCode> {
        let request = self.request(scheme, authority, path);
        let future = self.start(request)?;
        self.finish(future).await
    }

    async fn get(&mut self, authority: &str) -> Result<Response, ErrorCode> {
        self.fetch(Scheme::Http, authority, "/").await
    }

    async fn read(&mut self, response: &Response) -> Result<Vec<u8>, StreamError> {
        let mut all = Vec::new();
        loop {
            match self.wasi.blocking_read(Resource::new_borrow(response.stream), 1 << 16).await {
                Ok(bytes) => all.extend(bytes),
                Err(StreamError::Closed) => return Ok(all),
                Err(error) => return Err(error),
            }
        }
    }
}

#[derive(Debug)]
struct Response {
    status: u16,
    stream: u32,
}

/// Accepts one connection, reads the head of a request, writes an answer, and says when the connection is gone.
async fn server(answer: &'static [u8]) -> (String, oneshot::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (gone, heard) = oneshot::channel();
    tokio::spawn(async move {
        let (connection, _) = listener.accept().await.unwrap();
        gone.send(serve(connection, answer).await).ok();
    });
    (format!("127.0.0.1:{port}"), heard)
}

async fn serve(mut connection: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) -> Vec<u8> {
    let mut heard = Vec::new();
    while !heard.windows(4).any(|end| end == b"\r\n\r\n") {
        connection.read_buf(&mut heard).await.unwrap();
    }
    connection.write_all(answer).await.unwrap();
    // Whatever else comes, until the client is gone.
    connection.read_to_end(&mut heard).await.ok();
    heard
}

const ANY: &[(&str, Option<u16>, Addresses)] = &[("*", None, Addresses::Any)];

#[track_caller]
fn refused(result: Result<Response, ErrorCode>, expected: &str) {
    let error = result.expect_err("should be refused");
    assert!(format!("{error:?}").contains(expected), "{error:?}, not {expected}");
}

#[tokio::test]
async fn a_request_is_sent_and_its_answer_read() {
    let (address, heard) =
        server(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-a: b\r\n\r\nhello").await;
    let mut guest = Guest::new(ANY);
    let response = guest.fetch(Scheme::Http, &address, "/path?query").await.unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(guest.read(&response).await.unwrap(), b"hello");
    let heard = String::from_utf8(heard.await.unwrap()).unwrap();
    assert!(heard.starts_with("GET /path?query HTTP/1.1\r\n"), "{heard}");
    assert!(heard.contains(&format!("host: {address}\r\n")), "{heard}");
    assert!(guest.gate.charged.load(Ordering::Relaxed) > 5);
    assert_eq!(guest.gate.files.available_permits(), 64, "the connection's place is given back");
}

#[tokio::test]
async fn a_body_is_sent_as_the_guest_writes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"0\r\n\r\n") {
            connection.read_buf(&mut heard).await.unwrap();
        }
        connection.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        heard
    });
    let mut guest = Guest::new(ANY);
    let request = guest.request(Scheme::Http, &address, "/");
    guest.wasi.table.get_mut(&request).unwrap().method = Method::Post;
    let body = guest.wasi.request_body(&Resource::new_borrow(request.rep())).unwrap().unwrap();
    let stream = guest.wasi.http().write(Resource::new_borrow(body.rep())).unwrap().unwrap().rep();
    let future = guest.start(request).unwrap();
    for _ in 0..40 {
        guest
            .wasi
            .blocking_write_and_flush(Resource::new_borrow(stream), vec![b'x'; 4096])
            .await
            .unwrap();
    }
    HostOutputStream::drop(&mut guest.wasi, Resource::new_own(stream)).await.unwrap();
    HostOutgoingBody::finish(&mut guest.wasi.http(), body, None).unwrap();
    assert_eq!(guest.finish(future).await.unwrap().status, 201);
    let heard = served.await.unwrap();
    assert_eq!(heard.iter().filter(|byte| **byte == b'x').count(), 40 * 4096);
    assert!(guest.gate.charged.load(Ordering::Relaxed) > 40 * 4096);
}

#[tokio::test]
async fn what_is_not_granted_is_denied_before_anything_is_sent() {
    let (address, mut heard) = server(b"HTTP/1.1 200 OK\r\n\r\n").await;
    let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let mut nothing = Guest::new(&[]);
    refused(nothing.get(&address).await, "HttpRequestDenied");
    assert!(nothing.gate.denials()[0].contains("no network is granted"));
    let mut other = Guest::new(&[
        ("other.test", None, Addresses::Any),
        ("127.0.0.1", Some(port - 1), Addresses::Any),
    ]);
    refused(other.get(&address).await, "HttpRequestDenied");
    refused(other.get(&format!("local.test:{port}")).await, "HttpRequestDenied");
    let mut public = Guest::new(&[("*", None, Addresses::Public)]);
    for host in ["127.0.0.1", "local.test", "both.test", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"] {
        refused(public.get(&format!("{host}:{port}")).await, "DestinationIpProhibited");
    }
    assert!(
        public.gate.denials().iter().all(|reason| reason.contains("public")),
        "{:?}",
        public.gate.denials()
    );
    refused(public.get("missing.test").await, "DnsError");
    assert!(heard.try_recv().is_err(), "nobody connected");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_following_it_is_a_request_of_its_own() {
    let (address, _heard) =
        server(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
            .await;
    let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let mut guest = Guest::new(&[("local.test", Some(port), Addresses::Any)]);
    assert_eq!(guest.get(&format!("local.test:{port}")).await.unwrap().status, 302);
    refused(guest.get("127.0.0.1:1").await, "HttpRequestDenied");
}

#[tokio::test]
async fn malformed_requests_are_error_codes() {
    let mut guest = Guest::new(ANY);
    for (scheme, authority, path, expected) in [
        (Scheme::Http, "", "/", "HttpRequestUriInvalid"),
        (Scheme::Http, "user:pass@127.0.0.1", "/", "HttpRequestUriInvalid"),
        (Scheme::Http, "127.0.0.1:99999", "/", "HttpRequestUriInvalid"),
        (Scheme::Http, "127.0.0.1", "http://evil.test/", "HttpRequestUriInvalid"),
        (Scheme::Other("ftp".to_owned()), "127.0.0.1", "/", "HttpProtocolError"),
        (Scheme::Http, "127.0.0.1:1", "/", "ConnectionRefused"),
    ] {
        refused(guest.fetch(scheme, authority, path).await, expected);
    }
    let connect = guest.request(Scheme::Http, "127.0.0.1", "/");
    guest.wasi.table.get_mut(&connect).unwrap().method = Method::Connect;
    assert!(matches!(guest.start(connect), Err(ErrorCode::HttpRequestDenied)));
    let _all = guest.gate.files.clone().acquire_many_owned(64).await.unwrap();
    refused(guest.get("127.0.0.1:1").await, "ConnectionLimitReached");
}

#[tokio::test]
async fn a_head_without_end_is_cut() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.write_all(b"HTTP/1.1 200 OK\r\nx: ").await.unwrap();
        while connection.write_all(&[b'y'; 4096]).await.is_ok() {}
    });
    let mut guest = Guest::new(ANY);
    refused(guest.get(&address).await, "HttpResponseHeaderSectionSize");
}

fn impatient() -> Outside {
    let short = Wait::new(Duration::from_millis(50), Duration::from_millis(50));
    let limits = HttpLimits {
        connect: short,
        first_byte: short,
        between_bytes: short,
        ..HttpLimits::default()
    };
    Outside::new().unwrap().with_limits(limits)
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let (address, heard) = server(b"").await;
    let mut guest = Guest::with(ANY, impatient());
    refused(guest.get(&address).await, "ConnectionReadTimeout");
    heard.await.expect("the connection is closed");
}

#[tokio::test]
async fn a_body_that_stalls_is_given_up() {
    let (address, heard) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").await;
    let mut guest = Guest::with(ANY, impatient());
    let response = guest.get(&address).await.unwrap();
    let error = guest.read(&response).await.unwrap_err();
    assert!(error.to_string().contains("timeout"), "{error}");
    drop(guest);
    heard.await.expect("the connection is closed");
}

#[tokio::test]
async fn an_endless_body_ends_with_the_budget_and_is_not_read_ahead() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = sent.clone();
    let served = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        while let Ok(more) = connection.write(&[b'z'; 1 << 16]).await {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    });
    let mut guest = Guest::new(ANY);
    let response = guest.get(&address).await.unwrap();
    guest.gate.allow(1 << 20);
    let error = guest.read(&response).await.unwrap_err();
    assert!(matches!(error, StreamError::Trap(_)), "{error}");
    drop(guest);
    served.await.expect("the connection is closed when the guest is gone");
    // What lay in the buffers of both kernels is more than the guest has read, but bounded.
    assert!(sent.load(Ordering::Relaxed) < 64 << 20);
}

#[tokio::test]
async fn a_guest_that_ends_takes_its_connections_along() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (has_request, mut here) = oneshot::channel();
    let served = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        connection.read_buf(&mut heard).await.unwrap();
        has_request.send(()).unwrap();
        connection.read_to_end(&mut heard).await
    });
    let mut guest = Guest::new(ANY);
    let request = guest.request(Scheme::Http, &address, "/");
    let mut future = Box::pin(async move {
        let future = guest.start(request).unwrap();
        guest.finish(future).await
    });
    tokio::select! {
        _ = &mut future => panic!("the server never answers"),
        result = &mut here => result.unwrap(),
    }
    drop(future);
    served.await.unwrap().expect("the connection is closed");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_incomplete() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        for answer in [
            &b"HTTP/1.1 200 OK\r\ncontent-le"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",
            b"SMTP hello\r\n\r\n",
        ] {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            connection.read_buf(&mut head).await.unwrap();
            connection.write_all(answer).await.unwrap();
        }
    });
    let mut guest = Guest::new(ANY);
    refused(guest.get(&address).await, "HttpResponseIncomplete");
    let response = guest.get(&address).await.unwrap();
    assert!(guest.read(&response).await.is_err());
    refused(guest.get(&address).await, "HttpProtocolError");
}

/// A server for `local.test` with a certificate of its own authority.
async fn tls_server() -> (u16, CertificateDer<'static>) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(vec![]).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).unwrap().der().clone();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["local.test".to_owned()]).unwrap();
    let certificate = params
        .signed_by(&key, &rcgen::Issuer::new(authority, authority_key))
        .unwrap()
        .der()
        .clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            if let Ok(connection) = acceptor.accept(connection).await {
                serve(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await;
            }
        }
    });
    (port, root)
}

#[tokio::test]
async fn encrypted_connections_need_a_believed_certificate_for_the_name() {
    let (port, root) = tls_server().await;
    let mut guest = Guest::with(ANY, Outside::new().unwrap().with_roots([root]).unwrap());
    let response = guest.fetch(Scheme::Https, &format!("local.test:{port}"), "/").await.unwrap();
    assert_eq!(guest.read(&response).await.unwrap(), b"secret");
    HostInputStream::drop(&mut guest.wasi, Resource::new_own(response.stream)).await.unwrap();
    drop(guest);
    let (port, root) = tls_server().await;
    let mut guest = Guest::with(ANY, Outside::new().unwrap().with_roots([root]).unwrap());
    refused(
        guest.fetch(Scheme::Https, &format!("other.test:{port}"), "/").await,
        "TlsCertificateError",
    );
    let mut distrustful = Guest::new(ANY);
    refused(
        distrustful.fetch(Scheme::Https, &format!("local.test:{port}"), "/").await,
        "TlsCertificateError",
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        listener.accept().await.unwrap().0.write_all(b"not encrypted at all").await
    });
    refused(distrustful.fetch(Scheme::Https, &address, "/").await, "Tls");
}
