//! Which profiles are served, as the routes ask for them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::Profile;
use crate::profile::Tickets;

/// The profiles that are served. Whoever keeps them says what is there; routes keep no list of their own.
pub trait Served: Send + Sync + 'static {
    /// All of them, by name, with those that are configured and not served.
    fn list(&self) -> Vec<Listed>;

    /// The profile of that name.
    ///
    /// # Errors
    ///
    /// [`NotServed`] when it is not there or takes no requests now.
    fn get(&self, name: &str) -> Result<Profile, NotServed>;

    /// The tickets of the profile of that name.
    ///
    /// # Errors
    ///
    /// As [`Served::get`]: a profile that is not served has none (P8).
    fn tickets(&self, name: &str) -> Result<Arc<Tickets>, NotServed>;

    /// Looks again at what is configured, and serves that.
    fn reconcile(&self) -> BoxFuture<'static, Reconciled>;

    /// Waits until the ends of all turns that were going on are recorded.
    fn recorded(&self) -> BoxFuture<'static, ()> {
        let profiles: Vec<_> =
            self.list().into_iter().filter_map(|listed| listed.state.ok()).collect();
        async move {
            for profile in profiles {
                profile.recorded().await;
            }
        }
        .boxed()
    }

    /// The profiles in which something has happened that is not recorded yet.
    fn unrecorded(&self) -> Vec<String> {
        let open =
            |listed: &Listed| listed.state.as_ref().is_ok_and(|profile| !profile.is_recorded());
        self.list().into_iter().filter(open).map(|listed| listed.name).collect()
    }
}

/// A profile, as it is listed.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub home: PathBuf,
    /// The profile, or why it is not served.
    pub state: Result<Profile, String>,
}

/// A profile cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotServed {
    /// No profile of that name is configured.
    #[error("there is no profile `{0}`")]
    Unknown(String),
    /// It is configured and not served now.
    #[error("the profile `{name}` is not served: {why}")]
    Parked {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
}

/// What came of a look at what is configured. Each list has names of profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Reconciled {
    /// Served from now on.
    pub added: Vec<String>,
    /// Served as before.
    pub kept: Vec<String>,
    /// Served as before, with a configuration that has changed, or others of the plugins and keys that it names.
    pub reloaded: Vec<String>,
    /// What has changed of each that was reloaded, in words.
    pub changed: BTreeMap<String, Vec<String>>,
    /// Not served any more: unlisted and stopped now.
    pub removed: Vec<String>,
    /// Everything of them is given back, now that their work has ended. They were removed now or before.
    pub released: Vec<String>,
    /// Removed, now or before, and not released, and why. They are tried again.
    pub not_released: BTreeMap<String, String>,
    /// Served with the configuration of before, because the new one is wrong, and why.
    pub not_reloaded: BTreeMap<String, String>,
    /// Not served, and why.
    pub parked: BTreeMap<String, String>,
}
