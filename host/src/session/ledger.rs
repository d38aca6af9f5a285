//! The record of a delegating call: what was accepted and how it ended, in the journal of the session.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};

use super::event::EventKind;
use super::session::Shared;
use super::stream::Entry;
use crate::delegation::{Completion, DelegationId, RecordError, Recorder, Seen, UnitRequest};
use crate::store::{Body, Change, Class, Encode};

/// Writes down what becomes of the units of one call.
pub(super) struct Ledger {
    /// The run that made the call.
    pub(super) run: Arc<str>,
    pub(super) session: Arc<Shared>,
    /// The runs of all tasks of the call, by the place of the task.
    pub(super) children: Arc<[Arc<str>]>,
}

/// What is written down of a unit that is accepted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Accepted {
    /// The run that handed it out.
    pub(super) run: Arc<str>,
    /// The places of its tasks in the call.
    pub(super) tasks: Vec<u32>,
    /// What each of them is, in a few words.
    pub(super) goals: Vec<String>,
    /// The run of each of them.
    pub(super) children: Vec<Arc<str>>,
}

impl Recorder for Ledger {
    fn accepted(&self, unit: &UnitRequest) -> BoxFuture<'static, Result<(), RecordError>> {
        let child = |task: &u32| self.children.get(*task as usize).cloned().unwrap_or_default();
        let accepted = Accepted {
            run: Arc::clone(&self.run),
            tasks: unit.tasks.clone(),
            goals: unit.goals.clone(),
            children: unit.tasks.iter().map(child).collect(),
        };
        let change =
            Change::UnitAccepted { unit: unit.id.number(), body: Body::Later(Arc::new(accepted)) };
        // The embedder's first: it may still say no.
        let asked = self.session.background.recorder.accepted(unit);
        let session = Arc::clone(&self.session);
        async move {
            asked.await?;
            let recorded = session.stream.record(Class::Promise, [Entry::Change(change)]).await;
            recorded.map(drop).map_err(|error| RecordError { words: error.to_string() })
        }
        .boxed()
    }

    fn withdrawn(&self, unit: DelegationId) {
        self.session.stream.change(Change::UnitWithdrawn { unit: unit.number() });
        self.session.background.recorder.withdrawn(unit);
    }

    fn ended(&self, completion: &Arc<Completion>, seen: Seen) {
        let (session, run) = (Arc::clone(&self.session), Arc::clone(&self.run));
        let written = Arc::clone(completion);
        // Result and completion in one, and seen by nobody before.
        let record = Seen::new(move || {
            let told = EventKind::DelegationEnded {
                delegation: written.id.to_string(),
                status: written.status.as_str().to_owned(),
            };
            let unit = written.id.number();
            let ended = Change::UnitEnded { unit, body: Body::Later(written) };
            let entries = [Entry::Change(ended), Entry::Event(run, told)];
            // Who waits for it sees the completion.
            drop(session.stream.record_then(Class::Owed, entries, || seen.now()));
        });
        self.session.background.recorder.ended(completion, record);
    }
}

impl Encode for Accepted {
    fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn weight(&self) -> usize {
        let texts: usize = self.goals.iter().map(String::len).sum();
        let names: usize = self.children.iter().map(|name| name.len()).sum();
        texts + names + self.tasks.len() * size_of::<(u32, String, Arc<str>)>()
    }
}

impl Encode for Completion {
    fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn weight(&self) -> usize {
        let entry = |entry: &crate::delegation::TaskOutcome| {
            size_of_val(entry) + entry.output.len() + entry.detail.len()
        };
        self.entries.iter().map(entry).sum::<usize>()
            + self.goals.iter().map(String::len).sum::<usize>()
    }
}

impl Encode for crate::delegation::TaskOutcome {
    fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn weight(&self) -> usize {
        self.output.len() + self.detail.len()
    }
}
