//! `checkrein doctor`: whether this machine and this configuration give what the host needs, and what to do if not.
//!
//! - [`check`] is what one check says, and how all of them are shown.
//! - [`machine`] looks at the kernel and its limits, [`places`] at folders and files, [`parts`] at what the configuration
//!   names and at the child that compiles, [`homes`] at homes with their databases and configurations.
//!
//! Nothing that is looked at is changed. Keys and secrets are looked up and never shown.

mod check;
mod homes;
mod machine;
mod parts;
mod places;

use std::path::PathBuf;

use checkrein::plugin::{Configuration, ServeTable};
use checkrein::sandbox::{EngineSettings, Engines, Limits, Pool};

use self::check::{Checks, Verdict};
use super::code::Code;
use super::log::Log;
use super::problem::Problem;
use super::screen::Screen;
use super::serve::limits;
use super::setup::{self, Options};
use super::text;

/// The arguments of `checkrein doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    options: Options,
    /// The home of a profile, which is looked at with its database and its lock.
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Does what the command says.
    pub(super) fn execute(self, log: Log) -> Result<Code, Problem> {
        log.start(Screen::plain())?;
        let configuration = self.options.configuration()?;
        let checks = setup::block_on(async { Ok(self.look(&configuration).await) })?;
        text::print(&match self.json {
            true => format!("{:#}\n", checks.as_json()),
            false => checks.as_text(),
        })?;
        Ok(match checks.verdict() {
            Verdict::Ok | Verdict::Warning => Code::Completed,
            Verdict::Problem => Code::Refused,
        })
    }

    async fn look(&self, configuration: &Configuration) -> Checks {
        let pool = configuration
            .sandbox
            .pool_size
            .map_or(Pool::Auto, |size| Pool::Slots(u32::try_from(size.0).unwrap_or(u32::MAX)));
        let engines = Engines::new(&EngineSettings { pool });
        let slots = engines.as_ref().ok().and_then(Engines::slots);
        let ceilings = ceilings(configuration);
        let compile = parts::limits(configuration);

        let mut checks = Checks::default();
        checks.add(machine::kernel());
        checks.add(machine::clock());
        checks.add(machine::address_space(&engines, pool));
        checks.add(machine::mappings(slots, pool));
        checks.add(machine::open_files(slots, connections(&configuration.serve)));
        checks.add(machine::memory(&ceilings, &compile));
        checks.add(places::cache(configuration));
        if let Some(home) = &self.home {
            checks.add_all(homes::home(home).await);
        }
        let serve = &configuration.serve;
        if let Some(profiles) = &serve.profiles {
            checks.add(places::socket(serve.socket.as_deref()));
            if let Some(tokens) = &serve.tokens {
                checks.add(places::tokens(tokens));
            }
            checks.add_all(homes::profiles(profiles).await);
        }
        // A daemon has the models of its profiles.
        if serve.profiles.is_none() || configuration.models().next().is_some() {
            checks.add_all(parts::models(configuration));
        }
        checks.add_all(parts::secrets(configuration));
        if let Ok(engines) = &engines {
            checks.add(parts::compilation(engines, compile).await);
        }
        checks
    }
}

/// How many connections a daemon with that configuration holds at most; 0 where it is for none.
fn connections(serve: &ServeTable) -> u64 {
    let listeners = u64::from(serve.profiles.is_some()) * (1 + u64::from(serve.tcp.is_some()));
    listeners.saturating_mul(limits(serve).most_held() as u64)
}

/// What single runs may use at most, of every plugin that the configuration speaks of and of all others.
fn ceilings(configuration: &Configuration) -> Vec<Limits> {
    let named = configuration.plugins.keys().map(|name| configuration.ceiling(name));
    std::iter::once(configuration.limits.over(&Limits::default())).chain(named).collect()
}
