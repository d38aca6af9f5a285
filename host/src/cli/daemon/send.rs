//! `checkrein send`: a prompt for a session.

use serde_json::{Value, json};

use super::client::{Client, step};
use super::{Daemon, number, only_profile, session_path, word};
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::{setup, text};

/// The arguments of `checkrein send`.
#[derive(Debug, clap::Args)]
pub(crate) struct Send {
    #[command(flatten)]
    daemon: Daemon,
    /// The session and the text; with --new the text alone.
    #[arg(value_names = ["SESSION", "TEXT"], num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// Open a new session with this agent: AGENT, or PROFILE/AGENT where there are several profiles.
    #[arg(long, value_name = "AGENT")]
    new: Option<String>,
    /// Wait for the end of the turn, and print its result.
    #[arg(long)]
    wait: bool,
    /// Stand in line while a turn is going on.
    #[arg(long)]
    queue: bool,
    /// Run it beside the turn, in a run of its own whose result does not enter the conversation.
    #[arg(long, conflicts_with = "queue")]
    beside: bool,
}

impl Send {
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        setup::block_on(async {
            let (session, text) = match (&self.new, self.words.as_slice()) {
                (Some(agent), [text]) => (open(&client, agent).await?, text),
                (None, [session, text]) => (session_path(&client, session).await?, text),
                (Some(_), _) => {
                    let words = "with --new there is no session to name: give the text alone";
                    return Err(Problem::new(Code::Usage, words));
                }
                (None, _) => {
                    let words = "a session and a text are needed, or --new AGENT and a text";
                    return Err(Problem::new(Code::Usage, words));
                }
            };
            let mut answer = if self.beside {
                let prompt = json!({ "goal": text, "wait": self.wait });
                client.post(&format!("{session}/side-runs"), &prompt).await?
            } else {
                let prompt = json!({ "goal": text, "wait": self.wait, "queue": self.queue });
                client.post(&format!("{session}/prompts"), &prompt).await?
            };
            let code = if self.wait { code(&answer) } else { Code::Completed };
            answer["session"] = session.rsplit('/').next().into();
            self.daemon
                .print(&answer, |answer| if self.wait { result(answer) } else { begun(answer) })?;
            Ok(code)
        })
    }
}

/// Opens a session and gives its path.
async fn open(client: &Client, named: &str) -> Result<String, Problem> {
    let (profile, agent) = match named.split_once('/') {
        Some((profile, agent)) => (profile.to_owned(), agent),
        None => (only_profile(client).await?, named),
    };
    let all = format!("/v1/profiles/{}/sessions", step(&profile));
    let opened = client.post(&all, &json!({ "agent": agent })).await?;
    Ok(format!("{all}/{}", step(word(&opened["id"]))))
}

fn begun(answer: &Value) -> String {
    if let Some(run) = answer["run"].as_str() {
        return format!("{run} ({})\n", word(&answer["work"]));
    }
    format!("{} turn {}\n", word(&answer["session"]), number(&answer["generation"]))
}

fn result(answer: &Value) -> String {
    let mut out = word(&answer["output"]).to_owned();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    out + &how(answer)
}

/// How a run ended that did not complete, in a line.
pub(super) fn how(answer: &Value) -> String {
    let (status, detail) = (word(&answer["status"]), word(&answer["detail"]));
    match (status, detail) {
        ("completed", _) => String::new(),
        (_, "") => format!("{status}\n"),
        // A failure begins with its code, which is often the same word.
        _ if detail.starts_with(status) => format!("{}\n", text::line(detail, 400)),
        _ => format!("{status}: {}\n", text::line(detail, 400)),
    }
}

/// The exit code that goes with the end of a turn.
pub(super) fn code(answer: &Value) -> Code {
    match word(&answer["status"]) {
        "completed" => Code::Completed,
        "interrupted" => Code::Interrupted,
        "limit" => Code::Limit,
        "refused" => Code::Refused,
        _ => Code::Failed,
    }
}
