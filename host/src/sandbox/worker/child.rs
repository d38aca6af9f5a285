//! The worker: what the process does that has one run in it.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use futures::future::ready;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Handle;

use super::frame::{self, Beginning, Ended, Ending, Errand, FromWorker, Sayable, ToWorker, decode};
use super::remote::{AskNames, Line, Out, Remote};
use crate::ids::WorkId;
use crate::sandbox::compile::{CompileLimits, Compiler, Loader, load_from_parent};
use crate::sandbox::engine::Engines;
use crate::sandbox::instance::{Run, Start};
use crate::sandbox::limits::LimitKind;
use crate::sandbox::meter::Meter;
use crate::sandbox::outcome::{Outcome, Report};
use crate::sandbox::reach::{Reach, Share};
use crate::sandbox::sandbox::{Sandbox, SandboxSettings};
use crate::sandbox::upward::{AgentHost, Task, ToolHost};
use crate::work::{Kind, Stop, StopKind, Tree};

/// The longest frame that is taken. The host is trusted; this only tells a host from something else.
const LONGEST: usize = 1 << 30;

/// How often the host is told what the guest does, where that has changed.
const GLANCE: Duration = Duration::from_millis(20);

/// Files that the process may have open beside those of its guest: streams, timers, folders of the system.
const OWN_FILES: u64 = 64;

/// Calls that hold a thread, at one time. A run has no more of them than this.
const BLOCKING_CALLS: usize = 8;

/// The whole life of a worker, between its standard input and output: one run.
///
/// The command runs this as a hidden subcommand, before it starts any thread or reads any configuration. The process must
/// end with the exit code that this gives, and must not write anything else to its standard output. It limits itself
/// before it loads any code, and ends at once when its input is closed, which is how the death of its host shows.
pub fn worker_main(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> ExitCode {
    match serve(input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The host reads this into its log; if it cannot be written, nobody is there to read.
            writeln!(io::stderr(), "worker: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn serve(
    mut input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> io::Result<()> {
    let first = frame::read_now(&mut input, LONGEST)?;
    let first = first.ok_or_else(|| io::Error::other("nobody said what to do"))?;
    let ToWorker::Start(beginning) = decode(&first)? else {
        return Err(io::Error::other("the first frame is not `start`"));
    };
    limit_this_process(&beginning)?;
    let mut code = Vec::new();
    if (&mut input).take(beginning.code_bytes).read_to_end(&mut code)? as u64
        != beginning.code_bytes
    {
        return Err(io::Error::other("the code was cut short"));
    }
    let (to, from) = mpsc::channel();
    let writer = write_on(output, from)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("worker-blocking")
        .build()?;
    let ran = runtime.block_on(run(*beginning, code, input, to));
    // A call that hangs on a disk ends with the process.
    runtime.shutdown_background();
    ran?;
    writer.join().map_err(|_| io::Error::other("the writer panicked"))?
}

/// Sets the limits that the kernel keeps for us. None of them can be raised again from inside.
fn limit_this_process(beginning: &Beginning) -> io::Result<()> {
    // Private writable memory. Address space as a whole would also count what is only reserved: 4 GiB for a memory.
    lower(Resource::Data, beginning.memory, beginning.memory)?;
    if let Some(seconds) = beginning.processor_seconds {
        // The signal at the soft limit tells the host what it was; the hard one a second later cannot be caught.
        lower(Resource::Cpu, seconds, seconds.saturating_add(1))?;
    }
    lower(Resource::Core, 0, 0)?;
    let files = beginning.limits.open_files.saturating_mul(2).saturating_add(OWN_FILES);
    lower(Resource::Nofile, files, files)
}

/// Lowers a limit, and leaves it where it is lower already.
fn lower(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(maximum);
    setrlimit(resource, Rlimit { current: Some(current.min(most)), maximum: Some(most) })?;
    Ok(())
}

async fn run(
    beginning: Beginning,
    code: Vec<u8>,
    input: impl Read + Send + 'static,
    to: mpsc::Sender<Out>,
) -> io::Result<()> {
    let meter = Arc::new(Meter::told_of_tokens(beginning.limits.clone()));
    let (tree, root) = Tree::new("worker");
    let kind = match &beginning.errand {
        Errand::Run(_) => Kind::Turn,
        Errand::Describe | Errand::Call { .. } => Kind::ToolCall,
    };
    let work = root.open(kind, "run").map_err(io::Error::other)?;
    if let Some(stop) = beginning.stop.clone() {
        work.stop(&stop.into_stop());
    }
    let line = Line::new(to, Arc::clone(&meter), work.signal());
    hear_on(input, line.clone(), tree.clone(), work.id())?;

    let engines = Engines::for_one(beginning.code).map_err(io::Error::other)?;
    let metering = beginning.code.metering;
    if engines.code_key(metering).map_err(io::Error::other)? != beginning.key {
        let words = "the program of the workers is another version than this one: it was replaced while this ran; restart";
        return end(&line, &meter, Vec::new(), Ending::NotStarted(words.to_owned()));
    }
    let unlinked = |error: &dyn std::fmt::Display| io::Error::other(format!("{error:#}"));
    let engine = engines.get(metering).map_err(io::Error::other)?;
    let component = load_from_parent(code, engine).map_err(|error| unlinked(&error))?;
    let loader = Loader::new(engines, Compiler::in_process(CompileLimits::default()), None);
    let settings = SandboxSettings {
        threads: 1,
        blocking_calls: BLOCKING_CALLS,
        names: beginning.asks_for_names.then(|| Arc::new(AskNames(line.clone())) as _),
        roots: beginning.roots,
        workers: None,
    };
    let sandbox =
        Sandbox::new(&tree, Handle::current(), loader.engines().clone(), loader, &settings)
            .map_err(io::Error::other)?;
    let reach = Arc::new(Reach {
        directories: beginning.directories,
        network: beginning.network,
        environment: beginning.environment,
        share: Share::default(),
    });
    let remote = |task: Task| {
        Arc::new(Remote {
            line: line.clone(),
            work: work.share(),
            task,
            configuration: beginning.configuration.clone(),
        })
    };
    let limits = beginning.limits.clone();
    // From here on the guest may execute something.
    line.say(&FromWorker::Started);
    match beginning.errand {
        Errand::Run(task) => {
            let code = sandbox.link_agent(&component, metering).map_err(io::Error::other)?;
            let host = remote(task) as Arc<dyn AgentHost>;
            let start = Start { work: work.share(), limits, reach, host };
            drop(work);
            see(&line, &meter, sandbox.run_agent_on(Arc::clone(&meter), &code, start)).await
        }
        Errand::Describe => {
            let code = sandbox.link_tool(&component, metering).map_err(io::Error::other)?;
            let host = remote(Task::default()) as Arc<dyn ToolHost>;
            let start = Start { work: work.share(), limits, reach, host };
            drop(work);
            see(&line, &meter, sandbox.describe_tools_on(Arc::clone(&meter), &code, start)).await
        }
        Errand::Call { name, arguments } => {
            let code = sandbox.link_tool(&component, metering).map_err(io::Error::other)?;
            let host = remote(Task::default()) as Arc<dyn ToolHost>;
            let start = Start { work: work.share(), limits, reach, host };
            drop(work);
            let arguments = ready(Ok(arguments));
            let name = name.into();
            let run = sandbox.call_tool_on(Arc::clone(&meter), &code, start, name, arguments);
            see(&line, &meter, run).await
        }
    }
}

/// Sees a run to its end, and tells the host what it does meanwhile.
async fn see<T: Sayable>(line: &Line, meter: &Meter, mut run: Run<T>) -> io::Result<()> {
    let mut glance = tokio::time::interval(GLANCE);
    glance.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut seen = None;
    let report = loop {
        tokio::select! {
            biased;
            report = run.wait() => break report,
            _ = glance.tick() => {
                let now = (meter.doing_now(), meter.tally());
                if seen != Some(now) {
                    line.say(&FromWorker::Doing { what: now.0.to_owned(), used: now.1 });
                    seen = Some(now);
                }
            }
        }
    };
    let Report { outcome, reached, .. } = report;
    end(line, meter, reached.iter().collect(), ending(outcome))
}

fn ending<T: Sayable>(outcome: Outcome<T>) -> Ending {
    match outcome {
        Outcome::Completed(value) => Ending::Completed(value.into_said()),
        Outcome::Failed(failure) => Ending::Failed(failure),
        // After a hard stop nobody listens to more than that.
        Outcome::Interrupted { stop, said } => {
            let said = said.filter(|_| stop.kind() == StopKind::Soft);
            Ending::Interrupted(said.map(Sayable::into_said))
        }
        Outcome::Limit(kind) => Ending::Limit(kind),
        Outcome::Trapped(trapped) => Ending::Trapped(trapped),
        Outcome::NoPlace => Ending::NoPlace,
        Outcome::NotStarted(words) => Ending::NotStarted(words),
        Outcome::HostPanicked(words) | Outcome::Unknown(words) => Ending::Panicked(words),
    }
}

fn end(line: &Line, meter: &Meter, reached: Vec<LimitKind>, ending: Ending) -> io::Result<()> {
    line.end(&FromWorker::Ended(Box::new(Ended { ending, used: meter.tally(), reached })))
}

/// Writes what is said, on a thread of its own, until the last thing has been said.
#[allow(
    clippy::disallowed_methods,
    reason = "a thread of this process alone, which ends with the one run that is in it"
)]
fn write_on(
    mut output: impl Write + Send + 'static,
    from: mpsc::Receiver<Out>,
) -> io::Result<thread::JoinHandle<io::Result<()>>> {
    thread::Builder::new().name("worker-writer".into()).stack_size(256 << 10).spawn(move || {
        while let Ok(out) = from.recv() {
            let (frame, last) = match out {
                Out::Frame(frame) => (frame, false),
                Out::Last(frame) => (frame, true),
            };
            output.write_all(&frame)?;
            output.flush()?;
            if last {
                break;
            }
        }
        Ok(())
    })
}

/// Hears what the host says, on a thread of its own: no guest can keep it from that. Ends this process when the host is
/// gone.
#[allow(
    clippy::disallowed_methods,
    reason = "a thread of this process alone, which ends with the one run that is in it"
)]
fn hear_on(
    mut input: impl Read + Send + 'static,
    line: Line,
    tree: Tree,
    run: WorkId,
) -> io::Result<()> {
    thread::Builder::new().name("worker-listener".into()).spawn(move || {
        loop {
            let said = match frame::read_now(&mut input, LONGEST) {
                Ok(Some(frame)) => decode(&frame),
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            match said {
                Ok(ToWorker::Stop(halt)) => {
                    let stop: Stop = halt.into_stop();
                    // It may have ended by itself.
                    tree.stop(run, &stop).ok();
                    if stop.kind() == StopKind::Hard {
                        line.close();
                    }
                }
                Ok(ToWorker::Answer(answered)) => line.hear(*answered),
                Ok(ToWorker::Start(_)) | Err(_) => break,
            }
        }
        std::process::abort()
    })?;
    Ok(())
}
