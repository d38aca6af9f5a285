//! How much one run may use, and the names of what it can run out of.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How much one run may use. Every field is enforced by the sandbox or by the door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of a run: all its linear memories together.
    pub memory: u64,
    /// Elements of all tables of a run, which mostly hold functions.
    pub table_elements: u64,
    /// Units of fuel, about one for each instruction. A run with a bound executes code that counts, which costs up to 1.4
    /// times on tight loops.
    pub fuel: Option<u64>,
    /// Time from the start of a run to its end, with all that it waits for.
    pub wall_time: Option<Duration>,
    /// What a run may exchange with the host over its whole life, in both directions: arguments and answers of calls, files,
    /// network.
    pub door_bytes: u64,
    /// What it may exchange with the host in one call.
    pub call_bytes: u64,
    /// The result of a run.
    pub output_bytes: u64,
    /// Its log lines, standard output and standard error together.
    pub log_bytes: u64,
    /// Tool calls of an agent at work at one time. More of them in one batch wait for their turn.
    pub calls_in_flight: u64,
    /// Tokens of model requests and their answers, with those of the runs below it.
    pub model_tokens: Option<u64>,
    /// Files, directories and connections open at one time. The host keeps up to 64 KiB for each that is being read or
    /// written.
    pub open_files: u64,
    /// Handles of component resources alive at one time.
    pub handles: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory: 64 << 20,
            table_elements: 20_000,
            fuel: None,
            wall_time: Some(Duration::from_secs(600)),
            door_bytes: 1 << 30,
            call_bytes: 4 << 20,
            output_bytes: 1 << 20,
            log_bytes: 1 << 20,
            calls_in_flight: 16,
            model_tokens: None,
            open_files: 64,
            handles: 1_000,
        }
    }
}

impl Limits {
    /// The lower of both, limit by limit: what a manifest asks for under an operator's ceiling.
    #[must_use]
    pub fn under(&self, ceiling: &Limits) -> Limits {
        Limits {
            memory: self.memory.min(ceiling.memory),
            table_elements: self.table_elements.min(ceiling.table_elements),
            fuel: lower(self.fuel, ceiling.fuel),
            wall_time: lower(self.wall_time, ceiling.wall_time),
            door_bytes: self.door_bytes.min(ceiling.door_bytes),
            call_bytes: self.call_bytes.min(ceiling.call_bytes),
            output_bytes: self.output_bytes.min(ceiling.output_bytes),
            log_bytes: self.log_bytes.min(ceiling.log_bytes),
            calls_in_flight: self.calls_in_flight.min(ceiling.calls_in_flight),
            model_tokens: lower(self.model_tokens, ceiling.model_tokens),
            open_files: self.open_files.min(ceiling.open_files),
            handles: self.handles.min(ceiling.handles),
        }
    }
}

/// The lower of two bounds, of which either may be none.
pub(crate) fn lower<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// The names of what a run can run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LimitKind {
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::table_elements`].
    TableElements,
    /// [`Limits::fuel`].
    Fuel,
    /// [`Limits::wall_time`].
    WallTime,
    /// [`Limits::door_bytes`].
    DoorBytes,
    /// [`Limits::call_bytes`].
    CallBytes,
    /// [`Limits::output_bytes`].
    OutputBytes,
    /// [`Limits::log_bytes`].
    LogBytes,
    /// [`Limits::calls_in_flight`].
    CallsInFlight,
    /// [`Limits::model_tokens`].
    ModelTokens,
    /// [`Limits::open_files`].
    OpenFiles,
    /// [`Limits::handles`].
    Handles,
}

impl LimitKind {
    /// Every limit, in the order of [`Limits`].
    pub const ALL: [LimitKind; 12] = [
        LimitKind::Memory,
        LimitKind::TableElements,
        LimitKind::Fuel,
        LimitKind::WallTime,
        LimitKind::DoorBytes,
        LimitKind::CallBytes,
        LimitKind::OutputBytes,
        LimitKind::LogBytes,
        LimitKind::CallsInFlight,
        LimitKind::ModelTokens,
        LimitKind::OpenFiles,
        LimitKind::Handles,
    ];

    /// The name, as configuration and outcomes spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitKind::Memory => "memory",
            LimitKind::TableElements => "table-elements",
            LimitKind::Fuel => "fuel",
            LimitKind::WallTime => "wall-time",
            LimitKind::DoorBytes => "door-bytes",
            LimitKind::CallBytes => "call-bytes",
            LimitKind::OutputBytes => "output-bytes",
            LimitKind::LogBytes => "log-bytes",
            LimitKind::CallsInFlight => "calls-in-flight",
            LimitKind::ModelTokens => "model-tokens",
            LimitKind::OpenFiles => "open-files",
            LimitKind::Handles => "handles",
        }
    }
}

impl std::fmt::Display for LimitKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Limits that a run came up against, whatever it made of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached(u16);

impl Reached {
    /// Whether the run came up against this one.
    pub fn contains(self, kind: LimitKind) -> bool {
        self.0 & bit(kind) != 0
    }

    /// Whether it came up against none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All of them, in the order of [`Limits`].
    pub fn iter(self) -> impl Iterator<Item = LimitKind> {
        LimitKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// The same with this one.
    #[must_use]
    pub(super) fn with(self, kind: LimitKind) -> Reached {
        Reached(self.0 | bit(kind))
    }
}

fn bit(kind: LimitKind) -> u16 {
    1 << kind as u16
}

/// The names, with commas between them.
impl std::fmt::Display for Reached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, kind) in self.iter().enumerate() {
            write!(f, "{}{kind}", if place == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// The list of the names.
impl Serialize for Reached {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// From the list of the names. A name of another version is left out.
impl<'de> Deserialize<'de> for Reached {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Reached, D::Error> {
        let names = Vec::<std::borrow::Cow<'de, str>>::deserialize(from)?;
        let known = LimitKind::ALL
            .into_iter()
            .filter(|kind| names.iter().any(|name| name == kind.as_str()));
        Ok(known.fold(Reached::default(), Reached::with))
    }
}

/// A set of limits that several threads add to.
#[derive(Debug, Default)]
pub(super) struct ReachedCell(AtomicU16);

impl ReachedCell {
    pub(super) fn add(&self, kind: LimitKind) {
        self.0.fetch_or(bit(kind), Ordering::Relaxed);
    }

    pub(super) fn remove(&self, kind: LimitKind) {
        self.0.fetch_and(!bit(kind), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Reached {
        Reached(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reached_is_listed_by_name_and_in_order() {
        let cell = ReachedCell::default();
        assert!(cell.get().is_empty());
        LimitKind::ALL.iter().rev().for_each(|kind| cell.add(*kind));
        assert_eq!(cell.get().iter().collect::<Vec<_>>(), LimitKind::ALL);
        LimitKind::ALL[1..11].iter().for_each(|kind| cell.remove(*kind));
        assert_eq!(cell.get().to_string(), "memory, handles");
        assert_eq!(
            serde_json::to_value(cell.get()).unwrap(),
            serde_json::json!(["memory", "handles"])
        );
    }
}
