//! `checkrein reload`: has the daemon look again at its profiles.

use serde_json::Value;

use super::Daemon;
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::{setup, text};

/// The arguments of `checkrein reload`.
#[derive(Debug, clap::Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    daemon: Daemon,
}

impl Reload {
    /// Ends with `refused` while a profile is not as configured.
    pub(crate) fn execute(&self) -> Result<Code, Problem> {
        let client = self.daemon.client()?;
        let answer = setup::block_on(client.ask(hyper::Method::POST, "/v1/reload", None))?;
        self.daemon.print(&answer, shown)?;
        let some = |what: &str| answer[what].as_object().is_some_and(|found| !found.is_empty());
        let wrong = some("parked") || some("not-reloaded") || some("not-released");
        Ok(if wrong { Code::Refused } else { Code::Completed })
    }
}

fn shown(answer: &Value) -> String {
    let mut out = String::new();
    for what in ["added", "kept", "reloaded", "removed", "released"] {
        for name in answer[what].as_array().map_or(&[][..], Vec::as_slice) {
            let name = super::word(name);
            out.push_str(&format!("{what} {}\n", text::line(name, 80)));
            let changed = answer["changed"][name].as_array().filter(|_| what == "reloaded");
            for words in changed.map_or(&[][..], Vec::as_slice) {
                out.push_str(&format!("    {}\n", text::line(super::word(words), 400)));
            }
        }
    }
    for (what, words) in
        [("not-reloaded", "not reloaded"), ("not-released", "not released"), ("parked", "parked")]
    {
        for (name, why) in answer[what].as_object().into_iter().flatten() {
            let why = text::line(super::word(why), 400);
            out.push_str(&format!("{words} {}: {why}\n", text::line(name, 80)));
        }
    }
    if out.is_empty() { "no profiles\n".to_owned() } else { out }
}
