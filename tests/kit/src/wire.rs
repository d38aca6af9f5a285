//! An endpoint of language models on this machine: it speaks both protocols over real HTTP, says what it was told to
//! say, and knows when its clients go away.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use checkrein_testkit::wire::{Ended, Reply, Wire};
//!
//! let wire = Wire::start().await?;
//! wire.reply(Reply::new().text("Hel").stall());
//! // … a client asks `wire.openai()`, reads the beginning, and goes away …
//! assert_eq!(wire.ended(0).await, Ended::ClientGone);
//! # Ok(())
//! # }
//! ```
//!
//! The n-th request gets the n-th reply, whatever its protocol; the path decides in which protocol it is said. Every
//! step of a reply is a piece of the body of its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The name of the model that answers.
pub const MODEL: &str = "wire-model-1";

/// The endpoint. It ends with the last clone of this.
#[derive(Debug, Clone)]
pub struct Wire {
    shared: Arc<Shared>,
    /// Aborts the server when the last clone goes.
    _server: Arc<JoinSet<()>>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    /// Held only to read or change it.
    state: Mutex<Inner>,
    /// Tells those who wait that the state has changed.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Inner {
    replies: Vec<Reply>,
    requests: Vec<Received>,
    /// One place for each request; none while it is not over.
    ended: Vec<Option<Ended>>,
    stalled: usize,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// The path, with its query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Value,
}

impl Received {
    /// A header as text; empty when there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// How the answer to a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Everything was said.
    Said,
    /// The connection closed from the other side before that.
    ClientGone,
}

impl Wire {
    /// Starts an endpoint on a free port of this machine.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub async fn start() -> anyhow::Result<Wire> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { state: Mutex::default(), changed: watch::Sender::new(()) });
        let router = Router::new()
            .route("/v1/chat/completions", post(openai))
            .route("/v1/messages", post(anthropic))
            .with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        #[allow(
            clippy::disallowed_methods,
            reason = "the endpoint is not part of the host whose work is counted"
        )]
        server.spawn(async move {
            // Never returns, and has no error to tell.
            let _ended = axum::serve(listener, router).await.is_ok();
        });
        Ok(Wire { shared, _server: Arc::new(server), address })
    }

    /// The base URL for a client that speaks the protocol of OpenAI.
    pub fn openai(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The base URL for a client that speaks the protocol of Anthropic.
    pub fn anthropic(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address itself.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds the reply to one more request. A request without a reply gets status 404.
    pub fn reply(&self, reply: Reply) -> &Wire {
        self.shared.lock().replies.push(reply);
        self
    }

    /// How many requests came so far.
    pub fn count(&self) -> usize {
        self.shared.lock().requests.len()
    }

    /// Waits for the request of that number, counted from 0.
    pub async fn request(&self, number: usize) -> Received {
        self.shared.until(|inner| inner.requests.get(number).cloned()).await
    }

    /// Waits until the answer to the request of that number, counted from 0, is over, and says how it ended.
    pub async fn ended(&self, number: usize) -> Ended {
        self.shared.until(|inner| inner.ended.get(number).copied().flatten()).await
    }

    /// Waits until that many answers have come to their [`Reply::stall`], or to [`Reply::silence`].
    pub async fn stalled(&self, count: usize) {
        self.shared.until(|inner| (inner.stalled >= count).then_some(())).await;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.changed.send_replace(());
    }

    async fn until<T>(&self, wanted: impl Fn(&Inner) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            // Marked as seen before it is looked at, so that no change is missed.
            changed.borrow_and_update();
            let found = wanted(&self.lock());
            if let Some(found) = found {
                return found;
            }
            // Never an error: the sender is in `self`.
            let _closed = changed.changed().await.is_err();
        }
    }
}

/// What the endpoint does with one request: steps, in the order in which they were added.
#[derive(Debug, Clone)]
pub struct Reply {
    start: Start,
    steps: Vec<Step>,
    input_tokens: u64,
    output_tokens: u64,
    finish: Option<Finish>,
    piece: Option<usize>,
    end: End,
}

#[derive(Debug, Clone)]
enum Start {
    Stream,
    Answer { status: StatusCode, headers: HeaderMap, body: String },
    Silence,
}

#[derive(Debug, Clone)]
enum Step {
    Text(String),
    CallBegins { id: String, name: String },
    Arguments(String),
    CallEnds,
    Error { kind: String, message: String },
    Raw(Vec<u8>),
    Stall,
    Hang,
}

/// Why an answer ends, in words that both protocols know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// Everything was said.
    Stop,
    /// For the results of tools.
    ToolCalls,
    /// The bound was reached.
    Length,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// As the protocol wants it.
    Proper,
    /// The body ends without the events that end an answer.
    Early,
}

impl Reply {
    /// An answer that says nothing and ends well.
    pub fn new() -> Reply {
        Reply {
            start: Start::Stream,
            steps: Vec::new(),
            input_tokens: 0,
            output_tokens: 0,
            finish: None,
            piece: None,
            end: End::Proper,
        }
    }

    /// Not a stream but an answer with that status and body.
    ///
    /// # Errors
    ///
    /// When there is no such status.
    pub fn status(status: u16, body: impl Into<String>) -> anyhow::Result<Reply> {
        let start = Start::Answer {
            status: StatusCode::from_u16(status)?,
            headers: HeaderMap::new(),
            body: body.into(),
        };
        Ok(Reply { start, ..Reply::new() })
    }

    /// Takes the request and never answers.
    pub fn silence() -> Reply {
        Reply { start: Start::Silence, ..Reply::new() }
    }

    /// Adds a header to an answer made with [`Reply::status`].
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &'static str) -> Reply {
        if let Start::Answer { headers, .. } = &mut self.start {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        self
    }

    /// Says a piece of text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Reply {
        self.step(Step::Text(text.into()))
    }

    /// Asks for a call of a tool. Each piece of its arguments is an event of its own.
    #[must_use]
    pub fn call(self, id: impl Into<String>, name: impl Into<String>, arguments: &[&str]) -> Reply {
        self.call_begins(id, name, arguments).step(Step::CallEnds)
    }

    /// Begins to ask for a call of a tool; its end is not said.
    #[must_use]
    pub fn call_begins(
        self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: &[&str],
    ) -> Reply {
        let begun = self.step(Step::CallBegins { id: id.into(), name: name.into() });
        arguments
            .iter()
            .fold(begun, |reply, piece| reply.step(Step::Arguments((*piece).to_owned())))
    }

    /// Reports an error in the middle of the stream, under the name that the protocol has for its kind.
    #[must_use]
    pub fn error(self, kind: impl Into<String>, message: impl Into<String>) -> Reply {
        self.step(Step::Error { kind: kind.into(), message: message.into() })
    }

    /// Sends these bytes as they are.
    #[must_use]
    pub fn raw(self, bytes: impl Into<Vec<u8>>) -> Reply {
        self.step(Step::Raw(bytes.into()))
    }

    /// Says nothing more, and keeps the connection open until the client closes it.
    #[must_use]
    pub fn stall(self) -> Reply {
        self.step(Step::Stall)
    }

    /// Tears the connection.
    #[must_use]
    pub fn break_off(self) -> Reply {
        self.step(Step::Hang)
    }

    /// Ends the body in good order, but the answer not at all.
    #[must_use]
    pub fn end_early(self) -> Reply {
        Reply { end: End::Early, ..self }
    }

    /// The figures that it reports.
    #[must_use]
    pub fn usage(self, input_tokens: u64, output_tokens: u64) -> Reply {
        Reply { input_tokens, output_tokens, ..self }
    }

    /// Why it ends. Without this: for tools when it asks for some, and otherwise because everything was said.
    #[must_use]
    pub fn finish(self, finish: Finish) -> Reply {
        Reply { finish: Some(finish), ..self }
    }

    /// Cuts the stream into pieces of that many bytes, in the middle of whatever is there.
    #[must_use]
    pub fn cut(self, bytes: usize) -> Reply {
        Reply { piece: Some(bytes.max(1)), ..self }
    }

    fn step(mut self, step: Step) -> Reply {
        self.steps.push(step);
        self
    }

    fn reason(&self) -> Finish {
        let calls = self.steps.iter().any(|step| matches!(step, Step::CallBegins { .. }));
        self.finish.unwrap_or(if calls { Finish::ToolCalls } else { Finish::Stop })
    }
}

impl Default for Reply {
    fn default() -> Self {
        Reply::new()
    }
}

/// What happens to a connection, piece by piece.
#[derive(Debug)]
enum Act {
    Send(Vec<u8>),
    Stall,
    Hang,
}

async fn openai(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer(shared, uri, headers, &body, openai_acts).await
}

async fn anthropic(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer(shared, uri, headers, &body, anthropic_acts).await
}

async fn answer(
    shared: Arc<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: &Bytes,
    acts: fn(&Reply) -> Vec<Act>,
) -> Response {
    let body = serde_json::from_slice(body).unwrap_or(Value::Null);
    let mut number = 0;
    let mut reply = None;
    shared.change(|inner| {
        number = inner.requests.len();
        reply = inner.replies.get(number).cloned();
        inner.requests.push(Received { path: uri.to_string(), headers, body });
        inner.ended.push(None);
    });
    let exchange = Exchange { shared, number, ended: Ended::ClientGone };
    let Some(reply) = reply else {
        return exchange.say(
            (StatusCode::NOT_FOUND, "no reply was prepared for this request").into_response(),
        );
    };
    match reply.start.clone() {
        Start::Answer { status, headers, body } => {
            exchange.say((status, headers, body).into_response())
        }
        Start::Silence => {
            exchange.shared.change(|inner| inner.stalled += 1);
            // The server drops this future when the client goes away.
            std::future::pending::<Infallible>().await;
            StatusCode::NO_CONTENT.into_response()
        }
        Start::Stream => {
            let mut acts = acts(&reply);
            if let Some(size) = reply.piece {
                acts = cut(acts, size);
            }
            let body = stream::unfold(
                (acts.into_iter(), exchange),
                |(mut acts, mut exchange)| async move {
                    let bytes = match acts.next() {
                        Some(Act::Send(bytes)) => Ok(bytes),
                        Some(Act::Stall) => {
                            exchange.shared.change(|inner| inner.stalled += 1);
                            // The server drops the body when the client goes away.
                            std::future::pending().await
                        }
                        Some(Act::Hang) => {
                            exchange.end();
                            Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted))
                        }
                        None => {
                            exchange.end();
                            return None;
                        }
                    };
                    // Lets the piece before this one leave as a packet of its own.
                    tokio::task::yield_now().await;
                    Some((bytes, (acts, exchange)))
                },
            );
            ([("content-type", "text/event-stream")], Body::from_stream(body)).into_response()
        }
    }
}

/// An answer under way. When it goes without having ended, the connection closed from the other side: the server has
/// no other reason to drop a handler or a body.
#[derive(Debug)]
struct Exchange {
    shared: Arc<Shared>,
    number: usize,
    ended: Ended,
}

impl Exchange {
    fn say(mut self, response: Response) -> Response {
        self.end();
        response
    }

    fn end(&mut self) {
        self.ended = Ended::Said;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let (number, ended) = (self.number, self.ended);
        self.shared.change(|inner| {
            if let Some(place) = inner.ended.get_mut(number) {
                *place = Some(ended);
            }
        });
    }
}

/// Cuts what is sent into pieces of that size; events are cut anywhere, characters too.
fn cut(acts: Vec<Act>, size: usize) -> Vec<Act> {
    let mut pieces = Vec::new();
    for act in acts {
        match act {
            Act::Send(bytes) => {
                pieces.extend(bytes.chunks(size).map(|piece| Act::Send(piece.to_vec())))
            }
            whole @ (Act::Stall | Act::Hang) => pieces.push(whole),
        }
    }
    pieces
}

fn openai_acts(reply: &Reply) -> Vec<Act> {
    let event = |value: Value| Act::Send(format!("data: {value}\n\n").into_bytes());
    let chunk = |delta: Value, finish: Option<&str>| {
        event(json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }], "usage": null,
        }))
    };
    let mut acts = vec![chunk(json!({ "role": "assistant", "content": "" }), None)];
    let mut calls: u64 = 0;
    for step in &reply.steps {
        acts.push(match step {
            Step::Text(text) => chunk(json!({ "content": text }), None),
            Step::CallBegins { id, name } => {
                calls += 1;
                let function = json!({ "name": name, "arguments": "" });
                let call = json!({ "index": calls - 1, "id": id, "type": "function", "function": function });
                chunk(json!({ "tool_calls": [call] }), None)
            }
            Step::Arguments(piece) => {
                let call = json!({ "index": calls.saturating_sub(1), "function": { "arguments": piece } });
                chunk(json!({ "tool_calls": [call] }), None)
            }
            Step::CallEnds => continue,
            Step::Error { kind, message } => event(json!({ "error": { "type": kind, "message": message } })),
            Step::Raw(bytes) => Act::Send(bytes.clone()),
            Step::Stall => Act::Stall,
            Step::Hang => Act::Hang,
        });
    }
    if reply.end == End::Proper {
        let finish = match reply.reason() {
            Finish::Stop => "stop",
            Finish::ToolCalls => "tool_calls",
            Finish::Length => "length",
        };
        acts.push(chunk(json!({}), Some(finish)));
        acts.push(event(json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [],
            "usage": {
                "prompt_tokens": reply.input_tokens,
                "completion_tokens": reply.output_tokens,
                "total_tokens": reply.input_tokens + reply.output_tokens,
            },
        })));
        acts.push(Act::Send(b"data: [DONE]\n\n".to_vec()));
    }
    acts
}

fn anthropic_acts(reply: &Reply) -> Vec<Act> {
    let event = |value: Value| {
        let name = value["type"].as_str().unwrap_or_default();
        Act::Send(format!("event: {name}\ndata: {value}\n\n").into_bytes())
    };
    let delta = |index: u64, delta: Value| {
        event(json!({ "type": "content_block_delta", "index": index, "delta": delta }))
    };
    let stop = |index: u64| event(json!({ "type": "content_block_stop", "index": index }));
    let mut acts = vec![
        event(json!({ "type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": { "input_tokens": reply.input_tokens, "output_tokens": 1 },
        } })),
        event(json!({ "type": "ping" })),
    ];
    // The number of the block that is open, or of the next one.
    let mut index = 0;
    let mut in_text = false;
    for step in &reply.steps {
        if in_text && !matches!(step, Step::Text(_) | Step::Raw(_) | Step::Stall | Step::Hang) {
            acts.push(stop(index));
            index += 1;
            in_text = false;
        }
        match step {
            Step::Text(text) => {
                if !in_text {
                    let block = json!({ "type": "text", "text": "" });
                    acts.push(event(json!({ "type": "content_block_start", "index": index, "content_block": block })));
                    in_text = true;
                }
                acts.push(delta(index, json!({ "type": "text_delta", "text": text })));
            }
            Step::CallBegins { id, name } => {
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                acts.push(event(json!({ "type": "content_block_start", "index": index, "content_block": block })));
            }
            Step::Arguments(piece) => {
                acts.push(delta(
                    index,
                    json!({ "type": "input_json_delta", "partial_json": piece }),
                ));
            }
            Step::CallEnds => {
                acts.push(stop(index));
                index += 1;
            }
            Step::Error { kind, message } => {
                acts.push(event(
                    json!({ "type": "error", "error": { "type": kind, "message": message } }),
                ));
            }
            Step::Raw(bytes) => acts.push(Act::Send(bytes.clone())),
            Step::Stall => acts.push(Act::Stall),
            Step::Hang => acts.push(Act::Hang),
        }
    }
    if reply.end == End::Proper {
        if in_text {
            acts.push(stop(index));
        }
        let reason = match reply.reason() {
            Finish::Stop => "end_turn",
            Finish::ToolCalls => "tool_use",
            Finish::Length => "max_tokens",
        };
        acts.push(event(json!({
            "type": "message_delta",
            "delta": { "stop_reason": reason, "stop_sequence": null },
            "usage": { "output_tokens": reply.output_tokens },
        })));
        acts.push(event(json!({ "type": "message_stop" })));
    }
    acts
}
