//! Wasmtime lives here and nowhere else: engines, compiled components, limits, instances, and the door.
//!
//! One run is one store, in one slot of the executor, charged to one node of the tree. What a guest asks for
//! goes through the door; what it can get hold of hangs on its store and goes with it.
//!
//! What holds:
//!
//! 1. A store is entered once. However the call ends, the store is dropped and never entered again.
//! 2. Every host call looks at the stop before anything else, WASI calls included.
//! 3. A limit that is reached is named: by the outcome when it ended the run, and by the report in every case.
//! 4. A guest that breaks off ends its own run and nothing else.
//! 5. Where a run is, in this process or in one of its own, is a property of its code: who starts it need not know.
//!
//! Not here: what a session, a model or a tool name is. Those are asked for upward, through [`AgentHost`] and
//! [`ToolHost`].

mod abi;
mod compile;
mod delegate;
mod door;
mod engine;
mod figures;
mod guest;
mod instance;
mod interfaces;
mod limits;
mod meter;
mod outcome;
mod purse;
mod reach;
#[allow(clippy::module_inception, reason = "the room's main type has the room's name")]
mod sandbox;
mod upward;
mod wasi;
mod weigh;
mod worker;

pub use compile::*;
pub use delegate::{
    ChildTask, DelegateOutcome, DelegateRequest, DelegationCapacity, TaskResult, UnitStatus,
};
pub use engine::*;
pub use figures::{KindFigures, RunFigures};
pub use instance::{Run, Start};
pub use interfaces::{Age, Interfaces, InterfacesError, Item, ItemKind, Misfit, World};
pub(crate) use limits::lower;
pub use limits::{LimitKind, Limits, Reached};
pub use meter::Used;
pub use outcome::{Outcome, Report, Trapped};
pub use purse::{LeftOver, Purse};
pub use reach::{Access, Addresses, Directory, Endpoint, Reach, Share};
pub use sandbox::{AgentCode, CodeError, Sandbox, SandboxError, SandboxSettings, ToolCode};
pub use upward::{AgentHost, PluginHost, Task, ToolHost, Waiting};
pub use wasi::Names;
pub use worker::{Isolation, WorkerSettings, worker_main};
