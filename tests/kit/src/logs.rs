//! What guests wrote to their log.

use std::sync::Arc;

use tokio::sync::watch;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its level.
    pub level: String,
    /// The plugin that wrote it.
    pub plugin: String,
    /// The line.
    pub text: String,
}

/// The lines of all sessions of one host. Clones are the same log.
#[derive(Debug, Clone)]
pub struct Logs {
    lines: Arc<watch::Sender<Vec<Line>>>,
}

/// A flood must not fill the memory of the test.
const KEPT: usize = 10_000;

impl Logs {
    pub(crate) fn new() -> Logs {
        Logs { lines: Arc::new(watch::Sender::new(Vec::new())) }
    }

    pub(crate) fn sink(&self) -> impl Fn(&str, &str, &str) + Send + Sync + 'static {
        let lines = Arc::clone(&self.lines);
        move |level, plugin, text| {
            lines.send_if_modified(|lines| {
                let room = lines.len() < KEPT;
                if room {
                    let (level, plugin, text) = (level.to_owned(), plugin.to_owned(), text.to_owned());
                    lines.push(Line { level, plugin, text });
                }
                room
            });
        }
    }

    /// Waits until that many lines with this text have been written.
    pub async fn written(&self, text: &str, count: usize) {
        let mut lines = self.lines.subscribe();
        let wanted = |lines: &Vec<Line>| lines.iter().filter(|line| line.text == text).count() >= count;
        // Never an error: the sender lives in `self`, so that the channel cannot close.
        let _closed = lines.wait_for(wanted).await.is_err();
    }

    /// All lines so far, at most ten thousand.
    pub fn lines(&self) -> Vec<Line> {
        self.lines.borrow().clone()
    }
}
