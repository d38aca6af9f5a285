//! The dialect of OpenAI: chat completions, as many other endpoints speak it too, some with an accent.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Delta, Finish};
use super::dialect::{Asked, Origin, complaint, cut_off};
use super::draft::{Draft, End};
use super::fault::{Account, Fault};
use super::request;
use crate::message::{Message, Role, Usage};

/// The body of a request.
pub(super) fn body(asked: Asked<'_>) -> Result<Value, Fault> {
    let Asked { request, model, max_output_tokens, origin } = asked;
    let mut body = json!({
        "model": model,
        "stream": true,
        "stream_options": { "include_usage": true },
        "messages": request.messages.iter().map(message).collect::<Vec<_>>(),
    });
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let parameters = request::object(&tool.parameters).map_err(Fault::Invalid)?;
            Ok(json!({
                "type": "function",
                "function": { "name": tool.name, "description": tool.description, "parameters": parameters },
            }))
        });
        body["tools"] = Value::Array(tools.collect::<Result<_, Fault>>()?);
    }
    if let Some(most) = max_output_tokens {
        // The newer models of OpenAI refuse the older name; most others know nothing but it.
        let name = match origin {
            Origin::Maker => "max_completion_tokens",
            Origin::Other => "max_tokens",
        };
        body[name] = json!(most);
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    Ok(body)
}

fn message(message: &Message) -> Value {
    let mut value = json!({ "role": message.role.as_str(), "content": message.text });
    match message.role {
        Role::Assistant if !message.tool_calls.is_empty() => {
            if message.text.is_empty() {
                value["content"] = Value::Null;
            }
            let calls = message.tool_calls.iter().map(|call| {
                let arguments = match request::object(&call.arguments) {
                    Ok(_) if call.arguments.trim().is_empty() => "{}".to_owned(),
                    Ok(_) => call.arguments.clone(),
                    Err(_) => request::quoted(&call.arguments).to_string(),
                };
                json!({
                    "id": call.id,
                    "type": "function",
                    "function": { "name": call.name, "arguments": arguments },
                })
            });
            value["tool_calls"] = calls.collect();
        }
        Role::Tool => value["tool_call_id"] = json!(message.tool_call_id),
        Role::System | Role::User | Role::Assistant => {}
    }
    value
}

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct Reader {
    draft: Draft,
}

impl Reader {
    pub(super) fn event(&mut self, data: &str, deltas: &mut VecDeque<Delta>) -> Result<(), Fault> {
        if data.trim() == "[DONE]" {
            return self.done(deltas);
        }
        let chunk: Chunk = serde_json::from_str(data)
            .map_err(|error| Fault::Malformed(format!("an event is no chunk: {error}")))?;
        if let Some(error) = &chunk.error {
            return Err(reported(error));
        }
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.draft.model = model;
        }
        if let Some(usage) = chunk.usage {
            self.draft.usage = Usage {
                input_tokens: usage.prompt_tokens.unwrap_or(0),
                output_tokens: usage.completion_tokens.unwrap_or(0),
            };
            deltas.push_back(Delta::Used(self.draft.usage));
        }
        for choice in chunk.choices.unwrap_or_default() {
            if let Some(delta) = choice.delta {
                self.delta(delta, deltas)?;
            }
            if let Some(reason) = choice.finish_reason {
                self.draft.finish = Some(finish(&reason));
            }
        }
        Ok(())
    }

    /// Not every endpoint sends `[DONE]`, but a reason to finish stands after all that belongs to the answer.
    pub(super) fn end(&mut self, deltas: &mut VecDeque<Delta>) -> Result<(), Fault> {
        if self.draft.finish.is_some() { self.done(deltas) } else { Err(cut_off()) }
    }

    fn done(&mut self, deltas: &mut VecDeque<Delta>) -> Result<(), Fault> {
        let response = std::mem::take(&mut self.draft).into_response()?;
        deltas.push_back(Delta::Done(response));
        Ok(())
    }

    fn delta(&mut self, delta: ChunkDelta, deltas: &mut VecDeque<Delta>) -> Result<(), Fault> {
        let text = delta.content.as_ref().map(text).unwrap_or_default();
        if !text.is_empty() {
            self.draft.say(&text)?;
            deltas.push_back(Delta::Text(text));
        }
        for call in delta.tool_calls.unwrap_or_default() {
            let id = call.id.unwrap_or_default();
            let function = call.function.unwrap_or_default();
            let name = function.name.unwrap_or_default();
            let place = self.place(call.index, &id, &name);
            if !self.draft.has(place) {
                if name.is_empty() {
                    return Err(Fault::Malformed("a tool call begins without a name".to_owned()));
                }
                self.draft.begin(place, &id, &name, End::Shut)?;
                deltas.push_back(Delta::ToolCall { name });
            }
            self.draft.argue(place, &function.arguments.unwrap_or_default())?;
        }
        Ok(())
    }

    /// To which call a piece belongs. Some endpoints send no index: there a new id, or a name, begins a new call.
    fn place(&self, index: Option<u64>, id: &str, name: &str) -> u64 {
        match (index, self.draft.last()) {
            (Some(index), _) => index,
            (None, None) => 0,
            (None, Some(last)) => {
                let same =
                    if id.is_empty() { name.is_empty() } else { self.draft.id(last) == Some(id) };
                if same { last } else { last.saturating_add(1) }
            }
        }
    }
}

fn finish(reason: &str) -> Finish {
    match reason {
        "stop" => Finish::Stop,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "length" => Finish::Length,
        "content_filter" => Finish::ContentFilter,
        _ => Finish::Other,
    }
}

/// Text stands alone, or in parts of which some are thoughts.
fn text(content: &Value) -> String {
    match content.as_array() {
        Some(parts) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        None => content.as_str().unwrap_or_default().to_owned(),
    }
}

/// An error in the middle of a stream, as the status that it would have been before it.
fn reported(error: &Value) -> Fault {
    let code = error.get("code").or_else(|| error.get("status"));
    let name = code
        .and_then(Value::as_str)
        .or_else(|| error.get("type").and_then(Value::as_str))
        .unwrap_or_default();
    let number = code.and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let status = match number {
        Some(status @ 400..=599) => status,
        _ if name.contains("rate_limit") || name == EMPTY_ACCOUNT => 429,
        _ if name.starts_with("invalid_request") => 400,
        _ => 500,
    };
    let reason =
        complaint(error).unwrap_or("the endpoint reports an error without words").to_owned();
    Fault::Status { status, reason, retry_after: None, account: account(name) }
}

const EMPTY_ACCOUNT: &str = "insufficient_quota";

/// What the code of an error says about the account.
pub(super) fn account(code: &str) -> Account {
    if code == EMPTY_ACCOUNT { Account::Empty } else { Account::Fine }
}

#[derive(Deserialize)]
struct Chunk {
    error: Option<Value>,
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<ChunkUsage>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<ChunkDelta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ChunkDelta {
    content: Option<Value>,
    tool_calls: Option<Vec<ChunkCall>>,
}

#[derive(Deserialize)]
struct ChunkCall {
    index: Option<u64>,
    id: Option<String>,
    function: Option<ChunkFunction>,
}

#[derive(Default, Deserialize)]
struct ChunkFunction {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct ChunkUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::super::answer::Response;
    use super::super::request::Request;
    use super::*;
    use crate::message::{ToolCall, ToolSpec};

    fn read(events: &[Value]) -> Result<Response, Fault> {
        let mut reader = Reader::default();
        let mut deltas = VecDeque::new();
        for event in events {
            reader.event(&event.to_string(), &mut deltas)?;
        }
        reader.event("[DONE]", &mut deltas)?;
        match deltas.pop_back() {
            Some(Delta::Done(response)) => Ok(response),
            other => panic!("{other:?} was last"),
        }
    }

    fn calls(calls: &Value) -> Value {
        json!({ "choices": [{ "delta": { "tool_calls": calls } }] })
    }

    #[test]
    fn the_body_holds_the_whole_request() {
        let mut request = Request {
            messages: vec![
                Message::text(Role::System, "be kind"),
                Message::text(Role::User, "go"),
                Message {
                    tool_calls: vec![ToolCall {
                        id: "1".into(),
                        name: "t".into(),
                        arguments: String::new(),
                    }],
                    ..Message::text(Role::Assistant, "")
                },
                Message { tool_call_id: Some("1".into()), ..Message::text(Role::Tool, "done") },
            ],
            tools: vec![ToolSpec {
                name: "t".into(),
                description: "does it".into(),
                parameters: r#"{"type":"object"}"#.into(),
                hints: Vec::new(),
            }],
            ..Request::default()
        };
        request.temperature = Some(0.5);
        let asked = Asked {
            request: &request,
            model: "m",
            max_output_tokens: Some(9),
            origin: Origin::Other,
        };
        let expected = json!({
            "model": "m", "stream": true, "stream_options": { "include_usage": true },
            "max_tokens": 9, "temperature": 0.5,
            "messages": [
                { "role": "system", "content": "be kind" },
                { "role": "user", "content": "go" },
                { "role": "assistant", "content": null, "tool_calls":
                    [{ "id": "1", "type": "function", "function": { "name": "t", "arguments": "{}" } }] },
                { "role": "tool", "content": "done", "tool_call_id": "1" },
            ],
            "tools": [{ "type": "function", "function":
                { "name": "t", "description": "does it", "parameters": { "type": "object" } } }],
        });
        assert_eq!(body(asked), Ok(expected));
        let maker = body(Asked { origin: Origin::Maker, ..asked }).unwrap();
        assert_eq!(
            (maker["max_completion_tokens"].clone(), maker.get("max_tokens")),
            (json!(9), None)
        );
    }

    #[test]
    fn calls_without_index_are_told_apart_by_id_or_name() {
        let response = read(&[
            calls(&json!([{ "id": "a", "function": { "name": "x", "arguments": "{\"n\":" } }])),
            calls(&json!([{ "function": { "arguments": "1}" } }])),
            calls(&json!([{ "id": "b", "function": { "name": "y", "arguments": "{}" } }])),
            calls(&json!([{ "function": { "name": "z", "arguments": "" } }])),
        ])
        .unwrap();
        let calls: Vec<_> = response
            .message
            .tool_calls
            .iter()
            .map(|call| (&*call.id, &*call.name, &*call.arguments))
            .collect();
        assert_eq!(calls, [("a", "x", "{\"n\":1}"), ("b", "y", "{}"), ("call-3", "z", "{}")]);
    }

    #[test]
    fn an_index_out_of_the_sky_costs_no_memory() {
        let response =
            read(&[calls(&json!([{ "index": u64::MAX, "id": "a", "function": { "name": "x" } }]))])
                .unwrap();
        assert_eq!(response.message.tool_calls.len(), 1);
        assert_eq!(response.finish, Finish::ToolCalls);
    }

    #[test]
    fn accents_are_understood() {
        let response = read(&[
            json!({ "choices": null, "usage": null }),
            json!({ "model": "m", "choices": [{ "delta": { "content": null, "reasoning": "hm" } }] }),
            json!({ "choices": [{ "delta": { "content": [
                { "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }] },
                { "type": "text", "text": "yes" },
            ] } }] }),
            json!({ "choices": [{ "finish_reason": "stop" }] }),
            json!({ "usage": { "prompt_tokens": 3, "completion_tokens": null } }),
        ])
        .unwrap();
        assert_eq!(
            (response.message.text.as_str(), response.finish, response.model.as_str()),
            ("yes", Finish::Stop, "m")
        );
        assert_eq!(response.usage, Usage { input_tokens: 3, output_tokens: 0 });
    }

    #[test]
    fn an_answer_without_mark_of_its_end_is_whole_only_with_a_reason_to_finish() {
        let mut deltas = VecDeque::new();
        let mut reader = Reader::default();
        reader.event(r#"{"choices":[{"delta":{"content":"a"}}]}"#, &mut deltas).unwrap();
        assert!(matches!(reader.end(&mut deltas), Err(Fault::Broken(_))));
        reader.event(r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#, &mut deltas).unwrap();
        assert_eq!(reader.end(&mut deltas), Ok(()));
        assert!(matches!(deltas.back(), Some(Delta::Done(_))));
    }

    #[test]
    fn errors_in_the_stream_stand_for_a_status() {
        for (error, expected, passes) in [
            (json!({ "message": "m", "type": "server_error" }), 500, true),
            (json!({ "message": "m", "code": "rate_limit_exceeded" }), 429, true),
            (json!({ "message": "m", "code": "insufficient_quota" }), 429, false),
            (json!({ "message": "m", "code": 503 }), 503, true),
            (json!({ "message": "m", "type": "invalid_request_error" }), 400, false),
            (json!("m"), 500, true),
        ] {
            let fault = read(&[json!({ "error": error })]).unwrap_err();
            assert_eq!(fault.passes(), passes, "{error}");
            assert!(
                matches!(fault, Fault::Status { status, ref reason, .. } if status == expected && reason == "m")
            );
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for data in [
            "{",
            "[]",
            "{\"choices\":7}",
            "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1}]}}]}",
            "",
        ] {
            let fault = Reader::default().event(data, &mut VecDeque::new());
            assert!(matches!(fault, Err(Fault::Malformed(_))), "{data}: {fault:?}");
        }
    }
}
