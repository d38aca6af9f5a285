//! Where requests come from: a Unix socket, or TCP. Every bound on a connection is here.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as Knock;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::closing::{Closing, Phase, Watch};
use super::gate::Gate;
use super::patience::Patient;
use super::problem::{Failed, Problem, ProblemKind};
use super::rate::Peer;
use crate::host::Host;
use crate::work::spawn_charged;

/// Connections that wait to be taken.
const BACKLOG: i32 = 128;

/// Bytes of the head of a request.
const HEAD_BYTES: usize = 64 << 10;

/// Fields in it.
const HEAD_FIELDS: usize = 64;

/// How long the listener rests when the system gives it no connection, for want of file descriptors for instance.
const REST: Duration = Duration::from_millis(50);

/// What a connection may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections at one time. One more is told so and closed.
    pub connections: usize,
    /// How long the head of a request may take, from the end of the one before.
    pub head_time: Duration,
    /// How long a peer may take nothing of an answer.
    pub write_time: Duration,
}

impl Default for ListenerLimits {
    fn default() -> ListenerLimits {
        ListenerLimits {
            connections: 512,
            head_time: Duration::from_secs(15),
            write_time: Duration::from_secs(30),
        }
    }
}

/// An open listener. It takes connections once it is [served](Listener::serve).
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Unix {
        listener: UnixListener,
        path: PathBuf,
        /// Locked as long as this process has the socket.
        lock: File,
    },
    Tcp {
        listener: TcpListener,
        /// Whether requests must name this machine: pages in browsers can have their own name point here.
        names: Names,
    },
}

/// By which names requests may call the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Any,
    Loopback,
}

impl Listener {
    /// A Unix socket that only the user of this process can connect to. The socket of a process that has ended is replaced.
    ///
    /// # Errors
    ///
    /// [`ListenError`], with who holds the socket if somebody does. Must be called in a tokio runtime.
    pub fn unix(path: &Path) -> Result<Listener, ListenError> {
        let failed = |source: io::Error| ListenError::System { what: shown(path), source };
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(ListenError::NotASocket { path: path.to_owned() });
            }
            Ok(_) if Knock::connect(path).is_ok() => {
                return Err(ListenError::Held { path: path.to_owned(), by: None });
            }
            Ok(_) => fs::remove_file(path).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let socket = bound(path).map_err(failed)?;
        let listener = std::os::unix::net::UnixListener::from(socket);
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        Ok(Listener { socket: Socket::Unix { listener, path: path.to_owned(), lock } })
    }

    /// A TCP socket. Beyond this machine it needs a gate that authenticates.
    ///
    /// # Errors
    ///
    /// [`ListenError`] when the address cannot be had, or would let strangers in.
    pub async fn tcp(address: SocketAddr, gate: &dyn Gate) -> Result<Listener, ListenError> {
        let authenticates = gate.authenticates();
        if !address.ip().is_loopback() && !authenticates {
            return Err(ListenError::Open { address });
        }
        let names = if authenticates { Names::Any } else { Names::Loopback };
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| ListenError::System { what: address.to_string(), source })?;
        Ok(Listener { socket: Socket::Tcp { listener, names } })
    }

    /// Where it listens, as clients write it.
    pub fn address(&self) -> String {
        match &self.socket {
            Socket::Unix { path, .. } => format!("unix:{}", path.display()),
            Socket::Tcp { listener, .. } => match listener.local_addr() {
                Ok(address) => format!("http://{address}"),
                Err(_) => "http://?".to_owned(),
            },
        }
    }

    /// Answers requests until the end of all listeners has begun, and then gives connections that long to finish before they
    /// are cut. Returns how many were cut.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes no more connections; those that are there go on until they are cut.
    pub async fn serve(
        self,
        host: &Host,
        router: Router,
        limits: &ListenerLimits,
        closing: &Closing,
        bound: Duration,
    ) -> usize {
        let most = limits.connections.clamp(1, 1 << 20);
        let room = Arc::new(Semaphore::new(most));
        let mut ending = closing.watch();
        let mut ending = pin!(ending.reached(Phase::Ending));
        let router = match &self.socket {
            Socket::Tcp { names: Names::Loopback, .. } => router.layer(from_fn(called_by_name)),
            Socket::Tcp { names: Names::Any, .. } | Socket::Unix { .. } => router,
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut ending => break,
                accepted = self.socket.accept() => accepted,
            };
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "could not take a connection");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                stream.turn_away();
                continue;
            };
            let (router, limits, watch) = (router.clone(), limits.clone(), closing.watch());
            let connection = async move {
                let peer = stream.peer();
                match stream {
                    Stream::Unix(stream) => converse(stream, peer, router, &limits, watch).await,
                    Stream::Tcp(stream) => {
                        // Without it events wait for the answer to the ones before.
                        stream.set_nodelay(true).ok();
                        converse(stream, peer, router, &limits, watch).await;
                    }
                }
                drop(place);
            };
            let _detached =
                spawn_charged(host.sandbox().control(), host.node().share(), connection);
        }
        let all = u32::try_from(most).unwrap_or(u32::MAX);
        let finished = tokio::time::timeout(bound, room.acquire_many(all)).await.is_ok();
        let left = if finished { 0 } else { most - room.available_permits() };
        if left > 0 {
            closing.cut();
            // They end when they are polled next, which the cut sees to.
            drop(room.acquire_many(all).await);
        }
        self.socket.close();
        left
    }
}

/// A connection that was taken.
enum Stream {
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream),
}

impl Stream {
    /// Who is at the other end.
    fn peer(&self) -> Option<Peer> {
        match self {
            Stream::Unix(stream) => Some(Peer::User(stream.peer_cred().ok()?.uid())),
            Stream::Tcp(stream) => Some(Peer::Address(stream.peer_addr().ok()?.ip())),
        }
    }

    /// Says that there is no room, as far as the peer takes it at once, and closes.
    fn turn_away(&self) {
        let problem = Problem::crowded("the host has as many connections as it may");
        let body = serde_json::to_string(&Failed { error: problem }).unwrap_or_default();
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        match self {
            Stream::Unix(stream) => stream.try_write(answer.as_bytes()).ok(),
            Stream::Tcp(stream) => stream.try_write(answer.as_bytes()).ok(),
        };
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Socket::Unix { listener, .. } => Ok(Stream::Unix(listener.accept().await?.0)),
            Socket::Tcp { listener, .. } => Ok(Stream::Tcp(listener.accept().await?.0)),
        }
    }

    fn close(self) {
        match self {
            Socket::Unix { listener, path, lock } => {
                drop(listener);
                // Should it stay, the next host finds that nobody answers and replaces it.
                fs::remove_file(&path).ok();
                drop(lock);
            }
            Socket::Tcp { listener, .. } => drop(listener),
        }
    }
}

/// Requests and answers on one connection, until either side has enough.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Option<Peer>,
    router: Router,
    limits: &ListenerLimits,
    mut watch: Watch,
) {
    let stream = TokioIo::new(Patient::new(stream, limits.write_time));
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(HEAD_FIELDS)
        .max_buf_size(HEAD_BYTES);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        router.call(request)
    });
    let connection = protocol.serve_connection(stream, service);
    let mut connection = pin!(connection);
    let mut cut = watch.clone();
    let mut cut = pin!(cut.reached(Phase::Cut));
    let mut ending = pin!(watch.reached(Phase::Ending));
    let mut is_ending = false;
    loop {
        tokio::select! {
            biased;
            () = &mut cut => return,
            () = &mut ending, if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke off");
                }
                return;
            }
        }
    }
}

/// Refuses requests that call the host by a name that is not this machine's.
async fn called_by_name(request: Request, next: Next) -> Response {
    let name = request.headers().get(header::HOST).and_then(|name| name.to_str().ok());
    // A page of somebody else in a browser of this machine says where it is from.
    let origin = request.headers().get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or(""));
    let ours = |origin: &str| origin.split_once("://").is_some_and(|(_, name)| is_loopback(name));
    if name.is_some_and(is_loopback) && origin.is_none_or(ours) {
        return next.run(request).await;
    }
    let words =
        "without tokens only requests from and to `localhost` or a loopback address are answered";
    Problem::new(ProblemKind::Forbidden, words).into_response()
}

fn is_loopback(name: &str) -> bool {
    let name = match name.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => name,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Takes the lock beside the socket, and says in it who has it.
fn lock(path: &Path) -> Result<File, ListenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let failed = |source: io::Error| ListenError::System { what: shown(&name), source };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // A link could lead anywhere, and opening a FIFO would wait for somebody at its other end.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits().cast_signed());
    let mut file = options.open(&name).map_err(failed)?;
    if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(failed(error.into()));
        }
        let mut by = String::new();
        // Who cannot be read is not named.
        file.take(32).read_to_string(&mut by).ok();
        return Err(ListenError::Held { path: path.to_owned(), by: by.trim().parse().ok() });
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    Ok(file)
}

/// A socket that listens there. Nobody can connect before only its user may.
fn bound(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Nobody can connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process answers there.
    #[error("{} is held by {}; stop it, or name another socket", .path.display(), holder(*.by))]
    Held {
        /// The socket.
        path: PathBuf,
        /// Its process, where that is known.
        by: Option<u32>,
    },
    /// Something else has the name.
    #[error("{} is there and is no socket; remove it, or name another socket", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Strangers could ask for anything.
    #[error(
        "{address} can be reached from other machines, and nobody would have to say who they are; make tokens, or listen on 127.0.0.1"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The system does not give it.
    #[error("could not listen on {what}")]
    System {
        /// Where.
        what: String,
        /// Why.
        source: io::Error,
    },
}

fn holder(by: Option<u32>) -> String {
    by.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for name in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]:1", "[::1]"]
        {
            assert!(is_loopback(name), "{name}");
        }
        for name in
            ["", "evil.example", "localhost.evil.example:80", "10.0.0.1", "[fe80::1]:1", "0.0.0.0"]
        {
            assert!(!is_loopback(name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_socket_is_held_by_one_process_and_taken_over_from_a_dead_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let first = Listener::unix(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let held = Listener::unix(&path).unwrap_err();
        let me = format!("is held by process {}", std::process::id());
        assert!(held.to_string().contains(&me), "{held}");
        // What a process leaves that ends without a word.
        drop(first);
        assert!(path.exists());
        Listener::unix(&path).unwrap().socket.close();
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        assert!(matches!(Listener::unix(&path), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"a file");
    }

    #[tokio::test]
    async fn strangers_are_not_let_in_without_a_gate() {
        let gate = crate::server::LocalUser;
        let anywhere = "0.0.0.0:0".parse().unwrap();
        assert!(matches!(Listener::tcp(anywhere, &gate).await, Err(ListenError::Open { .. })));
        let here = Listener::tcp("127.0.0.1:0".parse().unwrap(), &gate).await.unwrap();
        assert!(here.address().starts_with("http://127.0.0.1:"), "{}", here.address());
    }
}
