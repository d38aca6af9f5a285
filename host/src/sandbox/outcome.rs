//! How a run ended, as a value.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::{LimitKind, Reached};
use super::meter::{Meter, Used};
use crate::message::{Failure, FailureCode};
use crate::work::{Ended, Ending, Stop, StopKind};

/// What became of a run, and what it used.
#[derive(Debug, Clone, PartialEq)]
pub struct Report<T> {
    /// How it ended.
    pub outcome: Outcome<T>,
    /// What it used.
    pub used: Used,
    /// The limits that it came up against, whatever it made of that.
    pub reached: Reached,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The guest returned a result.
    Completed(T),
    /// The guest returned a failure. When it had been refused something by a limit, and had got nothing of it since,
    /// the message names the limit, and the code is `limit` unless the guest had a more exact one.
    Failed(Failure),
    /// It carried a stop when it ended. Interrupted wins over whatever else is true of the end.
    Interrupted {
        /// The highest stop that it carried.
        stop: Stop,
        /// What the guest returned all the same, as it may after a soft stop.
        said: Option<T>,
    },
    /// It ran out of something.
    Limit(LimitKind),
    /// The guest broke off: it trapped, exited, or answered with nonsense.
    Trapped(Trapped),
    /// The host had no place for it. It has not started; trying again later makes sense.
    NoPlace,
    /// It was not started, for a reason that trying again does not mend: what was granted is not there, or a limit
    /// was asked for that its code cannot be held to. The words are the operator's; a guest is not to see them.
    NotStarted(String),
    /// The host's own code failed in it. A defect of the host or of an embedder, kept to this run.
    HostPanicked(String),
    /// It ran in a process of its own, which ended without a word about the end of the run. The words say how the
    /// process ended.
    Unknown(String),
}

impl<T> Outcome<T> {
    /// The name that stands in events, transcripts and results: `completed`, `failed`, `interrupted`, `limit`,
    /// `trapped`, `refused` or `unknown`.
    pub fn status(&self) -> &'static str {
        match self {
            Outcome::Completed(_) => "completed",
            Outcome::Failed(_) => "failed",
            Outcome::Interrupted { .. } => "interrupted",
            Outcome::Limit(_) => "limit",
            Outcome::Trapped(_) | Outcome::HostPanicked(_) => "trapped",
            Outcome::NoPlace | Outcome::NotStarted(_) => "refused",
            Outcome::Unknown(_) => "unknown",
        }
    }

    /// What went wrong, in words; none for a run that completed.
    pub fn detail(&self) -> Option<String> {
        match self {
            Outcome::Completed(_) => None,
            Outcome::Failed(failure) => Some(failure.to_string()),
            Outcome::Interrupted { stop, .. } => {
                Some(format!("stopped by {}: {}", stop.issuer(), stop.message()))
            }
            Outcome::Limit(kind) => Some(format!("the limit `{kind}` is used up")),
            Outcome::Trapped(trapped) => Some(trapped.to_string()),
            Outcome::NoPlace => {
                Some("all places for running guests are taken; try again later".to_owned())
            }
            Outcome::NotStarted(reason) => Some(format!("it was not started: {reason}")),
            Outcome::HostPanicked(words) => Some(format!("the host failed in this run: {words}")),
            Outcome::Unknown(words) => Some(format!("nobody knows how it ended: {words}")),
        }
    }

    /// The same outcome with another result.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Completed(value) => Outcome::Completed(change(value)),
            Outcome::Failed(failure) => Outcome::Failed(failure),
            Outcome::Interrupted { stop, said } => {
                Outcome::Interrupted { stop, said: said.map(change) }
            }
            Outcome::Limit(kind) => Outcome::Limit(kind),
            Outcome::Trapped(trapped) => Outcome::Trapped(trapped),
            Outcome::NoPlace => Outcome::NoPlace,
            Outcome::NotStarted(reason) => Outcome::NotStarted(reason),
            Outcome::HostPanicked(words) => Outcome::HostPanicked(words),
            Outcome::Unknown(words) => Outcome::Unknown(words),
        }
    }
}

/// How a guest broke off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trapped {
    /// The cause in the engine's words.
    pub cause: String,
    /// The guest's call stack, innermost first, where the engine knows it.
    pub backtrace: Vec<String>,
}

impl fmt::Display for Trapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the guest broke off: {}", self.cause)?;
        for frame in self.backtrace.iter().take(3) {
            write!(f, "\n  in {frame}")?;
        }
        Ok(())
    }
}

/// Why the host ends a guest. It travels through the engine as an error and comes out at the end of the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ends {
    /// The work carries a hard stop.
    #[error("the run is stopped")]
    Stopped,
    /// A limit that no answer to the guest can express.
    #[error("the limit `{0}` is used up")]
    Limit(LimitKind),
    /// It cannot begin.
    #[error("the run was not started: {0}")]
    NotStarted(String),
    /// The code of an embedder panicked in a place from which the run can still be ended in order.
    #[error("{0} panicked")]
    Panicked(String),
    /// The guest broke off in its process.
    #[error("{0}")]
    Trapped(Trapped),
    /// There is no place for one more process.
    #[error("there is no place for it")]
    NoPlace,
    /// The host's own code failed in the process of the run.
    #[error("{0}")]
    Failed(String),
    /// Its process ended, or was ended, without a word about the end of the run.
    #[error("{0}")]
    Lost(String),
}

/// From what the slot and the engine say to what became of the run. `lost` says how the process ended of a run in a
/// process of its own that had begun and left no word about its end.
pub(super) fn conclude<T>(
    ended: Ended<wasmtime::Result<Result<T, Failure>>>,
    meter: &Meter,
    heeds: StopKind,
    lost: Option<String>,
) -> Report<T> {
    let Ended { ending, stop, soft, expired } = ended;
    let stop = stop.filter(|stop| stop.kind() >= heeds);
    let soft = soft.filter(|_| heeds == StopKind::Soft);
    let outcome = match (stop, ending) {
        // The end of its time is a limit, unless somebody had asked it to stop before.
        (Some(stop), _) if expired && soft.is_none() && stop.kind() == StopKind::Hard => {
            Outcome::Limit(LimitKind::WallTime)
        }
        (Some(stop), Ending::Returned(Ok(Ok(value)))) => {
            Outcome::Interrupted { stop, said: Some(value) }
        }
        // Rule M4: whether it was interrupted is what its process did not say any more.
        (Some(_), Ending::Returned(Err(error))) if is_lost(&error) => explain(&error, meter),
        (Some(stop), Ending::Cut) => match lost {
            Some(words) => Outcome::Unknown(format!(
                "{words} (stopped by {}: {})",
                stop.issuer(),
                stop.message()
            )),
            None => Outcome::Interrupted { stop, said: None },
        },
        (Some(stop), _) => Outcome::Interrupted { stop, said: None },
        (None, Ending::Returned(Ok(Ok(value)))) => Outcome::Completed(value),
        (None, Ending::Returned(Ok(Err(failure)))) => Outcome::Failed(attribute(failure, meter)),
        (None, Ending::Returned(Err(error))) => explain(&error, meter),
        (None, Ending::Panicked(words)) => Outcome::HostPanicked(words),
        (None, Ending::Cut) => Outcome::Interrupted {
            stop: Stop::hard("host", "the executor was shut down"),
            said: None,
        },
    };
    let reached = match &outcome {
        Outcome::Limit(kind) => meter.reached().with(*kind),
        Outcome::Completed(_)
        | Outcome::Failed(_)
        | Outcome::Interrupted { .. }
        | Outcome::Trapped(_)
        | Outcome::NoPlace
        | Outcome::NotStarted(_)
        | Outcome::HostPanicked(_)
        | Outcome::Unknown(_) => meter.reached(),
    };
    Report { outcome, used: meter.used(), reached }
}

/// A failure that a guest returned, with the limit that it most likely speaks of. What it was told was an error number
/// of WASI or a failed allocation, which name none.
fn attribute(failure: Failure, meter: &Meter) -> Failure {
    let Some(kind) = meter.refused() else { return failure };
    let exact = failure.code != FailureCode::Failed;
    let code = if exact { failure.code } else { FailureCode::Limit };
    if failure.message.contains(kind.as_str()) {
        return Failure { code, ..failure };
    }
    let message = format!("{} (its limit `{kind}` was reached)", failure.message);
    Failure { code, message }
}

fn is_lost(error: &wasmtime::Error) -> bool {
    matches!(error.downcast_ref::<Ends>(), Some(Ends::Lost(_)))
}

fn explain<T>(error: &wasmtime::Error, meter: &Meter) -> Outcome<T> {
    match error.downcast_ref::<Ends>() {
        Some(Ends::Limit(kind)) => return Outcome::Limit(*kind),
        Some(Ends::NotStarted(reason)) => return Outcome::NotStarted(reason.clone()),
        Some(Ends::Panicked(who)) => return Outcome::HostPanicked(format!("{who} panicked")),
        Some(Ends::Trapped(trapped)) => return Outcome::Trapped(trapped.clone()),
        Some(Ends::Failed(words)) => return Outcome::HostPanicked(words.clone()),
        Some(Ends::NoPlace) => return Outcome::NoPlace,
        Some(Ends::Lost(words)) => return Outcome::Unknown(words.clone()),
        Some(Ends::Stopped) | None => {}
    }
    if error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>().is_some() {
        return Outcome::NoPlace;
    }
    let words = root_words(error);
    // The engine has no type for these two; their words are checked by a test.
    if words.contains("too much data is being copied") {
        return Outcome::Limit(LimitKind::CallBytes);
    }
    if words.contains("handle limit exceeded") {
        return Outcome::Limit(LimitKind::Handles);
    }
    match error.downcast_ref::<wasmtime::Trap>() {
        Some(wasmtime::Trap::OutOfFuel) => return Outcome::Limit(LimitKind::Fuel),
        // What a guest does when it was refused memory or a file and cannot go on: it aborts, or exits.
        Some(wasmtime::Trap::UnreachableCodeReached) | None => {
            if let Some(kind) = meter.refused() {
                return Outcome::Limit(kind);
            }
        }
        Some(_) => {}
    }
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        let cause = format!("it exited with status {} in place of returning", exit.0);
        return Outcome::Trapped(Trapped { cause, backtrace: Vec::new() });
    }
    let frames =
        error.downcast_ref::<wasmtime::WasmBacktrace>().map(wasmtime::WasmBacktrace::frames);
    let name = |frame: &wasmtime::FrameInfo| frame.func_name().map(str::to_owned);
    let backtrace = frames.unwrap_or_default().iter().filter_map(name).take(20).collect();
    Outcome::Trapped(Trapped { cause: words, backtrace })
}

/// The innermost cause: what is around it is the engine's own context, such as the backtrace.
fn root_words(error: &wasmtime::Error) -> String {
    error.root_cause().to_string()
}
