//! How long a request may take, part by part.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// How long the parts of a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeLimits {
    /// Until there is a connection. Counts for every attempt; one that takes longer is tried again.
    #[serde(rename = "connect-seconds", deserialize_with = "seconds")]
    pub connect: Duration,
    /// From the start of an attempt until the endpoint begins to answer.
    #[serde(rename = "first-byte-seconds", deserialize_with = "seconds")]
    pub first_byte: Duration,
    /// Between two pieces of an answer. Models that think in silence need a long one.
    #[serde(rename = "idle-seconds", deserialize_with = "seconds")]
    pub idle: Duration,
    /// From the start of the request to the end of the answer, pauses and further attempts included.
    #[serde(rename = "total-seconds", deserialize_with = "seconds")]
    pub total: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        TimeLimits {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(900),
        }
    }
}

/// The names of [`TimeLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeLimit {
    /// [`TimeLimits::connect`].
    Connect,
    /// [`TimeLimits::first_byte`].
    FirstByte,
    /// [`TimeLimits::idle`].
    Idle,
    /// [`TimeLimits::total`].
    Total,
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeLimit::Connect => "`connect-seconds`",
            TimeLimit::FirstByte => "`first-byte-seconds`",
            TimeLimit::Idle => "`idle-seconds`",
            TimeLimit::Total => "`total-seconds`",
        })
    }
}

/// Seconds with an optional fraction. Ten years stand for no limit; more would overflow the clock of some systems.
pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    const MOST: f64 = 10.0 * 366.0 * 86_400.0;
    let seconds = f64::deserialize(deserializer)?;
    if seconds > 0.0 && seconds <= MOST {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(de::Error::custom(format_args!("{seconds} is not a time in seconds, greater than 0")))
    }
}
