//! Opening a session: from the name of an agent to something that can be prompted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::host::Host;
use super::library::Library;
use super::loaded::Loaded;
use super::setting::Setting;
use crate::error::{Error, ErrorKind};
use crate::ids::SessionId;
use crate::plugin::{
    Catalogue, Decision, Effective, Given, Kind, Pattern, Patterns, Plugin, Source, Standing,
    decide,
};
use crate::sandbox::{AgentCode, Directory, Isolation, Limits, Reach, Share};
use crate::session::{Agent, Background, Delivery, Parts, Restored, Session};
use crate::store::{self, Change, Memory, Retention, Store};
use crate::tool::{LogSink, Plugged, ToolPlugin, Toolbox};
use crate::work::{self, Work};

/// Where a session is opened.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) setting: Arc<Setting>,
    /// Owns the session's node.
    pub(super) node: Arc<Work>,
    /// The profile that the session belongs to; none for one that is over with the process.
    pub(super) home: Option<Home>,
}

/// Where the sessions of a profile are kept.
#[derive(Clone)]
pub(super) struct Home {
    /// The name of the profile.
    pub(super) profile: Arc<str>,
    pub(super) store: Arc<dyn Store>,
    /// The number of the next session.
    pub(super) numbers: Arc<AtomicU64>,
    /// Agents that are loaded, for all sessions of the profile.
    pub(super) loaded: Arc<Loaded>,
}

/// Opens a session. What is not said is not granted.
///
/// A session that was opened goes on without its handles: it ends with [`Host::shutdown`].
#[must_use]
#[derive(Clone)]
pub struct SessionBuilder {
    host: Host,
    place: Place,
    agent: String,
    directories: Vec<Directory>,
    /// Where log lines go, if not to `tracing`.
    log: Option<LogSink>,
    share: Share,
    delivery: Delivery,
}

impl SessionBuilder {
    pub(super) fn new(host: Host, place: Place, agent: String) -> SessionBuilder {
        let (share, delivery) = (host.sandbox().share(), Delivery::default());
        let (directories, log) = (Vec::new(), None);
        SessionBuilder { host, place, agent, directories, log, share, delivery }
    }

    /// Gives a directory to the plugins that the operator named, and to the first-party ones, as far as they ask
    /// for it.
    pub fn directory(mut self, directory: Directory) -> Self {
        self.directories.push(directory);
        self
    }

    /// Takes the log lines of plugins: level, plugin, line. Without it they go to `tracing`.
    ///
    /// It is called by the run that writes the line, while that has a processor: a stop of the run waits for it to return,
    /// and so does every guest that is to run on that thread. It should put the line somewhere and not wait for anything.
    pub fn log(mut self, sink: impl Fn(&str, &str, &str) + Send + Sync + 'static) -> Self {
        self.log = Some(Arc::new(sink));
        self
    }

    /// Says what becomes of the results of background units. Without it each comes as a turn of its own.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Loads the agent and its tools, and opens the session. In a profile it is recorded first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when there is no such agent, [`ErrorKind::Component`] when the agent cannot be
    /// loaded, [`ErrorKind::Refused`] when the host takes no new work, [`ErrorKind::Store`] when the session cannot be
    /// recorded. A tool plugin that cannot be used is left out, with a warning that says why.
    pub async fn open(self) -> Result<Session, Error> {
        let id = self.next_name();
        self.open_as(id).await
    }

    /// A name that no other session has.
    pub(super) fn next_name(&self) -> SessionId {
        let number = match &self.place.home {
            Some(home) => home.numbers.fetch_add(1, Ordering::Relaxed),
            None => self.host.next_session(),
        };
        SessionId::new(format!("s{number}"))
    }

    /// Opens a new session of that name.
    pub(super) async fn open_as(self, id: SessionId) -> Result<Session, Error> {
        let work = self.node(&id)?;
        let agent = self.agent(&work).await?;
        let store = match &self.place.home {
            Some(home) => Arc::clone(&home.store),
            None => Arc::new(Memory::new(Retention::memory())) as Arc<dyn Store>,
        };
        let settings = serde_json::json!({ "delivery": self.delivery }).to_string();
        let created = Change::Created { agent: self.agent.clone(), settings: settings.into() };
        store::record(&*store, id.clone(), vec![created]).await.map_err(|error| {
            Error::because(ErrorKind::Store, "could not record a new session", error)
        })?;
        self.assemble(id, work, agent, store, Restored::default())
    }

    /// Opens a session again that a store has.
    pub(super) async fn reopen(
        self,
        id: SessionId,
        store: Arc<dyn Store>,
    ) -> Result<Session, Error> {
        let work = self.node(&id)?;
        let agent = self.agent(&work).await?;
        let restored = Restored::read(&*store, &id).await.map_err(|error| {
            Error::because(ErrorKind::Store, format!("could not read the session {id}"), error)
        })?;
        self.assemble(id, work, agent, store, restored)
    }

    fn node(&self, id: &SessionId) -> Result<Work, Error> {
        let label = format!("{id} {}", self.agent);
        self.place
            .node
            .open(work::Kind::Session, label)
            .map_err(|error| Error::because(ErrorKind::Refused, "could not open a session", error))
    }

    /// The agent with its tools, ready to run.
    pub(super) async fn agent(&self, work: &Work) -> Result<Arc<Agent>, Error> {
        let setting = &self.place.setting;
        let plugin = setting.catalogue.get(&self.agent).map_err(|error| {
            Error::because(ErrorKind::NotFound, "could not open a session", error)
        })?;
        if plugin.manifest().kind != Kind::Agent {
            let words =
                format!("`{}` is a tool and cannot be run by itself; name an agent", self.agent);
            return Err(Error::new(ErrorKind::Usage, words));
        }
        self.check_directories()?;
        let effective = self.decide(plugin).effective;
        let (code, toolbox) = match &self.place.home {
            // What was given to this session alone is in its tools, and in those of no other.
            Some(home) if self.directories.is_empty() && self.log.is_none() => {
                let loaded = home.loaded.get(self, work, plugin, &effective).await?;
                (loaded.0, loaded.1.shared_by(&self.share))
            }
            Some(_) | None => {
                let code = self.code(work, plugin, &effective.limits).await?;
                (code, self.toolbox(work, &effective.tools).await.0)
            }
        };
        Ok(Arc::new(Agent {
            reach: self.reach(&effective),
            plugged: self.plugged(plugin, effective),
            code,
            toolbox,
            models: setting.models.clone(),
            agents: Arc::new(Library::new(self.clone())),
            directories: self.directories.iter().map(|directory| directory.mount.clone()).collect(),
        }))
    }

    fn assemble(
        self,
        id: SessionId,
        work: Work,
        agent: Arc<Agent>,
        store: Arc<dyn Store>,
        restored: Restored,
    ) -> Result<Session, Error> {
        let inner = &self.host.inner;
        let background = Background {
            slots: inner.slots.clone(),
            recorder: Arc::clone(&inner.recorder),
            delivery: self.delivery,
            grace: self.place.setting.grace,
            descendants: inner.slots.limits().descendants_per_tree,
        };
        let parts = Parts {
            id,
            work,
            sandbox: inner.sandbox.clone(),
            agent,
            checkpoints: Arc::clone(&inner.checkpoints),
            background,
            store,
            restored,
            profile: self.place.home.as_ref().map(|home| Arc::clone(&home.profile)),
        };
        Session::new(parts)
            .map_err(|error| Error::because(ErrorKind::Refused, "could not open a session", error))
    }

    /// The code of an agent. Loading it is charged to `owner`.
    pub(super) async fn code(
        &self,
        owner: &Work,
        plugin: &Plugin,
        limits: &Limits,
    ) -> Result<AgentCode, Error> {
        let component = self.read(owner, plugin).await?;
        let (inner, isolation) = (&self.host.inner, self.isolation(plugin));
        inner.sandbox.load_agent(owner, component, limits, isolation).await.map_err(|error| {
            let attempt = format!("could not load the agent `{}`", plugin.name());
            Error::because(ErrorKind::Component, attempt, error)
        })
    }

    /// What a plugin may touch in this session, and what became of each of its requests.
    pub fn decide(&self, plugin: &Plugin) -> Decision {
        let configuration = &self.place.setting.configuration;
        let standing = match plugin.source() {
            Source::Folder(_) if !self.place.setting.named.contains(plugin.name()) => {
                Standing::Found
            }
            Source::Folder(_) | Source::Embedded(_) => {
                Standing::Named { directories: &self.directories }
            }
        };
        let given = Given::new(configuration, plugin.name(), standing);
        decide(plugin.manifest(), &given, &configuration.ceiling(plugin.name()))
    }

    /// Refuses to let any guest write what decides about guests, also those of the configuration that are not of this
    /// session: a tool that it calls may be given them.
    fn check_directories(&self) -> Result<(), Error> {
        let setting = &self.place.setting;
        let configured =
            setting.configuration.plugins.values().flat_map(|plugin| &plugin.grants.directories);
        let configured = configured.map(|given| (&*given.path, given.access));
        let named = self.directories.iter().map(|given| (&*given.path, given.access));
        setting.guards.check(configured.chain(named))
    }

    /// Where the runs of a plugin are.
    pub fn isolation(&self, plugin: &Plugin) -> Isolation {
        self.place.setting.configuration.isolation(plugin.name())
    }

    /// The tools that an agent with these grants may call, and whether none had to be left out.
    pub(super) async fn toolbox(&self, owner: &Work, granted: &Patterns) -> (Toolbox, bool) {
        let mut whole = true;
        let mut toolbox = Toolbox::default();
        let catalogue = &self.place.setting.catalogue;
        let tools = catalogue.plugins().filter(|plugin| plugin.manifest().kind == Kind::Tool);
        // A plugin of whose tools none can be granted need not be compiled.
        let wanted = |plugin: &&Plugin| {
            let own = Pattern::parse(&format!("{}_*", plugin.name())).into_iter().collect();
            !granted.meet(&own).is_empty()
        };
        for plugin in tools.filter(wanted) {
            if let Err(error) = self.add(&mut toolbox, owner, plugin).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(plugin = %plugin.name(), error, "the tools of this plugin are left out");
                whole = false;
            }
        }
        (toolbox.narrowed(|name| granted.allows(name)), whole)
    }

    pub(super) async fn add(
        &self,
        toolbox: &mut Toolbox,
        owner: &Work,
        plugin: &Plugin,
    ) -> Result<(), Error> {
        let sandbox = &self.host.inner.sandbox;
        let effective = self.decide(plugin).effective;
        let component = self.read(owner, plugin).await?;
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::because(
                ErrorKind::Component,
                format!("could not load the tools of `{}`", plugin.name()),
                error,
            )
        };
        let code = sandbox
            .load_tool(owner, component, &effective.limits, self.isolation(plugin))
            .await
            .map_err(|error| failed(error.into()))?;
        let reach = self.reach(&effective);
        let plugged = Arc::new(self.plugged(plugin, effective));
        let tool = ToolPlugin { plugged, code, reach };
        toolbox.add(sandbox, owner, tool).await.map_err(|error| failed(error.into()))
    }

    /// Reads a component, on a thread for calls that wait for the disk. It is in the tree below `owner` meanwhile.
    async fn read(&self, owner: &Work, plugin: &Plugin) -> Result<Arc<[u8]>, Error> {
        let inner = &self.host.inner;
        let attempt = || format!("could not read the component of `{}`", plugin.name());
        let place = Arc::clone(&inner.reads).acquire_owned().await;
        let place = place.map_err(|error| Error::because(ErrorKind::Refused, attempt(), error))?;
        let (label, read) = (format!("{} is read", plugin.name()), plugin.clone());
        let load = move || read.load().map(|component| Arc::from(&component.bytes[..]));
        work::blocking(inner.sandbox.control(), owner, &label, place, load)
            .map_err(|error| Error::because(ErrorKind::Refused, attempt(), error))?
            .await
            .map_err(|error| Error::because(ErrorKind::Refused, attempt(), error))?
            .map_err(|error| Error::because(ErrorKind::Component, attempt(), error))
    }

    /// What a plugin can reach in this session. All its runs share their places for calls that wait for a disk.
    fn reach(&self, effective: &Effective) -> Arc<Reach> {
        let reach = effective.reach(&*self.host.inner.environment);
        Arc::new(Reach { share: self.share.clone(), ..reach })
    }

    pub(super) fn catalogue(&self) -> &Catalogue {
        &self.place.setting.catalogue
    }

    pub(super) fn plugged(&self, plugin: &Plugin, effective: Effective) -> Plugged {
        Plugged {
            name: plugin.name().as_str().into(),
            effective: Arc::new(effective),
            log: self.log.clone().unwrap_or_else(|| Arc::new(traced)),
            environment: Arc::clone(&self.host.inner.environment),
        }
    }
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder").field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// Log lines of plugins, as they go to `tracing`.
fn traced(level: &str, plugin: &str, text: &str) {
    match level {
        "error" => tracing::error!(plugin, "{text}"),
        "warn" => tracing::warn!(plugin, "{text}"),
        "debug" => tracing::debug!(plugin, "{text}"),
        "trace" => tracing::trace!(plugin, "{text}"),
        _ => tracing::info!(plugin, "{text}"),
    }
}
