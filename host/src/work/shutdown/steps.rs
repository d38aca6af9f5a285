//! The steps: their names, their bounds, and what the caller does in those that the tree knows nothing of.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde::{Deserialize, Serialize};

use super::report::{Piece, Report};
use crate::work::Drained;

/// One step of a shutdown, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The tree takes no new work.
    Refuse,
    /// Clients hear that the host goes.
    TellClients,
    /// What runs may come to its end.
    Drain,
    /// What is still counted is stopped hard.
    HardStop,
    /// What was stopped may leave.
    Settle,
    /// No ticket is good any more.
    RevokeTickets,
    /// Nobody can connect any more.
    StopListeners,
    /// Stores are written out, and closed if nothing is left that writes.
    Flush,
    /// The report is kept and shown.
    Report,
    /// The exit state is written.
    Exit,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 10] = [
        Step::Refuse,
        Step::TellClients,
        Step::Drain,
        Step::HardStop,
        Step::Settle,
        Step::RevokeTickets,
        Step::StopListeners,
        Step::Flush,
        Step::Report,
        Step::Exit,
    ];

    /// The name, as operators see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Step::Refuse => "refuse",
            Step::TellClients => "tell-clients",
            Step::Drain => "drain",
            Step::HardStop => "hard-stop",
            Step::Settle => "settle",
            Step::RevokeTickets => "revoke-tickets",
            Step::StopListeners => "stop-listeners",
            Step::Flush => "flush",
            Step::Report => "report",
            Step::Exit => "exit",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How long each step may take. Refusing takes no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// For telling clients.
    pub tell_clients: Duration,
    /// For the drain. With zero nothing is waited for.
    pub drain: Duration,
    /// For giving the hard stop, not for its effect.
    pub hard_stop: Duration,
    /// For what was stopped hard to leave.
    pub settle: Duration,
    /// For revoking tickets.
    pub revoke_tickets: Duration,
    /// For stopping listeners.
    pub stop_listeners: Duration,
    /// For writing stores out.
    pub flush: Duration,
    /// For keeping and showing the report.
    pub report: Duration,
    /// For writing the exit state.
    pub exit: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        let short = Duration::from_secs(2);
        Bounds {
            tell_clients: short,
            drain: Duration::from_secs(30),
            hard_stop: short,
            settle: Duration::from_secs(5),
            revoke_tickets: short,
            stop_listeners: short,
            flush: Duration::from_secs(10),
            report: short,
            exit: short,
        }
    }
}

impl Bounds {
    /// The longest that all steps take together. A [`Watchdog`](super::Watchdog) wants a little more than this.
    pub fn total(&self) -> Duration {
        Step::ALL.into_iter().fold(Duration::ZERO, |sum, step| sum.saturating_add(self.of(step)))
    }

    /// The bound of one step.
    pub fn of(&self, step: Step) -> Duration {
        match step {
            Step::Refuse => Duration::ZERO,
            Step::TellClients => self.tell_clients,
            // These two end by themselves, from the real state; the rest is for a body of somebody's that hangs.
            Step::Drain => self.drain.saturating_add(SLACK),
            Step::Settle => self.settle.saturating_add(SLACK),
            Step::HardStop => self.hard_stop,
            Step::RevokeTickets => self.revoke_tickets,
            Step::StopListeners => self.stop_listeners,
            Step::Flush => self.flush,
            Step::Report => self.report,
            Step::Exit => self.exit,
        }
    }
}

const SLACK: Duration = Duration::from_secs(1);

/// Why a step of the caller did not do what it should. Its words go into the report.
pub type StepError = Box<dyn std::error::Error + Send + Sync>;

/// What is left when the stop has had its time.
#[derive(Debug)]
pub enum Settled {
    /// Nothing. Who needs a proof of that before a store is closed finds it here.
    Drained(Drained),
    /// Something may still write: write stores out, and do not close them.
    Left(Vec<Piece>),
}

type Doing = Pin<Box<dyn Future<Output = Result<(), StepError>> + Send>>;
pub(super) type Plain = Box<dyn FnOnce() -> Doing + Send>;
pub(super) type WithSettled = Box<dyn FnOnce(Settled) -> Doing + Send>;
pub(super) type WithReport = Box<dyn FnOnce(Arc<Report>) -> Doing + Send>;

/// What the caller does in the steps that the tree knows nothing of. A step that is not given does nothing and is done.
///
/// Each runs at most once, as a task of its own. One that is not done within its bound is left going.
#[must_use]
#[derive(Default)]
pub struct Steps {
    pub(super) tell_clients: Option<Plain>,
    pub(super) revoke_tickets: Option<Plain>,
    pub(super) stop_listeners: Option<Plain>,
    pub(super) flush: Option<WithSettled>,
    pub(super) report: Option<WithReport>,
    pub(super) exit: Option<WithReport>,
}

impl Steps {
    /// Nothing but what is done to the tree.
    pub fn new() -> Steps {
        Steps::default()
    }

    /// How clients hear that the host goes.
    pub fn tell_clients<F>(mut self, step: impl FnOnce() -> F + Send + 'static) -> Steps
    where
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        self.tell_clients = Some(Box::new(move || Box::pin(step())));
        self
    }

    /// How tickets are revoked.
    pub fn revoke_tickets<F>(mut self, step: impl FnOnce() -> F + Send + 'static) -> Steps
    where
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        self.revoke_tickets = Some(Box::new(move || Box::pin(step())));
        self
    }

    /// How listeners are stopped.
    pub fn stop_listeners<F>(mut self, step: impl FnOnce() -> F + Send + 'static) -> Steps
    where
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        self.stop_listeners = Some(Box::new(move || Box::pin(step())));
        self
    }

    /// How stores are written out. It hears whether they may be closed.
    pub fn flush<F>(mut self, step: impl FnOnce(Settled) -> F + Send + 'static) -> Steps
    where
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        self.flush = Some(Box::new(move |settled| Box::pin(step(settled))));
        self
    }

    /// Where the report goes. It has every step until then.
    pub fn report<F>(mut self, step: impl FnOnce(Arc<Report>) -> F + Send + 'static) -> Steps
    where
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        self.report = Some(Box::new(move |report| Box::pin(step(report))));
        self
    }

    /// Does something else with the report, beside what is given for that. Each is done whatever becomes of the other.
    pub(crate) fn also_report<F>(
        mut self,
        also: impl FnOnce(Arc<Report>) -> F + Send + 'static,
    ) -> Steps
    where
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        let given = self.report.take();
        self.report(move |report| async move {
            let also = also(Arc::clone(&report));
            let given = async {
                match given {
                    Some(given) => given(report).await,
                    None => Ok(()),
                }
            };
            // A panic of one must not take the other away: it goes on when both have ended.
            let (also, given) = (AssertUnwindSafe(also), AssertUnwindSafe(given));
            let (also, given) = tokio::join!(also.catch_unwind(), given.catch_unwind());
            let ended = |ended: Result<_, _>| ended.unwrap_or_else(|panic| resume_unwind(panic));
            ended(also).and(ended(given))
        })
    }

    /// How the exit state is written. The report that it gets has every step but this one.
    pub fn exit<F>(mut self, step: impl FnOnce(Arc<Report>) -> F + Send + 'static) -> Steps
    where
        F: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        self.exit = Some(Box::new(move |report| Box::pin(step(report))));
        self
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = [
            (Step::TellClients, self.tell_clients.is_some()),
            (Step::RevokeTickets, self.revoke_tickets.is_some()),
            (Step::StopListeners, self.stop_listeners.is_some()),
            (Step::Flush, self.flush.is_some()),
            (Step::Report, self.report.is_some()),
            (Step::Exit, self.exit.is_some()),
        ];
        f.debug_set()
            .entries(given.iter().filter(|(_, given)| *given).map(|(step, _)| step))
            .finish()
    }
}
