//! Where it is written down that a unit was accepted, and how it ended.

use super::id::DelegationId;
use super::outcome::Completion;
use super::scheduler::UnitRequest;

/// Writes down what was promised. A panic in it counts as an error.
pub trait Recorder: Send + Sync {
    /// A unit is about to be accepted: it has its slot, and its children are still the turn's.
    ///
    /// # Errors
    ///
    /// When it is not written; the unit is then rejected (A2).
    fn accepted(&self, unit: &UnitRequest) -> Result<(), RecordError>;

    /// A unit that was written down as accepted has been rejected after all.
    fn withdrawn(&self, unit: DelegationId);

    /// A unit has ended, and nobody has seen it yet. Not called for a unit whose supervisor was lost: the record
    /// then shows it as accepted and not ended.
    ///
    /// # Errors
    ///
    /// When it is not written. The completion is delivered all the same.
    fn ended(&self, completion: &Completion) -> Result<(), RecordError>;
}

/// Writes nothing down: what is in memory is all there is.
#[derive(Debug, Clone, Copy, Default)]
pub struct InMemory;

impl Recorder for InMemory {
    fn accepted(&self, _unit: &UnitRequest) -> Result<(), RecordError> {
        Ok(())
    }

    fn withdrawn(&self, _unit: DelegationId) {}

    fn ended(&self, _completion: &Completion) -> Result<(), RecordError> {
        Ok(())
    }
}

/// Something was not written down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct RecordError {
    /// Why, in words.
    pub words: String,
}
