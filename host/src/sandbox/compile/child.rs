//! The compiling child: what the process does that can be killed.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::frame::{self, Answer, PREFIX, Refusal, Request};
use crate::sandbox::engine::CodeKey;

/// How much lower than its parent's the child's priority is. A hostile component compiles at the cost of nobody.
const NICE: i32 = 10;

/// Files that the child may have open: it needs its three streams, and its threads look at `/proc` and `/sys`.
const OPEN_FILES: u64 = 64;

/// The whole life of a compiling child, between its standard input and output: one request, one answer.
///
/// The command runs this as a hidden subcommand, before it starts any thread or reads any configuration. The process
/// must end with the exit code that this gives, and must not write anything else to its standard output. It limits its
/// own memory and time before it reads the component, and ends at once when its input is closed, which is how the
/// death of its parent shows.
pub fn child_main(input: impl Read + Send + 'static, mut output: impl Write) -> ExitCode {
    match serve(input, &mut output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent reads this and puts it into its error; if it cannot be written, nobody is there to read.
            writeln!(io::stderr(), "compiling child: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn serve(mut input: impl Read + Send + 'static, output: &mut impl Write) -> io::Result<()> {
    let mut prefix = [0; PREFIX];
    input.read_exact(&mut prefix)?;
    let mut head = vec![0; frame::head_length(prefix)?];
    input.read_exact(&mut head)?;
    let request: Request = frame::decode(&head)?;
    limit_this_process(&request)?;

    let engine =
        request.code.compiling_engine().map_err(|error| io::Error::other(format!("{error:#}")))?;
    if CodeKey::of(&engine) != request.key {
        return answer(output, &Answer::Refused(Refusal::OtherVersion), &[]);
    }
    let Some(component) = read_component(&mut input, request.component_bytes)? else {
        return answer(output, &Answer::Refused(Refusal::OutOfMemory), &[]);
    };
    end_with_the_parent(input)?;
    match engine.precompile_component(&component) {
        Ok(code) => answer(output, &Answer::Compiled { code_bytes: code.len() as u64 }, &code),
        Err(error) => answer(output, &Answer::Refused(Refusal::of(&error)), &[]),
    }
}

/// Sets the limits that the kernel keeps for us. None of them can be raised again from inside.
fn limit_this_process(request: &Request) -> io::Result<()> {
    // Private writable memory. Address space as a whole would also count what allocators only reserve, which grows
    // with the number of threads.
    lower(Resource::Data, request.memory, request.memory)?;
    // The signal at the soft limit tells the parent what it was; the hard one a second later cannot be caught.
    lower(Resource::Cpu, request.cpu_seconds, request.cpu_seconds.saturating_add(1))?;
    lower(Resource::Core, 0, 0)?;
    lower(Resource::Fsize, 0, 0)?;
    lower(Resource::Nofile, OPEN_FILES, OPEN_FILES)?;
    // A lower priority is a courtesy; where it cannot be had the limits above still hold.
    let _ = rustix::process::nice(NICE);
    Ok(())
}

/// Lowers a limit, and leaves it where it is lower already.
fn lower(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(maximum);
    setrlimit(resource, Rlimit { current: Some(current.min(most)), maximum: Some(most) })?;
    Ok(())
}

/// The component, or none when there is no room for it.
fn read_component(input: &mut impl Read, length: u64) -> io::Result<Option<Vec<u8>>> {
    let mut component = Vec::new();
    let Ok(room) = usize::try_from(length) else { return Ok(None) };
    if component.try_reserve_exact(room).is_err() {
        return Ok(None);
    }
    component.resize(room, 0);
    input.read_exact(&mut component)?;
    Ok(Some(component))
}

/// Ends this process when its input ends: the parent holds the other side open for as long as it wants an answer.
#[allow(
    clippy::disallowed_methods,
    reason = "this process is a child with no tree of work and one thread to spare"
)]
fn end_with_the_parent(mut input: impl Read + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("parent-watch".into()).stack_size(64 << 10).spawn(move || {
        let mut byte = [0];
        loop {
            match input.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        std::process::abort()
    })?;
    Ok(())
}

fn answer(output: &mut impl Write, answer: &Answer, code: &[u8]) -> io::Result<()> {
    output.write_all(&frame::encode(answer)?)?;
    output.write_all(code)?;
    output.flush()
}
