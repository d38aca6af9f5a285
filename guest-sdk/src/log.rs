//! Levels of the operator's log.

/// How much a line of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Something is wrong and someone has to look.
    Error,
    /// Something is odd.
    Warn,
    /// What happens, in a few lines for each run.
    Info,
    /// What happens, in detail.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// The name that crosses the door.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        }
    }
}
