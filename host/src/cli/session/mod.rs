//! `checkrein session`: sessions of a daemon, or of a home that lies there.
//!
//! - [`place`] is where sessions are, [`target`] one of them. Both are asked the same, whoever answers.
//! - [`show`] puts a session into words, [`transcript`] its conversation and [`journal`] its events.
//! - [`carry`] takes sessions out and reads them in.

mod carry;
mod journal;
pub(super) mod place;
mod show;
mod target;
mod transcript;

use checkrein::HomeStore;
use checkrein::ids::SessionId;
use serde_json::{Value, json};

use self::place::Place;
use super::code::Code;
use super::daemon::{client, number, only_profile, session_path, word};
use super::problem::Problem;
use super::{setup, text};

/// `checkrein session`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Session {
    /// List the sessions of a profile.
    List(List),
    /// Show one session: who said what and when, how its runs ended, and what is not read yet.
    Show(show::Show),
    /// Write one session as JSON Lines, to be kept or read in elsewhere.
    ///
    /// A file is there whole or not at all.
    Export(carry::Export),
    /// Read in a session that was exported, under a new name.
    Import(carry::Import),
    /// Delete a session with all that belongs to it.
    Delete(Delete),
}

/// The arguments of `checkrein session list`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    place: Place,
    /// The profile, where a daemon has several.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,
    /// Those after this one.
    #[arg(long, value_name = "SESSION")]
    after: Option<String>,
}

/// The arguments of `checkrein session delete`.
#[derive(Debug, clap::Args)]
pub(super) struct Delete {
    #[command(flatten)]
    place: Place,
    /// The session: ID, or PROFILE/ID where a daemon has several profiles.
    #[arg(value_name = "SESSION")]
    session: String,
}

impl Session {
    pub(super) fn execute(&self) -> Result<Code, Problem> {
        match self {
            Session::List(list) => list.execute(),
            Session::Show(show) => show.execute(),
            Session::Export(export) => export.execute(),
            Session::Import(import) => import.execute(),
            Session::Delete(delete) => delete.execute(),
        }
    }
}

impl List {
    fn execute(&self) -> Result<Code, Problem> {
        let limit = self.limit.clamp(1, 1_000);
        let listed = match self.place.home() {
            Some(home) => {
                let look = HomeStore::look(home)?;
                let after = self.after.as_deref().map(SessionId::new);
                setup::block_on(place::listed(&look, after, limit))?
            }
            None => setup::block_on(self.ask(limit))?,
        };
        self.place.print(&listed, rows)
    }

    async fn ask(&self, limit: usize) -> Result<Value, Problem> {
        let client = self.place.client()?;
        let profile = match &self.profile {
            Some(profile) => profile.clone(),
            None => only_profile(&client).await?,
        };
        let mut path = format!("/v1/profiles/{}/sessions?limit={limit}", client::step(&profile));
        if let Some(after) = &self.after {
            path.push_str(&format!("&after={}", client::step(after)));
        }
        client.get(&path).await
    }
}

/// The sessions of an answer, one in each line.
fn rows(answer: &Value) -> String {
    let row = |session: &Value| {
        let running = match session["running"]["generation"].as_u64() {
            Some(generation) => format!("turn {generation} is going on"),
            None => "idle".to_owned(),
        };
        vec![
            word(&session["id"]).to_owned(),
            text::line(word(&session["agent"]), 40),
            format!("{} turns", number(&session["generation"])),
            running,
        ]
    };
    let sessions = answer["sessions"].as_array().map_or(&[][..], Vec::as_slice);
    let rows: Vec<Vec<String>> = sessions.iter().map(row).collect();
    let more = answer["next"].as_str().map(|next| format!("more with --after {next}\n"));
    match rows.is_empty() {
        true => "no sessions\n".to_owned(),
        false => text::columns(&rows) + &more.unwrap_or_default(),
    }
}

impl Delete {
    fn execute(&self) -> Result<Code, Problem> {
        match self.place.home() {
            Some(home) => {
                let store = HomeStore::take(home)?;
                setup::block_on(async {
                    Ok(store.delete(&SessionId::new(self.session.as_str())).await?)
                })?;
            }
            None => setup::block_on(async {
                let client = self.place.client()?;
                let path = session_path(&client, &self.session).await?;
                client.ask(hyper::Method::DELETE, &path, None).await.map(drop)
            })?,
        }
        self.place.print(&json!({ "deleted": self.session }), |_| {
            format!("{} is deleted\n", self.session)
        })
    }
}
