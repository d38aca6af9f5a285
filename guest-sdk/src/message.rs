//! The words of a conversation: messages, tools and their calls.

use serde::{Deserialize, Serialize};

use crate::Failure;

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text; may be empty beside tool calls.
    #[serde(default)]
    pub text: String,
    /// What an assistant asks to have called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a message of role `tool` answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// Instructions that stand before the conversation.
    pub fn system(text: impl Into<String>) -> Message {
        Message { role: "system".to_owned(), text: text.into(), ..Message::default() }
    }

    /// What the person, or the parent run, says.
    pub fn user(text: impl Into<String>) -> Message {
        Message { role: "user".to_owned(), text: text.into(), ..Message::default() }
    }

    /// What the model or the agent says.
    pub fn assistant(text: impl Into<String>) -> Message {
        Message { role: "assistant".to_owned(), text: text.into(), ..Message::default() }
    }

    /// The answer to one tool call.
    pub fn tool(call_id: impl Into<String>, text: impl Into<String>) -> Message {
        Message {
            role: "tool".to_owned(),
            text: text.into(),
            tool_call_id: Some(call_id.into()),
            ..Message::default()
        }
    }
}

impl From<ToolResult> for Message {
    /// The message that tells a model what its call gave. A result that is not `ok` says so in its text.
    fn from(result: ToolResult) -> Message {
        let text = if result.is_ok() {
            result.content
        } else {
            format!("[{}] {}", result.status, result.content)
        };
        Message::tool(result.id, text)
    }
}

/// A tool, as an agent or a model sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Letters, digits, `_` and `-`; at most 64 of them. An agent sees `<plugin>_<tool>`.
    pub name: String,
    /// What it does and when to use it, written for a model.
    pub description: String,
    /// JSON Schema of the arguments, as JSON text: an object schema.
    pub parameters: String,
    /// Any of `read-only`, `idempotent`, `destructive`, `open-world`.
    #[serde(default)]
    pub hints: Vec<String>,
}

impl ToolSpec {
    /// Whether the tool gives that hint about itself.
    pub fn has_hint(&self, hint: crate::Hint) -> bool {
        self.hints.iter().any(|given| given == hint.as_str())
    }
}

/// One call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Chosen by the caller, unique within the request or message that carries it.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments, as JSON text: an object.
    pub arguments: String,
}

impl ToolCall {
    /// A call with arguments of any type that serialises to a JSON object.
    ///
    /// # Errors
    /// `invalid` when the arguments cannot be written as JSON.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: &impl Serialize,
    ) -> Result<ToolCall, Failure> {
        Ok(ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: serde_json::to_string(arguments)?,
        })
    }
}

/// What a call of a tool gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call that this answers.
    pub id: String,
    /// `ok`, `error` (the tool said no), `denied`, `not-found`, `invalid` (the arguments do not fit the schema),
    /// `limit`, `trapped`, `interrupted`.
    pub status: String,
    /// The output of the tool, or what went wrong.
    pub content: String,
}

impl ToolResult {
    /// Whether the tool did what was asked.
    pub fn is_ok(&self) -> bool {
        self.status == "ok"
    }

    /// The output, or a failure that says what went wrong.
    ///
    /// # Errors
    /// A failure whenever the status is not `ok`. Its code is the status where a failure code of that name
    /// exists, and `failed` otherwise.
    pub fn into_output(self) -> Result<String, Failure> {
        match self.status.as_str() {
            "ok" => Ok(self.content),
            "error" | "trapped" => Err(Failure::failed(self.content)),
            status => Err(Failure::new(status, self.content)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_is_not_ok_tells_the_model_so() {
        let result = ToolResult {
            id: "7".into(),
            status: "denied".into(),
            content: "no grant for /etc".into(),
        };
        assert_eq!(Message::from(result), Message::tool("7", "[denied] no grant for /etc"));
    }

    #[test]
    fn the_status_of_a_result_becomes_the_code_of_a_failure() {
        let code = |status: &str| {
            ToolResult { status: status.into(), ..ToolResult::default() }
                .into_output()
                .unwrap_err()
                .code
        };
        assert_eq!(code("not-found"), Failure::NOT_FOUND);
        assert_eq!(code("error"), Failure::FAILED);
        assert_eq!(code("trapped"), Failure::FAILED);
    }
}
