//! The agent `surveyor`: surveys folders and writes a report in Markdown. It needs no model.
//!
//! The work is planned in parts, and each part is read through batches of tool calls. Where there are several, children
//! read them, a few at a time. Files never come into the agent: tools send back the lines that matter, counts and hashes.
//! So a folder of a hundred thousand files fits into a small memory.
//!
//! ```text
//! files_list ──▶ inventory ──▶ plan ──▶ part, part, part … ──▶ findings ──▶ report
//!                    │                 files_search              ▲
//!                    │                 text_stats                │ merge
//!                    │                 files_read (licences)     │
//!                    └───▶ candidates ──▶ text_hash ──▶ duplicates
//! ```
//!
//! - [`survey`] walks through these stages. After each part it leaves a report of what there is so far, so that a stop
//!   at any moment, also a hard one, leaves one that says what is missing.
//! - [`plan`] and the merging of [`findings`] are pure. [`handing`] sends children on an [`errand`] each and merges what
//!   they bring back; what they do not bring back is named, or read by the run itself.
//! - [`asking`] makes the calls. A file that a tool cannot cope with costs only itself.
//! - [`languages`], [`apart`], [`markers`], [`secrets`] and [`licences`] are what is known about files.
//!
//! What it found of a secret is never shown, only where it is and what it seems to be.

mod apart;
mod asking;
mod duplicates;
mod errand;
mod findings;
mod handing;
mod inventory;
mod languages;
mod licences;
mod markers;
mod moment;
mod options;
mod plan;
mod reading;
mod report;
mod secrets;
mod survey;
mod troubles;
mod words;

#[cfg(test)]
mod tests;

use checkrein_guest::prelude::*;

use crate::errand::Errand;
use crate::options::Options;
use crate::survey::Survey;

/// The agent.
#[derive(Debug, Default)]
pub struct Surveyor;

impl Agent for Surveyor {
    fn run(&self, run: &Run) -> Result<String, Failure> {
        let task = run.task();
        match Errand::of(&task) {
            Some(errand) => errand.run(run),
            None => Survey::new(Options::of(run, &task)?).run(run),
        }
    }
}

agent!(Surveyor);
