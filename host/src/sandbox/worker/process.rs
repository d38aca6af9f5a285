//! The process of a worker: started, talked to, killed when it must be, and reaped in every case.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::maybe_done;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::fate::Fate;
use super::frame::{self, FromWorker, Halt, ToWorker};
use super::settings::WorkerSettings;
use crate::sandbox::meter::Meter;
use crate::work::{StopKind, StopSignal, Work, spawn_charged};

/// Bytes of a worker's standard error that go to the log. What comes after them is read and forgotten.
const MOST_ERRORS: usize = 64 << 10;

/// Bytes of one line of them.
const LONGEST_LINE: u64 = 1 << 10;

/// Bytes of its last lines that are kept for the words about its end, before another one is added.
const KEPT_LINES: usize = 1 << 10;

/// How long its last lines are waited for when it has ended.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// The longest frame that is looked at once nobody talks to the worker any more: the end of a run without what it gave.
const LAST_WORD: usize = 64 << 10;

/// What a process is started with.
pub(super) struct Plan {
    pub(super) name: Arc<str>,
    pub(super) settings: WorkerSettings,
    /// The first frame.
    pub(super) first: Vec<u8>,
    /// A soft stop stands in it.
    pub(super) knows_of_a_stop: bool,
    /// Bytes of memory that the process may have.
    pub(super) memory: u64,
    pub(super) code: Arc<[u8]>,
    /// The longest frame that it may say.
    pub(super) longest: usize,
    pub(super) fate: Fate,
    pub(super) meter: Arc<Meter>,
    /// Its place among the workers of the host.
    pub(super) place: OwnedSemaphorePermit,
}

/// The talk with a process. Dropping it says that nobody talks to it any more.
pub(super) struct Line {
    /// Frames for it.
    to: mpsc::UnboundedSender<Vec<u8>>,
    /// How many of them it has not taken yet.
    waiting: Arc<AtomicU64>,
    /// Frames from it. Ends when the process has been reaped.
    pub(super) from: mpsc::Receiver<Vec<u8>>,
}

impl Line {
    /// Tells it something, when it has taken what it was told before.
    pub(super) fn tell(&self, frame: Vec<u8>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // A process that is gone by now tells so itself.
        self.to.send(frame).ok();
    }

    /// How many frames it has not taken yet. Each is in memory meanwhile.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// What a process is to be told.
struct Told {
    frames: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicU64>,
}

/// Starts the process as `work`, which lasts until it has been reaped.
pub(super) fn open(control: &Handle, work: Work, plan: Plan) -> Line {
    let (to, frames) = mpsc::unbounded_channel();
    let (says, from) = mpsc::channel(1);
    let waiting = Arc::new(AtomicU64::new(0));
    let told = Told { frames, waiting: Arc::clone(&waiting) };
    let signal = work.signal();
    let life = async move {
        let Plan { fate, place, .. } = &plan;
        let words = live(&plan, &signal, told, &says).await;
        tracing::debug!(worker = %plan.name, "{words}");
        fate.goes(words);
        let _until_now = place;
    };
    // It ends by itself: a hard stop is what it waits for.
    let _detached = spawn_charged(control, work, life);
    Line { to, waiting, from }
}

/// From the start to the reaping. Says how the process ended.
async fn live(
    plan: &Plan,
    signal: &StopSignal,
    told: Told,
    says: &mpsc::Sender<Vec<u8>>,
) -> String {
    let Plan { settings, fate, .. } = plan;
    if signal.is_hard() {
        return "it was stopped before its process was started".to_owned();
    }
    let not_started =
        |error: io::Error| format!("{} cannot be started: {error}", settings.program.display());
    let mut child = match spawn(settings) {
        Ok(child) => child,
        Err(error) => return not_started(error),
    };
    let (Some(mut input), Some(mut output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return not_started(io::Error::other("the child has no standard streams"));
    };
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut last_lines = String::new();
    let status;
    let mut verdict;
    {
        let mut listening = pin!(maybe_done(listen(errors, &plan.name, &mut last_lines)));
        let hurry = async {
            tokio::select! {
                _ = signal.raised(StopKind::Hard) => {}
                () = says.closed() => {
                    if !fate.has_told() && !signal.is_hard() {
                        return Verdict::Unheard;
                    }
                }
            }
            tokio::time::sleep(settings.stop_bound).await;
            Verdict::Slow
        };
        // Writing and listening go on until reading or the bound decides.
        let aside = async {
            tokio::join!(write(&mut input, plan, signal, told), &mut listening);
            std::future::pending::<Verdict>().await
        };
        verdict = tokio::select! {
            verdict = Box::pin(read(&mut output, plan, says)) => verdict,
            verdict = hurry => verdict,
            verdict = Box::pin(aside) => verdict,
        };
        // It has nothing to hear any more, and whatever reads its input in its place ends with that.
        drop(input);
        let mut ended = None;
        if let Verdict::Silent = verdict {
            ended = tokio::time::timeout(settings.stop_bound, child.wait()).await.ok();
            if ended.is_none() {
                verdict = Verdict::Slow;
            }
        }
        status = match ended {
            Some(status) => status,
            None => {
                kill(leader);
                child.wait().await
            }
        };
        // Its last words may still be in the pipe; others may hold the other end.
        tokio::time::timeout(LAST_WORDS, listening).await.ok();
    }
    // What it has started itself, if it has, goes with it. Nothing else can lead a group of that number so soon.
    kill(leader);
    words(plan, &verdict, status, last_lines.trim())
}

/// Why the talk is over.
enum Verdict {
    /// It says nothing more: its output has ended.
    Silent,
    /// It says what no worker says.
    Nonsense(String),
    /// Nobody listens any more, and it has not said that its run has ended.
    Unheard,
    /// Its bound has passed.
    Slow,
}

/// It gets no environment, no open files but its three streams, a process group of its own, and `/` as its directory.
fn spawn(settings: &WorkerSettings) -> io::Result<Child> {
    Command::new(&settings.program)
        .args(&settings.arguments)
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Sends the start, and then stops and answers as they come. A stop goes before answers that wait.
async fn write(
    input: &mut (impl AsyncWrite + Unpin),
    plan: &Plan,
    signal: &StopSignal,
    mut told: Told,
) {
    let mut soft_is_due = !plan.knows_of_a_stop;
    // An error means that it does not read any more, and what it says tells more than that.
    let sent: io::Result<()> = async {
        send(input, &plan.first).await?;
        send(input, &plan.code).await?;
        loop {
            let stop = tokio::select! {
                biased;
                stop = signal.raised(StopKind::Hard) => stop,
                stop = signal.raised(StopKind::Soft), if soft_is_due => stop,
                Some(answer) = told.frames.recv() => {
                    send(input, &answer).await?;
                    told.waiting.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
            };
            soft_is_due = false;
            let hard = stop.kind() == StopKind::Hard;
            send(input, &frame::encode(&ToWorker::Stop(Halt::of(&stop)))?).await?;
            if hard {
                // Nothing is answered any more.
                return Ok(());
            }
        }
    }
    .await;
    if let Err(error) = sent {
        tracing::debug!(worker = %plan.name, %error, "a worker does not read");
    }
}

async fn send(input: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    input.write_all(bytes).await?;
    input.flush().await
}

/// Passes on what the worker says, and notes how far it has come.
async fn read(
    output: &mut (impl AsyncRead + Unpin),
    plan: &Plan,
    says: &mpsc::Sender<Vec<u8>>,
) -> Verdict {
    loop {
        let frame = match frame::read(output, plan.longest).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Verdict::Silent,
            Err(error) => return Verdict::Nonsense(error.to_string()),
        };
        if frame::is_of_type(&frame, "started") {
            plan.fate.begins();
        }
        let last = frame::is_of_type(&frame, "ended");
        if last {
            plan.fate.tells();
        }
        // Once nobody talks to it any more, what counts is how its run ended and what it used.
        if let Err(unheard) = says.send(frame).await
            && last
            && unheard.0.len() <= LAST_WORD
            && let Ok(FromWorker::Ended(ended)) = frame::decode(&unheard.0)
        {
            // The run has ended, so that a limit that it is over ends nothing.
            plan.meter.tell(ended.used).ok();
            ended.reached.iter().for_each(|kind| plan.meter.reach(*kind));
        }
    }
}

/// Brings what the worker writes to its standard error to the log, line by line and up to a bound. Keeps the last lines.
async fn listen(errors: impl AsyncRead + Unpin, name: &str, last_lines: &mut String) {
    let mut errors = tokio::io::BufReader::new(errors);
    let mut bytes = 0;
    loop {
        let mut line = Vec::new();
        let mut piece = (&mut errors).take(LONGEST_LINE);
        if !matches!(piece.read_until(b'\n', &mut line).await, Ok(1..)) {
            return;
        }
        bytes += line.len();
        let text = line.trim_ascii();
        if bytes <= MOST_ERRORS && !text.is_empty() {
            let text = String::from_utf8_lossy(text).escape_debug().to_string();
            tracing::warn!(worker = name, "{text}");
            if last_lines.len() > KEPT_LINES {
                last_lines.clear();
            }
            last_lines.extend([&text, " "]);
        }
    }
}

/// Kills a worker, and with it whatever it may have started: it leads a process group of its own.
fn kill(leader: Option<Pid>) {
    if let Some(leader) = leader {
        // The one error is that nothing of the group is left.
        kill_process_group(leader, Signal::KILL).ok();
    }
}

fn words(
    plan: &Plan,
    verdict: &Verdict,
    status: io::Result<ExitStatus>,
    diagnostics: &str,
) -> String {
    let bound = |time: Duration| format!("{} ms", time.as_millis());
    match verdict {
        Verdict::Nonsense(error) => {
            format!("its process was killed, because it said nonsense: {error}")
        }
        Verdict::Unheard => {
            "its process was killed, because nobody listens to it any more".to_owned()
        }
        Verdict::Slow => format!(
            "its process was killed, because it did not end within {}",
            bound(plan.settings.stop_bound)
        ),
        Verdict::Silent => {
            let status = match status {
                Ok(status) => status,
                Err(error) => return format!("its process is gone: {error}"),
            };
            if status.signal() == Some(Signal::XCPU.as_raw()) {
                return "its process used up its processor time".to_owned();
            }
            // What the standard library says before it aborts for want of memory.
            if diagnostics.contains("memory allocation of") {
                let memory = plan.memory;
                return format!("its process had no memory left of its {memory} bytes");
            }
            let how = match (status.signal(), status.code()) {
                (Some(signal), _) => format!("by signal {signal}"),
                (None, Some(code)) => format!("with exit code {code}"),
                (None, None) => "in an unknown way".to_owned(),
            };
            let said =
                if diagnostics.is_empty() { String::new() } else { format!(": {diagnostics}") };
            format!("its process ended {how}{said}")
        }
    }
}
