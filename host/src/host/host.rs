//! The host itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::builder::{Compilation, HostBuilder};
use super::figures::Read;
use super::open::{Place, SessionBuilder};
use super::schedules::Clock;
use super::setting::{Given, Setting};
use crate::delegation::{Admitted, Recorder, Slots, SlotsUsed};
use crate::model::Models;
use crate::plugin::{Catalogue, Configuration};
use crate::sandbox::Sandbox;
use crate::session::Checkpoints;
use crate::tool::Environment;
use crate::work::shutdown::{Bounds, Shutdown, Steps};
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
    pub(super) root: Arc<Work>,
    pub(super) sandbox: Sandbox,
    /// What decides about sessions outside a profile.
    pub(super) own: Arc<Setting>,
    /// What the settings of profiles have in common, without a configuration.
    pub(super) pattern: Given,
    pub(super) environment: Environment,
    /// Places for reads of components, each of which holds a thread and a component.
    pub(super) reads: Arc<Semaphore>,
    pub(super) checkpoints: Arc<dyn Checkpoints>,
    /// What scheduled runs go by.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) slots: Slots,
    pub(super) recorder: Arc<dyn Recorder>,
    pub(super) sessions: AtomicU64,
    pub(super) read: Read,
}

impl Host {
    /// Begins to make a host. Where components are compiled has no default, because it decides whether a hostile
    /// component can hold the process.
    pub fn builder(compilation: Compilation) -> HostBuilder {
        HostBuilder::new(compilation)
    }

    /// Begins to open a session with an agent: the name of a plugin.
    pub fn session(&self, agent: impl Into<String>) -> SessionBuilder {
        let setting = Arc::clone(&self.inner.own);
        let place = Place { setting, node: Arc::clone(&self.inner.root), home: None };
        SessionBuilder::new(self.clone(), place, agent.into())
    }

    /// All running work.
    pub fn tree(&self) -> &Tree {
        &self.inner.tree
    }

    /// The plugins that this host knows.
    pub fn catalogue(&self) -> &Catalogue {
        &self.inner.own.catalogue
    }

    /// What the operator configured.
    pub fn configuration(&self) -> &Configuration {
        &self.inner.own.configuration
    }

    /// The models that can be asked.
    pub fn models(&self) -> &Models {
        &self.inner.own.models
    }

    /// What was let in of runs that begin by the clock, and what was not.
    pub(super) fn schedule_figures(&self) -> &Admitted {
        &self.inner.slots.figures().schedules
    }

    /// The sandbox, for an embedder that runs components without sessions.
    pub fn sandbox(&self) -> &Sandbox {
        &self.inner.sandbox
    }

    /// How long a soft stop stays soft, as configured.
    pub fn grace(&self) -> Grace {
        self.inner.own.grace
    }

    /// How much of the capacity for background work is taken.
    pub fn slots(&self) -> SlotsUsed {
        self.inner.slots.used()
    }

    /// Takes no new work from now on, and waits until nothing is left. It stops nothing.
    ///
    /// # Errors
    ///
    /// [`Left`] when the bound has passed with work alive.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the host stays closed for new work.
    pub async fn drain(&self, reason: &str, bound: Duration) -> Result<Drained, Left> {
        self.inner.slots.close(reason);
        self.inner.root.drain(reason, bound).await
    }

    /// Why it takes no new work, when it takes none.
    pub fn closed(&self) -> Option<Arc<str>> {
        self.inner.root.closed()
    }

    /// Its node, which outlives whatever it is shared with.
    pub(crate) fn node(&self) -> &Work {
        &self.inner.root
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

    /// A shutdown of this host in steps, which nobody has asked for yet. Make one and keep it: requests of one shutdown
    /// join, those of two do not.
    pub fn shutdown_in_steps(&self, bounds: Bounds, steps: Steps) -> Shutdown {
        let root = self.inner.root.share();
        Shutdown::new(self.inner.sandbox.control().clone(), root, bounds, steps)
    }

    pub(super) fn next_session(&self) -> u64 {
        self.inner.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("sandbox", &self.inner.sandbox).finish_non_exhaustive()
    }
}
