//! The imports of a component, behind the traits of [`host`](crate::host).

use crate::bindings::agent::checkrein::plugin as agent;
use crate::bindings::tool::checkrein::plugin as tool;
use crate::host::{AgentHost, ToolHost};
use crate::{
    Budget, DelegateOutcome, DelegateRequest, DelegationCapacity, Failure, Level, Message, Request,
    Response, Stop, Task, ToolCall, ToolResult, ToolSpec, UnitStatus,
};

/// The door of the component that this code is part of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Door;

impl AgentHost for Door {
    fn task(&self) -> Task {
        agent::run::current_task()
    }

    fn budgets(&self) -> Vec<Budget> {
        agent::run::budgets()
    }

    fn stop_requested(&self) -> Option<Stop> {
        agent::run::stop_requested()
    }

    fn checkpoint(&self, name: &str) -> Result<(), Failure> {
        agent::run::checkpoint(name)
    }

    fn sleep(&self, milliseconds: u64) -> Result<(), Failure> {
        agent::run::sleep(milliseconds)
    }

    fn complete(&self, request: &Request) -> Result<Response, Failure> {
        agent::model::complete(request)
    }

    fn list_tools(&self) -> Result<Vec<ToolSpec>, Failure> {
        agent::tools::list_tools()
    }

    fn call(&self, calls: &[ToolCall]) -> Result<Vec<ToolResult>, Failure> {
        agent::tools::call(calls)
    }

    fn delegation_capacity(&self) -> Result<DelegationCapacity, Failure> {
        agent::delegate::capacity()
    }

    fn delegate(&self, request: &DelegateRequest) -> Result<DelegateOutcome, Failure> {
        agent::delegate::run(request)
    }

    fn delegations(&self, ids: &[String]) -> Result<Vec<UnitStatus>, Failure> {
        agent::delegate::status(ids)
    }

    fn wait(&self, ids: &[String]) -> Result<UnitStatus, Failure> {
        agent::delegate::wait(ids)
    }

    fn stop(&self, ids: &[String], message: &str) -> Result<u32, Failure> {
        agent::delegate::stop(ids, message)
    }

    fn history(&self, limit: u32) -> Result<Vec<Message>, Failure> {
        agent::session::history(limit)
    }

    fn emit(&self, kind: &str, payload: &str) -> Result<(), Failure> {
        agent::session::emit(kind, payload)
    }

    fn memory_get(&self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        agent::session::get(key)
    }

    fn memory_set(&self, key: &str, value: &[u8]) -> Result<(), Failure> {
        agent::session::set(key, value)
    }

    fn memory_delete(&self, key: &str) -> Result<(), Failure> {
        agent::session::delete(key)
    }

    fn memory_keys(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        agent::session::keys(prefix)
    }

    fn config(&self, key: &str) -> Option<String> {
        agent::config::get(key)
    }

    fn config_keys(&self) -> Vec<String> {
        agent::config::keys()
    }

    fn log(&self, level: Level, message: &str) {
        agent::log::write(level.as_str(), message);
    }
}

impl ToolHost for Door {
    fn config(&self, key: &str) -> Option<String> {
        tool::config::get(key)
    }

    fn config_keys(&self) -> Vec<String> {
        tool::config::keys()
    }

    fn secret(&self, name: &str) -> Result<String, Failure> {
        tool::secrets::get(name)
    }

    fn log(&self, level: Level, message: &str) {
        tool::log::write(level.as_str(), message);
    }
}
