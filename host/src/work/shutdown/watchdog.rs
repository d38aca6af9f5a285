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
/// [`Shutdown::watched`](super::Shutdown::watched) has one that is armed by the first request. Keep it until the end of
/// `main`: what comes after the last step, such as taking the runtime down, can hang as well.
#[must_use = "dropping it disarms it"]
pub struct Watchdog {
    tell: mpsc::Sender<Word>,
}

/// What the thread that watches hears.
enum Word {
    /// It counts from now on.
    Arm,
    Disarm,
}

/// Arms a watchdog, once.
pub(super) struct Trigger {
    tell: mpsc::Sender<Word>,
}

impl Trigger {
    pub(super) fn pull(self) {
        // One that was dropped hears nothing.
        self.tell.send(Word::Arm).ok();
    }
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
        let watchdog = Watchdog::ready(tree, bound, say, end)?;
        watchdog.trigger().pull();
        Ok(watchdog)
    }

    /// The same, which watches once its trigger is pulled.
    pub(super) fn ready(
        tree: Tree,
        bound: Duration,
        say: impl FnOnce(&str) + Send + 'static,
        end: impl FnOnce() + Send + 'static,
    ) -> io::Result<Watchdog> {
        let (tell, told) = mpsc::channel::<Word>();
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
            let Ok(Word::Arm) = told.recv() else { return };
            if told.recv_timeout(bound).is_err_and(|none| none == RecvTimeoutError::Timeout) {
                // A witness that is gone or mute changes nothing.
                ask.send(()).ok();
                has_said.recv_timeout(LAST_WORDS).ok();
                end();
            }
        })?;
        Ok(Watchdog { tell })
    }

    /// What arms it. To be asked for once.
    pub(super) fn trigger(&self) -> Trigger {
        Trigger { tell: self.tell.clone() }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // One that has done what it is for hears nothing.
        self.tell.send(Word::Disarm).ok();
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
