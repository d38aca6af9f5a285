//! The host as a plugin reaches it: one trait for each world, and who stands behind it.
//!
//! In a component that is [`Door`](crate::door::Door), a type without size that calls the imports. It is known at
//! compile time, so a component imports exactly those functions that it uses. On every other target a fake host
//! of [`testing`](crate::testing) stands there.

use crate::{
    Budget, DelegateOutcome, DelegateRequest, DelegationCapacity, Failure, Level, Message, Request,
    Response, Stop, Task, ToolCall, ToolResult, ToolSpec, UnitStatus,
};

#[cfg(not(target_arch = "wasm32"))]
pub(crate) type AgentBackend = std::rc::Rc<dyn AgentHost>;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) type ToolBackend = std::rc::Rc<dyn ToolHost>;
#[cfg(target_arch = "wasm32")]
pub(crate) type AgentBackend = crate::door::Door;
#[cfg(target_arch = "wasm32")]
pub(crate) type ToolBackend = crate::door::Door;

/// What the world `agent` imports.
pub(crate) trait AgentHost {
    fn task(&self) -> Task;
    fn budgets(&self) -> Vec<Budget>;
    fn stop_requested(&self) -> Option<Stop>;
    fn checkpoint(&self, name: &str) -> Result<(), Failure>;
    fn sleep(&self, milliseconds: u64) -> Result<(), Failure>;
    fn complete(&self, request: &Request) -> Result<Response, Failure>;
    fn list_tools(&self) -> Result<Vec<ToolSpec>, Failure>;
    fn call(&self, calls: &[ToolCall]) -> Result<Vec<ToolResult>, Failure>;
    fn delegation_capacity(&self) -> Result<DelegationCapacity, Failure>;
    fn delegate(&self, request: &DelegateRequest) -> Result<DelegateOutcome, Failure>;
    fn delegations(&self, ids: &[String]) -> Result<Vec<UnitStatus>, Failure>;
    fn wait(&self, ids: &[String]) -> Result<UnitStatus, Failure>;
    fn stop(&self, ids: &[String], message: &str) -> Result<u32, Failure>;
    fn history(&self, limit: u32) -> Result<Vec<Message>, Failure>;
    fn emit(&self, kind: &str, payload: &str) -> Result<(), Failure>;
    fn memory_get(&self, key: &str) -> Result<Option<Vec<u8>>, Failure>;
    fn memory_set(&self, key: &str, value: &[u8]) -> Result<(), Failure>;
    fn memory_delete(&self, key: &str) -> Result<(), Failure>;
    fn memory_keys(&self, prefix: &str) -> Result<Vec<String>, Failure>;
    fn config(&self, key: &str) -> Option<String>;
    fn config_keys(&self) -> Vec<String>;
    fn log(&self, level: Level, message: &str);
}

/// What the world `tool` imports.
pub(crate) trait ToolHost {
    fn config(&self, key: &str) -> Option<String>;
    fn config_keys(&self) -> Vec<String>;
    fn secret(&self, name: &str) -> Result<String, Failure>;
    fn log(&self, level: Level, message: &str);
}
