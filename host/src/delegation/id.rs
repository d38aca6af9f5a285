//! The names of delegations.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of one unit, written `d<number>`. It is fixed before the unit can start, and never used twice by a host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DelegationId(pub(crate) u64);

impl DelegationId {
    /// The name with that number, as somebody wrote it down.
    pub fn new(number: u64) -> DelegationId {
        DelegationId(number)
    }

    /// Its number, counting up from 1 in the order in which units were submitted.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for DelegationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}", self.0)
    }
}

impl fmt::Debug for DelegationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for DelegationId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DelegationId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DelegationId, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for DelegationId {
    type Err = NotADelegation;

    fn from_str(text: &str) -> Result<Self, NotADelegation> {
        let digits =
            text.strip_prefix('d').filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse().ok()).map(DelegationId).ok_or(NotADelegation)
    }
}

/// The name of one delegating call. Its units share a slot (A8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(super) u64);

/// A text that is not the name of a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not the id of a delegation; one looks like d3")]
pub struct NotADelegation;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written() {
        assert_eq!("d12".parse(), Ok(DelegationId(12)));
        assert_eq!(DelegationId(12).to_string(), "d12");
        for wrong in ["", "d", "12", "d-1", "d+1", "D1", "d 1", "d99999999999999999999"] {
            assert_eq!(wrong.parse::<DelegationId>(), Err(NotADelegation), "{wrong:?}");
        }
    }
}
