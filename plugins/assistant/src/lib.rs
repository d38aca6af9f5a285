//! The agent `assistant`: lets a language model do a task, with the tools and directories that the run was given.
//!
//! One run answers one task. In a round the model either asks for tools, which are called and answered, or says its
//! final word. What went wrong with a call is told to the model as it is, so that it can do something else. The run
//! ends in one of these ways, and its text says in which:
//!
//! ```text
//! asking ──▶ answered                          the model asked for no more tools
//!    │  ╲──▶ wrapping up ──▶ answered          too many rounds, or the same failing call again and again
//!    ├─────▶ stopped                           a soft stop: what was done, what is missing, nothing new
//!    └─────▶ failed                            the model did not answer
//! ```
//!
//! - [`turn`] drives the rounds, [`conversation`] holds what was said and keeps it within bounds.
//! - [`calls`] makes the calls of one answer, [`toolbox`] knows which there can be, [`repeats`] ends loops.
//! - [`children`] hands tasks to other runs when the model asks for it, where this run may do so.
//! - [`account`] remembers what was done, for whoever reads the end of a run that did not end well.

mod account;
mod calls;
mod children;
mod conversation;
mod prompt;
mod repeats;
mod settings;
mod shorten;
mod toolbox;
mod turn;

#[cfg(test)]
mod tests;

use checkrein_guest::prelude::*;

use crate::settings::Settings;
use crate::turn::Turn;

/// The agent.
#[derive(Debug, Default)]
pub struct Assistant;

impl Agent for Assistant {
    fn run(&self, run: &Run) -> Result<String, Failure> {
        let settings = Settings::of(run)?;
        let task = run.task();
        if task.goal.trim().is_empty() && task.input.trim().is_empty() {
            return Err(Failure::invalid(
                "there is nothing to do: the task is empty; say in a sentence what the assistant shall do",
            ));
        }
        Turn::new(run, settings, task).run()
    }
}

agent!(Assistant);
