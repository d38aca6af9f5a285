//! What routes work with.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::closing::Closing;
use super::figures::Figures;
use super::problem::Problem;
use super::routes;
use super::served::{Listed, Reconciled, Served};
use crate::host::{Host, Profile};
use crate::ids::SessionId;
use crate::profile::Tickets;
use crate::session::Session;
use crate::work::Kind;

/// Silence on a stream of events after which a comment shows that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Sessions that are exported or imported at one time.
const TRANSFERS: usize = 2;

/// What routes work with. Cheap to clone; every clone is the same.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    host: Host,
    served: Arc<dyn Served>,
    closing: Closing,
    shutdown: Arc<dyn Fn(ShutdownRequest) + Send + Sync>,
    /// Those that start something.
    requests: Arc<Semaphore>,
    /// Those that read something.
    reads: Arc<Semaphore>,
    /// Places for sessions on their way out or in, each of which is in memory as a whole.
    transfers: Arc<Semaphore>,
    body_bytes: usize,
    import_bytes: usize,
    body_time: Duration,
    keep_alive: Duration,
    figures: Figures,
}

/// Somebody wants the host to shut down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownRequest {
    /// Who.
    pub issuer: Arc<str>,
    /// In which words.
    pub reason: String,
    /// Whether what runs is stopped hard without a drain.
    pub at_once: bool,
}

/// Makes an [`App`].
#[must_use]
pub struct AppBuilder {
    inner: Inner,
}

impl App {
    /// Bytes of a body, where nothing else is said.
    pub const BODY_BYTES: usize = 1 << 20;

    /// Bytes of a session that is sent to be read in, where nothing else is said.
    pub const IMPORT_BYTES: usize = 256 << 20;

    /// How long a body may take, where nothing else is said.
    pub const BODY_TIME: Duration = Duration::from_secs(30);

    /// Requests that read or start something, at one time, where nothing else is said.
    pub const REQUESTS: usize = 256;

    /// Begins to make one. Without [`AppBuilder::on_shutdown`] a request to shut down does nothing.
    pub fn builder(host: Host, served: Arc<dyn Served>, closing: Closing) -> AppBuilder {
        AppBuilder {
            inner: Inner {
                host,
                served,
                closing,
                shutdown: Arc::new(|_| {}),
                requests: Arc::new(Semaphore::new(App::REQUESTS)),
                reads: Arc::new(Semaphore::new(App::REQUESTS)),
                transfers: Arc::new(Semaphore::new(TRANSFERS)),
                body_bytes: App::BODY_BYTES,
                import_bytes: App::IMPORT_BYTES,
                body_time: App::BODY_TIME,
                keep_alive: KEEP_ALIVE,
                figures: Figures::new(&routes::all()),
            },
        }
    }

    pub(super) fn host(&self) -> &Host {
        &self.inner.host
    }

    pub(super) fn closing(&self) -> &Closing {
        &self.inner.closing
    }

    pub(super) fn requests(&self) -> &Arc<Semaphore> {
        &self.inner.requests
    }

    pub(super) fn reads(&self) -> &Arc<Semaphore> {
        &self.inner.reads
    }

    pub(super) fn transfers(&self) -> &Arc<Semaphore> {
        &self.inner.transfers
    }

    pub(super) fn import_bytes(&self) -> usize {
        self.inner.import_bytes
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.inner.body_bytes
    }

    pub(super) fn body_time(&self) -> Duration {
        self.inner.body_time
    }

    pub(super) fn keep_alive(&self) -> Duration {
        self.inner.keep_alive
    }

    pub(super) fn figures(&self) -> &Figures {
        &self.inner.figures
    }

    /// All figures there are: the host's, its profiles' and those of the API.
    pub(super) fn metrics(&self) -> String {
        let live: BTreeSet<Arc<str>> = {
            let tree = self.host().tree().snapshot(self.host().tree().root());
            let profiles = tree.into_iter().filter(|node| node.kind == Kind::Profile);
            profiles.map(|node| node.label).collect()
        };
        // One that is being retired is in the tree, and is no parked one.
        let parked = self
            .profiles()
            .into_iter()
            .filter(|listed| listed.state.is_err() && !live.contains(listed.name.as_str()));
        let mut page = self.host().figures(parked.count() as u64);
        self.figures().write(&mut page);
        page.finish()
    }

    pub(super) fn shut_down(&self, request: ShutdownRequest) {
        (self.inner.shutdown)(request);
    }

    pub(super) fn profiles(&self) -> Vec<Listed> {
        self.inner.served.list()
    }

    /// Waits, within the bound, until all that has happened is recorded, and says in which profiles something is not.
    pub(super) async fn recorded(&self, bound: Duration) -> Vec<String> {
        // What is not recorded by then is told.
        tokio::time::timeout(bound, self.inner.served.recorded()).await.ok();
        self.inner.served.unrecorded()
    }

    pub(super) async fn reconcile(&self) -> Reconciled {
        self.inner.served.reconcile().await
    }

    pub(super) fn profile(&self, name: &str) -> Result<Profile, Problem> {
        Ok(self.inner.served.get(name)?)
    }

    pub(super) fn tickets(&self, profile: &str) -> Result<Arc<Tickets>, Problem> {
        Ok(self.inner.served.tickets(profile)?)
    }

    pub(super) async fn session(&self, profile: &str, id: &str) -> Result<Session, Problem> {
        Ok(self.profile(profile)?.session(&SessionId::new(id)).await?)
    }
}

impl AppBuilder {
    /// Who hears of requests to shut down. It must not wait.
    pub fn on_shutdown(
        mut self,
        shutdown: impl Fn(ShutdownRequest) + Send + Sync + 'static,
    ) -> Self {
        self.inner.shutdown = Arc::new(shutdown);
        self
    }

    /// The most bytes of a body.
    pub fn body_bytes(mut self, bytes: usize) -> Self {
        self.inner.body_bytes = bytes;
        self
    }

    /// The most bytes of a session that is sent to be read in.
    pub fn import_bytes(mut self, bytes: usize) -> Self {
        self.inner.import_bytes = bytes;
        self
    }

    /// How long a body may take.
    pub fn body_time(mut self, time: Duration) -> Self {
        self.inner.body_time = time;
        self
    }

    /// How many requests that start something are worked on at one time, and as many again that read something. Stops and what operators ask are not
    /// counted.
    pub fn requests(mut self, most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        self.inner.requests = Arc::new(Semaphore::new(most));
        self.inner.reads = Arc::new(Semaphore::new(most));
        self
    }

    /// How long a stream of events may be silent before a comment shows that it lives.
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.inner.keep_alive = time;
        self
    }

    /// Makes it.
    pub fn build(self) -> App {
        App { inner: Arc::new(self.inner) }
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("host", &self.inner.host).finish_non_exhaustive()
    }
}

impl fmt::Debug for AppBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppBuilder").field("host", &self.inner.host).finish_non_exhaustive()
    }
}
