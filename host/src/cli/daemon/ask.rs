//! `checkrein ask`: a question about a session, which changes nothing of it.

use serde_json::{Value, json};

use super::{Daemon, send, session_path, word};
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::setup;

/// The arguments of `checkrein ask`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ask {
    #[command(flatten)]
    daemon: Daemon,
    /// The session: ID, or PROFILE/ID where there are several profiles.
    #[arg(value_name = "SESSION")]
    session: String,
    /// What is asked.
    #[arg(value_name = "QUESTION")]
    question: String,
    /// Ask a model in place of the session's agent: one of those that the agent may ask, or the default.
    #[arg(long, value_name = "MODEL", num_args = 0..=1)]
    model: Option<Option<String>>,
}

impl Ask {
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        setup::block_on(async {
            let session = session_path(&client, &self.session).await?;
            let to = if self.model.is_some() { "model" } else { "agent" };
            let model = self.model.clone().flatten();
            let asked = json!({ "question": self.question, "to": to, "model": model });
            let answer = client.post(&format!("{session}/asides"), &asked).await?;
            self.daemon.print(&answer, shown)?;
            Ok(send::code(&answer))
        })
    }
}

fn shown(answer: &Value) -> String {
    let mut out = word(&answer["text"]).to_owned();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    out + &send::how(answer)
}
