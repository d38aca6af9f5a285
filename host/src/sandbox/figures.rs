//! What is counted of the runs of guests.

use super::limits::LimitKind;
use super::meter::Used;
use super::outcome::{Outcome, Report};
use crate::metrics::{Counter, Counts};
use crate::work::Kind;

/// The kinds of work that a run can be.
const KINDS: [Kind; 4] = [Kind::Turn, Kind::Child, Kind::SideRun, Kind::ToolCall];

/// Every way in which a run ends, but for the limits.
const STATUSES: [&str; 6] = ["completed", "failed", "interrupted", "trapped", "refused", "unknown"];

/// Why guests break off, as far as that has a name, and the engine's words for it.
const CAUSES: [(&str, &str); 9] = [
    ("unreachable", "`unreachable`"),
    ("stack-overflow", "call stack exhausted"),
    ("memory-out-of-bounds", "out of bounds memory access"),
    ("table-out-of-bounds", "out of bounds table access"),
    ("division-by-zero", "integer divide by zero"),
    ("integer-overflow", "integer overflow"),
    ("indirect-call", "indirect call"),
    ("uninitialized-element", "uninitialized element"),
    ("exit", "it exited with status"),
];

/// What stands for a panic of the host in place of a cause.
const HOST_PANIC: &str = "host-panic";

/// The names of [`CAUSES`], and that of a panic.
const CAUSE_NAMES: [&str; 10] = [
    CAUSES[0].0,
    CAUSES[1].0,
    CAUSES[2].0,
    CAUSES[3].0,
    CAUSES[4].0,
    CAUSES[5].0,
    CAUSES[6].0,
    CAUSES[7].0,
    CAUSES[8].0,
    HOST_PANIC,
];

/// The statuses of the answers of tools.
const ANSWERS: [&str; 8] =
    ["ok", "denied", "not-found", "invalid", "limit", "error", "interrupted", "trapped"];

/// The runs that have ended, and what they used.
#[derive(Debug)]
pub struct RunFigures {
    kinds: [KindFigures; KINDS.len() + 1],
    /// Why guests broke off.
    pub traps: Counts<&'static str, 10>,
    /// Calls of tools, by the status of their answers.
    pub tool_calls: Counts<&'static str, 8>,
}

/// The runs of one kind.
#[derive(Debug)]
pub struct KindFigures {
    /// How they ended, but for those that a limit ended.
    pub ended: Counts<&'static str, 6>,
    /// Those that a limit ended.
    pub limits: Counts<LimitKind, 12>,
    /// Fuel that those burnt that have a limit on it.
    pub fuel: Counter,
}

impl Default for KindFigures {
    fn default() -> Self {
        let (ended, limits) = (Counts::new(&STATUSES), Counts::new(&LimitKind::ALL));
        KindFigures { ended, limits, fuel: Counter::default() }
    }
}

impl Default for RunFigures {
    fn default() -> Self {
        let (traps, tool_calls) = (Counts::new(&CAUSE_NAMES), Counts::new(&ANSWERS));
        RunFigures { kinds: Default::default(), traps, tool_calls }
    }
}

impl RunFigures {
    /// The figures of each kind of run; at last, without a kind, those of all other runs.
    pub fn by_kind(&self) -> impl Iterator<Item = (Option<Kind>, &KindFigures)> {
        KINDS.iter().copied().map(Some).chain([None]).zip(&self.kinds)
    }

    fn of(&self, kind: Kind) -> &KindFigures {
        let [turns, children, side_runs, tool_calls, others] = &self.kinds;
        #[allow(
            clippy::wildcard_enum_match_arm,
            reason = "an embedder may charge a run to any node"
        )]
        match kind {
            Kind::Turn => turns,
            Kind::Child => children,
            Kind::SideRun => side_runs,
            Kind::ToolCall => tool_calls,
            _ => others,
        }
    }

    /// A run has ended.
    pub(super) fn ended<T>(&self, kind: Kind, report: &Report<T>) {
        let figures = self.of(kind);
        match &report.outcome {
            Outcome::Limit(limit) => figures.limits.of(*limit).one(),
            other @ (Outcome::Completed(_)
            | Outcome::Failed(_)
            | Outcome::Interrupted { .. }
            | Outcome::Trapped(_)
            | Outcome::NoPlace
            | Outcome::NotStarted(_)
            | Outcome::HostPanicked(_)
            | Outcome::Unknown(_)) => figures.ended.of(other.status()).one(),
        }
        match &report.outcome {
            Outcome::Trapped(trapped) => {
                let cause = CAUSES.iter().find(|(_, words)| trapped.cause.contains(words));
                self.traps.of(cause.map_or("other", |(name, _)| name)).one();
            }
            Outcome::HostPanicked(_) => self.traps.of(HOST_PANIC).one(),
            Outcome::Completed(_)
            | Outcome::Failed(_)
            | Outcome::Interrupted { .. }
            | Outcome::Limit(_)
            | Outcome::NoPlace
            | Outcome::NotStarted(_)
            | Outcome::Unknown(_) => {}
        }
        figures.burnt(&report.used);
    }

    /// Nobody waits any more for a run, which is stopped by that.
    pub(super) fn given_up(&self, kind: Kind, used: &Used) {
        let figures = self.of(kind);
        figures.ended.of("interrupted").one();
        figures.burnt(used);
    }
}

impl KindFigures {
    fn burnt(&self, used: &Used) {
        if let Some(fuel) = used.fuel {
            self.fuel.more(fuel);
        }
    }
}
