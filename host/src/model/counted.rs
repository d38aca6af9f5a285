//! What models were asked and what they used, counted where every request passes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::Stream;

use super::answer::Delta;
use super::provider::{ModelError, Provider, ResponseStream};
use super::request::Request;
use crate::message::Usage;
use crate::metrics::{Counter, Counts};

/// How requests end.
const ENDS: [&str; 3] = ["completed", "failed", "interrupted"];

/// The figures of all models that were configured, by their names. Models of one name in several profiles count together.
#[derive(Debug, Default)]
pub struct ModelFigures {
    /// Locked when a configuration is read and when the figures are, never by a request.
    models: Mutex<BTreeMap<String, Arc<ModelFigure>>>,
}

/// The figures of one model.
#[derive(Debug)]
pub struct ModelFigure {
    /// Requests by how they ended: `completed`, `failed` or `interrupted`.
    pub requests: Counts<&'static str, 3>,
    /// Tokens of the requests.
    pub input_tokens: Counter,
    /// Tokens of the answers.
    pub output_tokens: Counter,
}

impl ModelFigures {
    /// All of them.
    pub fn all(&self) -> Vec<(String, Arc<ModelFigure>)> {
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        models.iter().map(|(name, figure)| (name.clone(), Arc::clone(figure))).collect()
    }

    /// The same model, with its requests counted here.
    pub fn counting(&self, provider: Arc<dyn Provider>) -> Arc<dyn Provider> {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let figure = models.entry(provider.name().to_owned()).or_insert_with(|| {
            let (input_tokens, output_tokens) = (Counter::default(), Counter::default());
            Arc::new(ModelFigure { requests: Counts::new(&ENDS), input_tokens, output_tokens })
        });
        Arc::new(Counting { provider, figure: Arc::clone(figure) })
    }
}

/// A model whose requests are counted.
#[derive(Debug)]
struct Counting {
    provider: Arc<dyn Provider>,
    figure: Arc<ModelFigure>,
}

impl Provider for Counting {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn start(&self, request: Request) -> ResponseStream {
        let (stream, figure) = (self.provider.start(request), Arc::clone(&self.figure));
        Box::pin(Counted { stream, figure, usage: Usage::default(), end: "interrupted" })
    }
}

/// One request. It is counted when it is over, also when it is given up.
struct Counted {
    stream: ResponseStream,
    figure: Arc<ModelFigure>,
    usage: Usage,
    end: &'static str,
}

impl Stream for Counted {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.stream.as_mut().poll_next(context);
        match &next {
            Poll::Ready(Some(Ok(Delta::Used(usage)))) => self.usage = *usage,
            Poll::Ready(Some(Ok(Delta::Done(response)))) => {
                (self.usage, self.end) = (response.usage, "completed");
            }
            Poll::Ready(Some(Err(_)) | None) if self.end == "interrupted" => self.end = "failed",
            Poll::Ready(_) | Poll::Pending => {}
        }
        next
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.figure.requests.of(self.end).one();
        self.figure.input_tokens.more(self.usage.input_tokens);
        self.figure.output_tokens.more(self.usage.output_tokens);
    }
}
