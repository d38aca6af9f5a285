//! The agents that the runs of one session can hand tasks to.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::Mutex;

use super::open::SessionBuilder;
use crate::message::{Failure, FailureCode};
use crate::plugin::Kind;
use crate::sandbox::{AgentCode, Limits};
use crate::session::{Agents, Found};
use crate::work::Work;

/// Loads agents when they are first asked for, and keeps their code for the session.
pub(super) struct Library {
    shared: Arc<Shared>,
}

struct Shared {
    /// What the session was opened with: it says what the agents may touch.
    opened: SessionBuilder,
    /// By name, and whether the code counts. Held while code is loaded, so that nothing is loaded twice.
    loaded: Mutex<BTreeMap<(String, bool), AgentCode>>,
}

impl Library {
    pub(super) fn new(opened: SessionBuilder) -> Library {
        Library { shared: Arc::new(Shared { opened, loaded: Mutex::default() }) }
    }
}

impl Agents for Library {
    fn find(
        &self,
        owner: Work,
        name: &str,
        metered: bool,
    ) -> BoxFuture<'static, Result<Found, Failure>> {
        let (shared, name) = (Arc::clone(&self.shared), name.to_owned());
        async move { shared.find(&owner, &name, metered).await }.boxed()
    }
}

impl Shared {
    async fn find(&self, owner: &Work, name: &str, metered: bool) -> Result<Found, Failure> {
        let missing = || {
            let words = format!("there is no agent `{}` to hand a task to", name.escape_debug());
            Failure::new(FailureCode::NotFound, words)
        };
        let plugin = self.opened.catalogue().get(name).map_err(|_| missing())?;
        if plugin.manifest().kind != Kind::Agent {
            return Err(missing());
        }
        let effective = self.opened.decide(plugin).effective;
        let metered = metered || effective.limits.fuel.is_some();
        let mut loaded = self.loaded.lock().await;
        let key = (name.to_owned(), metered);
        let code = match loaded.get(&key) {
            Some(code) => code.clone(),
            None => {
                // How much there is to burn is said when a run starts; here it only matters that it is counted.
                let fuel = metered.then_some(effective.limits.fuel.unwrap_or(u64::MAX));
                let limits = Limits { fuel, ..effective.limits.clone() };
                let code = self.opened.code(owner, plugin, &limits).await.map_err(|error| {
                    // Where the operator keeps it is not the guest's to know.
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(agent = name, error, "an agent could not be loaded for a child");
                    let words = format!("the agent `{name}` cannot be loaded");
                    Failure::new(FailureCode::Unavailable, words)
                })?;
                loaded.insert(key, code.clone());
                code
            }
        };
        Ok(Found { plugged: self.opened.plugged(plugin, effective), code })
    }
}
