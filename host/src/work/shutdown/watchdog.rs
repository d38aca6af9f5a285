//! What ends the process when a shutdown hangs.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::report::Piece;
use crate::work::Tree;
use crate::work::running::thread;

/// How long it may take to say what was alive: the tree or the sink may be what hangs.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends the process when it has not ended by itself in time, and says what was still alive (D6). It needs no async
/// runtime. Dropping it disarms it.
///
/// Arm it when the shutdown begins, with a little more time than [`Bounds::total`](super::Bounds::total), and keep it
/// until the end of `main`: what comes after the last step, such as taking the runtime down, can hang as well.
#[must_use = "dropping it disarms it"]
pub struct Watchdog {
    /// Never sent to. Its drop is what disarms.
    _armed: mpsc::Sender<()>,
}

impl Watchdog {
    /// Starts to watch. After `bound`, `say` hears what is alive in the tree, and then `end` ends the process, also when
    /// `say` panics or does not return within a second. If `end` returns, nothing more is done.
    ///
    /// # Errors
    ///
    /// When the operating system does not give the two threads that this takes.
    pub fn arm(
        tree: Tree,
        bound: Duration,
        say: impl FnOnce(&str) + Send + 'static,
        end: impl FnOnce() + Send + 'static,
    ) -> io::Result<Watchdog> {
        let (armed, disarmed) = mpsc::channel::<()>();
        let (ask, asked) = mpsc::channel::<()>();
        let (said, has_said) = mpsc::channel::<()>();
        // Both threads are there before they are needed: later there may be none to be had.
        thread("shutdown-witness", move || {
            // Its drop says that it is done, however it ends.
            let _said = said;
            if asked.recv().is_ok() {
                say(&last_words(&tree, bound));
            }
        })?;
        thread("shutdown-watchdog", move || {
            if disarmed.recv_timeout(bound) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            // A witness that is gone or mute changes nothing.
            ask.send(()).ok();
            has_said.recv_timeout(LAST_WORDS).ok();
            end();
        })?;
        Ok(Watchdog { _armed: armed })
    }
}

fn last_words(tree: &Tree, bound: Duration) -> String {
    let alive = Piece::all(&tree.snapshot(tree.root()));
    let mut words = format!(
        "the shutdown has not ended after {:.1} s; the process is ended with this still alive:",
        bound.as_secs_f64()
    );
    if alive.is_empty() {
        words.push_str("\n  no work");
    }
    for piece in alive {
        words.push_str(&format!("\n  {piece}"));
    }
    words
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").finish_non_exhaustive()
    }
}
