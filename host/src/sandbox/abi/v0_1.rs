//! `checkrein:plugin@0.1.0`: what its imports mean. Every function here is one pass through the door.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use wasmtime::component::{HasSelf, Linker};

use crate::message::{Failure, FailureCode, Message, Role, ToolCall, ToolResult, ToolSpec};
use crate::model::{Request, Response};
use crate::sandbox::delegate::{
    ChildTask, DelegateOutcome, DelegateRequest, DelegationCapacity, TaskResult, UnitStatus,
};
use crate::sandbox::door::{Answer, Door};
use crate::sandbox::guest::{AgentGuest, Guest, ToolGuest};
use crate::sandbox::limits::LimitKind;
use crate::sandbox::outcome::Ends;
use crate::sandbox::upward::{Above, AgentHost, ForAgent, Waiting};
use crate::sandbox::weigh::Weigh;

mod agent_bindings {
    //! Generated from the world `agent`.
    #![allow(missing_docs, unreachable_pub, missing_debug_implementations, reason = "generated")]
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "checkrein:plugin/agent@0.1.0",
        imports: {
            "checkrein:plugin/run.checkpoint": async | trappable,
            "checkrein:plugin/run.sleep": async | trappable,
            "checkrein:plugin/model.complete": async | trappable,
            "checkrein:plugin/tools.call": async | trappable,
            "checkrein:plugin/delegate.run": async | trappable,
            "checkrein:plugin/delegate.wait": async | trappable,
            default: trappable,
        },
        exports: { default: async },
    });
}

mod tool_bindings {
    //! Generated from the world `tool`; what both worlds share is shared here too.
    #![allow(missing_docs, unreachable_pub, missing_debug_implementations, reason = "generated")]
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "checkrein:plugin/tool@0.1.0",
        imports: { default: trappable },
        exports: { default: async },
        with: {
            "checkrein:plugin/types@0.1.0": super::agent_bindings::checkrein::plugin::types,
            "checkrein:plugin/config@0.1.0": super::agent_bindings::checkrein::plugin::config,
            "checkrein:plugin/log@0.1.0": super::agent_bindings::checkrein::plugin::log,
        },
    });
}

use agent_bindings::checkrein::plugin as wit;
pub(in crate::sandbox) use agent_bindings::{Agent, AgentPre};
pub(in crate::sandbox) use tool_bindings::{Tool, ToolPre};

/// Links what an agent imports.
pub(in crate::sandbox) fn link_agent(linker: &mut Linker<AgentGuest>) -> wasmtime::Result<()> {
    Agent::add_to_linker::<_, HasSelf<AgentGuest>>(linker, |guest| guest)
}

/// Links what a tool imports.
pub(in crate::sandbox) fn link_tool(linker: &mut Linker<ToolGuest>) -> wasmtime::Result<()> {
    Tool::add_to_linker::<_, HasSelf<ToolGuest>>(linker, |guest| guest)
}

type Said<T> = wasmtime::Result<Result<T, wit::types::Failure>>;

/// The guest's form of an answer, with the stop beside a failure that speaks of one.
fn said<T, U, H: Above>(door: &Door<H>, answer: Answer<T>, into: impl FnOnce(T) -> U) -> Said<U> {
    Ok(answer?.map(into).map_err(|failure| {
        let stop = door.stop_of(&failure).map(|stop| stop_record(&stop));
        wit::types::Failure {
            code: failure.code.as_str().to_owned(),
            message: failure.message,
            stop,
        }
    }))
}

/// An answer that has no way to say that it is too large: half of it would be worse than none, so the run ends.
fn whole<T>(answer: Answer<T>) -> wasmtime::Result<T> {
    answer?.map_err(|_| Ends::Limit(LimitKind::CallBytes).into())
}

fn stop_record(stop: &crate::work::Stop) -> wit::types::Stop {
    wit::types::Stop {
        kind: stop.kind().to_string(),
        message: stop.message().to_owned(),
        issuer: stop.issuer().to_owned(),
    }
}

/// A failure that a guest returned.
pub(in crate::sandbox) fn failure_of(failure: wit::types::Failure) -> Failure {
    Failure { code: FailureCode::parse(&failure.code), message: failure.message }
}

/// A tool as a guest describes it.
pub(in crate::sandbox) fn spec_of(spec: wit::types::ToolSpec) -> ToolSpec {
    let wit::types::ToolSpec { name, description, parameters, hints } = spec;
    ToolSpec { name, description, parameters, hints }
}

impl<H: Above> wit::types::Host for Guest<H> {}

impl<H: Above> wit::config::Host for Guest<H> {
    fn get(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        whole(self.door().pass("config.get", key.len(), |host| Ok(host.plugin().config(&key))))
    }

    fn keys(&mut self) -> wasmtime::Result<Vec<String>> {
        whole(self.door().pass("config.keys", 0, |host| Ok(host.plugin().config_keys())))
    }
}

impl<H: Above> wit::log::Host for Guest<H> {
    fn write(&mut self, level: String, message: String) -> wasmtime::Result<()> {
        self.door().log(&level, &message)
    }
}

impl tool_bindings::checkrein::plugin::secrets::Host for ToolGuest {
    fn get(&mut self, name: String) -> Said<String> {
        let answer = self.door().pass("secrets.get", name.len(), |host| host.0.secret(&name));
        said(self.door(), answer, |value| value)
    }
}

impl wit::run::Host for AgentGuest {
    fn current_task(&mut self) -> wasmtime::Result<wit::run::Task> {
        let task = whole(self.door().pass("run.current-task", 0, |host| Ok(host.0.task())))?;
        Ok(wit::run::Task {
            run_id: task.run_id,
            session_id: task.session_id,
            goal: task.goal,
            input: task.input,
            directories: task.directories,
            depth: task.depth,
        })
    }

    fn budgets(&mut self) -> wasmtime::Result<Vec<wit::run::Budget>> {
        let budgets = self.door().budgets()?;
        let bounded = budgets.into_iter().filter_map(|budget| {
            let limit = budget.limit?;
            let left = limit.saturating_sub(budget.used);
            Some(wit::run::Budget { name: budget.name.to_owned(), limit, left })
        });
        Ok(bounded.collect())
    }

    fn stop_requested(&mut self) -> wasmtime::Result<Option<wit::types::Stop>> {
        Ok(self.door().stop_requested()?.as_ref().map(stop_record))
    }

    async fn checkpoint(&mut self, name: String) -> Said<()> {
        let detail: Arc<str> = name.as_str().into();
        let bytes = name.len();
        let answer = self
            .door()
            .wait("run.checkpoint", Some(detail), bytes, |host| host.0.checkpoint(name))
            .await;
        said(self.door(), answer, |()| ())
    }

    async fn sleep(&mut self, milliseconds: u64) -> Said<()> {
        let wait = |_: &ForAgent| -> Waiting<()> {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                Ok(())
            })
        };
        let answer = self.door().wait("run.sleep", None, 0, wait).await;
        said(self.door(), answer, |()| ())
    }
}

impl wit::model::Host for AgentGuest {
    async fn complete(&mut self, request: wit::model::Request) -> Said<wit::model::Response> {
        self.door().check_tokens()?;
        let left = self.door().tokens_left();
        let detail: Option<Arc<str>> = request.model.as_deref().map(Into::into);
        let request = match request_of(request, left) {
            Ok(request) => request,
            Err(failure) => return refuse(self.door(), "model.complete", 0, failure),
        };
        let bytes = request.messages.weight() + request.tools.weight();
        let door = self.door();
        let ask = |host: &ForAgent| -> Waiting<Response> {
            // Opened where the request is made: one that a stop keeps from being made costs nothing.
            let bill = door.bill(bytes);
            let waiting = host.0.complete(request, bill.spent.clone());
            Box::pin(async move {
                let answer = waiting.await;
                if let Ok(response) = &answer {
                    bill.settle(response.usage, response.weight());
                }
                answer
            })
        };
        let answer = self.door().wait("model.complete", detail, bytes, ask).await;
        said(self.door(), answer, response_record)
    }
}

impl wit::tools::Host for AgentGuest {
    fn list_tools(&mut self) -> Said<Vec<wit::types::ToolSpec>> {
        let answer = self.door().pass("tools.list-tools", 0, |host| host.0.tools());
        said(self.door(), answer, |tools| tools.into_iter().map(spec_record).collect())
    }

    async fn call(
        &mut self,
        calls: Vec<wit::types::ToolCall>,
    ) -> Said<Vec<wit::types::ToolResult>> {
        let calls: Vec<ToolCall> = calls.into_iter().map(call_of).collect();
        let at_once = self.door().at_once(calls.len());
        let names: Vec<&str> = calls.iter().take(at_once).map(|call| call.name.as_str()).collect();
        let detail: Arc<str> = names.join(", ").into();
        let bytes = calls.weight();
        let ask = |host: &ForAgent| call_all(Arc::clone(&host.0), calls, at_once);
        let answer = self.door().wait("tools.call", Some(detail), bytes, ask).await;
        said(self.door(), answer, |results| results.into_iter().map(result_record).collect())
    }
}

/// Calls tools, so many at once, and gives their results in the order of the calls.
fn call_all(
    host: Arc<dyn AgentHost>,
    calls: Vec<ToolCall>,
    at_once: usize,
) -> Waiting<Vec<ToolResult>> {
    Box::pin(async move {
        let numbered = calls.into_iter().enumerate();
        let called =
            numbered.map(|(place, call)| host.call_tool(call).map(move |result| (place, result)));
        let mut results: Vec<_> =
            futures::stream::iter(called).buffer_unordered(at_once).collect().await;
        results.sort_unstable_by_key(|(place, _)| *place);
        results.into_iter().map(|(_, result)| result).collect()
    })
}

impl wit::session::Host for AgentGuest {
    fn history(&mut self, limit: u32) -> Said<Vec<wit::types::Message>> {
        let answer = self.door().pass("session.history", 0, |host| host.0.history(limit));
        said(self.door(), answer, |messages| messages.into_iter().map(message_record).collect())
    }

    fn emit(&mut self, kind: String, payload: String) -> Said<()> {
        let bytes = kind.len() + payload.len();
        let answer = self.door().pass("session.emit", bytes, |host| host.0.emit(&kind, &payload));
        said(self.door(), answer, |()| ())
    }

    fn get(&mut self, key: String) -> Said<Option<Vec<u8>>> {
        let answer = self.door().pass("session.get", key.len(), |host| host.0.memory_get(&key));
        said(self.door(), answer, |value| value)
    }

    fn set(&mut self, key: String, value: Vec<u8>) -> Said<()> {
        let bytes = key.len() + value.len();
        let answer = self.door().pass("session.set", bytes, |host| host.0.memory_set(&key, value));
        said(self.door(), answer, |()| ())
    }

    fn delete(&mut self, key: String) -> Said<()> {
        let answer =
            self.door().pass("session.delete", key.len(), |host| host.0.memory_delete(&key));
        said(self.door(), answer, |()| ())
    }

    fn keys(&mut self, prefix: String) -> Said<Vec<String>> {
        let answer =
            self.door().pass("session.keys", prefix.len(), |host| host.0.memory_keys(&prefix));
        said(self.door(), answer, |keys| keys)
    }
}

impl wit::delegate::Host for AgentGuest {
    fn capacity(&mut self) -> Said<wit::delegate::DelegationCapacity> {
        let answer = self.door().pass("delegate.capacity", 0, |host| host.0.delegation_capacity());
        said(self.door(), answer, capacity_record)
    }

    async fn run(&mut self, request: wit::delegate::Request) -> Said<wit::delegate::Outcome> {
        let request = delegation_of(request);
        let (bytes, detail) = (request.weight(), Arc::from(request.counted()));
        let ask = |host: &ForAgent, purse| host.0.delegate(request, purse);
        let answer = self.door().see_through("delegate.run", Some(detail), bytes, ask).await;
        said(self.door(), answer, outcome_record)
    }

    fn status(&mut self, ids: Vec<String>) -> Said<Vec<wit::delegate::UnitStatus>> {
        let bytes = ids.weight();
        let answer = self.door().pass("delegate.status", bytes, |host| host.0.delegations(ids));
        said(self.door(), answer, |units| units.into_iter().map(unit_record).collect())
    }

    async fn wait(&mut self, ids: Vec<String>) -> Said<wit::delegate::UnitStatus> {
        let (bytes, detail) = (ids.weight(), Arc::from(ids.join(", ")));
        let ask = |host: &ForAgent| host.0.delegation_ended(ids);
        let answer = self.door().wait("delegate.wait", Some(detail), bytes, ask).await;
        said(self.door(), answer, unit_record)
    }

    fn stop(&mut self, ids: Vec<String>, message: String) -> Said<u32> {
        let bytes = ids.weight() + message.len();
        let stop = |host: &ForAgent| host.0.stop_delegations(ids, &message);
        let answer = self.door().pass("delegate.stop", bytes, stop);
        said(self.door(), answer, |reached| reached)
    }
}

fn delegation_of(request: wit::delegate::Request) -> DelegateRequest {
    let task = |task: wit::delegate::ChildTask| ChildTask {
        goal: task.goal,
        input: task.input,
        agent: task.agent,
        tools: task.tools,
        limits: task.limits,
        group: task.group,
    };
    DelegateRequest {
        tasks: request.tasks.into_iter().map(task).collect(),
        mode: request.mode,
        independent_completions: request.independent_completions,
        policy: request.policy,
    }
}

fn capacity_record(capacity: DelegationCapacity) -> wit::delegate::DelegationCapacity {
    wit::delegate::DelegationCapacity {
        agents: capacity.agents,
        same_agent: capacity.same_agent,
        tasks_per_call: capacity.tasks_per_call,
        descendants_left: capacity.descendants_left,
        depth_left: capacity.depth_left,
        background: capacity.background,
    }
}

fn outcome_record(outcome: DelegateOutcome) -> wit::delegate::Outcome {
    let records = |results: Vec<TaskResult>| results.into_iter().map(task_record).collect();
    wit::delegate::Outcome {
        outcome: outcome.outcome,
        delegation_ids: outcome.delegation_ids,
        results: records(outcome.results),
        inline_results: records(outcome.inline_results),
        note: outcome.note,
    }
}

fn unit_record(unit: UnitStatus) -> wit::delegate::UnitStatus {
    let results = unit.results.into_iter().map(task_record).collect();
    wit::delegate::UnitStatus { id: unit.id, state: unit.state, results }
}

fn task_record(result: TaskResult) -> wit::delegate::TaskResult {
    let TaskResult { task, status, output, detail } = result;
    wit::delegate::TaskResult { task, status, output, detail }
}

/// Answers a call with a failure, through the door like every other answer.
fn refuse<U, H: Above>(
    door: &Door<H>,
    call: &'static str,
    bytes: usize,
    failure: Failure,
) -> Said<U> {
    said(door, door.pass(call, bytes, |_| Err::<Infallible, _>(failure)), |never| match never {})
}

/// The answer's bound under a token budget, where the guest names none: what is left may be far more than any model
/// can say at once.
const USUAL_OUTPUT: u32 = 8_192;

fn request_of(request: wit::model::Request, tokens_left: Option<u64>) -> Result<Request, Failure> {
    let messages = request.messages.into_iter().map(message_of).collect::<Result<_, _>>()?;
    let most = match tokens_left.map(|left| u32::try_from(left).unwrap_or(u32::MAX)) {
        Some(left) => Some(request.max_output_tokens.unwrap_or(USUAL_OUTPUT).min(left)),
        None => request.max_output_tokens,
    };
    Ok(Request {
        model: request.model,
        messages,
        tools: request.tools.into_iter().map(spec_of).collect(),
        max_output_tokens: most,
        temperature: request.temperature,
    })
}

fn message_of(message: wit::types::Message) -> Result<Message, Failure> {
    let Some(role) = Role::parse(&message.role) else {
        let words = format!(
            "{:?} is not the role of a message: use system, user, assistant or tool",
            message.role
        );
        return Err(Failure::new(FailureCode::Invalid, words));
    };
    let tool_calls = message.tool_calls.into_iter().map(call_of).collect();
    Ok(Message { role, text: message.text, tool_calls, tool_call_id: message.tool_call_id })
}

fn message_record(message: Message) -> wit::types::Message {
    wit::types::Message {
        role: message.role.as_str().to_owned(),
        text: message.text,
        tool_calls: message.tool_calls.into_iter().map(call_record).collect(),
        tool_call_id: message.tool_call_id,
    }
}

fn call_of(call: wit::types::ToolCall) -> ToolCall {
    ToolCall { id: call.id, name: call.name, arguments: call.arguments }
}

fn call_record(call: ToolCall) -> wit::types::ToolCall {
    wit::types::ToolCall { id: call.id, name: call.name, arguments: call.arguments }
}

fn result_record(result: ToolResult) -> wit::types::ToolResult {
    wit::types::ToolResult { id: result.id, status: result.status, content: result.content }
}

fn spec_record(spec: ToolSpec) -> wit::types::ToolSpec {
    let ToolSpec { name, description, parameters, hints } = spec;
    wit::types::ToolSpec { name, description, parameters, hints }
}

fn response_record(response: Response) -> wit::model::Response {
    wit::model::Response {
        message: message_record(response.message),
        finish: response.finish.as_str().to_owned(),
        usage: wit::model::Usage {
            input_tokens: response.usage.input_tokens,
            output_tokens: response.usage.output_tokens,
        },
        model: response.model,
    }
}
