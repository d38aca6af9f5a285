//! `checkrein drain`: no new work from now on.

use serde_json::{Value, json};

use super::Daemon;
use super::ps::{doing, read};
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::{setup, text};

/// The arguments of `checkrein drain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    daemon: Daemon,
    /// Wait so many seconds for what is there, and until its end is recorded; at most ten minutes.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    /// Why, as refusals say it.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Drain {
    /// Ends with `refused` while something is left.
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        let asked = json!({ "reason": self.reason, "wait-ms": self.wait.saturating_mul(1000) });
        let answer = setup::block_on(client.post("/v1/drain", &asked))?;
        self.daemon.print(&answer, shown)?;
        Ok(if answer["drained"] == true { Code::Completed } else { Code::Refused })
    }
}

fn shown(answer: &Value) -> String {
    if answer["drained"] == true {
        return "nothing is left\n".to_owned();
    }
    let unrecorded = answer["unrecorded"].as_array().map_or(&[][..], Vec::as_slice);
    let unrecorded = unrecorded.iter().map(|name| {
        format!(
            "  what has happened in {} is not recorded yet\n",
            text::line(super::word(name), 80)
        )
    });
    let left = read(&answer["left"]);
    let lines = left.nodes.iter().map(|node| {
        format!("  {} {} ({}) {}\n", node.kind, text::line(&node.label, 80), node.id, doing(node))
    });
    format!("no new work is taken; this is left:\n{}", lines.chain(unrecorded).collect::<String>())
}
