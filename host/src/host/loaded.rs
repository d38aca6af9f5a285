//! Agents and tools that are loaded, for all sessions of a profile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Lock, PoisonError};

use tokio::sync::Mutex;

use super::open::SessionBuilder;
use crate::error::Error;
use crate::plugin::{Effective, Plugin};
use crate::sandbox::AgentCode;
use crate::tool::Toolbox;
use crate::work::Work;

/// What was loaded under one setting. Another setting has another one.
#[derive(Default)]
pub(super) struct Loaded {
    /// By the name of the agent.
    agents: Lock<BTreeMap<String, Arc<Agent>>>,
}

/// Held while it is loaded, so that nothing is loaded twice, and nobody waits for another agent.
type Agent = Mutex<Option<(AgentCode, Toolbox)>>;

impl Loaded {
    /// The code of an agent and the tools that it may call, loaded now or before. Loading is charged to `owner`.
    pub(super) async fn get(
        &self,
        opening: &SessionBuilder,
        owner: &Work,
        plugin: &Plugin,
        effective: &Effective,
    ) -> Result<(AgentCode, Toolbox), Error> {
        let agent = {
            let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(agents.entry(plugin.name().as_str().to_owned()).or_default())
        };
        let mut agent = agent.lock().await;
        if let Some(loaded) = &*agent {
            return Ok(loaded.clone());
        }
        let code = opening.code(owner, plugin, &effective.limits).await?;
        let (toolbox, whole) = opening.toolbox(owner, &effective.tools).await;
        let loaded = (code, toolbox);
        // What could not be loaded this time may be the next.
        if whole {
            *agent = Some(loaded.clone());
        }
        Ok(loaded)
    }
}
