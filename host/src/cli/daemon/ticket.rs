//! `checkrein ticket`: lets somebody else do one thing once.

use clap::ValueEnum;
use serde_json::{Value, json};

use super::{Daemon, session_path, word};
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::setup;

/// The arguments of `checkrein ticket`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ticket {
    #[command(flatten)]
    daemon: Daemon,
    /// What whoever has it can do, once.
    #[arg(value_name = "PURPOSE")]
    purpose: Purpose,
    /// The session: ID, or PROFILE/ID where there are several profiles.
    #[arg(value_name = "SESSION")]
    session: String,
    /// For how many seconds it is good; 30 without it, which is the most.
    #[arg(long, value_name = "SECONDS")]
    life: Option<u64>,
}

/// What a ticket is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// Follow the events of the session.
    Follow,
    /// Start one turn.
    Prompt,
}

impl Ticket {
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        let purpose = match self.purpose {
            Purpose::Follow => "follow",
            Purpose::Prompt => "prompt",
        };
        setup::block_on(async {
            let session = session_path(&client, &self.session).await?;
            let wanted = json!({ "life-ms": self.life.map(|life| life.saturating_mul(1000)) });
            let answer = client.post(&format!("{session}/tickets/{purpose}"), &wanted).await?;
            self.daemon.print(&answer, shown)
        })
    }
}

fn shown(answer: &Value) -> String {
    format!("{}\n", word(&answer["ticket"]))
}
