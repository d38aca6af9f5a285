//! Standard error while something goes on: lines that stay, and below them, on a terminal, one that lives.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::fmt::MakeWriter;

use super::code::Code;
use super::problem::Problem;
use super::text;

/// How often the live line is drawn anew.
pub(super) const REDRAW: Duration = Duration::from_millis(100);

/// Draws a page on the terminal on standard output, in place of what is there. Lines and columns that it has no room for are
/// left out, so that nothing is broken into two lines and nothing rolls away.
///
/// # Errors
///
/// When it cannot be written.
pub(super) fn draw(page: &str) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    // A terminal that does not know how large it is says 0.
    let size = rustix::termios::tcgetwinsize(&out).ok();
    let room = |length: u16| if length == 0 { usize::MAX } else { length.into() };
    let (rows, columns) =
        size.map_or((usize::MAX, usize::MAX), |size| (room(size.ws_row), room(size.ws_col)));
    let frame = frame(&text::shown(page), rows, columns);
    out.write_all(frame.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        Problem::because(Code::Failed, "could not write to standard output", error)
    })
}

/// The page as a terminal takes it: from its upper left corner, with the rest of each line and of the screen made empty. Of a page
/// that is too long the last line stays.
fn frame(page: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<&str> = page.lines().collect();
    // The cursor stands below the last one.
    let room = rows.saturating_sub(1).max(2);
    let mut out = "\x1b[H".to_owned();
    let mut put = |line: &str| {
        out.extend(line.chars().take(columns));
        out.push_str("\x1b[K\n");
    };
    match lines.split_last() {
        Some((last, lines)) if lines.len() >= room => {
            let shown = room - 2;
            lines[..shown].iter().for_each(|line| put(line));
            put(&format!("… {} more", lines.len() - shown));
            put(last);
        }
        Some(_) | None => lines.iter().for_each(|line| put(line)),
    }
    out.push_str("\x1b[J");
    out
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fits_on_its_terminal() {
        let page = "one\ntwo is long\nthree\nfour\nlast\n";
        let all = "\x1b[Hone\x1b[K\ntwo is long\x1b[K\nthree\x1b[K\nfour\x1b[K\nlast\x1b[K\n\x1b[J";
        assert_eq!(frame(page, usize::MAX, usize::MAX), all);
        assert_eq!(frame(page, 6, 80), all);
        let cut = "\x1b[Hone\x1b[K\ntwo \x1b[K\n… 2 \x1b[K\nlast\x1b[K\n\x1b[J";
        assert_eq!(frame(page, 5, 4), cut);
        assert_eq!(frame(page, 1, 80), "\x1b[H… 4 more\x1b[K\nlast\x1b[K\n\x1b[J");
        assert_eq!(frame("", 24, 80), "\x1b[H\x1b[J");
    }
}
