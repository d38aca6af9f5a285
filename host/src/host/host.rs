//! The host itself.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::builder::{Compilation, HostBuilder};
use super::guard::Guards;
use super::open::SessionBuilder;
use crate::delegation::{Slots, SlotsUsed};
use crate::ids::SessionId;
use crate::model::Models;
use crate::plugin::{Catalogue, Configuration, Name};
use crate::sandbox::Sandbox;
use crate::session::Checkpoints;
use crate::tool::Environment;
use crate::work::{Drained, Grace, Left, Stop, Tree, Work};

/// A host of agents and tools. Cheap to clone; every clone is the same host.
///
/// Handles own nothing that runs: dropping every one of them, of the host and of its sessions, stops nothing. Call
/// [`Host::shutdown`] before letting go of the last, and what it answers says whether something is left.
#[derive(Clone)]
pub struct Host {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) tree: Tree,
    pub(super) root: Work,
    pub(super) sandbox: Sandbox,
    pub(super) configuration: Configuration,
    pub(super) catalogue: Catalogue,
    /// The plugins that the operator named on the command line or in code.
    pub(super) named: BTreeSet<Name>,
    pub(super) models: Models,
    pub(super) environment: Environment,
    pub(super) guards: Guards,
    /// Places for reads of components, each of which holds a thread and a component.
    pub(super) reads: Arc<Semaphore>,
    pub(super) checkpoints: Arc<dyn Checkpoints>,
    pub(super) grace: Grace,
    pub(super) slots: Slots,
    pub(super) sessions: AtomicU64,
}

impl Host {
    /// Begins to make a host. Where components are compiled has no default, because it decides whether a hostile
    /// component can hold the process.
    pub fn builder(compilation: Compilation) -> HostBuilder {
        HostBuilder::new(compilation)
    }

    /// Begins to open a session with an agent: the name of a plugin.
    pub fn session(&self, agent: impl Into<String>) -> SessionBuilder {
        SessionBuilder::new(self.clone(), agent.into())
    }

    /// All running work.
    pub fn tree(&self) -> &Tree {
        &self.inner.tree
    }

    /// The plugins that this host knows.
    pub fn catalogue(&self) -> &Catalogue {
        &self.inner.catalogue
    }

    /// What the operator configured.
    pub fn configuration(&self) -> &Configuration {
        &self.inner.configuration
    }

    /// The models that can be asked.
    pub fn models(&self) -> &Models {
        &self.inner.models
    }

    /// The sandbox, for an embedder that runs components without sessions.
    pub fn sandbox(&self) -> &Sandbox {
        &self.inner.sandbox
    }

    /// How long a soft stop stays soft, as configured.
    pub fn grace(&self) -> Grace {
        self.inner.grace
    }

    /// How much of the capacity for background work is taken.
    pub fn slots(&self) -> SlotsUsed {
        self.inner.slots.used()
    }

    /// Takes no new work, stops hard what is there, and waits until nothing is left.
    ///
    /// # Errors
    ///
    /// [`Left`] when the bound has passed with work alive. It stays in the tree, and the host stays as it is:
    /// call again to go on waiting.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was stopped stays stopped.
    pub async fn shutdown(&self, reason: &str, bound: Duration) -> Result<Drained, Left> {
        let root = &self.inner.root;
        self.inner.slots.close(reason);
        root.close(reason);
        root.stop_children(&Stop::hard("host", reason));
        root.drain(reason, bound).await
    }

    pub(super) fn next_session(&self) -> SessionId {
        let number = self.inner.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        SessionId::new(format!("s{number}"))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("sandbox", &self.inner.sandbox).finish_non_exhaustive()
    }
}
