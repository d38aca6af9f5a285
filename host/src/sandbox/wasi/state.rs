//! What the WASI interfaces keep for one run, and what all runs share of the way out.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use tokio::sync::Semaphore;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::clocks::{WasiClocksCtx, WasiClocksCtxView};
use wasmtime_wasi::random::WasiRandomCtx;
use wasmtime_wasi::sockets::{WasiSocketsCtx, WasiSocketsCtxView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView};

use super::cli::Output;
use super::filesystem::{Directories, ReachError};
use super::gate::{FilePermit, Gate, in_pool};
use super::http::{self, HttpLimits};
use super::network::{Network, Resolver, SystemResolver};
use crate::sandbox::reach::Reach;

/// Entries of the resource table of one run. The store's own limit on handles is reached first; this one bounds what hangs on them.
const RESOURCES: usize = 16_384;

/// The WASI side of one run. Dropping it closes and ends everything that the guest had opened.
pub(crate) struct WasiState {
    pub(super) table: ResourceTable,
    pub(super) gate: Arc<dyn Gate>,
    pub(super) reach: Arc<Reach>,
    pub(super) directories: Directories,
    outside: Arc<Outside>,
    /// Made when the guest first asks for the network; stays none while nothing is granted.
    network: Option<Arc<Network>>,
    /// Made when the guest first asks for its standard output, and for its standard error.
    pub(super) output: [Option<Output>; 2],
    /// Made when the guest first asks for the time.
    clocks: Option<WasiClocksCtx>,
    /// Made when the guest first asks for random numbers.
    random: Option<Box<WasiRandomCtx>>,
    /// Made when the guest first tries UDP. Allows nothing.
    no_sockets: Option<WasiSocketsCtx>,
    /// Made at the first body of a request.
    bodies: Option<Arc<Semaphore>>,
    http: WasiHttpCtx,
    hooks: http::Hooks,
}

impl WasiState {
    /// The state of a run whose directories are open already. Costs next to nothing.
    pub(crate) fn new(
        reach: Arc<Reach>,
        directories: Directories,
        gate: Arc<dyn Gate>,
        outside: Arc<Outside>,
    ) -> WasiState {
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(http::FIELDS_BYTES);
        WasiState {
            table,
            gate,
            reach,
            directories,
            outside,
            network: None,
            output: [None, None],
            clocks: None,
            random: None,
            no_sockets: None,
            bodies: None,
            http,
            hooks: http::Hooks,
        }
    }

    /// The state of a run; opens what is granted on the gate's pool. Ready at once when no directory is granted.
    ///
    /// # Errors
    /// A granted directory cannot be opened. The error names it.
    pub(crate) async fn open(
        reach: Arc<Reach>,
        gate: Arc<dyn Gate>,
        outside: Arc<Outside>,
    ) -> Result<WasiState, ReachError> {
        let directories = if reach.directories.is_empty() {
            Directories::default()
        } else {
            let wanted = reach.clone();
            let opened = in_pool(&gate, "opens the granted directories", move || {
                Ok(Directories::open(&wanted))
            })
            .await;
            opened.map_err(ReachError::Ended)??
        };
        Ok(WasiState::new(reach, directories, gate, outside))
    }

    /// Hands over what the guest printed without ending the line. For the orderly end of a run: what is left when the state is
    /// dropped is lost.
    ///
    /// # Errors
    /// The budget for log text is used up.
    pub(crate) fn flush_output(&mut self) -> wasmtime::Result<()> {
        self.output.iter_mut().flatten().try_for_each(|output| output.flush())
    }

    pub(super) fn clocks(&mut self) -> WasiClocksCtxView<'_> {
        WasiClocksCtxView { ctx: self.clocks.get_or_insert_default(), table: &mut self.table }
    }

    pub(super) fn random(&mut self) -> &mut WasiRandomCtx {
        self.random.get_or_insert_default()
    }

    pub(super) fn no_sockets(&mut self) -> WasiSocketsCtxView<'_> {
        WasiSocketsCtxView { ctx: self.no_sockets.get_or_insert_default(), table: &mut self.table }
    }

    pub(super) fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.hooks, table: &mut self.table, ctx: &mut self.http }
    }

    /// The run's network; none when nothing of it is granted.
    pub(super) fn network(&mut self) -> Option<&Arc<Network>> {
        if self.reach.network.is_empty() {
            return None;
        }
        let make =
            || Arc::new(Network::new(self.reach.clone(), self.gate.clone(), self.outside.clone()));
        Some(self.network.get_or_insert_with(make))
    }

    /// Places for bodies of requests, each held for as long as bytes may wait in it.
    pub(super) fn bodies(&mut self) -> &Arc<Semaphore> {
        self.bodies.get_or_insert_with(|| Arc::new(Semaphore::new(http::BODIES)))
    }

    pub(super) fn permit(&self) -> Option<FilePermit> {
        self.gate.open_file()
    }
}

impl std::fmt::Debug for WasiState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasiState").field("reach", &self.reach).finish_non_exhaustive()
    }
}

/// What all runs share of the way out: how names are looked up, which certificates are believed, how long is waited.
pub(crate) struct Outside {
    resolver: Arc<dyn Resolver>,
    tls: tokio_rustls::TlsConnector,
    limits: HttpLimits,
}

impl Outside {
    /// The operating system's resolver, the roots that browsers believe in, the usual limits.
    ///
    /// # Errors
    /// The TLS library refuses its own defaults.
    pub(crate) fn new() -> Result<Outside, rustls::Error> {
        let tls = http::connector([])?;
        Ok(Outside { resolver: Arc::new(SystemResolver), tls, limits: HttpLimits::default() })
    }

    /// Looks names up through another resolver.
    #[must_use]
    pub(crate) fn with_resolver(self, resolver: Arc<dyn Resolver>) -> Outside {
        Outside { resolver, ..self }
    }

    /// Waits and reads within other limits.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn with_limits(self, limits: HttpLimits) -> Outside {
        Outside { limits, ..self }
    }

    /// Believes these certificates too.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub(crate) fn with_roots(
        self,
        roots: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Outside, rustls::Error> {
        Ok(Outside { tls: http::connector(roots)?, ..self })
    }

    pub(super) fn resolver(&self) -> &dyn Resolver {
        &*self.resolver
    }

    pub(super) fn tls(&self) -> &tokio_rustls::TlsConnector {
        &self.tls
    }

    pub(super) fn limits(&self) -> &HttpLimits {
        &self.limits
    }
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside").field("limits", &self.limits).finish_non_exhaustive()
    }
}
