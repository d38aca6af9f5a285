//! A real host on a home of its own.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use checkrein::delegation::{Recorder, Scheduler};
use checkrein::model::Provider;
use checkrein::plugin::Configuration;
use checkrein::sandbox::{Names, Pool, PoolUse};
use checkrein::session::{Checkpoints, Session, TurnReport};
use checkrein::work::{Kind, NodeView};
use checkrein::{Clock, Compilation, Host, HostBuilder, SessionBuilder};
use tempfile::TempDir;

use crate::checkpoints::Places;
use crate::logs::Logs;
use crate::plugin::Plugin;
use crate::wait::{PATIENCE, within};

/// How many runs can live at one time in a host of the tests. Small, because many hosts live in one process.
const SLOTS: u32 = 64;

/// How often the tree is looked at for something that nothing announces.
const GLANCE: Duration = Duration::from_millis(1);

/// Makes a [`TestHost`].
#[must_use]
pub struct TestHostBuilder {
    program: PathBuf,
    plugins: Vec<Plugin>,
    models: Vec<Arc<dyn Provider>>,
    configuration: String,
    environment: HashMap<String, String>,
    pool: Pool,
    checkpoints: Option<Arc<dyn Checkpoints>>,
    clock: Option<Arc<dyn Clock>>,
    scheduler: Option<Arc<dyn Scheduler>>,
    recorder: Option<Arc<dyn Recorder>>,
    names: Option<Arc<dyn Names>>,
    first_party: bool,
    apart: bool,
    workers: (PathBuf, Vec<OsString>),
}

/// A host in a temporary home. Everything it is asked for is real but the models.
#[derive(Debug)]
pub struct TestHost {
    host: Host,
    places: Places,
    logs: Logs,
    /// Removed when this is dropped.
    home: TempDir,
}

impl TestHost {
    /// Begins to make a host. `program` is the command, in whose child processes components are compiled:
    /// `env!("CARGO_BIN_EXE_checkrein")`.
    pub fn builder(program: impl Into<PathBuf>) -> TestHostBuilder {
        let program = program.into();
        TestHostBuilder {
            workers: (program.clone(), vec![OsString::from("worker")]),
            program,
            plugins: Vec::new(),
            models: Vec::new(),
            configuration: String::new(),
            environment: HashMap::new(),
            pool: Pool::Slots(SLOTS),
            checkpoints: None,
            clock: None,
            scheduler: None,
            recorder: None,
            names: None,
            first_party: false,
            apart: false,
        }
    }

    /// The host itself.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The home: plugins lie in `plugins`, the rest is free for the test.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The places at which guests wait.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// What guests wrote to their logs.
    pub fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Begins to open a session whose log is read here.
    pub fn opening(&self, agent: &str) -> SessionBuilder {
        self.host.session(agent).log(self.logs.sink())
    }

    /// Opens a session.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub async fn session(&self, agent: &str) -> Result<Session> {
        Ok(self.opening(agent).open().await?)
    }

    /// Runs an agent in a session of its own, to its end.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or does not end.
    pub async fn run(&self, agent: &str, goal: &str) -> Result<TurnReport> {
        let session = self.session(agent).await?;
        let turn = session.prompt(goal, "")?;
        within(&format!("the end of `{goal}`"), turn.ended()).await
    }

    /// Waits until a guest has come to that checkpoint.
    ///
    /// # Errors
    ///
    /// When none comes.
    pub async fn reached(&self, place: &str) -> Result<()> {
        within(
            &format!("the checkpoint `{place}`; {}", self.shown()),
            self.places.reached(place, 1),
        )
        .await
    }

    /// Lets everybody pass at that checkpoint.
    pub fn release(&self, place: &str) {
        self.places.release(place);
    }

    /// Waits until a guest has written that line to its log.
    ///
    /// # Errors
    ///
    /// When none does.
    pub async fn logged(&self, text: &str) -> Result<()> {
        within(&format!("the log line `{text}`"), self.logs.written(text, 1)).await
    }

    /// Waits until the running work is as `wanted` says. For what a guest does and nothing announces.
    ///
    /// # Errors
    ///
    /// When it never is.
    pub async fn until(
        &self,
        what: &str,
        mut wanted: impl FnMut(&[NodeView]) -> bool,
    ) -> Result<()> {
        let looking = async {
            while !wanted(&self.executions()) {
                tokio::time::sleep(GLANCE).await;
            }
        };
        let seen = tokio::time::timeout(PATIENCE, looking).await;
        ensure!(seen.is_ok(), "waited {PATIENCE:?} in vain: {what}; {}", self.shown());
        Ok(())
    }

    /// Waits until a piece of work does that: the name of a call, such as `run.sleep`, or `computing`.
    ///
    /// # Errors
    ///
    /// When none ever does.
    pub async fn doing(&self, what: &str) -> Result<()> {
        let does =
            |node: &NodeView| node.activity.as_ref().is_some_and(|activity| activity.what == what);
        self.until(what, |nodes| nodes.iter().any(does)).await
    }

    /// Everything that runs.
    pub fn executions(&self) -> Vec<NodeView> {
        let tree = self.host.tree();
        tree.executions(tree.root())
    }

    /// Checks, at this very moment, that nothing runs and nothing is taken from the pools.
    ///
    /// # Errors
    ///
    /// Names what is left.
    pub fn is_idle(&self) -> Result<()> {
        let left = self.executions();
        ensure!(left.is_empty(), "still in the tree: {}", shown(&left));
        let taken = self.host.sandbox().pool_use();
        ensure!(taken == PoolUse::default(), "still taken from the pools: {taken:?}");
        Ok(())
    }

    /// Waits for blocking calls that outlived their runs, and checks that then nothing is left. For tests whose guests
    /// read files: a read that has begun cannot be interrupted, and stays in the tree until it returns (W3).
    ///
    /// # Errors
    ///
    /// Names what is left.
    pub async fn settles(&self) -> Result<()> {
        self.until("blocking calls return", |nodes| {
            nodes.iter().all(|node| node.kind != Kind::Blocking)
        })
        .await?;
        self.is_idle()
    }

    fn shown(&self) -> String {
        format!("running at the time: {}", shown(&self.executions()))
    }
}

fn shown(nodes: &[NodeView]) -> String {
    let node = |node: &NodeView| {
        let doing = node.activity.as_ref().map_or("nothing", |activity| activity.what);
        format!("{} {} ({doing}, {:?})", node.kind.as_str(), node.label, node.stop)
    };
    nodes.iter().map(node).collect::<Vec<_>>().join(", ")
}

impl TestHostBuilder {
    /// Adds a plugin, as one that the operator named.
    pub fn plugin(mut self, plugin: Plugin) -> Self {
        self.plugins.push(plugin);
        self
    }

    /// Adds a model.
    pub fn model(mut self, model: impl Provider + 'static) -> Self {
        self.models.push(Arc::new(model));
        self
    }

    /// Sets the text of the operator's configuration. Its paths are relative to the home.
    pub fn configuration(mut self, text: &str) -> Self {
        text.clone_into(&mut self.configuration);
        self
    }

    /// Sets a variable of the host's environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Takes instances from elsewhere than a small pool.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pool = pool;
        self
    }

    /// Has guests' host names looked up by somebody else than the operating system.
    pub fn names(mut self, names: Arc<dyn Names>) -> Self {
        self.names = Some(names);
        self
    }

    /// Has somebody else hear of the checkpoints.
    pub fn checkpoints(mut self, checkpoints: impl Checkpoints + 'static) -> Self {
        self.checkpoints = Some(Arc::new(checkpoints));
        self
    }

    /// Has scheduled runs go by another clock.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Has somebody else say what is let into the background.
    pub fn scheduler(mut self, scheduler: Arc<dyn Scheduler>) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    /// Has somebody write down what is let into the background.
    pub fn recorder(mut self, recorder: Arc<dyn Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Keeps the first-party plugins.
    pub fn with_first_party(mut self) -> Self {
        self.first_party = true;
        self
    }

    /// Runs every guest in a process of its own, as if the configuration said so.
    pub fn apart(mut self) -> Self {
        self.apart = true;
        self
    }

    /// Has another program be the process of such a guest.
    pub fn workers(mut self, program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        self.workers = (program.into(), arguments.iter().map(OsString::from).collect());
        self
    }

    /// Makes the host, on the runtime of the test.
    ///
    /// # Errors
    ///
    /// When the home cannot be written, or the host cannot be made.
    pub fn build(self) -> Result<TestHost> {
        let home = tempfile::Builder::new().prefix("checkrein-test-").tempdir()?;
        let (places, logs) = (Places::new(), Logs::new());
        let compilation = Compilation::Child {
            program: self.program,
            arguments: vec![OsString::from("compile-child")],
        };
        let apart = if self.apart { "isolation = \"process\"\n" } else { "" };
        let text = format!("{apart}{}", self.configuration);
        let configuration = Configuration::parse(&text, &home.path().join("checkrein.toml"))?;
        let checkpoints = self.checkpoints.unwrap_or_else(|| Arc::new(places.clone()));
        let environment = self.environment;
        let mut builder: HostBuilder = Host::builder(compilation)
            .configuration(configuration)
            .workers(self.workers.0, self.workers.1)
            .cache(env!("CHECKREIN_KIT_CACHE"))
            .pool(self.pool)
            .environment(move |name| environment.get(name).cloned())
            .checkpoints(checkpoints);
        if let Some(clock) = self.clock {
            builder = builder.clock(clock);
        }
        if let Some(scheduler) = self.scheduler {
            builder = builder.scheduler(scheduler);
        }
        if let Some(recorder) = self.recorder {
            builder = builder.recorder(recorder);
        }
        if let Some(names) = self.names {
            builder = builder.names(names);
        }
        if !self.first_party {
            builder = builder.without_first_party();
        }
        for plugin in &self.plugins {
            builder = builder.plugin(plugin.write(&home.path().join("plugins"))?);
        }
        for model in self.models {
            builder = builder.model(model);
        }
        Ok(TestHost { host: builder.build()?, places, logs, home })
    }
}

impl std::fmt::Debug for TestHostBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestHostBuilder").field("plugins", &self.plugins).finish_non_exhaustive()
    }
}
