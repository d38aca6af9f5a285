//! The host that stands behind a run under test.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::time::Duration;

use serde_json::Value;

use super::agent::AgentTest;
use super::report::{End, Report};
use crate::host::AgentHost;
use crate::{
    Budget, ChildTask, DelegateOutcome, DelegateRequest, DelegationCapacity, Failure, Level,
    Message, Request, Response, Stop, Task, TaskResult, ToolCall, ToolResult, ToolSpec, UnitStatus,
};

/// What unwinds an agent whose grace is used up. It is no panic: no message, no hook.
pub(super) struct HardStop(pub(super) Stop);

/// The script, and what the agent has done so far. Closures of the script run while neither is borrowed mutably, so
/// that they may do whatever a test wants.
pub(super) struct FakeHost {
    script: AgentTest,
    answered: RefCell<usize>,
    notice: RefCell<Notice>,
    units: RefCell<BTreeMap<String, Vec<TaskResult>>>,
    /// Children that were started.
    started: Cell<u64>,
    report: RefCell<Report>,
}

/// How far the agent is with its stop.
enum Notice {
    /// It has not noticed one.
    None,
    /// It has, and this many calls are left; none for no bound.
    Noticed { left: Option<usize> },
}

impl FakeHost {
    pub(super) fn new(script: AgentTest) -> FakeHost {
        let report = Report {
            end: End::Completed(String::new()),
            events: Vec::new(),
            requests: Vec::new(),
            tool_calls: Vec::new(),
            delegations: Vec::new(),
            checkpoints: Vec::new(),
            slept: Duration::ZERO,
            memory: script.memory.clone(),
            log: Vec::new(),
            waits: 0,
        };
        FakeHost {
            script,
            answered: RefCell::new(0),
            notice: RefCell::new(Notice::None),
            units: RefCell::new(BTreeMap::new()),
            started: Cell::new(0),
            report: RefCell::new(report),
        }
    }

    pub(super) fn report(&self, end: End) -> Report {
        Report { end, ..self.report.borrow().clone() }
    }

    /// The stop, once it is there.
    fn arrived(&self) -> Option<Stop> {
        let (after, stop) = self.script.stop.as_ref()?;
        (self.report.borrow().waits >= *after).then(|| stop.clone())
    }

    /// The door for calls that can wait: it tells an agent about its stop.
    fn wait_at_door(&self) -> Result<(), Failure> {
        let stop = self.arrived();
        self.pass_door();
        self.report.borrow_mut().waits += 1;
        match (stop, &mut *self.notice.borrow_mut()) {
            (Some(stop), notice @ Notice::None) => {
                *notice = Notice::Noticed { left: self.script.grace };
                Err(Failure::interrupted(stop))
            }
            (None, _) | (Some(_), Notice::Noticed { .. }) => Ok(()),
        }
    }

    /// The door for all calls: it counts the grace.
    fn pass_door(&self) {
        let mut notice = self.notice.borrow_mut();
        let Notice::Noticed { left: Some(left) } = &mut *notice else { return };
        match (left.checked_sub(1), self.arrived()) {
            (Some(less), _) => *left = less,
            (None, Some(stop)) => {
                resume_unwind(Box::new(HardStop(Stop { kind: "hard".to_owned(), ..stop })))
            }
            (None, None) => {}
        }
    }

    fn call_tool(&self, call: &ToolCall) -> ToolResult {
        let answer = match self.script.tools.get(&call.name) {
            None => Err(Failure::not_found(format!("this test has no tool `{}`", call.name))),
            Some((_, play)) => match serde_json::from_str(&call.arguments) {
                Ok(arguments @ Value::Object(_)) => play(arguments),
                _ => Err(Failure::invalid(format!("not a JSON object: {}", call.arguments))),
            },
        };
        let (status, content) = match answer {
            Ok(output) => ("ok".to_owned(), output),
            Err(Failure { code, message, .. }) => match code.as_str() {
                "denied" | "not-found" | "invalid" | "limit" | "trapped" | "interrupted" => {
                    (code, message)
                }
                _ => ("error".to_owned(), message),
            },
        };
        ToolResult { id: call.id.clone(), status, content }
    }

    /// What may be handed out now.
    fn capacity(&self) -> Result<DelegationCapacity, Failure> {
        let capacity = &self.script.capacity;
        if self.script.children.is_none() {
            return Err(no_children());
        }
        if capacity.agents.is_empty() {
            return Err(Failure::denied("handing tasks to other runs is not granted in this test"));
        }
        if capacity.depth_left == 0 {
            return Err(Failure::new(Failure::LIMIT, "no delegation may lie below this run"));
        }
        let descendants_left = capacity.descendants_left.saturating_sub(self.started.get());
        Ok(DelegationCapacity { descendants_left, ..capacity.clone() })
    }

    fn unit(&self, id: &str) -> Result<UnitStatus, Failure> {
        match self.units.borrow().get(id) {
            Some(results) => Ok(UnitStatus {
                id: id.to_owned(),
                state: "completed".to_owned(),
                results: results.clone(),
            }),
            None => Err(Failure::not_found(format!("this session has no unit `{id}`"))),
        }
    }
}

impl AgentHost for FakeHost {
    fn task(&self) -> Task {
        self.script.task.clone()
    }

    fn budgets(&self) -> Vec<Budget> {
        self.script.budgets.clone()
    }

    fn stop_requested(&self) -> Option<Stop> {
        let stop = self.arrived()?;
        let mut notice = self.notice.borrow_mut();
        if let Notice::None = *notice {
            *notice = Notice::Noticed { left: self.script.grace };
        }
        Some(stop)
    }

    fn checkpoint(&self, name: &str) -> Result<(), Failure> {
        self.wait_at_door()?;
        self.report.borrow_mut().checkpoints.push(name.to_owned());
        Ok(())
    }

    fn sleep(&self, milliseconds: u64) -> Result<(), Failure> {
        self.wait_at_door()?;
        let mut report = self.report.borrow_mut();
        report.slept = report.slept.saturating_add(Duration::from_millis(milliseconds));
        Ok(())
    }

    fn complete(&self, request: &Request) -> Result<Response, Failure> {
        self.wait_at_door()?;
        self.report.borrow_mut().requests.push(request.clone());
        let mut answered = self.answered.borrow_mut();
        let answer = self.script.answers.get(*answered).cloned();
        *answered += 1;
        answer.unwrap_or_else(|| {
            let (scripted, asked) = (self.script.answers.len(), *answered);
            let message = format!(
                "this test scripts {scripted} answers of the model; this is request {asked}"
            );
            Err(Failure::new(Failure::UNAVAILABLE, message))
        })
    }

    fn list_tools(&self) -> Result<Vec<ToolSpec>, Failure> {
        self.pass_door();
        Ok(self.script.tools.values().map(|(spec, _)| spec.clone()).collect())
    }

    fn call(&self, calls: &[ToolCall]) -> Result<Vec<ToolResult>, Failure> {
        self.wait_at_door()?;
        self.report.borrow_mut().tool_calls.extend_from_slice(calls);
        Ok(calls.iter().map(|call| self.call_tool(call)).collect())
    }

    fn delegation_capacity(&self) -> Result<DelegationCapacity, Failure> {
        self.pass_door();
        self.capacity()
    }

    fn delegate(&self, request: &DelegateRequest) -> Result<DelegateOutcome, Failure> {
        self.wait_at_door()?;
        self.report.borrow_mut().delegations.push(request.clone());
        let play = self.script.children.as_ref().ok_or_else(no_children)?;
        if request.tasks.is_empty() {
            return Err(Failure::invalid("a delegation needs at least one task"));
        }
        let capacity = self.capacity()?;
        let (tasks, most) = (request.tasks.len(), capacity.tasks());
        if tasks as u64 > u64::from(most) {
            let words = format!("the call has {tasks} tasks, and {most} may be handed out");
            return Err(Failure::new(Failure::LIMIT, words));
        }
        self.started.set(self.started.get() + tasks as u64);
        let results: Vec<TaskResult> = (0..)
            .zip(&request.tasks)
            .map(|(index, task)| child_result(index, play(task)))
            .collect();
        if request.mode != "background" || !capacity.background {
            return Ok(DelegateOutcome {
                outcome: "completed".to_owned(),
                results,
                ..DelegateOutcome::default()
            });
        }
        let mut units = self.units.borrow_mut();
        let mut delegation_ids = Vec::new();
        for unit in split(request, results) {
            let id = format!("unit-{}", units.len() + 1);
            units.insert(id.clone(), unit);
            delegation_ids.push(id);
        }
        Ok(DelegateOutcome {
            outcome: "dispatched".to_owned(),
            delegation_ids,
            ..DelegateOutcome::default()
        })
    }

    fn delegations(&self, ids: &[String]) -> Result<Vec<UnitStatus>, Failure> {
        self.pass_door();
        if ids.is_empty() {
            let ids: Vec<String> = self.units.borrow().keys().cloned().collect();
            return ids.iter().map(|id| self.unit(id)).collect();
        }
        ids.iter().map(|id| self.unit(id)).collect()
    }

    fn wait(&self, ids: &[String]) -> Result<UnitStatus, Failure> {
        self.wait_at_door()?;
        match ids.first() {
            Some(id) => self.unit(id),
            None => Err(Failure::invalid("there is no unit to wait for")),
        }
    }

    fn stop(&self, ids: &[String], _message: &str) -> Result<u32, Failure> {
        self.pass_door();
        // Units under test have ended already, so a stop reaches nobody.
        ids.iter().try_fold(0, |reached, id| self.unit(id).map(|_| reached))
    }

    fn history(&self, limit: u32) -> Result<Vec<Message>, Failure> {
        self.pass_door();
        if self.script.task.depth > 0 {
            return Ok(Vec::new());
        }
        let history = &self.script.history;
        let skipped = history.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(history[skipped..].to_vec())
    }

    fn emit(&self, kind: &str, payload: &str) -> Result<(), Failure> {
        self.pass_door();
        let payload = serde_json::from_str(payload)?;
        self.report.borrow_mut().events.push((kind.to_owned(), payload));
        Ok(())
    }

    fn memory_get(&self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.pass_door();
        Ok(self.report.borrow().memory.get(key).cloned())
    }

    fn memory_set(&self, key: &str, value: &[u8]) -> Result<(), Failure> {
        self.pass_door();
        if key.len() > 256 {
            return Err(Failure::too_large("a key of the session's memory has at most 256 bytes"));
        }
        if value.len() > 64 << 10 {
            return Err(Failure::too_large("a value of the session's memory has at most 64 KiB"));
        }
        self.report.borrow_mut().memory.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn memory_delete(&self, key: &str) -> Result<(), Failure> {
        self.pass_door();
        self.report.borrow_mut().memory.remove(key);
        Ok(())
    }

    fn memory_keys(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        self.pass_door();
        Ok(self
            .report
            .borrow()
            .memory
            .keys()
            .filter(|key| key.starts_with(prefix))
            .cloned()
            .collect())
    }

    fn config(&self, key: &str) -> Option<String> {
        self.script.config.get(key).map(Value::to_string)
    }

    fn config_keys(&self) -> Vec<String> {
        self.script.config.keys().cloned().collect()
    }

    fn log(&self, level: Level, message: &str) {
        self.report.borrow_mut().log.push((level, message.to_owned()));
    }
}

fn no_children() -> Failure {
    Failure::new(Failure::UNAVAILABLE, "this test has no children to delegate to")
}

fn child_result(task: u32, answer: Result<String, Failure>) -> TaskResult {
    match answer {
        Ok(output) => {
            TaskResult { task, status: "completed".to_owned(), output, detail: String::new() }
        }
        Err(Failure { code, message, .. }) => {
            let status = match code.as_str() {
                "interrupted" | "trapped" | "limit" => code,
                _ => "failed".to_owned(),
            };
            TaskResult { task, status, output: String::new(), detail: message }
        }
    }
}

/// The results of a request, unit by unit.
fn split(request: &DelegateRequest, results: Vec<TaskResult>) -> Vec<Vec<TaskResult>> {
    if !request.independent_completions {
        return vec![results];
    }
    let mut units: Vec<(Option<&str>, Vec<TaskResult>)> = Vec::new();
    for (ChildTask { group, .. }, result) in request.tasks.iter().zip(results) {
        let group = group.as_deref();
        match units.iter_mut().find(|(name, _)| group.is_some() && *name == group) {
            Some((_, unit)) => unit.push(result),
            None => units.push((group, vec![result])),
        }
    }
    units.into_iter().map(|(_, unit)| unit).collect()
}
