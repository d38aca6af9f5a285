//! The `[limits]` table: in a manifest what a plugin says it needs, in a configuration the ceiling.

use serde::Deserialize;

use super::amounts::{Bound, Count, Size, Time};
use crate::sandbox::{LimitKind, Limits};

/// A `[limits]` table. What is left out keeps the value from below: the ceiling in a manifest, the default in
/// a configuration. Each key has the name of its [`LimitKind`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LimitsTable {
    /// See [`Limits::memory`].
    pub memory: Option<Size>,
    /// See [`Limits::table_elements`].
    pub table_elements: Option<Count>,
    /// See [`Limits::fuel`].
    pub fuel: Option<Bound<Count>>,
    /// See [`Limits::wall_time`].
    pub wall_time: Option<Bound<Time>>,
    /// See [`Limits::door_bytes`].
    pub door_bytes: Option<Size>,
    /// See [`Limits::call_bytes`].
    pub call_bytes: Option<Size>,
    /// See [`Limits::output_bytes`].
    pub output_bytes: Option<Size>,
    /// See [`Limits::log_bytes`].
    pub log_bytes: Option<Size>,
    /// See [`Limits::calls_in_flight`].
    pub calls_in_flight: Option<Count>,
    /// See [`Limits::model_tokens`].
    pub model_tokens: Option<Bound<Count>>,
    /// See [`Limits::open_files`].
    pub open_files: Option<Count>,
    /// See [`Limits::handles`].
    pub handles: Option<Count>,
}

impl LimitsTable {
    /// `below`, with the values of this table in place of its own.
    #[must_use]
    pub fn over(&self, below: &Limits) -> Limits {
        let size = |own: Option<Size>, below| own.map_or(below, |size| size.0);
        let count = |own: Option<Count>, below| own.map_or(below, |count| count.0);
        Limits {
            memory: size(self.memory, below.memory),
            table_elements: count(self.table_elements, below.table_elements),
            fuel: self.fuel.map_or(below.fuel, |bound| bound.value().map(|count| count.0)),
            wall_time: self
                .wall_time
                .map_or(below.wall_time, |bound| bound.value().map(|time| time.0)),
            door_bytes: size(self.door_bytes, below.door_bytes),
            call_bytes: size(self.call_bytes, below.call_bytes),
            output_bytes: size(self.output_bytes, below.output_bytes),
            log_bytes: size(self.log_bytes, below.log_bytes),
            calls_in_flight: count(self.calls_in_flight, below.calls_in_flight),
            model_tokens: self
                .model_tokens
                .map_or(below.model_tokens, |bound| bound.value().map(|count| count.0)),
            open_files: count(self.open_files, below.open_files),
            handles: count(self.handles, below.handles),
        }
    }

    /// The limits that this table names.
    pub fn kinds(&self) -> Vec<LimitKind> {
        let named = [
            (LimitKind::Memory, self.memory.is_some()),
            (LimitKind::TableElements, self.table_elements.is_some()),
            (LimitKind::Fuel, self.fuel.is_some()),
            (LimitKind::WallTime, self.wall_time.is_some()),
            (LimitKind::DoorBytes, self.door_bytes.is_some()),
            (LimitKind::CallBytes, self.call_bytes.is_some()),
            (LimitKind::OutputBytes, self.output_bytes.is_some()),
            (LimitKind::LogBytes, self.log_bytes.is_some()),
            (LimitKind::CallsInFlight, self.calls_in_flight.is_some()),
            (LimitKind::ModelTokens, self.model_tokens.is_some()),
            (LimitKind::OpenFiles, self.open_files.is_some()),
            (LimitKind::Handles, self.handles.is_some()),
        ];
        named.into_iter().filter(|(_, named)| *named).map(|(kind, _)| kind).collect()
    }
}

/// One limit as people read it.
pub fn shown_limit(limits: &Limits, kind: LimitKind) -> String {
    let bound = |bound: Option<String>| bound.unwrap_or_else(|| "none".to_owned());
    match kind {
        LimitKind::Memory => Size(limits.memory).to_string(),
        LimitKind::TableElements => Count(limits.table_elements).to_string(),
        LimitKind::Fuel => bound(limits.fuel.map(|fuel| Count(fuel).to_string())),
        LimitKind::WallTime => bound(limits.wall_time.map(|time| Time(time).to_string())),
        LimitKind::DoorBytes => Size(limits.door_bytes).to_string(),
        LimitKind::CallBytes => Size(limits.call_bytes).to_string(),
        LimitKind::OutputBytes => Size(limits.output_bytes).to_string(),
        LimitKind::LogBytes => Size(limits.log_bytes).to_string(),
        LimitKind::CallsInFlight => Count(limits.calls_in_flight).to_string(),
        LimitKind::ModelTokens => {
            bound(limits.model_tokens.map(|tokens| Count(tokens).to_string()))
        }
        LimitKind::OpenFiles => Count(limits.open_files).to_string(),
        LimitKind::Handles => Count(limits.handles).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_the_name_of_its_limit_and_every_limit_has_a_key() {
        let all = "memory = 1\ntable-elements = 2\nfuel = 3\nwall-time = \"4s\"\ndoor-bytes = 5\ncall-bytes = 6\n\
            output-bytes = 7\nlog-bytes = 8\ncalls-in-flight = 9\nmodel-tokens = 10\nopen-files = 11\nhandles = 12\n";
        let table: LimitsTable = toml::from_str(all).unwrap();
        assert_eq!(table.kinds().len(), 12);
        for kind in table.kinds() {
            assert!(all.contains(&format!("{kind} = ")), "{kind}");
        }
        let limits = table.over(&Limits::default());
        let expected = [
            "1 bytes", "2", "3", "4 s", "5 bytes", "6 bytes", "7 bytes", "8 bytes", "9", "10",
            "11", "12",
        ];
        let shown: Vec<String> =
            table.kinds().into_iter().map(|kind| shown_limit(&limits, kind)).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_empty_table_changes_nothing() {
        let limits = Limits { fuel: Some(7), ..Limits::default() };
        assert_eq!(LimitsTable::default().over(&limits), limits);
    }
}
