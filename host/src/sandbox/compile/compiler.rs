//! Compiling a component in a child process that can be killed, or in this one for those who trust it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::code::OwnCode;
use super::frame::{self, Answer, PREFIX, Refusal, Request};
use super::kind::{self, Found};
use super::loader::off_thread;
use crate::sandbox::engine::{CodeKey, CodeSettings};
use crate::work::{Kind, StopKind, Work, spawn_charged};

/// More threads than this make one compilation hardly faster, and memory grows with them.
const MOST_THREADS: usize = 4;

/// As much of the child's standard error is kept for an error message.
const KEPT_DIAGNOSTICS: usize = 4 << 10;

/// How much one compilation may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileLimits {
    /// Bytes of a component.
    pub component_bytes: u64,
    /// Bytes of memory of the child.
    pub memory: u64,
    /// Time from the start of the child to its answer.
    pub time: Duration,
    /// Compilations at one time.
    pub jobs: usize,
}

impl CompileLimits {
    /// The most compilations at one time, where nothing else is said.
    pub const MOST_JOBS: usize = 4;
}

impl Default for CompileLimits {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        CompileLimits {
            component_bytes: 64 << 20,
            memory: 2 << 30,
            time: Duration::from_secs(120),
            jobs: (processors / 2).clamp(1, CompileLimits::MOST_JOBS),
        }
    }
}

/// Makes machine code of components, one or a few at a time.
pub struct Compiler {
    place: Place,
    limits: CompileLimits,
    /// One permit for each compilation at work.
    jobs: Arc<Semaphore>,
    /// Threads of one compilation.
    threads: usize,
}

#[derive(Debug)]
enum Place {
    Child { program: PathBuf, leading_args: Vec<OsString> },
    Here,
}

impl Compiler {
    /// Compiles in a child process: `program` with these arguments must run [`child_main`](super::child_main). It is a
    /// whole path: with the environment and the directory of the child, no other would be found.
    ///
    /// The child gets no environment but a number of threads, no open files but its three streams, a process group
    /// of its own (so that Ctrl-C on a terminal reaches only us, and we decide), and `/` as its directory.
    pub fn child(
        program: impl Into<PathBuf>,
        leading_args: Vec<OsString>,
        limits: CompileLimits,
    ) -> Compiler {
        Compiler::new(Place::Child { program: program.into(), leading_args }, limits)
    }

    /// Compiles in this process, for an embedder who trusts every component that it loads.
    ///
    /// A compilation cannot be interrupted: nothing holds it to [`CompileLimits::memory`] or
    /// [`CompileLimits::time`], and it goes on when nobody waits for it any more. A hostile component can hold
    /// processors for minutes and take all memory.
    pub fn in_process(limits: CompileLimits) -> Compiler {
        Compiler::new(Place::Here, limits)
    }

    fn new(place: Place, limits: CompileLimits) -> Compiler {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = Arc::new(Semaphore::new(limits.jobs.clamp(1, Semaphore::MAX_PERMITS)));
        Compiler { place, limits, jobs, threads: processors.min(MOST_THREADS) }
    }

    /// What one compilation may use.
    pub fn limits(&self) -> &CompileLimits {
        &self.limits
    }

    /// Refuses what is too large or plainly no component. Costs next to nothing.
    pub(super) fn check(&self, component: &[u8]) -> Result<(), CompileError> {
        let bytes = component.len() as u64;
        if bytes > self.limits.component_bytes {
            return Err(CompileError::TooLarge { bytes, limit: self.limits.component_bytes });
        }
        kind::check(component).map_err(|found| CompileError::NotAComponent { found })
    }

    /// Compiles one component, when its turn has come. It is work below `owner` until the child has been reaped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has the child killed and reaped. Compiling in this process goes on.
    pub(super) async fn compile(
        self: &Arc<Self>,
        code: CodeSettings,
        key: CodeKey,
        component: &Arc<[u8]>,
        owner: &Work,
    ) -> Result<OwnCode, CompileError> {
        self.check(component)?;
        let job =
            Arc::clone(&self.jobs).acquire_owned().await.map_err(|_| CompileError::Closing)?;
        let label = format!("a component of {} bytes", component.len());
        let work = owner.open(Kind::Compilation, label).map_err(|_| CompileError::Closing)?;
        let (this, component) = (Arc::clone(self), Arc::clone(component));
        match &self.place {
            Place::Child { program, leading_args } => {
                let (program, arguments) = (program.clone(), leading_args.clone());
                let (interest, nobody) = oneshot::channel::<()>();
                let signal = work.signal();
                let compiling = async move {
                    let mut command = Command::new(&program);
                    command.args(arguments);
                    let ends = async move {
                        tokio::select! {
                            _ = nobody => {}
                            _ = signal.raised(StopKind::Hard) => {}
                        }
                    };
                    let code =
                        this.compile_in(command, &program, code, key, &component, ends).await;
                    drop(job);
                    code
                };
                let compiled = spawn_charged(&Handle::current(), work, compiling).await;
                drop(interest);
                compiled.map_err(|_| CompileError::Closing)?
            }
            Place::Here => {
                let compiled = off_thread(move || {
                    let compiled = code
                        .compiling_engine()
                        .and_then(|engine| engine.precompile_component(&component));
                    drop((job, work));
                    compiled
                });
                let compiled = compiled.await.ok_or(CompileError::Closing)?;
                compiled
                    .map(OwnCode::from_compiler)
                    .map_err(|error| self.refused(Refusal::of(&error)))
            }
        }
    }

    async fn compile_in(
        &self,
        mut command: Command,
        program: &Path,
        code: CodeSettings,
        key: CodeKey,
        component: &[u8],
        ends: impl Future<Output = ()>,
    ) -> Result<OwnCode, CompileError> {
        let spawn_error =
            |source| CompileError::Spawn { program: program.to_owned(), source: Arc::new(source) };
        let head = frame::encode(&Request {
            code,
            key,
            memory: self.limits.memory,
            cpu_seconds: self
                .limits
                .time
                .as_secs()
                .saturating_add(1)
                .saturating_mul(self.threads as u64),
            component_bytes: component.len() as u64,
        })
        .map_err(spawn_error)?;
        let mut child = command
            .env_clear()
            .env("RAYON_NUM_THREADS", self.threads.to_string())
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(spawn_error)?;
        let (Some(mut input), Some(mut output), Some(mut errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(spawn_error(io::Error::other("the child has no standard streams")));
        };

        // The child ends itself when its input is closed, so `input` lives until it has ended.
        let mut diagnostics = Vec::new();
        let conversation = async {
            let talk = async {
                // A child that refuses early stops reading; what it then says counts, not that it did not listen.
                send(&mut input, &head, component).await.ok();
                let answer = receive(&mut output, self.limits.memory).await;
                // A program that says something else may wait for us to say more. One that says nothing has ended, and
                // its status will tell more than that.
                if answer.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::UnexpectedEof)
                {
                    kill(&child);
                }
                answer
            };
            let (answer, ()) = tokio::join!(talk, keep_start(&mut errors, &mut diagnostics));
            (answer, child.wait().await)
        };
        // Large buffers and three streams: it lives on the heap, not in everybody's future.
        let ended = tokio::time::timeout(self.limits.time, Box::pin(conversation));
        let ended = tokio::select! {
            biased;
            ended = ended => ended.map_err(|_| CompileError::TimedOut { after: self.limits.time }),
            () = ends => Err(CompileError::Stopped),
        };
        let (answer, status) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                end(&mut child).await;
                return Err(error);
            }
        };
        match (answer, status) {
            (Ok((Answer::Compiled { .. }, code)), _) => Ok(OwnCode::from_compiler(code)),
            (Ok((Answer::Refused(refusal), _)), _) => Err(self.refused(refusal)),
            (Err(unheard), Ok(status)) => Err(self.died(status, &diagnostics, &unheard)),
            (Err(_), Err(source)) => Err(spawn_error(source)),
        }
    }

    fn refused(&self, refusal: Refusal) -> CompileError {
        match refusal {
            Refusal::Invalid { offset, message } => CompileError::Invalid { offset, message },
            Refusal::Unsupported { message } => CompileError::Unsupported { message },
            Refusal::OutOfMemory => CompileError::OutOfMemory { limit: self.limits.memory },
            Refusal::OtherVersion => CompileError::OtherVersion,
        }
    }

    /// Why a child ended without an answer.
    fn died(&self, status: ExitStatus, diagnostics: &[u8], unheard: &io::Error) -> CompileError {
        let mut diagnostics = String::from_utf8_lossy(diagnostics).trim().to_owned();
        if status.signal() == Some(Signal::XCPU.as_raw()) {
            return CompileError::TimedOut { after: self.limits.time };
        }
        // What the standard library says before it aborts for want of memory.
        if diagnostics.contains("memory allocation of") {
            return CompileError::OutOfMemory { limit: self.limits.memory };
        }
        if diagnostics.is_empty() {
            diagnostics = unheard.to_string();
        }
        CompileError::Crashed { signal: status.signal(), code: status.code(), diagnostics }
    }
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler")
            .field("place", &self.place)
            .field("limits", &self.limits)
            .field("idle_jobs", &self.jobs.available_permits())
            .finish_non_exhaustive()
    }
}

async fn send(
    input: &mut (impl AsyncWrite + Unpin),
    head: &[u8],
    component: &[u8],
) -> io::Result<()> {
    input.write_all(head).await?;
    input.write_all(component).await?;
    input.flush().await
}

/// The answer, with the code if it is one. Code of more than `most` bytes cannot come from a child that keeps its
/// memory limit.
async fn receive(
    output: &mut (impl AsyncRead + Unpin),
    most: u64,
) -> io::Result<(Answer, Vec<u8>)> {
    let mut prefix = [0; PREFIX];
    output.read_exact(&mut prefix).await?;
    let mut head = vec![0; frame::head_length(prefix)?];
    output.read_exact(&mut head).await?;
    let answer: Answer = frame::decode(&head)?;
    let Answer::Compiled { code_bytes } = answer else { return Ok((answer, Vec::new())) };
    let room = usize::try_from(code_bytes).ok().filter(|_| code_bytes <= most);
    let room = room
        .ok_or_else(|| io::Error::other(format!("the child offers {code_bytes} bytes of code")))?;
    let mut code = Vec::new();
    code.try_reserve_exact(room).map_err(io::Error::other)?;
    code.resize(room, 0);
    output.read_exact(&mut code).await?;
    Ok((answer, code))
}

/// Reads to the end and keeps the start, so that a child that writes much is neither blocked nor remembered.
async fn keep_start(errors: &mut (impl AsyncRead + Unpin), kept: &mut Vec<u8>) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = errors.read(&mut buffer).await {
        let room = KEPT_DIAGNOSTICS.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
}

/// Kills a child and waits until it is reaped.
async fn end(child: &mut Child) {
    kill(child);
    // The one error is that there is nothing to wait for.
    child.wait().await.ok();
}

/// Kills a child, and with it whatever it may have started: it leads a process group of its own.
fn kill(child: &Child) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The one error is that it has ended by itself.
        kill_process_group(pid, Signal::KILL).ok();
    }
}

/// A component could not be compiled.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CompileError {
    /// The component is larger than the limit.
    #[error(
        "the component has {bytes} bytes, the limit is {limit}: build it for size, or raise the limit on components"
    )]
    TooLarge {
        /// Bytes of the component.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The bytes are something else than a component.
    #[error("this is not a component; {found}")]
    NotAComponent {
        /// What they are.
        found: Found,
    },
    /// The component is malformed.
    #[error("the component is not valid{}: {message}; build or download it again", at(.offset))]
    Invalid {
        /// Where in the bytes.
        offset: Option<u64>,
        /// What the compiler says.
        message: String,
    },
    /// The component needs a WebAssembly proposal that this host does not run.
    #[error(
        "the component needs something that this host does not run: {message}; build it without that"
    )]
    Unsupported {
        /// What the compiler says.
        message: String,
    },
    /// Compiling took too long.
    #[error(
        "compiling the component took more than {after:?} and was ended: very large functions are the usual reason; \
         build it for size, or raise the time limit if you trust it"
    )]
    TimedOut {
        /// The limit.
        after: Duration,
    },
    /// Compiling took too much memory.
    #[error(
        "compiling the component took more than {limit} bytes of memory and was ended: very large functions are the \
         usual reason; build it for size, or raise the memory limit if you trust it"
    )]
    OutOfMemory {
        /// The limit.
        limit: u64,
    },
    /// The child process ended without an answer.
    #[error(
        "the process that compiled the component ended without an answer ({}): {diagnostics}; this is a fault of the \
         compiler or of the machine, not of the caller: report it together with the component",
        ending(.signal, .code)
    )]
    Crashed {
        /// The signal that ended it.
        signal: Option<i32>,
        /// Its exit code.
        code: Option<i32>,
        /// The start of what it wrote to its standard error.
        diagnostics: String,
    },
    /// The child process could not be started.
    #[error("no process to compile in: {} cannot be started: {source}; check that it is there and executable", .program.display())]
    Spawn {
        /// What was started.
        program: PathBuf,
        /// Why it was not.
        source: Arc<io::Error>,
    },
    /// The program on disk is another version than the one that runs.
    #[error(
        "the program that compiles is another version than this one: it was replaced while this ran; restart"
    )]
    OtherVersion,
    /// Whoever it was compiled for was stopped.
    #[error("compiling the component was stopped")]
    Stopped,
    /// The runtime is being shut down, or takes no new work.
    #[error("the host is shutting down; nothing is compiled any more")]
    Closing,
}

fn at(offset: &Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at offset {offset:#x}"))
}

fn ending(signal: &Option<i32>, code: &Option<i32>) -> String {
    match (signal, code) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "unknown status".to_owned(),
    }
}
