//! What a change means for a session: one set of rules, which every store obeys.

use std::sync::Arc;

use super::change::{Body, Change};
use super::error::StoreError;
use super::rows::{Running, UnitState};
use super::store::{Retention, Transcript};
use crate::ids::SessionId;

/// Where a session stands: what is counted, so that nobody has to look it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Its place in the order in which sessions were created.
    pub(super) key: u64,
    pub(super) generation: u64,
    pub(super) running: Option<Running>,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    /// Where a store has its newest event, if it finds the others from there. 0 before the first.
    pub(super) newest: u64,
    pub(super) event_bytes: u64,
    pub(super) first_message: u64,
    pub(super) last_message: u64,
    pub(super) message_bytes: u64,
    /// Units that have ended so far.
    pub(super) ended: u64,
    /// Units that have not ended.
    pub(super) units_open: u64,
    /// Completions that are not acknowledged.
    pub(super) units_unread: u64,
    /// Completions that are acknowledged and still kept.
    pub(super) units_read: u64,
    /// Runs outside the turn that have not ended.
    pub(super) runs_open: u64,
}

impl Head {
    /// Where a new session stands.
    pub(super) fn new(key: u64) -> Head {
        Head {
            key,
            generation: 0,
            running: None,
            first_seq: 1,
            last_seq: 0,
            newest: 0,
            event_bytes: 0,
            first_message: 1,
            last_message: 0,
            message_bytes: 0,
            ended: 0,
            units_open: 0,
            units_unread: 0,
            units_read: 0,
            runs_open: 0,
        }
    }

    /// Whether only events have come or gone since then.
    pub(super) fn differs_in_events(&self, before: &Head) -> bool {
        let Head { first_seq, last_seq, newest, event_bytes, .. } = *self;
        *self == Head { first_seq, last_seq, newest, event_bytes, ..before.clone() }
    }

    /// Events that are kept.
    pub(super) fn events(&self) -> u64 {
        (self.last_seq + 1).saturating_sub(self.first_seq)
    }

    /// Messages that are kept.
    pub(super) fn messages(&self) -> u64 {
        (self.last_message + 1).saturating_sub(self.first_message)
    }
}

/// One change as a store carries it out. It fits what is there: the rules have looked.
#[derive(Debug)]
pub(super) enum Step<'a> {
    Create {
        agent: &'a str,
        settings: &'a Body,
    },
    CreatedBefore {
        ms: u64,
    },
    /// What follows happened then.
    At {
        ms: u64,
    },
    Delete,
    Event {
        seq: u64,
        run: &'a Arc<str>,
        body: &'a Body,
    },
    Message {
        number: u64,
        body: &'a Body,
    },
    Remember {
        key: &'a str,
        value: Option<&'a [u8]>,
    },
    OpenRun {
        run: &'a Arc<str>,
        body: &'a Body,
    },
    CloseRun {
        run: &'a Arc<str>,
    },
    Keep {
        run: &'a Arc<str>,
        body: &'a Body,
    },
    DropKept {
        run: Arc<str>,
    },
    AddUnit {
        unit: u64,
        body: &'a Body,
    },
    RemoveUnit {
        unit: u64,
    },
    /// Unless that child has been recorded.
    Child {
        unit: u64,
        task: u32,
        body: &'a Body,
    },
    EndUnit {
        unit: u64,
        place: u64,
        body: &'a Body,
    },
    ReadUnit {
        unit: u64,
    },
    /// A turn has begun that is to bring the completion.
    Deliver {
        unit: u64,
    },
}

/// What the rules ask of what is recorded.
pub(super) trait Facts {
    /// The session that a unit belongs to, by its place, and how far the unit is.
    fn unit(&mut self, unit: u64) -> Result<Option<(u64, UnitState)>, StoreError>;

    /// Whether a run outside the turn has begun and not ended.
    fn open_run(&mut self, key: u64, run: &str) -> Result<bool, StoreError>;
}

/// What the rules have to know of the session that a write names.
#[derive(Debug)]
pub(super) enum Known {
    /// It is there.
    Here(Head),
    /// It was there.
    Gone,
    /// It never was. A new one would have this place.
    Never(u64),
}

/// What is carried out for one write, and where the session stands after it. Bytes are counted when they are written.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) head: Head,
    pub(super) steps: Vec<Step<'a>>,
}

/// The bounds that a write is held against.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    /// What may be kept.
    pub(super) retention: &'a Retention,
    /// Bytes that the store has now.
    pub(super) used: u64,
}

/// Whether an error is one write's own. Others of its batch are not touched by it, and it is not tried again.
pub(super) fn of_the_write(error: &StoreError) -> bool {
    match error {
        StoreError::NoSession(_)
        | StoreError::Exists(_)
        | StoreError::InUse { .. }
        | StoreError::TooLarge { .. }
        | StoreError::Invalid(_) => true,
        StoreError::Full(_)
        | StoreError::ReadOnly(_)
        | StoreError::Locked(_)
        | StoreError::Corrupt(_)
        | StoreError::Newer { .. }
        | StoreError::Failed(_)
        | StoreError::Closed => false,
    }
}

/// Numbers of sessions and units are below it, so that every database can hold them.
const NUMBERS: u64 = 1 << 53;

/// The number of a session after that one: beyond its place, and beyond the number in its name, so that a name that is
/// made of the number is new.
pub(super) fn number_after(key: u64, name: &SessionId) -> u64 {
    let digits = name.as_str().bytes().rev().take_while(u8::is_ascii_digit).count();
    let at = name.as_str().len() - digits;
    let number = name.as_str().get(at..).and_then(|digits| digits.parse::<u64>().ok());
    // A longer one counts nothing.
    let number = number.filter(|number| *number < NUMBERS).unwrap_or(0);
    key.max(number) + 1
}

/// Holds a write against what is recorded, before anything of it is carried out.
pub(super) fn plan<'a>(
    name: &SessionId,
    changes: &'a [Change],
    known: Known,
    bounds: &Bounds<'_>,
    facts: &mut dyn Facts,
) -> Result<Plan<'a>, StoreError> {
    let mut steps = Vec::with_capacity(changes.len());
    let (head, rest) = match (known, changes) {
        (Known::Here(_) | Known::Gone, [Change::Created { .. }, ..]) => {
            return Err(StoreError::Exists(name.to_string()));
        }
        (Known::Never(key), [Change::Created { agent, settings }, rest @ ..]) => {
            bounds.room(name)?;
            steps.push(Step::Create { agent, settings });
            (Head::new(key), rest)
        }
        (Known::Here(head), rest) => (head, rest),
        (Known::Gone | Known::Never(_), _) => return Err(StoreError::NoSession(name.to_string())),
    };
    let mut planner =
        Planner { name, bounds, facts, head, units: Vec::new(), runs: Vec::new(), deleted: false };
    for change in rest {
        planner.step(change, &mut steps)?;
    }
    Ok(Plan { head: planner.head, steps })
}

impl Bounds<'_> {
    /// Whether there is room for a new session or turn.
    fn room(&self, name: &SessionId) -> Result<(), StoreError> {
        if self.used <= self.retention.bytes {
            return Ok(());
        }
        Err(StoreError::TooLarge {
            what: format!("the database, which `{name}` would make larger,"),
            bytes: self.used,
            most: self.retention.bytes,
            limit: "bytes",
            todo: "delete sessions that are done with, or raise the limit",
        })
    }

    /// Whether the conversation may go on.
    fn transcript(&self, name: &SessionId, bytes: u64) -> Result<(), StoreError> {
        let most = self.retention.transcript_bytes_per_session;
        if bytes <= most || self.retention.transcript == Transcript::DropOldest {
            return Ok(());
        }
        Err(StoreError::TooLarge {
            what: format!("the conversation of `{name}`"),
            bytes,
            most,
            limit: "transcript-bytes-per-session",
            todo: "open a new session, or raise the limit",
        })
    }
}

/// A write on its way through the rules.
struct Planner<'a, 'f> {
    name: &'f SessionId,
    bounds: &'f Bounds<'f>,
    facts: &'f mut dyn Facts,
    head: Head,
    /// Units as this write leaves them.
    units: Vec<(u64, Option<UnitState>)>,
    /// Runs as this write leaves them: open or not.
    runs: Vec<(&'a str, bool)>,
    deleted: bool,
}

impl<'a> Planner<'a, '_> {
    fn step(&mut self, change: &'a Change, steps: &mut Vec<Step<'a>>) -> Result<(), StoreError> {
        if self.deleted {
            return Err(self.invalid("a change after the end of the session"));
        }
        match change {
            Change::Created { .. } => return Err(StoreError::Exists(self.name.to_string())),
            Change::GoesOn { created_ms, generation, events, messages } => {
                if !matches!(steps.as_slice(), [Step::Create { .. }]) {
                    return Err(self.invalid("only a new session goes on from somewhere else"));
                }
                if [*generation, *events, *messages].iter().any(|number| *number >= NUMBERS) {
                    return Err(self.invalid("a number is too large"));
                }
                self.head.generation = *generation;
                (self.head.first_seq, self.head.last_seq) = (*events + 1, *events);
                (self.head.first_message, self.head.last_message) = (*messages + 1, *messages);
                steps.push(Step::CreatedBefore { ms: *created_ms });
            }
            Change::At { ms } => steps.push(Step::At { ms: *ms }),
            Change::Deleted => {
                self.may_be_deleted()?;
                self.deleted = true;
                steps.push(Step::Delete);
            }
            Change::Event { run, body } => {
                self.head.last_seq += 1;
                steps.push(Step::Event { seq: self.head.last_seq, run, body });
            }
            Change::Message { body } => {
                self.head.last_message += 1;
                steps.push(Step::Message { number: self.head.last_message, body });
            }
            Change::Memory { key, value } => {
                steps.push(Step::Remember { key, value: value.as_deref() });
            }
            Change::TurnBegan { generation, run, brings } => {
                self.turn_began(*generation, run, *brings, steps)?;
            }
            Change::TurnEnded { generation } => {
                match self.head.running.take_if(|running| running.generation == *generation) {
                    Some(running) => steps.push(Step::DropKept { run: running.run }),
                    None => {
                        return Err(self.invalid(format!("turn {generation} is not going on")));
                    }
                }
            }
            Change::RunBegan { run, body } => {
                if self.is_open(run)? {
                    return Err(self.invalid(format!("the run {run} has begun already")));
                }
                self.head.runs_open += 1;
                self.runs.push((run, true));
                steps.push(Step::OpenRun { run, body });
            }
            Change::RunEnded { run } => {
                if !self.is_open(run)? {
                    return Err(self.invalid(format!("the run {run} is not going on")));
                }
                self.head.runs_open = self.head.runs_open.saturating_sub(1);
                self.runs.push((run, false));
                steps.push(Step::CloseRun { run });
                steps.push(Step::DropKept { run: Arc::clone(run) });
            }
            Change::Kept { run, body } => {
                let of_the_turn =
                    self.head.running.as_ref().is_some_and(|running| running.run == *run);
                if !of_the_turn && !self.is_open(run)? {
                    return Err(self.invalid(format!("the run {run} is not going on")));
                }
                steps.push(Step::Keep { run, body });
            }
            Change::UnitAccepted { .. }
            | Change::UnitWithdrawn { .. }
            | Change::ChildEnded { .. }
            | Change::UnitEnded { .. }
            | Change::UnitAcknowledged { .. } => self.of_a_unit(change, steps)?,
        }
        Ok(())
    }

    fn turn_began(
        &mut self,
        generation: u64,
        run: &Arc<str>,
        brings: Option<u64>,
        steps: &mut Vec<Step<'a>>,
    ) -> Result<(), StoreError> {
        self.bounds.room(self.name)?;
        self.bounds.transcript(self.name, self.head.message_bytes)?;
        if let Some(running) = &self.head.running {
            let going_on = running.generation;
            return Err(self.invalid(format!("turn {going_on} is going on")));
        }
        if generation <= self.head.generation {
            let last = self.head.generation;
            return Err(self.invalid(format!("turn {generation} would come after turn {last}")));
        }
        if let Some(unit) = brings {
            match self.unit(unit)? {
                UnitState::Ended => steps.push(Step::Deliver { unit }),
                UnitState::Accepted | UnitState::Acknowledged => {
                    return Err(self.invalid(format!("unit {unit} has nothing to be delivered")));
                }
            }
        }
        self.head.generation = generation;
        self.head.running = Some(Running { generation, run: Arc::clone(run), brings });
        Ok(())
    }

    fn of_a_unit(
        &mut self,
        change: &'a Change,
        steps: &mut Vec<Step<'a>>,
    ) -> Result<(), StoreError> {
        match change {
            Change::UnitAccepted { unit, body } => {
                if *unit >= NUMBERS {
                    return Err(self.invalid(format!("{unit} is no number of a unit")));
                }
                if self.found(*unit)?.is_some() {
                    return Err(self.invalid(format!("unit {unit} is there already")));
                }
                self.head.units_open += 1;
                self.units.push((*unit, Some(UnitState::Accepted)));
                steps.push(Step::AddUnit { unit: *unit, body });
            }
            Change::UnitWithdrawn { unit } => {
                if self.unit(*unit)? != UnitState::Accepted {
                    return Err(self.invalid(format!("unit {unit} has ended")));
                }
                self.head.units_open = self.head.units_open.saturating_sub(1);
                self.units.push((*unit, None));
                steps.push(Step::RemoveUnit { unit: *unit });
            }
            Change::ChildEnded { unit, task, body } => {
                // A child that is heard of after the end of its unit changes nothing.
                if self.unit(*unit)? == UnitState::Accepted {
                    steps.push(Step::Child { unit: *unit, task: *task, body });
                }
            }
            Change::UnitEnded { unit, body } => {
                // The first end stays.
                if self.unit(*unit)? == UnitState::Accepted {
                    self.head.ended += 1;
                    self.head.units_open = self.head.units_open.saturating_sub(1);
                    self.head.units_unread += 1;
                    self.units.push((*unit, Some(UnitState::Ended)));
                    steps.push(Step::EndUnit { unit: *unit, place: self.head.ended, body });
                }
            }
            // One that is not there was acknowledged long ago, and is kept no more.
            Change::UnitAcknowledged { unit } => match self.unit(*unit) {
                Err(_) => {}
                Ok(UnitState::Accepted) => {
                    return Err(self.invalid(format!("unit {unit} has not ended")));
                }
                Ok(UnitState::Ended) => {
                    self.head.units_unread = self.head.units_unread.saturating_sub(1);
                    self.head.units_read += 1;
                    self.units.push((*unit, Some(UnitState::Acknowledged)));
                    steps.push(Step::ReadUnit { unit: *unit });
                }
                Ok(UnitState::Acknowledged) => {}
            },
            Change::Created { .. }
            | Change::GoesOn { .. }
            | Change::At { .. }
            | Change::Deleted
            | Change::Event { .. }
            | Change::Message { .. }
            | Change::Memory { .. }
            | Change::TurnBegan { .. }
            | Change::TurnEnded { .. }
            | Change::RunBegan { .. }
            | Change::RunEnded { .. }
            | Change::Kept { .. } => {}
        }
        Ok(())
    }

    fn may_be_deleted(&self) -> Result<(), StoreError> {
        let why = if let Some(running) = &self.head.running {
            format!("turn {} is going on", running.generation)
        } else if self.head.units_open > 0 {
            format!("{} units have not ended", self.head.units_open)
        } else if self.head.units_unread > 0 {
            format!("{} completions are not acknowledged", self.head.units_unread)
        } else {
            return Ok(());
        };
        Err(StoreError::InUse { session: self.name.to_string(), why })
    }

    /// How far a unit of this session is.
    fn unit(&mut self, unit: u64) -> Result<UnitState, StoreError> {
        match self.found(unit)? {
            Some((key, state)) if key == self.head.key => Ok(state),
            Some(_) => Err(self.invalid(format!("unit {unit} is another session's"))),
            None => Err(self.invalid(format!("there is no unit {unit}"))),
        }
    }

    fn found(&mut self, unit: u64) -> Result<Option<(u64, UnitState)>, StoreError> {
        match self.units.iter().rfind(|(number, _)| *number == unit) {
            Some((_, state)) => Ok(state.map(|state| (self.head.key, state))),
            None => self.facts.unit(unit),
        }
    }

    fn is_open(&mut self, run: &str) -> Result<bool, StoreError> {
        match self.runs.iter().rfind(|(name, _)| *name == run) {
            Some((_, open)) => Ok(*open),
            None => self.facts.open_run(self.head.key, run),
        }
    }

    fn invalid(&self, why: impl AsRef<str>) -> StoreError {
        StoreError::Invalid(format!("{} (session `{}`)", why.as_ref(), self.name))
    }
}
