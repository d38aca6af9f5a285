//! Reading and writing files as streams. What the kernel's cache can give is given at once, the rest by the gate's pool.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use wasmtime_wasi_io::async_trait;
use wasmtime_wasi_io::poll::Pollable;
use wasmtime_wasi_io::streams::{InputStream, OutputStream, StreamError, StreamResult};

use super::super::gate::{Gate, Job, start_in_pool};
use super::descriptor::OpenFile;
use super::quick;

/// Bytes of one read and of one write, at most.
pub(super) const CHUNK: usize = 64 << 10;

/// Bytes that were read.
pub(super) struct Chunk {
    pub(super) bytes: Bytes,
    /// Whether the file ended after them when they were read.
    pub(super) end: bool,
}

/// Reads up to `size` bytes, until there are so many or the file ends. Blocks.
pub(super) fn read(file: &std::fs::File, offset: u64, size: usize) -> io::Result<Chunk> {
    read_with(size, |buffer, done| file.read_at(buffer, offset.saturating_add(done as u64)))
}

/// Reads what can be had without waiting; none when the first byte cannot.
pub(super) fn read_at_once(open: &OpenFile, offset: u64, size: usize) -> Option<io::Result<Chunk>> {
    let mut waits = false;
    let chunk = read_with(size, |buffer, done| {
        quick::read(open, buffer, offset.saturating_add(done as u64)).unwrap_or_else(|| {
            waits = true;
            Ok(0)
        })
    });
    match chunk {
        Ok(chunk) if waits && chunk.bytes.is_empty() => None,
        Ok(chunk) => Some(Ok(Chunk { end: chunk.end && !waits, ..chunk })),
        Err(error) => Some(Err(error)),
    }
}

fn read_with(
    size: usize,
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<Chunk> {
    let mut buffer = BytesMut::zeroed(size.min(CHUNK));
    let mut done = 0;
    let mut end = false;
    while done < buffer.len() && !end {
        match read(&mut buffer[done..], done) {
            Ok(0) => end = true,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What was read before is delivered; the error comes back when the guest reads on.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(done);
    Ok(Chunk { bytes: buffer.freeze(), end })
}

/// A file that is read from front to back.
pub(super) struct FileInput {
    open: Arc<OpenFile>,
    gate: Arc<dyn Gate>,
    /// Where the next read begins; moves on when bytes are fetched.
    position: u64,
    state: Reading,
}

enum Reading {
    /// Nothing was asked for.
    Idle,
    /// The pool is reading.
    Busy(Job<Chunk>),
    /// Bytes are here for the guest.
    Here(Chunk),
    /// The error is here for the guest.
    Failed(io::Error),
    /// The file has ended, or the error was told.
    Ended,
}

impl FileInput {
    pub(super) fn new(open: Arc<OpenFile>, gate: Arc<dyn Gate>, position: u64) -> FileInput {
        FileInput { open, gate, position, state: Reading::Idle }
    }

    fn arrived(&mut self, result: io::Result<Chunk>) {
        self.state = match result {
            Ok(chunk) if chunk.bytes.is_empty() => Reading::Ended,
            Ok(chunk) => {
                self.position = self.position.saturating_add(chunk.bytes.len() as u64);
                Reading::Here(chunk)
            }
            Err(error) => Reading::Failed(error),
        };
    }
}

#[async_trait]
impl Pollable for FileInput {
    async fn ready(&mut self) {
        if let Reading::Busy(job) = &mut self.state {
            let result = job.finish().await;
            self.arrived(result);
        }
    }
}

#[async_trait]
impl InputStream for FileInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if size == 0 {
            return Ok(Bytes::new());
        }
        if let Reading::Idle = self.state {
            let (open, position) = (self.open.clone(), self.position);
            match read_at_once(&open, position, size) {
                Some(result) => self.arrived(result),
                None => match start_in_pool(&self.gate, "reads a file", move || {
                    read(&open.file, position, size)
                }) {
                    Ok(job) => self.state = Reading::Busy(job),
                    Err(error) => self.state = Reading::Failed(error),
                },
            }
        }
        match std::mem::replace(&mut self.state, Reading::Ended) {
            Reading::Here(mut chunk) => {
                let bytes = chunk.bytes.split_to(size.min(chunk.bytes.len()));
                self.state = match (chunk.bytes.is_empty(), chunk.end) {
                    (false, _) => Reading::Here(chunk),
                    (true, false) => Reading::Idle,
                    (true, true) => Reading::Ended,
                };
                Ok(bytes)
            }
            Reading::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
            Reading::Ended => Err(StreamError::Closed),
            waiting @ (Reading::Idle | Reading::Busy(_)) => {
                self.state = waiting;
                Ok(Bytes::new())
            }
        }
    }
}

/// Where a stream writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// At this offset, which moves on.
    At(u64),
    /// Always at the end of the file.
    End,
}

/// A file that is written from some place on.
pub(super) struct FileOutput {
    open: Arc<OpenFile>,
    gate: Arc<dyn Gate>,
    place: Place,
    state: Writing,
}

enum Writing {
    /// The next bytes may come.
    Ready,
    /// The pool is writing.
    Busy(Job<()>),
    /// The error is here for the guest.
    Failed(io::Error),
    /// The error was told.
    Ended,
}

impl FileOutput {
    pub(super) fn new(open: Arc<OpenFile>, gate: Arc<dyn Gate>, place: Place) -> FileOutput {
        FileOutput { open, gate, place, state: Writing::Ready }
    }

    /// Gives the error of the last write, once.
    fn check(&mut self) -> StreamResult<()> {
        match std::mem::replace(&mut self.state, Writing::Ended) {
            Writing::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
            Writing::Ended => Err(StreamError::Closed),
            working @ (Writing::Ready | Writing::Busy(_)) => {
                self.state = working;
                Ok(())
            }
        }
    }
}

/// Writes all of it. Blocks.
pub(super) fn write(file: &std::fs::File, bytes: &[u8], place: Place) -> io::Result<()> {
    match place {
        Place::At(offset) => file.write_all_at(bytes, offset),
        Place::End => {
            let mut done = 0;
            while done < bytes.len() {
                match append(file, &bytes[done..]) {
                    Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                    Ok(more) => done += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }
    }
}

#[cfg(target_os = "linux")]
fn append(file: &std::fs::File, bytes: &[u8]) -> io::Result<usize> {
    use rustix::io::{ReadWriteFlags, pwritev2};
    Ok(pwritev2(file, &[io::IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND)?)
}

/// Without the system call for it, the end can move between the two steps when another process appends too.
#[cfg(not(target_os = "linux"))]
fn append(file: &std::fs::File, bytes: &[u8]) -> io::Result<usize> {
    file.write_at(bytes, file.metadata()?.len())
}

#[async_trait]
impl Pollable for FileOutput {
    async fn ready(&mut self) {
        if let Writing::Busy(job) = &mut self.state {
            self.state = match job.finish().await {
                Ok(()) => Writing::Ready,
                Err(error) => Writing::Failed(error),
            };
        }
    }
}

#[async_trait]
impl OutputStream for FileOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.check()?;
        if matches!(self.state, Writing::Busy(_)) || bytes.len() > CHUNK {
            return Err(StreamError::trap("the guest wrote more than the stream had permitted"));
        }
        let (open, place) = (self.open.clone(), self.place);
        if let Place::At(offset) = &mut self.place {
            *offset = offset.saturating_add(bytes.len() as u64);
        }
        self.state = match start_in_pool(&self.gate, "writes a file", move || {
            write(&open.file, &bytes, place)
        }) {
            Ok(job) => Writing::Busy(job),
            Err(error) => Writing::Failed(error),
        };
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.check()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.check()?;
        Ok(if matches!(self.state, Writing::Busy(_)) { 0 } else { CHUNK })
    }

    /// What the guest has written is on its way before the stream is gone.
    async fn cancel(&mut self) {
        self.ready().await;
    }
}
