//! A session as its store has it: read before it is opened again.

use std::sync::Arc;

use super::memory::Memory;
use super::session::{MOST_BYTES, REMEMBERED};
use super::turn::State;
use crate::delegation::{Completion, Completions, DelegationId, UnitStatus};
use crate::ids::SessionId;
use crate::message::Message;
use crate::store::{Encode, Store, StoreError, UnitRow, UnitState};

/// Units that were acknowledged and can still be asked for.
const READ: usize = 1_024;

/// How often the completion of a unit is brought to its session as a turn. One that was brought so often without an end
/// stays listed, and waits until somebody prompts the session: a turn may be what ends the host.
const MOST_DELIVERIES: u32 = 3;

/// What a session goes on from.
#[derive(Debug, Default)]
pub struct Restored {
    pub(super) generation: u64,
    pub(super) last_seq: u64,
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) memory: Memory,
    pub(super) completions: Completions,
    /// Completions do not wake it until somebody prompts it.
    pub(super) quiet: bool,
}

impl Restored {
    /// What there is of a session that was created.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn read(store: &dyn Store, id: &SessionId) -> Result<Restored, StoreError> {
        let row = store.session(id).await?;
        let messages = store.messages(id, REMEMBERED, MOST_BYTES).await?;
        let memory = store.memory(id).await?;
        let units = store.units(id, READ).await?;
        let damaged = |what: &str, error: serde_json::Error| {
            StoreError::Corrupt(format!("{what} of session {id} cannot be read: {error}"))
        };
        let message = |body: &str| serde_json::from_str(body).map(Arc::new);
        let messages = messages.iter().map(|row| message(&row.body));
        let messages = messages.collect::<Result<Vec<_>, _>>();
        let (mut pending, mut read, mut quiet) = (Vec::new(), Vec::new(), false);
        for unit in units.iter().filter(|unit| unit.state != UnitState::Accepted) {
            let completion = completion(unit).map_err(|error| damaged("a completion", error))?;
            let place = (unit.ended, completion.id);
            if unit.state == UnitState::Ended {
                quiet |= unit.deliveries >= MOST_DELIVERIES;
                pending.push((place, completion));
            } else {
                read.push((place, completion.status));
            }
        }
        pending.sort_by_key(|(place, _)| *place);
        read.sort_by_key(|(place, _)| *place);
        let read = read.into_iter().map(|((_, id), status)| (id, status));
        Ok(Restored {
            generation: row.generation,
            last_seq: row.last_seq,
            messages: messages.map_err(|error| damaged("a message", error))?,
            memory: Memory::restored(memory),
            completions: Completions::restored(
                pending.into_iter().map(|(_, completion)| completion),
                read.collect::<Vec<(DelegationId, UnitStatus)>>(),
            ),
            quiet,
        })
    }

    pub(super) fn state(&self) -> State {
        State::after(self.generation)
    }
}

/// The completion of a unit that has ended.
fn completion(unit: &UnitRow) -> Result<Completion, serde_json::Error> {
    let body = unit.completion.as_deref().unwrap_or_default();
    // A session that was imported has another name than the one that it was written down for, and other numbers.
    let completion: Completion = serde_json::from_str(body)?;
    Ok(completion.of(DelegationId::new(unit.unit), unit.session.clone()))
}

impl Encode for Message {
    fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn weight(&self) -> usize {
        let calls = self.tool_calls.iter();
        let calls: usize = calls.map(|call| call.name.len() + call.arguments.len()).sum();
        self.text.len() + calls
    }
}
