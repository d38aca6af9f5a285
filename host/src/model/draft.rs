//! An answer that is being written: its parts are bounded, and it becomes a response only when it is whole.

use super::answer::{Finish, Response};
use super::fault::Fault;
use super::request;
use crate::message::{Message, Role, ToolCall, Usage};

/// Bytes of text and arguments that one answer may have.
const ANSWER_BYTES: usize = 8 << 20;

/// Tool calls that one answer may have.
const CALLS: usize = 128;

/// An answer that is being written.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) model: String,
    pub(super) usage: Usage,
    pub(super) finish: Option<Finish>,
    text: String,
    calls: Vec<Call>,
    bytes: usize,
}

/// A tool call that is being written.
#[derive(Debug)]
struct Call {
    /// By what the endpoint tells this call from the others of the answer.
    place: u64,
    id: String,
    name: String,
    arguments: String,
    end: End,
}

/// Whether a tool call is known to be whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The endpoint says when a call ends, and has not.
    Open,
    /// The call has ended, or ends with the answer.
    Shut,
}

impl Draft {
    /// More text.
    pub(super) fn say(&mut self, text: &str) -> Result<(), Fault> {
        self.grow(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    /// Whether there is a call at that place.
    pub(super) fn has(&self, place: u64) -> bool {
        self.calls.iter().any(|call| call.place == place)
    }

    /// The place of the last call.
    pub(super) fn last(&self) -> Option<u64> {
        self.calls.last().map(|call| call.place)
    }

    /// The id of the call at that place.
    pub(super) fn id(&self, place: u64) -> Option<&str> {
        self.calls.iter().find(|call| call.place == place).map(|call| call.id.as_str())
    }

    /// A call begins. An id that is missing or was given out already gets a number.
    pub(super) fn begin(
        &mut self,
        place: u64,
        id: &str,
        name: &str,
        end: End,
    ) -> Result<(), Fault> {
        if self.calls.len() >= CALLS {
            return Err(Fault::TooLarge {
                what: "one answer",
                most: format!("{CALLS} tool calls"),
            });
        }
        self.grow(id.len() + name.len())?;
        let mut number = self.calls.len() + 1;
        let mut unique = if id.is_empty() { format!("call-{number}") } else { id.to_owned() };
        while self.calls.iter().any(|call| call.id == unique) {
            number += 1;
            unique = format!("{id}-{number}");
        }
        self.calls.push(Call {
            place,
            id: unique,
            name: name.to_owned(),
            arguments: String::new(),
            end,
        });
        Ok(())
    }

    /// More of the arguments of a call.
    pub(super) fn argue(&mut self, place: u64, arguments: &str) -> Result<(), Fault> {
        self.grow(arguments.len())?;
        match self.calls.iter_mut().find(|call| call.place == place) {
            Some(call) => {
                call.arguments.push_str(arguments);
                Ok(())
            }
            None => Err(Fault::Malformed(format!(
                "arguments for the tool call {place}, which has not begun"
            ))),
        }
    }

    /// A call has ended.
    pub(super) fn shut(&mut self, place: u64) {
        for call in self.calls.iter_mut().filter(|call| call.place == place) {
            call.end = End::Shut;
        }
    }

    /// The whole answer. Calls that were cut off by the bound for the answer are left out; any other call that has no end
    /// spoils the answer. Arguments that the model got wrong are left to the tool, so that the model hears of it.
    pub(super) fn into_response(self) -> Result<Response, Fault> {
        let mut calls = Vec::new();
        for call in self.calls {
            match (whole(&call), self.finish) {
                (Whole::Fine(arguments), _) => calls.push(call.with(arguments)),
                (_, Some(Finish::Length)) => {}
                (Whole::Wrong(_), Some(Finish::Stop | Finish::ToolCalls | Finish::Other)) => {
                    let arguments = call.arguments.clone();
                    calls.push(call.with(arguments));
                }
                (Whole::Wrong(reason) | Whole::Open(reason), _) => {
                    return Err(Fault::Malformed(reason));
                }
            }
        }
        // Some endpoints say `stop` after tool calls; what an agent has to do is told by the calls.
        let finish = match self.finish {
            None | Some(Finish::Stop | Finish::Other) if !calls.is_empty() => Finish::ToolCalls,
            Some(Finish::ToolCalls) if calls.is_empty() => Finish::Stop,
            Some(finish) => finish,
            None => Finish::Other,
        };
        let message = Message { tool_calls: calls, ..Message::text(Role::Assistant, self.text) };
        Ok(Response { message, finish, usage: self.usage, model: self.model })
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > ANSWER_BYTES {
            return Err(Fault::TooLarge {
                what: "one answer",
                most: format!("{ANSWER_BYTES} bytes"),
            });
        }
        Ok(())
    }
}

impl Call {
    fn with(self, arguments: String) -> ToolCall {
        ToolCall { id: self.id, name: self.name, arguments }
    }
}

/// What is to be made of a call when the answer has ended.
enum Whole {
    /// Its arguments are a JSON object.
    Fine(String),
    /// It has ended, and its arguments are something else.
    Wrong(String),
    /// It has no end.
    Open(String),
}

fn whole(call: &Call) -> Whole {
    if call.end == End::Open {
        return Whole::Open(format!("the tool call `{}` has no end", call.name));
    }
    match request::object(&call.arguments) {
        Err(reason) => {
            Whole::Wrong(format!("the arguments of the tool call `{}` {reason}", call.name))
        }
        // The text of the model is kept as it is, so that numbers and the order of keys survive.
        Ok(arguments) if arguments.as_object().is_some_and(serde_json::Map::is_empty) => {
            Whole::Fine("{}".to_owned())
        }
        Ok(_) => Whole::Fine(call.arguments.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_cut_off_by_the_bound_is_left_out_and_one_whose_answer_has_no_end_is_an_error() {
        for (finish, whole) in
            [(Some(Finish::Length), true), (Some(Finish::ContentFilter), false), (None, false)]
        {
            let mut draft = Draft { finish, ..Draft::default() };
            draft.begin(0, "a", "one", End::Shut).unwrap();
            draft.argue(0, r#"{"x":1}"#).unwrap();
            draft.begin(1, "b", "two", End::Shut).unwrap();
            draft.argue(1, r#"{"x":"#).unwrap();
            match draft.into_response() {
                Ok(response) => {
                    assert!(whole);
                    assert_eq!(response.message.tool_calls.len(), 1);
                    assert_eq!(response.finish, Finish::Length);
                }
                Err(fault) => assert!(!whole && matches!(fault, Fault::Malformed(_))),
            }
        }
    }

    #[test]
    fn arguments_that_a_model_got_wrong_are_passed_on() {
        for (finish, arguments) in [(Finish::ToolCalls, "{\"x\":"), (Finish::Stop, "[1]")] {
            let mut draft = Draft { finish: Some(finish), ..Draft::default() };
            draft.begin(0, "a", "one", End::Shut).unwrap();
            draft.argue(0, arguments).unwrap();
            let response = draft.into_response().unwrap();
            assert_eq!(response.message.tool_calls[0].arguments, arguments);
            assert_eq!(response.finish, Finish::ToolCalls);
        }
    }

    #[test]
    fn a_call_that_is_known_to_be_open_is_not_whole_even_if_its_arguments_are_json() {
        let mut draft = Draft { finish: Some(Finish::ToolCalls), ..Draft::default() };
        draft.begin(0, "a", "one", End::Open).unwrap();
        draft.argue(0, "{}").unwrap();
        assert!(draft.into_response().is_err());
    }

    #[test]
    fn ids_are_unique_whatever_the_endpoint_sends() {
        let mut draft = Draft::default();
        for place in 0..4 {
            draft.begin(place, if place < 2 { "same" } else { "" }, "t", End::Shut).unwrap();
        }
        let calls = draft.into_response().unwrap().message.tool_calls;
        let mut ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4, "{calls:?}");
    }

    #[test]
    fn an_answer_has_a_bound() {
        let mut draft = Draft::default();
        let text = "a".repeat(1 << 20);
        let fault = (0..10).find_map(|_| draft.say(&text).err());
        assert!(matches!(fault, Some(Fault::TooLarge { .. })));
        let mut draft = Draft::default();
        let fault = (0..1000).find_map(|place| draft.begin(place, "", "t", End::Shut).err());
        assert!(matches!(fault, Some(Fault::TooLarge { .. })));
    }
}
