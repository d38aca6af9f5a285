//! `checkrein delegations`: what a session has in the background.

use serde_json::Value;

use super::{Daemon, session_path, word};
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::{setup, text};

/// The arguments of `checkrein delegations`.
#[derive(Debug, clap::Args)]
pub(crate) struct Delegations {
    #[command(flatten)]
    daemon: Daemon,
    /// The session: ID, or PROFILE/ID where there are several profiles.
    #[arg(value_name = "SESSION")]
    session: String,
}

impl Delegations {
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        setup::block_on(async {
            let session = session_path(&client, &self.session).await?;
            let units = client.get(&format!("{session}/delegations")).await?;
            self.daemon.print(&units, shown)
        })
    }
}

fn shown(units: &Value) -> String {
    let units = units["delegations"].as_array().map_or(&[][..], Vec::as_slice);
    let mut out = String::new();
    for unit in units {
        out.push_str(&format!("{} {}\n", word(&unit["id"]), word(&unit["state"])));
        let entries = unit["entries"].as_array().map_or(&[][..], Vec::as_slice);
        for entry in entries {
            let output = text::line(word(&entry["output"]), 100);
            out.push_str(&format!("  {} {} {output}\n", entry["task"], word(&entry["status"])));
        }
    }
    if out.is_empty() { "nothing in the background\n".to_owned() } else { out }
}
