//! `checkrein attach`: follows a session.

use std::sync::Arc;

use checkrein::session::{Event, EventKind};

use super::events::{Events, Told};
use super::{Daemon, number, session_path};
use crate::cli::code::Code;
use crate::cli::log::Log;
use crate::cli::problem::Problem;
use crate::cli::progress::{Form, Progress};
use crate::cli::screen::Screen;
use crate::cli::{setup, text};

/// The arguments of `checkrein attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct Attach {
    #[command(flatten)]
    daemon: Daemon,
    /// The session: ID, or PROFILE/ID where there are several profiles.
    #[arg(value_name = "SESSION")]
    session: String,
    /// Begin after the event of that number; 0 shows all that is kept. Otherwise only what comes is shown.
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// End with the turn that is going on, or with the newest event.
    #[arg(long)]
    once: bool,
}

impl Attach {
    pub(crate) fn execute(&self, log: Log) -> Result<Code, Problem> {
        let screen = Screen::plain();
        log.start(screen.clone())?;
        let client = self.daemon.client()?;
        let form = if self.daemon.json { Form::Json } else { Form::Lines };
        setup::block_on(async {
            let session = session_path(&client, &self.session).await?;
            let row = client.get(&session).await?;
            let newest = number(&row["last-event"]);
            let is_idle = row["running"].is_null();
            let after = self.after.unwrap_or(newest);
            let follow = !(self.once && is_idle);
            let path = format!("{session}/events?after={after}&follow={follow}");
            let mut events = Events::new(client.stream(&path).await?);
            let mut shown = Shown { form, progress: Progress::of_others(form, screen.clone()) };
            while let Some(told) = events.next().await? {
                match told {
                    Told::Event(event) => {
                        shown.show(&event)?;
                        if self.once && event.seq >= newest && is_end(&event) {
                            break;
                        }
                    }
                    Told::Lagged(missed) => {
                        screen.line(&format!("{missed} events are kept no more"));
                    }
                    Told::Closing => {
                        screen.line("the daemon ends");
                        return Ok(Code::Refused);
                    }
                }
            }
            Ok(Code::Completed)
        })
    }
}

struct Shown {
    form: Form,
    progress: Progress,
}

impl Shown {
    fn show(&mut self, event: &Event) -> Result<(), Problem> {
        self.progress.turn(turn_of(&event.run));
        self.progress.show(event).map_err(|error| {
            Problem::because(Code::Failed, "could not write to standard output", error)
        })?;
        if self.form == Form::Lines
            && is_end(event)
            && let EventKind::RunEnded { status, detail, output, used, reached, .. } = &event.kind
        {
            self.progress.ended(status, detail.as_deref(), used, *reached);
            if !output.is_empty() {
                text::print(&format!("{}\n", output.trim_end_matches('\n')))?;
            }
        }
        Ok(())
    }
}

/// The run of the turn that a run belongs to: `s1.2` of `s1.2.1`.
fn turn_of(run: &str) -> Arc<str> {
    let end = run.match_indices('.').nth(1).map_or(run.len(), |(at, _)| at);
    run[..end].into()
}

/// Whether a turn ends here, and not one of its children.
fn is_end(event: &Event) -> bool {
    matches!(event.kind, EventKind::RunEnded { .. }) && *turn_of(&event.run) == *event.run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_of_a_run_is_the_beginning_of_its_name() {
        for (run, turn) in [("s1.2", "s1.2"), ("s1.2.1", "s1.2"), ("s1.2.1.7", "s1.2"), ("", "")] {
            assert_eq!(&*turn_of(run), turn);
        }
    }
}
