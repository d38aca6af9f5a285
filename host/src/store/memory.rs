//! A store in memory, for tests and for those who want nothing to outlive the process.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use futures::future::ready;

use super::change::{Body, MOST_KEPT, Recorded, Write};
use super::error::StoreError;
use super::rows::{EventPage, EventRow, MessageRow, SessionRow, Start, UnitRow, UnitState};
use super::rules::{Bounds, Facts, Head, Known, Step, plan};
use super::store::{Health, Read, Retention, Store, Transcript};
use crate::ids::SessionId;

/// A store in memory.
///
/// A write has taken effect when [`Store::write`] returns, and [`Write::then`] has been called by then, on the caller's
/// own thread. [`Body::Later`] is put into words when it is read, and not before. Of a deleted session only its name
/// stays.
pub struct Memory {
    /// Never locked together with the state.
    retention: Mutex<Arc<Retention>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: HashMap<SessionId, Session>,
    /// The sessions in the order of their creation, those that are gone among them.
    places: BTreeMap<u64, SessionId>,
    gone: HashMap<SessionId, u64>,
    /// Which session a unit belongs to, by its place.
    units: HashMap<u64, u64>,
    last_key: u64,
    /// Bytes of all events and messages.
    bytes: u64,
    writes: u64,
    closed: bool,
}

struct Session {
    head: Head,
    agent: String,
    settings: Body,
    created_ms: u64,
    updated_ms: u64,
    events: VecDeque<Event>,
    messages: VecDeque<Message>,
    memory: BTreeMap<String, Vec<u8>>,
    /// Runs outside the turn, in the order in which they began.
    runs: Vec<(Arc<str>, Body)>,
    kept: HashMap<Arc<str>, Vec<Body>>,
    units: BTreeMap<u64, Unit>,
}

struct Event {
    at_ms: u64,
    run: Arc<str>,
    body: Body,
    bytes: u64,
}

struct Message {
    at_ms: u64,
    body: Body,
    bytes: u64,
}

#[derive(Clone)]
struct Unit {
    state: UnitState,
    body: Body,
    children: BTreeMap<u32, Body>,
    completion: Option<Body>,
    ended: u64,
    deliveries: u32,
}

impl Memory {
    /// An empty store that keeps that much.
    pub fn new(retention: Retention) -> Memory {
        Memory { retention: Mutex::new(Arc::new(retention)), state: Mutex::default() }
    }

    /// The lock protects everything; it is never held while foreign code runs.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retention(&self) -> Arc<Retention> {
        Arc::clone(&self.retention.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self, write: &Write) -> (Result<Recorded, StoreError>, Dropped) {
        let at_ms = now_ms();
        let mut dropped = Dropped::default();
        let retention = self.retention();
        let recorded = self.state().take(write, at_ms, &retention, &mut dropped);
        (recorded, dropped)
    }

    fn of<T: Send + 'static>(
        &self,
        id: &SessionId,
        read: impl FnOnce(&Session) -> T,
    ) -> Result<T, StoreError> {
        let state = self.state();
        state.open()?;
        match state.sessions.get(id) {
            Some(session) => Ok(read(session)),
            None => Err(StoreError::NoSession(id.to_string())),
        }
    }
}

/// What is freed after the lock.
#[derive(Default)]
struct Dropped {
    bodies: Vec<Body>,
    session: Option<Session>,
}

impl State {
    fn open(&self) -> Result<(), StoreError> {
        if self.closed { Err(StoreError::Closed) } else { Ok(()) }
    }

    fn take(
        &mut self,
        write: &Write,
        at_ms: u64,
        retention: &Retention,
        dropped: &mut Dropped,
    ) -> Result<Recorded, StoreError> {
        self.open()?;
        let name = &write.session;
        let known = match self.sessions.get(name) {
            Some(session) => Known::Here(session.head.clone()),
            None if self.gone.contains_key(name) => Known::Gone,
            None => Known::Never(self.last_key + 1),
        };
        let bounds = Bounds { retention, used: self.bytes };
        let mut facts = Recollection { units: &self.units, session: self.sessions.get(name) };
        let planned = plan(name, &write.changes, known, &bounds, &mut facts)?;
        // From here on nothing fails.
        let mut head = planned.head;
        let mut happened_ms = at_ms;
        for step in planned.steps {
            if let Step::Create { agent, settings } = step {
                self.create(name, agent, settings, at_ms);
            } else if let Step::At { ms } = step {
                happened_ms = ms;
            } else if matches!(step, Step::Delete) {
                dropped.session = self.delete(name);
            } else {
                self.carry_out(name, &mut head, step, happened_ms, dropped);
            }
        }
        self.writes += 1;
        let seq = head.last_seq;
        if let Some(session) = self.sessions.get_mut(name) {
            session.updated_ms = at_ms;
            session.head = head;
        }
        self.trim(name, retention, dropped);
        Ok(Recorded { seq, at_ms })
    }

    /// Lets go of what a session has beyond the bounds.
    fn trim(&mut self, name: &SessionId, retention: &Retention, dropped: &mut Dropped) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        let before = session.bytes();
        session.trim(retention, dropped);
        let freed = before - session.bytes();
        self.bytes -= freed;
        while session.head.units_read > retention.read_units_per_session {
            let Some(oldest) = session.oldest_read() else { break };
            session.units.remove(&oldest);
            session.head.units_read -= 1;
            self.units.remove(&oldest);
        }
    }

    fn create(&mut self, name: &SessionId, agent: &str, settings: &Body, at_ms: u64) {
        self.last_key += 1;
        let key = self.last_key;
        self.places.insert(key, name.clone());
        let session = Session {
            head: Head::new(key),
            agent: agent.to_owned(),
            settings: settings.clone(),
            created_ms: at_ms,
            updated_ms: at_ms,
            events: VecDeque::new(),
            messages: VecDeque::new(),
            memory: BTreeMap::new(),
            runs: Vec::new(),
            kept: HashMap::new(),
            units: BTreeMap::new(),
        };
        self.sessions.insert(name.clone(), session);
    }

    fn delete(&mut self, name: &SessionId) -> Option<Session> {
        let session = self.sessions.remove(name)?;
        self.bytes -= session.bytes();
        for unit in session.units.keys() {
            self.units.remove(unit);
        }
        self.gone.insert(name.clone(), session.head.key);
        Some(session)
    }

    fn carry_out(
        &mut self,
        name: &SessionId,
        head: &mut Head,
        step: Step<'_>,
        at_ms: u64,
        dropped: &mut Dropped,
    ) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        match step {
            Step::Create { .. } | Step::At { .. } | Step::Delete => {}
            Step::CreatedBefore { ms } => session.created_ms = ms,
            Step::Event { seq: _, run, body } => {
                let bytes = body.weight() as u64;
                head.event_bytes += bytes;
                self.bytes += bytes;
                let event = Event { at_ms, run: Arc::clone(run), body: body.clone(), bytes };
                session.events.push_back(event);
            }
            Step::Message { number: _, body } => {
                let bytes = body.weight() as u64;
                head.message_bytes += bytes;
                self.bytes += bytes;
                session.messages.push_back(Message { at_ms, body: body.clone(), bytes });
            }
            Step::Remember { key, value: Some(value) } => {
                session.memory.insert(key.to_owned(), value.to_owned());
            }
            Step::Remember { key, value: None } => {
                session.memory.remove(key);
            }
            Step::OpenRun { run, body } => session.runs.push((Arc::clone(run), body.clone())),
            Step::CloseRun { run } => session.runs.retain(|(open, _)| open != run),
            Step::Keep { run, body } => {
                let kept = session.kept.entry(Arc::clone(run)).or_default();
                kept.push(body.clone());
                if kept.len() > MOST_KEPT {
                    dropped.bodies.push(kept.remove(0));
                }
            }
            Step::DropKept { run } => {
                dropped.bodies.extend(session.kept.remove(&run).into_iter().flatten());
            }
            Step::AddUnit { unit, body } => {
                self.units.insert(unit, head.key);
                let unit_row = Unit {
                    state: UnitState::Accepted,
                    body: body.clone(),
                    children: BTreeMap::new(),
                    completion: None,
                    ended: 0,
                    deliveries: 0,
                };
                session.units.insert(unit, unit_row);
            }
            Step::RemoveUnit { unit } => {
                self.units.remove(&unit);
                session.units.remove(&unit);
            }
            Step::Child { unit, task, body } => {
                if let Some(row) = session.units.get_mut(&unit) {
                    row.children.entry(task).or_insert_with(|| body.clone());
                }
            }
            Step::EndUnit { unit, place, body } => {
                if let Some(row) = session.units.get_mut(&unit) {
                    row.state = UnitState::Ended;
                    row.ended = place;
                    row.completion = Some(body.clone());
                }
            }
            Step::ReadUnit { unit } => {
                if let Some(row) = session.units.get_mut(&unit) {
                    row.state = UnitState::Acknowledged;
                }
            }
            Step::Deliver { unit } => {
                if let Some(row) = session.units.get_mut(&unit) {
                    row.deliveries = row.deliveries.saturating_add(1);
                }
            }
        }
    }
}

impl Session {
    /// Bytes of its events and messages.
    fn bytes(&self) -> u64 {
        self.head.event_bytes + self.head.message_bytes
    }

    /// Lets go of what is beyond the bounds.
    fn trim(&mut self, retention: &Retention, dropped: &mut Dropped) {
        while self.events.len() > 1
            && (self.head.events() > retention.events_per_session
                || self.head.event_bytes > retention.event_bytes_per_session)
        {
            let Some(oldest) = self.events.pop_front() else { break };
            self.head.first_seq += 1;
            self.head.event_bytes -= oldest.bytes;
            dropped.bodies.push(oldest.body);
        }
        while retention.transcript == Transcript::DropOldest
            && self.messages.len() > 1
            && self.head.message_bytes > retention.transcript_bytes_per_session
        {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.head.first_message += 1;
            self.head.message_bytes -= oldest.bytes;
            dropped.bodies.push(oldest.body);
        }
    }

    /// The acknowledged unit that ended first.
    fn oldest_read(&self) -> Option<u64> {
        let read = self.units.iter().filter(|(_, unit)| unit.state == UnitState::Acknowledged);
        read.min_by_key(|(_, unit)| unit.ended).map(|(number, _)| *number)
    }

    fn row(&self, id: &SessionId) -> (SessionRow, Body) {
        let head = &self.head;
        let row = SessionRow {
            id: id.clone(),
            agent: self.agent.clone(),
            settings: Arc::from(""),
            created_ms: self.created_ms,
            updated_ms: self.updated_ms,
            generation: head.generation,
            running: head.running.clone(),
            first_seq: head.first_seq,
            last_seq: head.last_seq,
            messages: head.messages(),
            message_bytes: head.message_bytes,
            event_bytes: head.event_bytes,
            units_open: head.units_open,
            units_unread: head.units_unread,
        };
        (row, self.settings.clone())
    }
}

/// What the rules ask, from memory.
struct Recollection<'a> {
    units: &'a HashMap<u64, u64>,
    session: Option<&'a Session>,
}

impl Facts for Recollection<'_> {
    fn unit(&mut self, unit: u64) -> Result<Option<(u64, UnitState)>, StoreError> {
        let Some(key) = self.units.get(&unit) else { return Ok(None) };
        let here = self.session.and_then(|session| session.units.get(&unit));
        // How far another session's unit is does not matter to the rules.
        Ok(Some((*key, here.map_or(UnitState::Accepted, |unit| unit.state))))
    }

    fn open_run(&mut self, _key: u64, run: &str) -> Result<bool, StoreError> {
        let mut runs = self.session.into_iter().flat_map(|session| &session.runs);
        Ok(runs.any(|(open, _)| &**open == run))
    }
}

impl Store for Memory {
    fn start(&self) -> Start {
        Start { next_session: 1, next_unit: 1 }
    }

    fn write(&self, mut write: Write) {
        let then = write.then.take();
        let (recorded, dropped) = self.take(&write);
        drop(dropped);
        drop(write);
        if let Some(then) = then {
            then(recorded);
        }
    }

    fn sessions(&self, after: Option<SessionId>, limit: usize) -> Read<Vec<SessionRow>> {
        let page = || {
            let state = self.state();
            state.open()?;
            let from = match after {
                None => Bound::Unbounded,
                Some(id) => Bound::Excluded(state.place(&id)?),
            };
            let ids = state.places.range((from, Bound::Unbounded)).map(|(_, id)| id);
            let rows = ids.filter_map(|id| Some(state.sessions.get(id)?.row(id)));
            Ok(rows.take(limit).collect::<Vec<_>>())
        };
        let rows = page();
        ready(rows.map(|rows| rows.into_iter().map(told).collect())).boxed()
    }

    fn session(&self, id: &SessionId) -> Read<SessionRow> {
        ready(self.of(id, |session| session.row(id)).map(told)).boxed()
    }

    fn events(&self, id: &SessionId, after: u64, limit: usize, bytes: usize) -> Read<EventPage> {
        let found = self.of(id, |session| {
            let first = session.head.first_seq;
            let from = first.max(after.saturating_add(1));
            let skip = usize::try_from(from - first).unwrap_or(usize::MAX);
            let events = session.events.iter().skip(skip).take(limit);
            let events: Vec<_> = (from..)
                .zip(events)
                .map(|(seq, event)| (seq, event.at_ms, Arc::clone(&event.run), event.body.clone()))
                .collect();
            (first, events)
        });
        let page = found.map(|(first, found)| {
            let mut events = Vec::new();
            let mut room = bytes;
            for (seq, at_ms, run, body) in found {
                let body = body.text();
                let left = room.checked_sub(body.len());
                if left.is_none() && !events.is_empty() {
                    break;
                }
                room = left.unwrap_or(0);
                events.push(EventRow { seq, at_ms, run, body });
            }
            EventPage { first, events }
        });
        ready(page).boxed()
    }

    fn messages(&self, id: &SessionId, limit: usize, bytes: usize) -> Read<Vec<MessageRow>> {
        let found = self.of(id, |session| {
            let newest = session.messages.iter().rev().take(limit);
            let numbers = (1..=session.head.last_message).rev();
            let newest = numbers.zip(newest);
            newest
                .map(|(number, message)| (number, message.at_ms, message.body.clone()))
                .collect::<Vec<_>>()
        });
        let rows = found.map(|newest| {
            let mut room = bytes;
            let mut rows = Vec::new();
            for (number, at_ms, body) in newest {
                let body = body.text();
                let Some(left) = room.checked_sub(body.len()) else { break };
                room = left;
                rows.push(MessageRow { number, at_ms, body });
            }
            rows.reverse();
            rows
        });
        ready(rows).boxed()
    }

    fn memory(&self, id: &SessionId) -> Read<Vec<(String, Vec<u8>)>> {
        let found = self.of(id, |session| {
            session.memory.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
        });
        ready(found).boxed()
    }

    fn units(&self, id: &SessionId, read: usize) -> Read<Vec<UnitRow>> {
        let found = self.of(id, |session| {
            let read_units =
                session.units.values().filter(|unit| unit.state == UnitState::Acknowledged);
            let mut places: Vec<u64> = read_units.map(|unit| unit.ended).collect();
            places.sort_unstable_by(|a, b| b.cmp(a));
            places.truncate(read);
            let oldest = places.last().copied().unwrap_or(u64::MAX);
            let wanted =
                |unit: &Unit| unit.state != UnitState::Acknowledged || unit.ended >= oldest;
            let units = session.units.iter().filter(|(_, unit)| wanted(unit));
            units.map(|(number, unit)| (*number, unit.clone())).collect::<Vec<_>>()
        });
        let session = id.clone();
        let rows = found.map(|units| {
            let row = |(number, unit): (u64, Unit)| UnitRow {
                unit: number,
                session: session.clone(),
                state: unit.state,
                body: unit.body.text(),
                children: unit.children.iter().map(|(task, body)| (*task, body.text())).collect(),
                completion: unit.completion.as_ref().map(Body::text),
                ended: unit.ended,
                deliveries: unit.deliveries,
            };
            units.into_iter().map(row).collect()
        });
        ready(rows).boxed()
    }

    fn kept(&self, id: &SessionId, run: &str) -> Read<Vec<String>> {
        let found = self.of(id, |session| session.kept.get(run).cloned().unwrap_or_default());
        let texts = |bodies: Vec<Body>| bodies.iter().map(|body| body.text().to_string()).collect();
        ready(found.map(texts)).boxed()
    }

    fn open_runs(&self, id: &SessionId) -> Read<Vec<(String, String)>> {
        let found = self.of(id, |session| session.runs.clone());
        let texts = |runs: Vec<(Arc<str>, Body)>| {
            runs.iter().map(|(run, body)| (run.to_string(), body.text().to_string())).collect()
        };
        ready(found.map(texts)).boxed()
    }

    fn unfinished(&self) -> Read<Vec<SessionId>> {
        let state = self.state();
        let unfinished = |id: &&SessionId| {
            state.sessions.get(*id).is_some_and(|session| {
                let head = &session.head;
                head.running.is_some()
                    || head.runs_open > 0
                    || head.units_open > 0
                    || head.units_unread > 0
            })
        };
        let found = state.open().map(|()| {
            state.places.values().filter(unfinished).cloned().collect::<Vec<SessionId>>()
        });
        ready(found).boxed()
    }

    fn retain(&self, retention: Retention) {
        let retention = Arc::new(retention);
        *self.retention.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&retention);
        let mut dropped = Dropped::default();
        {
            let mut state = self.state();
            let names: Vec<SessionId> = state.sessions.keys().cloned().collect();
            for name in names {
                state.trim(&name, &retention, &mut dropped);
            }
        }
        // Not under the lock: what was kept may be anybody's.
        drop(dropped);
    }

    fn compact(&self) -> Read<()> {
        ready(self.state().open()).boxed()
    }

    fn health(&self) -> Health {
        let state = self.state();
        Health {
            failing: None,
            queued_bytes: 0,
            bytes: state.bytes,
            commits: state.writes,
            writes: state.writes,
        }
    }

    fn close(&self) -> Read<()> {
        self.state().closed = true;
        ready(Ok(())).boxed()
    }
}

impl State {
    /// The place of a session that is or was there.
    fn place(&self, id: &SessionId) -> Result<u64, StoreError> {
        let here = self.sessions.get(id).map(|session| session.head.key);
        let place = here.or_else(|| self.gone.get(id).copied());
        place.ok_or_else(|| StoreError::NoSession(id.to_string()))
    }
}

/// A row with its settings put into words, outside the lock.
fn told((row, settings): (SessionRow, Body)) -> SessionRow {
    SessionRow { settings: settings.text(), ..row }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("health", &self.health()).finish_non_exhaustive()
    }
}

/// Milliseconds since 1970 in UTC.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
