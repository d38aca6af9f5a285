//! Making a host.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::figures::Read;
use super::first_party;
use super::host::{Host, Inner};
use super::program::{self, Purpose};
use super::schedules::{Clock, SystemClock};
use super::setting::{Given, Setting};
use crate::delegation::{DelegationLimits, Hooks, InMemory, Recorder, Scheduler, Slots};
use crate::error::{Error, ErrorKind};
use crate::model::Provider;
use crate::plugin::{Configuration, Embedded};
use crate::sandbox::{
    Cache, CompileLimits, Compiler, EngineSettings, Engines, Loader, Names, Pool, Sandbox,
    SandboxSettings, WorkerSettings,
};
use crate::session::{Checkpoints, NoCheckpoints};
use crate::tool::Environment;
use crate::work::Tree;

/// Components that are read from the disk at one time, for all sessions together.
const READS: usize = 4;

/// Where components are compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compilation {
    /// In a child process that can be killed: this program with these arguments must end up in
    /// [`compile_child`](crate::compile_child). The command does so for the argument `compile-child`.
    Child {
        /// The program. A path with a separator is relative to the current directory; a bare name is looked up in
        /// the `PATH` that [`HostBuilder::environment`] shows. Both when the host is made.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<OsString>,
    },
    /// In this process, for an embedder who trusts every component that it loads: a hostile one can hold a
    /// processor for minutes, and nothing can end that.
    InProcess,
}

/// Makes a [`Host`]. What is not said keeps its default; nothing is granted by default.
#[must_use]
pub struct HostBuilder {
    compilation: Compilation,
    configuration: Configuration,
    models: Vec<Arc<dyn Provider>>,
    default_model: Option<String>,
    embedded: Vec<Embedded>,
    named: Vec<PathBuf>,
    cache: Option<PathBuf>,
    pool: Option<Pool>,
    environment: Environment,
    checkpoints: Arc<dyn Checkpoints>,
    clock: Arc<dyn Clock>,
    hooks: Hooks,
    recorder: Arc<dyn Recorder>,
    names: Option<Arc<dyn Names>>,
    roots: Vec<Vec<u8>>,
    guarded: Vec<(String, PathBuf)>,
    workers: Option<(PathBuf, Vec<OsString>)>,
}

impl HostBuilder {
    pub(super) fn new(compilation: Compilation) -> HostBuilder {
        HostBuilder {
            compilation,
            configuration: Configuration::default(),
            models: Vec::new(),
            default_model: None,
            embedded: first_party::embedded().to_vec(),
            named: Vec::new(),
            cache: None,
            pool: None,
            environment: Arc::new(|_| None),
            checkpoints: Arc::new(NoCheckpoints),
            clock: Arc::new(SystemClock),
            hooks: Hooks::default(),
            recorder: Arc::new(InMemory),
            names: None,
            roots: Vec::new(),
            guarded: Vec::new(),
            workers: None,
        }
    }

    /// What the operator configured.
    pub fn configuration(mut self, configuration: Configuration) -> Self {
        self.configuration = configuration;
        self
    }

    /// Adds a model under its own name. It goes before one of that name in the configuration.
    pub fn model(mut self, provider: Arc<dyn Provider>) -> Self {
        self.models.push(provider);
        self
    }

    /// Says which model answers agents that name none. It goes before the configuration's.
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        self.default_model = Some(name.into());
        self
    }

    /// Adds the plugin in a folder, as one that the operator named.
    pub fn plugin(mut self, folder: impl Into<PathBuf>) -> Self {
        self.named.push(folder.into());
        self
    }

    /// Leaves the first-party plugins out.
    pub fn without_first_party(mut self) -> Self {
        self.embedded.clear();
        self
    }

    /// Keeps compiled code in a folder. It goes before the configuration's. Without any, components are compiled
    /// anew by each process.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Where instances come from. It goes before the configuration's.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// How variables of the environment are looked up, for models, secrets and grants that name one, and `PATH` for
    /// the program that compiles. Without it none is set.
    pub fn environment(
        mut self,
        lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.environment = Arc::new(lookup);
        self
    }

    /// How guests' host names become addresses, in place of the operating system's way.
    pub fn names(mut self, names: Arc<dyn Names>) -> Self {
        self.names = Some(names);
        self
    }

    /// Trusts a certificate, in DER, for guests' connections, beside the roots that browsers trust.
    pub fn trust(mut self, certificate: impl Into<Vec<u8>>) -> Self {
        self.roots.push(certificate.into());
        self
    }

    /// Never gives a file or folder for writing: no directory that contains it or lies in it. `what` says in words
    /// what it holds. The folder of the configuration, the cache, plugins, and files with keys and secrets are guarded
    /// without this; a configuration file is when it was loaded by a path with a folder in it.
    pub fn guard(mut self, what: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.guarded.push((what.into(), path.into()));
        self
    }

    /// Where the runs of plugins with `isolation = "process"` are: this program with these arguments must end up in
    /// [`worker_child`](crate::worker_child). The command does so for the argument `worker`. A bare name and a relative path
    /// are taken as for [`Compilation::Child`].
    pub fn workers(mut self, program: impl Into<PathBuf>, arguments: Vec<OsString>) -> Self {
        self.workers = Some((program.into(), arguments));
        self
    }

    /// Who hears of the named places that runs reach.
    pub fn checkpoints(mut self, checkpoints: Arc<dyn Checkpoints>) -> Self {
        self.checkpoints = checkpoints;
        self
    }

    /// What scheduled runs go by, in place of the clock of the machine.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Who has a say in what is let into the background. Without it capacity alone decides.
    pub fn scheduler(mut self, scheduler: Arc<dyn Scheduler>) -> Self {
        self.hooks.scheduler = scheduler;
        self
    }

    /// Who writes down what was let into the background and how it ended. Without it that is kept in memory alone.
    pub fn recorder(mut self, recorder: Arc<dyn Recorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// Makes the host. Its timers, sockets and stops live on the runtime that this is called on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Configuration`] for a configuration or a named plugin that cannot be used, and for a program to
    /// compile or to run in that is not in `PATH` or, with `isolation = "process"`, was not named,
    /// [`ErrorKind::Machine`] when the machine does not give what the engine needs.
    pub fn build(self) -> Result<Host, Error> {
        let machine = |attempt: &str| {
            let attempt = attempt.to_owned();
            move |error: Box<dyn std::error::Error + Send + Sync>| {
                Error::because(ErrorKind::Machine, attempt, error)
            }
        };
        let control = Handle::try_current().map_err(|error| {
            machine("a host must be built inside a tokio runtime")(error.into())
        })?;
        if let Some(place) = self.configuration.profile_only() {
            let words = format!(
                "{place}: schedules belong to a profile; write them into the configuration in its home"
            );
            return Err(Error::new(ErrorKind::Configuration, words));
        }
        let cache = self.cache.or_else(|| self.configuration.cache_directory.clone());
        let given = Given {
            component_bytes: self.configuration.compile.most_component_bytes(),
            configuration: self.configuration,
            grace: None,
            models: self.models,
            default_model: self.default_model,
            model_figures: Arc::default(),
            embedded: self.embedded,
            named: self.named,
            environment: Arc::clone(&self.environment),
            guarded: self.guarded,
            cache: cache.clone(),
        };
        // What the host makes of profiles that are served from it.
        let pattern = Given {
            grace: given.configuration.stop.grace,
            configuration: Configuration::default(),
            ..given.clone()
        };
        let setting = Setting::new(given)?;
        let configuration = &setting.configuration;
        let pool = self.pool.or_else(|| {
            let size = configuration.sandbox.pool_size?;
            Some(Pool::Slots(u32::try_from(size.0).unwrap_or(u32::MAX)))
        });
        let engines =
            Engines::new(&EngineSettings { pool: pool.unwrap_or_default() }).map_err(|error| {
                machine("could not set up the engine that runs guests")(error.into())
            })?;
        let limits = compile_limits(configuration);
        let compiler = match self.compilation {
            Compilation::Child { program, arguments } => {
                let program = program::locate(Purpose::Compile, &program, &*self.environment)?;
                Compiler::child(program, arguments, limits)
            }
            Compilation::InProcess => Compiler::in_process(limits),
        };
        let cache = cache.and_then(|folder| Cache::open_or_warn(folder, Cache::USUAL_BYTES));
        let loader = Loader::new(engines.clone(), compiler, cache);

        let mut settings =
            SandboxSettings { names: self.names, roots: self.roots, ..SandboxSettings::default() };
        settings.workers = workers(configuration, self.workers, &self.environment)?;
        if let Some(threads) = configuration.sandbox.executor_threads {
            settings.threads = usize::try_from(threads.0).unwrap_or(usize::MAX);
        }
        let slots = Slots::new(delegation_limits(configuration), self.hooks);
        let (tree, root) = Tree::new("host");
        let sandbox = Sandbox::new(&tree, control, engines, loader, &settings)
            .map_err(|error| machine("could not set up the sandbox")(error.into()))?;
        Ok(Host {
            inner: Arc::new(Inner {
                tree,
                root: Arc::new(root),
                sandbox,
                own: Arc::new(setting),
                pattern,
                read: Read::new(),
                environment: self.environment,
                reads: Arc::new(Semaphore::new(READS)),
                checkpoints: self.checkpoints,
                clock: self.clock,
                slots,
                recorder: self.recorder,
                sessions: AtomicU64::new(0),
            }),
        })
    }
}

impl fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuilder")
            .field("compilation", &self.compilation)
            .finish_non_exhaustive()
    }
}

fn delegation_limits(configuration: &Configuration) -> DelegationLimits {
    let (usual, table) = (DelegationLimits::default(), &configuration.delegation);
    DelegationLimits {
        depth: table.depth.unwrap_or(usual.depth),
        children_per_call: table.children_per_call.unwrap_or(usual.children_per_call),
        descendants_per_tree: table.descendants_per_tree.unwrap_or(usual.descendants_per_tree),
        units_per_host: table.units_per_host.unwrap_or(usual.units_per_host),
        units_per_session: table.units_per_session.unwrap_or(usual.units_per_session),
        queued_units: table.queued_units.unwrap_or(usual.queued_units),
        unread_completions: table.unread_completions.unwrap_or(usual.unread_completions),
    }
}

fn compile_limits(configuration: &Configuration) -> CompileLimits {
    let mut limits = CompileLimits::default();
    let table = &configuration.compile;
    limits.component_bytes = table.most_component_bytes();
    if let Some(memory) = table.memory {
        limits.memory = memory.0;
    }
    if let Some(time) = table.time {
        limits.time = time.0;
    }
    if let Some(jobs) = table.jobs {
        limits.jobs = usize::try_from(jobs.0).unwrap_or(usize::MAX);
    }
    limits
}

/// Where workers come from; an error where the configuration needs some and nobody said.
fn workers(
    configuration: &Configuration,
    named: Option<(PathBuf, Vec<OsString>)>,
    environment: &Environment,
) -> Result<Option<WorkerSettings>, Error> {
    let Some((program, arguments)) = named else {
        if let Some(key) = configuration.key_of_workers() {
            let words = "this host has no program to run guests in: \
                         name one with `HostBuilder::workers`, or take that line out";
            let attempt = "the configuration says `isolation = \"process\"`";
            let refused = configuration.refuse(&key, &words);
            return Err(Error::because(ErrorKind::Configuration, attempt, refused));
        }
        return Ok(None);
    };
    let program = program::locate(Purpose::Run, &program, &**environment)?;
    let (mut settings, table) = (WorkerSettings::new(program, arguments), &configuration.workers);
    if let Some(processes) = table.processes {
        settings.processes = usize::try_from(processes.0).unwrap_or(usize::MAX);
    }
    settings.memory = table.memory.map(|memory| memory.0);
    settings.processor_time = table.processor_time.map(|time| time.0);
    if let Some(bound) = table.stop_bound {
        settings.stop_bound = bound.0;
    }
    Ok(Some(settings))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_page_about_delegation_has_every_limit_with_its_usual_value() {
        let page = include_str!("../../../docs/delegation.md");
        let table = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let read = Configuration::parse(table, Path::new("checkrein.toml")).unwrap();
        assert!(!format!("{:?}", read.delegation).contains("None"), "{:?}", read.delegation);
        assert_eq!(delegation_limits(&read), DelegationLimits::default());
    }

    #[test]
    fn what_the_operator_says_of_delegation_counts() {
        let table = "[delegation]\ndepth = 0\nunits-per-host = 3\n";
        let read = Configuration::parse(table, Path::new("checkrein.toml")).unwrap();
        let expected =
            DelegationLimits { depth: 0, units_per_host: 3, ..DelegationLimits::default() };
        assert_eq!(delegation_limits(&read), expected);
    }
}
