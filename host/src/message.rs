//! The words of a conversation: messages, tools and their calls, and the failure that a guest can read.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions that stand before the conversation.
    System,
    /// The person, or the parent run.
    User,
    /// The model or the agent.
    Assistant,
    /// The answer to one tool call.
    Tool,
}

impl Role {
    /// The name that crosses the door and stands in transcripts.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }

    /// The role of that name, if there is one.
    pub fn parse(name: &str) -> Option<Role> {
        [Role::System, Role::User, Role::Assistant, Role::Tool]
            .into_iter()
            .find(|role| role.as_str() == name)
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// The text; may be empty beside tool calls.
    #[serde(default)]
    pub text: String,
    /// What an assistant asks to have called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a message of role [`Role::Tool`] answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message of that role with nothing but text.
    pub fn text(role: Role, text: impl Into<String>) -> Message {
        Message { role, text: text.into(), tool_calls: Vec::new(), tool_call_id: None }
    }
}

/// A tool, as an agent or a model sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Letters, digits, `_` and `-`; at most 64 of them.
    pub name: String,
    /// What it does and when to use it, written for a model.
    pub description: String,
    /// JSON Schema of the arguments, as JSON text.
    pub parameters: String,
    /// Any of `read-only`, `idempotent`, `destructive`, `open-world`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Chosen by the caller, unique within the message that carries it.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments, as JSON text.
    pub arguments: String,
}

/// What a call of a tool gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call that this answers.
    pub id: String,
    /// `ok`, `error`, `denied`, `not-found`, `invalid`, `limit`, `trapped` or `interrupted`.
    pub status: String,
    /// The output of the tool, or what went wrong.
    pub content: String,
}

/// What a model request used, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Usage {
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
}

impl Usage {
    /// Request and answer together.
    pub fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// Why a call did not do what was asked, as a guest reads it. The guest goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub code: FailureCode,
    /// What was attempted, on what, why it failed and what to do.
    pub message: String,
}

impl Failure {
    /// A failure of that kind.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for Failure {}

/// The kinds of [`Failure`]. Guests see the name and must expect new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FailureCode {
    /// A soft stop arrived.
    Interrupted,
    /// There is no grant for it.
    Denied,
    /// There is no such thing.
    NotFound,
    /// The request makes no sense.
    Invalid,
    /// More bytes than may cross at once.
    TooLarge,
    /// A budget is used up.
    Limit,
    /// No capacity now; try again later.
    Busy,
    /// The part of the host that serves this is not there.
    Unavailable,
    /// Anything else.
    Failed,
}

impl FailureCode {
    /// Every kind, for looking one up by name.
    pub const ALL: [FailureCode; 9] = [
        FailureCode::Interrupted,
        FailureCode::Denied,
        FailureCode::NotFound,
        FailureCode::Invalid,
        FailureCode::TooLarge,
        FailureCode::Limit,
        FailureCode::Busy,
        FailureCode::Unavailable,
        FailureCode::Failed,
    ];

    /// The name that crosses the door.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureCode::Interrupted => "interrupted",
            FailureCode::Denied => "denied",
            FailureCode::NotFound => "not-found",
            FailureCode::Invalid => "invalid",
            FailureCode::TooLarge => "too-large",
            FailureCode::Limit => "limit",
            FailureCode::Busy => "busy",
            FailureCode::Unavailable => "unavailable",
            FailureCode::Failed => "failed",
        }
    }

    /// The kind of that name; [`FailureCode::Failed`] for a name that is not known.
    pub fn parse(name: &str) -> FailureCode {
        Self::ALL.into_iter().find(|code| code.as_str() == name).unwrap_or(FailureCode::Failed)
    }
}

/// A time as JSON shows it: whole milliseconds.
pub(crate) mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
