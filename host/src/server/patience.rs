//! A stream that gives up on a peer that takes nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream on which no write waits longer than that. Reading is not bounded here.
pub(super) struct Patient<S> {
    stream: S,
    bound: Duration,
    /// Runs while a write waits.
    late: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, bound: Duration) -> Patient<S> {
        Patient { stream, bound, late: None }
    }

    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let bound = self.bound;
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(bound)));
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_and_one_that_is_slow_is_not() {
        let (stream, mut peer) = tokio::io::duplex(4);
        let mut stream = Patient::new(stream, Duration::from_secs(30));
        let slow = async {
            let mut taken = [0; 4];
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(29)).await;
                peer.read_exact(&mut taken).await.unwrap();
            }
            peer
        };
        let (written, _peer) = tokio::join!(stream.write_all(&[0; 16]), slow);
        written.unwrap();
        let lost = stream.write_all(&[0; 16]).await.unwrap_err();
        assert_eq!(lost.kind(), io::ErrorKind::TimedOut);
    }
}
