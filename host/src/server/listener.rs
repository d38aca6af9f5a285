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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::app::App;
use super::closing::{Phase, Watch};
use super::figures::SocketKind;
use super::gate::Gate;
use super::linger::{self, Lingering};
use super::patience::Patient;
use super::places::{Holder, NoPlace, Place, Places};
use super::problem::{Problem, ProblemKind};
use super::rate::Peer;
use crate::work::spawn_charged;

/// Connections that wait to be taken.
const BACKLOG: i32 = 128;

/// Bytes of the head of a request.
const HEAD_BYTES: usize = 64 << 10;

/// Fields in it.
const HEAD_FIELDS: usize = 64;

/// Connections of a listener that are told at one time that there is no place for them. More are closed with a word and no wait.
const TURNED_AWAY: usize = 64;

/// How long the listener rests when the system gives it no connection, for want of file descriptors for instance.
const REST: Duration = Duration::from_millis(50);

/// What a connection may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections at one time. One more is told so and closed.
    pub connections: usize,
    /// How many of them one peer may have: an address, or a process of this machine. Whoever has one already gets none of the
    /// last eighth, so that there is a place for who has none.
    pub peer_connections: usize,
    /// How long the head of a request may take, from the end of the one before.
    pub head_time: Duration,
    /// How long a peer may take nothing of an answer.
    pub write_time: Duration,
}

impl ListenerLimits {
    /// How many connections a listener holds at one time, with those that it turns away.
    pub fn most_held(&self) -> usize {
        self.connections.saturating_add(TURNED_AWAY)
    }
}

impl Default for ListenerLimits {
    fn default() -> ListenerLimits {
        ListenerLimits {
            connections: 512,
            peer_connections: 256,
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
        app: &App,
        router: Router,
        limits: &ListenerLimits,
        bound: Duration,
    ) -> usize {
        let kind = self.socket.kind();
        let places = Places::new(limits.connections, limits.peer_connections);
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
        let mut ending = app.closing().watch();
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
            let watch = app.closing().watch();
            let place = match places.take(stream.holder()) {
                Ok(place) => Open::new(app.clone(), kind, place),
                Err(why) => {
                    app.figures().connections(kind).refused(why);
                    match Arc::clone(&turned_away).try_acquire_owned() {
                        Ok(room) => detached(app, stream.turned_away(why, watch, room)),
                        Err(_) => stream.turn_away(why),
                    }
                    continue;
                }
            };
            let (router, limits) = (router.clone(), limits.clone());
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
            detached(app, connection);
        }
        let finished = tokio::time::timeout(bound, places.empty()).await.is_ok();
        let left = if finished { 0 } else { places.taken() };
        if left > 0 {
            app.closing().cut();
            // They end when they are polled next, which the cut sees to.
            places.empty().await;
        }
        self.socket.close();
        left
    }
}

fn detached(app: &App, connection: impl Future<Output = ()> + Send + 'static) {
    let host = app.host();
    let _detached = spawn_charged(host.sandbox().control(), host.node().share(), connection);
}

/// A connection that is counted as open.
struct Open {
    app: App,
    kind: SocketKind,
    _place: Place,
}

impl Open {
    fn new(app: App, kind: SocketKind, place: Place) -> Open {
        app.figures().connections(kind).open().one();
        Open { app, kind, _place: place }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.app.figures().connections(self.kind).open().less();
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

    /// Whose connection it is, where connections are counted.
    fn holder(&self) -> Holder {
        let holder = match self {
            Stream::Unix(stream) => {
                stream.peer_cred().ok().and_then(|peer| peer.pid()).map(Holder::Process)
            }
            Stream::Tcp(stream) => stream.peer_addr().ok().map(|peer| Holder::at(peer.ip())),
        };
        holder.unwrap_or(Holder::Unknown)
    }

    /// Says why there is no place, and closes when the peer has read it or has had its time.
    async fn turned_away(self, why: NoPlace, mut watch: Watch, room: OwnedSemaphorePermit) {
        let problem = Problem::from(why);
        let lingering = watch.clone();
        let told = async {
            match self {
                Stream::Unix(stream) => refuse(Lingering::new(stream, lingering), problem).await,
                Stream::Tcp(stream) => refuse(Lingering::new(stream, lingering), problem).await,
            }
        };
        tokio::select! {
            biased;
            () = watch.reached(Phase::Ending) => {}
            () = told => {}
        }
        drop(room);
    }

    /// Says why there is no place, as far as the peer takes it at once, and closes.
    fn turn_away(&self, why: NoPlace) {
        let answer = linger::answer(why.into());
        match self {
            Stream::Unix(stream) => stream.try_write(answer.as_bytes()).ok(),
            Stream::Tcp(stream) => stream.try_write(answer.as_bytes()).ok(),
        };
    }
}

impl From<NoPlace> for Problem {
    fn from(why: NoPlace) -> Problem {
        match why {
            NoPlace::Full => Problem::crowded("the host has as many connections as it may"),
            NoPlace::Share => {
                Problem::greedy("this client has as many connections as one client may")
            }
        }
    }
}

impl Socket {
    fn kind(&self) -> SocketKind {
        match self {
            Socket::Unix { .. } => SocketKind::Unix,
            Socket::Tcp { .. } => SocketKind::Tcp,
        }
    }

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

async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(mut stream: Lingering<S>, problem: Problem) {
    stream.heard().await;
    stream.refuse(problem).await;
}

/// Requests and answers on one connection, until either side has enough.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Option<Peer>,
    router: Router,
    limits: &ListenerLimits,
    mut watch: Watch,
) {
    let stream = Lingering::new(Patient::new(stream, limits.write_time), watch.clone());
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
    let mut connection = protocol.serve_connection(TokioIo::new(stream), service);
    let mut cut = watch.clone();
    let mut cut = pin!(cut.reached(Phase::Cut));
    let mut ending = pin!(watch.reached(Phase::Ending));
    let mut is_ending = false;
    let ended = loop {
        tokio::select! {
            biased;
            () = &mut cut => return,
            () = &mut ending, if !is_ending => {
                is_ending = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
            ended = &mut connection => break ended,
        }
    };
    let Err(error) = ended else { return };
    tracing::debug!(%error, "a connection broke off");
    let parts = connection.into_parts();
    // Silence between two requests needs no answer.
    if error.is_timeout() && !parts.read_buf.is_empty() {
        let words = format!("the head did not come within {:?}", limits.head_time);
        let problem = Problem::new(ProblemKind::TooSlow, words);
        tokio::select! {
            biased;
            () = &mut cut => {}
            () = &mut ending, if !is_ending => {}
            () = parts.io.into_inner().refuse(problem) => {}
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
