//! One request from the lookup to the head of the answer.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions};

use super::super::gate::FilePermit;
use super::super::network::{Host, Network, Refusal};
use super::body::Timed;
use super::plan::{Plan, Transport, head_bytes};
use super::{Answer, HttpLimits};

/// The smallest buffer that the HTTP library accepts.
const SMALLEST_BUFFER: usize = 8 << 10;

/// How long one request waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    connect: Duration,
    first_byte: Duration,
    between_bytes: Duration,
    head_bytes: usize,
}

impl Times {
    pub(super) fn new(limits: &HttpLimits, asked: RequestOptions) -> Times {
        Times {
            connect: limits.connect.pick(asked.connect_timeout),
            first_byte: limits.first_byte.pick(asked.first_byte_timeout),
            between_bytes: limits.between_bytes.pick(asked.between_bytes_timeout),
            head_bytes: limits.head_bytes.max(SMALLEST_BUFFER),
        }
    }
}

/// Makes the request.
pub(super) async fn exchange(
    network: Arc<Network>,
    plan: Plan,
    times: Times,
    permit: FilePermit,
) -> Answer {
    let Plan { host, port, transport, request } = plan;
    let wire = timeout(times.connect, connect(&network, &host, port, transport, times.connect))
        .await
        .map_err(|_| Error::ConnectionTimeout)??;
    // The buffer bounds the head of the answer, and how far the connection reads ahead of the guest.
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(times.head_bytes)
        .handshake(TokioIo::new(wire))
        .await
        .map_err(failed)?;
    let carry = async move {
        // Its error reaches the guest through the request or the body.
        connection.await.ok();
        drop(permit);
    };
    let carrier: AbortOnDropJoinHandle<()> =
        network.gate().spawn_connection("carries an HTTP connection", Box::pin(carry)).into();
    let answer = timeout(times.first_byte, sender.send_request(request))
        .await
        .map_err(|_| Error::ConnectionReadTimeout)?
        .map_err(failed)?;
    // The guest ends at its next charge. Here nobody listens for that.
    let charge = network.gate().charge(head_bytes(answer.headers()));
    charge.map_err(|error| Error::InternalError(Some(error.to_string())))?;
    Ok((answer.map(|incoming| Timed::new(incoming, times.between_bytes).boxed_unsync()), carrier))
}

/// A connection, encrypted or not.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

async fn connect(
    network: &Network,
    host: &Host,
    port: u16,
    transport: Transport,
    time: Duration,
) -> Result<Box<dyn Wire>, Error> {
    let addresses = network.addresses(host, port).await.map_err(refused)?;
    let stream = connect_any(&addresses, time).await?;
    stream.set_nodelay(true).ok();
    match transport {
        Transport::Plain => Ok(Box::new(stream)),
        Transport::Tls => {
            let name = match host {
                Host::Name(name) => {
                    ServerName::try_from(name.clone()).map_err(|_| Error::HttpRequestUriInvalid)?
                }
                Host::Address(address) => ServerName::from(*address),
            };
            let stream = network
                .outside()
                .tls()
                .connect(name, stream)
                .await
                .map_err(|error| tls_failed(&error))?;
            Ok(Box::new(stream))
        }
    }
}

/// Connects to the first of the addresses that answers, each in its share of the time.
async fn connect_any(addresses: &[SocketAddr], time: Duration) -> Result<TcpStream, Error> {
    let share = time / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = Error::DestinationNotFound;
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                last = Error::ConnectionRefused
            }
            Ok(Err(_)) => last = Error::DestinationUnavailable,
            Err(_) => last = Error::ConnectionTimeout,
        }
    }
    Err(last)
}

/// What turns a connection into an encrypted one: the usual roots and these.
pub(in super::super) fn connector(
    roots: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<TlsConnector, rustls::Error> {
    let mut store = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    roots.into_iter().try_for_each(|root| store.add(root))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::NotGranted => Error::HttpRequestDenied,
        Refusal::NotPublic => Error::DestinationIpProhibited,
        Refusal::Unknown => Error::DnsError { rcode: Some(refusal.to_string()), info_code: None },
        Refusal::Timeout => Error::DnsTimeout,
    }
}

fn tls_failed(error: &io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_)) => Error::TlsCertificateError,
        Some(rustls::Error::AlertReceived(alert)) => Error::TlsAlertReceived {
            alert_id: Some(u8::from(*alert)),
            alert_message: Some(format!("{alert:?}")),
        },
        _ => Error::TlsProtocolError,
    }
}

/// What went wrong with a connection, in the words of `wasi:http`.
pub(super) fn failed(error: hyper::Error) -> Error {
    if let Some(Error::HttpRequestBodySize(size)) =
        error.source().and_then(|cause| cause.downcast_ref::<Error>())
    {
        // The guest's own body was shorter or longer than it had said.
        return Error::HttpRequestBodySize(*size);
    }
    if error.is_parse_too_large() {
        Error::HttpResponseHeaderSectionSize(None)
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else if error.is_parse() {
        Error::HttpProtocolError
    } else if error.is_timeout() {
        Error::HttpResponseTimeout
    } else if error.is_canceled()
        || error.is_closed()
        || error.source().is_some_and(|cause| cause.is::<io::Error>())
    {
        Error::ConnectionTerminated
    } else {
        Error::Hyper(error)
    }
}
