//! What the events of a session must be when nothing of it runs.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::api::daemon::Sent;

/// What a journal says.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// By run.
    pub(crate) runs: BTreeMap<String, Run>,
    /// The turns, in their order.
    pub(crate) turns: Vec<String>,
    /// By unit.
    pub(crate) units: BTreeMap<String, Unit>,
}

/// A run.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) goal: String,
    pub(crate) began_ms: u64,
    pub(crate) parent: Option<String>,
    pub(crate) delegation: Option<String>,
    pub(crate) end: Option<End>,
}

/// The end of a run.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) at_ms: u64,
    pub(crate) status: String,
    pub(crate) output: String,
}

/// A background unit.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    pub(crate) tasks: usize,
    pub(crate) accepted: u32,
    /// Its status, when its completion could be read.
    pub(crate) ended: Option<String>,
    pub(crate) ended_ms: u64,
    /// The status of each of its children that have ended, by task.
    pub(crate) children: BTreeMap<u64, String>,
    /// The turns that were to bring its completion, in their order.
    pub(crate) brought: Vec<String>,
}

impl Journal {
    /// Reads it, and checks that nothing is told twice and nothing is left out.
    pub(crate) fn read(events: &[Sent], first: u64) -> Result<Journal> {
        let mut journal = Journal::default();
        for (place, event) in events.iter().enumerate() {
            let expected = first + place as u64;
            ensure!(event.id == Some(expected), "event {:?} is where {expected} belongs", event.id);
            ensure!(event.data["seq"] == expected, "{}", event.text);
            journal.hears(event).with_context(|| format!("event {}", event.text))?;
        }
        Ok(journal)
    }

    fn hears(&mut self, event: &Sent) -> Result<()> {
        let text = |name: &str| event.data[name].as_str().map(str::to_owned);
        let need = |name: &str| text(name).with_context(|| format!("`{name}`"));
        let at_ms = event.data["at-ms"].as_u64().context("a time")?;
        let name = need("run")?;
        match event.event.as_str() {
            "run-started" => {
                let (parent, delegation) = (text("parent"), text("delegation"));
                if parent.is_none() {
                    self.turns.push(name.clone());
                    if let Some(unit) = &delegation {
                        self.units.entry(unit.clone()).or_default().brought.push(name.clone());
                    }
                }
                let goal = need("goal")?;
                let run = Run { goal, began_ms: at_ms, parent, delegation, end: None };
                ensure!(self.runs.insert(name, run).is_none(), "the run was started before");
            }
            "run-ended" => {
                let run = self.runs.get_mut(&name).context("the run was not started")?;
                let end = End { at_ms, status: need("status")?, output: need("output")? };
                ensure!(run.end.replace(end).is_none(), "the run had ended before");
            }
            "delegation-accepted" => {
                let unit = self.units.entry(need("delegation")?).or_default();
                unit.accepted += 1;
                unit.tasks = event.data["tasks"].as_array().map_or(0, Vec::len);
                ensure!(unit.accepted == 1, "the unit was accepted before");
            }
            "delegation-ended" => {
                let unit = self.units.entry(need("delegation")?).or_default();
                let before = unit.ended.replace(need("status")?);
                unit.ended_ms = at_ms;
                ensure!(before.is_none(), "the unit had ended before");
            }
            "child-ended" => {
                let Some(unit) = text("delegation") else { return Ok(()) };
                let unit = self.units.entry(unit).or_default();
                let task = event.data["task"].as_u64().context("a task")?;
                let before = unit.children.insert(task, need("status")?);
                ensure!(before.is_none(), "the child had ended before");
            }
            _ => {}
        }
        Ok(())
    }

    /// Nothing is left open.
    pub(crate) fn is_over(&self) -> Result<()> {
        for (name, run) in &self.runs {
            ensure!(run.end.is_some(), "the run {name} has no end: {run:?}");
        }
        for (name, unit) in &self.units {
            ensure!(unit.ended.is_some(), "the unit {name} has no completion: {unit:?}");
            ensure!(unit.accepted == 1, "the unit {name} was not accepted: {unit:?}");
            ensure!(unit.children.len() == unit.tasks, "children of {name} are missing: {unit:?}");
        }
        Ok(())
    }

    /// Each input has started one run: what a client asked for once was done once. Goals are told apart by their first line.
    pub(crate) fn nothing_twice(&self) -> Result<()> {
        let mut goals = BTreeMap::new();
        for (name, run) in &self.runs {
            if run.parent.is_none() && run.delegation.is_some() {
                continue;
            }
            let goal = run.goal.lines().next().unwrap_or_default();
            if let Some(before) = goals.insert(goal, name) {
                anyhow::bail!("`{goal}` was started as {before} and as {name}");
            }
        }
        Ok(())
    }

    /// After the death of the daemon nothing began but turns that bring completions, and what was going on ended as unknown.
    pub(crate) fn since(&self, died_ms: u64) -> Result<()> {
        for (name, run) in &self.runs {
            let began_since = run.began_ms > died_ms;
            let brings = run.parent.is_none() && run.delegation.is_some();
            ensure!(!began_since || brings, "{name} was started by nobody: {run:?}");
            let ended_since = run.end.as_ref().filter(|end| end.at_ms > died_ms);
            let lost = ended_since.is_none_or(|end| began_since || end.status == "unknown");
            ensure!(lost, "{name} ended after the end of its host: {run:?}");
        }
        Ok(())
    }

    /// How a turn ended that was to bring a completion, where its completion was read by that.
    pub(crate) fn has_read(&self, turn: &str) -> bool {
        let end = self.runs.get(turn).and_then(|run| run.end.as_ref());
        end.is_some_and(|end| !["unknown", "refused"].contains(&end.status.as_str()))
    }

    /// What the conversation must be: the goal and the output of each turn.
    pub(crate) fn conversation(&self) -> Vec<(&str, &str)> {
        let runs = self.turns.iter().filter_map(|turn| self.runs.get(turn));
        let mut said = Vec::new();
        for run in runs {
            said.push(("user", run.goal.as_str()));
            if let Some(end) = &run.end {
                said.push(("assistant", end.output.as_str()));
            }
        }
        said
    }
}

/// The statuses in a completion, by task.
pub(crate) fn statuses(completion: &Value) -> BTreeMap<u64, String> {
    let entries = completion["entries"].as_array().into_iter().flatten();
    entries
        .filter_map(|entry| Some((entry["task"].as_u64()?, entry["status"].as_str()?.to_owned())))
        .collect()
}
