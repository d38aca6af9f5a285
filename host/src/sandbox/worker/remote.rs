//! The side above, as the guest of a worker finds it: what it asks goes to the host as frames.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;

use super::frame::{Answered, Ask, Asking, FromWorker, Reply, encode};
use crate::message::{Failure, FailureCode, Message, ToolCall, ToolResult, ToolSpec};
use crate::model::{Request, Response, Spent};
use crate::sandbox::delegate::{DelegateOutcome, DelegateRequest, DelegationCapacity, UnitStatus};
use crate::sandbox::meter::Meter;
use crate::sandbox::purse::Purse;
use crate::sandbox::upward::{AgentHost, PluginHost, Task, ToolHost, Waiting};
use crate::sandbox::wasi::Names;
use crate::work::{Kind, StopSignal, Work};

/// What is written to the host.
pub(super) enum Out {
    /// One frame among others.
    Frame(Vec<u8>),
    /// The last frame.
    Last(Vec<u8>),
}

/// The talk with the host. Clones are the same talk.
#[derive(Clone)]
pub(super) struct Line {
    to: mpsc::Sender<Out>,
    calls: Arc<Mutex<Calls>>,
    meter: Arc<Meter>,
    signal: StopSignal,
}

/// The calls that the host has not answered.
#[derive(Default)]
struct Calls {
    last: u64,
    open: HashMap<u64, Waiter>,
    /// A hard stop has come: nothing is answered any more.
    closed: bool,
}

/// Who waits for an answer.
enum Waiter {
    /// The guest's own thread.
    Now(mpsc::SyncSender<Answer>),
    /// A call that can be left early, with a hold on what it is in the tree.
    Later(oneshot::Sender<Answer>, Option<Work>),
    /// Nobody any more. The hold stays until the host says that nothing of the call is left.
    Nobody { _held: Option<Work> },
}

type Answer = Result<Reply, Failure>;

impl Line {
    pub(super) fn new(to: mpsc::Sender<Out>, meter: Arc<Meter>, signal: StopSignal) -> Line {
        Line { to, calls: Arc::default(), meter, signal }
    }

    /// Says something. Where nobody listens any more, the host is gone and this process ends of it.
    pub(super) fn say(&self, said: &FromWorker) {
        if let Ok(frame) = encode(said) {
            self.to.send(Out::Frame(frame)).ok();
        }
    }

    /// Says the last thing.
    pub(super) fn end(&self, said: &FromWorker) -> io::Result<()> {
        self.to.send(Out::Last(encode(said)?)).map_err(io::Error::other)
    }

    /// An answer has come.
    pub(super) fn hear(&self, answered: Answered) {
        let Answered { call, answer, tokens, fuel: (out, back) } = answered;
        self.meter.tell_tokens(tokens);
        self.meter.hand_out_fuel(out);
        self.meter.take_back_fuel(back);
        let waiter = self.lock().open.remove(&call);
        // A waiter that is gone by now has been told of something else.
        match waiter {
            Some(Waiter::Now(waiter)) => drop(waiter.send(answer)),
            Some(Waiter::Later(waiter, _held)) => drop(waiter.send(answer)),
            Some(Waiter::Nobody { .. }) | None => {}
        }
    }

    /// Nothing is answered any more: the run is stopped hard.
    pub(super) fn close(&self) {
        let open = {
            let mut calls = self.lock();
            calls.closed = true;
            std::mem::take(&mut calls.open)
        };
        drop(open);
    }

    /// Asks, and waits on this thread, which is the guest's. A hard stop ends the wait.
    fn now<T: TryFrom<Reply, Error = Failure>>(&self, ask: Ask) -> Result<T, Failure> {
        let (waiter, answer) = mpsc::sync_channel(1);
        self.ask(ask, Waiter::Now(waiter))?;
        answer.recv().unwrap_or_else(|_| Err(stopped()))?.try_into()
    }

    /// Asks, and leaves the wait to whoever polls. Dropping it gives the call up.
    fn later<T: TryFrom<Reply, Error = Failure> + Send + 'static>(
        &self,
        ask: Ask,
        held: Option<Work>,
    ) -> Waiting<T> {
        let (waiter, answer) = oneshot::channel();
        match self.ask(ask, Waiter::Later(waiter, held)) {
            Ok(call) => {
                let open = Open { line: self.clone(), call };
                async move {
                    let answer = answer.await.unwrap_or_else(|_| Err(stopped()));
                    drop(open);
                    answer?.try_into()
                }
                .boxed()
            }
            Err(failure) => std::future::ready(Err(failure)).boxed(),
        }
    }

    fn ask(&self, ask: Ask, waiter: Waiter) -> Result<u64, Failure> {
        let mut calls = self.lock();
        if calls.closed {
            return Err(stopped());
        }
        calls.last += 1;
        let call = calls.last;
        calls.open.insert(call, waiter);
        drop(calls);
        let (used, stopped) = (self.meter.tally(), self.signal.is_raised());
        self.say(&FromWorker::Call(Asking { call, ask, used, stopped }));
        Ok(call)
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that may be given up.
struct Open {
    line: Line,
    call: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut calls = self.line.lock();
        let Some(waiter) = calls.open.get_mut(&self.call) else { return };
        if let Waiter::Later(_, held) = waiter {
            *waiter = Waiter::Nobody { _held: held.take() };
        }
        drop(calls);
        self.line.say(&FromWorker::Cancel { call: self.call });
    }
}

fn stopped() -> Failure {
    Failure::new(FailureCode::Interrupted, "the run is stopped")
}

/// The host, as the guest of this worker can ask it.
pub(super) struct Remote {
    pub(super) line: Line,
    pub(super) work: Work,
    pub(super) task: Task,
    pub(super) configuration: BTreeMap<String, String>,
}

impl Remote {
    /// What a call is in the tree of this process, so that it is waited for when it is given up.
    fn held(&self, kind: Kind, label: &str) -> Option<Work> {
        self.work.open(kind, label).ok()
    }
}

impl PluginHost for Remote {
    fn config(&self, key: &str) -> Option<String> {
        self.configuration.get(key).cloned()
    }

    fn config_keys(&self) -> Vec<String> {
        self.configuration.keys().cloned().collect()
    }

    fn log(&self, level: &str, message: &str) {
        let (level, message) = (level.to_owned(), message.to_owned());
        self.line.say(&FromWorker::Log { level, message });
    }
}

impl ToolHost for Remote {
    fn secret(&self, name: &str) -> Result<String, Failure> {
        self.line.now(Ask::Secret { name: name.to_owned() })
    }
}

impl AgentHost for Remote {
    fn task(&self) -> Task {
        self.task.clone()
    }

    fn checkpoint(&self, name: String) -> Waiting<()> {
        self.line.later(Ask::Checkpoint { name }, None)
    }

    // What it costs is counted by the host.
    fn complete(&self, request: Request, _spent: Spent) -> Waiting<Response> {
        let held = self.held(Kind::ModelRequest, request.model.as_deref().unwrap_or_default());
        self.line.later(Ask::Complete(request.into()), held)
    }

    fn tools(&self) -> Result<Vec<ToolSpec>, Failure> {
        self.line.now(Ask::Tools)
    }

    fn call_tool(&self, call: ToolCall) -> Waiting<ToolResult> {
        let held = self.held(Kind::ToolCall, &call.name);
        self.line.later(Ask::CallTool(call), held)
    }

    fn history(&self, limit: u32) -> Result<Vec<Message>, Failure> {
        self.line.now(Ask::History { limit })
    }

    fn emit(&self, kind: &str, payload: &str) -> Result<(), Failure> {
        self.line.now(Ask::Emit { kind: kind.to_owned(), payload: payload.to_owned() })
    }

    fn memory_get(&self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.line.now(Ask::MemoryGet { key: key.to_owned() })
    }

    fn memory_set(&self, key: &str, value: Vec<u8>) -> Result<(), Failure> {
        self.line.now(Ask::MemorySet { key: key.to_owned(), value })
    }

    fn memory_delete(&self, key: &str) -> Result<(), Failure> {
        self.line.now(Ask::MemoryDelete { key: key.to_owned() })
    }

    fn memory_keys(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        self.line.now(Ask::MemoryKeys { prefix: prefix.to_owned() })
    }

    fn delegation_capacity(&self) -> Result<DelegationCapacity, Failure> {
        self.line.now(Ask::Capacity)
    }

    // The host pays the children from its own purse, and tells of it with the answer.
    fn delegate(&self, request: DelegateRequest, _purse: Purse) -> Waiting<DelegateOutcome> {
        self.line.later(Ask::Delegate(request), None)
    }

    fn delegations(&self, ids: Vec<String>) -> Result<Vec<UnitStatus>, Failure> {
        self.line.now(Ask::Delegations { ids })
    }

    fn delegation_ended(&self, ids: Vec<String>) -> Waiting<UnitStatus> {
        self.line.later(Ask::DelegationEnded { ids }, None)
    }

    fn stop_delegations(&self, ids: Vec<String>, message: &str) -> Result<u32, Failure> {
        self.line.now(Ask::StopDelegations { ids, message: message.to_owned() })
    }
}

/// Looks names up as the host does.
pub(super) struct AskNames(pub(super) Line);

impl Names for AskNames {
    fn look_up(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let found = self.0.later(Ask::LookUp { host: host.to_owned() }, None);
        async move { found.await.map_err(|failure| io::Error::other(failure.message)) }.boxed()
    }
}
