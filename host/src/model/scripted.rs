//! A model that answers from a list: offline, deterministic, for tests and for trying things out.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream;

use super::answer::{Delta, Finish, Response};
use super::provider::{ModelError, Provider, ResponseStream};
use super::request::Request;
use super::script::{self, Lasts, Reply, Script, Step};
use crate::message::{Message, Role, ToolCall, Usage};

/// How much of a message an error quotes.
const QUOTED: usize = 80;

/// A model that answers from a [`Script`]. Clones share the script and what is used up of it.
#[derive(Clone)]
pub struct Scripted {
    name: Arc<str>,
    state: Arc<Mutex<State>>,
}

/// Guarded by `Scripted::state`; the lock is held only to take a reply or to copy the record.
struct State {
    /// A reply is taken out when it is used up; its place stays, so that positions in errors stay true.
    replies: Vec<Option<Reply>>,
    /// How many requests came. Only grows.
    requests: usize,
    /// What the requests said; none when nobody wants to know.
    record: Option<Vec<Request>>,
}

impl Scripted {
    /// A model of that name with these replies.
    pub fn new(name: impl Into<Arc<str>>, replies: impl IntoIterator<Item = Reply>) -> Scripted {
        Scripted::from_script(name, replies.into_iter().collect())
    }

    /// A model of that name with the replies of a script.
    pub fn from_script(name: impl Into<Arc<str>>, script: Script) -> Scripted {
        let replies = script.replies.into_iter().map(Some).collect();
        Scripted {
            name: name.into(),
            state: Arc::new(Mutex::new(State { replies, requests: 0, record: None })),
        }
    }

    /// Keeps every request from now on, for [`Scripted::requests`].
    #[must_use]
    pub fn recording(self) -> Scripted {
        self.lock().record.get_or_insert_default();
        self
    }

    /// The requests that were started since [`Scripted::recording`], in order.
    pub fn requests(&self) -> Vec<Request> {
        self.lock().record.clone().unwrap_or_default()
    }

    /// How many replies are not used up; those that repeat are not counted.
    pub fn remaining(&self) -> usize {
        self.lock().replies.iter().flatten().filter(|reply| reply.lasts == Lasts::Once).count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the reply for a request.
    fn take(&self, request: &Request) -> Result<Reply, ModelError> {
        let last = request.messages.last().map_or("", |message| message.text.as_str());
        let mut state = self.lock();
        state.requests += 1;
        let number = state.requests;
        if let Some(record) = &mut state.record {
            record.push(request.clone());
        }
        let found = state
            .replies
            .iter_mut()
            .find(|place| place.as_ref().is_some_and(|reply| reply.fits(last)))
            .and_then(|place| match place {
                Some(reply) if reply.lasts == Lasts::Ever => Some(reply.clone()),
                used_up => used_up.take(),
            });
        found.ok_or_else(|| {
            let left = state.replies.iter().flatten().count();
            let all = state.replies.len();
            let reason = if left == 0 {
                format!("all of its {all} replies are used up; add one, or mark one with `repeat = true`")
            } else {
                let quote: String = last.chars().take(QUOTED).collect();
                format!("none of the {left} replies that are left fits its last message, which begins with {quote:?}")
            };
            ModelError::Unscripted { script: self.name.to_string(), number, reason }
        })
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&self, request: Request) -> ResponseStream {
        let phase = Phase::New(self.clone(), request);
        Box::pin(stream::unfold(phase, next))
    }
}

/// Where the stream of one answer is.
enum Phase {
    New(Scripted, Request),
    Answering(Box<Answering>),
    Over,
}

struct Answering {
    script: Arc<str>,
    request: Request,
    reply: Reply,
    steps: VecDeque<Step>,
    /// Pieces of a text step that are not sent yet.
    pieces: VecDeque<String>,
    text: String,
    calls: Vec<ToolCall>,
    /// What the script says that the request used, until it was told.
    untold: Option<Usage>,
}

async fn next(mut phase: Phase) -> Option<(Result<Delta, ModelError>, Phase)> {
    loop {
        phase = match phase {
            Phase::New(scripted, request) => match begin(&scripted, request) {
                Ok(answering) => Phase::Answering(answering),
                Err(error) => return Some((Err(error), Phase::Over)),
            },
            Phase::Answering(mut answering) => {
                return Some(match answering.next().await {
                    Ok(done @ Delta::Done(_)) => (Ok(done), Phase::Over),
                    Ok(delta) => (Ok(delta), Phase::Answering(answering)),
                    Err(error) => (Err(error), Phase::Over),
                });
            }
            Phase::Over => return None,
        }
    }
}

fn begin(scripted: &Scripted, request: Request) -> Result<Box<Answering>, ModelError> {
    request
        .check()
        .map_err(|reason| ModelError::Invalid { model: scripted.name.to_string(), reason })?;
    let mut reply = scripted.take(&request)?;
    let steps = std::mem::take(&mut reply.steps).into();
    let untold = reply.usage;
    Ok(Box::new(Answering {
        script: Arc::clone(&scripted.name),
        request,
        reply,
        steps,
        pieces: VecDeque::new(),
        text: String::new(),
        calls: Vec::new(),
        untold,
    }))
}

impl Answering {
    async fn next(&mut self) -> Result<Delta, ModelError> {
        loop {
            if let Some(usage) = self.untold.take() {
                return Ok(Delta::Used(usage));
            }
            if let Some(piece) = self.pieces.pop_front() {
                self.wait().await;
                self.text.push_str(&piece);
                return Ok(Delta::Text(piece));
            }
            match self.steps.pop_front() {
                Some(Step::Text(text)) => {
                    let text = script::filled(
                        &text,
                        self.request.messages.last().map_or("", |last| &last.text),
                    );
                    self.pieces = pieces(&text, self.reply.chunk);
                }
                Some(Step::Call { id, name, arguments }) => {
                    self.wait().await;
                    let id = id.unwrap_or_else(|| format!("call-{}", self.calls.len() + 1));
                    self.calls.push(ToolCall { id, name: name.clone(), arguments });
                    return Ok(Delta::ToolCall { name });
                }
                Some(Step::Hold(hold)) => hold.pass().await,
                Some(Step::Stall) => std::future::pending().await,
                Some(Step::Fail { code, message }) => {
                    return Err(ModelError::Scripted {
                        script: self.script.to_string(),
                        code,
                        message,
                    });
                }
                None => return Ok(Delta::Done(self.done())),
            }
        }
    }

    async fn wait(&self) {
        if !self.reply.pace.is_zero() {
            tokio::time::sleep(self.reply.pace).await;
        }
    }

    fn done(&mut self) -> Response {
        let text = std::mem::take(&mut self.text);
        let calls = std::mem::take(&mut self.calls);
        let usage = self
            .reply
            .usage
            .unwrap_or_else(|| script::estimate(&self.request.messages, &text, &calls));
        let finish = self.reply.finish.unwrap_or(if calls.is_empty() {
            Finish::Stop
        } else {
            Finish::ToolCalls
        });
        Response {
            message: Message { tool_calls: calls, ..Message::text(Role::Assistant, text) },
            finish,
            usage,
            model: self.request.model.take().unwrap_or_else(|| self.script.to_string()),
        }
    }
}

fn pieces(text: &str, characters: usize) -> VecDeque<String> {
    let mut pieces = VecDeque::new();
    let mut piece = String::new();
    let mut length = 0;
    for character in text.chars() {
        piece.push(character);
        length += 1;
        if length == characters {
            pieces.push_back(std::mem::take(&mut piece));
            length = 0;
        }
    }
    if !piece.is_empty() {
        pieces.push_back(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::hold::Hold;
    use super::*;
    use crate::message::{FailureCode, Usage};
    use futures::StreamExt;

    fn ask(text: &str) -> Request {
        Request { messages: vec![Message::text(Role::User, text)], ..Request::default() }
    }

    async fn all(model: &Scripted, text: &str) -> Vec<Result<Delta, ModelError>> {
        model.start(ask(text)).collect().await
    }

    async fn answer(model: &Scripted, text: &str) -> Result<Response, ModelError> {
        let last = all(model, text).await.pop().unwrap()?;
        let Delta::Done(response) = last else { panic!("{last:?} was last") };
        Ok(response)
    }

    #[tokio::test]
    async fn text_comes_in_pieces_and_whole_at_the_end() {
        let model = Scripted::new("s", [Reply::new().text("grüße, all").chunk(4).usage(3, 4)]);
        let deltas = all(&model, "hello").await;
        let response = Response {
            message: Message::text(Role::Assistant, "grüße, all"),
            finish: Finish::Stop,
            usage: Usage { input_tokens: 3, output_tokens: 4 },
            model: "s".into(),
        };
        let text = |piece: &str| Ok(Delta::Text(piece.to_owned()));
        let used = Ok(Delta::Used(response.usage));
        assert_eq!(
            deltas,
            [used, text("grüß"), text("e, a"), text("ll"), Ok(Delta::Done(response))]
        );
    }

    #[tokio::test]
    async fn calls_are_numbered_and_finish_says_so() {
        let model =
            Scripted::new("s", [Reply::new().text("so").call("a", "{}").call("b", r#"{"x":1}"#)]);
        let response = answer(&model, "go").await.unwrap();
        let ids: Vec<_> =
            response.message.tool_calls.iter().map(|call| (&*call.id, &*call.name)).collect();
        assert_eq!(ids, [("call-1", "a"), ("call-2", "b")]);
        assert_eq!(response.finish, Finish::ToolCalls);
        assert!(response.usage.input_tokens > 0 && response.usage.output_tokens > 0);
    }

    #[tokio::test]
    async fn replies_are_chosen_by_the_last_message_and_then_by_order() {
        let model = Scripted::new(
            "s",
            [
                Reply::new().when("weather").text("rain"),
                Reply::new().text("first"),
                Reply::new().text("you said {{last-message}}").repeat(),
            ],
        );
        let mut texts = Vec::new();
        for asked in ["hello", "the weather", "the weather", "more"] {
            texts.push(answer(&model, asked).await.unwrap().message.text);
        }
        assert_eq!(texts, ["first", "rain", "you said the weather", "you said more"]);
        assert_eq!(model.remaining(), 0);
    }

    #[tokio::test]
    async fn a_script_that_ran_out_names_itself_and_the_request() {
        let model = Scripted::new("demo.toml", [Reply::new().text("one")]);
        answer(&model, "a").await.unwrap();
        let error = answer(&model, "b").await.unwrap_err();
        assert_eq!(error.code(), FailureCode::Failed);
        let error = error.to_string();
        assert!(
            error.contains("`demo.toml`")
                && error.contains("request 2")
                && error.contains("used up"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_request_that_no_reply_fits_is_quoted() {
        let model = Scripted::new("s", [Reply::new().when("x").text("one")]);
        let error = answer(&model, "b").await.unwrap_err().to_string();
        assert!(error.contains("request 1") && error.contains("\"b\""), "{error}");
        assert_eq!(model.remaining(), 1);
    }

    #[tokio::test]
    async fn a_failure_comes_after_the_text_before_it() {
        let model =
            Scripted::new("s", [Reply::new().text("so far").fail(FailureCode::Busy, "no more")]);
        let deltas = all(&model, "go").await;
        assert_eq!(deltas[0], Ok(Delta::Text("so far".into())));
        assert_eq!(deltas[1].as_ref().unwrap_err().code(), FailureCode::Busy);
        assert_eq!(deltas.len(), 2);
    }

    #[tokio::test]
    async fn a_script_may_play_a_model_that_gets_arguments_wrong() {
        let model = Scripted::new("s", [Reply::new().call("a", "[1")]);
        assert_eq!(answer(&model, "go").await.unwrap().message.tool_calls[0].arguments, "[1");
    }

    #[tokio::test]
    async fn what_the_script_says_was_used_is_told_before_it_fails() {
        let reply = Reply::new().text("a").usage(5, 6).fail(FailureCode::Busy, "no more");
        let deltas = all(&Scripted::new("s", [reply]), "go").await;
        assert_eq!(deltas[0], Ok(Delta::Used(Usage { input_tokens: 5, output_tokens: 6 })));
    }

    #[tokio::test]
    async fn a_hold_keeps_the_stream_open_until_it_is_opened() {
        let hold = Hold::new();
        let model = Scripted::new("s", [Reply::new().text("a").hold(&hold).text("b")]);
        let mut stream = model.start(ask("go"));
        assert_eq!(stream.next().await, Some(Ok(Delta::Text("a".into()))));
        assert!(futures::poll!(stream.next()).is_pending());
        hold.reached(1).await;
        hold.open();
        assert_eq!(stream.next().await, Some(Ok(Delta::Text("b".into()))));
        assert!(matches!(stream.next().await, Some(Ok(Delta::Done(_)))));
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn a_stream_that_is_dropped_at_a_hold_is_seen_to_be_gone() {
        let hold = Hold::new();
        let model = Scripted::new("s", [Reply::new().hold(&hold)]);
        let mut stream = model.start(ask("go"));
        assert!(futures::poll!(stream.next()).is_pending());
        drop(stream);
        hold.dropped(1).await;
    }

    #[tokio::test]
    async fn nothing_is_taken_before_the_first_poll() {
        let model = Scripted::new("s", [Reply::new().text("a")]).recording();
        drop(model.start(ask("go")));
        assert_eq!((model.remaining(), model.requests().len()), (1, 0));
        answer(&model, "now").await.unwrap();
        assert_eq!(model.requests(), [ask("now")]);
    }

    #[tokio::test]
    async fn a_stalled_reply_never_ends() {
        let model = Scripted::new("s", [Reply::new().stall()]);
        let mut stream = model.start(ask("go"));
        assert!(futures::poll!(stream.next()).is_pending());
    }
}
