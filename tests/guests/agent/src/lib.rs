//! An agent that does what its goal says: one step a line.
//!
//! The answer is what the steps have said, one line each. A step that fails ends the run with its failure, unless
//! `try` stands before it. See [`step`] for the steps.

mod calls;
mod harm;

use std::cell::RefCell;

use checkrein_guest::prelude::*;
use checkrein_guest::{serde, serde_json};

#[derive(Default)]
struct Agent {
    said: RefCell<Vec<String>>,
    /// The units of the last delegation.
    units: RefCell<Vec<String>>,
}

impl checkrein_guest::Agent for Agent {
    fn run(&self, run: &Run) -> Result<String, Failure> {
        let mut goal = run.task().goal.clone();
        if goal.starts_with("Delegation d") {
            // A turn that a completion brought has no steps of its own.
            goal = run.memory_get("always")?.unwrap_or_default();
        }
        for line in goal.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.step(run, line)?;
        }
        Ok(self.said.borrow().join("\n"))
    }
}

impl Agent {
    fn say(&self, text: impl Into<String>) {
        self.said.borrow_mut().push(text.into());
    }

    fn step(&self, run: &Run, line: &str) -> Result<(), Failure> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            // What other steps are made of.
            "try" => match self.step(run, rest) {
                Ok(()) => self.say("fine"),
                Err(failure) => self.say(shown(&failure)),
            },
            "forever" => loop {
                let _ = self.step(run, rest);
            },
            "times" => {
                let (times, step) = rest.split_once(' ').unwrap_or((rest, ""));
                for _ in 0..number(times) {
                    self.step(run, step)?;
                }
            }
            "say" => self.say(rest),
            "fail" => {
                let (code, words) = rest.split_once(' ').unwrap_or((rest, ""));
                return Err(Failure::new(code, words));
            }
            "fail-long" => return Err(Failure::new("failed", "x".repeat(number(rest)))),
            "output" => self.say("x".repeat(number(rest))),
            // Honest calls.
            "checkpoint" => run.checkpoint(rest)?,
            "sleep" => run.sleep(Duration::from_millis(number(rest) as u64))?,
            "stop?" => self.say(match run.stop_requested() {
                Some(stop) => format!("{} | {} | {}", stop.kind, stop.message, stop.issuer),
                None => "no stop".to_owned(),
            }),
            "partial" => run.partial(rest)?,
            "progress" => run.progress(rest)?,
            "emit" => run.emit("note", json!({ "text": rest }))?,
            "emits" => {
                let (count, bytes) = two(rest);
                let text = "e".repeat(bytes);
                for _ in 0..count {
                    run.emit("note", json!({ "text": text }))?;
                }
            }
            "logs" => {
                let (count, bytes) = two(rest);
                let text = "l".repeat(bytes);
                for _ in 0..count {
                    run.info(&text);
                }
            }
            "prints" => {
                let (count, bytes) = two(rest);
                let text = "p".repeat(bytes);
                for _ in 0..count {
                    println!("{text}");
                }
            }
            "ask" => self.say(run.complete(Request::ask(rest))?.message.text),
            "call" => {
                let (tool, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                for result in run.call([call("1", tool, arguments)])? {
                    self.say(format!("{}: {}", result.status, result.content));
                }
            }
            "calls" => {
                let (count, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let (tool, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                let calls: Vec<ToolCall> =
                    (0..number(count)).map(|id| call(&id.to_string(), tool, arguments)).collect();
                for result in run.call(&calls)? {
                    self.say(format!("{}: {}", result.status, result.content));
                }
            }
            // Every second call is of a tool that there is, and says its place.
            "mixed-calls" => {
                let (tool, count) = rest.split_once(' ').unwrap_or((rest, ""));
                let calls = (0..number(count)).map(|place| {
                    let tool = if place % 2 == 0 { tool } else { "nothing" };
                    call(
                        &place.to_string(),
                        tool,
                        &json!({ "text": place.to_string() }).to_string(),
                    )
                });
                for result in run.call(calls.collect::<Vec<_>>())? {
                    self.say(match result.status.as_str() {
                        "ok" => format!("{} ok: {}", result.id, result.content),
                        other => format!("{} {other}", result.id),
                    });
                }
            }
            // Several tools at once: `batch one {…} | other {…}`.
            "batch" => {
                let calls: Vec<ToolCall> = rest
                    .split(" | ")
                    .map(|each| {
                        let (tool, arguments) = each.split_once(' ').unwrap_or((each, "{}"));
                        call(tool, tool, arguments)
                    })
                    .collect();
                for result in run.call(&calls)? {
                    self.say(format!("{}: {}", result.status, result.content));
                }
            }
            // Arguments of that many bytes, and of that many brackets inside each other.
            "huge-call" => {
                let (tool, bytes) = rest.split_once(' ').unwrap_or((rest, ""));
                let arguments = json!({ "text": "x".repeat(number(bytes)) }).to_string();
                let results = run.call([call("1", tool, &arguments)])?;
                self.say(format!("{}: {} bytes", results[0].status, results[0].content.len()));
            }
            "deep-call" => {
                let (tool, depth) = rest.split_once(' ').unwrap_or((rest, ""));
                let depth = number(depth);
                let arguments = format!("{{\"text\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
                let results = run.call([call("1", tool, &arguments)])?;
                self.say(results[0].status.clone());
            }
            // An event whose payload is that many brackets inside each other.
            "deep-emit" => {
                let depth = number(rest);
                calls::emit("note", &format!("{}{}", "[".repeat(depth), "]".repeat(depth)))?;
            }
            "wide-calls" => {
                let calls = vec![ToolCall::default(); number(rest)];
                self.say(run.call(&calls)?.len().to_string());
            }
            // Opens a file so often and keeps it open.
            "opens" => {
                let (count, path) = rest.split_once(' ').unwrap_or((rest, ""));
                let open = |_| std::fs::File::open(path);
                let kept: Vec<_> = (0..number(count)).map(open).collect::<Result<_, _>>()?;
                self.say(kept.len().to_string());
            }
            "budget" => self.say(match run.budget(rest) {
                Some(budget) => format!("{} of {}", budget.left, budget.limit),
                None => "none".to_owned(),
            }),
            "remember" => {
                let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
                run.memory_set(key, value)?;
            }
            // From now on every turn that a completion brings does this step.
            "always" => {
                run.memory_set("always", rest)?;
                self.step(run, rest)?;
            }
            "recall" => self.say(run.memory_get::<String>(rest)?.unwrap_or_default()),
            "history" => {
                let said = run.history(number(rest) as u32)?;
                self.say(
                    said.iter()
                        .map(|message| message.text.as_str())
                        .collect::<Vec<_>>()
                        .join(" / "),
                );
            }
            "config" => self.say(run.config::<Value>()?.to_string()),
            // Children: the request and the answers are JSON.
            "delegate" => {
                let request: DelegateRequest =
                    serde_json::from_str(rest).expect("a request for delegation");
                let outcome = run.delegate(request)?;
                self.units.replace(outcome.delegation_ids.clone());
                self.say(shown_as_json(&outcome));
            }
            "wait-for-it" => self.say(shown_as_json(&run.wait(&self.units.borrow())?)),
            "capacity" => self.say(shown_as_json(&run.delegation_capacity()?)),
            "units" => self.say(shown_as_json(&run.delegations(&words(rest))?)),
            "wait-unit" => self.say(shown_as_json(&run.wait(&words(rest))?)),
            "stop-unit" => {
                let (unit, message) = rest.split_once(' ').unwrap_or((rest, ""));
                self.say(run.stop(&[unit.to_owned()], message)?.to_string());
            }
            "input" => self.say(run.task().input.clone()),
            "tools" => {
                let names: Vec<String> = run.tools()?.into_iter().map(|tool| tool.name).collect();
                self.say(names.join(" "));
            }
            // Publishes the stop that the run carries.
            "observe" => {
                let stop = run.stop_requested();
                let words =
                    stop.map(|stop| format!("{} | {} | {}", stop.kind, stop.message, stop.issuer));
                run.emit("observed", json!({ "text": words.unwrap_or_default() }))?;
            }
            // One import, over and over: says that it has begun, and never ends.
            "loop" => {
                for round in 0_u64.. {
                    calls::call(run, rest);
                    if round == 100 {
                        run.log(Level::Info, "looping");
                    }
                }
            }
            _ => harm::harm(verb, rest),
        }
        Ok(())
    }
}

fn shown(failure: &Failure) -> String {
    match &failure.stop {
        Some(stop) => {
            format!("{} | {} | {} | {}", failure.code, stop.kind, stop.message, stop.issuer)
        }
        None => failure.code.clone(),
    }
}

fn shown_as_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("it can be written as JSON")
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn call(id: &str, tool: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: tool.to_owned(), arguments: arguments.to_owned() }
}

fn number(text: &str) -> usize {
    text.trim().parse().unwrap_or_else(|_| panic!("`{text}` is not a number"))
}

fn two(text: &str) -> (usize, usize) {
    let (one, two) = text.split_once(' ').unwrap_or((text, "0"));
    (number(one), number(two))
}

checkrein_guest::agent!(Agent);
