//! `wasi:sockets/tcp`: connections to what is granted, and nothing that waits for others to connect.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::SocketResult;
use wasmtime_wasi::p2::bindings::sockets::network::{
    ErrorCode, IpAddressFamily, IpSocketAddress, Network,
};
use wasmtime_wasi::p2::bindings::sockets::tcp::{self, ShutdownType, TcpSocket};
use wasmtime_wasi::p2::bindings::sockets::tcp_create_socket;
use wasmtime_wasi_io::async_trait;
use wasmtime_wasi_io::poll::{DynPollable, Pollable, subscribe};
use wasmtime_wasi_io::streams::{DynInputStream, DynOutputStream};

use super::super::gate::{FilePermit, Task};
use super::super::state::WasiState;
use super::connection::{Connection, Input, Output};
use super::{NetworkHandle, code, options};

/// How long a connection may take to be made.
const CONNECT_TIME: Duration = Duration::from_secs(60);

/// A socket of a guest.
struct Socket {
    family: IpAddressFamily,
    state: State,
    #[expect(dead_code, reason = "held for its drop")]
    permit: FilePermit,
}

enum State {
    /// Made, with its options; none while it changes its state.
    Fresh(Option<tokio::net::TcpSocket>),
    /// On its way. Dropping it abandons the attempt.
    Connecting(Task<io::Result<TcpStream>>),
    /// The attempt has ended, and the guest has not asked for the result.
    Attempted(io::Result<TcpStream>),
    /// Connected; the streams are with the guest.
    Connected(Arc<Connection>),
    /// The attempt failed, and the guest knows.
    Failed,
}

impl Socket {
    /// Runs an option on the socket, in the states that have one.
    fn option<R>(&self, with: impl FnOnce(options::Fd<'_>) -> R) -> Result<R, ErrorCode> {
        match &self.state {
            State::Fresh(Some(socket)) => Ok(with(socket.as_fd())),
            State::Connected(connection) => Ok(with(connection.stream.as_fd())),
            State::Fresh(None) | State::Connecting(_) | State::Attempted(_) | State::Failed => {
                Err(ErrorCode::InvalidState)
            }
        }
    }

    fn get<R>(&self, with: impl FnOnce(options::Fd<'_>) -> io::Result<R>) -> SocketResult<R> {
        Ok(self.option(with)?.map_err(|error| code(&error))?)
    }

    fn set(
        &self,
        with: impl FnOnce(options::Fd<'_>) -> Result<(), options::Wrong>,
    ) -> SocketResult<()> {
        Ok(self.option(with)?.map_err(ErrorCode::from)?)
    }

    fn connection(&self) -> SocketResult<&Arc<Connection>> {
        match &self.state {
            State::Connected(connection) => Ok(connection),
            State::Fresh(_) | State::Connecting(_) | State::Attempted(_) | State::Failed => {
                Err(ErrorCode::InvalidState.into())
            }
        }
    }
}

#[async_trait]
impl Pollable for Socket {
    async fn ready(&mut self) {
        if let State::Connecting(attempt) = &mut self.state {
            self.state = State::Attempted(attempt.await);
        }
    }
}

fn ours(theirs: &Resource<TcpSocket>) -> Resource<Socket> {
    Resource::new_borrow(theirs.rep())
}

impl WasiState {
    fn socket(&self, theirs: &Resource<TcpSocket>) -> SocketResult<&Socket> {
        Ok(self.table.get(&ours(theirs))?)
    }

    fn no_listening(&self, socket: &Resource<TcpSocket>, what: &str) -> SocketResult<()> {
        self.socket(socket)?;
        self.gate.denied(&format!("network: {what} is not granted to any guest"));
        Err(ErrorCode::AccessDenied.into())
    }
}

impl tcp_create_socket::Host for WasiState {
    fn create_tcp_socket(&mut self, family: IpAddressFamily) -> SocketResult<Resource<TcpSocket>> {
        if self.network().is_none() {
            self.gate.denied("network: a TCP socket: no network is granted");
            return Err(ErrorCode::AccessDenied.into());
        }
        let permit = self.permit().ok_or(ErrorCode::NewSocketLimit)?;
        let socket = match family {
            IpAddressFamily::Ipv4 => tokio::net::TcpSocket::new_v4(),
            IpAddressFamily::Ipv6 => tokio::net::TcpSocket::new_v6(),
        };
        let socket = socket.map_err(|error| code(&error))?;
        if let IpAddressFamily::Ipv6 = family {
            sockopt::set_ipv6_v6only(&socket, true).map_err(|errno| code(&errno.into()))?;
        }
        let socket = Socket { family, state: State::Fresh(Some(socket)), permit };
        Ok(Resource::new_own(self.table.push(socket)?.rep()))
    }
}

impl tcp::Host for WasiState {}

impl tcp::HostTcpSocket for WasiState {
    async fn start_bind(
        &mut self,
        socket: Resource<TcpSocket>,
        _network: Resource<Network>,
        _address: IpSocketAddress,
    ) -> SocketResult<()> {
        self.no_listening(&socket, "binding a socket")
    }

    fn finish_bind(&mut self, socket: Resource<TcpSocket>) -> SocketResult<()> {
        self.socket(&socket)?;
        Err(ErrorCode::NotInProgress.into())
    }

    fn start_connect(
        &mut self,
        socket: Resource<TcpSocket>,
        network: Resource<Network>,
        address: IpSocketAddress,
    ) -> SocketResult<()> {
        self.table.get(&Resource::<NetworkHandle>::new_borrow(network.rep()))?;
        let network = self.network().cloned().ok_or(ErrorCode::AccessDenied)?;
        // Only address and port: a scope could choose one of the host's interfaces.
        let address = SocketAddr::from(address);
        let address = SocketAddr::new(address.ip(), address.port());
        let socket = self.table.get_mut(&ours(&socket))?;
        let fresh = match &mut socket.state {
            State::Fresh(fresh) => fresh,
            State::Connecting(_) | State::Attempted(_) => {
                return Err(ErrorCode::ConcurrencyConflict.into());
            }
            State::Connected(_) | State::Failed => return Err(ErrorCode::InvalidState.into()),
        };
        let fits = match address.ip() {
            IpAddr::V4(_) => matches!(socket.family, IpAddressFamily::Ipv4),
            IpAddr::V6(ip) => {
                matches!(socket.family, IpAddressFamily::Ipv6) && ip.to_ipv4_mapped().is_none()
            }
        };
        if !fits
            || address.port() == 0
            || address.ip().is_unspecified()
            || address.ip().is_multicast()
        {
            return Err(ErrorCode::InvalidArgument.into());
        }
        network.may_connect(address).map_err(ErrorCode::from)?;
        let fresh = fresh.take().ok_or(ErrorCode::InvalidState)?;
        socket.state = State::Connecting(Box::pin(async move {
            match tokio::time::timeout(CONNECT_TIME, fresh.connect(address)).await {
                Ok(result) => result,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        }));
        Ok(())
    }

    fn finish_connect(
        &mut self,
        socket: Resource<TcpSocket>,
    ) -> SocketResult<(Resource<DynInputStream>, Resource<DynOutputStream>)> {
        let id = ours(&socket);
        let socket = self.table.get_mut(&id)?;
        // A guest that only asks, without waiting on the pollable, must get ahead too.
        wasmtime_wasi::runtime::poll_noop(std::pin::pin!(socket.ready()));
        let connection = match std::mem::replace(&mut socket.state, State::Failed) {
            State::Attempted(Ok(stream)) => Arc::new(Connection::new(stream)),
            State::Attempted(Err(error)) => return Err(code(&error).into()),
            state @ State::Connecting(_) => {
                socket.state = state;
                return Err(ErrorCode::WouldBlock.into());
            }
            state @ (State::Fresh(_) | State::Connected(_) | State::Failed) => {
                socket.state = state;
                return Err(ErrorCode::NotInProgress.into());
            }
        };
        socket.state = State::Connected(connection.clone());
        let input: DynInputStream = Box::new(Input::new(connection.clone()));
        let output: DynOutputStream = Box::new(Output::new(connection));
        Ok((self.table.push_child(input, &id)?, self.table.push_child(output, &id)?))
    }

    async fn start_listen(&mut self, socket: Resource<TcpSocket>) -> SocketResult<()> {
        self.no_listening(&socket, "listening for connections")
    }

    fn finish_listen(&mut self, socket: Resource<TcpSocket>) -> SocketResult<()> {
        self.socket(&socket)?;
        Err(ErrorCode::NotInProgress.into())
    }

    fn accept(
        &mut self,
        socket: Resource<TcpSocket>,
    ) -> SocketResult<(Resource<TcpSocket>, Resource<DynInputStream>, Resource<DynOutputStream>)>
    {
        self.socket(&socket)?;
        Err(ErrorCode::InvalidState.into())
    }

    /// The guest's own address is the host's, which is not its business.
    fn local_address(&mut self, socket: Resource<TcpSocket>) -> SocketResult<IpSocketAddress> {
        let socket = self.socket(&socket)?;
        let port = socket.connection()?.stream.local_addr().map_err(|error| code(&error))?.port();
        let address: IpAddr = match socket.family {
            IpAddressFamily::Ipv4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddressFamily::Ipv6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        Ok(SocketAddr::new(address, port).into())
    }

    fn remote_address(&mut self, socket: Resource<TcpSocket>) -> SocketResult<IpSocketAddress> {
        let connection = self.socket(&socket)?.connection()?;
        Ok(connection.stream.peer_addr().map_err(|error| code(&error))?.into())
    }

    fn is_listening(&mut self, socket: Resource<TcpSocket>) -> wasmtime::Result<bool> {
        self.table.get(&ours(&socket))?;
        Ok(false)
    }

    fn address_family(&mut self, socket: Resource<TcpSocket>) -> wasmtime::Result<IpAddressFamily> {
        Ok(self.table.get(&ours(&socket))?.family)
    }

    fn set_listen_backlog_size(
        &mut self,
        socket: Resource<TcpSocket>,
        value: u64,
    ) -> SocketResult<()> {
        self.socket(&socket)?;
        if value == 0 { Err(ErrorCode::InvalidArgument.into()) } else { Ok(()) }
    }

    fn keep_alive_enabled(&mut self, socket: Resource<TcpSocket>) -> SocketResult<bool> {
        self.socket(&socket)?.get(|fd| Ok(sockopt::socket_keepalive(fd)?))
    }

    fn set_keep_alive_enabled(
        &mut self,
        socket: Resource<TcpSocket>,
        value: bool,
    ) -> SocketResult<()> {
        self.socket(&socket)?.set(|fd| Ok(sockopt::set_socket_keepalive(fd, value)?))
    }

    fn keep_alive_idle_time(&mut self, socket: Resource<TcpSocket>) -> SocketResult<u64> {
        self.socket(&socket)?.get(|fd| options::nanoseconds(sockopt::tcp_keepidle(fd)))
    }

    fn set_keep_alive_idle_time(
        &mut self,
        socket: Resource<TcpSocket>,
        value: u64,
    ) -> SocketResult<()> {
        self.socket(&socket)?
            .set(|fd| Ok(sockopt::set_tcp_keepidle(fd, options::probe_time(value)?)?))
    }

    fn keep_alive_interval(&mut self, socket: Resource<TcpSocket>) -> SocketResult<u64> {
        self.socket(&socket)?.get(|fd| options::nanoseconds(sockopt::tcp_keepintvl(fd)))
    }

    fn set_keep_alive_interval(
        &mut self,
        socket: Resource<TcpSocket>,
        value: u64,
    ) -> SocketResult<()> {
        self.socket(&socket)?
            .set(|fd| Ok(sockopt::set_tcp_keepintvl(fd, options::probe_time(value)?)?))
    }

    fn keep_alive_count(&mut self, socket: Resource<TcpSocket>) -> SocketResult<u32> {
        self.socket(&socket)?.get(|fd| Ok(sockopt::tcp_keepcnt(fd)?))
    }

    fn set_keep_alive_count(
        &mut self,
        socket: Resource<TcpSocket>,
        value: u32,
    ) -> SocketResult<()> {
        self.socket(&socket)?.set(|fd| Ok(sockopt::set_tcp_keepcnt(fd, options::probes(value)?)?))
    }

    fn hop_limit(&mut self, socket: Resource<TcpSocket>) -> SocketResult<u8> {
        let socket = self.socket(&socket)?;
        socket.get(|fd| options::hop_limit(fd, socket.family))
    }

    fn set_hop_limit(&mut self, socket: Resource<TcpSocket>, value: u8) -> SocketResult<()> {
        let socket = self.socket(&socket)?;
        socket.set(|fd| options::set_hop_limit(fd, socket.family, value))
    }

    fn receive_buffer_size(&mut self, socket: Resource<TcpSocket>) -> SocketResult<u64> {
        self.socket(&socket)?.get(|fd| options::buffer_size(sockopt::socket_recv_buffer_size(fd)))
    }

    fn set_receive_buffer_size(
        &mut self,
        socket: Resource<TcpSocket>,
        value: u64,
    ) -> SocketResult<()> {
        self.socket(&socket)?.set(|fd| {
            Ok(sockopt::set_socket_recv_buffer_size(fd, options::bounded_buffer(value)?)?)
        })
    }

    fn send_buffer_size(&mut self, socket: Resource<TcpSocket>) -> SocketResult<u64> {
        self.socket(&socket)?.get(|fd| options::buffer_size(sockopt::socket_send_buffer_size(fd)))
    }

    fn set_send_buffer_size(
        &mut self,
        socket: Resource<TcpSocket>,
        value: u64,
    ) -> SocketResult<()> {
        self.socket(&socket)?.set(|fd| {
            Ok(sockopt::set_socket_send_buffer_size(fd, options::bounded_buffer(value)?)?)
        })
    }

    fn subscribe(
        &mut self,
        socket: Resource<TcpSocket>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(&mut self.table, ours(&socket))
    }

    fn shutdown(&mut self, socket: Resource<TcpSocket>, how: ShutdownType) -> SocketResult<()> {
        let how = match how {
            ShutdownType::Receive => Shutdown::Read,
            ShutdownType::Send => Shutdown::Write,
            ShutdownType::Both => Shutdown::Both,
        };
        self.socket(&socket)?.connection()?.shut_down(how);
        Ok(())
    }

    fn drop(&mut self, socket: Resource<TcpSocket>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Socket>::new_own(socket.rep()))?;
        Ok(())
    }
}
