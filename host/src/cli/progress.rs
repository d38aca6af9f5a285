//! What is shown of a run's events: lines for people, or JSON for programs.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use checkrein::sandbox::{Reached, Used};
use checkrein::session::{Event, EventKind, TurnReport, WatchError};
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
    /// How long a soft stop leaves the run, where Ctrl-C is what stops it.
    grace: Option<Grace>,
    /// The run that was asked for. The others are its children, and theirs.
    root: Option<Arc<str>>,
    /// The arguments of the calls that are not answered yet, by their run and the id of the call.
    calls: HashMap<(Arc<str>, String), String>,
    answered: u64,
}

impl Progress {
    pub(super) fn new(form: Form, screen: Screen, grace: Grace) -> Progress {
        let grace = Some(grace);
        Progress { form, screen, grace, root: None, calls: HashMap::new(), answered: 0 }
    }

    /// Of runs that are not this command's: Ctrl-C ends the showing alone.
    pub(super) fn of_others(form: Form, screen: Screen) -> Progress {
        let (root, calls) = (None, HashMap::new());
        Progress { form, screen, grace: None, root, calls, answered: 0 }
    }

    /// Says which run the next event belongs to, or is above the one that it belongs to.
    pub(super) fn turn(&mut self, root: Arc<str>) {
        if self.root.as_ref() != Some(&root) {
            self.calls.clear();
            self.answered = 0;
            self.root = Some(root);
        }
    }

    /// Shows one event.
    ///
    /// # Errors
    /// When standard output does not take it; only as JSON.
    pub(super) fn show(&mut self, event: &Event) -> io::Result<()> {
        let root = Arc::clone(self.root.get_or_insert_with(|| Arc::clone(&event.run)));
        // Children carry the stop of their parent, and one line is enough.
        if let EventKind::Stop { kind, .. } = &event.kind
            && event.run == root
        {
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
        let child = child(&root, &event.run);
        for line in self.lines(&event.run, &event.kind) {
            self.screen.line(&format!("{child}{line}"));
        }
        Ok(())
    }

    /// Says that events were missed.
    pub(super) fn missed(&self, error: &WatchError) {
        self.screen.line(&match error {
            WatchError::Lagged(lagged) => format!("{lagged}: what shows them is too slow"),
            WatchError::Store(_) | _ => error.to_string(),
        });
    }

    /// Says how the run went.
    pub(super) fn close(&self, report: &TurnReport) {
        self.screen.clear();
        if self.form == Form::Json {
            return;
        }
        let detail = report.outcome.detail();
        self.told(report.outcome.status(), detail.as_deref(), &report.used);
        if report.reached.iter().any(|kind| report.limit() != Some(kind)) {
            self.limits(report.reached);
        }
    }

    /// Says how a run of somebody else's went.
    pub(super) fn ended(&self, status: &str, detail: Option<&str>, used: &Used, reached: Reached) {
        self.told(status, detail, used);
        if !reached.is_empty() {
            self.limits(reached);
        }
    }

    fn limits(&self, reached: Reached) {
        self.screen.line(&format!("  limits reached: {reached}"));
    }

    fn told(&self, status: &str, detail: Option<&str>, used: &Used) {
        let mut parts = vec![format!("{status} in {}", text::time(used.wall_time))];
        if self.answered > 0 {
            let calls = if self.answered == 1 { "tool call" } else { "tool calls" };
            parts.push(format!("{} {calls}", text::count(self.answered)));
        }
        if used.model_tokens > 0 {
            parts.push(format!("{} tokens", text::count(used.model_tokens)));
        }
        if let Some(fuel) = used.fuel {
            parts.push(format!("{} fuel", text::count(fuel)));
        }
        parts.push(format!("{} memory", text::size(used.memory_peak)));
        self.screen.line(&parts.join(" · "));
        if let Some(detail) = detail {
            self.screen.line(&format!("  {}", text::shown(detail).replace('\n', "\n  ")));
        }
    }

    fn stopping(&self, kind: &str) -> String {
        if kind == "hard" {
            return "ending the run now".to_owned();
        }
        let grace = match self.grace {
            Some(Grace::After(time)) => format!("within {}", text::time(time)),
            Some(Grace::Never) => "in its own time".to_owned(),
            None => return "stopping: the run was asked to finish".to_owned(),
        };
        format!("stopping: the run may finish what it is doing {grace}; Ctrl-C again ends it now")
    }

    fn lines(&mut self, run: &Arc<str>, kind: &EventKind) -> Vec<String> {
        match kind {
            EventKind::RunStarted { agent, goal, parent: Some(_), .. } => {
                vec![format!("{agent}: {}", text::line(goal, WORDS))]
            }
            EventKind::RunStarted { agent, .. } if !self.screen.is_live() => {
                vec![format!("{agent} started")]
            }
            EventKind::ChildEnded { child: ended, status, detail, .. } => {
                let detail = detail
                    .as_deref()
                    .map_or_else(String::new, |detail| format!(": {}", text::line(detail, WORDS)));
                vec![format!("{}{status}{detail}", child(run, ended))]
            }
            EventKind::DelegationRejected { detail, then, .. } => {
                let what = if then == "inline" { "in this run" } else { "not at all" };
                vec![format!("  handed out {what} and not in the background: {detail}")]
            }
            EventKind::Progress { text } => {
                text.lines().map(|line| text::line(line, WORDS)).collect()
            }
            EventKind::ToolStarted { id, arguments, .. } => {
                let call = (Arc::clone(run), id.clone());
                self.calls.insert(call, text::line(arguments, ARGUMENTS));
                Vec::new()
            }
            EventKind::ToolEnded { id, tool, status, bytes, took } => {
                self.answered += 1;
                let call = (Arc::clone(run), id.clone());
                let arguments = self.calls.remove(&call).unwrap_or_default();
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
            EventKind::EventsLost { count } => {
                vec![format!("  {count} events were left out: the store does not write as fast")]
            }
            // The result is printed when it is whole; logs come by way of `tracing`; stops are told above.
            EventKind::RunStarted { .. }
            | EventKind::Partial { .. }
            | EventKind::Custom { .. }
            | EventKind::ModelStarted { .. }
            | EventKind::ModelText { .. }
            | EventKind::ModelToolCall { .. }
            | EventKind::ModelEnded { .. }
            | EventKind::DelegationAccepted { .. }
            | EventKind::Delegated { .. }
            | EventKind::DelegationEnded { .. }
            | EventKind::Log { .. }
            | EventKind::Stop { .. }
            | EventKind::RunEnded { .. } => Vec::new(),
            // What a later library reports.
            _ => Vec::new(),
        }
    }
}

/// How the lines of a run begin: nothing for the run itself, and for its children their place below it.
fn child(root: &str, run: &str) -> String {
    let below = run.strip_prefix(root).and_then(|rest| rest.strip_prefix('.'));
    below.map_or_else(String::new, |below| format!("[{below}] "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tool_call_is_one_line_that_cannot_move_the_cursor() {
        let mut progress = Progress::new(Form::Lines, Screen::plain(), Grace::Never);
        let run: Arc<str> = "s1.1".into();
        let (id, tool) = ("1".to_owned(), "files_read".to_owned());
        let arguments = "{\"path\":\n\"\x1b[2Ja\"}".to_owned();
        assert!(
            progress
                .lines(
                    &run,
                    &EventKind::ToolStarted { id: id.clone(), tool: tool.clone(), arguments }
                )
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
            progress.lines(&run, &ended),
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

    #[test]
    fn the_lines_of_a_child_begin_with_its_place() {
        assert_eq!(child("s1.1", "s1.1"), "");
        assert_eq!(child("s1.1", "s1.1.12.3"), "[12.3] ");
        assert_eq!(child("s1.1", "s1.12"), "");
        let mut progress = Progress::new(Form::Lines, Screen::plain(), Grace::Never);
        let ended = EventKind::ChildEnded {
            child: "s1.1.2".into(),
            task: 0,
            delegation: None,
            status: "trapped".to_owned(),
            detail: Some("it\nbroke".to_owned()),
        };
        assert_eq!(progress.lines(&"s1.1".into(), &ended), ["[2] trapped: it broke"]);
    }
}
