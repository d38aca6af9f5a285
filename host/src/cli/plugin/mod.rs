//! `checkrein plugin`: what plugins there are, what is in one, and whether it would load here.

mod check;
mod inspect;
mod list;

use checkrein::plugin::Plugin as Found;
use checkrein::{Error, ErrorKind, Host};
use clap::Subcommand;

use super::code::Code;
use super::log::Log;
use super::problem::Problem;
use super::screen::Screen;
use super::setup::Named;

/// The commands about plugins.
#[derive(Debug, Subcommand)]
pub(super) enum Plugin {
    /// List the plugins that can be run, and those that cannot with the reason.
    List(list::List),
    /// Show what a plugin is, what it asks for, and what it would get.
    Inspect(inspect::Inspect),
    /// Check whether a plugin would load here, and if not, say why.
    ///
    /// The exit code is 0 if it would load, and 3 if not.
    Check(check::Check),
}

impl Plugin {
    /// Does what the command says.
    pub(super) fn execute(self, log: Log) -> Result<Code, Problem> {
        log.start(Screen::plain())?;
        match self {
            Plugin::List(list) => list.execute(),
            Plugin::Inspect(inspect) => inspect.execute(),
            Plugin::Check(check) => check.execute(),
        }
    }
}

/// The plugin of that name in the host's catalogue.
fn get<'h>(host: &'h Host, name: &str, named: &Named) -> Result<&'h Found, Problem> {
    host.catalogue().get(name).map_err(|error| {
        let problem = Problem::from(Error::because(
            ErrorKind::NotFound,
            format!("could not look into `{name}`"),
            error,
        ));
        match named.advice() {
            Some(advice) => problem.advise(advice),
            None => problem,
        }
    })
}
