//! Standard error while something goes on: lines that stay, and below them, on a terminal, one that lives.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::fmt::MakeWriter;

use super::code::Code;
use super::problem::Problem;

/// How often the live line is drawn anew.
pub(super) const REDRAW: Duration = Duration::from_millis(100);

/// Makes a terminal on standard output empty, for what is drawn anew.
///
/// # Errors
///
/// When it cannot be written.
pub(super) fn clear_terminal() -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    out.write_all(b"\x1b[H\x1b[2J").and_then(|()| out.flush()).map_err(|error| {
        Problem::because(Code::Failed, "could not write to standard output", error)
    })
}

/// Standard error. Cheap to clone; every clone is the same screen.
///
/// Nothing here fails: where standard error cannot be written nobody is there to read.
#[derive(Debug, Clone)]
pub(super) struct Screen {
    /// Hidden, and then without effect, where there is no terminal.
    live: ProgressBar,
}

impl Screen {
    /// A screen with a live line, if standard error is a terminal.
    pub(super) fn live() -> Screen {
        let live = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            live.set_style(style.tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "));
        }
        Screen { live }
    }

    /// A screen with nothing but lines.
    pub(super) fn plain() -> Screen {
        Screen { live: ProgressBar::hidden() }
    }

    /// Whether somebody sees the live line.
    pub(super) fn is_live(&self) -> bool {
        !self.live.is_hidden() && !self.live.is_finished()
    }

    /// Writes a line that stays.
    pub(super) fn line(&self, text: &str) {
        self.put(format!("{text}\n").as_bytes());
    }

    /// Says what the live line shows.
    pub(super) fn status(&self, text: String) {
        self.live.set_message(text);
        self.live.tick();
    }

    /// Takes the live line away for good.
    pub(super) fn clear(&self) {
        self.live.finish_and_clear();
    }

    fn put(&self, bytes: &[u8]) {
        self.live.suspend(|| io::stderr().lock().write_all(bytes).ok());
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Screen {
    type Writer = Screen;

    fn make_writer(&'a self) -> Screen {
        self.clone()
    }
}
