//! A TCP connection as two streams.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;
use wasmtime_wasi_io::async_trait;
use wasmtime_wasi_io::poll::Pollable;
use wasmtime_wasi_io::streams::{InputStream, OutputStream, StreamError, StreamResult};

/// Bytes of one read and of one write, at most.
const CHUNK: usize = 64 << 10;

/// A connection. The socket and its two streams share it.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// Protects what is on its way out; held only for non-blocking calls.
    out: Mutex<Out>,
}

#[derive(Default)]
struct Out {
    /// Written by the guest, not taken by the kernel yet; at most one write.
    waiting: Bytes,
    /// No more will be written: when `waiting` is empty the other side is told.
    closing: bool,
    /// The error of a send, until the guest hears of it.
    error: Option<io::Error>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Connection {
        Connection { stream, out: Mutex::default() }
    }

    pub(super) fn shut_down(&self, how: Shutdown) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            // The other side may have closed already; then there is nothing left to close.
            rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Read).ok();
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.out().closing = true;
            self.send_at_once();
        }
    }

    fn out(&self) -> std::sync::MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what the kernel takes now.
    fn send_at_once(&self) {
        let _sent = self.poll_send(&mut Context::from_waker(Waker::noop())).is_ready();
    }

    /// Ready when nothing waits to be sent.
    fn poll_send(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut out = self.out();
        while !out.waiting.is_empty() {
            match self.stream.try_write(&out.waiting) {
                Ok(sent) => out.waiting.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.stream.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => out.fail(error),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Err(error) => out.fail(error),
            }
        }
        if out.closing {
            rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write).ok();
        }
        Poll::Ready(())
    }
}

impl Out {
    fn fail(&mut self, error: io::Error) {
        self.waiting = Bytes::new();
        self.error = Some(error);
        self.closing = true;
    }

    /// Gives the error of a send, once; afterwards the stream is closed.
    fn check(&mut self) -> StreamResult<()> {
        match self.error.take() {
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(StreamError::Closed),
            Some(error) => Err(StreamError::LastOperationFailed(error.into())),
            None if self.closing => Err(StreamError::Closed),
            None => Ok(()),
        }
    }
}

/// The receiving side.
pub(super) struct Input {
    connection: Arc<Connection>,
    ended: bool,
}

impl Input {
    pub(super) fn new(connection: Arc<Connection>) -> Input {
        Input { connection, ended: false }
    }
}

#[async_trait]
impl Pollable for Input {
    async fn ready(&mut self) {
        if self.ended {
            return;
        }
        std::future::poll_fn(|cx| {
            // A guest that waits for an answer must not wait for a question that was never sent.
            let _sent = self.connection.poll_send(cx).is_ready();
            self.connection.stream.poll_read_ready(cx).map(drop)
        })
        .await;
    }
}

#[async_trait]
impl InputStream for Input {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if self.ended {
            return Err(StreamError::Closed);
        }
        if size == 0 {
            return Ok(Bytes::new());
        }
        self.connection.send_at_once();
        let mut buffer = BytesMut::zeroed(size.min(CHUNK));
        match self.connection.stream.try_read(&mut buffer) {
            Ok(0) => {
                self.ended = true;
                Err(StreamError::Closed)
            }
            Ok(read) => {
                buffer.truncate(read);
                Ok(buffer.freeze())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Bytes::new()),
            Err(error) => {
                self.ended = true;
                Err(StreamError::LastOperationFailed(error.into()))
            }
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.connection.shut_down(Shutdown::Read);
    }
}

/// The sending side.
pub(super) struct Output {
    connection: Arc<Connection>,
}

impl Output {
    pub(super) fn new(connection: Arc<Connection>) -> Output {
        Output { connection }
    }
}

#[async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {
        std::future::poll_fn(|cx| {
            if self.connection.poll_send(cx).is_pending() {
                return Poll::Pending;
            }
            if self.connection.out().closing {
                return Poll::Ready(());
            }
            self.connection.stream.poll_write_ready(cx).map(drop)
        })
        .await;
    }
}

#[async_trait]
impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut out = self.connection.out();
        out.check()?;
        if !out.waiting.is_empty() || bytes.len() > CHUNK {
            return Err(StreamError::trap("the guest wrote more than the stream had permitted"));
        }
        out.waiting = bytes;
        drop(out);
        self.connection.send_at_once();
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.connection.out().check()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.connection.send_at_once();
        let mut out = self.connection.out();
        out.check()?;
        Ok(if out.waiting.is_empty() { CHUNK } else { 0 })
    }

    /// What the guest has written is with the kernel before the stream is gone.
    async fn cancel(&mut self) {
        std::future::poll_fn(|cx| self.connection.poll_send(cx)).await;
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.connection.shut_down(Shutdown::Write);
    }
}
