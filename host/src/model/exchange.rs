//! One request to an endpoint, from the first attempt to the end of the answer. The states are drawn in `mod.rs`.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::answer::Delta;
use super::dialect::Reader;
use super::fault::Fault;
use super::limits::TimeLimit;
use super::provider::{ModelError, ResponseStream};
use super::remote::Endpoint;
use super::request::Request;
use super::{retry, sse, transport};

/// Begins a request; nothing happens before the first poll.
pub(super) fn start(endpoint: Arc<Endpoint>, request: Request) -> ResponseStream {
    Box::pin(stream::unfold(Phase::New(endpoint, request), next))
}

/// Where a request is. A phase owns what belongs to it, so that dropping the stream drops the connection.
enum Phase {
    New(Arc<Endpoint>, Request),
    Send(Call),
    Pause(Call, Duration),
    Read(Call, Box<Answer>),
    Over,
}

/// What lasts through all attempts of a request.
struct Call {
    endpoint: Arc<Endpoint>,
    body: Bytes,
    /// The end of the total time.
    deadline: Instant,
    attempts: u32,
    progress: Progress,
}

/// Whether anybody has seen a part of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Nothing,
    Delivered,
}

async fn next(mut phase: Phase) -> Option<(Result<Delta, ModelError>, Phase)> {
    loop {
        phase = match phase {
            Phase::New(endpoint, request) => match Call::new(endpoint, &request) {
                Ok(call) => Phase::Send(call),
                Err(error) => return Some((Err(error), Phase::Over)),
            },
            Phase::Send(mut call) => match call.send().await {
                Ok(answer) => Phase::Read(call, Box::new(answer)),
                Err(fault) => return Some(call.after(fault)),
            },
            Phase::Pause(call, pause) => {
                tokio::time::sleep(pause).await;
                Phase::Send(call)
            }
            Phase::Read(mut call, mut answer) => {
                return Some(match answer.next(&call).await {
                    Ok(done @ Delta::Done(_)) => {
                        answer.release();
                        (Ok(done), Phase::Over)
                    }
                    // Nobody sees an answer begin by what it costs.
                    Ok(used @ Delta::Used(_)) => (Ok(used), Phase::Read(call, answer)),
                    Ok(delta) => {
                        call.progress = Progress::Delivered;
                        (Ok(delta), Phase::Read(call, answer))
                    }
                    Err(fault) => call.after(fault),
                });
            }
            Phase::Over => return None,
        }
    }
}

impl Call {
    fn new(endpoint: Arc<Endpoint>, request: &Request) -> Result<Call, ModelError> {
        let body = endpoint.body(request).map_err(|fault| {
            fault.cleaned(|text| endpoint.clean(text)).into_error(&endpoint.name, 0)
        })?;
        let deadline = Instant::now() + endpoint.limits.total;
        Ok(Call { endpoint, body, deadline, attempts: 0, progress: Progress::Nothing })
    }

    /// One attempt: from nothing to the beginning of an answer.
    async fn send(&mut self) -> Result<Answer, Fault> {
        self.attempts += 1;
        let endpoint = &self.endpoint;
        debug!(
            model = endpoint.name,
            attempt = self.attempts,
            bytes = self.body.len(),
            "asking a model"
        );
        let request = endpoint
            .client
            .post(endpoint.url.clone())
            .headers(endpoint.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .body(self.body.clone());
        let sent =
            self.within(TimeLimit::FirstByte, endpoint.limits.first_byte, request.send()).await?;
        let response = sent.map_err(|error| Fault::Unreachable(transport::explain(error)))?;
        debug!(model = endpoint.name, status = response.status().as_u16(), "a model answers");
        if !transport::is_stream(&response) {
            let refusal = transport::refusal(response);
            return Err(self.within(TimeLimit::Idle, endpoint.limits.idle, refusal).await?);
        }
        Ok(Answer {
            body: Box::pin(response.bytes_stream()),
            events: sse::Decoder::default(),
            reader: endpoint.dialect.reader(),
            deltas: VecDeque::new(),
        })
    }

    /// Decides what follows a fault: a further attempt, or the end.
    fn after(self, fault: Fault) -> (Result<Delta, ModelError>, Phase) {
        let fault = fault.cleaned(|text| self.endpoint.clean(text));
        let name = &self.endpoint.name;
        let pause = retry::pause(
            self.endpoint.retry_pause,
            self.attempts,
            fault.retry_after(),
            retry::chance(),
        );
        // A pause that would not end in time is not begun: the caller can use that time better.
        let in_time = Instant::now().checked_add(pause).is_some_and(|end| end < self.deadline);
        let again = self.progress == Progress::Nothing
            && self.attempts <= self.endpoint.max_retries
            && in_time;
        if !again || !fault.passes() {
            debug!(
                model = name,
                attempts = self.attempts,
                reason = fault.brief(),
                "a model request failed"
            );
            return (Err(fault.into_error(name, self.attempts)), Phase::Over);
        }
        debug!(
            model = name,
            attempt = self.attempts,
            ?pause,
            reason = fault.brief(),
            "a model is asked again"
        );
        let retrying =
            Delta::Retrying { attempt: self.attempts, after: pause, reason: fault.brief() };
        (Ok(retrying), Phase::Pause(self, pause))
    }

    /// Waits within a limit and within the total time.
    async fn within<T>(
        &self,
        limit: TimeLimit,
        most: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        let end = Instant::now() + most;
        timeout_at(end.min(self.deadline), future).await.map_err(|_| {
            if end < self.deadline {
                Fault::TimedOut { limit, after: most }
            } else {
                Fault::TimedOut { limit: TimeLimit::Total, after: self.endpoint.limits.total }
            }
        })
    }
}

/// An answer that is being read.
struct Answer {
    body: Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>,
    events: sse::Decoder,
    reader: Reader,
    /// Deltas of the event that was read last.
    deltas: VecDeque<Delta>,
}

impl Answer {
    async fn next(&mut self, call: &Call) -> Result<Delta, Fault> {
        loop {
            if let Some(delta) = self.deltas.pop_front() {
                return Ok(delta);
            }
            if let Some(event) = self.events.next() {
                self.reader.event(&event, &mut self.deltas)?;
                continue;
            }
            match call.within(TimeLimit::Idle, call.endpoint.limits.idle, self.body.next()).await? {
                Some(Ok(piece)) => self.events.feed(&piece)?,
                Some(Err(error)) => return Err(Fault::Broken(transport::explain(error))),
                None => self.reader.end(&mut self.deltas)?,
            }
        }
    }

    /// Gives the connection back for the next request when the end of the body is there already; otherwise it closes.
    fn release(mut self: Box<Self>) {
        if let Some(None) = self.body.next().now_or_never() {
            debug!("the connection can be used again");
        }
    }
}
