//! What a guest can ask for, as this room passes it upward. The session implements these.
//!
//! Every method is called by the door and by nothing else. A method that waits gives a future of its own; the
//! door drops it when the wait is interrupted, so dropping it must end what it does.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::delegate::{DelegateOutcome, DelegateRequest, DelegationCapacity, UnitStatus};
use super::purse::Purse;
use crate::message::{Failure, Message, ToolCall, ToolResult, ToolSpec};
use crate::model::{Request, Response, Spent};
use crate::work::StopKind;

/// A wait that the door may drop.
pub type Waiting<T> = BoxFuture<'static, Result<T, Failure>>;

/// What an agent's store knows of the side above. A type with a name, because the engine's futures must be `Send`
/// for every lifetime that a bare `dyn` would bring into their type.
pub(super) struct ForAgent(pub(super) Arc<dyn AgentHost>);

/// What a tool's store knows of the side above.
pub(super) struct ForTool(pub(super) Arc<dyn ToolHost>);

/// The side above a store, of whatever sort.
pub(super) trait Above: Send + Sync + 'static {
    /// The least stop by which a guest of this sort counts as interrupted. A tool cannot hear of a soft stop, so one
    /// that answers while its agent wraps up has simply answered.
    const HEEDS: StopKind;

    /// What every plugin can ask for.
    fn plugin(&self) -> &dyn PluginHost;
}

impl Above for ForAgent {
    const HEEDS: StopKind = StopKind::Soft;

    fn plugin(&self) -> &dyn PluginHost {
        &*self.0
    }
}

impl Above for ForTool {
    const HEEDS: StopKind = StopKind::Hard;

    fn plugin(&self) -> &dyn PluginHost {
        &*self.0
    }
}

/// What a run was asked to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The run's name.
    pub run_id: String,
    /// The session's name.
    pub session_id: String,
    /// The goal, in words.
    pub goal: String,
    /// JSON, or empty.
    pub input: String,
    /// The directories that the run's tools can reach, as the tools name them.
    pub directories: Vec<String>,
    /// How many delegations lie above.
    pub depth: u32,
}

/// What any plugin can ask for.
pub trait PluginHost: Send + Sync + 'static {
    /// One value of the plugin's configuration, as JSON.
    fn config(&self, key: &str) -> Option<String>;
    /// The keys of the plugin's configuration, sorted.
    fn config_keys(&self) -> Vec<String>;
    /// A line for the log. The level is one of the WIT's, or unknown.
    fn log(&self, level: &str, message: &str);
}

/// What a tool can ask for.
pub trait ToolHost: PluginHost {
    /// A secret that was granted.
    ///
    /// # Errors
    ///
    /// `denied` without a grant, `not-found` where there is none.
    fn secret(&self, name: &str) -> Result<String, Failure>;
}

/// What an agent can ask for.
pub trait AgentHost: PluginHost {
    /// What the run was asked to do.
    fn task(&self) -> Task;
    /// A named place was reached.
    fn checkpoint(&self, name: String) -> Waiting<()>;
    /// Asks a model, and notes in `spent` what the request has used as soon as that is known.
    fn complete(&self, request: Request, spent: Spent) -> Waiting<Response>;
    /// The tools of this run.
    ///
    /// # Errors
    ///
    /// When there is no telling.
    fn tools(&self) -> Result<Vec<ToolSpec>, Failure>;
    /// Calls a tool. Several calls may be at work at one time. A tool that fails is a result.
    fn call_tool(&self, call: ToolCall) -> Waiting<ToolResult>;
    /// The newest messages of the session; none for a child.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn history(&self, limit: u32) -> Result<Vec<Message>, Failure>;
    /// Publishes an event.
    ///
    /// # Errors
    ///
    /// `invalid` for a payload that is not JSON.
    fn emit(&self, kind: &str, payload: &str) -> Result<(), Failure>;
    /// Reads from the session's memory.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    fn memory_get(&self, key: &str) -> Result<Option<Vec<u8>>, Failure>;
    /// Writes into the session's memory.
    ///
    /// # Errors
    ///
    /// `too-large` for a key or a value over the limit.
    fn memory_set(&self, key: &str, value: Vec<u8>) -> Result<(), Failure>;
    /// Forgets a value.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    fn memory_delete(&self, key: &str) -> Result<(), Failure>;
    /// The keys with that prefix, sorted.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn memory_keys(&self, prefix: &str) -> Result<Vec<String>, Failure>;
    /// What the run may hand out now.
    ///
    /// # Errors
    ///
    /// `denied` without a grant, `limit` where no delegation may lie below the run.
    fn delegation_capacity(&self) -> Result<DelegationCapacity, Failure>;
    /// Hands tasks to children, which are paid from the purse. Those that run inside the call have ended when the
    /// wait is over. The door does not drop this wait for a soft stop, because the children carry it.
    fn delegate(&self, request: DelegateRequest, purse: Purse) -> Waiting<DelegateOutcome>;
    /// How units of the session stand; all that are open or unread when no names are given.
    ///
    /// # Errors
    ///
    /// `not-found` for a unit that the session does not own.
    fn delegations(&self, ids: Vec<String>) -> Result<Vec<UnitStatus>, Failure>;
    /// Waits until one of those units has ended.
    fn delegation_ended(&self, ids: Vec<String>) -> Waiting<UnitStatus>;
    /// Stops units of the session, and says how many runs the stop reached.
    ///
    /// # Errors
    ///
    /// `not-found` for a unit that the session does not own; then nothing was stopped.
    fn stop_delegations(&self, ids: Vec<String>, message: &str) -> Result<u32, Failure>;
}
