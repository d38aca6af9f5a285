//! Closing a connection so that the peer can read the last answer.
//!
//! An answer may be given before all of the request was read. Who then closes at once makes the peer fail at sending the rest,
//! or resets the connection under the answer. So the host closes its own half first, and reads and forgets what still comes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Sleep, sleep, timeout};

use super::closing::{Phase, Watch};
use super::problem::{Failed, Problem};

/// How long a peer may take to close its half, or to say the first word of a request that is refused.
const TIME: Duration = Duration::from_secs(2);

/// The most bytes that are read for nothing.
const BYTES: usize = 16 << 20;

/// Bytes of them at one time.
const PART: usize = 16 << 10;

/// A stream whose shutdown lasts until the peer has closed, too. One that goes on is left after a time, or when it has sent too
/// much; and at the end of the listeners nobody is waited for who was answered.
pub(super) struct Lingering<S> {
    stream: S,
    watch: Watch,
    /// What is left of the shutdown once this half is closed.
    rest: Option<Rest>,
}

struct Rest {
    late: Pin<Box<Sleep>>,
    bytes: usize,
    part: Box<[u8]>,
}

impl<S> Lingering<S> {
    pub(super) fn new(stream: S, watch: Watch) -> Lingering<S> {
        Lingering { stream, watch, rest: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lingering<S> {
    /// Answers a request of which nothing more is read, and closes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(super) async fn refuse(mut self, problem: Problem) {
        let answer = answer(problem);
        if self.stream.write_all(answer.as_bytes()).await.is_ok() {
            // One that has gone meanwhile is closed all the same.
            self.shutdown().await.ok();
        }
    }

    /// Waits until the peer has begun to ask. There are clients that take an answer for a defect that comes before.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a part of the request may be lost, and nobody reads it.
    pub(super) async fn heard(&mut self) {
        let mut part = [0; 512];
        drop(timeout(TIME, self.stream.read(&mut part)).await);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Lingering { stream, watch, rest } = &mut *self;
        let rest = match rest {
            Some(rest) => rest,
            None => {
                ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
                let part = vec![0; PART].into_boxed_slice();
                rest.insert(Rest { late: Box::pin(sleep(TIME)), bytes: BYTES, part })
            }
        };
        while rest.bytes > 0 && !watch.has(Phase::Ending) {
            let mut part = ReadBuf::new(&mut rest.part);
            match Pin::new(&mut *stream).poll_read(context, &mut part) {
                Poll::Pending => return rest.late.as_mut().poll(context).map(Ok),
                // It has closed, or is gone.
                Poll::Ready(Ok(())) if part.filled().is_empty() => break,
                Poll::Ready(Err(_)) => break,
                Poll::Ready(Ok(())) => {
                    rest.bytes = rest.bytes.saturating_sub(part.filled().len());
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// An answer as it is sent where no request was read.
pub(super) fn answer(problem: Problem) -> String {
    let (status, retry_after) = (problem.kind.status(), problem.retry_after);
    let reason = axum::http::StatusCode::from_u16(status).ok();
    let reason = reason.and_then(|status| status.canonical_reason()).unwrap_or_default();
    let later =
        retry_after.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
    let body = serde_json::to_string(&Failed { error: problem }).unwrap_or_default();
    format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n{later}connection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::super::closing::Closing;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_close_is_left() {
        let closing = Closing::new();
        let (stream, _silent) = tokio::io::duplex(64);
        Lingering::new(stream, closing.watch()).shutdown().await.unwrap();
        // One that never stops to send.
        let (stream, mut endless) = tokio::io::duplex(1 << 20);
        let sending = async {
            let part = vec![0; 1 << 20];
            let mut sent = 0;
            while endless.write_all(&part).await.is_ok() {
                sent += part.len();
            }
            sent
        };
        let close = async { Lingering::new(stream, closing.watch()).shutdown().await.unwrap() };
        let ((), sent) = tokio::join!(close, sending);
        assert!((BYTES..=BYTES + (2 << 20)).contains(&sent), "{sent}");
    }

    #[tokio::test]
    async fn at_the_end_nobody_is_waited_for() {
        let closing = Closing::new();
        let (stream, _silent) = tokio::io::duplex(64);
        let mut stream = Lingering::new(stream, closing.watch());
        let mut shut = std::pin::pin!(stream.shutdown());
        assert!(futures::poll!(shut.as_mut()).is_pending());
        closing.end();
        assert!(futures::poll!(shut).is_ready());
    }
}
