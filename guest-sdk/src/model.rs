//! Requests to a language model. The host holds the keys and makes the request.

use serde::{Deserialize, Serialize};

use crate::{Message, ToolCall, ToolSpec};

/// A request for one message of a language model.
///
/// ```
/// use checkrein_guest::prelude::*;
///
/// let request = Request::new(vec![Message::system("Answer in one word."), Message::user("Sky?")])
///     .max_output_tokens(10)
///     .temperature(0.0);
/// assert_eq!(request.messages.len(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// A model by the name that the operator configured; none for the default.
    pub model: Option<String>,
    /// The conversation so far. Messages of role `system` come first.
    pub messages: Vec<Message>,
    /// The tools that the model may ask for.
    pub tools: Vec<ToolSpec>,
    /// An upper bound for the answer, in tokens.
    pub max_output_tokens: Option<u32>,
    /// From 0 to 2; none for the provider's default.
    pub temperature: Option<f64>,
}

impl Request {
    /// A request that continues this conversation.
    pub fn new(messages: Vec<Message>) -> Request {
        Request { messages, ..Request::default() }
    }

    /// A request with a single question.
    pub fn ask(question: impl Into<String>) -> Request {
        Request::new(vec![Message::user(question)])
    }

    /// The tools that the model may ask for.
    #[must_use]
    pub fn tools(self, tools: Vec<ToolSpec>) -> Request {
        Request { tools, ..self }
    }

    /// A model by the name that the operator configured.
    #[must_use]
    pub fn model(self, name: impl Into<String>) -> Request {
        Request { model: Some(name.into()), ..self }
    }

    /// An upper bound for the answer, in tokens.
    #[must_use]
    pub fn max_output_tokens(self, tokens: u32) -> Request {
        Request { max_output_tokens: Some(tokens), ..self }
    }

    /// From 0 (always the likeliest word) to 2.
    #[must_use]
    pub fn temperature(self, temperature: f64) -> Request {
        Request { temperature: Some(temperature), ..self }
    }
}

/// What a request used, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
}

/// A whole answer of a language model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// The answer: role `assistant`.
    pub message: Message,
    /// Why the answer ended: `stop`, `tool-calls`, `length`, `content-filter` or `other`.
    pub finish: String,
    /// What it used; zeros where the provider did not say.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: String,
}

impl Response {
    /// What the model said.
    pub fn text(&self) -> &str {
        &self.message.text
    }

    /// What the model asks to have called; empty when it is done.
    pub fn tool_calls(&self) -> &[ToolCall] {
        &self.message.tool_calls
    }
}
