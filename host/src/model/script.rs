//! Replies of a scripted model: built in Rust, or read from a small TOML file.
//!
//! A file holds one `[[reply]]` after the other:
//!
//! ```toml
//! [[reply]]
//! when = "survey"                 # the last message contains this text
//! text = "I look at the folder first."
//! tool-calls = [{ name = "files_list", arguments = { path = "/work" } }]
//!
//! [[reply]]
//! when-matches = "(?i)error"      # or it matches this regular expression
//! text = "That did not work: {{last-message}}"
//!
//! [[reply]]                       # no condition: fits every request
//! text = "Done."
//! usage = { input-tokens = 120, output-tokens = 8 }
//! ```
//!
//! A request gets the first reply that is not used up and whose condition holds. A reply is used up by one request,
//! unless it says `repeat = true`. Further keys of a reply: `finish` (`stop`, `tool-calls`, `length`, `content-filter`,
//! `other`), `chunk` (characters of text in one delta), `pace-milliseconds` (pause before each delta), `stall = true`
//! (never ends after its text), `fail = { code, message }` (fails after its text). A tool call may have an `id`.
//! Unknown keys are refused with their position.

use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

use super::answer::Finish;
use super::hold::Hold;
use crate::message::{FailureCode, Message, ToolCall, Usage};

/// Stands in a text for the text of the last message of the request.
const LAST_MESSAGE: &str = "{{last-message}}";

/// The replies of a scripted model, in order.
#[derive(Debug, Clone, Default)]
pub struct Script {
    pub(super) replies: Vec<Reply>,
}

impl Script {
    /// Reads the text of a script file.
    ///
    /// # Errors
    ///
    /// When it is not TOML, has an unknown key or a value that makes no sense; the error says where.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let file: File =
            toml::from_str(text).map_err(|error| ScriptError { reason: error.to_string() })?;
        Ok(Script { replies: file.replies.into_iter().map(Reply::from).collect() })
    }

    /// How many replies there are.
    pub fn len(&self) -> usize {
        self.replies.len()
    }

    /// Whether there is no reply at all.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }
}

impl FromIterator<Reply> for Script {
    fn from_iter<T: IntoIterator<Item = Reply>>(replies: T) -> Self {
        Script { replies: replies.into_iter().collect() }
    }
}

/// One reply of a scripted model: what it does, step by step.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) when: When,
    pub(super) lasts: Lasts,
    pub(super) steps: Vec<Step>,
    pub(super) chunk: usize,
    pub(super) pace: Duration,
    pub(super) usage: Option<Usage>,
    pub(super) finish: Option<Finish>,
}

/// Which requests a reply fits.
#[derive(Debug, Clone)]
pub(super) enum When {
    Always,
    Contains(String),
    Matches(Regex),
}

/// How many requests a reply answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    Once,
    Ever,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Text(String),
    Call { id: Option<String>, name: String, arguments: String },
    Hold(Hold),
    Stall,
    Fail { code: FailureCode, message: String },
}

impl Reply {
    /// An empty reply. Steps are added in the order in which they happen.
    pub fn new() -> Reply {
        Reply {
            when: When::Always,
            lasts: Lasts::Once,
            steps: Vec::new(),
            chunk: 24,
            pace: Duration::ZERO,
            usage: None,
            finish: None,
        }
    }

    /// Then says this.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Reply {
        self.step(Step::Text(text.into()))
    }

    /// Then asks for a call of a tool; `arguments` is JSON text, or what a model got wrong. Ids are given out as `call-1`, `call-2` and so on.
    #[must_use]
    pub fn call(self, name: impl Into<String>, arguments: impl Into<String>) -> Reply {
        self.step(Step::Call { id: None, name: name.into(), arguments: arguments.into() })
    }

    /// Then waits until the place is opened.
    #[must_use]
    pub fn hold(self, hold: &Hold) -> Reply {
        self.step(Step::Hold(hold.clone()))
    }

    /// Then says nothing for ever.
    #[must_use]
    pub fn stall(self) -> Reply {
        self.step(Step::Stall)
    }

    /// Then fails.
    #[must_use]
    pub fn fail(self, code: FailureCode, message: impl Into<String>) -> Reply {
        self.step(Step::Fail { code, message: message.into() })
    }

    /// Fits only requests whose last message contains this text.
    #[must_use]
    pub fn when(self, text: impl Into<String>) -> Reply {
        Reply { when: When::Contains(text.into()), ..self }
    }

    /// Fits only requests whose last message matches this expression.
    #[must_use]
    pub fn when_matches(self, expression: Regex) -> Reply {
        Reply { when: When::Matches(expression), ..self }
    }

    /// Answers every request that it fits, not only one.
    #[must_use]
    pub fn repeat(self) -> Reply {
        Reply { lasts: Lasts::Ever, ..self }
    }

    /// Sends text in pieces of that many characters.
    #[must_use]
    pub fn chunk(self, characters: usize) -> Reply {
        Reply { chunk: characters.max(1), ..self }
    }

    /// Says what the request used, before anything else. Without it a quarter of the bytes of the request and of the answer is assumed.
    #[must_use]
    pub fn usage(self, input_tokens: u64, output_tokens: u64) -> Reply {
        Reply { usage: Some(Usage { input_tokens, output_tokens }), ..self }
    }

    /// Says why the answer ends. Without it that is `tool-calls` when there are some, and `stop` otherwise.
    #[must_use]
    pub fn finish(self, finish: Finish) -> Reply {
        Reply { finish: Some(finish), ..self }
    }

    fn step(mut self, step: Step) -> Reply {
        self.steps.push(step);
        self
    }

    pub(super) fn fits(&self, last: &str) -> bool {
        match &self.when {
            When::Always => true,
            When::Contains(text) => last.contains(text),
            When::Matches(expression) => expression.is_match(last),
        }
    }
}

impl Default for Reply {
    fn default() -> Self {
        Reply::new()
    }
}

/// The text of a step, with the last message of the request put in.
pub(super) fn filled(text: &str, last: &str) -> String {
    text.replace(LAST_MESSAGE, last)
}

/// What the request and the answer would have used with a real model, roughly.
pub(super) fn estimate(messages: &[Message], text: &str, calls: &[ToolCall]) -> Usage {
    let asked: usize =
        messages.iter().map(|message| message.text.len() + size(&message.tool_calls)).sum();
    Usage { input_tokens: quarter(asked), output_tokens: quarter(text.len() + size(calls)) }
}

fn size(calls: &[ToolCall]) -> usize {
    calls.iter().map(|call| call.name.len() + call.arguments.len()).sum()
}

fn quarter(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "reply")]
    replies: Vec<FileReply>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileReply {
    when: Option<String>,
    #[serde(default, deserialize_with = "expression")]
    when_matches: Option<Regex>,
    #[serde(default)]
    repeat: bool,
    text: Option<String>,
    #[serde(default)]
    tool_calls: Vec<FileCall>,
    #[serde(default)]
    stall: bool,
    fail: Option<FileFailure>,
    usage: Option<FileUsage>,
    #[serde(default, deserialize_with = "finish")]
    finish: Option<Finish>,
    chunk: Option<std::num::NonZeroU32>,
    #[serde(default)]
    pace_milliseconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCall {
    id: Option<String>,
    name: String,
    #[serde(default)]
    arguments: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFailure {
    code: FailureCode,
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileUsage {
    input_tokens: u64,
    output_tokens: u64,
}

impl From<FileReply> for Reply {
    fn from(file: FileReply) -> Reply {
        let mut reply = Reply::new();
        if let Some(text) = file.when {
            reply = reply.when(text);
        }
        if let Some(expression) = file.when_matches {
            reply = reply.when_matches(expression);
        }
        if file.repeat {
            reply = reply.repeat();
        }
        if let Some(text) = file.text {
            reply = reply.text(text);
        }
        for call in file.tool_calls {
            let arguments = serde_json::Value::Object(call.arguments).to_string();
            reply = reply.step(Step::Call { id: call.id, name: call.name, arguments });
        }
        if file.stall {
            reply = reply.stall();
        }
        if let Some(failure) = file.fail {
            reply = reply.fail(failure.code, failure.message);
        }
        if let Some(usage) = file.usage {
            reply = reply.usage(usage.input_tokens, usage.output_tokens);
        }
        if let Some(chunk) = file.chunk {
            reply = reply.chunk(usize::try_from(chunk.get()).unwrap_or(usize::MAX));
        }
        Reply { finish: file.finish, pace: Duration::from_millis(file.pace_milliseconds), ..reply }
    }
}

fn expression<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Regex>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Regex::new(&text).map(Some).map_err(de::Error::custom)
}

fn finish<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Finish>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Finish::parse(&text).map(Some).ok_or_else(|| {
        let known: Vec<_> = Finish::ALL.iter().map(|finish| finish.as_str()).collect();
        de::Error::custom(format_args!("`{text}` is no finish; there are: {}", known.join(", ")))
    })
}

/// A script file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct ScriptError {
    /// What is wrong and where.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_replies_in_order() {
        let script = Script::parse(
            r#"
            [[reply]]
            when = "survey"
            text = "I look."
            tool-calls = [{ name = "files_list", arguments = { path = "/work", depth = 2 } }, { id = "b", name = "x" }]

            [[reply]]
            when-matches = "(?i)ERROR"
            repeat = true
            finish = "length"
            usage = { input-tokens = 1, output-tokens = 2 }
            fail = { code = "busy", message = "later" }
            "#,
        )
        .unwrap();
        assert_eq!(script.len(), 2);
        let [first, second] = &script.replies[..] else { panic!("two replies") };
        assert!(first.fits("please survey this") && !first.fits("please wait"));
        assert!(
            second.fits("an Error")
                && second.lasts == Lasts::Ever
                && second.finish == Some(Finish::Length)
        );
        let Step::Call { id: None, name, arguments } = &first.steps[1] else { panic!("a call") };
        assert_eq!(
            (name.as_str(), arguments.as_str()),
            ("files_list", r#"{"depth":2,"path":"/work"}"#)
        );
        let Step::Fail { code: FailureCode::Busy, .. } = &second.steps[0] else {
            panic!("a failure")
        };
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_position() {
        for (text, line) in [
            ("[[reply]]\ntext = \"a\"\nwords = \"b\"\n", "line 3"),
            ("answers = 1\n", "line 1"),
            ("[[reply]]\nwhen-matches = \"(\"\n", "line 2"),
            ("[[reply]]\nfinish = \"never\"\n", "line 2"),
            ("[[reply]]\nchunk = 0\n", "line 2"),
            ("[[reply]]\nfail = { code = \"odd\", message = \"\" }\n", "line 2"),
            ("[[reply]]\ntool-calls = [{ name = \"x\", argument = {} }]\n", "line 2"),
            ("[[reply]\n", "line 1"),
        ] {
            let error = Script::parse(text).unwrap_err().to_string();
            assert!(error.contains(line), "{text}: {error}");
        }
    }
}
