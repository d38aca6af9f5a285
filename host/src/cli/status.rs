//! The live line: what a run is doing, as the tree of work has it.

use checkrein::work::{Kind, NodeView, StopKind};

use super::text;

/// So many tools are named; of the rest only the number.
const NAMED: usize = 3;

/// One line about a run. The first of `nodes` is the run, the others are below it.
pub(super) fn line(agent: &str, nodes: &[NodeView]) -> String {
    let Some(run) = nodes.first() else { return format!("{agent} · ending") };
    let mut parts = vec![agent.to_owned()];
    match run.stop.as_ref().map(|stop| stop.kind()) {
        Some(StopKind::Soft) => parts.push("stopping".to_owned()),
        Some(StopKind::Hard) => parts.push("being ended".to_owned()),
        None => {}
    }
    parts.push(doing(run, &nodes[1..]));
    for budget in &run.budgets {
        match (budget.name, budget.limit) {
            ("model-tokens", limit) if budget.used > 0 || limit.is_some() => {
                let of =
                    limit.map_or_else(String::new, |limit| format!(" of {}", text::count(limit)));
                parts.push(format!("{}{of} tokens", text::count(budget.used)));
            }
            ("fuel", Some(limit)) => parts.push(format!("fuel {} %", percent(budget.used, limit))),
            _ => {}
        }
    }
    parts.push(text::time(run.age));
    parts.join(" · ")
}

fn doing(run: &NodeView, below: &[NodeView]) -> String {
    let of = |kind: Kind| below.iter().filter(move |node| node.kind == kind).collect::<Vec<_>>();
    let (tools, models, children) = (of(Kind::ToolCall), of(Kind::ModelRequest), of(Kind::Child));
    let mut parts = Vec::new();
    if !tools.is_empty() {
        parts.push(format!("running {}", names(&tools)));
    }
    if !models.is_empty() {
        parts.push(format!("waiting for model {}", names(&models)));
    }
    if !children.is_empty() {
        parts.push(format!("{} children", children.len()));
    }
    if !parts.is_empty() {
        return parts.join(", ");
    }
    match &run.activity {
        None => "starting".to_owned(),
        Some(activity) => {
            let what = match activity.what {
                "run.sleep" => "waiting",
                "run.checkpoint" => "at",
                other => other,
            };
            let detail = activity
                .detail
                .as_deref()
                .map_or_else(String::new, |detail| format!(" {}", text::line(detail, 40)));
            format!("{what}{detail}")
        }
    }
}

/// The names of nodes, each once, with how long the oldest has been there.
fn names(nodes: &[&NodeView]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for node in nodes {
        match counted.iter_mut().find(|(name, _)| **name == *node.label) {
            Some((_, count)) => *count += 1,
            None => counted.push((&node.label, 1)),
        }
    }
    let word = |(name, count): &(&str, usize)| match count {
        1 => text::line(name, 40),
        count => format!("{count} × {}", text::line(name, 40)),
    };
    let mut words: Vec<String> = counted.iter().take(NAMED).map(word).collect();
    if counted.len() > NAMED {
        words.push(format!("{} more", counted.len() - NAMED));
    }
    let oldest = nodes.iter().map(|node| node.age).max().unwrap_or_default();
    match oldest.as_secs() {
        0 => words.join(", "),
        seconds => format!("{} ({seconds} s)", words.join(", ")),
    }
}

fn percent(used: u64, limit: u64) -> u128 {
    u128::from(used) * 100 / u128::from(limit.max(1))
}

/// The executions that are left, one in a line: what, how old, and what it is doing.
pub(super) fn left(nodes: &[NodeView]) -> Vec<String> {
    let line = |node: &NodeView| {
        let mut words = format!(
            "  {} {} ({}), {} old",
            node.kind.as_str(),
            text::line(&node.label, 80),
            node.id,
            text::time(node.age)
        );
        if let Some(activity) = &node.activity {
            words.push_str(&format!(", in {}", activity.what));
        }
        words
    };
    nodes.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use checkrein::work::{Activity, BudgetUse, Stop};

    use super::*;

    fn node(kind: Kind, label: &str, seconds: u64) -> NodeView {
        NodeView {
            id: "w1-1".parse().unwrap(),
            owner: None,
            kind,
            label: label.into(),
            stop: None,
            closed: None,
            age: Duration::from_secs(seconds),
            activity: None,
            budgets: Vec::new(),
        }
    }

    #[test]
    fn a_run_that_calls_tools_names_them() {
        let mut run = node(Kind::Turn, "assistant 1", 65);
        run.budgets = vec![
            BudgetUse { name: "model-tokens", used: 1234, limit: None },
            BudgetUse { name: "fuel", used: 1, limit: Some(8) },
            BudgetUse { name: "memory", used: 1, limit: Some(8) },
        ];
        let tools =
            ["files_list", "files_read", "files_list", "text_hash", "http_fetch", "words_count"];
        let mut nodes = vec![run];
        nodes.extend(tools.iter().map(|name| node(Kind::ToolCall, name, 2)));
        assert_eq!(
            line("assistant", &nodes),
            "assistant · running 2 × files_list, files_read, text_hash, 2 more (2 s) · 1,234 tokens · fuel 12 % · 1:05 min"
        );
    }

    #[test]
    fn a_run_without_company_says_what_it_does_itself() {
        let mut run = node(Kind::Turn, "greeter 1", 3);
        run.activity = Some(Activity { what: "computing", detail: None, since: None });
        run.stop = Some(Stop::hard("user", "enough"));
        assert_eq!(line("greeter", &[run]), "greeter · being ended · computing · 3.0 s");
        assert_eq!(line("greeter", &[]), "greeter · ending");
    }

    #[test]
    fn what_is_left_is_named() {
        let mut call = node(Kind::ToolCall, "files_read", 12);
        call.activity = Some(Activity { what: "wasi:filesystem/types", detail: None, since: None });
        assert_eq!(
            left(&[call]),
            ["  tool call files_read (w1-1), 12.0 s old, in wasi:filesystem/types"]
        );
    }
}
