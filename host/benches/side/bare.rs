//! Bare wasmtime: the same components, the same engine settings, host functions that do nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wasmtime::component::{Component, HasSelf, Linker, ResourceTable};
use wasmtime::{Engine, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

mod bindings {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "checkrein:plugin/agent@0.1.0",
        imports: {
            "checkrein:plugin/run.checkpoint": async | trappable,
            "checkrein:plugin/run.sleep": async | trappable,
            "checkrein:plugin/model.complete": async | trappable,
            "checkrein:plugin/tools.call": async | trappable,
            "checkrein:plugin/delegate.run": async | trappable,
            "checkrein:plugin/delegate.wait": async | trappable,
            default: trappable,
        },
        exports: { default: async },
    });
}

mod tool {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "checkrein:plugin/tool@0.1.0",
        imports: { default: trappable },
        exports: { default: async },
        with: {
            "checkrein:plugin/types@0.1.0": super::bindings::checkrein::plugin::types,
            "checkrein:plugin/config@0.1.0": super::bindings::checkrein::plugin::config,
            "checkrein:plugin/log@0.1.0": super::bindings::checkrein::plugin::log,
        },
    });
}

pub(crate) use bindings::AgentPre;
use bindings::checkrein::plugin as wit;
pub(crate) use tool::ToolPre;

/// The data of a bare store.
pub(crate) struct Bare {
    wasi: WasiCtx,
    table: ResourceTable,
    goal: String,
    /// How a tool is called, where the guest calls one.
    tool: Option<Arc<BareTool>>,
    limits: wasmtime::StoreLimits,
}

/// A tool component that a bare agent calls.
pub(crate) struct BareTool {
    /// The engine.
    pub(crate) engine: Engine,
    /// The component.
    pub(crate) pre: ToolPre<Bare>,
}

impl WasiView for Bare {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// Links the component for bare runs.
pub(crate) fn agent(engine: &Engine, component: &Component) -> AgentPre<Bare> {
    let mut linker = Linker::<Bare>::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker).expect("WASI links");
    bindings::Agent::add_to_linker::<_, HasSelf<Bare>>(&mut linker, |bare| bare)
        .expect("the world links");
    AgentPre::new(linker.instantiate_pre(component).expect("it links")).expect("it has the exports")
}

/// Links a tool component for bare runs.
pub(crate) fn tool_component(engine: &Engine, component: &Component) -> Arc<BareTool> {
    let mut linker = Linker::<Bare>::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker).expect("WASI links");
    tool::Tool::add_to_linker::<_, HasSelf<Bare>>(&mut linker, |bare| bare)
        .expect("the world links");
    let pre = linker.instantiate_pre(component).and_then(ToolPre::new).expect("it links");
    Arc::new(BareTool { engine: engine.clone(), pre })
}

/// Loads compiled code from a file that nobody checks.
#[allow(unsafe_code, reason = "the file was written by this benchmark a moment ago")]
pub(crate) fn deserialize(engine: &Engine, file: &std::path::Path) -> Component {
    // SAFETY: the benchmark has written the file itself, with this engine, and nobody else knows of it.
    unsafe { Component::deserialize_file(engine, file) }.expect("it loads")
}

/// A stop flag and a tick, as an embedder of bare wasmtime would have them.
#[derive(Clone, Default)]
pub(crate) struct Flags {
    /// The guest shall end.
    pub(crate) stop: Arc<AtomicBool>,
    /// Guests shall change places.
    pub(crate) ticks: Arc<AtomicU64>,
}

/// A store with the usual precautions: an epoch, limits.
pub(crate) fn store(
    engine: &Engine,
    goal: &str,
    tool: Option<Arc<BareTool>>,
    flags: &Flags,
) -> Store<Bare> {
    let limits =
        wasmtime::StoreLimitsBuilder::new().memory_size(64 << 20).table_elements(10_000).build();
    let wasi = WasiCtx::builder().build();
    let bare = Bare { wasi, table: ResourceTable::new(), goal: goal.to_owned(), tool, limits };
    let mut store = Store::new(engine, bare);
    store.limiter(|bare| &mut bare.limits);
    store.set_epoch_deadline(1);
    let flags = flags.clone();
    let mut seen = flags.ticks.load(Ordering::Relaxed);
    store.epoch_deadline_callback(move |_| {
        if flags.stop.load(Ordering::SeqCst) {
            return Err(wasmtime::Error::msg("stopped"));
        }
        let now = flags.ticks.load(Ordering::Relaxed);
        if now == seen {
            return Ok(UpdateDeadline::Continue(1));
        }
        seen = now;
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
    });
    store.set_hostcall_fuel(4 << 20);
    store.set_max_component_handles(1_000);
    store
}

/// One whole bare run.
pub(crate) async fn run(
    engine: &Engine,
    pre: &AgentPre<Bare>,
    goal: &str,
    tool: Option<Arc<BareTool>>,
    flags: &Flags,
) {
    let mut store = store(engine, goal, tool, flags);
    // A run that is stopped ends with an error, here or there; the benchmark that stops it expects that.
    if let Ok(agent) = pre.instantiate_async(&mut store).await {
        agent.call_run(&mut store).await.ok();
    }
}

impl wit::types::Host for Bare {}

impl wit::run::Host for Bare {
    fn current_task(&mut self) -> wasmtime::Result<wit::run::Task> {
        Ok(wit::run::Task {
            run_id: String::new(),
            session_id: String::new(),
            goal: self.goal.clone(),
            input: String::new(),
            directories: Vec::new(),
            depth: 0,
        })
    }
    fn budgets(&mut self) -> wasmtime::Result<Vec<wit::run::Budget>> {
        Ok(Vec::new())
    }
    fn stop_requested(&mut self) -> wasmtime::Result<Option<wit::types::Stop>> {
        Ok(None)
    }
    async fn checkpoint(
        &mut self,
        _name: String,
    ) -> wasmtime::Result<Result<(), wit::types::Failure>> {
        Ok(Ok(()))
    }
    async fn sleep(
        &mut self,
        milliseconds: u64,
    ) -> wasmtime::Result<Result<(), wit::types::Failure>> {
        tokio::time::sleep(std::time::Duration::from_millis(milliseconds)).await;
        Ok(Ok(()))
    }
}

impl wit::model::Host for Bare {
    async fn complete(
        &mut self,
        _request: wit::model::Request,
    ) -> wasmtime::Result<Result<wit::model::Response, wit::types::Failure>> {
        std::future::pending().await
    }
}

impl wit::tools::Host for Bare {
    fn list_tools(
        &mut self,
    ) -> wasmtime::Result<Result<Vec<wit::types::ToolSpec>, wit::types::Failure>> {
        Ok(Ok(Vec::new()))
    }
    async fn call(
        &mut self,
        calls: Vec<wit::types::ToolCall>,
    ) -> wasmtime::Result<Result<Vec<wit::types::ToolResult>, wit::types::Failure>> {
        let mut results = Vec::new();
        for call in calls {
            let tool = self.tool.clone().expect("a tool");
            let mut store = store(&tool.engine, "", None, &Flags::default());
            let instance = tool.pre.instantiate_async(&mut store).await?;
            let name = call.name.trim_start_matches("bench_");
            let content =
                instance.call_call(&mut store, name, &call.arguments).await?.unwrap_or_default();
            results.push(wit::types::ToolResult { id: call.id, status: "ok".to_owned(), content });
        }
        Ok(Ok(results))
    }
}

impl wit::delegate::Host for Bare {
    fn capacity(
        &mut self,
    ) -> wasmtime::Result<Result<wit::delegate::DelegationCapacity, wit::types::Failure>> {
        wasmtime::bail!("not here")
    }
    async fn run(
        &mut self,
        _request: wit::delegate::Request,
    ) -> wasmtime::Result<Result<wit::delegate::Outcome, wit::types::Failure>> {
        wasmtime::bail!("not here")
    }
    fn status(
        &mut self,
        _ids: Vec<String>,
    ) -> wasmtime::Result<Result<Vec<wit::delegate::UnitStatus>, wit::types::Failure>> {
        Ok(Ok(Vec::new()))
    }
    async fn wait(
        &mut self,
        _ids: Vec<String>,
    ) -> wasmtime::Result<Result<wit::delegate::UnitStatus, wit::types::Failure>> {
        wasmtime::bail!("not here")
    }
    fn stop(
        &mut self,
        _ids: Vec<String>,
        _message: String,
    ) -> wasmtime::Result<Result<u32, wit::types::Failure>> {
        Ok(Ok(0))
    }
}

impl wit::session::Host for Bare {
    fn history(
        &mut self,
        _limit: u32,
    ) -> wasmtime::Result<Result<Vec<wit::types::Message>, wit::types::Failure>> {
        Ok(Ok(Vec::new()))
    }
    fn emit(
        &mut self,
        _kind: String,
        _payload: String,
    ) -> wasmtime::Result<Result<(), wit::types::Failure>> {
        Ok(Ok(()))
    }
    fn get(
        &mut self,
        _key: String,
    ) -> wasmtime::Result<Result<Option<Vec<u8>>, wit::types::Failure>> {
        Ok(Ok(None))
    }
    fn set(
        &mut self,
        _key: String,
        _value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), wit::types::Failure>> {
        Ok(Ok(()))
    }
    fn delete(&mut self, _key: String) -> wasmtime::Result<Result<(), wit::types::Failure>> {
        Ok(Ok(()))
    }
    fn keys(
        &mut self,
        _prefix: String,
    ) -> wasmtime::Result<Result<Vec<String>, wit::types::Failure>> {
        Ok(Ok(Vec::new()))
    }
}

impl wit::config::Host for Bare {
    fn get(&mut self, _key: String) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }
    fn keys(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

impl wit::log::Host for Bare {
    fn write(&mut self, _level: String, _message: String) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl tool::checkrein::plugin::secrets::Host for Bare {
    fn get(&mut self, _name: String) -> wasmtime::Result<Result<String, wit::types::Failure>> {
        Ok(Ok(String::new()))
    }
}
