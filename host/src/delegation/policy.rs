//! What a caller says about where its tasks shall run.

/// Where the caller wants its tasks to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// After the call has returned; results come as completions.
    Background,
    /// Inside the call; results are its answer.
    Inline,
}

impl Mode {
    /// The mode of that name.
    pub fn parse(name: &str) -> Option<Mode> {
        match name {
            "background" => Some(Mode::Background),
            "inline" => Some(Mode::Inline),
            _ => None,
        }
    }
}

/// What becomes of a unit that is not accepted (A3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// It runs inside the call.
    #[default]
    Inline,
    /// It waits in line for capacity. When the line is full, or something else than capacity is in the way, it runs
    /// inside the call.
    Queue,
    /// It does not run.
    Refuse,
}

impl Policy {
    /// The policy of that name; an empty name is [`Policy::Inline`].
    pub fn parse(name: &str) -> Option<Policy> {
        match name {
            "" | "inline" => Some(Policy::Inline),
            "queue" => Some(Policy::Queue),
            "refuse" => Some(Policy::Refuse),
            _ => None,
        }
    }
}
