//! Where sessions are: with a daemon, or in a home.

use std::path::{Path, PathBuf};

use checkrein::ids::SessionId;
use checkrein::server::SessionView;
use checkrein::store::{Store, StoreError};
use serde_json::{Value, json};

use crate::cli::code::Code;
use crate::cli::daemon::Daemon;
use crate::cli::daemon::client::Client;
use crate::cli::problem::Problem;

/// Where the sessions are that a command is about.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Place {
    #[command(flatten)]
    daemon: Daemon,
    /// The home of a profile, in place of a daemon: the folder with its sessions.db.
    ///
    /// It is read while a daemon serves it, and changed only while none does.
    #[arg(long, value_name = "DIR", conflicts_with = "socket")]
    home: Option<PathBuf>,
}

impl Place {
    /// The home, where one is named.
    pub(in crate::cli) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    pub(in crate::cli) fn client(&self) -> Result<Client, Problem> {
        self.daemon.client()
    }

    /// Prints the answer, as JSON or in the words that `shown` makes of it.
    pub(in crate::cli) fn print(
        &self,
        answer: &Value,
        shown: impl FnOnce(&Value) -> String,
    ) -> Result<Code, Problem> {
        self.daemon.print(answer, shown)
    }
}

/// The sessions of a store, as a daemon lists them.
pub(super) async fn listed(
    store: &dyn Store,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Value, Problem> {
    let mut rows = store.sessions(after, limit + 1).await.map_err(|error| unread(&error))?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
    let sessions: Vec<SessionView> = rows.into_iter().map(SessionView::from).collect();
    Ok(json!({ "sessions": sessions, "next": next }))
}

/// What the store of a home did not do.
pub(super) fn unread(error: &StoreError) -> Problem {
    let missing = matches!(error, StoreError::NoSession(_));
    let code = if missing { Code::Usage } else { Code::Failed };
    Problem::new(code, error.to_string())
}
