//! What a run has said so far. It outlives the run's store, so that nothing said is lost (S12).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::store::Encode;

/// Bytes of either text that are kept; what comes later counts more, so the oldest goes first.
const KEPT: usize = 1 << 20;

/// Answers of tools that are kept; the oldest go first.
const MOST_ANSWERS: usize = 64;

/// Bytes of them together, and of the content of one.
const ANSWERS_KEPT: usize = 256 << 10;
const ANSWER_KEPT: usize = 64 << 10;

/// Characters of an id or a name.
const NAME_KEPT: usize = 200;

/// What a tool had answered in a run that did not come to its end, whether or not the agent had heard of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// The id of the call.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// As in a tool result.
    pub status: String,
    /// As in a tool result, at most 64 KiB of it.
    pub content: String,
}

impl ToolAnswer {
    /// About how many bytes of memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let ToolAnswer { id, tool, status, content } = self;
        size_of::<ToolAnswer>() + id.len() + tool.len() + status.len() + content.len()
    }
}

impl Encode for ToolAnswer {
    fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn weight(&self) -> usize {
        self.bytes()
    }
}

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
    /// What tools have answered, and how much that is.
    answers: VecDeque<Arc<ToolAnswer>>,
    answered: usize,
}

impl Said {
    fn keep(&mut self, answer: Arc<ToolAnswer>) {
        self.answered += answer.bytes();
        self.answers.push_back(answer);
        while self.answers.len() > MOST_ANSWERS || self.answered > ANSWERS_KEPT {
            let Some(oldest) = self.answers.pop_front() else { return };
            self.answered -= oldest.bytes();
        }
    }
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

    pub(super) fn tool_answered(
        &self,
        mut id: String,
        mut tool: String,
        status: &str,
        content: &str,
    ) -> Arc<ToolAnswer> {
        for name in [&mut id, &mut tool] {
            if let Some((end, _)) = name.char_indices().nth(NAME_KEPT) {
                name.truncate(end);
            }
        }
        let content = content[..content.floor_char_boundary(ANSWER_KEPT)].to_owned();
        let answer = Arc::new(ToolAnswer { id, tool, status: status.to_owned(), content });
        let mut said = self.lock();
        said.keep(Arc::clone(&answer));
        answer
    }

    /// What a run had said of which nothing but its journal is left.
    pub(super) fn keep(&self, answer: ToolAnswer) {
        self.lock().keep(Arc::new(answer));
    }

    /// What tools have answered, in the order of their answers.
    pub(super) fn answers(&self) -> Vec<ToolAnswer> {
        self.lock().answers.iter().map(|answer| ToolAnswer::clone(answer)).collect()
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
    fn the_newest_answers_of_tools_are_kept_and_bounded() {
        let record = Record::default();
        for n in 0..1_000 {
            record.tool_answered(n.to_string(), "tool".to_owned(), "ok", "short");
        }
        let ids: Vec<String> = record.answers().into_iter().map(|answer| answer.id).collect();
        assert_eq!(ids.len(), MOST_ANSWERS);
        assert_eq!((&*ids[0], &*ids[MOST_ANSWERS - 1]), ("936", "999"));
        for _ in 0..10 {
            record.tool_answered("i".repeat(1_000), "t".repeat(1_000), "ok", &"ä".repeat(1 << 20));
        }
        let answers = record.answers();
        assert!(answers.iter().map(ToolAnswer::bytes).sum::<usize>() <= ANSWERS_KEPT);
        let last = answers.last().unwrap();
        assert_eq!(last.content.len(), ANSWER_KEPT);
        assert_eq!((last.id.len(), last.tool.len()), (NAME_KEPT, NAME_KEPT));
    }

    #[test]
    fn the_newest_partial_text_takes_the_place_of_the_one_before() {
        let record = Record::default();
        record.partial("one page");
        record.partial("one page, and another");
        assert_eq!(record.said(), "one page, and another");
    }
}
