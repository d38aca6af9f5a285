//! Asking a plugin what it is, without a session.

use std::sync::Arc;

use super::host::Host;
use crate::error::{Error, ErrorKind};
use crate::plugin::{self, Plugin};
use crate::sandbox::{CodeError, CompileError, LoadError};
use crate::tool::Toolbox;
use crate::work::Kind;

impl Host {
    /// The tools of a plugin, as agents see them. Its code is asked, in a run that can reach nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Component`] when it cannot be loaded, or does not say what no model could misunderstand;
    /// [`ErrorKind::Refused`] when the host takes no new work.
    pub async fn tools_of(&self, plugin: &Plugin) -> Result<Toolbox, Error> {
        let label = format!("{} is inspected", plugin.name());
        let work = self.inner.root.open(Kind::SideRun, label).map_err(|error| {
            Error::because(
                ErrorKind::Refused,
                format!("could not ask `{}` for its tools", plugin.name()),
                error,
            )
        })?;
        let mut toolbox = Toolbox::default();
        self.session(plugin.name().as_str()).add(&mut toolbox, &work, plugin).await?;
        Ok(toolbox)
    }

    /// Loads a plugin's component with the limits that it would have in a session. Nothing of it runs.
    ///
    /// # Errors
    ///
    /// [`CodeError`] says why it could not run.
    pub async fn try_component(
        &self,
        plugin: &Plugin,
        component: Arc<[u8]>,
    ) -> Result<(), CodeError> {
        let label = format!("{} is checked", plugin.name());
        let closing = |_| CodeError::Load(LoadError::Compile(CompileError::Closing));
        let work = self.inner.root.open(Kind::SideRun, label).map_err(closing)?;
        let session = self.session(plugin.name().as_str());
        let (limits, isolation) =
            (session.decide(plugin).effective.limits, session.isolation(plugin));
        let sandbox = &self.inner.sandbox;
        match plugin.manifest().kind {
            plugin::Kind::Agent => {
                sandbox.load_agent(&work, component, &limits, isolation).await.map(drop)
            }
            plugin::Kind::Tool => {
                sandbox.load_tool(&work, component, &limits, isolation).await.map(drop)
            }
        }
    }
}
