//! The command line: one file per command. The only place that prints, reads the environment and hears signals.
//!
//! - [`run`] runs an agent, and [`kept`] is the home in which that is recorded; [`plugin`] looks at plugins, [`doctor`] at
//!   the machine. [`serve`] is the daemon and [`ending`] its end, [`daemon`] has the commands that talk to it.
//! - [`session`] looks after sessions, with a daemon and without one; [`compact`] gives room back, [`token`] says who may ask.
//! - [`setup`] makes a host of what all commands take, [`model`] and [`limit`] read single arguments.
//! - [`screen`], [`progress`] and [`status`] are what is seen while a run goes on; [`log`] is what is logged, [`telemetry`] what goes to a collector.
//! - [`interrupt`] turns signals into stops, [`code`] ends into exit codes, [`problem`] errors into words.

mod code;
mod compact;
mod daemon;
mod doctor;
mod ending;
mod interrupt;
mod kept;
mod limit;
mod log;
mod model;
mod plugin;
mod problem;
mod progress;
mod run;
mod screen;
mod serve;
mod session;
mod setup;
mod status;
mod telemetry;
mod text;
mod token;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::code::Code;
use self::log::Log;

/// The hidden command in which components are compiled. It takes no arguments and is not clap's.
pub(crate) const COMPILE_CHILD: &str = "compile-child";

/// The hidden command in which single runs of guests are. It takes no arguments either.
pub(crate) const WORKER: &str = "worker";

/// Runs third-party agents and tools in a sandbox, where a stop is certain.
#[derive(Debug, Parser)]
#[command(name = "checkrein", version, after_help = Code::help(), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: Log,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an agent on a task.
    #[command(after_help = Code::help())]
    Run(run::Run),
    /// List plugins, look into one, or check whether one would load here.
    #[command(subcommand)]
    Plugin(plugin::Plugin),
    /// Check whether this machine and a configuration give what is needed, and say what to do if not.
    ///
    /// The exit code is 0, also with warnings, and 3 if there is a problem.
    #[command(after_help = Code::help())]
    Doctor(doctor::Doctor),
    /// Serve profiles until asked to end.
    #[command(after_help = Code::help())]
    Serve(serve::Serve),
    /// Show what a daemon runs.
    Ps(daemon::ps::Ps),
    /// Show everything that a daemon runs, below its owners.
    Tree(daemon::tree::Tree),
    /// Send a prompt to a session of a daemon.
    #[command(after_help = Code::help())]
    Send(daemon::send::Send),
    /// Ask something about a session of a daemon, and change nothing of it.
    #[command(after_help = Code::help())]
    Ask(daemon::ask::Ask),
    /// Follow a session of a daemon.
    Attach(daemon::attach::Attach),
    /// Stop a session of a daemon, or any piece of work.
    Stop(daemon::stop::Stop),
    /// Make a ticket, with which somebody who may ask for nothing else does one thing in a session of a daemon, once.
    ///
    /// The ticket is shown this once and kept nowhere.
    Ticket(daemon::ticket::Ticket),
    /// Show what a session has in the background.
    Delegations(daemon::delegations::Delegations),
    /// List, show, export, import or delete sessions, of a daemon or of a home.
    #[command(subcommand)]
    Session(session::Session),
    /// Show what a daemon begins by the clock, and what came of it.
    Schedules(daemon::schedules::Schedules),
    /// Drop what may be dropped from the store of a profile, and give room back to the disk.
    Compact(compact::Compact),
    /// Make, list or revoke the tokens of those who may ask a daemon through TCP.
    #[command(subcommand)]
    Token(token::Token),
    /// Have a daemon take no new work.
    Drain(daemon::drain::Drain),
    /// Have a daemon look again at its profiles and their configurations.
    Reload(daemon::reload::Reload),
}

/// Reads the arguments, does what they ask, and says how it went.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Where this cannot be printed nobody is there to read.
            error.print().ok();
            return if error.use_stderr() { Code::Usage } else { Code::Completed }.into();
        }
    };
    let done = match cli.command {
        Command::Run(run) => run.execute(cli.log),
        Command::Plugin(plugin) => plugin.execute(cli.log),
        Command::Doctor(doctor) => doctor.execute(cli.log),
        Command::Serve(serve) => serve.execute(cli.log),
        Command::Ps(ps) => ps.execute(),
        Command::Tree(tree) => tree.execute(),
        Command::Send(send) => send.execute(),
        Command::Ask(ask) => ask.execute(),
        Command::Schedules(schedules) => schedules.execute(),
        Command::Attach(attach) => attach.execute(cli.log),
        Command::Stop(stop) => stop.execute(),
        Command::Ticket(ticket) => ticket.execute(),
        Command::Delegations(delegations) => delegations.execute(),
        Command::Session(session) => session.execute(),
        Command::Compact(compact) => compact.execute(),
        Command::Token(token) => token.execute(),
        Command::Drain(drain) => drain.execute(),
        Command::Reload(reload) => reload.execute(),
    };
    done.unwrap_or_else(|problem| problem.tell()).into()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_contradict_neither_each_other_nor_themselves() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_exit_code_is_in_the_help() {
        let help = Cli::command().render_long_help().to_string();
        for (code, meaning) in Code::TABLE {
            assert!(help.contains(&format!("{:>5}  {meaning}", code as u8)), "{help}");
        }
    }
}
