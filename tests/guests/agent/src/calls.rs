//! One call of each import of the world `agent`, by its name in the WIT.

use checkrein_guest::prelude::*;

/// Calls that import once, and does not care what it answers.
pub(crate) fn call(run: &Run, import: &str) {
    match import {
        "run.current-task" => drop(run.task()),
        "run.budgets" => drop(run.budgets()),
        "run.stop-requested" => drop(run.stop_requested()),
        "run.checkpoint" => drop(run.checkpoint("free")),
        "run.sleep" => drop(run.sleep(Duration::ZERO)),
        "model.complete" => drop(run.complete(Request::ask("anything"))),
        "tools.list-tools" => drop(run.tools()),
        "tools.call" => drop(run.call([])),
        "delegate.capacity" => drop(run.delegation_capacity()),
        "delegate.run" => {
            drop(run.delegate(DelegateRequest::new(vec![ChildTask::new("anything")])))
        }
        "delegate.status" => drop(run.delegations(&[])),
        "delegate.wait" => drop(run.wait(&["d1".to_owned()])),
        "delegate.stop" => drop(run.stop(&["d1".to_owned()], "enough")),
        "session.history" => drop(run.history(10)),
        "session.emit" => drop(run.emit("note", json!({}))),
        "session.get" => drop(run.memory_get_bytes("key")),
        "session.set" => drop(run.memory_set_bytes("key", b"value")),
        "session.delete" => drop(run.memory_delete("key")),
        "session.keys" => drop(run.memory_keys("")),
        "config.get" => drop(config_get("key")),
        "config.keys" => drop(config_keys()),
        "log.write" => run.log(Level::Debug, ""),
        _ => panic!("there is no import `{import}`"),
    }
}

/// Publishes an event whose payload is this text, JSON or not.
#[cfg(target_arch = "wasm32")]
pub(crate) fn emit(kind: &str, payload: &str) -> Result<(), Failure> {
    checkrein_guest::__private::agent::checkrein::plugin::session::emit(kind, payload)
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn emit(_kind: &str, _payload: &str) -> Result<(), Failure> {
    Ok(())
}

#[cfg(target_arch = "wasm32")]
use checkrein_guest::__private::agent::checkrein::plugin::config::{
    get as config_get, keys as config_keys,
};

#[cfg(not(target_arch = "wasm32"))]
fn config_get(_key: &str) {}

#[cfg(not(target_arch = "wasm32"))]
fn config_keys() {}
