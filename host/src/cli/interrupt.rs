//! From Ctrl-C and SIGTERM to stops: the first is soft, the second hard, and then there is a bound.
//!
//! ```text
//!   opening ──the turn has started──► running ──it has ended──► over
//!      │ 1st: give up opening            │ 1st: soft stop         │ any: leave
//!      │ 2nd: leave after the bound      │ 2nd: hard stop,
//!      ▼                                 ▼      leave after the bound
//! ```
//!
//! It has a thread and a runtime of its own: a terminal that does not take any more output, or a host that hangs, must
//! not keep a signal from being heard. Stops are given on a second thread, so that not even they keep the first from
//! leaving when the time has come.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use checkrein::session::Session;
use checkrein::work::{Grace, Stop, Tree};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::code::Code;
use super::problem::Problem;
use super::status;

/// How long a hard stop may take before the command leaves, whatever is left.
pub(super) const BOUND: Duration = Duration::from_secs(5);

/// Where signals go. Cheap to clone; every clone is the same.
#[derive(Clone)]
pub(super) struct Interrupts {
    shared: Arc<Shared>,
}

struct Shared {
    tree: Tree,
    grace: Grace,
    /// Held while a stop is handed on, so that a turn that starts meanwhile gets it all the same and the soft one goes
    /// first; never while it is given.
    state: Mutex<State>,
    /// Woken when opening is given up.
    given_up: Notify,
    /// To the thread that gives stops.
    stops: mpsc::Sender<(Session, Stop)>,
}

struct State {
    phase: Phase,
    /// The first signal, from the moment it came.
    asked: Option<Source>,
    /// When to leave, from the moment of the second signal.
    leave_at: Option<Instant>,
}

enum Phase {
    Opening,
    Running(Box<Session>),
    Over,
}

/// Which signal it was.
#[derive(Debug, Clone, Copy)]
enum Source {
    Interrupt,
    Terminate,
}

impl Source {
    fn stop(self, grace: Grace) -> Stop {
        match self {
            Source::Interrupt => Stop::soft("user", "Ctrl-C was pressed", grace),
            Source::Terminate => {
                Stop::soft("operator", "the command was asked to end (SIGTERM)", grace)
            }
        }
    }

    fn hard_stop(self) -> Stop {
        match self {
            Source::Interrupt => Stop::hard("user", "Ctrl-C was pressed again"),
            Source::Terminate => {
                Stop::hard("operator", "the command was asked to end again (SIGTERM)")
            }
        }
    }
}

impl Interrupts {
    /// Hears signals from now on.
    pub(super) fn listen(tree: Tree, grace: Grace) -> Result<Interrupts, Problem> {
        let state = Mutex::new(State { phase: Phase::Opening, asked: None, leave_at: None });
        let (stops, given) = mpsc::channel();
        let shared = Arc::new(Shared { tree, grace, state, given_up: Notify::new(), stops });
        start(Arc::clone(&shared), given).map_err(|error| {
            Problem::because(Code::Refused, "could not begin to listen for Ctrl-C", error)
        })?;
        Ok(Interrupts { shared })
    }

    /// Waits until a signal comes before there is a turn.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a signal is not forgotten.
    pub(super) async fn given_up(&self) {
        loop {
            let woken = self.shared.given_up.notified();
            if self.shared.lock().asked.is_some() {
                return;
            }
            woken.await;
        }
    }

    /// A turn of that session has started. A signal that came just before reaches it.
    pub(super) fn running(&self, session: Session) {
        let mut state = self.shared.lock();
        if let Some(source) = state.asked {
            self.shared.hand_on(&session, source.stop(self.shared.grace));
            if state.leave_at.is_some() {
                self.shared.hand_on(&session, source.hard_stop());
            }
        }
        state.phase = Phase::Running(Box::new(session));
    }

    /// Nothing runs any more; what is left to do is print.
    pub(super) fn over(&self) {
        let mut state = self.shared.lock();
        state.phase = Phase::Over;
        state.leave_at = None;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, source: Source) {
        let mut state = self.lock();
        let first = state.asked.is_none();
        state.asked.get_or_insert(source);
        if !first {
            state.leave_at.get_or_insert(Instant::now() + BOUND);
        }
        match &state.phase {
            Phase::Opening if first => self.given_up.notify_waiters(),
            Phase::Opening => {}
            Phase::Running(session) if first => self.hand_on(session, source.stop(self.grace)),
            Phase::Running(session) => self.hand_on(session, source.hard_stop()),
            Phase::Over => {
                drop(state);
                leave();
            }
        }
    }

    /// Has a stop given to the turn of that session. Waits for nothing.
    fn hand_on(&self, session: &Session, stop: Stop) {
        // The thread that takes it lives as long as the process.
        self.stops.send((session.clone(), stop)).ok();
    }

    /// Says what is left, and leaves.
    fn leave_behind(&self) {
        let left = status::left(&self.tree.executions(self.tree.root()));
        let words = match left.is_empty() {
            true => "nothing of the run is left; leaving without the rest of the output".to_owned(),
            false => format!(
                "leaving after {} s with this still alive:\n{}",
                BOUND.as_secs(),
                left.join("\n")
            ),
        };
        say_without_waiting(&words);
        leave();
    }

    fn leave_at(&self) -> Option<Instant> {
        self.lock().leave_at
    }
}

fn start(shared: Arc<Shared>, given: mpsc::Receiver<(Session, Stop)>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let (interrupt, terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(entered);
    thread("stops", move || {
        for (session, stop) in given {
            session.stop_turn(None, &stop).ok();
        }
    })?;
    thread("signals", move || hear(&runtime, &shared, interrupt, terminate))
}

#[allow(
    clippy::disallowed_methods,
    reason = "it must hear signals when everything in the tree of work hangs"
)]
fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

fn hear(runtime: &Runtime, shared: &Shared, mut interrupt: Signal, mut terminate: Signal) {
    runtime.block_on(async {
        loop {
            let at = shared.leave_at();
            let late = async {
                match at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(()) = interrupt.recv() => shared.heard(Source::Interrupt),
                Some(()) = terminate.recv() => shared.heard(Source::Terminate),
                () = late => if shared.leave_at().is_some() { shared.leave_behind() },
            }
        }
    });
}

/// Writes to standard error what it takes at once: the other threads may be stuck in a write of theirs, with the lock.
fn say_without_waiting(words: &str) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let stderr = io::stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        rustix::io::write(&stderr, format!("\r{words}\n").as_bytes()).ok();
    }
}

#[allow(clippy::exit, reason = "this is the end that comes when returning from main would wait")]
fn leave() {
    std::process::exit(i32::from(Code::Interrupted as u8));
}
