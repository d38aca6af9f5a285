//! Asking a tool plugin which tools it has, without a session.

use super::host::Host;
use crate::error::{Error, ErrorKind};
use crate::plugin::Plugin;
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
}
