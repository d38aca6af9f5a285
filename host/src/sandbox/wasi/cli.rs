//! The command-line interfaces: only the granted environment, no arguments, no input, and output that goes to the log.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use wasmtime::component::Resource;
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p2::bindings::cli::{
    environment, exit, stderr, stdin, stdout, terminal_input, terminal_output, terminal_stderr,
    terminal_stdin, terminal_stdout,
};
use wasmtime_wasi::p2::pipe::ClosedInputStream;
use wasmtime_wasi_io::async_trait;
use wasmtime_wasi_io::poll::Pollable;
use wasmtime_wasi_io::streams::{
    DynInputStream, DynOutputStream, OutputStream, StreamError, StreamResult,
};

use super::gate::Gate;
use super::state::WasiState;

/// Bytes that may be written at once.
const PERMIT: usize = 64 << 10;
/// The longest line that is handed over in one piece.
const LINE: usize = 8 << 10;

impl environment::Host for WasiState {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        let environment = &self.reach.environment;
        self.gate.charge(environment.iter().map(|(name, value)| name.len() + value.len()).sum())?;
        Ok(environment.clone())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }
}

impl exit::Host for WasiState {
    fn exit(&mut self, status: Result<(), ()>) -> wasmtime::Result<()> {
        Err(I32Exit(i32::from(status.is_err())).into())
    }

    fn exit_with_code(&mut self, code: u8) -> wasmtime::Result<()> {
        Err(I32Exit(i32::from(code)).into())
    }
}

impl stdin::Host for WasiState {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<DynInputStream>> {
        let stream: DynInputStream = Box::new(ClosedInputStream);
        Ok(self.table.push(stream)?)
    }
}

impl stdout::Host for WasiState {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.output_stream(0, "stdout")
    }
}

impl stderr::Host for WasiState {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.output_stream(1, "stderr")
    }
}

impl WasiState {
    fn output_stream(
        &mut self,
        which: usize,
        name: &'static str,
    ) -> wasmtime::Result<Resource<DynOutputStream>> {
        let gate = &self.gate;
        let output =
            self.output[which].get_or_insert_with(|| Output::new(name, gate.clone())).clone();
        let stream: DynOutputStream = Box::new(output);
        Ok(self.table.push(stream)?)
    }
}

impl terminal_stdin::Host for WasiState {
    fn get_terminal_stdin(
        &mut self,
    ) -> wasmtime::Result<Option<Resource<terminal_stdin::TerminalInput>>> {
        Ok(None)
    }
}

impl terminal_stdout::Host for WasiState {
    fn get_terminal_stdout(
        &mut self,
    ) -> wasmtime::Result<Option<Resource<terminal_stdout::TerminalOutput>>> {
        Ok(None)
    }
}

impl terminal_stderr::Host for WasiState {
    fn get_terminal_stderr(
        &mut self,
    ) -> wasmtime::Result<Option<Resource<terminal_stderr::TerminalOutput>>> {
        Ok(None)
    }
}

impl terminal_input::Host for WasiState {}

impl terminal_input::HostTerminalInput for WasiState {
    fn drop(&mut self, terminal: Resource<terminal_input::TerminalInput>) -> wasmtime::Result<()> {
        self.table.delete(terminal)?;
        Ok(())
    }
}

impl terminal_output::Host for WasiState {}

impl terminal_output::HostTerminalOutput for WasiState {
    fn drop(
        &mut self,
        terminal: Resource<terminal_output::TerminalOutput>,
    ) -> wasmtime::Result<()> {
        self.table.delete(terminal)?;
        Ok(())
    }
}

/// Standard output or error. Its clones, one for each stream that the guest asks for, share one line.
///
/// The start of a line is handed over by `flush` when the run ends in order. When a run is cut it is dropped: whoever drops the store
/// then is the thread that stops runs, which must not wait for, nor panic in, whoever takes the log lines.
#[derive(Clone)]
pub(super) struct Output(Arc<Mutex<Lines>>);

struct Lines {
    name: &'static str,
    gate: Arc<dyn Gate>,
    /// The line that has not ended yet; shorter than [`LINE`].
    open: Vec<u8>,
}

impl Output {
    fn new(name: &'static str, gate: Arc<dyn Gate>) -> Output {
        Output(Arc::new(Mutex::new(Lines { name, gate, open: Vec::new() })))
    }

    /// Hands over the line that has not ended yet. (A guest's own flush does not: it would tear lines apart.)
    pub(super) fn flush(&mut self) -> wasmtime::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).end_line(b"")
    }
}

impl Lines {
    fn take(&mut self, mut text: &[u8]) -> wasmtime::Result<()> {
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            self.fill(&text[..end])?;
            // An empty line is a line: it is not lost.
            let rest = std::mem::take(&mut self.open);
            self.gate.print(self.name, &rest)?;
            text = &text[end + 1..];
        }
        self.fill(text)
    }

    fn fill(&mut self, mut text: &[u8]) -> wasmtime::Result<()> {
        while self.open.len() + text.len() >= LINE {
            let (piece, rest) = text.split_at(LINE - self.open.len());
            self.end_line(piece)?;
            text = rest;
        }
        self.open.extend_from_slice(text);
        Ok(())
    }

    fn end_line(&mut self, last: &[u8]) -> wasmtime::Result<()> {
        let mut line = std::mem::take(&mut self.open);
        line.extend_from_slice(last);
        if line.is_empty() { Ok(()) } else { self.gate.print(self.name, &line) }
    }
}

#[async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(&bytes)
            .map_err(StreamError::Trap)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestGate;
    use super::*;

    fn write(output: &mut Output, text: &[u8]) {
        output.write(Bytes::copy_from_slice(text)).unwrap();
    }

    #[test]
    fn output_is_handed_over_line_by_line() {
        let gate = TestGate::new();
        let mut output = Output::new("stdout", gate.clone());
        let mut other = output.clone();
        write(&mut output, b"one\ntw");
        write(&mut other, b"o\n\nthree");
        assert_eq!(gate.printed(), ["stdout: one", "stdout: two", "stdout: "]);
        output.flush().unwrap();
        output.flush().unwrap();
        assert_eq!(gate.printed().len(), 4);
        assert_eq!(gate.printed()[3], "stdout: three");
    }

    #[test]
    fn dropping_the_output_calls_nobody() {
        let gate = TestGate::new();
        let mut output = Output::new("stdout", gate.clone());
        let other = output.clone();
        write(&mut output, b"whole\nhalf");
        drop(output);
        drop(other);
        assert_eq!(gate.printed(), ["stdout: whole"]);
    }

    #[test]
    fn an_overlong_line_comes_in_pieces() {
        let gate = TestGate::new();
        let mut output = Output::new("stderr", gate.clone());
        write(&mut output, &vec![b'x'; 3 * LINE + 10]);
        assert_eq!(gate.printed().len(), 3);
        write(&mut output, b"\n");
        let lengths: Vec<usize> =
            gate.printed().iter().map(|line| line.len() - "stderr: ".len()).collect();
        assert_eq!(lengths, [LINE, LINE, LINE, 10]);
    }

    #[test]
    fn a_used_up_log_ends_the_guest() {
        let gate = TestGate::new();
        gate.allow_print(5);
        let mut output = Output::new("stdout", gate.clone());
        write(&mut output, b"12345\n");
        assert!(matches!(output.write(Bytes::from_static(b"6\n")), Err(StreamError::Trap(_))));
    }
}
