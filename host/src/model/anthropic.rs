//! The dialect of Anthropic: messages made of blocks.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Delta, Finish};
use super::dialect::Asked;
use super::draft::{Draft, End};
use super::fault::{Account, Fault, OVERLOADED};
use super::request;
use crate::message::{Message, Role};

/// The protocol wants a bound for the answer; this one is used when nobody gave one.
const MAX_OUTPUT_TOKENS: u32 = 8192;

/// The body of a request.
pub(super) fn body(asked: Asked<'_>) -> Result<Value, Fault> {
    let Asked { request, model, max_output_tokens, .. } = asked;
    let mut system = Vec::new();
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in &request.messages {
        let (role, blocks) = match message.role {
            Role::System => {
                system.push(message.text.as_str());
                continue;
            }
            Role::User => ("user", text(message)),
            Role::Assistant => ("assistant", assistant(message)?),
            Role::Tool => ("user", vec![tool_result(message)]),
        };
        // Results of calls that were made together must stand in one turn, and turns must alternate.
        match turns.last_mut() {
            Some((last, all)) if *last == role => all.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    // An empty block or turn is refused by the endpoint.
    turns.retain(|(_, blocks)| !blocks.is_empty());
    if turns.is_empty() {
        return Err(Fault::Invalid("it holds nothing but empty messages".to_owned()));
    }
    let messages =
        turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content }));
    let mut body = json!({
        "model": model,
        "stream": true,
        "max_tokens": max_output_tokens.unwrap_or(MAX_OUTPUT_TOKENS),
        "messages": messages.collect::<Vec<_>>(),
    });
    if !system.is_empty() {
        body["system"] = json!(system.join("\n\n"));
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let mut schema = request::object(&tool.parameters).map_err(Fault::Invalid)?;
            if schema.get("type").is_none() {
                schema["type"] = json!("object");
            }
            Ok(json!({ "name": tool.name, "description": tool.description, "input_schema": schema }))
        });
        body["tools"] = Value::Array(tools.collect::<Result<_, Fault>>()?);
    }
    if let Some(temperature) = request.temperature {
        // Ends at 1 here, at 2 in the other dialect.
        body["temperature"] = json!(temperature.min(1.0));
    }
    Ok(body)
}

fn text(message: &Message) -> Vec<Value> {
    if message.text.trim().is_empty() {
        Vec::new()
    } else {
        vec![json!({ "type": "text", "text": message.text })]
    }
}

fn assistant(message: &Message) -> Result<Vec<Value>, Fault> {
    let mut blocks = text(message);
    for call in &message.tool_calls {
        let input =
            request::object(&call.arguments).unwrap_or_else(|_| request::quoted(&call.arguments));
        blocks
            .push(json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input }));
    }
    Ok(blocks)
}

fn tool_result(message: &Message) -> Value {
    json!({ "type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.text })
}

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct Reader {
    draft: Draft,
}

impl Reader {
    pub(super) fn event(&mut self, data: &str, deltas: &mut VecDeque<Delta>) -> Result<(), Fault> {
        let event: Event = serde_json::from_str(data).map_err(|error| {
            Fault::Malformed(format!("an event is not of this protocol: {error}"))
        })?;
        match event {
            Event::MessageStart { message } => {
                self.draft.model = message.model.unwrap_or_default();
                self.count(message.usage, deltas);
            }
            Event::ContentBlockStart { index, content_block } => {
                self.begin(index, content_block, deltas)?
            }
            Event::ContentBlockDelta { index, delta } => match delta {
                BlockDelta::TextDelta { text } => self.say(text, deltas)?,
                BlockDelta::InputJsonDelta { partial_json } => {
                    // Calls of tools that the endpoint runs itself stream their input too.
                    if self.draft.has(index) {
                        self.draft.argue(index, &partial_json)?;
                    }
                }
                BlockDelta::Other => {}
            },
            Event::ContentBlockStop { index } => self.draft.shut(index),
            Event::MessageDelta { delta, usage } => {
                if let Some(reason) = delta.stop_reason {
                    self.draft.finish = Some(finish(&reason));
                }
                self.count(usage, deltas);
            }
            Event::MessageStop => {
                let response = std::mem::take(&mut self.draft).into_response()?;
                deltas.push_back(Delta::Done(response));
            }
            Event::Error { error } => return Err(reported(error)),
            Event::Other => {}
        }
        Ok(())
    }

    fn begin(
        &mut self,
        index: u64,
        block: Block,
        deltas: &mut VecDeque<Delta>,
    ) -> Result<(), Fault> {
        match block {
            Block::Text { text } => self.say(text, deltas),
            Block::ToolUse { id, name, input } => {
                if self.draft.has(index) {
                    return Err(Fault::Malformed(format!("two blocks have the number {index}")));
                }
                self.draft.begin(index, &id, &name, End::Open)?;
                // Usually the input follows in pieces; compatible endpoints may send it at once.
                if let Some(input) =
                    input.filter(|input| input.as_object().is_none_or(|input| !input.is_empty()))
                {
                    self.draft.argue(index, &input.to_string())?;
                }
                deltas.push_back(Delta::ToolCall { name });
                Ok(())
            }
            Block::Other => Ok(()),
        }
    }

    fn say(&mut self, text: String, deltas: &mut VecDeque<Delta>) -> Result<(), Fault> {
        if !text.is_empty() {
            self.draft.say(&text)?;
            deltas.push_back(Delta::Text(text));
        }
        Ok(())
    }

    /// Figures are totals so far: a later one stands for the earlier. Tokens that came from the cache count as input.
    fn count(&mut self, usage: Option<EventUsage>, deltas: &mut VecDeque<Delta>) {
        let Some(usage) = usage else { return };
        if let Some(input) = usage.input_tokens {
            let cached = [usage.cache_creation_input_tokens, usage.cache_read_input_tokens];
            self.draft.usage.input_tokens =
                cached.into_iter().flatten().fold(input, u64::saturating_add);
        }
        if let Some(output) = usage.output_tokens {
            self.draft.usage.output_tokens = output;
        }
        deltas.push_back(Delta::Used(self.draft.usage));
    }
}

fn finish(reason: &str) -> Finish {
    match reason {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" => Finish::ContentFilter,
        _ => Finish::Other,
    }
}

/// An error in the middle of a stream, as the status that it would have been before it.
fn reported(error: Option<EventError>) -> Fault {
    let error = error.unwrap_or_default();
    let kind = error.kind.unwrap_or_default();
    let status = match kind.as_str() {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "timeout_error" => 504,
        "overloaded_error" => OVERLOADED,
        _ => 500,
    };
    let reason = error.message.unwrap_or(kind);
    Fault::Status { status, reason, retry_after: None, account: Account::Fine }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: MessageStart,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: BlockDelta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: MessageDelta,
        usage: Option<EventUsage>,
    },
    MessageStop,
    Error {
        error: Option<EventError>,
    },
    /// `ping`, and what is invented later.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct MessageStart {
    model: Option<String>,
    usage: Option<EventUsage>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Option<Value>,
    },
    /// Thoughts, and tools that the endpoint runs itself.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum BlockDelta {
    TextDelta {
        text: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    /// Thoughts, signatures, citations.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct MessageDelta {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct EventUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
struct EventError {
    #[serde(rename = "type")]
    kind: Option<String>,
    message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::answer::Response;
    use super::super::dialect::Origin;
    use super::super::request::Request;
    use super::*;
    use crate::message::{ToolCall, ToolSpec, Usage};

    fn read(events: &[Value]) -> Result<Option<Response>, Fault> {
        let mut reader = Reader::default();
        let mut deltas = VecDeque::new();
        for event in events {
            reader.event(&event.to_string(), &mut deltas)?;
        }
        Ok(deltas.into_iter().find_map(|delta| {
            if let Delta::Done(response) = delta { Some(response) } else { None }
        }))
    }

    fn result(id: &str, text: &str) -> Message {
        Message { tool_call_id: Some(id.into()), ..Message::text(Role::Tool, text) }
    }

    #[test]
    fn the_body_holds_the_whole_request() {
        let call = |id: &str, arguments: &str| ToolCall {
            id: id.into(),
            name: "t".into(),
            arguments: arguments.into(),
        };
        let request = Request {
            messages: vec![
                Message::text(Role::System, "be kind"),
                Message::text(Role::System, "be brief"),
                Message::text(Role::User, "go"),
                Message {
                    tool_calls: vec![call("1", ""), call("2", r#"{"x":1}"#)],
                    ..Message::text(Role::Assistant, "")
                },
                result("1", "one"),
                result("2", "two"),
                Message::text(Role::User, "and now?"),
            ],
            tools: vec![ToolSpec {
                name: "t".into(),
                description: "does it".into(),
                parameters: "{}".into(),
                hints: Vec::new(),
            }],
            temperature: Some(1.5),
            ..Request::default()
        };
        let asked =
            Asked { request: &request, model: "m", max_output_tokens: None, origin: Origin::Maker };
        let expected = json!({
            "model": "m", "stream": true, "max_tokens": 8192, "temperature": 1.0, "system": "be kind\n\nbe brief",
            "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "go" }] },
                { "role": "assistant", "content": [
                    { "type": "tool_use", "id": "1", "name": "t", "input": {} },
                    { "type": "tool_use", "id": "2", "name": "t", "input": { "x": 1 } },
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "1", "content": "one" },
                    { "type": "tool_result", "tool_use_id": "2", "content": "two" },
                    { "type": "text", "text": "and now?" },
                ] },
            ],
            "tools": [{ "name": "t", "description": "does it", "input_schema": { "type": "object" } }],
        });
        assert_eq!(body(asked), Ok(expected));
    }

    #[test]
    fn thoughts_and_unknown_things_are_passed_over() {
        let response = read(&[
            json!({ "type": "message_start", "message": { "model": "m",
                "usage": { "input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1 } } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "thinking", "thinking": "" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "thinking_delta", "thinking": "hm" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "signature_delta", "signature": "s" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "content_block_start", "index": 1, "content_block":
                { "type": "server_tool_use", "id": "s", "name": "search", "input": {} } }),
            json!({ "type": "content_block_delta", "index": 1,
                "delta": { "type": "input_json_delta", "partial_json": "{}" } }),
            json!({ "type": "ping" }),
            json!({ "type": "invented_later", "x": 1 }),
            json!({ "type": "content_block_start", "index": 2, "content_block": { "type": "text", "text": "y" } }),
            json!({ "type": "content_block_delta", "index": 2, "delta": { "type": "text_delta", "text": "es" } }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 9 } }),
            json!({ "type": "message_stop" }),
        ])
        .unwrap()
        .unwrap();
        assert_eq!((response.message.text.as_str(), response.finish), ("yes", Finish::Stop));
        assert_eq!(response.usage, Usage { input_tokens: 7, output_tokens: 9 });
        assert!(response.message.tool_calls.is_empty());
    }

    #[test]
    fn a_call_without_its_end_counts_only_as_cut_off() {
        let events = |reason: &str| {
            [
                json!({ "type": "content_block_start", "index": 0, "content_block":
                    { "type": "tool_use", "id": "1", "name": "t", "input": {} } }),
                json!({ "type": "content_block_delta", "index": 0,
                    "delta": { "type": "input_json_delta", "partial_json": "{}" } }),
                json!({ "type": "message_delta", "delta": { "stop_reason": reason } }),
                json!({ "type": "message_stop" }),
            ]
        };
        assert!(matches!(read(&events("tool_use")), Err(Fault::Malformed(_))));
        let response = read(&events("max_tokens")).unwrap().unwrap();
        assert_eq!((response.message.tool_calls.len(), response.finish), (0, Finish::Length));
    }

    #[test]
    fn errors_in_the_stream_stand_for_a_status() {
        for (kind, expected, passes) in [
            ("overloaded_error", 529, true),
            ("rate_limit_error", 429, true),
            ("api_error", 500, true),
            ("invalid_request_error", 400, false),
            ("authentication_error", 401, false),
        ] {
            let fault =
                read(&[json!({ "type": "error", "error": { "type": kind, "message": "m" } })])
                    .unwrap_err();
            assert_eq!(fault.passes(), passes, "{kind}");
            assert!(
                matches!(fault, Fault::Status { status, .. } if status == expected),
                "{kind}: {fault:?}"
            );
        }
    }

    #[test]
    fn what_is_not_of_the_protocol_is_refused() {
        for data in [
            "{",
            "{}",
            "[DONE]",
            r#"{"type":"content_block_delta","index":-1,"delta":{"type":"text_delta","text":"a"}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use"}}"#,
        ] {
            let fault = Reader::default().event(data, &mut VecDeque::new());
            assert!(matches!(fault, Err(Fault::Malformed(_))), "{data}: {fault:?}");
        }
    }
}
