//! The log, on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use super::code::Code;
use super::problem::Problem;
use super::screen::Screen;
use super::setup::variable;
use super::telemetry::Export;

/// The variable that holds a filter.
const VARIABLE: &str = "CHECKREIN_LOG";

/// The variable that says how lines are written.
const FORMAT: &str = "CHECKREIN_LOG_FORMAT";

/// What is logged, and how.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Log {
    /// Log more; twice and thrice for more still. CHECKREIN_LOG takes a filter in its place, such as `checkrein=debug`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// How lines of the log are written; left out: as CHECKREIN_LOG_FORMAT says, else as text.
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<Format>,
}

/// How lines of the log are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// One JSON object a line, with the spans that it was written in.
    Json,
}

impl Log {
    /// Starts to log, above the live line of the screen.
    pub(super) fn start(self, screen: Screen) -> Result<(), Problem> {
        self.start_with(screen, &Export::nothing())
    }

    /// The same, with spans on their way to a collector.
    pub(super) fn start_with(self, screen: Screen, export: &Export) -> Result<(), Problem> {
        let format = self.format()?;
        let filter = self.filter(format)?;
        let ansi = std::io::stderr().is_terminal()
            && variable("NO_COLOR").is_none_or(|value| value.is_empty());
        let lines = fmt::layer().with_writer(screen);
        let lines = match (format, self.verbose) {
            (Format::Json, _) => lines.with_ansi(false).json().boxed(),
            (Format::Text, 0 | 1) => {
                lines.with_ansi(ansi).compact().without_time().with_target(false).boxed()
            }
            (Format::Text, _) => {
                lines.with_ansi(ansi).compact().with_timer(fmt::time::uptime()).boxed()
            }
        };
        registry().with(export.layer()).with(lines.with_filter(filter)).try_init().map_err(
            |error| Problem::new(Code::Refused, format!("could not start to log: {error}")),
        )
    }

    fn format(self) -> Result<Format, Problem> {
        if let Some(format) = self.log_format {
            return Ok(format);
        }
        let Some(named) = variable(FORMAT).filter(|named| !named.is_empty()) else {
            return Ok(Format::Text);
        };
        Format::from_str(&named, false).map_err(|_| {
            let words = format!("the format in {FORMAT} makes no sense: `{named}`");
            Problem::new(Code::Usage, words).advise("it is `text` or `json`")
        })
    }

    fn filter(self, format: Format) -> Result<EnvFilter, Problem> {
        let Some(filter) = variable(VARIABLE).filter(|filter| !filter.is_empty()) else {
            return Ok(EnvFilter::new(match (self.verbose, format) {
                // The spans of work are part of each line that is written inside them.
                (0, Format::Json) => "warn,checkrein::run=info",
                (0, Format::Text) => "warn",
                (1, _) => "warn,checkrein=info",
                (2, _) => "info,checkrein=debug",
                _ => "debug,checkrein=trace",
            }));
        };
        EnvFilter::try_new(&filter).map_err(|error| {
            let attempt = format!("the filter in {VARIABLE} makes no sense: `{filter}`");
            Problem::because(Code::Usage, attempt, error)
        })
    }
}
