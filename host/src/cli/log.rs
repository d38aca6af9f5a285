//! The log, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::code::Code;
use super::problem::Problem;
use super::screen::Screen;
use super::setup::variable;

/// The variable that holds a filter.
const VARIABLE: &str = "CHECKREIN_LOG";

/// Starts to log, above the live line of the screen. `verbose` counts how often `-v` was given.
pub(super) fn start(screen: Screen, verbose: u8) -> Result<(), Problem> {
    let filter = match variable(VARIABLE).filter(|filter| !filter.is_empty()) {
        Some(filter) => EnvFilter::try_new(&filter).map_err(|error| {
            Problem::because(
                Code::Usage,
                format!("the filter in {VARIABLE} makes no sense: `{filter}`"),
                error,
            )
        })?,
        None => EnvFilter::new(match verbose {
            0 => "warn",
            1 => "warn,checkrein=info",
            2 => "info,checkrein=debug",
            _ => "debug,checkrein=trace",
        }),
    };
    let ansi = std::io::stderr().is_terminal()
        && variable("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(screen).with_ansi(ansi);
    let started = match verbose {
        0 | 1 => lines.compact().without_time().with_target(false).try_init(),
        _ => lines.compact().with_timer(tracing_subscriber::fmt::time::uptime()).try_init(),
    };
    started.map_err(|error| Problem::new(Code::Refused, format!("could not start to log: {error}")))
}
