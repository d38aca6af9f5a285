//! From a completion to the turn that brings it to its session.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::fit::fit;
use super::session::{Brings, PromptError, Session, Shared};
use crate::delegation::{Completion, DelegationId, UnitStatus};
use crate::sandbox::Outcome;

/// Bytes of the results that a turn is told.
const TOLD: usize = 1 << 20;

/// How long a completion waits for another attempt at its turn where there was no place to run it or no way to record it: at
/// first, and at most.
const AGAIN: Duration = Duration::from_secs(1);
const MOST_AGAIN: Duration = Duration::from_secs(60);

/// Brings completions to the session as turns, the oldest first, as soon as the session is idle (C7), until none is
/// left, or a person has stopped the session. Each is acknowledged when its turn is over. One whose turn could not be started stays listed; where that was for
/// want of a place, it is tried again.
pub(super) async fn deliver(shared: Arc<Shared>) {
    let session = Session { shared };
    // The one that could not be brought last time, and how long to wait before the next.
    let (mut tried, mut pause) = (None, AGAIN);
    loop {
        match next(&session, tried).await {
            Brought::Nothing => return,
            Brought::One => (tried, pause) = (None, AGAIN),
            // Nobody else stands behind it in line meanwhile.
            Brought::NotNow(unit) => {
                tokio::time::sleep(pause).await;
                (tried, pause) = (Some(unit), (pause * 2).min(MOST_AGAIN));
            }
        }
    }
}

/// What came of an attempt.
enum Brought {
    /// There is nothing to bring, or nobody to bring it to.
    Nothing,
    /// It was brought, or somebody has read it meanwhile.
    One,
    /// It could not be brought now, and may be later.
    NotNow(DelegationId),
}

/// Brings the oldest completion, when it is its turn.
async fn next(session: &Session, tried: Option<DelegationId>) -> Brought {
    let shared = &session.shared;
    let _place = shared.line.lock().await;
    let (turn, unit) = loop {
        let mut idle = std::pin::pin!(shared.idle.notified());
        idle.as_mut().enable();
        // Somebody may have read it while this one waited.
        let Some(completion) = shared.completions.list().into_iter().next() else {
            return Brought::Nothing;
        };
        let unit = completion.id;
        let (goal, input) = told(&completion, shared.agent().plugged.effective.limits.call_bytes);
        let brings = Brings { unit, counts: tried != Some(unit) };
        match session.prompt_for(goal, input, Some(brings)) {
            Ok(turn) => break (turn, unit),
            Err(PromptError::Busy { .. }) => idle.await,
            // The completion stays listed.
            Err(PromptError::Quiet | PromptError::Refused(_)) => return Brought::Nothing,
        }
    };
    let report = turn.over().await;
    let is_pending = || shared.completions.pending(unit).is_some();
    match (report.outcome, report.unrecorded) {
        (Outcome::NoPlace, _) => Brought::NotNow(unit),
        // Whoever has read it meanwhile has it.
        (Outcome::NotStarted(_), _) if !is_pending() => Brought::One,
        // Where the store takes no writes now it may later.
        (Outcome::NotStarted(_), Some(error)) if error.may_pass() => Brought::NotNow(unit),
        (Outcome::NotStarted(_), _) => Brought::Nothing,
        // Acknowledged with the end of the turn, in one, when that is recorded.
        (_, Some(_)) => {
            while is_pending() {
                tokio::time::sleep(AGAIN).await;
            }
            Brought::One
        }
        (_, None) => Brought::One,
    }
}

/// A completion in words for a model, and as JSON for code: both together fit into one call with room to spare.
fn told(completion: &Completion, call_bytes: u64) -> (String, String) {
    let room = usize::try_from(call_bytes / 2).unwrap_or(usize::MAX);
    let mut most = TOLD.min(room);
    loop {
        let (goal, input) = composed(completion, most);
        // Text may be several times as long as JSON.
        if goal.len() + input.len() <= room || most == 0 {
            return (goal, input);
        }
        most /= 2;
    }
}

/// Both forms, with outputs of at most `most` bytes together.
fn composed(completion: &Completion, most: usize) -> (String, String) {
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
            origin: SessionId::new("s1"),
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

    #[test]
    fn what_grows_as_json_fits_all_the_same() {
        let output = "\u{1}".repeat(100_000);
        let (status, detail) = (ChildStatus::Completed, String::new());
        let completion = Completion {
            id: DelegationId(1),
            origin: SessionId::new("s1"),
            status: UnitStatus::Completed,
            entries: vec![TaskOutcome { task: 0, status, output, detail }],
            goals: vec!["noise".to_owned()],
        };
        let (words, input) = told(&completion, 400_000);
        assert!(words.len() + input.len() <= 200_000, "{} {}", words.len(), input.len());
        assert!(words.contains("the output was cut to 25000 of 100000 bytes"), "{}", words.len());
    }
}
