//! What one run has used, counted where it is used and read by whoever wants to know.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::limits::{LimitKind, Limits, Reached, ReachedCell};
use crate::work::{BudgetUse, Gauge};

/// Nothing of the guest's code has run yet.
const STARTING: u8 = 0;
/// The guest's own code runs, or waits for a processor.
const IN_GUEST: u8 = 1;
/// The guest is inside a host call.
const IN_HOST: u8 = 2;

/// The counters of one run beside their limits. Outlives the store, so that a run that was cut can still say
/// what it had used.
#[derive(Debug)]
pub(super) struct Meter {
    limits: Limits,
    started: Instant,
    memory: AtomicU64,
    memory_peak: AtomicU64,
    table_elements: AtomicU64,
    fuel: AtomicU64,
    /// Fuel that was handed to others during the host call that the guest is in, and fuel that came back. The store
    /// still has the one and lacks the other.
    handed_out: AtomicU64,
    handed_back: AtomicU64,
    /// Fuel that went to others, less what came back, over the whole run.
    with_others: AtomicU64,
    door_bytes: AtomicU64,
    log_bytes: AtomicU64,
    model_tokens: AtomicU64,
    calls: AtomicU64,
    /// Where the run is: [`STARTING`], [`IN_GUEST`] or [`IN_HOST`].
    place: AtomicU8,
    last_call: Mutex<&'static str>,
    /// The limits that the guest came up against.
    reached: ReachedCell,
    /// Those of them that the guest was refused something for and has got nothing of since. They explain why it then
    /// gives up.
    refused: ReachedCell,
    /// Of a run in a process of its own: what that process told last of what it counts there.
    told: Mutex<Tally>,
    /// Tokens are counted by the side above, which tells how many there are.
    tokens_are_told: bool,
}

/// What a run in a process of its own counts there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Tally {
    /// Fuel that the guest itself has burnt.
    pub(super) fuel: u64,
    memory: u64,
    memory_peak: u64,
    door_bytes: u64,
    log_bytes: u64,
    calls: u64,
}

impl Meter {
    /// That of a run in this process, which is a process of its own for it: the side above counts the tokens.
    pub(super) fn told_of_tokens(limits: Limits) -> Meter {
        Meter { tokens_are_told: true, ..Meter::new(limits) }
    }

    /// How many tokens the side above has counted.
    pub(super) fn tell_tokens(&self, tokens: u64) {
        self.model_tokens.store(tokens, Ordering::Relaxed);
    }

    /// How many tokens were used.
    pub(super) fn tokens(&self) -> u64 {
        self.model_tokens.load(Ordering::Relaxed)
    }

    /// What is counted here.
    pub(super) fn tally(&self) -> Tally {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Tally {
            fuel: read(&self.fuel).saturating_sub(read(&self.with_others)),
            memory: read(&self.memory),
            memory_peak: read(&self.memory_peak),
            door_bytes: read(&self.door_bytes),
            log_bytes: read(&self.log_bytes),
            calls: read(&self.calls),
        }
    }

    /// Takes what the process of the run has counted. No figure goes back, whatever it says.
    pub(super) fn tell(&self, tally: Tally) -> Result<(), LimitKind> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.fuel.fetch_add(tally.fuel.saturating_sub(told.fuel), Ordering::Relaxed);
        *told = Tally {
            fuel: told.fuel.max(tally.fuel),
            memory: tally.memory,
            memory_peak: told.memory_peak.max(tally.memory_peak),
            door_bytes: told.door_bytes.max(tally.door_bytes),
            log_bytes: told.log_bytes.max(tally.log_bytes),
            calls: told.calls.max(tally.calls),
        };
        let used = self.fuel.load(Ordering::Relaxed);
        let over = self.limits.fuel.is_some_and(|limit| used > limit);
        if over { Err(LimitKind::Fuel) } else { Ok(()) }
    }

    fn told(&self) -> Tally {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new(limits: Limits) -> Meter {
        Meter {
            limits,
            started: Instant::now(),
            memory: AtomicU64::new(0),
            memory_peak: AtomicU64::new(0),
            table_elements: AtomicU64::new(0),
            fuel: AtomicU64::new(0),
            handed_out: AtomicU64::new(0),
            handed_back: AtomicU64::new(0),
            with_others: AtomicU64::new(0),
            door_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            model_tokens: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            place: AtomicU8::new(STARTING),
            last_call: Mutex::default(),
            reached: ReachedCell::default(),
            refused: ReachedCell::default(),
            told: Mutex::default(),
            tokens_are_told: false,
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The limits that the guest came up against so far.
    pub(super) fn reached(&self) -> Reached {
        self.reached.get()
    }

    /// The guest came up against a limit, and goes on.
    pub(super) fn reach(&self, kind: LimitKind) {
        self.reached.add(kind);
    }

    /// What the guest was refused last and has not come to terms with, so that it explains why it gives up.
    pub(super) fn refused(&self) -> Option<LimitKind> {
        self.refused.get().iter().next()
    }

    /// The guest asked for more of something that it may hold so much of at one time. One that gets more of it later
    /// all the same has come to terms with an earlier refusal.
    pub(super) fn asked(&self, kind: LimitKind, granted: bool) {
        if granted {
            self.refused.remove(kind);
        } else {
            self.refused.add(kind);
            self.reached.add(kind);
        }
    }

    /// Records a call of a host function. The engine's own detours, such as giving up the processor, are none.
    pub(super) fn record(&self, call: &'static str) {
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        *self.last_call.lock().unwrap_or_else(PoisonError::into_inner) = call;
        self.place.store(IN_HOST, Ordering::Relaxed);
    }

    /// The guest's code is entered, or gone on with after a host call.
    pub(super) fn enters_guest(&self) {
        self.place.store(IN_GUEST, Ordering::Relaxed);
    }

    /// Adds to the bytes that crossed the door.
    pub(super) fn charge_door(&self, bytes: usize) -> Result<(), LimitKind> {
        spend(&self.door_bytes, bytes, self.limits.door_bytes).map_err(|()| LimitKind::DoorBytes)
    }

    /// Adds to the bytes of the log.
    pub(super) fn charge_log(&self, bytes: usize) -> Result<(), LimitKind> {
        spend(&self.log_bytes, bytes, self.limits.log_bytes).map_err(|()| LimitKind::LogBytes)
    }

    /// Adds what a model request used. What was used is used: it counts also where it goes over the limit.
    pub(super) fn charge_tokens(&self, tokens: u64) {
        if !self.tokens_are_told {
            self.model_tokens.fetch_add(tokens, Ordering::Relaxed);
        }
    }

    /// How many tokens are left; none where there is no bound.
    pub(super) fn tokens_left(&self) -> Option<u64> {
        self.limits
            .model_tokens
            .map(|limit| limit.saturating_sub(self.model_tokens.load(Ordering::Relaxed)))
    }

    /// Gives back tokens that were charged for others.
    pub(super) fn take_back_tokens(&self, tokens: u64) {
        self.model_tokens.fetch_sub(tokens, Ordering::Relaxed);
    }

    /// How much fuel is left; none where there is no bound.
    pub(super) fn fuel_left(&self) -> Option<u64> {
        // Code that counts is given all there is where there is no bound.
        let limit = self.limits.fuel.filter(|limit| *limit != u64::MAX)?;
        Some(limit.saturating_sub(self.fuel.load(Ordering::Relaxed)))
    }

    /// How much time is left; none where there is no bound.
    pub(super) fn time_left(&self) -> Option<std::time::Duration> {
        self.limits.wall_time.map(|limit| limit.saturating_sub(self.started.elapsed()))
    }

    /// Fuel goes to others. The store gives it up on the way back into the guest.
    pub(super) fn hand_out_fuel(&self, fuel: u64) {
        self.fuel.fetch_add(fuel, Ordering::Relaxed);
        self.handed_out.fetch_add(fuel, Ordering::Relaxed);
        self.with_others.fetch_add(fuel, Ordering::Relaxed);
    }

    /// Fuel that others left over.
    pub(super) fn take_back_fuel(&self, fuel: u64) {
        let less = |used: u64| Some(used.saturating_sub(fuel));
        // Between two looks at the store the counter may be behind. It is right again at the next.
        let _ = self.fuel.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let _ = self.with_others.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.handed_back.fetch_add(fuel, Ordering::Relaxed);
    }

    /// Fuel that went out and came back since the last question; none when there was none of either.
    pub(super) fn fuel_that_changed_hands(&self) -> Option<(u64, u64)> {
        let hands = [&self.handed_out, &self.handed_back];
        if hands.iter().all(|hand| hand.load(Ordering::Relaxed) == 0) {
            return None;
        }
        let [out, back] = hands.map(|hand| hand.swap(0, Ordering::Relaxed));
        Some((out, back))
    }

    pub(super) fn set_fuel_left(&self, left: u64) {
        if let Some(limit) = self.limits.fuel {
            self.fuel.store(limit.saturating_sub(left), Ordering::Relaxed);
        }
    }

    /// What a guest in another process does, as that tells. What it does there is shown by its name where it has one here.
    pub(super) fn does(&self, what: &str) {
        match what {
            "computing" => self.enters_guest(),
            "starting" => {}
            _ => {
                let mut known = super::wasi::INTERFACES.into_iter().chain(["run.sleep"]);
                let known = known.find(|known| *known == what).unwrap_or("a call in its process");
                *self.last_call.lock().unwrap_or_else(PoisonError::into_inner) = known;
                self.place.store(IN_HOST, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn doing_now(&self) -> &'static str {
        match self.place.load(Ordering::Relaxed) {
            STARTING => "starting",
            IN_HOST => *self.last_call.lock().unwrap_or_else(PoisonError::into_inner),
            _ => "computing",
        }
    }

    /// Every budget with what was used of it.
    pub(super) fn all_budgets(&self) -> Vec<BudgetUse> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let wall =
            self.limits.wall_time.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let budget = |kind: LimitKind, used, limit| BudgetUse { name: kind.as_str(), used, limit };
        let told = self.told();
        let (memory, door) = (&self.memory, read(&self.door_bytes).max(told.door_bytes));
        let (memory, log) =
            (read(memory).max(told.memory), read(&self.log_bytes).max(told.log_bytes));
        vec![
            budget(LimitKind::WallTime, elapsed, wall),
            budget(LimitKind::Fuel, read(&self.fuel), self.limits.fuel),
            budget(LimitKind::Memory, memory, Some(self.limits.memory)),
            budget(LimitKind::DoorBytes, door, Some(self.limits.door_bytes)),
            budget(LimitKind::LogBytes, log, Some(self.limits.log_bytes)),
            budget(LimitKind::ModelTokens, read(&self.model_tokens), self.limits.model_tokens),
        ]
    }

    /// What the run used in all.
    pub(super) fn used(&self) -> Used {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let told = self.told();
        Used {
            wall_time: self.started.elapsed(),
            fuel: self.limits.fuel.map(|_| read(&self.fuel)),
            memory_peak: read(&self.memory_peak).max(told.memory_peak),
            door_bytes: read(&self.door_bytes).max(told.door_bytes),
            log_bytes: read(&self.log_bytes).max(told.log_bytes),
            model_tokens: read(&self.model_tokens),
            calls: read(&self.calls).max(told.calls),
        }
    }

    fn grow(
        &self,
        counter: &AtomicU64,
        current: usize,
        desired: usize,
        limit: u64,
        kind: LimitKind,
    ) -> bool {
        let more = desired.saturating_sub(current) as u64;
        let before = counter.load(Ordering::Relaxed);
        let granted = before.saturating_add(more) <= limit;
        self.asked(kind, granted);
        if granted {
            counter.store(before + more, Ordering::Relaxed);
        }
        granted
    }
}

impl Gauge for Meter {
    fn budgets(&self) -> Vec<BudgetUse> {
        self.all_budgets()
    }

    fn doing(&self) -> Option<&'static str> {
        Some(self.doing_now())
    }
}

/// Adds to a counter unless that would pass its limit. A counter that was to pass its limit stays at it, so that
/// nothing more is let through. The guest and its connections charge at the same time.
fn spend(counter: &AtomicU64, amount: usize, limit: u64) -> Result<(), ()> {
    let spent = |before: u64| before.checked_add(amount as u64).filter(|spent| *spent <= limit);
    match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent) {
        Ok(_) => Ok(()),
        Err(_) => {
            counter.store(limit, Ordering::Relaxed);
            Err(())
        }
    }
}

/// What a run used in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Used {
    /// From its start until the question.
    #[serde(with = "crate::message::milliseconds", rename = "wall-time-ms")]
    pub wall_time: std::time::Duration,
    /// Units of fuel; none for a run without a fuel limit.
    pub fuel: Option<u64>,
    /// The most linear memory that it had at one time, in bytes.
    pub memory_peak: u64,
    /// Bytes across the door.
    pub door_bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Tokens of its model requests.
    pub model_tokens: u64,
    /// Calls of host functions.
    pub calls: u64,
}

/// Adds up all memories and all tables of a store, which wasmtime's own limiter does not: it counts each by itself.
#[derive(Debug)]
pub(super) struct Limiter {
    meter: std::sync::Arc<Meter>,
    /// What the last growth added, to be given back when wasmtime then fails to grow.
    last: usize,
}

impl Limiter {
    pub(super) fn new(meter: std::sync::Arc<Meter>) -> Limiter {
        Limiter { meter, last: 0 }
    }
}

impl wasmtime::ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let meter = &self.meter;
        let granted =
            meter.grow(&meter.memory, current, desired, meter.limits.memory, LimitKind::Memory);
        if granted {
            self.last = desired.saturating_sub(current);
            meter.memory_peak.fetch_max(meter.memory.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(granted)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.meter.memory.fetch_sub(std::mem::take(&mut self.last) as u64, Ordering::Relaxed);
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let meter = &self.meter;
        let limit = meter.limits.table_elements;
        let granted =
            meter.grow(&meter.table_elements, current, desired, limit, LimitKind::TableElements);
        if granted {
            self.last = desired.saturating_sub(current);
        }
        Ok(granted)
    }

    fn memories(&self) -> usize {
        super::engine::MEMORIES_PER_COMPONENT as usize
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.meter
            .table_elements
            .fetch_sub(std::mem::take(&mut self.last) as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_starting_until_its_guest_is_entered() {
        let meter = Meter::new(Limits::default());
        assert_eq!(meter.doing_now(), "starting");
        meter.enters_guest();
        assert_eq!(meter.doing_now(), "computing");
        meter.record("run.sleep");
        assert_eq!(meter.doing_now(), "run.sleep");
        meter.enters_guest();
        assert_eq!(meter.doing_now(), "computing");
    }
}
