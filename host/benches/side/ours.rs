//! checkrein with the smallest side above that a run can have.

use std::sync::Arc;

use checkrein::message::{Failure, FailureCode, Message, ToolCall, ToolResult, ToolSpec};
use checkrein::model::{Request, Response, Spent};
use checkrein::sandbox::{
    AgentCode, AgentHost, CompileLimits, Compiler, DelegateOutcome, DelegateRequest,
    DelegationCapacity, EngineSettings, Engines, Limits, Loader, PluginHost, Pool, Purse, Reach,
    Run, Sandbox, SandboxSettings, Start, Task, UnitStatus, Waiting,
};
use checkrein::work::{Kind, Tree, Work};

/// What a run asks, answered at once.
pub(crate) struct Above {
    goal: String,
}

impl PluginHost for Above {
    fn config(&self, _key: &str) -> Option<String> {
        None
    }
    fn config_keys(&self) -> Vec<String> {
        Vec::new()
    }
    fn log(&self, _level: &str, _message: &str) {}
}

impl AgentHost for Above {
    fn task(&self) -> Task {
        Task { goal: self.goal.clone(), ..Task::default() }
    }
    fn checkpoint(&self, _name: String) -> Waiting<()> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn complete(&self, _request: Request, _spent: Spent) -> Waiting<Response> {
        Box::pin(std::future::pending())
    }
    fn tools(&self) -> Result<Vec<ToolSpec>, Failure> {
        Ok(Vec::new())
    }
    fn call_tool(&self, _call: ToolCall) -> Waiting<ToolResult> {
        Box::pin(std::future::ready(Err(none())))
    }
    fn history(&self, _limit: u32) -> Result<Vec<Message>, Failure> {
        Ok(Vec::new())
    }
    fn emit(&self, _kind: &str, _payload: &str) -> Result<(), Failure> {
        Ok(())
    }
    fn memory_get(&self, _key: &str) -> Result<Option<Vec<u8>>, Failure> {
        Ok(None)
    }
    fn memory_set(&self, _key: &str, _value: Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }
    fn memory_delete(&self, _key: &str) -> Result<(), Failure> {
        Ok(())
    }
    fn memory_keys(&self, _prefix: &str) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }
    fn delegation_capacity(&self) -> Result<DelegationCapacity, Failure> {
        Err(none())
    }
    fn delegate(&self, _request: DelegateRequest, _purse: Purse) -> Waiting<DelegateOutcome> {
        Box::pin(std::future::ready(Err(none())))
    }
    fn delegations(&self, _ids: Vec<String>) -> Result<Vec<UnitStatus>, Failure> {
        Ok(Vec::new())
    }
    fn delegation_ended(&self, _ids: Vec<String>) -> Waiting<UnitStatus> {
        Box::pin(std::future::ready(Err(none())))
    }
    fn stop_delegations(&self, _ids: Vec<String>, _message: &str) -> Result<u32, Failure> {
        Err(none())
    }
}

fn none() -> Failure {
    Failure::new(FailureCode::Unavailable, "there is none here")
}

/// A sandbox with its tree.
pub(crate) struct Ours {
    /// All work.
    pub(crate) tree: Tree,
    /// Its root.
    pub(crate) root: Work,
    /// The sandbox.
    pub(crate) sandbox: Sandbox,
    /// The engines.
    pub(crate) engines: Engines,
    reach: Arc<Reach>,
}

impl Ours {
    /// A sandbox whose timers live on that runtime.
    pub(crate) fn new(control: tokio::runtime::Handle, slots: u32) -> Ours {
        Ours::with(control, slots, &SandboxSettings::default())
    }

    /// The same with other settings.
    pub(crate) fn with(
        control: tokio::runtime::Handle,
        slots: u32,
        settings: &SandboxSettings,
    ) -> Ours {
        let engines =
            Engines::new(&EngineSettings { pool: Pool::Slots(slots) }).expect("an engine");
        let loader =
            Loader::new(engines.clone(), Compiler::in_process(CompileLimits::default()), None);
        let (tree, root) = Tree::new("bench");
        let sandbox =
            Sandbox::new(&tree, control, engines.clone(), loader, settings).expect("a sandbox");
        Ours { tree, root, sandbox, engines, reach: Arc::new(Reach::default()) }
    }

    /// Starts a run.
    pub(crate) fn start(&self, code: &AgentCode, goal: &str) -> Run<String> {
        self.start_on(self.root.open(Kind::Turn, "bench").expect("the root is open"), code, goal)
    }

    /// Starts a run that is charged to `work`.
    pub(crate) fn start_on(&self, work: Work, code: &AgentCode, goal: &str) -> Run<String> {
        let host = Arc::new(Above { goal: goal.to_owned() }) as Arc<dyn AgentHost>;
        let limits = Limits { wall_time: None, ..Limits::default() };
        self.sandbox.run_agent(code, Start { work, limits, reach: Arc::clone(&self.reach), host })
    }
}
