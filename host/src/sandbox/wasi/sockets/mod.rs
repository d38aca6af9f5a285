//! `wasi:sockets`: name lookups and TCP connections to what is granted. Binding and listening answer `access-denied`; so does UDP,
//! which is linked from wasmtime-wasi with nothing allowed.
//!
//! ```text
//!   create-tcp-socket ─▶ Fresh ─ start-connect ─▶ Connecting ─ finish-connect ─▶ Connected ─▶ two streams
//!                                      │ not granted: access-denied     └─ refused, too late ─▶ Failed
//! ```
//!
//! No task stands behind a connection: what a guest wrote and the kernel did not take yet is sent whenever the guest waits on
//! either stream, and is gone when the guest is.

mod connection;
mod lookup;
mod options;
mod tcp;
#[cfg(test)]
mod tests;

use rustix::io::Errno;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::SocketError;
use wasmtime_wasi::p2::bindings::sockets::{instance_network, network};

use super::network::Refusal;
use super::state::WasiState;
use network::{ErrorCode, Network};

/// The handle that stands for the network. Holding one allows nothing.
struct NetworkHandle;

impl instance_network::Host for WasiState {
    fn instance_network(&mut self) -> wasmtime::Result<Resource<Network>> {
        Ok(Resource::new_own(self.table.push(NetworkHandle)?.rep()))
    }
}

impl network::Host for WasiState {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn network_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(self.table.get(&error)?.downcast_ref::<std::io::Error>().map(code))
    }
}

impl network::HostNetwork for WasiState {
    fn drop(&mut self, network: Resource<Network>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<NetworkHandle>::new_own(network.rep()))?;
        Ok(())
    }
}

impl From<Refusal> for ErrorCode {
    fn from(refusal: Refusal) -> ErrorCode {
        match refusal {
            Refusal::NotGranted | Refusal::NotPublic => ErrorCode::AccessDenied,
            Refusal::Unknown => ErrorCode::NameUnresolvable,
            Refusal::Timeout => ErrorCode::TemporaryResolverFailure,
        }
    }
}

/// The error code for an error of the operating system.
fn code(error: &std::io::Error) -> ErrorCode {
    if error.kind() == std::io::ErrorKind::TimedOut {
        return ErrorCode::Timeout;
    }
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => ErrorCode::AccessDenied,
        Some(Errno::AGAIN | Errno::INTR) => ErrorCode::WouldBlock,
        Some(Errno::ADDRNOTAVAIL) => ErrorCode::AddressNotBindable,
        Some(Errno::CONNABORTED) => ErrorCode::ConnectionAborted,
        Some(Errno::CONNREFUSED) => ErrorCode::ConnectionRefused,
        Some(Errno::CONNRESET | Errno::PIPE) => ErrorCode::ConnectionReset,
        Some(Errno::HOSTDOWN | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::NETUNREACH) => {
            ErrorCode::RemoteUnreachable
        }
        Some(Errno::INVAL) => ErrorCode::InvalidArgument,
        Some(Errno::MFILE | Errno::NFILE) => ErrorCode::NewSocketLimit,
        Some(Errno::NOBUFS | Errno::NOMEM) => ErrorCode::OutOfMemory,
        Some(Errno::NOTCONN | Errno::ISCONN) => ErrorCode::InvalidState,
        Some(Errno::AFNOSUPPORT | Errno::NOPROTOOPT | Errno::OPNOTSUPP) => ErrorCode::NotSupported,
        Some(_) | None => ErrorCode::Unknown,
    }
}
