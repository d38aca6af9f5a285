//! What guests wrote to their log.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

/// How many lines are kept, and how many different ones are counted: a flood must not fill the memory of the test.
const KEPT: usize = 10_000;

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
    written: Arc<watch::Sender<Written>>,
}

#[derive(Debug, Default)]
struct Written {
    /// The newest lines.
    lines: VecDeque<Line>,
    /// How often each text was written. Only grows.
    counts: HashMap<String, usize>,
}

impl Logs {
    pub(crate) fn new() -> Logs {
        Logs { written: Arc::new(watch::Sender::new(Written::default())) }
    }

    pub(crate) fn sink(&self) -> impl Fn(&str, &str, &str) + Send + Sync + 'static {
        let written = Arc::clone(&self.written);
        move |level, plugin, text| written.send_modify(|written| written.add(level, plugin, text))
    }

    /// Waits until that many lines with this text have been written.
    pub async fn written(&self, text: &str, count: usize) {
        let mut written = self.written.subscribe();
        let wanted =
            |written: &Written| written.counts.get(text).is_some_and(|times| *times >= count);
        // Never an error: the sender lives in `self`, so that the channel cannot close.
        let _closed = written.wait_for(wanted).await.is_err();
    }

    /// The newest lines, at most ten thousand.
    pub fn lines(&self) -> Vec<Line> {
        self.written.borrow().lines.iter().cloned().collect()
    }
}

impl Written {
    fn add(&mut self, level: &str, plugin: &str, text: &str) {
        if let Some(times) = self.counts.get_mut(text) {
            *times += 1;
        } else if self.counts.len() < KEPT {
            self.counts.insert(text.to_owned(), 1);
        }
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        let (level, plugin, text) = (level.to_owned(), plugin.to_owned(), text.to_owned());
        self.lines.push_back(Line { level, plugin, text });
    }
}
