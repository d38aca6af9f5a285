//! `checkrein tree`: everything that runs, with its owners, once or live.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use checkrein::server::{TreeNode, TreeView};

use super::Daemon;
use super::ps::{doing, read};
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::{screen, setup, text};

/// How often the live view is drawn anew.
const REDRAW: Duration = Duration::from_millis(500);

/// The arguments of `checkrein tree`.
#[derive(Debug, clap::Args)]
pub(crate) struct Tree {
    #[command(flatten)]
    daemon: Daemon,
    /// Only this profile.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Draw it anew until Ctrl-C, on a terminal as large as that is.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

impl Tree {
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        if self.watch && !io::stdout().is_terminal() {
            let words = "--watch draws on a terminal, and standard output is none";
            return Err(Problem::new(Code::Usage, words));
        }
        let path = match &self.profile {
            Some(name) => format!("/v1/profiles/{}/tree", super::client::step(name)),
            None => "/v1/tree".to_owned(),
        };
        let drawing = async {
            loop {
                let tree = client.get(&path).await?;
                if !self.watch {
                    return self.daemon.print(&tree, |tree| drawn(&read(tree)));
                }
                screen::draw(&drawn(&read(&tree)))?;
                tokio::time::sleep(REDRAW).await;
            }
        };
        setup::block_on(async {
            tokio::select! {
                drawn = drawing => drawn,
                heard = tokio::signal::ctrl_c() => match heard {
                    Ok(()) => Ok(Code::Interrupted),
                    Err(error) => {
                        Err(Problem::because(Code::Refused, "could not listen for Ctrl-C", error))
                    }
                },
            }
        })
    }
}

/// One line for each node, indented below its owner.
fn drawn(tree: &TreeView) -> String {
    let mut depths: HashMap<&str, usize> = HashMap::new();
    let rows = tree.nodes.iter().map(|node| {
        let above = node.owner.as_deref().and_then(|owner| depths.get(owner).copied());
        let depth = above.map_or(0, |above| above + 1);
        depths.insert(&node.id, depth);
        let name = format!("{}{} {}", "  ".repeat(depth), node.kind, text::line(&node.label, 40));
        let age = text::time(Duration::from_millis(node.age_ms));
        let closed = node.closed.as_deref().map(|why| format!("[closed: {}]", text::line(why, 60)));
        let words = [doing(node), budgets(node), closed.unwrap_or_default()];
        let words: Vec<String> = words.into_iter().filter(|words| !words.is_empty()).collect();
        vec![name, node.id.clone(), age, words.join(" · ")]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    format!("{}{} executions\n", text::columns(&rows), tree.executions)
}

/// The budgets of which something is used and that have a bound.
fn budgets(node: &TreeNode) -> String {
    let used = node.budgets.iter().filter(|(_, budget)| budget.used > 0);
    let words = used.filter_map(|(name, budget)| {
        let share = u128::from(budget.used) * 100 / u128::from(budget.limit?.max(1));
        Some(format!("{name} {share} %"))
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_owned_stands_below_its_owner() {
        let tree = json!({ "executions": 1, "nodes": [
            { "id": "w1-1", "owner": null, "kind": "host", "container": true, "label": "host",
              "age-ms": 1000, "closed": "it drains" },
            { "id": "w2-2", "owner": "w1-1", "kind": "turn", "container": false, "label": "agent 1",
              "age-ms": 1000, "activity": { "what": "computing" },
              "budgets": { "fuel": { "used": 5, "limit": 10 }, "door-bytes": { "used": 5, "limit": null } } },
        ] });
        assert_eq!(
            drawn(&read(&tree)),
            "host host       w1-1  1.0 s  [closed: it drains]\n\
             \u{20} turn agent 1  w2-2  1.0 s  computing · fuel 50 %\n\
             1 executions\n"
        );
    }
}
