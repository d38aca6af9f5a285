//! Agents and tools that are loaded, for all sessions of a profile.

use std::collections::BTreeMap;

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
    /// By the name of the agent. Held while one is loaded, so that nothing is loaded twice.
    agents: Mutex<BTreeMap<String, (AgentCode, Toolbox)>>,
}

impl Loaded {
    /// The code of an agent and the tools that it may call, loaded now or before. Loading is charged to `owner`.
    pub(super) async fn get(
        &self,
        opening: &SessionBuilder,
        owner: &Work,
        plugin: &Plugin,
        effective: &Effective,
    ) -> Result<(AgentCode, Toolbox), Error> {
        let mut agents = self.agents.lock().await;
        if let Some(loaded) = agents.get(plugin.name().as_str()) {
            return Ok(loaded.clone());
        }
        let code = opening.code(owner, plugin, &effective.limits).await?;
        let (toolbox, whole) = opening.toolbox(owner, &effective.tools).await;
        let loaded = (code, toolbox);
        // What could not be loaded this time may be the next.
        if whole {
            agents.insert(plugin.name().as_str().to_owned(), loaded.clone());
        }
        Ok(loaded)
    }
}
