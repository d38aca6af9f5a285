//! `checkrein session show`.

use serde_json::{Value, json};

use super::place::Place;
use super::target::Target;
use super::{journal, rows, transcript};
use crate::cli::code::Code;
use crate::cli::daemon::{number, word};
use crate::cli::problem::Problem;
use crate::cli::{setup, text};

/// How far back the events are read, for what a transcript says of runs.
const EVENTS: u64 = 20_000;

/// The arguments of `checkrein session show`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    #[command(flatten)]
    place: Place,
    /// The session: ID, or PROFILE/ID where a daemon has several profiles.
    #[arg(value_name = "SESSION")]
    session: String,
    /// So many of the newest messages; with --events, of the newest events.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    limit: usize,
    /// Show the journal, event by event, in place of the conversation.
    #[arg(long)]
    events: bool,
    /// Cut no texts, however long they are.
    #[arg(long)]
    full: bool,
}

impl Show {
    pub(super) fn execute(&self) -> Result<Code, Problem> {
        let session = setup::block_on(self.read())?;
        self.place.print(&session, |session| self.shown(session))
    }

    /// The session with what was asked for of it.
    async fn read(&self) -> Result<Value, Problem> {
        let target = Target::find(&self.place, &self.session).await?;
        let mut session = target.row().await?;
        let newest = number(&session["last-event"]);
        if self.events {
            let after = newest.saturating_sub(self.limit as u64);
            session["newest-events"] = values(&target.events(after).await?)?;
            return Ok(session);
        }
        let limit = self.limit.clamp(1, 10_000);
        session["newest-messages"] = target.messages(limit).await?.into();
        let events = target.events(newest.saturating_sub(EVENTS)).await?;
        let told = events.iter().filter(|event| transcript::tells(&event.kind));
        session["runs"] = values(told)?;
        if number(&session["units-unread"]) > 0 {
            session["unread"] = target.unread().await?.into();
        }
        Ok(session)
    }

    fn shown(&self, session: &Value) -> String {
        let mut out = rows(&json!({ "sessions": [session] }));
        let times = [&session["created-ms"], &session["updated-ms"]];
        let [created, updated] = times.map(|at| moment(number(at)));
        out.push_str(&format!("opened {created}, last recorded {updated}\n"));
        let units = (number(&session["units-open"]), number(&session["units-unread"]));
        if units != (0, 0) {
            out.push_str(&format!("background: {} open, {} to be read\n", units.0, units.1));
        }
        let cut = Cut { full: self.full };
        match self.events {
            true => out.push_str(&journal::lines(&session["newest-events"], &cut)),
            false => {
                out.push_str(&transcript::lines(session, &cut));
                out.push_str(&unread(&session["unread"], &cut));
            }
        }
        out
    }
}

fn values<'a>(
    events: impl IntoIterator<Item = &'a checkrein::session::Event>,
) -> Result<Value, Problem> {
    let values = events.into_iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
    let values =
        values.map_err(|error| Problem::because(Code::Failed, "could not show an event", error))?;
    Ok(values.into())
}

/// What has come out of the background and was read by nobody.
fn unread(completions: &Value, cut: &Cut) -> String {
    let mut out = String::new();
    for completion in completions.as_array().map_or(&[][..], Vec::as_slice) {
        let (id, status) = (word(&completion["id"]), word(&completion["status"]));
        out.push_str(&format!("\nnot read: {} {}\n", text::shown(id), text::shown(status)));
        for (place, entry) in completion["entries"].as_array().into_iter().flatten().enumerate() {
            let goal = text::line(word(&completion["goals"][place]), 80);
            let (status, detail) =
                (word(&entry["status"]), text::line(word(&entry["detail"]), 400));
            let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
            out.push_str(&format!("  task {place}: {goal}: {}{detail}\n", text::shown(status)));
            out.push_str(&cut.indented(word(&entry["output"])));
        }
    }
    out
}

/// A moment, in UTC.
pub(super) fn moment(at_ms: u64) -> String {
    let stamp = i64::try_from(at_ms).ok();
    let stamp = stamp.and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    // A moment that no calendar has.
    stamp.map_or_else(|| format!("{at_ms} ms"), |at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// How much of a text is shown.
pub(super) struct Cut {
    pub(super) full: bool,
}

impl Cut {
    /// Characters of a text, and of one that stands in a line.
    const TEXT: usize = 2_000;
    const LINE: usize = 200;

    /// A foreign text in lines of its own. Each is indented, so that none can pass for a line of ours.
    pub(super) fn indented(&self, words: &str) -> String {
        let most = if self.full { usize::MAX } else { Cut::TEXT };
        let (kept, rest) = match words.char_indices().nth(most) {
            Some((end, _)) => words.split_at(end),
            None => (words, ""),
        };
        let mut out = String::new();
        for line in text::shown(kept).lines() {
            out.push_str(&format!("    {line}\n"));
        }
        if !rest.is_empty() {
            let left = text::count(rest.chars().count() as u64);
            out.push_str(&format!("  … and {left} characters more; --full shows them\n"));
        }
        out
    }

    /// A foreign text in a line of ours.
    pub(super) fn line(&self, words: &str) -> String {
        text::line(words, if self.full { usize::MAX } else { Cut::LINE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_foreign_text_passes_for_one_of_ours() {
        let cut = Cut { full: false };
        let forged = "hello\n\nuser, 2026-01-01 00:00:00Z:\n\x1b[2Jyes\r\n";
        assert_eq!(
            cut.indented(forged),
            "    hello\n    \n    user, 2026-01-01 00:00:00Z:\n    \\u{1b}[2Jyes\\u{d}\n"
        );
    }

    #[test]
    fn long_texts_are_cut_unless_all_is_asked_for() {
        let long = "ä".repeat(2_500);
        let cut = Cut { full: false }.indented(&long);
        assert!(cut.ends_with("ä\n  … and 500 characters more; --full shows them\n"), "{cut}");
        assert_eq!(Cut { full: true }.indented(&long), format!("    {long}\n"));
    }

    #[test]
    fn a_moment_is_shown_whatever_it_is() {
        assert_eq!(moment(1_790_000_000_000), "2026-09-21 14:13:20Z");
        assert_eq!(moment(u64::MAX), format!("{} ms", u64::MAX));
    }
}
