//! Connections and lookups, asked through the interface that guests use.

#![expect(
    clippy::disallowed_methods,
    reason = "the other side of a connection is a task of the test"
)]

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::SocketResult;
use wasmtime_wasi::p2::bindings::sockets::instance_network::Host as _;
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::{Host as _, HostResolveAddressStream};
use wasmtime_wasi::p2::bindings::sockets::network::{
    ErrorCode, IpAddressFamily, IpSocketAddress, Network,
};
use wasmtime_wasi::p2::bindings::sockets::tcp::{HostTcpSocket, TcpSocket};
use wasmtime_wasi::p2::bindings::sockets::tcp_create_socket::Host as _;
use wasmtime_wasi::p2::bindings::sockets::udp_create_socket::Host as _;
use wasmtime_wasi_io::bindings::wasi::io::poll::HostPollable as _;
use wasmtime_wasi_io::bindings::wasi::io::streams::{HostInputStream, HostOutputStream};
use wasmtime_wasi_io::streams::StreamError;

use super::super::gate::Gate;
use super::super::state::{Outside, WasiState};
use super::super::testing::{Names, TestGate};
use crate::sandbox::reach::{Addresses, Endpoint, Reach};

struct Guest {
    gate: Arc<TestGate>,
    wasi: WasiState,
    network: u32,
}

impl Guest {
    fn new(endpoints: &[(&str, Option<u16>, Addresses)]) -> Guest {
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
        let names = Names::new(&[("local.test", &["127.0.0.1", "::1"])]);
        let outside = Arc::new(Outside::new().unwrap().with_resolver(Arc::new(names)));
        let mut wasi = WasiState::new(reach, Default::default(), shared, outside);
        let network = wasi.instance_network().unwrap().rep();
        Guest { gate, wasi, network }
    }

    fn network(&self) -> Resource<Network> {
        Resource::new_borrow(self.network)
    }

    async fn wait(&mut self, socket: u32) {
        let pollable =
            HostTcpSocket::subscribe(&mut self.wasi, Resource::new_borrow(socket)).unwrap();
        self.wasi.table.block(Resource::new_borrow(pollable.rep())).await.unwrap();
        wasmtime_wasi_io::bindings::wasi::io::poll::HostPollable::drop(
            &mut self.wasi.table,
            pollable,
        )
        .unwrap();
    }

    async fn connect(&mut self, to: SocketAddr) -> Result<(u32, u32, u32), ErrorCode> {
        let family = if to.is_ipv4() { IpAddressFamily::Ipv4 } else { IpAddressFamily::Ipv6 };
        let socket = code(self.wasi.create_tcp_socket(family))?.rep();
        let network = self.network();
        code(self.wasi.start_connect(
            Resource::new_borrow(socket),
            network,
            IpSocketAddress::from(to),
        ))?;
        self.wait(socket).await;
        let (input, output) = code(self.wasi.finish_connect(Resource::new_borrow(socket)))?;
        Ok((socket, input.rep(), output.rep()))
    }

    async fn look_up(&mut self, name: &str) -> Result<Vec<String>, ErrorCode> {
        let network = self.network();
        let stream = code(self.wasi.resolve_addresses(network, name.to_owned()))?.rep();
        let pollable =
            HostResolveAddressStream::subscribe(&mut self.wasi, Resource::new_borrow(stream))
                .unwrap()
                .rep();
        self.wasi.table.block(Resource::new_borrow(pollable)).await.unwrap();
        let mut all = Vec::new();
        while let Some(address) =
            code(self.wasi.resolve_next_address(Resource::new_borrow(stream)))?
        {
            all.push(format!("{address:?}"));
        }
        Ok(all)
    }
}

fn code<T>(result: SocketResult<T>) -> Result<T, ErrorCode> {
    result.map_err(|error| error.downcast().expect("an error code, not a trap"))
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn without_a_grant_there_is_no_network() {
    let mut guest = Guest::new(&[]);
    assert_eq!(guest.connect("127.0.0.1:80".parse().unwrap()).await, Err(ErrorCode::AccessDenied));
    assert_eq!(guest.look_up("local.test").await, Err(ErrorCode::AccessDenied));
    let udp = guest.wasi.no_sockets().create_udp_socket(IpAddressFamily::Ipv4).await;
    assert_eq!(code(udp).err(), Some(ErrorCode::AccessDenied));
    assert_eq!(guest.gate.denials().len(), 2);
}

#[tokio::test]
async fn a_looked_up_address_can_be_connected_to_and_no_other() {
    let (listener, address) = listener().await;
    let mut guest = Guest::new(&[("local.test", Some(address.port()), Addresses::Any)]);
    assert_eq!(
        guest.connect(address).await,
        Err(ErrorCode::AccessDenied),
        "it was not looked up yet"
    );
    assert_eq!(guest.look_up("local.test").await.unwrap().len(), 2);
    assert_eq!(guest.look_up("other.test").await, Err(ErrorCode::AccessDenied));
    assert_eq!(guest.look_up("not a name").await, Err(ErrorCode::InvalidArgument));
    let accepted = tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        peer.write_all(b"welcome").await.unwrap();
        peer.read_to_end(&mut heard).await.unwrap();
        heard
    });
    let (socket, input, output) = guest.connect(address).await.unwrap();
    let s = || Resource::<TcpSocket>::new_borrow(socket);
    let w = &mut guest.wasi;
    assert_eq!(w.blocking_read(Resource::new_borrow(input), 100).await.unwrap(), b"welcome");
    w.blocking_write_and_flush(Resource::new_borrow(output), b"thanks".to_vec()).await.unwrap();
    code(w.set_hop_limit(s(), 12)).unwrap();
    assert_eq!(code(w.hop_limit(s())).unwrap(), 12);
    code(w.set_receive_buffer_size(s(), u64::MAX)).unwrap();
    assert!(code(w.receive_buffer_size(s())).unwrap() <= 1 << 20);
    code(w.set_keep_alive_enabled(s(), true)).unwrap();
    code(w.set_keep_alive_idle_time(s(), 1)).unwrap();
    assert_eq!(code(w.keep_alive_idle_time(s())).unwrap(), 1_000_000_000);
    assert_eq!(code(w.set_keep_alive_count(s(), 0)), Err(ErrorCode::InvalidArgument));
    assert_eq!(SocketAddr::from(code(w.remote_address(s())).unwrap()), address);
    let unspecified = SocketAddr::from(code(w.local_address(s())).unwrap());
    assert!(unspecified.ip().is_unspecified());
    HostOutputStream::drop(w, Resource::new_own(output)).await.unwrap();
    assert_eq!(accepted.await.unwrap(), b"thanks");
    let ended = w.blocking_read(Resource::new_borrow(input), 1).await;
    assert!(matches!(ended, Err(StreamError::Closed)));
    HostInputStream::drop(w, Resource::new_own(input)).await.unwrap();
    HostTcpSocket::drop(w, Resource::new_own(socket)).unwrap();
    assert_eq!(guest.gate.files.available_permits(), 63, "the refused one is still the guest's");
}

#[tokio::test]
async fn much_is_sent_while_the_guest_waits_for_the_answer() {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut heard = vec![0; 16 << 20];
        peer.read_exact(&mut heard).await.unwrap();
        peer.write_all(b"got it").await.unwrap();
    });
    let mut guest = Guest::new(&[("127.0.0.1", None, Addresses::Any)]);
    let (_socket, input, output) = guest.connect(address).await.unwrap();
    let o = || Resource::new_borrow(output);
    let mut left = 16 << 20;
    while left > 0 {
        let permit = HostOutputStream::check_write(&mut guest.wasi, o()).unwrap() as usize;
        let some = permit.min(left);
        if some == 0 {
            let pollable = HostOutputStream::subscribe(&mut guest.wasi, o()).unwrap().rep();
            guest.wasi.table.block(Resource::new_borrow(pollable)).await.unwrap();
            continue;
        }
        HostOutputStream::write(&mut guest.wasi, o(), vec![b'.'; some]).unwrap();
        left -= some;
    }
    // No flush: the rest goes out because the guest waits on the same connection.
    assert_eq!(
        guest.wasi.blocking_read(Resource::new_borrow(input), 100).await.unwrap(),
        b"got it"
    );
}

#[tokio::test]
async fn nobody_connects_to_a_guest() {
    let mut guest = Guest::new(&[("*", None, Addresses::Any)]);
    let socket = code(guest.wasi.create_tcp_socket(IpAddressFamily::Ipv4)).unwrap().rep();
    let s = || Resource::<TcpSocket>::new_borrow(socket);
    let network = guest.network();
    let any = IpSocketAddress::from("127.0.0.1:0".parse::<SocketAddr>().unwrap());
    assert_eq!(code(guest.wasi.start_bind(s(), network, any).await), Err(ErrorCode::AccessDenied));
    assert_eq!(code(guest.wasi.start_listen(s()).await), Err(ErrorCode::AccessDenied));
    assert_eq!(code(guest.wasi.finish_listen(s())), Err(ErrorCode::NotInProgress));
    assert!(!guest.wasi.is_listening(s()).unwrap());
}

#[tokio::test]
async fn connecting_fails_with_codes() {
    let (listener, address) = listener().await;
    drop(listener);
    let mut guest = Guest::new(&[("*", None, Addresses::Any)]);
    assert_eq!(guest.connect(address).await, Err(ErrorCode::ConnectionRefused));
    for wrong in ["127.0.0.1:0", "0.0.0.0:80", "224.0.0.1:80", "[::ffff:127.0.0.1]:80", "[::]:80"] {
        assert_eq!(
            guest.connect(wrong.parse().unwrap()).await,
            Err(ErrorCode::InvalidArgument),
            "{wrong}"
        );
    }
    let mut public = Guest::new(&[("*", None, Addresses::Public)]);
    for private in ["127.0.0.1:80", "10.0.0.1:80", "169.254.169.254:80", "[::1]:80", "[fe80::1]:80"]
    {
        assert_eq!(
            public.connect(private.parse().unwrap()).await,
            Err(ErrorCode::AccessDenied),
            "{private}"
        );
    }
    assert_eq!(public.look_up("local.test").await, Err(ErrorCode::AccessDenied));
}

#[tokio::test]
async fn sockets_take_places_for_open_files() {
    let mut guest = Guest::new(&[("*", None, Addresses::Any)]);
    let _others = guest.gate.files.clone().acquire_many_owned(63).await.unwrap();
    code(guest.wasi.create_tcp_socket(IpAddressFamily::Ipv6)).unwrap();
    let full = guest.wasi.create_tcp_socket(IpAddressFamily::Ipv4);
    assert_eq!(code(full).err(), Some(ErrorCode::NewSocketLimit));
}
