//! What a run has said so far. It outlives the run's store, so that nothing said is lost (S12).

use std::sync::{Mutex, PoisonError};

/// Bytes of either text that are kept; what comes later counts more, so the oldest goes first.
const KEPT: usize = 1 << 20;

/// What one run has said.
#[derive(Debug, Default)]
pub(super) struct Record {
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    /// What the agent itself declared to be its result so far; the newest takes the place of the one before.
    partial: String,
    /// The text of the model answer that is streaming, or was the last to stream.
    streaming: String,
}

impl Record {
    pub(super) fn partial(&self, text: &str) {
        let partial = &mut self.lock().partial;
        partial.clear();
        append(partial, text);
    }

    pub(super) fn model_begins(&self) {
        self.lock().streaming.clear();
    }

    pub(super) fn model_text(&self, text: &str) {
        append(&mut self.lock().streaming, text);
    }

    /// What there is to show for a run that did not come to an end: its own partial text, else what its model
    /// was saying.
    pub(super) fn said(&self) -> String {
        let said = self.lock();
        if said.partial.is_empty() { said.streaming.clone() } else { said.partial.clone() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn append(kept: &mut String, text: &str) {
    kept.push_str(text);
    if kept.len() > KEPT {
        let cut = (kept.len() - KEPT..kept.len())
            .find(|at| kept.is_char_boundary(*at))
            .unwrap_or(kept.len());
        kept.drain(..cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_text_goes_before_streamed_text_and_is_bounded() {
        let record = Record::default();
        record.model_begins();
        record.model_text("thinking");
        assert_eq!(record.said(), "thinking");
        record.partial(&format!("ä{}", "x".repeat(KEPT - 1)));
        assert_eq!(record.said().len(), KEPT - 1);
        assert!(record.said().starts_with('x'));
    }

    #[test]
    fn the_newest_partial_text_takes_the_place_of_the_one_before() {
        let record = Record::default();
        record.partial("one page");
        record.partial("one page, and another");
        assert_eq!(record.said(), "one page, and another");
    }
}
