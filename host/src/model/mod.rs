//! Language models behind one trait: a request goes out, an answer streams in, and whoever drops the stream ends both.
//!
//! A [`Provider`] is one model at one place. [`Scripted`] answers from a list and needs no network; [`Remote`] talks to
//! an endpoint in the dialect of OpenAI or of Anthropic. An operator describes them as [`ProviderConfig`]; the set of
//! them is [`Models`].
//!
//! One request to an endpoint goes through these states (`exchange.rs`):
//!
//! ```text
//!            ┌── pause ◄──┐ 429, 5xx, no connection, broken stream; nothing delivered, attempts and time left
//!            ▼            │
//!   start ─► send ────────┤
//!            │ 200        │
//!            ▼            │
//!            read ────────┴─► over    Done was the last delta, or an error was
//! ```
//!
//! What holds:
//!
//! 1. Nothing happens before the first poll of a [`ResponseStream`].
//! 2. Dropping the stream drops the connection with it, in every state. No task is left behind that reads on.
//! 3. [`Delta::Done`] is the last item of a stream that went well, an error the last one of a stream that did not.
//! 4. A tool call is in a [`Response`] whole, or not at all. Its arguments are what the model wrote: a JSON object, or
//!    what it got wrong, which the tool refuses so that the model hears of it.
//! 5. After the first delta of an answer nothing is tried again: nobody sees two beginnings.
//! 6. A key is a [`Secret`]. It leaves the process in one request header and nowhere else.
//! 7. Nothing that an endpoint sends is kept without a bound: one event, one answer, one error text.
//!
//! What is not here: the choice of a model for a run and its grants (`session`), budgets of tokens (the door), reading
//! of the environment and of files (`cli`, through [`Lookup`]).
//!
//! The endpoints are spoken to with `reqwest` and a small decoder of event streams, not with a client crate for models.
//! `genai` 0.7, which covers both dialects, reads a whole event and a whole error text into memory before anyone can look
//! at its size, and the HTTP client handed to it offers no place to bound that: 7 cannot be kept with it. 4 and 6 could
//! only be kept around it: it says nothing when a stream ends before its answer does, and it logs what endpoints say.

mod answer;
mod anthropic;
mod config;
mod counted;
mod dialect;
mod draft;
mod exchange;
mod fault;
mod hold;
mod limits;
mod models;
mod openai;
mod provider;
mod remote;
mod request;
mod retry;
mod script;
mod scripted;
mod sse;
mod transport;

pub use self::answer::{Delta, Finish, Response, Spent};
pub use self::config::{ConfigError, Kind, Lookup, ProviderConfig};
pub use self::counted::{ModelFigure, ModelFigures};
pub use self::hold::Hold;
pub use self::limits::{TimeLimit, TimeLimits};
pub use self::models::{Models, UnknownModel};
pub use self::provider::{ModelError, Provider, ResponseStream};
pub use self::remote::Remote;
pub use self::request::Request;
pub use self::script::{Reply, Script, ScriptError};
pub use self::scripted::Scripted;
pub use crate::secret::Secret;
