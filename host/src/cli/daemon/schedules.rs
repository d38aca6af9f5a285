//! `checkrein schedules`: what begins by the clock, and what came of it.

use serde_json::Value;

use super::client::step;
use super::{Daemon, only_profile, word};
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::{setup, text};

/// Newest runs of each schedule that are shown.
const RUNS: usize = 3;

/// The arguments of `checkrein schedules`.
#[derive(Debug, clap::Args)]
pub(crate) struct Schedules {
    #[command(flatten)]
    daemon: Daemon,
    /// The profile, where there are several.
    #[arg(value_name = "PROFILE")]
    profile: Option<String>,
}

impl Schedules {
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        setup::block_on(async {
            let profile = match &self.profile {
                Some(profile) => profile.clone(),
                None => only_profile(&client).await?,
            };
            let path = format!("/v1/profiles/{}/schedules", step(&profile));
            self.daemon.print(&client.get(&path).await?, shown)
        })
    }
}

fn shown(answer: &Value) -> String {
    let schedules = answer["schedules"].as_array().map_or(&[][..], Vec::as_slice);
    let mut out = String::new();
    for schedule in schedules {
        let next = schedule["next"].as_str().unwrap_or("not bound");
        out.push_str(&format!(
            "{} {} ({}): {}, next {next}\n",
            text::line(word(&schedule["name"]), 80),
            text::line(word(&schedule["cron"]), 80),
            text::line(word(&schedule["time-zone"]), 40),
            text::line(word(&schedule["agent"]), 40),
        ));
        let runs = schedule["runs"].as_array().map_or(&[][..], Vec::as_slice);
        for run in runs.iter().rev().take(RUNS) {
            let session = run["session"].as_str().map(|session| format!(" in {session}"));
            let detail = run["detail"].as_str().map(|why| format!(": {}", text::line(why, 200)));
            out.push_str(&format!(
                "  {} {}{}{}\n",
                word(&run["scheduled"]),
                word(&run["status"]),
                session.unwrap_or_default(),
                detail.unwrap_or_default(),
            ));
        }
    }
    if out.is_empty() { "no schedules\n".to_owned() } else { out }
}
