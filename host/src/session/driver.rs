//! What an agent's calls do: the session's side of the door for one run.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use tracing::Instrument;

use super::delegate::{capacity, delegate, result};
use super::event::{EventKind, MOST_PARTIAL, MOST_PAYLOAD};
use super::record::{Record, ToolAnswer};
use super::session::{Agent, Shared};
use super::span;
use crate::delegation::{DelegationId, Descendants, UnitView, UnknownUnit};
use crate::message::{Failure, FailureCode, Message, ToolCall, ToolResult, ToolSpec, Usage};
use crate::model::{Delta, ModelError, Request, Response, Spent};
use crate::sandbox::{
    AgentHost, DelegateOutcome, DelegateRequest, DelegationCapacity, Limits, PluginHost, Purse,
    Task, UnitStatus, Waiting,
};
use crate::store::{Body, Change};
use crate::work::{Kind, Refused, Stop, Work, spawn};

/// Bytes of the message of a stop that an agent gives.
const MOST_MESSAGE: usize = 4 << 10;

/// How much of a call's arguments an event shows.
const SHOWN: usize = 400;

/// Hears of the named places that runs reach, and may hold them there. For embedders that step through a run,
/// and for tests.
pub trait Checkpoints: Send + Sync {
    /// A run has reached a place; it goes on when the future is ready. A stop ends the wait.
    fn reached(&self, run: &str, name: &str) -> BoxFuture<'static, ()>;
}

/// Holds nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCheckpoints;

impl Checkpoints for NoCheckpoints {
    fn reached(&self, _run: &str, _name: &str) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

/// One run's view of its session. It lives in the run's store and goes with it, and with it its hold on the work.
pub(super) struct Driver {
    pub(super) work: Work,
    pub(super) task: Task,
    pub(super) run: Arc<str>,
    pub(super) agent: Arc<Agent>,
    pub(super) session: Arc<Shared>,
    pub(super) record: Arc<Record>,
    /// How much this run may use; its children may use no more.
    pub(super) limits: Limits,
    pub(super) descendants: Descendants,
    /// Counts its children, for their names.
    pub(super) children: Arc<AtomicU64>,
    /// It runs in a background unit, as its child or further below.
    pub(super) beside: bool,
}

impl Driver {
    fn publish(&self, kind: EventKind) {
        self.session.stream.publish(&self.run, kind);
    }

    /// Something has begun that watchers were told of; `lost` is what they hear if it is given up.
    fn open(&self, lost: EventKind) -> Open {
        Open { session: Arc::clone(&self.session), run: Arc::clone(&self.run), lost: Some(lost) }
    }

    /// Starts a request on the control runtime, so that its stream is read however busy the guests are.
    fn ask(&self, request: Request, spent: Spent) -> Result<Waiting<Response>, Failure> {
        let wanted = request.model.clone();
        let provider = self
            .agent
            .models
            .get(wanted.as_deref())
            .map_err(|unknown| Failure::new(FailureCode::NotFound, unknown.to_string()))?;
        let name = provider.name().to_owned();
        if !self.agent.plugged.effective.models.allows(&name) {
            let words = format!("the model `{name}` is not granted to this agent");
            return Err(Failure::new(FailureCode::Denied, words));
        }
        let work = self
            .work
            .open(Kind::ModelRequest, name.as_str())
            .map_err(|refused| not_started(&refused))?;
        let span = span::of_model_request(&self.session, &self.run, &name);
        let mut stream = provider.start(Request { model: None, ..request });
        let (session, run, record) =
            (Arc::clone(&self.session), Arc::clone(&self.run), Arc::clone(&self.record));
        self.publish(EventKind::ModelStarted { model: name });
        record.model_begins();
        let (finish, usage) = ("interrupted".to_owned(), Usage::default());
        let open = self.open(EventKind::ModelEnded { finish, usage, detail: None });
        let read = async move {
            let publish = |kind| session.stream.publish(&run, kind);
            // An endpoint may also refuse in the middle of its answer; what it has said by then it bills.
            let mut answering = false;
            let outcome = loop {
                match stream.next().await {
                    Some(Ok(Delta::Text(text))) => {
                        answering = true;
                        record.model_text(&text);
                        publish(EventKind::ModelText { text });
                    }
                    Some(Ok(Delta::ToolCall { name })) => {
                        answering = true;
                        publish(EventKind::ModelToolCall { tool: name });
                    }
                    Some(Ok(Delta::Retrying { attempt, reason, .. })) => {
                        publish(EventKind::ModelRetrying { attempt, reason });
                    }
                    Some(Ok(Delta::Used(usage))) => spent.set(usage),
                    Some(Ok(Delta::Done(response))) => break Ok(response),
                    Some(Err(error)) => {
                        if error.is_refusal() && !answering {
                            spent.refused();
                        }
                        break Err(failure_of(&error));
                    }
                    None => {
                        break Err(Failure::new(
                            FailureCode::Failed,
                            "the model's answer ended without an end",
                        ));
                    }
                }
            };
            let (finish, usage, detail) = match &outcome {
                Ok(response) => (response.finish.as_str().to_owned(), response.usage, None),
                Err(failure) => ("failed".to_owned(), spent.get(), Some(failure.message.clone())),
            };
            open.close(EventKind::ModelEnded { finish, usage, detail });
            outcome
        };
        let task = spawn(self.session.sandbox.control(), work, read.instrument(span));
        Ok(async move {
            task.await.unwrap_or_else(|| {
                Err(Failure::new(FailureCode::Failed, "the model request was stopped"))
            })
        }
        .boxed())
    }
}

impl PluginHost for Driver {
    fn config(&self, key: &str) -> Option<String> {
        self.agent.plugged.config(key)
    }

    fn config_keys(&self) -> Vec<String> {
        self.agent.plugged.config_keys()
    }

    fn log(&self, level: &str, message: &str) {
        let plugin = self.agent.plugged.name.to_string();
        self.publish(EventKind::Log { level: level.to_owned(), plugin, text: message.to_owned() });
        self.agent.plugged.log(level, message);
    }
}

impl AgentHost for Driver {
    fn task(&self) -> Task {
        self.task.clone()
    }

    fn checkpoint(&self, name: String) -> Waiting<()> {
        self.session.checkpoints.reached(&self.run, &name).map(Ok).boxed()
    }

    fn complete(&self, request: Request, spent: Spent) -> Waiting<Response> {
        self.ask(request, spent.clone()).unwrap_or_else(|failure| {
            spent.refused();
            std::future::ready(Err(failure)).boxed()
        })
    }

    fn tools(&self) -> Result<Vec<ToolSpec>, Failure> {
        Ok(self.agent.toolbox.specs())
    }

    fn call_tool(&self, call: ToolCall) -> Waiting<ToolResult> {
        let (id, tool) = (call.id.clone(), call.name.clone());
        let arguments = shortened(&call.arguments);
        self.publish(EventKind::ToolStarted { id: id.clone(), tool: tool.clone(), arguments });
        let started = Instant::now();
        let ended = {
            let (id, tool) = (id.clone(), tool.clone());
            move |status: &str, bytes, took| {
                let (id, tool) = (id.clone(), tool.clone());
                EventKind::ToolEnded { id, tool, status: status.to_owned(), bytes, took }
            }
        };
        let open = self.open(ended("interrupted", 0, Duration::ZERO));
        let record = Arc::clone(&self.record);
        // Kept when it is there, not when the guest comes for it: a stop may take the guest away before.
        let hears = move |status: &'static str, content: &str| {
            let answer = record.tool_answered(id, tool, status, content);
            open.close_with(ended(status, content.len(), started.elapsed()), answer);
        };
        let toolbox = &self.agent.toolbox;
        let known = toolbox.has(&call.name).then_some(call.name.as_str());
        let span = span::of_tool_call(&self.session, &self.run, known);
        let called = span.in_scope(|| toolbox.call(&self.session.sandbox, &self.work, call, hears));
        called.map(Ok).instrument(span).boxed()
    }

    fn history(&self, limit: u32) -> Result<Vec<Message>, Failure> {
        // The conversation is not that of a child, which knows its task and nothing else.
        if self.task.depth > 0 {
            return Ok(Vec::new());
        }
        // Beside the texts of its messages, an answer has room for what the door makes of them.
        let most = usize::try_from(self.agent.plugged.effective.limits.call_bytes / 2)
            .unwrap_or(usize::MAX);
        Ok(self.session.history(limit, most))
    }

    fn emit(&self, kind: &str, payload: &str) -> Result<(), Failure> {
        let bytes = kind.len() + payload.len();
        // A part of the result is one text and is kept once, in place of the one before.
        let most = if kind == "partial" { MOST_PARTIAL } else { MOST_PAYLOAD };
        if bytes > most {
            let words = format!(
                "an event of this kind has at most {most} bytes, not {bytes}: say less at once"
            );
            return Err(Failure::new(FailureCode::TooLarge, words));
        }
        let invalid = |words: String| Failure::new(FailureCode::Invalid, words);
        let payload: serde_json::Value = serde_json::from_str(payload)
            .map_err(|error| invalid(format!("the payload of the event is not JSON: {error}")))?;
        let text = |payload: &serde_json::Value| match payload
            .get("text")
            .and_then(serde_json::Value::as_str)
        {
            Some(text) => Ok(text.to_owned()),
            None => Err(invalid(format!("the payload of a `{kind}` event needs a `text`"))),
        };
        match kind {
            "progress" => self.publish(EventKind::Progress { text: text(&payload)? }),
            "partial" => {
                let text = text(&payload)?;
                self.record.partial(&text);
                self.publish(EventKind::Partial { text });
            }
            _ => self.publish(EventKind::Custom { kind: kind.to_owned(), payload }),
        }
        Ok(())
    }

    fn memory_get(&self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.session.memory.get(key))
    }

    fn memory_set(&self, key: &str, value: Vec<u8>) -> Result<(), Failure> {
        let stream = &self.session.stream;
        if stream.is_behind() {
            return Err(behind());
        }
        self.session.memory.set(key, value, |key, value| {
            stream.change(Change::Memory { key: key.to_owned(), value: Some(value.to_vec()) });
        })
    }

    fn memory_delete(&self, key: &str) -> Result<(), Failure> {
        self.session.memory.delete(key, || {
            self.session.stream.change(Change::Memory { key: key.to_owned(), value: None });
        });
        Ok(())
    }

    fn memory_keys(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        Ok(self.session.memory.keys(prefix))
    }

    fn delegation_capacity(&self) -> Result<DelegationCapacity, Failure> {
        capacity(self)
    }

    fn delegate(&self, request: DelegateRequest, purse: Purse) -> Waiting<DelegateOutcome> {
        // What is told of a delegation may not be left out.
        if self.session.stream.is_behind() {
            return std::future::ready(Err(behind())).boxed();
        }
        delegate(self, request, purse)
    }

    fn delegations(&self, ids: Vec<String>) -> Result<Vec<UnitStatus>, Failure> {
        let (ids, completions) = (units_of(&ids)?, &self.session.completions);
        // Before anything of it is copied.
        let (bytes, most) = (completions.weight(&ids).map_err(not_owned)?, self.limits.call_bytes);
        if bytes as u64 > most {
            let words = format!(
                "the results of these units have {bytes} bytes, and one call may carry {most}: ask for fewer units"
            );
            return Err(Failure::new(FailureCode::TooLarge, words));
        }
        let units = completions.status(&ids).map_err(not_owned)?;
        Ok(units.into_iter().map(unit_status).collect())
    }

    fn delegation_ended(&self, ids: Vec<String>) -> Waiting<UnitStatus> {
        let completions = self.session.completions.clone();
        async move {
            let ended = completions.ended(&units_of(&ids)?).await;
            ended.map(unit_status).map_err(not_owned)
        }
        .boxed()
    }

    fn stop_delegations(&self, ids: Vec<String>, message: &str) -> Result<u32, Failure> {
        let background = &self.session.background;
        if message.len() > MOST_MESSAGE {
            let words = format!(
                "the message of a stop has at most {MOST_MESSAGE} bytes, not {}",
                message.len()
            );
            return Err(Failure::new(FailureCode::TooLarge, words));
        }
        let stop = Stop::soft(&*self.run, message, background.grace);
        let stopped = self.session.completions.stop(&self.work.tree(), &units_of(&ids)?, &stop);
        Ok(u32::try_from(stopped.map_err(not_owned)?).unwrap_or(u32::MAX))
    }
}

/// The units that a guest names, each once.
fn units_of(ids: &[String]) -> Result<Vec<DelegationId>, Failure> {
    let parse = |id: &String| {
        id.parse().map_err(|error| {
            let words = format!("`{}`: {error}", shortened(id).escape_debug());
            Failure::new(FailureCode::NotFound, words)
        })
    };
    let named = ids.iter().map(parse).collect::<Result<Vec<DelegationId>, Failure>>()?;
    let mut seen = BTreeSet::new();
    Ok(named.into_iter().filter(|id| seen.insert(*id)).collect())
}

fn not_owned(unknown: UnknownUnit) -> Failure {
    let code = if unknown.id.is_some() { FailureCode::NotFound } else { FailureCode::Invalid };
    Failure::new(code, unknown.to_string())
}

fn unit_status(unit: UnitView) -> UnitStatus {
    UnitStatus {
        id: unit.id.to_string(),
        state: unit.state.as_str().to_owned(),
        results: unit.entries.into_iter().map(result).collect(),
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("run", &self.run).finish_non_exhaustive()
    }
}

/// Something that watchers were told the beginning of, and hear the end of whatever becomes of it.
struct Open {
    session: Arc<Shared>,
    run: Arc<str>,
    /// None once it has ended.
    lost: Option<EventKind>,
}

impl Open {
    fn close(mut self, ended: EventKind) {
        self.lost = None;
        self.session.stream.publish(&self.run, ended);
    }

    /// What a tool has answered is kept with the word of it, should the host not live to tell how the run ends.
    fn close_with(mut self, ended: EventKind, answer: Arc<ToolAnswer>) {
        self.lost = None;
        let kept = Change::Kept { run: Arc::clone(&self.run), body: Body::Later(answer) };
        self.session.stream.publish_with(&self.run, ended, kept);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            self.session.stream.publish(&self.run, lost);
        }
    }
}

fn behind() -> Failure {
    let words = "the store of the host does not write as fast as it is asked to; try again later";
    Failure::new(FailureCode::Unavailable, words)
}

fn not_started(refused: &Refused) -> Failure {
    Failure::new(FailureCode::Unavailable, format!("the model request was not started: {refused}"))
}

fn failure_of(error: &ModelError) -> Failure {
    Failure::new(error.code(), error.to_string())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
