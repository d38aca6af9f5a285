//! What a run can hand out of what it has left.

use std::sync::Arc;
use std::time::Duration;

use super::meter::Meter;

/// What a run has left, and the way to hand parts of it to others. What is handed out counts as used by the run, so
/// that it and those it hands to can never use more than it was given.
#[derive(Debug, Clone)]
pub struct Purse {
    meter: Arc<Meter>,
}

/// What a run has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOver {
    /// Units of fuel; none for no bound.
    pub fuel: Option<u64>,
    /// Tokens of model requests and answers; none for no bound.
    pub model_tokens: Option<u64>,
    /// Time to the end of the run; none for no bound.
    pub wall_time: Option<Duration>,
}

impl Purse {
    pub(super) fn new(meter: Arc<Meter>) -> Purse {
        Purse { meter }
    }

    /// What is left now.
    pub fn left(&self) -> LeftOver {
        LeftOver {
            fuel: self.meter.fuel_left(),
            model_tokens: self.meter.tokens_left(),
            wall_time: self.meter.time_left(),
        }
    }

    /// Hands out that much. It is used up from the side of the run, until it is given back.
    pub fn take(&self, fuel: u64, model_tokens: u64) {
        self.meter.hand_out_fuel(fuel);
        self.meter.charge_tokens(model_tokens);
    }

    /// Takes back what was handed out and not used.
    pub fn give_back(&self, fuel: u64, model_tokens: u64) {
        self.meter.take_back_fuel(fuel);
        self.meter.take_back_tokens(model_tokens);
    }
}
