//! The commands that talk to a running daemon, one file each, and what they have in common.
//!
//! - [`ps`] and [`tree`] show what runs, [`attach`] follows a session, [`delegations`] shows its background.
//! - [`send`] prompts a session, [`stop`] stops one, or any piece of work. [`ticket`] lets somebody else do one thing once.
//! - [`drain`] and [`reload`] are for operators. [`client`] speaks HTTP.

pub(super) mod ask;
pub(super) mod attach;
pub(super) mod client;
pub(super) mod delegations;
pub(super) mod drain;
pub(super) mod events;
pub(super) mod ps;
pub(super) mod reload;
pub(super) mod schedules;
pub(super) mod send;
pub(super) mod stop;
pub(super) mod ticket;
pub(super) mod tree;

use std::path::PathBuf;

use serde_json::Value;

use self::client::Client;
use super::code::Code;
use super::problem::Problem;
use super::{setup, text};

/// What all of these commands take.
#[derive(Debug, clap::Args)]
pub(super) struct Daemon {
    /// The socket of the daemon; CHECKREIN_SOCKET says it too.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print the daemon's answer as JSON.
    #[arg(long)]
    json: bool,
}

impl Daemon {
    pub(super) fn client(&self) -> Result<Client, Problem> {
        let socket = self.socket.clone().map_or_else(setup::usual_socket, Ok)?;
        Ok(Client::new(socket))
    }

    /// Prints the answer, as JSON or in the words that `shown` makes of it.
    pub(super) fn print(
        &self,
        answer: &Value,
        shown: impl FnOnce(&Value) -> String,
    ) -> Result<Code, Problem> {
        text::print(&if self.json { format!("{answer:#}\n") } else { shown(answer) })?;
        Ok(Code::Completed)
    }
}

/// The path of a session's routes. It is named by its id, or as PROFILE/ID where there are several profiles.
pub(super) async fn session_path(client: &Client, named: &str) -> Result<String, Problem> {
    let (profile, session) = match named.split_once('/') {
        Some((profile, session)) => (profile.to_owned(), session),
        None => (only_profile(client).await?, named),
    };
    let (profile, session) = (client::step(&profile), client::step(session));
    Ok(format!("/v1/profiles/{profile}/sessions/{session}"))
}

/// The profile, where only one is served.
pub(super) async fn only_profile(client: &Client) -> Result<String, Problem> {
    let listed = client.get("/v1/profiles").await?;
    let served = |profile: &&Value| profile["served"] == true;
    let profiles = listed["profiles"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> =
        profiles.iter().filter(served).map(|profile| word(&profile["name"])).collect();
    match names.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Problem::new(Code::Refused, "the daemon serves no profile")
            .advise("`checkrein reload` says why")),
        _ => {
            let words = format!("the daemon serves several profiles: {}", names.join(", "));
            Err(Problem::new(Code::Usage, words).advise("say which one"))
        }
    }
}

/// A text in an answer; empty where there is none.
pub(super) fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A number in an answer; 0 where there is none.
pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}
