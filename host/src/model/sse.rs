//! Server-sent events, decoded as they arrive, with a bound for one event.
//!
//! Only the data of events is kept: both dialects repeat the name of an event inside its data.

use std::collections::VecDeque;

use super::fault::Fault;

/// Bytes that one event may have.
pub(super) const EVENT_BYTES: usize = 4 << 20;

/// Turns pieces of a body into the data of events.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// Data of the event that has not ended yet; none before its first `data` line.
    data: Option<String>,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    /// The first line has been seen; a byte order mark may stand only before it.
    begun: bool,
    /// Events that are complete.
    ready: VecDeque<String>,
}

impl Decoder {
    /// Takes the next piece of the body.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while let Some((&first, rest)) = bytes.split_first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                bytes = rest;
                continue;
            }
            match bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
                Some(end) => {
                    self.grow(&bytes[..end])?;
                    self.after_return = bytes[end] == b'\r';
                    bytes = &bytes[end + 1..];
                    self.end_line()?;
                }
                None => {
                    self.grow(bytes)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// The data of the next event that is complete.
    pub(super) fn next(&mut self) -> Option<String> {
        self.ready.pop_front()
    }

    fn grow(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let size = self.line.len() + self.data.as_ref().map_or(0, String::len) + bytes.len();
        if size > EVENT_BYTES {
            return Err(Fault::TooLarge {
                what: "one event",
                most: format!("{EVENT_BYTES} bytes"),
            });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Fault> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.begun, true) && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3);
        }
        if line.is_empty() {
            self.ready.extend(self.data.take());
        } else if let Some(value) = line.strip_prefix(b"data").and_then(after_colon) {
            let value = std::str::from_utf8(value)
                .map_err(|_| Fault::Malformed("an event is not UTF-8".to_owned()))?;
            match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            }
        }
        // The buffer goes on to the next line, so that a long stream does not allocate for each.
        line.clear();
        self.line = line;
        Ok(())
    }
}

/// The value of a field, after its name: `data: x` and `data:x` are the same, `data` alone is empty.
fn after_colon(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [] => Some(rest),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stream: &str, expected: &[&str]) {
        // Whole, and cut at every place: the cut must never show.
        for cut in 0..=stream.len() {
            let mut decoder = Decoder::default();
            let mut events = Vec::new();
            for piece in [&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]] {
                decoder.feed(piece).unwrap();
                events.extend(std::iter::from_fn(|| decoder.next()));
            }
            assert_eq!(events, expected, "{stream:?} cut at {cut}");
        }
    }

    #[test]
    fn events_end_with_an_empty_line_of_any_kind() {
        check("data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n", &["a", "b", "c"]);
    }

    #[test]
    fn lines_of_data_are_joined_and_other_fields_left_out() {
        check("event: x\nid: 1\ndata: grü\ndata:ße\ndata\n\n", &["grü\nße\n"]);
    }

    #[test]
    fn comments_and_events_without_data_give_nothing() {
        check(": ping\n\nevent: ping\n\nretry: 1\n\ndatabase: x\n\n", &[]);
    }

    #[test]
    fn a_byte_order_mark_is_left_out_at_the_beginning_only() {
        check("\u{feff}data: a\n\ndata: \u{feff}b\n\n", &["a", "\u{feff}b"]);
    }

    #[test]
    fn what_is_not_utf_8_is_refused() {
        assert!(matches!(Decoder::default().feed(b"data: \xff\n"), Err(Fault::Malformed(_))));
    }

    #[test]
    fn an_event_without_end_is_refused_when_it_is_too_large() {
        for piece in [&b"data: a\n"[..], b"data: aaaaaaaa", b":"] {
            let mut decoder = Decoder::default();
            let mut fed = 0;
            let fault = loop {
                let piece = piece.repeat(1000);
                fed += piece.len();
                if let Err(fault) = decoder.feed(&piece) {
                    break fault;
                }
                assert!(fed < 40 * EVENT_BYTES);
            };
            assert!(matches!(fault, Fault::TooLarge { .. }));
        }
    }
}
