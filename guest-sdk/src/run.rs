//! The run that an agent executes, and everything it can ask the host for.

use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host::AgentBackend;
#[cfg(target_arch = "wasm32")]
use crate::host::AgentHost as _;
use crate::{
    DelegateOutcome, DelegateRequest, DelegationCapacity, Failure, Level, Message, Request,
    Response, Stop, ToolCall, ToolResult, ToolSpec, UnitStatus, config,
};

/// What a run was asked to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Unique within the host, never reused.
    pub run_id: String,
    /// The session that the run belongs to.
    pub session_id: String,
    /// The goal, in words.
    pub goal: String,
    /// Further input: JSON, or an empty string.
    pub input: String,
    /// The directories that the tools of this run can reach, as the tools name them.
    pub directories: Vec<String>,
    /// How many delegations lie between this run and its turn: 0 for the turn itself.
    pub depth: u32,
}

impl Task {
    /// The further input as a type of yours; none when there is no input.
    ///
    /// # Errors
    /// `invalid` when the input does not fit the type.
    pub fn input_as<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        if self.input.trim().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&self.input).map(Some).map_err(|error| {
            Failure::invalid(format!("the input of this run does not fit: {error}"))
        })
    }
}

/// One budget of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// `fuel`, `wall-time` (milliseconds), `model-tokens`, `door-bytes`, `log-bytes`, `memory` (bytes).
    pub name: String,
    /// How much there was at the start.
    pub limit: u64,
    /// How much is left.
    pub left: u64,
}

/// The run that an agent executes: its task, and everything it can ask the host for.
///
/// Some calls can wait: [`checkpoint`](Run::checkpoint), [`sleep`](Run::sleep), [`complete`](Run::complete),
/// [`call`](Run::call), [`call_one`](Run::call_one), [`delegate`](Run::delegate) and [`wait`](Run::wait). When a soft
/// stop arrives, the one that is waiting, or the next one, fails with the code `interrupted` and carries the
/// [`Stop`]. From then on calls work again until the grace period ends, so that an agent can wrap up. Asking
/// [`stop_requested`](Run::stop_requested) counts as having noticed, too. All other calls are answered at once.
pub struct Run {
    host: AgentBackend,
}

impl Run {
    pub(crate) fn new(host: AgentBackend) -> Run {
        Run { host }
    }

    /// What this run was asked to do.
    pub fn task(&self) -> Task {
        self.host.task()
    }

    /// The budgets that have a limit, with what is left of each.
    pub fn budgets(&self) -> Vec<Budget> {
        self.host.budgets()
    }

    /// One budget by its name; none when it has no limit.
    pub fn budget(&self, name: &str) -> Option<Budget> {
        self.budgets().into_iter().find(|budget| budget.name == name)
    }

    /// The soft stop that this run carries, if it carries one. Asking counts as having noticed it: from then on
    /// calls work again until the grace period ends.
    pub fn stop_requested(&self) -> Option<Stop> {
        self.host.stop_requested()
    }

    /// Marks a named place in the run. The host shows it as the run's activity.
    ///
    /// # Errors
    /// `interrupted` when a soft stop arrived.
    pub fn checkpoint(&self, name: &str) -> Result<(), Failure> {
        self.host.checkpoint(name)
    }

    /// Waits. A stop ends the wait.
    ///
    /// # Errors
    /// `interrupted` when a soft stop arrived.
    pub fn sleep(&self, time: Duration) -> Result<(), Failure> {
        self.host.sleep(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// Asks a language model and waits for the whole answer. Whoever watches sees it grow meanwhile.
    ///
    /// # Errors
    /// `interrupted`, `denied` (no grant for that model), `limit` (no tokens left), `unavailable` (no model
    /// configured, or it does not answer), and others.
    pub fn complete(&self, request: impl Borrow<Request>) -> Result<Response, Failure> {
        self.host.complete(request.borrow())
    }

    /// The tools that this run was granted, sorted by name.
    ///
    /// # Errors
    /// Seldom: when the host cannot say.
    pub fn tools(&self) -> Result<Vec<ToolSpec>, Failure> {
        self.host.list_tools()
    }

    /// Calls several tools at once and waits for all of them. One result for each call, in the order of the
    /// calls; a tool that fails is a result, not a failure of this method. So many as the limit `calls-in-flight`
    /// says are at work at one time; the others wait for their turn.
    ///
    /// # Errors
    /// `interrupted`; `too-large` when the results are too much together.
    pub fn call(&self, calls: impl AsRef<[ToolCall]>) -> Result<Vec<ToolResult>, Failure> {
        self.host.call(calls.as_ref())
    }

    /// Calls one tool and gives its output.
    ///
    /// # Errors
    /// Those of [`call`](Run::call), and every result whose status is not `ok`
    /// (see [`ToolResult::into_output`]).
    pub fn call_one(&self, name: &str, arguments: impl Serialize) -> Result<String, Failure> {
        let call = ToolCall::new("1", name, &arguments)?;
        match self.host.call(&[call])?.pop() {
            Some(result) => result.into_output(),
            None => Err(Failure::failed(format!("the host gave no result for a call of `{name}`"))),
        }
    }

    /// What this run may hand to children now: to which agents, how many tasks at once and in all, how deep. Nothing is
    /// started.
    ///
    /// # Errors
    /// Why nothing: `denied` (no grant to delegate), `limit` (too deep), `unavailable` (this host does not delegate).
    pub fn delegation_capacity(&self) -> Result<DelegationCapacity, Failure> {
        self.host.delegation_capacity()
    }

    /// Hands tasks to child runs. Tasks that run inside the call have ended when this returns.
    ///
    /// # Errors
    /// `interrupted`, `denied` (no grant to delegate), `busy` (no capacity, and the request said to refuse),
    /// `unavailable` (this host does not delegate).
    pub fn delegate(
        &self,
        request: impl Borrow<DelegateRequest>,
    ) -> Result<DelegateOutcome, Failure> {
        self.host.delegate(request.borrow())
    }

    /// The state of units that this session owns; of all of them when `ids` is empty.
    ///
    /// # Errors
    /// `not-found` for an id that this session does not own; `unavailable` (this host does not delegate).
    pub fn delegations(&self, ids: &[String]) -> Result<Vec<UnitStatus>, Failure> {
        self.host.delegations(ids)
    }

    /// Waits until one of the units has ended.
    ///
    /// # Errors
    /// `interrupted` when a soft stop arrived; `invalid` when there is nothing to wait for.
    pub fn wait(&self, ids: &[String]) -> Result<UnitStatus, Failure> {
        self.host.wait(ids)
    }

    /// Stops units that this session owns, and says how many runs it reached. It does not stop this run: an agent
    /// ends by returning.
    ///
    /// # Errors
    /// `not-found` for an id that this session does not own; `unavailable` (this host does not delegate).
    pub fn stop(&self, ids: &[String], message: &str) -> Result<u32, Failure> {
        self.host.stop(ids, message)
    }

    /// The newest messages of the conversation, at most `limit` of them, oldest first. The task of this run is not
    /// among them. A child has a fresh context: for it there are none.
    ///
    /// # Errors
    /// Seldom: when the host cannot read the conversation.
    pub fn history(&self, limit: u32) -> Result<Vec<Message>, Failure> {
        self.host.history(limit)
    }

    /// Publishes an event to whoever watches the session.
    ///
    /// # Errors
    /// `too-large`, or `invalid` when the payload cannot be written as JSON.
    pub fn emit(&self, kind: &str, payload: impl Serialize) -> Result<(), Failure> {
        self.host.emit(kind, &serde_json::to_string(&payload)?)
    }

    /// Tells people what the run is doing.
    ///
    /// # Errors
    /// Those of [`emit`](Run::emit).
    pub fn progress(&self, text: &str) -> Result<(), Failure> {
        self.emit("progress", Text { text })
    }

    /// Reports what there is so far. The newest one is kept as the run's partial result, also when a hard stop
    /// ends the run.
    ///
    /// # Errors
    /// Those of [`emit`](Run::emit).
    pub fn partial(&self, text: &str) -> Result<(), Failure> {
        self.emit("partial", Text { text })
    }

    /// Reads a value of the session's memory, which outlives this run.
    ///
    /// # Errors
    /// `invalid` when the value is there but does not fit the type.
    pub fn memory_get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Failure> {
        match self.host.memory_get(key)? {
            Some(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| Failure::invalid(format!("memory `{key}` does not fit: {error}"))),
            None => Ok(None),
        }
    }

    /// Writes a value of the session's memory, as JSON. Keys have at most 256 bytes, values at most 64 KiB.
    ///
    /// # Errors
    /// `too-large`, or `invalid` when the value cannot be written as JSON.
    pub fn memory_set(&self, key: &str, value: impl Serialize) -> Result<(), Failure> {
        self.host.memory_set(key, &serde_json::to_vec(&value)?)
    }

    /// Reads the bytes of a value of the session's memory.
    ///
    /// # Errors
    /// Seldom: when the host cannot read the memory.
    pub fn memory_get_bytes(&self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.host.memory_get(key)
    }

    /// Writes a value of the session's memory as it is.
    ///
    /// # Errors
    /// `too-large`.
    pub fn memory_set_bytes(&self, key: &str, value: &[u8]) -> Result<(), Failure> {
        self.host.memory_set(key, value)
    }

    /// Forgets a value of the session's memory.
    ///
    /// # Errors
    /// Seldom: when the host cannot write the memory.
    pub fn memory_delete(&self, key: &str) -> Result<(), Failure> {
        self.host.memory_delete(key)
    }

    /// The keys of the session's memory that start with `prefix`, sorted.
    ///
    /// # Errors
    /// Seldom: when the host cannot read the memory.
    pub fn memory_keys(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        self.host.memory_keys(prefix)
    }

    /// What the operator configured for this plugin, as a type of yours.
    ///
    /// # Errors
    /// `invalid` when it does not fit the type.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        config::read(self.host.config_keys(), |key| self.host.config(key))
    }

    /// Writes a line to the operator's log.
    pub fn log(&self, level: Level, message: &str) {
        self.host.log(level, message);
    }

    /// Logs that something is wrong.
    pub fn error(&self, message: &str) {
        self.log(Level::Error, message);
    }

    /// Logs that something is odd.
    pub fn warn(&self, message: &str) {
        self.log(Level::Warn, message);
    }

    /// Logs what happens.
    pub fn info(&self, message: &str) {
        self.log(Level::Info, message);
    }

    /// Logs what happens, in detail.
    pub fn debug(&self, message: &str) {
        self.log(Level::Debug, message);
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}
