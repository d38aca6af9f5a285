//! `checkrein ps`: what runs.

use std::collections::HashMap;
use std::time::Duration;

use checkrein::server::{TreeNode, TreeView};
use serde_json::Value;

use super::Daemon;
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::{setup, text};

/// The arguments of `checkrein ps`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ps {
    #[command(flatten)]
    daemon: Daemon,
}

impl Ps {
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        let tree = setup::block_on(client.get("/v1/tree"))?;
        self.daemon.print(&tree, |tree| table(&read(tree)))
    }
}

/// The tree in an answer; an empty one where there is none.
pub(super) fn read(answer: &Value) -> TreeView {
    let empty = || TreeView { executions: 0, nodes: Vec::new() };
    serde_json::from_value(answer.clone()).unwrap_or_else(|_| empty())
}

fn table(tree: &TreeView) -> String {
    let by_id: HashMap<&str, &TreeNode> =
        tree.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let rows = tree.nodes.iter().filter(|node| !node.container).map(|node| {
        let place = place(node, &by_id);
        let age = text::time(Duration::from_millis(node.age_ms));
        vec![
            node.id.clone(),
            node.kind.clone(),
            place,
            text::line(&node.label, 40),
            age,
            doing(node),
        ]
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return "nothing runs\n".to_owned();
    }
    let head = ["ID", "KIND", "SESSION", "WHAT", "AGE", "DOING"];
    rows.insert(0, head.map(str::to_owned).to_vec());
    text::columns(&rows)
}

/// The profile and the session that a node is in.
fn place(node: &TreeNode, by_id: &HashMap<&str, &TreeNode>) -> String {
    let owner = |node: &&TreeNode| by_id.get(node.owner.as_deref()?).copied();
    let above = std::iter::successors(Some(node), owner);
    let mut names: Vec<&str> = above
        .filter(|node| matches!(node.kind.as_str(), "profile" | "session"))
        // The label of a session names its agent behind its id.
        .map(|node| node.label.split(' ').next().unwrap_or_default())
        .collect();
    names.reverse();
    if names.is_empty() { "-".to_owned() } else { text::line(&names.join("/"), 60) }
}

/// What a node does, and the stop that it carries.
pub(super) fn doing(node: &TreeNode) -> String {
    let mut words = Vec::new();
    if let Some(activity) = &node.activity {
        let detail = activity.detail.as_deref().map(|detail| text::line(detail, 40));
        let time = activity.for_ms.map(|ms| format!("({})", text::time(Duration::from_millis(ms))));
        words.extend([Some(activity.what.clone()), detail, time].into_iter().flatten());
    }
    if let Some(stop) = &node.stop {
        let kind = match stop.kind {
            checkrein::server::StopKindName::Soft => "stopping",
            checkrein::server::StopKindName::Hard => "being ended",
        };
        words.push(format!("[{kind}: {}]", text::line(&stop.message, 60)));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_runs_is_a_row_with_its_place() {
        let node = |id: &str, owner: Option<&str>, kind: &str, container: bool, label: &str| json!({ "id": id, "owner": owner, "kind": kind, "container": container, "label": label, "age-ms": 65_000 });
        let mut turn = node("w4-4", Some("w3-3"), "turn", false, "agent 1");
        turn["activity"] = json!({ "what": "run.sleep", "for-ms": 2_000 });
        turn["stop"] = json!({ "kind": "soft", "message": "please", "issuer": "user" });
        let tree = json!({ "executions": 1, "nodes": [
            node("w1-1", None, "host", true, "host"),
            node("w2-2", Some("w1-1"), "profile", true, "main"),
            node("w3-3", Some("w2-2"), "session", true, "s1 agent"),
            turn,
        ] });
        assert_eq!(
            table(&read(&tree)),
            "ID    KIND  SESSION  WHAT     AGE       DOING\n\
             w4-4  turn  main/s1  agent 1  1:05 min  run.sleep (2.0 s) [stopping: please]\n"
        );
        assert_eq!(table(&read(&json!(null))), "nothing runs\n");
    }
}
