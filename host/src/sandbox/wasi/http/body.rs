//! The body of an answer, which must not keep the guest waiting for ever, and that of a request, which holds a place.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use wasmtime_wasi_http::Error;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;

use super::exchange::failed;

/// A body whose next piece comes in time, or which fails.
pub(super) struct Timed {
    incoming: Incoming,
    wait: Duration,
    /// Runs while somebody waits for the next piece.
    sleep: Option<Pin<Box<Sleep>>>,
    failed: bool,
}

impl Timed {
    pub(super) fn new(incoming: Incoming, wait: Duration) -> Timed {
        Timed { incoming, wait, sleep: None, failed: false }
    }
}

impl Body for Timed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.failed {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            self.sleep = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(failed)));
        }
        let wait = self.wait;
        ready!(
            self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait))).as_mut().poll(cx)
        );
        self.failed = true;
        Poll::Ready(Some(Err(Error::ConnectionReadTimeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.failed || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// What a guest writes to a request. Holds one of the run's places for such bodies for as long as bytes may wait in it.
pub(super) struct Placed {
    body: HyperOutgoingBody,
    #[expect(dead_code, reason = "held for its drop")]
    place: OwnedSemaphorePermit,
}

impl Placed {
    pub(super) fn new(body: HyperOutgoingBody, place: OwnedSemaphorePermit) -> Placed {
        Placed { body, place }
    }
}

impl Body for Placed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
