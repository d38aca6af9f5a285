//! `checkrein stop`: a session, or any piece of work.

use checkrein::ids::WorkId;
use serde_json::{Value, json};

use super::{Daemon, number, session_path};
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::setup;

/// The arguments of `checkrein stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    daemon: Daemon,
    /// A session (ID or PROFILE/ID), or a piece of work as `ps` and `tree` name it, such as w3-18.
    #[arg(value_name = "SESSION|WORK")]
    what: String,
    /// Ask it to finish, with these words. Of a session only the turn is asked.
    #[arg(long, value_name = "MESSAGE")]
    soft: Option<String>,
    /// End it now. This is what happens where --soft is not given; of a session it ends the background too.
    #[arg(long, conflicts_with = "soft")]
    hard: bool,
    /// The words of a hard stop.
    #[arg(long, value_name = "TEXT", default_value = "stopped by hand", conflicts_with = "soft")]
    message: String,
    /// Of a session, stop the turn and leave the background alone.
    #[arg(long)]
    turn: bool,
    /// Of a session, stop this execution and no other.
    #[arg(long, value_name = "NUMBER")]
    generation: Option<u64>,
}

impl Stop {
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        let (kind, message) = match &self.soft {
            Some(message) => ("soft", message),
            None => ("hard", &self.message),
        };
        let mut stop = json!({ "kind": kind, "message": message });
        setup::block_on(async {
            let path = if self.what.parse::<WorkId>().is_ok() {
                if self.turn || self.generation.is_some() {
                    let words =
                        "--turn and --generation are for sessions, and this is a piece of work";
                    return Err(Problem::new(Code::Usage, words));
                }
                format!("/v1/work/{}/stop", self.what)
            } else {
                let turn_only = self.turn || self.soft.is_some();
                stop["scope"] = if turn_only { "turn" } else { "all" }.into();
                if let Some(generation) = self.generation {
                    stop["generation"] = generation.into();
                }
                format!("{}/stop", session_path(&client, &self.what).await?)
            };
            let answer = client.post(&path, &stop).await?;
            self.daemon.print(&answer, shown)
        })
    }
}

fn shown(answer: &Value) -> String {
    match answer["stopped"].as_u64() {
        Some(0) => "it carried such a stop already\n".to_owned(),
        Some(stopped) => format!("stopped: {stopped}\n"),
        None => {
            let of = |what: &str| number(&answer[what]);
            match (of("turn"), of("background"), of("side-runs")) {
                (0, 0, 0) => "nothing was running\n".to_owned(),
                (turn, background, 0) => {
                    format!("stopped: {turn} of the turn, {background} in the background\n")
                }
                (turn, background, side) => format!(
                    "stopped: {turn} of the turn, {background} in the background, {side} beside the turn\n"
                ),
            }
        }
    }
}
