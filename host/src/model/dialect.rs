//! What differs between the two protocols, in one place: address, headers, body, and how events become deltas.

use std::collections::VecDeque;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::answer::Delta;
use super::anthropic;
use super::fault::Fault;
use super::openai;
use super::request::Request;
use crate::secret::Secret;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Chat completions, as OpenAI and many others serve them.
    OpenAi,
    /// Messages, as Anthropic serves them.
    Anthropic,
}

/// What a request is made of besides itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) request: &'a Request,
    pub(super) model: &'a str,
    pub(super) max_output_tokens: Option<u32>,
    /// The endpoint of the maker of the protocol, not one that is compatible with it.
    pub(super) origin: Origin,
}

/// Whose endpoint it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Of the maker of the protocol.
    Maker,
    /// Of anybody else.
    Other,
}

impl Dialect {
    /// Where the maker of the protocol serves it.
    pub(super) fn base_url(self) -> &'static str {
        match self {
            Dialect::OpenAi => "https://api.openai.com/v1",
            Dialect::Anthropic => "https://api.anthropic.com",
        }
    }

    /// Under the base URL.
    pub(super) fn path(self) -> &'static str {
        match self {
            Dialect::OpenAi => "chat/completions",
            Dialect::Anthropic => "v1/messages",
        }
    }

    /// The environment variable in which people keep a key of the maker.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Dialect::OpenAi => "OPENAI_API_KEY",
            Dialect::Anthropic => "ANTHROPIC_API_KEY",
        }
    }

    /// The headers of every request; none when the key cannot stand in a header.
    pub(super) fn headers(self, key: Option<&Secret>) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        if self == Dialect::Anthropic {
            headers.insert(
                HeaderName::from_static("anthropic-version"),
                HeaderValue::from_static("2023-06-01"),
            );
        }
        if let Some(key) = key {
            let (name, value) = match self {
                Dialect::OpenAi => {
                    (http::header::AUTHORIZATION, format!("Bearer {}", key.expose()))
                }
                Dialect::Anthropic => {
                    (HeaderName::from_static("x-api-key"), key.expose().to_owned())
                }
            };
            let mut value = HeaderValue::try_from(value).ok()?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Some(headers)
    }

    /// The body of a request.
    pub(super) fn body(self, asked: Asked<'_>) -> Result<Value, Fault> {
        match self {
            Dialect::OpenAi => openai::body(asked),
            Dialect::Anthropic => anthropic::body(asked),
        }
    }

    /// Reads one answer.
    pub(super) fn reader(self) -> Reader {
        match self {
            Dialect::OpenAi => Reader::OpenAi(openai::Reader::default()),
            Dialect::Anthropic => Reader::Anthropic(anthropic::Reader::default()),
        }
    }
}

/// Reads one answer, event by event.
#[derive(Debug)]
pub(super) enum Reader {
    OpenAi(openai::Reader),
    Anthropic(anthropic::Reader),
}

impl Reader {
    /// Takes the data of an event and gives the deltas that it makes.
    pub(super) fn event(&mut self, data: &str, deltas: &mut VecDeque<Delta>) -> Result<(), Fault> {
        match self {
            Reader::OpenAi(reader) => reader.event(data, deltas),
            Reader::Anthropic(reader) => reader.event(data, deltas),
        }
    }

    /// The body has ended in good order without an event that ends the answer.
    pub(super) fn end(&mut self, deltas: &mut VecDeque<Delta>) -> Result<(), Fault> {
        match self {
            Reader::OpenAi(reader) => reader.end(deltas),
            Reader::Anthropic(_) => Err(cut_off()),
        }
    }
}

/// The body ended, and the answer had not.
pub(super) fn cut_off() -> Fault {
    Fault::Broken("the stream ended in the middle of the answer".to_owned())
}

/// What an endpoint says about an error, out of whatever it sent.
pub(super) fn complaint(body: &Value) -> Option<&str> {
    let error = body.get("error").unwrap_or(body);
    [error.get("message"), error.get("detail"), Some(error)]
        .into_iter()
        .flatten()
        .find_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::sse::Decoder;
    use super::*;

    /// What an endpoint sends for an answer with text and two calls.
    fn honest(dialect: Dialect) -> Vec<u8> {
        let events = match dialect {
            Dialect::OpenAi => {
                let delta = |delta: Value, finish: Value| json!({ "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
                let call = |index: u64, part: Value| json!({ "tool_calls": [{ "index": index, "id": format!("c{index}"), "function": part }] });
                vec![
                    delta(json!({ "content": "text ü" }), Value::Null),
                    delta(call(0, json!({ "name": "a", "arguments": "{\"x\"" })), Value::Null),
                    delta(call(0, json!({ "arguments": ":1}" })), Value::Null),
                    delta(call(1, json!({ "name": "b", "arguments": "" })), json!("tool_calls")),
                    json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } }),
                ]
            }
            Dialect::Anthropic => vec![
                json!({ "type": "message_start", "message": { "model": "m", "usage": { "input_tokens": 3, "output_tokens": 1 } } }),
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
                json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "text ü" } }),
                json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "tool_use", "id": "c", "name": "a", "input": {} } }),
                json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": "{\"x\":1}" } }),
                json!({ "type": "content_block_stop", "index": 1 }),
                json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 4 } }),
                json!({ "type": "message_stop" }),
            ],
        };
        let mut body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        if dialect == Dialect::OpenAi {
            body.push_str("data: [DONE]\n\n");
        }
        body.into_bytes()
    }

    /// Everything that a body gives, in pieces of that many bytes, up to the first fault or the end of the answer.
    fn read(dialect: Dialect, body: &[u8], piece: usize) -> Result<Vec<Delta>, Fault> {
        let (mut decoder, mut reader) = (Decoder::default(), dialect.reader());
        let mut deltas = VecDeque::new();
        for piece in body.chunks(piece) {
            decoder.feed(piece)?;
            while let Some(event) = decoder.next() {
                reader.event(&event, &mut deltas)?;
                if let Some(Delta::Done(_)) = deltas.back() {
                    return Ok(deltas.into());
                }
            }
        }
        reader.end(&mut deltas)?;
        Ok(deltas.into())
    }

    const BOTH: [Dialect; 2] = [Dialect::OpenAi, Dialect::Anthropic];

    proptest! {
        /// Whatever an endpoint sends, reading it ends with an answer or a fault; and an answer is never half of one.
        #[test]
        fn no_stream_does_harm(
            noise in proptest::collection::vec(any::<u8>(), 0..300),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            piece in 1_usize..80,
        ) {
            for dialect in BOTH {
                let honest = honest(dialect);
                let whole = read(dialect, &honest, honest.len()).unwrap();
                prop_assert_eq!(&read(dialect, &honest, piece).unwrap(), &whole);
                read(dialect, &noise, piece).ok();
                let at = at.index(honest.len());
                let mut changed = honest.clone();
                changed[at] = byte;
                read(dialect, &changed, piece).ok();
                changed.splice(at..at, noise.iter().copied());
                read(dialect, &changed, piece).ok();
                if let Ok(deltas) = read(dialect, &honest[..at], piece) {
                    let Some(Delta::Done(response)) = deltas.last() else { panic!("{deltas:?}") };
                    prop_assert_eq!(response.message.tool_calls.len(), 2);
                }
            }
        }
    }
}
