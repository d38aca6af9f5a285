//! What a session needs for work that outlives a turn.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::delegation::{Receives, Recorder, Slots};
use crate::message::Failure;
use crate::sandbox::AgentCode;
use crate::tool::Plugged;
use crate::work::{Grace, Work};

/// What becomes of the completions of a session's background units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Each comes as a turn of its own as soon as the session is idle (C7), and is acknowledged by it.
    #[default]
    Turns,
    /// They are listed, and whoever has the session reads and acknowledges them.
    Polled,
    /// The session is over when its run is, so that nobody would read them: nothing runs in the background (A11).
    Never,
}

/// Finds the agents that runs of a session hand tasks to.
pub trait Agents: Send + Sync {
    /// The agent of that name, with what it may touch by itself. `metered` asks for code that counts what it executes.
    /// What is done meanwhile is charged to `owner`.
    fn find(
        &self,
        owner: Work,
        name: &str,
        metered: bool,
    ) -> BoxFuture<'static, Result<Found, Failure>>;
}

/// An agent that was found.
#[derive(Debug)]
pub struct Found {
    /// The plugin's side.
    pub plugged: Plugged,
    /// The code.
    pub code: AgentCode,
}

/// What a session's runs share of the background.
pub struct Background {
    /// The host's capacity.
    pub slots: Slots,
    /// Hears of what is promised, beside the session's own journal.
    pub recorder: Arc<dyn Recorder>,
    /// What becomes of completions.
    pub delivery: Delivery,
    /// How long children have after a soft stop that an agent gives.
    pub grace: Grace,
    /// How many runs a turn may start below itself.
    pub descendants: u64,
}

impl Background {
    pub(super) fn receives(&self) -> Receives {
        match self.delivery {
            Delivery::Turns | Delivery::Polled => Receives::Later,
            Delivery::Never => Receives::Never,
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("delivery", &self.delivery).finish_non_exhaustive()
    }
}
