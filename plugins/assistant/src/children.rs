//! Handing tasks to other runs: the tools for it, as a model is offered them, and what the model is told of what came.
//!
//! The names of these tools have no `_`, and those of all others have one, so that no plugin has a tool of such a name.

use std::fmt::Write as _;

use checkrein_guest::prelude::*;
use serde::de::DeserializeOwned;

use crate::shorten;

/// The tool that hands out tasks.
pub(crate) const DELEGATE: &str = "delegate";
/// The tool that asks about what was handed into the background; offered where there is a background.
pub(crate) const STATUS: &str = "delegation-status";
const WAIT: &str = "delegation-wait";
const STOP: &str = "delegation-stop";

/// One result is not shortened below this many bytes.
const LEAST: usize = 400;

/// Whether a tool is one of these.
pub(crate) fn is_one(name: &str) -> bool {
    [DELEGATE, STATUS, WAIT, STOP].contains(&name)
}

/// Whether a call brings what others have worked out.
pub(crate) fn brings_results(name: &str) -> bool {
    [DELEGATE, WAIT].contains(&name)
}

/// The tools for a run that may hand out so much; none when that is nothing.
pub(crate) fn specs(capacity: &DelegationCapacity) -> Vec<ToolSpec> {
    if capacity.tasks() == 0 {
        return Vec::new();
    }
    let mut specs = vec![delegate(capacity)];
    if capacity.background {
        specs.extend(in_the_background());
    }
    specs
}

fn spec(name: &str, description: &str, parameters: &Value, hint: Option<Hint>) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: parameters.to_string(),
        hints: hint.into_iter().map(|hint| hint.as_str().to_owned()).collect(),
    }
}

/// The tool that hands out tasks, with its bounds.
fn delegate(capacity: &DelegationCapacity) -> ToolSpec {
    let waiting = if capacity.background {
        "Without `background` the call returns when all children have ended, with a result for each task. With \
         `background` it returns at once with ids such as d1: go on, and each result comes by itself as a new message \
         later. When there is no free place in the background, the tasks run inside the call all the same: the result \
         then says \"Synchronous execution\" and has the results already, and nothing more comes."
    } else {
        "The call returns when all children have ended, with a result for each task."
    };
    let (most, left) = (capacity.tasks(), capacity.descendants_left);
    let description = format!(
        "Hands tasks to children: runs of their own that work at the same time as each other, with your tools and \
         directories at most. Use it for parts of the work that are large and do not depend on each other; small \
         things are quicker done by yourself. A child has a fresh context: it knows nothing of this conversation and \
         can ask nobody, so each goal must say everything (what to do, with which paths, what to give back). Put all \
         tasks into one call: it takes at most {most}, and {left} children can be started in all, theirs with them. \
         {waiting} A task can end as completed, interrupted, failed, trapped (it crashed), limit (it used up what it \
         had) or unknown; whatever it gave until then is there. Children share what you have left of time and tokens."
    );
    let mut task = json!({
        "type": "object",
        "properties": {
            "goal": {
                "type": "string",
                "description": "What the child shall do and give back, complete in itself."
            },
            "input": {
                "type": "object",
                "description": "Further input for the child, such as data to work on."
            },
            "agent": {"type": "string", "description": agents(capacity)},
            "tools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The only tools that the child may use. Left out: all of yours."
            }
        },
        "required": ["goal"],
        "additionalProperties": false
    });
    if !capacity.same_agent {
        task["required"] = json!(["goal", "agent"]);
    }
    let mut parameters = json!({
        "type": "object",
        "properties": {
            "tasks": {
                "type": "array",
                "minItems": 1,
                "maxItems": most,
                "description": "One for each child.",
                "items": task
            }
        },
        "required": ["tasks"],
        "additionalProperties": false
    });
    if capacity.background {
        parameters["properties"]["background"] = json!({
            "type": "boolean",
            "description": "true: do not wait for the children. Left out: false."
        });
    }
    spec(DELEGATE, &description, &parameters, None)
}

/// Which agents a task can go to, in words.
fn agents(capacity: &DelegationCapacity) -> String {
    let mut words = format!("The agent that does it, one of: {}.", capacity.agents.join(", "));
    if capacity.agents.iter().any(|name| name.ends_with('*')) {
        words.push_str(" A * stands for any end of a name; use only names that you were told.");
    }
    if capacity.same_agent {
        words.push_str(" Left out: one like you.");
    }
    words
}

/// The tools for what was handed into the background.
fn in_the_background() -> Vec<ToolSpec> {
    let ids =
        |words: &str| json!({"type": "array", "items": {"type": "string"}, "description": words});
    vec![
        spec(
            STATUS,
            "Tells how far delegations in the background are.",
            &json!({
                "type": "object",
                "properties": {"ids": ids("Their ids, such as d1. Left out: all.")},
                "additionalProperties": false
            }),
            Some(Hint::ReadOnly),
        ),
        spec(
            WAIT,
            "Waits until one of these delegations in the background has ended, and gives its results. Not needed as a \
             rule: results come by themselves once you have answered. Use it when your answer depends on them.",
            &json!({
                "type": "object",
                "properties": {"ids": ids("Their ids, such as d1. Left out: all that have not ended.")},
                "additionalProperties": false
            }),
            Some(Hint::ReadOnly),
        ),
        spec(
            STOP,
            "Asks delegations in the background to stop. They still end by themselves, and what they have done until \
             then comes as usual.",
            &json!({
                "type": "object",
                "properties": {
                    "ids": ids("Their ids, such as d1."),
                    "message": {"type": "string", "description": "Why, for the children."}
                },
                "required": ["ids", "message"],
                "additionalProperties": false
            }),
            None,
        ),
    ]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Delegate {
    tasks: Vec<Handed>,
    #[serde(default)]
    background: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Handed {
    goal: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    agent: Option<String>,
    #[serde(default)]
    tools: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ids {
    #[serde(default)]
    ids: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stopping {
    ids: Vec<String>,
    message: String,
}

/// Makes a call of one of these tools. What the model is told has about `most` bytes.
///
/// # Errors
/// Only when a stop came. Whatever else goes wrong is a result.
pub(crate) fn make(run: &Run, call: &ToolCall, most: usize) -> Result<ToolResult, Failure> {
    let told = match call.name.as_str() {
        DELEGATE => hand_out(run, call, most),
        STATUS => status(run, call, most),
        WAIT => wait(run, call, most),
        _ => stop(run, call),
    };
    let (status, content) = match told {
        Ok(content) => ("ok".to_owned(), content),
        Err(failure) if failure.is_interrupted() => return Err(failure),
        Err(failure) => {
            let advice = advice(&call.name, &failure.code);
            (failure.code, format!("{}{advice}", failure.message))
        }
    };
    Ok(ToolResult { id: call.id.clone(), status, content })
}

/// What a model can do about a refusal.
fn advice(name: &str, code: &str) -> &'static str {
    match (name, code) {
        (DELEGATE, Failure::DENIED | Failure::UNAVAILABLE) => {
            ". Nothing was handed out; do the work yourself"
        }
        (DELEGATE, Failure::LIMIT) => ". Hand out fewer tasks, or do the work yourself",
        (DELEGATE, Failure::BUSY) => ". Nothing was handed out; do the work yourself, or try later",
        _ => "",
    }
}

fn hand_out(run: &Run, call: &ToolCall, most: usize) -> Result<String, Failure> {
    let Delegate { tasks, background } = arguments(call)?;
    if let Some(empty) = tasks.iter().position(|task| task.goal.trim().is_empty()) {
        return Err(Failure::invalid(format!("task {empty} has no goal; nothing was handed out")));
    }
    let goals: Vec<String> = tasks.iter().map(|task| shorten::line(&task.goal, 80)).collect();
    let tasks = tasks.into_iter().map(|task| ChildTask {
        input: if task.input.is_null() { String::new() } else { task.input.to_string() },
        agent: task.agent,
        tools: task.tools,
        ..ChildTask::new(task.goal)
    });
    let mut request = DelegateRequest::new(tasks.collect());
    if background == Some(true) {
        request = request.background().independent_completions();
    }
    let outcome = run.delegate(request)?;
    let mut words = outcome.note;
    if words.is_empty() {
        words = format!("The call has ended: {}.", outcome.outcome);
    }
    if !outcome.delegation_ids.is_empty() {
        let _ = write!(words, "\n\nids: {}", outcome.delegation_ids.join(", "));
    }
    let room = most.saturating_sub(words.len());
    for (title, results) in
        [("results", &outcome.results), ("inline-results", &outcome.inline_results)]
    {
        if !results.is_empty() {
            let _ = write!(words, "\n\n{title}:{}", entries(results, &goals, room));
        }
    }
    Ok(words)
}

fn status(run: &Run, call: &ToolCall, most: usize) -> Result<String, Failure> {
    let Ids { ids } = arguments(call)?;
    let units = run.delegations(&ids.unwrap_or_default())?;
    if units.is_empty() {
        return Ok("There are no delegations in the background.".to_owned());
    }
    let room = most / units.len();
    let told: Vec<String> = units.iter().map(|unit| unit_in_words(unit, room)).collect();
    Ok(told.join("\n\n"))
}

fn wait(run: &Run, call: &ToolCall, most: usize) -> Result<String, Failure> {
    let Ids { ids } = arguments(call)?;
    let mut ids = ids.unwrap_or_default();
    if ids.is_empty() {
        let units = run.delegations(&[])?;
        let is_under_way = |unit: &UnitStatus| unit.state == "queued" || unit.state == "running";
        ids = units.into_iter().filter(is_under_way).map(|unit| unit.id).collect();
    }
    if ids.is_empty() {
        return Ok("There is nothing to wait for: nothing runs in the background.".to_owned());
    }
    let ended = run.wait(&ids)?;
    Ok(format!(
        "{}\n\nThe same comes once more as a message of its own after your answer; you need not answer it at length \
         then.",
        unit_in_words(&ended, most)
    ))
}

fn stop(run: &Run, call: &ToolCall) -> Result<String, Failure> {
    let Stopping { ids, message } = arguments(call)?;
    if ids.is_empty() {
        return Err(Failure::invalid("name the delegations to stop by their ids"));
    }
    let reached = run.stop(&ids, &message)?;
    Ok(format!("The stop reached {reached} of the runs."))
}

fn arguments<T: DeserializeOwned>(call: &ToolCall) -> Result<T, Failure> {
    serde_json::from_str(&call.arguments)
        .map_err(|error| Failure::invalid(format!("the arguments do not fit: {error}")))
}

fn unit_in_words(unit: &UnitStatus, most: usize) -> String {
    format!("{}: {}{}", unit.id, unit.state, entries(&unit.results, &[], most))
}

/// Results, each with its share of the room.
fn entries(results: &[TaskResult], goals: &[String], most: usize) -> String {
    let share = (most / results.len().max(1)).max(LEAST);
    let mut words = String::new();
    for result in results {
        let _ = write!(words, "\n\nTask {}", result.task);
        if let Some(goal) = goals.get(result.task as usize) {
            let _ = write!(words, " ({goal})");
        }
        let _ = write!(words, ": {}", result.status);
        if !result.detail.is_empty() {
            let _ = write!(words, " ({})", shorten::line(&result.detail, 300));
        }
        if !result.output.trim().is_empty() {
            let _ = write!(words, "\n{}", shorten::middle(result.output.trim(), share));
        }
    }
    words
}
