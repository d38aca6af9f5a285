//! `wasi:sockets/ip-name-lookup`: granted names only, and only those of their addresses that the grant admits.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::{self, ResolveAddressStream};
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddress, Network};
use wasmtime_wasi::p2::{SocketError, SocketResult};
use wasmtime_wasi_io::async_trait;
use wasmtime_wasi_io::poll::{DynPollable, Pollable, subscribe};

use super::super::gate::Task;
use super::super::network::{Host, Refusal};
use super::super::state::WasiState;
use super::NetworkHandle;

/// A lookup and what it found.
enum Lookup {
    /// On its way. Dropping it abandons the lookup.
    Pending(Task<Result<Vec<std::net::IpAddr>, Refusal>>),
    /// Here; what the guest has not fetched yet.
    Found(std::vec::IntoIter<std::net::IpAddr>),
    /// It failed. Said again as often as the guest asks.
    Failed(Refusal),
}

#[async_trait]
impl Pollable for Lookup {
    async fn ready(&mut self) {
        if let Lookup::Pending(lookup) = self {
            *self = match lookup.await {
                Ok(found) => Lookup::Found(found.into_iter()),
                Err(refusal) => Lookup::Failed(refusal),
            };
        }
    }
}

fn ours(theirs: &Resource<ResolveAddressStream>) -> Resource<Lookup> {
    Resource::new_borrow(theirs.rep())
}

impl ip_name_lookup::Host for WasiState {
    fn resolve_addresses(
        &mut self,
        network: Resource<Network>,
        name: String,
    ) -> SocketResult<Resource<ResolveAddressStream>> {
        self.gate.charge(name.len()).map_err(SocketError::trap)?;
        self.table.get(&Resource::<NetworkHandle>::new_borrow(network.rep()))?;
        let Some(network) = self.network().cloned() else {
            self.gate.denied(&format!("network: a lookup of {name:?}: no network is granted"));
            return Err(ErrorCode::AccessDenied.into());
        };
        let host = Host::parse(&name).ok_or(ErrorCode::InvalidArgument)?;
        let lookup = Lookup::Pending(Box::pin(async move { network.look_up(&host).await }));
        Ok(Resource::new_own(self.table.push(lookup)?.rep()))
    }
}

impl ip_name_lookup::HostResolveAddressStream for WasiState {
    fn resolve_next_address(
        &mut self,
        stream: Resource<ResolveAddressStream>,
    ) -> SocketResult<Option<IpAddress>> {
        let lookup = self.table.get_mut(&ours(&stream))?;
        // A guest that only asks, without waiting on the pollable, must get ahead too.
        wasmtime_wasi::runtime::poll_noop(std::pin::pin!(lookup.ready()));
        match lookup {
            Lookup::Pending(_) => Err(ErrorCode::WouldBlock.into()),
            Lookup::Found(rest) => Ok(rest.next().map(IpAddress::from)),
            Lookup::Failed(refusal) => Err(SocketError::from(ErrorCode::from(*refusal))),
        }
    }

    fn subscribe(
        &mut self,
        stream: Resource<ResolveAddressStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(&mut self.table, ours(&stream))
    }

    fn drop(&mut self, stream: Resource<ResolveAddressStream>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Lookup>::new_own(stream.rep()))?;
        Ok(())
    }
}
