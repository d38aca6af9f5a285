//! `checkrein compact`: gives room back to the disk.

use checkrein::HomeStore;
use serde_json::{Value, json};

use super::code::Code;
use super::daemon::{client, number, only_profile};
use super::problem::Problem;
use super::session::place::Place;
use super::{setup, text};

/// The arguments of `checkrein compact`.
#[derive(Debug, clap::Args)]
pub(super) struct Compact {
    #[command(flatten)]
    place: Place,
    /// The profile, where a daemon has several.
    #[arg(value_name = "PROFILE", conflicts_with = "home")]
    profile: Option<String>,
}

impl Compact {
    pub(super) fn execute(&self) -> Result<Code, Problem> {
        let answer = match self.place.home() {
            Some(home) => {
                let store = HomeStore::take(home)?;
                let done = setup::block_on(async { Ok(store.compact().await?) })?;
                json!(done)
            }
            None => setup::block_on(async {
                let client = self.place.client()?;
                let profile = match &self.profile {
                    Some(profile) => profile.clone(),
                    None => only_profile(&client).await?,
                };
                let path = format!("/v1/profiles/{}/compact", client::step(&profile));
                client.ask(hyper::Method::POST, &path, None).await
            })?,
        };
        self.place.print(&answer, shown)
    }
}

fn shown(answer: &Value) -> String {
    let [before, after] = ["before", "after"].map(|when| text::size(number(&answer[when])));
    format!("{before} before, {after} now\n")
}
