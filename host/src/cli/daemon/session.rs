//! `checkrein session`: the sessions of a daemon.

use serde_json::Value;

use super::client::step;
use super::{Daemon, number, only_profile, session_path, word};
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::{setup, text};

/// Messages that are shown of a conversation.
const MESSAGES: usize = 20;

/// `checkrein session`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Session {
    /// List the sessions of a profile.
    List(List),
    /// Show one session, and the end of its conversation.
    Show(One),
    /// Delete a session with all that belongs to it.
    Delete(One),
}

/// The arguments of `checkrein session list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    daemon: Daemon,
    /// The profile, where there are several.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: u64,
    /// Those after this one.
    #[arg(long, value_name = "SESSION")]
    after: Option<String>,
}

/// A session.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    #[command(flatten)]
    daemon: Daemon,
    /// The session: ID, or PROFILE/ID where there are several profiles.
    #[arg(value_name = "SESSION")]
    session: String,
}

impl Session {
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        match self {
            Session::List(list) => list.execute(),
            Session::Show(one) => one.show(),
            Session::Delete(one) => one.delete(),
        }
    }
}

impl List {
    fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        setup::block_on(async {
            let profile = match &self.profile {
                Some(profile) => profile.clone(),
                None => only_profile(&client).await?,
            };
            let after = self.after.as_deref().map(|after| format!("&after={}", step(after)));
            let path = format!(
                "/v1/profiles/{}/sessions?limit={}{}",
                step(&profile),
                self.limit,
                after.unwrap_or_default()
            );
            self.daemon.print(&client.get(&path).await?, listed)
        })
    }
}

fn listed(answer: &Value) -> String {
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

impl One {
    fn show(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        setup::block_on(async {
            let path = session_path(&client, &self.session).await?;
            let mut session = client.get(&path).await?;
            let messages = client.get(&format!("{path}/messages?limit={MESSAGES}")).await?;
            session["newest-messages"] = messages["messages"].clone();
            self.daemon.print(&session, shown)
        })
    }

    fn delete(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        setup::block_on(async {
            let path = session_path(&client, &self.session).await?;
            let answer = client.ask(hyper::Method::DELETE, &path, None).await?;
            self.daemon.print(&answer, |_| format!("{} is deleted\n", self.session))
        })
    }
}

fn shown(session: &Value) -> String {
    let mut out = listed(&serde_json::json!({ "sessions": [session] }));
    let units = (number(&session["units-open"]), number(&session["units-unread"]));
    if units != (0, 0) {
        out.push_str(&format!("background: {} open, {} to be read\n", units.0, units.1));
    }
    let messages = session["newest-messages"].as_array().map_or(&[][..], Vec::as_slice);
    for message in messages {
        let message = &message["message"];
        out.push_str(&format!("\n{}:\n{}\n", word(&message["role"]), word(&message["text"])));
    }
    out
}
