//! A conversation as people read it: who said what and when, and between that what became of the runs.

use std::time::Duration;

use checkrein::session::EventKind;
use serde_json::Value;

use super::show::{Cut, moment};
use crate::cli::daemon::{number, word};
use crate::cli::text;

/// Whether a transcript says something of it.
pub(super) fn tells(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::RunStarted { .. }
            | EventKind::RunEnded { .. }
            | EventKind::Stop { .. }
            | EventKind::DelegationAccepted { .. }
            | EventKind::DelegationRejected { .. }
            | EventKind::DelegationEnded { .. }
            | EventKind::EventsLost { .. }
    )
}

/// The messages of a session, with what its events tell between them.
pub(super) fn lines(session: &Value, cut: &Cut) -> String {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let (messages, events) = (list(&session["newest-messages"]), list(&session["runs"]));
    let mut out = String::new();
    let first = messages.first().map_or(0, |message| number(&message["number"]));
    if number(&session["messages"]) > messages.len() as u64 && first > 1 {
        out.push_str(&format!("\n… {} messages before this; --limit shows more\n", first - 1));
    }
    for piece in merged(&messages, &events) {
        match piece {
            Piece::Message(message) => out.push_str(&said(message, cut)),
            Piece::Event(event) => out.push_str(&told(event, cut)),
        }
    }
    out
}

#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Message(&'a Value),
    Event(&'a Value),
}

/// Both in one order. A turn records what it was asked and that it began together, and likewise what it answered and
/// that it ended; so each message has its place beside such an event, counted from the newest.
fn merged<'a>(messages: &'a [Value], events: &'a [Value]) -> Vec<Piece<'a>> {
    let mut left = messages.iter().rev().peekable();
    let mut backwards = Vec::new();
    for event in events.iter().rev() {
        let role = match word(&event["event"]) {
            _ if turn(event).is_none() => None,
            "run-started" => Some("user"),
            "run-ended" => Some("assistant"),
            _ => None,
        };
        let beside = |message: &&Value| {
            Some(word(&message["message"]["role"])) == role
                && number(&message["at-ms"]) >= number(&event["at-ms"])
        };
        match left.next_if(beside) {
            // What was asked comes after the beginning, and what was answered before the end.
            Some(message) if role == Some("user") => {
                backwards.extend([Piece::Message(message), Piece::Event(event)]);
            }
            Some(message) => backwards.extend([Piece::Event(event), Piece::Message(message)]),
            // Of turns whose messages are not shown nothing is told.
            None if left.peek().is_none() => break,
            None => backwards.push(Piece::Event(event)),
        }
    }
    backwards.extend(left.map(Piece::Message));
    backwards.reverse();
    backwards
}

/// The number of the turn, for an event of a turn's own run: 2 of `s1.2`.
fn turn(event: &Value) -> Option<&str> {
    let (_, rest) = word(&event["run"]).split_once('.')?;
    (!rest.contains('.')).then_some(rest)
}

fn said(message: &Value, cut: &Cut) -> String {
    let at = moment(number(&message["at-ms"]));
    let said = &message["message"];
    // What cannot be read is shown as the text that it is.
    let (role, words) = match said["role"].as_str() {
        Some(role) => (role, word(&said["text"])),
        None => ("unreadable", word(said)),
    };
    let mut out = format!("\n{}, {at}:\n{}", text::line(role, 40), cut.indented(words));
    for call in said["tool-calls"].as_array().map_or(&[][..], Vec::as_slice) {
        let (name, arguments) = (word(&call["name"]), word(&call["arguments"]));
        out.push_str(&format!("  calls {} {}\n", text::line(name, 80), cut.line(arguments)));
    }
    out
}

fn told(event: &Value, cut: &Cut) -> String {
    let (run, at) = (text::line(word(&event["run"]), 80), moment(number(&event["at-ms"])));
    let who = match turn(event) {
        Some(number) => format!("turn {}", text::line(number, 40)),
        None => format!("run {run}"),
    };
    let detail = || match event["detail"].as_str() {
        Some(detail) => format!(": {}", cut.line(detail)),
        None => String::new(),
    };
    let words = match word(&event["event"]) {
        "run-started" => {
            let agent = text::line(word(&event["agent"]), 80);
            let brings = event["delegation"].as_str().map(|unit| text::line(unit, 40));
            match (turn(event), brings) {
                (Some(_), Some(unit)) => format!("{who} began, which brings {unit} to {agent}"),
                (Some(_), None) => format!("{who} began, of {agent}"),
                (None, _) => {
                    format!("{who} began, of {agent}: {}", cut.line(word(&event["goal"])))
                }
            }
        }
        "run-ended" => {
            let took = Duration::from_millis(number(&event["used"]["wall-time-ms"]));
            let status = text::line(word(&event["status"]), 40);
            format!("{who} ended: {status} after {}{}", text::time(took), detail())
        }
        "stop" => {
            let (kind, issuer) = (word(&event["kind"]), word(&event["issuer"]));
            let asked = if kind == "hard" { "was stopped hard" } else { "was asked to stop" };
            let words = cut.line(word(&event["message"]));
            format!("{who} {asked} by {}: {words}", text::line(issuer, 80))
        }
        "delegation-accepted" => {
            let tasks = event["tasks"].as_array().map_or(0, Vec::len);
            let unit = text::line(word(&event["delegation"]), 40);
            format!("{unit} runs in the background: {tasks} tasks of {who}")
        }
        "delegation-rejected" => {
            let (reason, then) = (word(&event["reason"]), word(&event["then"]));
            let (reason, then) = (text::line(reason, 40), text::line(then, 40));
            format!(
                "tasks of {who} were not let into the background ({reason}, {then}){}",
                detail()
            )
        }
        "delegation-ended" => {
            let unit = text::line(word(&event["delegation"]), 40);
            format!("{unit} ended: {}", text::line(word(&event["status"]), 40))
        }
        _ => format!("{} events were left out", number(&event["count"])),
    };
    format!("\n[{at}] {words}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(role: &str, at: u64, words: &str) -> Value {
        json!({ "number": 1, "at-ms": at, "message": { "role": role, "text": words } })
    }

    fn event(kind: &str, run: &str, at: u64) -> Value {
        json!({ "event": kind, "run": run, "at-ms": at })
    }

    fn order<'a>(pieces: &[Piece<'a>]) -> Vec<&'a str> {
        let name = |piece: &Piece<'a>| match piece {
            Piece::Message(message) => word(&message["message"]["text"]),
            Piece::Event(event) => word(&event["run"]),
        };
        pieces.iter().map(name).collect()
    }

    #[test]
    fn each_message_stands_beside_its_turn_whatever_the_clock_says() {
        let messages =
            [message("user", 7, "a"), message("assistant", 7, "b"), message("user", 7, "c")];
        let events = [
            event("run-started", "s.1", 5),
            event("run-started", "s.1.1", 5),
            event("run-ended", "s.1.1", 6),
            event("run-ended", "s.1", 6),
            event("run-started", "s.2", 6),
        ];
        let merged = merged(&messages, &events);
        assert_eq!(order(&merged), ["s.1", "a", "s.1.1", "s.1.1", "b", "s.1", "s.2", "c"]);
    }

    #[test]
    fn a_turn_whose_messages_are_not_read_yet_takes_none_of_another() {
        let messages = [message("user", 5, "a"), message("assistant", 6, "b")];
        let events = [
            event("run-started", "s.1", 5),
            event("run-ended", "s.1", 6),
            event("run-started", "s.2", 8),
            event("run-ended", "s.2", 9),
        ];
        let merged = merged(&messages, &events);
        assert_eq!(order(&merged), ["s.1", "a", "b", "s.1", "s.2", "s.2"]);
    }

    #[test]
    fn nothing_is_told_of_turns_whose_messages_are_not_shown() {
        let messages = [message("user", 9, "c")];
        let events = [
            event("run-started", "s.1", 5),
            event("run-ended", "s.1", 6),
            event("run-started", "s.2", 9),
        ];
        assert_eq!(order(&merged(&messages, &events)), ["s.2", "c"]);
    }
}
