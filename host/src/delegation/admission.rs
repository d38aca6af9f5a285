//! Who gets a slot: a plain structure with pure transitions. No lock, no clock, no waking.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::id::{CallId, DelegationId};
use super::limits::DelegationLimit;
use crate::ids::WorkId;

#[cfg(test)]
mod model;

/// The slots of a host, and the line of units that wait for one.
#[derive(Debug)]
pub(super) struct Capacity {
    bounds: Bounds,
    /// One entry for each slot that is held.
    held: BTreeMap<CallId, Held>,
    /// Slots held, by session. Always the sum over `held`.
    sessions: BTreeMap<WorkId, u64>,
    /// First come, first served. A unit whose session is at its own limit does not hold up those behind it.
    line: VecDeque<Ask>,
    /// Why nothing is admitted any more. Never taken back.
    closed: Option<Arc<str>>,
}

/// How many of each there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) host: u64,
    pub(super) session: u64,
    pub(super) line: u64,
}

#[derive(Debug)]
struct Held {
    session: WorkId,
    /// Never 0.
    units: u64,
}

/// One unit that wants in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) id: DelegationId,
    pub(super) call: CallId,
    pub(super) session: WorkId,
}

/// What a unit does when there is no slot for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutSlot {
    Leave,
    Wait,
}

/// The answer to one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// It holds its call's slot from now on, until [`Capacity::release`].
    Accepted,
    /// It is in line, with that many ahead of it. It asks again when it is among the [`Capacity::called`].
    Waits { ahead: usize },
    /// All slots that it could have are held, by that limit.
    Full(DelegationLimit),
    /// It would have waited, and the line is full.
    LineFull,
    /// Nothing is admitted any more.
    Closed(Arc<str>),
}

impl Capacity {
    pub(super) fn new(bounds: Bounds) -> Capacity {
        let (held, sessions, line) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Capacity { bounds, held, sessions, line, closed: None }
    }

    /// Decides about a unit, whether it comes for the first time or from the line.
    pub(super) fn decide(&mut self, ask: &Ask, without: WithoutSlot) -> Decision {
        if let Some(reason) = self.closed.clone() {
            self.leave_line(ask.id);
            return Decision::Closed(reason);
        }
        let waiting = self.line.iter().position(|other| other.id == ask.id);
        let ahead = waiting.unwrap_or(self.line.len());
        let mut forecast = Forecast::new(self);
        for other in self.line.iter().take(ahead) {
            let _ = forecast.admit(other);
        }
        match (forecast.admit(ask), waiting) {
            (Ok(()), _) => {
                self.leave_line(ask.id);
                self.hold(ask);
                Decision::Accepted
            }
            (Err(_), Some(ahead)) => Decision::Waits { ahead },
            (Err(limit), None) => match without {
                WithoutSlot::Leave => Decision::Full(limit),
                WithoutSlot::Wait if self.waiting() >= self.bounds.line => Decision::LineFull,
                WithoutSlot::Wait => {
                    self.line.push_back(ask.clone());
                    Decision::Waits { ahead }
                }
            },
        }
    }

    /// A unit of that call has ended. The call's slot is free when it was the last.
    pub(super) fn release(&mut self, call: CallId) {
        let Some(held) = self.held.get_mut(&call) else { return };
        held.units -= 1;
        if held.units > 0 {
            return;
        }
        let Some(Held { session, .. }) = self.held.remove(&call) else { return };
        if let Some(slots) = self.sessions.get_mut(&session) {
            *slots -= 1;
            if *slots == 0 {
                self.sessions.remove(&session);
            }
        }
    }

    /// A unit waits no longer. Nothing happens when it is not in line.
    pub(super) fn leave_line(&mut self, id: DelegationId) {
        self.line.retain(|other| other.id != id);
    }

    /// Nothing is admitted from now on. What holds a slot keeps it. The first reason stays.
    pub(super) fn close(&mut self, reason: Arc<str>) {
        self.closed.get_or_insert(reason);
    }

    /// Those in line who get another answer than to wait if they ask now.
    pub(super) fn called(&self) -> Vec<DelegationId> {
        let mut forecast = Forecast::new(self);
        let line = self.line.iter();
        line.filter(|other| self.closed.is_some() || forecast.admit(other).is_ok())
            .map(|other| other.id)
            .collect()
    }

    /// Slots that are held.
    pub(super) fn used(&self) -> u64 {
        count(self.held.len())
    }

    /// Units in line.
    pub(super) fn waiting(&self) -> u64 {
        count(self.line.len())
    }

    fn hold(&mut self, ask: &Ask) {
        if let Some(held) = self.held.get_mut(&ask.call) {
            held.units += 1;
            return;
        }
        self.held.insert(ask.call, Held { session: ask.session, units: 1 });
        *self.sessions.entry(ask.session).or_default() += 1;
    }
}

/// How things stand once everybody ahead who can get in is in, so that nobody overtakes them.
struct Forecast<'a> {
    capacity: &'a Capacity,
    /// Calls that would have taken a slot, and their number by session.
    calls: BTreeSet<CallId>,
    sessions: BTreeMap<WorkId, u64>,
}

impl<'a> Forecast<'a> {
    fn new(capacity: &'a Capacity) -> Forecast<'a> {
        Forecast { capacity, calls: BTreeSet::new(), sessions: BTreeMap::new() }
    }

    /// Lets a unit in if it fits, else says which limit is in the way.
    fn admit(&mut self, ask: &'a Ask) -> Result<(), DelegationLimit> {
        let Capacity { bounds, held, sessions, .. } = self.capacity;
        if held.contains_key(&ask.call) || self.calls.contains(&ask.call) {
            return Ok(());
        }
        let ahead = self.sessions.get(&ask.session).copied().unwrap_or(0);
        if sessions.get(&ask.session).copied().unwrap_or(0) + ahead >= bounds.session {
            return Err(DelegationLimit::UnitsPerSession);
        }
        if self.capacity.used() + count(self.calls.len()) >= bounds.host {
            return Err(DelegationLimit::UnitsPerHost);
        }
        self.calls.insert(ask.call);
        *self.sessions.entry(ask.session).or_default() += 1;
        Ok(())
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
