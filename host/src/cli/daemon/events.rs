//! The events of a session, as the daemon streams them.

use std::sync::Arc;

use checkrein::session::Event;
use checkrein::store::EventRow;
use serde_json::Value;

use super::client::Answer;
use crate::cli::code::Code;
use crate::cli::problem::Problem;

/// The most bytes of one event.
const MOST: usize = 8 << 20;

/// A stream that is being read.
pub(in crate::cli) struct Events {
    answer: Answer,
    bytes: Vec<u8>,
    /// How many of the bytes have been looked at.
    looked: usize,
}

/// What comes along the stream.
#[derive(Debug, PartialEq)]
pub(in crate::cli) enum Told {
    /// Something happened in the session.
    Event(Box<Event>),
    /// Events passed by before they were sent.
    Lagged(u64),
    /// The daemon ends its streams.
    Closing,
}

impl Events {
    pub(in crate::cli) fn new(answer: Answer) -> Events {
        Events { answer, bytes: Vec::new(), looked: 0 }
    }

    /// The next one; none when the session is gone, or there is nothing more to tell.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(in crate::cli) async fn next(&mut self) -> Result<Option<Told>, Problem> {
        loop {
            while let Some(block) = self.block() {
                if let Some(told) = read(&block)? {
                    return Ok(Some(told));
                }
            }
            match self.answer.part().await? {
                Some(part) => self.bytes.extend_from_slice(&part),
                None => return Ok(None),
            }
            if self.bytes.len() > MOST {
                return Err(Problem::new(Code::Failed, "an event of the daemon has no end"));
            }
        }
    }

    /// The next block that is there, up to its empty line.
    fn block(&mut self) -> Option<String> {
        let from = self.looked.saturating_sub(1);
        let end = self.bytes[from..].windows(2).position(|two| two == b"\n\n");
        let Some(end) = end else {
            self.looked = self.bytes.len();
            return None;
        };
        let rest = self.bytes.split_off(from + end + 2);
        let block = std::mem::replace(&mut self.bytes, rest);
        self.looked = 0;
        Some(String::from_utf8_lossy(&block).into_owned())
    }
}

/// One block; none for a comment and for what this version does not know.
fn read(block: &str) -> Result<Option<Told>, Problem> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
    let Some(data) = field("data: ") else { return Ok(None) };
    let value: Value = serde_json::from_str(data).map_err(|error| {
        Problem::because(Code::Failed, "an event of the daemon is not JSON", error)
    })?;
    if field("id: ").is_some() {
        let run: Arc<str> = super::word(&value["run"]).into();
        let (seq, at_ms) = (super::number(&value["seq"]), super::number(&value["at-ms"]));
        let row = EventRow { seq, at_ms, run, body: data.into() };
        return Ok(Some(Told::Event(Box::new(Event::from_row(&row)))));
    }
    match field("event: ") {
        Some("lagged") => Ok(Some(Told::Lagged(super::number(&value["missed"])))),
        Some("closing") => Ok(Some(Told::Closing)),
        Some("error") => {
            let words = super::word(&value["error"]["message"]).to_owned();
            Err(Problem::new(Code::Failed, words))
        }
        Some(_) | None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use checkrein::session::EventKind;

    use super::*;

    #[test]
    fn an_event_is_read_as_it_is_written() {
        let text = r#"{"seq":7,"at-ms":5,"run":"s1.1","event":"progress","text":"on"}"#;
        let told = read(&format!("id: 7\nevent: progress\ndata: {text}\n\n"));
        let Ok(Some(Told::Event(event))) = told else { panic!("{told:?}") };
        assert_eq!((event.seq, &*event.run), (7, "s1.1"));
        assert_eq!(event.kind, EventKind::Progress { text: "on".to_owned() });
        assert!(matches!(read(":\n\n"), Ok(None)));
        let lagged = read("event: lagged\ndata: {\"missed\":3}\n\n");
        assert!(matches!(lagged, Ok(Some(Told::Lagged(3)))));
    }
}
