//! A host that tools are called in under test.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Serialize;
use serde_json::Value;

use super::agent::to_json;
use crate::host::ToolHost;
use crate::{Failure, Level, Tool, ToolContext, ToolSpec, tool};

/// Configuration and secrets for calls of tools, and the log that they write.
#[derive(Debug, Clone, Default)]
pub struct ToolTest {
    host: Rc<FakeHost>,
}

impl ToolTest {
    /// Without configuration and without secrets.
    pub fn new() -> ToolTest {
        ToolTest::default()
    }

    /// A value of the configuration.
    ///
    /// # Panics
    /// When the value cannot be written as JSON.
    #[must_use]
    pub fn config(self, key: impl Into<String>, value: impl Serialize) -> ToolTest {
        self.host.config.borrow_mut().insert(key.into(), to_json(&value));
        self
    }

    /// A secret that the plugin was granted. Asking for another one gives `denied`.
    #[must_use]
    pub fn secret(self, name: impl Into<String>, value: impl Into<String>) -> ToolTest {
        self.host.secrets.borrow_mut().insert(name.into(), value.into());
        self
    }

    /// Calls a tool with arguments in JSON, as a host does.
    ///
    /// # Errors
    /// Those of the tool, and `invalid` when the arguments do not fit.
    pub fn call<T: Tool>(&self, arguments: impl Serialize) -> Result<String, Failure> {
        tool::call::<T>(&to_json(&arguments).to_string(), &self.context())
    }

    /// The context for a direct call: `MyTool::call(arguments, &test.context())`.
    pub fn context(&self) -> ToolContext {
        ToolContext::new(Rc::clone(&self.host) as _)
    }

    /// What the tool says about itself.
    pub fn describe<T: Tool>() -> ToolSpec {
        tool::describe::<T>()
    }

    /// The lines that were logged so far.
    pub fn log(&self) -> Vec<(Level, String)> {
        self.host.log.borrow().clone()
    }
}

#[derive(Debug, Default)]
struct FakeHost {
    config: RefCell<BTreeMap<String, Value>>,
    secrets: RefCell<BTreeMap<String, String>>,
    log: RefCell<Vec<(Level, String)>>,
}

impl ToolHost for FakeHost {
    fn config(&self, key: &str) -> Option<String> {
        self.config.borrow().get(key).map(Value::to_string)
    }

    fn config_keys(&self) -> Vec<String> {
        self.config.borrow().keys().cloned().collect()
    }

    fn secret(&self, name: &str) -> Result<String, Failure> {
        match self.secrets.borrow().get(name) {
            Some(value) => Ok(value.clone()),
            None => Err(Failure::denied(format!("this test grants no secret `{name}`"))),
        }
    }

    fn log(&self, level: Level, message: &str) {
        self.log.borrow_mut().push((level, message.to_owned()));
    }
}
