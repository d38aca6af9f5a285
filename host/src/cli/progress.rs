//! What is shown of a run's events: lines for people, or JSON for programs.

use std::collections::HashMap;
use std::io::{self, Write};

use checkrein::session::{Event, EventKind, Lagged, TurnReport};
use checkrein::work::Grace;

use super::screen::Screen;
use super::text;

/// How much of a call's arguments a line shows.
const ARGUMENTS: usize = 60;

/// How much of other foreign text a line shows.
const WORDS: usize = 400;

/// In which form events are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Lines on standard error.
    Lines,
    /// One event in each line of standard output, as JSON.
    Json,
}

/// Shows the events of one run.
#[derive(Debug)]
pub(super) struct Progress {
    form: Form,
    screen: Screen,
    grace: Grace,
    /// The arguments of the calls that are not answered yet, by the id of the call.
    calls: HashMap<String, String>,
    answered: u64,
}

impl Progress {
    pub(super) fn new(form: Form, screen: Screen, grace: Grace) -> Progress {
        Progress { form, screen, grace, calls: HashMap::new(), answered: 0 }
    }

    /// Shows one event.
    ///
    /// # Errors
    /// When standard output does not take it; only as JSON.
    pub(super) fn show(&mut self, event: &Event) -> io::Result<()> {
        if let EventKind::Stop { kind, .. } = &event.kind {
            // Whoever pressed the key has to hear that it was heard, also beside JSON.
            self.screen.line(&self.stopping(kind));
        }
        if self.form == Form::Json {
            let mut line = serde_json::to_vec(event)?;
            line.push(b'\n');
            let mut out = io::stdout().lock();
            out.write_all(&line)?;
            return out.flush();
        }
        for line in self.lines(&event.kind) {
            self.screen.line(&line);
        }
        Ok(())
    }

    /// Says that events were missed.
    pub(super) fn missed(&self, lagged: Lagged) {
        self.screen.line(&format!("{lagged}: what shows them is too slow"));
    }

    /// Says how the run went.
    pub(super) fn close(&self, report: &TurnReport) {
        self.screen.clear();
        if self.form == Form::Json {
            return;
        }
        let used = &report.used;
        let mut parts =
            vec![format!("{} in {}", report.outcome.status(), text::time(used.wall_time))];
        if self.answered > 0 {
            parts.push(format!("{} tool calls", text::count(self.answered)));
        }
        if used.model_tokens > 0 {
            parts.push(format!("{} tokens", text::count(used.model_tokens)));
        }
        if let Some(fuel) = used.fuel {
            parts.push(format!("{} fuel", text::count(fuel)));
        }
        parts.push(format!("{} memory", text::size(used.memory_peak)));
        self.screen.line(&parts.join(" · "));
        if let Some(detail) = report.outcome.detail() {
            self.screen.line(&format!("  {}", text::shown(&detail).replace('\n', "\n  ")));
        }
    }

    fn stopping(&self, kind: &str) -> String {
        if kind == "hard" {
            return "ending the run now".to_owned();
        }
        let grace = match self.grace {
            Grace::After(time) => format!("within {}", text::time(time)),
            Grace::Never => "in its own time".to_owned(),
        };
        format!("stopping: the run may finish what it is doing {grace}; Ctrl-C again ends it now")
    }

    fn lines(&mut self, kind: &EventKind) -> Vec<String> {
        match kind {
            EventKind::RunStarted { agent, .. } if !self.screen.is_live() => {
                vec![format!("{agent} started")]
            }
            EventKind::Progress { text } => {
                text.lines().map(|line| text::line(line, WORDS)).collect()
            }
            EventKind::ToolStarted { id, arguments, .. } => {
                self.calls.insert(id.clone(), text::line(arguments, ARGUMENTS));
                Vec::new()
            }
            EventKind::ToolEnded { id, tool, status, bytes, took } => {
                self.answered += 1;
                let arguments = self.calls.remove(id).unwrap_or_default();
                let size = text::size(*bytes as u64);
                let (tool, status) = (text::line(tool, ARGUMENTS), text::line(status, ARGUMENTS));
                vec![format!("  {tool} {arguments} · {status} · {size} · {}", text::time(*took))]
            }
            EventKind::ModelRetrying { attempt, reason } => {
                vec![format!(
                    "  the model is asked again (attempt {}): {}",
                    attempt + 1,
                    text::line(reason, WORDS)
                )]
            }
            EventKind::ModelEnded { detail: Some(detail), .. } => {
                vec![format!("  the model did not answer: {}", text::line(detail, WORDS))]
            }
            // The result is printed when it is whole; logs come by way of `tracing`; stops are told above.
            EventKind::RunStarted { .. }
            | EventKind::Partial { .. }
            | EventKind::Custom { .. }
            | EventKind::ModelStarted { .. }
            | EventKind::ModelText { .. }
            | EventKind::ModelToolCall { .. }
            | EventKind::ModelEnded { .. }
            | EventKind::Log { .. }
            | EventKind::Stop { .. }
            | EventKind::RunEnded { .. } => Vec::new(),
            // What a later library reports.
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tool_call_is_one_line_that_cannot_move_the_cursor() {
        let mut progress = Progress::new(Form::Lines, Screen::plain(), Grace::Never);
        let (id, tool) = ("1".to_owned(), "files_read".to_owned());
        let arguments = "{\"path\":\n\"\x1b[2Ja\"}".to_owned();
        assert!(
            progress
                .lines(&EventKind::ToolStarted { id: id.clone(), tool: tool.clone(), arguments })
                .is_empty()
        );
        let ended = EventKind::ToolEnded {
            id,
            tool,
            status: "ok".to_owned(),
            bytes: 2048,
            took: Duration::from_millis(7),
        };
        assert_eq!(
            progress.lines(&ended),
            ["  files_read {\"path\": \"\\u{1b}[2Ja\"} · ok · 2.0 KiB · 7 ms"]
        );
    }

    #[test]
    fn a_stop_says_how_long_the_run_has_and_what_ends_it_sooner() {
        let words = |grace| Progress::new(Form::Lines, Screen::plain(), grace).stopping("soft");
        assert!(
            words(Grace::After(Duration::from_secs(30))).contains("within 30.0 s; Ctrl-C again")
        );
        assert!(words(Grace::Never).contains("in its own time"));
    }
}
