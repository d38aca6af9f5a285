//! Time zones, by their names in the IANA database.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;
use serde::Deserialize;

/// A time zone, such as `Europe/Berlin`. UTC where nothing else is said.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    pub(super) fn time_zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The name, such as `Europe/Berlin`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Default for Zone {
    fn default() -> Zone {
        Zone { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }
}

impl FromStr for Zone {
    type Err = ZoneError;

    /// The system's own database goes first; without one, the one that is built in.
    fn from_str(name: &str) -> Result<Zone, ZoneError> {
        match TimeZone::get(name) {
            Ok(zone) => Ok(Zone { name: zone.iana_name().unwrap_or(name).to_owned(), zone }),
            Err(_) => Err(ZoneError {
                name: name.chars().take(64).flat_map(char::escape_default).collect(),
            }),
        }
    }
}

impl TryFrom<String> for Zone {
    type Error = ZoneError;

    fn try_from(name: String) -> Result<Zone, ZoneError> {
        name.parse()
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name).finish()
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// There is no time zone of that name: mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`time-zone`: there is no time zone `{name}`; write a name of the IANA database, such as \"Europe/Berlin\" or \"UTC\""
)]
pub struct ZoneError {
    /// The name.
    pub name: String,
}
