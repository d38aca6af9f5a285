//! Profiles that are served from their homes, with real guests in them: the base tests of RULES "Shutdown and profiles".

mod dropped;
mod late;
mod processes;
mod reloading;
pub(crate) mod retiring;
pub(crate) mod schedules;
mod service;
pub(crate) mod shutting_down;
mod started;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use checkrein::profile::{Authority, Profiles, Reading, Retired, Wanted, WorkCount, listing};
use checkrein::session::{Delivery, Session};
use checkrein::{Homes, Profile, Served};
use checkrein_testkit::{TestHost, within};

use crate::start::{Result, isolation};

/// A host, and the profiles of a directory in its home.
struct Bed {
    host: TestHost,
    profiles: Profiles<Homes>,
}

impl Bed {
    fn new(host: TestHost) -> Result<Bed> {
        let profiles = host.host().profiles();
        fs::create_dir_all(host.home().join("profiles"))?;
        Ok(Bed { host, profiles })
    }

    fn home(&self, name: &str) -> PathBuf {
        self.host.home().join("profiles").join(name)
    }

    /// Writes the configuration of a profile.
    fn write(&self, name: &str, configuration: &str) -> Result {
        fs::create_dir_all(self.home(name))?;
        let text = format!("{}{configuration}", isolation());
        Ok(fs::write(self.home(name).join("profile.toml"), text)?)
    }

    fn wanted(&self) -> Result<Vec<Wanted>> {
        Ok(listing(&self.host.home().join("profiles"))?)
    }

    /// Makes the served set what the directory says, and waits for nobody.
    async fn reconcile(&self) -> Result<checkrein::profile::Reconciled> {
        let wanted = self.wanted()?;
        within("the reconciliation", self.profiles.reconcile(&wanted, Duration::ZERO)).await
    }

    /// Serves one profile, which must be possible.
    async fn serve(&self, name: &str) -> Result<Authority<Served>> {
        let wanted = self.wanted()?.into_iter().find(|wanted| wanted.name == name);
        let wanted = wanted.ok_or_else(|| anyhow::anyhow!("no `{name}`"))?;
        let served = self.profiles.serve(&wanted, Duration::from_secs(10));
        Ok(within("serving", served).await??)
    }

    /// Writes a configuration and serves its profile.
    async fn with(&self, name: &str, configuration: &str) -> Result<Authority<Served>> {
        self.write(name, configuration)?;
        self.serve(name).await
    }

    /// What stands in the count of a home.
    fn count(&self, name: &str) -> Result<Reading> {
        WorkCount::read(&self.home(name))?.ok_or_else(|| anyhow::anyhow!("no count"))
    }
}

fn profile(authority: &Authority<Served>) -> Result<Profile> {
    let held = authority.held().ok_or_else(|| anyhow::anyhow!("it is being retired"))?;
    Ok(held.profile().clone())
}

async fn session(authority: &Authority<Served>) -> Result<Session> {
    let profile = profile(authority)?;
    Ok(within("a session", profile.open("agent", Delivery::Turns)).await??)
}

fn released(retired: &Retired) -> bool {
    matches!(retired, Retired::Released)
}
