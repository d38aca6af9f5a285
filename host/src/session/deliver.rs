//! From a completion to the turn that brings it to its session.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::json;

use super::fit::fit;
use super::session::{PromptError, Session, Shared};
use crate::delegation::{Completion, UnitStatus};

/// Bytes of the results that a turn is told.
const TOLD: usize = 1 << 20;

/// Brings the oldest completion to the session as a turn, as soon as the session is idle (C7). Every unit that ends
/// calls this once, so that all are brought, in the order of ending. It is acknowledged when its turn has begun.
pub(super) async fn deliver(shared: Arc<Shared>) {
    let session = Session { shared };
    let shared = &session.shared;
    let _place = shared.line.lock().await;
    loop {
        let mut idle = std::pin::pin!(shared.idle.notified());
        idle.as_mut().enable();
        // Somebody may have read it while this one waited.
        let Some(completion) = shared.background.completions.list().into_iter().next() else {
            return;
        };
        let most = usize::try_from(shared.agent.plugged.effective.limits.call_bytes / 4);
        let (goal, input) = told(&completion, most.unwrap_or(TOLD).min(TOLD));
        match session.prompt_for(goal, input, Some(completion.id)) {
            Ok(_turn) => return,
            Err(PromptError::Busy { .. }) => idle.await,
            // The session takes no new work; the completion stays listed.
            Err(PromptError::Refused(_)) => return,
        }
    }
}

/// A completion in words for a model, and as JSON for code.
fn told(completion: &Completion, most: usize) -> (String, String) {
    let mut entries = completion.entries.clone();
    fit(&mut entries, most);
    let how = match completion.status {
        UnitStatus::Completed => "has ended",
        UnitStatus::Interrupted => "was interrupted",
        UnitStatus::Unknown => "was lost in part",
    };
    let mut words = format!("Delegation {} {how}.", completion.id);
    for (entry, goal) in entries.iter().zip(&completion.goals) {
        let _ = write!(words, "\n\nTask {} ({goal}): {}", entry.task, entry.status);
        if !entry.detail.is_empty() {
            let _ = write!(words, " ({})", entry.detail);
        }
        if !entry.output.is_empty() {
            let _ = write!(words, "\n{}", entry.output);
        }
    }
    let results: Vec<_> = entries
        .iter()
        .map(|entry| {
            json!({
                "task": entry.task,
                "status": entry.status.as_str(),
                "output": entry.output,
                "detail": entry.detail,
            })
        })
        .collect();
    let input = json!({ "delegation": {
        "id": completion.id.to_string(),
        "status": completion.status.as_str(),
        "results": results,
    } });
    (words, input.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delegation::{ChildStatus, DelegationId, TaskOutcome};
    use crate::ids::SessionId;

    #[test]
    fn a_completion_is_told_in_words_and_as_json() {
        let entry = |task, status, output: &str, detail: &str| TaskOutcome {
            task,
            status,
            output: output.to_owned(),
            detail: detail.to_owned(),
        };
        let completion = Completion {
            id: DelegationId(7),
            origin: SessionId("s1".to_owned()),
            status: UnitStatus::Completed,
            entries: vec![
                entry(0, ChildStatus::Completed, "four", ""),
                entry(2, ChildStatus::Trapped, "", "the guest broke off: x"),
            ],
            goals: vec!["two and two".to_owned(), "count".to_owned()],
        };
        let (words, input) = told(&completion, 1_000);
        assert_eq!(
            words,
            "Delegation d7 has ended.\n\nTask 0 (two and two): completed\nfour\n\n\
             Task 2 (count): trapped (the guest broke off: x)"
        );
        let input: serde_json::Value = serde_json::from_str(&input).unwrap();
        assert_eq!(input["delegation"]["results"][1]["status"], "trapped");
    }
}
