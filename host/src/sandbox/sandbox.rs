//! The sandbox as the rooms above see it: load a component, run an agent, call a tool.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store};

use super::abi::v0_1::{self, AgentPre, ToolPre};
use super::compile::{LoadError, LoadFigures, Loader};
use super::engine::{CodeKey, CodeSettings, EngineError, Engines, Metering, PoolUse};
use super::figures::RunFigures;
use super::guest::{AgentGuest, Guest, ToolGuest};
use super::instance::{self, AsyncCall, Returned, Run, Start};
use super::limits::Limits;
use super::meter::Meter;
use super::reach::Share;
use super::upward::{Above, AgentHost, ForAgent, ForTool, PluginHost, ToolHost};
use super::wasi::{self, Names, Outside};
use super::worker::{self, Errand, Isolation, WorkerSettings, Workers};
use crate::message::{Failure, ToolSpec};
use crate::work::{Executor, Tree, Work};

/// Runs components. Cheap to clone.
#[derive(Clone)]
pub struct Sandbox {
    shared: Arc<Shared>,
}

/// What all runs share.
pub(super) struct Shared {
    pub(super) executor: Executor,
    engines: Engines,
    loader: Loader,
    pub(super) outside: Arc<Outside>,
    /// Places for calls that hold a thread.
    pub(super) blocking: Arc<Semaphore>,
    /// How many of those places one share has.
    part: usize,
    /// None where no run can have a process of its own.
    workers: Option<Arc<Workers>>,
    /// Counts the ticks by which guests that compute change places.
    pub(super) ticks: Arc<AtomicU64>,
    pub(super) figures: Arc<RunFigures>,
}

/// What a sandbox is made with.
#[derive(Clone)]
pub struct SandboxSettings {
    /// Threads that execute guests.
    pub threads: usize,
    /// How many calls that hold a thread may be at work at one time, for all runs together.
    pub blocking_calls: usize,
    /// How guests' host names become addresses; none for the operating system's way.
    pub names: Option<Arc<dyn Names>>,
    /// Certificates, in DER, that guests' connections trust beside the roots that browsers trust.
    pub roots: Vec<Vec<u8>>,
    /// Where processes for single runs come from; none where no run can have one.
    pub workers: Option<WorkerSettings>,
}

impl fmt::Debug for SandboxSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxSettings")
            .field("threads", &self.threads)
            .field("blocking_calls", &self.blocking_calls)
            .field("roots", &self.roots.len())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Default for SandboxSettings {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        SandboxSettings {
            threads,
            blocking_calls: 64,
            names: None,
            roots: Vec::new(),
            workers: None,
        }
    }
}

impl Sandbox {
    /// Whether guests can run in processes of their own.
    pub fn has_workers(&self) -> bool {
        self.shared.workers.is_some()
    }

    /// A sandbox for the work of `tree`. Timers and sockets of its guests live on `control`.
    ///
    /// # Errors
    ///
    /// When the machine gives no threads, or the TLS library refuses its own defaults.
    pub fn new(
        tree: &Tree,
        control: Handle,
        engines: Engines,
        loader: Loader,
        settings: &SandboxSettings,
    ) -> Result<Sandbox, SandboxError> {
        let ticks = Arc::new(AtomicU64::new(0));
        let (counted, ticked) = (Arc::clone(&ticks), engines.weak());
        let tick = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            // It says whether the engines are still there; the executor ends with them.
            let _ = ticked.increment_epoch();
        };
        let executor =
            Executor::new(tree, settings.threads, control, tick).map_err(SandboxError::Threads)?;
        let tls = |error: rustls::Error| SandboxError::Tls(error.to_string());
        let mut outside = Outside::new().map_err(tls)?;
        if !settings.roots.is_empty() {
            outside =
                outside.with_roots(settings.roots.iter().cloned().map(Into::into)).map_err(tls)?;
        }
        if let Some(names) = &settings.names {
            outside = outside.with_resolver(Arc::new(Arc::clone(names)));
        }
        let outside = Arc::new(outside);
        let places = settings.blocking_calls.min(Semaphore::MAX_PERMITS);
        let (blocking, part) = (Arc::new(Semaphore::new(places)), places.div_ceil(2));
        let workers = settings.workers.clone().map(|workers| {
            Arc::new(Workers::new(workers, settings.names.clone(), settings.roots.clone()))
        });
        Ok(Sandbox {
            shared: Arc::new(Shared {
                executor,
                engines,
                loader,
                outside,
                blocking,
                part,
                workers,
                ticks,
                figures: Arc::default(),
            }),
        })
    }

    /// A part of the places for blocking calls: half of them.
    pub fn share(&self) -> Share {
        Share::of(self.shared.part)
    }

    /// Makes an agent ready to run: compiles it if need be, as work below `owner`, checks its imports and exports, links
    /// it once. `isolation` says where its runs will be.
    ///
    /// # Errors
    ///
    /// [`CodeError`] when it is no component, cannot be compiled, or does not fit the world `agent`, and where there are
    /// no workers that it could run in.
    pub async fn load_agent(
        &self,
        owner: &Work,
        bytes: Arc<[u8]>,
        limits: &Limits,
        isolation: Isolation,
    ) -> Result<AgentCode, CodeError> {
        let (component, metering) = self.compiled(owner, bytes, limits).await?;
        let code = self.link_agent(&component, metering)?;
        Ok(AgentCode { apart: self.apart(&component, metering, isolation)?, ..code })
    }

    /// Makes a tool component ready to be called; compiling it is work below `owner`. `isolation` says where its calls
    /// will be.
    ///
    /// # Errors
    ///
    /// [`CodeError`] when it is no component, cannot be compiled, or does not fit the world `tool`, and where there are no
    /// workers that it could run in.
    pub async fn load_tool(
        &self,
        owner: &Work,
        bytes: Arc<[u8]>,
        limits: &Limits,
        isolation: Isolation,
    ) -> Result<ToolCode, CodeError> {
        let (component, metering) = self.compiled(owner, bytes, limits).await?;
        let code = self.link_tool(&component, metering)?;
        Ok(ToolCode { apart: self.apart(&component, metering, isolation)?, ..code })
    }

    pub(super) fn link_agent(
        &self,
        component: &Component,
        metering: Metering,
    ) -> Result<AgentCode, CodeError> {
        let mut linker: Linker<AgentGuest> = Linker::new(self.engine(metering)?);
        wasi::add_to_linker(&mut linker).map_err(|error| CodeError::linker(&error))?;
        v0_1::link_agent(&mut linker).map_err(|error| CodeError::linker(&error))?;
        let pre = linker
            .instantiate_pre(component)
            .and_then(AgentPre::new)
            .map_err(|error| CodeError::world("agent", &error))?;
        Ok(AgentCode { pre, metering, apart: None })
    }

    pub(super) fn link_tool(
        &self,
        component: &Component,
        metering: Metering,
    ) -> Result<ToolCode, CodeError> {
        let mut linker: Linker<ToolGuest> = Linker::new(self.engine(metering)?);
        wasi::add_to_linker(&mut linker).map_err(|error| CodeError::linker(&error))?;
        v0_1::link_tool(&mut linker).map_err(|error| CodeError::linker(&error))?;
        let pre = linker
            .instantiate_pre(component)
            .and_then(ToolPre::new)
            .map_err(|error| CodeError::world("tool", &error))?;
        Ok(ToolCode { pre, metering, apart: None })
    }

    /// The code in the form in which a worker is sent it.
    fn apart(
        &self,
        component: &Component,
        metering: Metering,
        isolation: Isolation,
    ) -> Result<Option<Apart>, CodeError> {
        if isolation == Isolation::Instance {
            return Ok(None);
        }
        let workers = self.shared.workers.as_ref().ok_or(CodeError::NoWorkers)?;
        let image =
            component.serialize().map_err(|error| CodeError::Image(format!("{error:#}")))?;
        Ok(Some(Apart {
            image: image.into(),
            settings: self.shared.engines.code_settings(metering),
            key: self.shared.engines.code_key(metering)?,
            workers: Arc::clone(workers),
        }))
    }

    /// Starts an agent.
    pub fn run_agent(&self, code: &AgentCode, start: Start<Arc<dyn AgentHost>>) -> Run<String> {
        let start = counted(code.metering, start);
        if let Some(apart) = &code.apart {
            let (log, task) = (Arc::clone(&start.host) as Arc<dyn PluginHost>, start.host.task());
            let errand = ready(Ok(Errand::Run(task)));
            return worker::start(&self.shared, apart, start.above(ForAgent), log, errand);
        }
        self.run_agent_on(Arc::new(Meter::new(start.limits.clone())), code, start)
    }

    /// Starts an agent here, counted by that meter.
    pub(super) fn run_agent_on(
        &self,
        meter: Arc<Meter>,
        code: &AgentCode,
        start: Start<Arc<dyn AgentHost>>,
    ) -> Run<String> {
        let log = Arc::clone(&start.host) as Arc<dyn PluginHost>;
        let call = ready(Ok(RunAgent(code.pre.clone())));
        self.start(code.metering, meter, start.above(ForAgent), log, call)
    }

    /// Asks a tool component which tools it has.
    pub fn describe_tools(
        &self,
        code: &ToolCode,
        start: Start<Arc<dyn ToolHost>>,
    ) -> Run<Vec<ToolSpec>> {
        let start = counted(code.metering, start);
        if let Some(apart) = &code.apart {
            let log = Arc::clone(&start.host) as Arc<dyn PluginHost>;
            let errand = ready(Ok(Errand::Describe));
            return worker::start(&self.shared, apart, start.above(ForTool), log, errand);
        }
        self.describe_tools_on(Arc::new(Meter::new(start.limits.clone())), code, start)
    }

    /// Asks a tool component here, counted by that meter.
    pub(super) fn describe_tools_on(
        &self,
        meter: Arc<Meter>,
        code: &ToolCode,
        start: Start<Arc<dyn ToolHost>>,
    ) -> Run<Vec<ToolSpec>> {
        let log = Arc::clone(&start.host) as Arc<dyn PluginHost>;
        let call = ready(Ok(Describe(code.pre.clone())));
        self.start(code.metering, meter, start.above(ForTool), log, call)
    }

    /// Calls one tool. Its arguments are awaited in the run itself, which their failure ends before the component is
    /// instantiated.
    pub fn call_tool(
        &self,
        code: &ToolCode,
        start: Start<Arc<dyn ToolHost>>,
        name: Arc<str>,
        arguments: impl Future<Output = Result<String, Failure>> + Send + 'static,
    ) -> Run<String> {
        let start = counted(code.metering, start);
        if let Some(apart) = &code.apart {
            let log = Arc::clone(&start.host) as Arc<dyn PluginHost>;
            let errand = async move {
                let arguments = arguments.await?;
                Ok(Errand::Call { name: name.to_string(), arguments })
            };
            return worker::start(&self.shared, apart, start.above(ForTool), log, errand);
        }
        self.call_tool_on(Arc::new(Meter::new(start.limits.clone())), code, start, name, arguments)
    }

    /// Calls one tool here, counted by that meter.
    pub(super) fn call_tool_on(
        &self,
        meter: Arc<Meter>,
        code: &ToolCode,
        start: Start<Arc<dyn ToolHost>>,
        name: Arc<str>,
        arguments: impl Future<Output = Result<String, Failure>> + Send + 'static,
    ) -> Run<String> {
        let log = Arc::clone(&start.host) as Arc<dyn PluginHost>;
        let pre = code.pre.clone();
        let call = async move { Ok(CallTool { pre, name, arguments: arguments.await? }) };
        self.start(code.metering, meter, start.above(ForTool), log, call)
    }

    /// The runtime for everything that is not a guest.
    pub fn control(&self) -> &Handle {
        self.shared.executor.control()
    }

    /// What is taken from the pools now.
    pub fn pool_use(&self) -> PoolUse {
        self.shared.engines.pool_use()
    }

    /// The runs so far.
    pub fn figures(&self) -> &Arc<RunFigures> {
        &self.shared.figures
    }

    /// What was compiled and loaded so far.
    pub fn load_figures(&self) -> &LoadFigures {
        self.shared.loader.figures()
    }

    /// The engines, for what else is compiled for them.
    pub fn engines(&self) -> &Engines {
        &self.shared.engines
    }

    fn start<H, T, C>(
        &self,
        metering: Metering,
        meter: Arc<Meter>,
        start: Start<H>,
        log: Arc<dyn PluginHost>,
        call: impl Future<Output = Result<C, Failure>> + Send + 'static,
    ) -> Run<T>
    where
        H: Above,
        T: instance::Output,
        C: AsyncCall<H, T>,
    {
        let nudge = Arc::clone(self.shared.engines.nudge(metering));
        instance::start(&self.shared, nudge, meter, start, log, call)
    }

    async fn compiled(
        &self,
        owner: &Work,
        bytes: Arc<[u8]>,
        limits: &Limits,
    ) -> Result<(Component, Metering), CodeError> {
        let metering = if limits.fuel.is_some() { Metering::Fuel } else { Metering::None };
        Ok((self.shared.loader.load(bytes, metering, owner).await?, metering))
    }

    fn engine(&self, metering: Metering) -> Result<&Engine, EngineError> {
        self.shared.engines.get(metering)
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("engines", &self.shared.engines).finish_non_exhaustive()
    }
}

/// Code that counts has to be given something to count.
fn counted<H>(metering: Metering, mut start: Start<H>) -> Start<H> {
    if metering == Metering::Fuel {
        start.limits.fuel.get_or_insert(u64::MAX);
    }
    start
}

/// Code whose runs have a process of their own, as that is sent it.
#[derive(Clone)]
pub(super) struct Apart {
    pub(super) image: Arc<[u8]>,
    pub(super) settings: CodeSettings,
    pub(super) key: CodeKey,
    pub(super) workers: Arc<Workers>,
}

/// Where the runs of that code are.
fn isolation(apart: Option<&Apart>) -> Isolation {
    if apart.is_some() { Isolation::Process } else { Isolation::Instance }
}

/// An agent that is ready to run.
#[derive(Clone)]
pub struct AgentCode {
    pre: AgentPre<AgentGuest>,
    metering: Metering,
    /// None where its runs are in this process.
    apart: Option<Apart>,
}

impl AgentCode {
    /// Whether it counts what it executes, so that a fuel limit can be enforced.
    pub fn is_metered(&self) -> bool {
        self.metering == Metering::Fuel
    }
}

impl fmt::Debug for AgentCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCode")
            .field("metering", &self.metering)
            .field("isolation", &isolation(self.apart.as_ref()))
            .finish_non_exhaustive()
    }
}

/// A tool component that is ready to be called.
#[derive(Clone)]
pub struct ToolCode {
    pre: ToolPre<ToolGuest>,
    metering: Metering,
    /// None where its calls are in this process.
    apart: Option<Apart>,
}

impl fmt::Debug for ToolCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCode")
            .field("metering", &self.metering)
            .field("isolation", &isolation(self.apart.as_ref()))
            .finish_non_exhaustive()
    }
}

struct RunAgent(AgentPre<AgentGuest>);

impl AsyncCall<ForAgent, String> for RunAgent {
    fn engine(&self) -> &Engine {
        self.0.engine()
    }

    fn call<'a>(self, store: &'a mut Store<Guest<ForAgent>>) -> BoxFuture<'a, Returned<String>> {
        Box::pin(async move {
            let agent = self.0.instantiate_async(&mut *store).await?;
            Ok(agent.call_run(&mut *store).await?.map_err(v0_1::failure_of))
        })
    }
}

struct Describe(ToolPre<ToolGuest>);

impl AsyncCall<ForTool, Vec<ToolSpec>> for Describe {
    fn engine(&self) -> &Engine {
        self.0.engine()
    }

    fn call<'a>(
        self,
        store: &'a mut Store<Guest<ForTool>>,
    ) -> BoxFuture<'a, Returned<Vec<ToolSpec>>> {
        Box::pin(async move {
            let tool = self.0.instantiate_async(&mut *store).await?;
            let specs = tool.call_describe(&mut *store).await?;
            Ok(Ok(specs.into_iter().map(v0_1::spec_of).collect()))
        })
    }
}

struct CallTool {
    pre: ToolPre<ToolGuest>,
    name: Arc<str>,
    arguments: String,
}

impl AsyncCall<ForTool, String> for CallTool {
    fn engine(&self) -> &Engine {
        self.pre.engine()
    }

    fn call<'a>(self, store: &'a mut Store<Guest<ForTool>>) -> BoxFuture<'a, Returned<String>> {
        Box::pin(async move {
            let tool = self.pre.instantiate_async(&mut *store).await?;
            Ok(tool
                .call_call(&mut *store, &self.name, &self.arguments)
                .await?
                .map_err(v0_1::failure_of))
        })
    }
}

/// A component cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// It could not be compiled or loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It is a component, but not one for this world: an import that nobody serves, or an export that is missing.
    #[error("the component does not fit the world `{world}` of checkrein:plugin@0.1.0: {reason}")]
    World {
        /// `agent` or `tool`.
        world: &'static str,
        /// Which import or export.
        reason: String,
    },
    /// Its runs shall have processes of their own, and there is no program for them.
    #[error(
        "it shall run in a process of its own, and this host has no program for that: name one with \
         `HostBuilder::workers`"
    )]
    NoWorkers,
    /// Its code cannot be sent to a process.
    #[error("its code cannot be sent to a process of its own: {0}")]
    Image(String),
    /// The host's own interfaces could not be offered.
    #[error("the interfaces of the host could not be linked: {0}")]
    Linker(String),
}

impl CodeError {
    fn world(world: &'static str, error: &wasmtime::Error) -> CodeError {
        CodeError::World { world, reason: format!("{error:#}") }
    }

    fn linker(error: &wasmtime::Error) -> CodeError {
        CodeError::Linker(format!("{error:#}"))
    }
}

impl From<EngineError> for CodeError {
    fn from(error: EngineError) -> Self {
        CodeError::Load(error.into())
    }
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// No threads.
    #[error("could not start the threads that execute guests: {0}")]
    Threads(#[source] std::io::Error),
    /// No TLS.
    #[error("could not set up TLS for guests: {0}")]
    Tls(String),
}
