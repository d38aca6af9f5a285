//! The events of a session, one in each line.

use serde_json::Value;

use super::show::{Cut, moment};
use crate::cli::daemon::{number, word};
use crate::cli::text;

/// Fields that stand in front of the others.
const HEAD: [&str; 4] = ["seq", "at-ms", "run", "event"];

pub(super) fn lines(events: &Value, cut: &Cut) -> String {
    let events = events.as_array().map_or(&[][..], Vec::as_slice);
    let row = |event: &Value| {
        let mut rest = event.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.retain(|name, _| !HEAD.contains(&name.as_str()));
        }
        vec![
            number(&event["seq"]).to_string(),
            moment(number(&event["at-ms"])),
            text::line(word(&event["run"]), 40),
            text::line(word(&event["event"]), 40),
            cut.line(&rest.to_string()),
        ]
    };
    match events.is_empty() {
        true => "no events\n".to_owned(),
        false => text::columns(&events.iter().map(row).collect::<Vec<_>>()),
    }
}
