//! What is read, on threads that cannot write.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::channel::oneshot;
use rusqlite::{Connection, OptionalExtension as _, Params, Row, Transaction, params};

use super::fault::{count, fault, int};
use super::journal::Journal;
use super::tables::{ACKNOWLEDGED, HEAD, SESSION, head, state};
use crate::ids::SessionId;
use crate::store::{EventPage, MessageRow, Read, SessionRow, StoreError, UnitRow, UnitState};

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// What waits for a reader.
#[derive(Default)]
pub(super) struct Reads {
    /// The lock protects what is in it, and is held for moments only.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Reads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has something read from one state of the database. A read that nobody waits for any more is left out.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Read<T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            if answer.is_canceled() {
                return;
            }
            let found = catch_unwind(AssertUnwindSafe(|| {
                let transaction = connection.transaction().map_err(fault)?;
                read(&transaction)
            }));
            let found =
                found.unwrap_or_else(|_| Err(StoreError::Failed("a read panicked".to_owned())));
            drop(answer.send(found));
        });
        let mut state = self.state();
        if !state.closed {
            state.jobs.push_back(job);
            self.changed.notify_one();
        }
        drop(state);
        // A read that was not taken, or was left behind by the end, is dropped with its sender.
        async move { answered.await.unwrap_or(Err(StoreError::Closed)) }.boxed()
    }

    /// No more reads.
    pub(super) fn close(&self) {
        let left = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.jobs)
        };
        self.changed.notify_all();
        drop(left);
    }

    /// A reader's thread.
    pub(super) fn serve(self: &Arc<Self>, mut connection: Connection) {
        loop {
            let job = {
                let mut state = self.state();
                loop {
                    if state.closed {
                        return;
                    }
                    match state.jobs.pop_front() {
                        Some(job) => break job,
                        None => {
                            state =
                                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                        }
                    }
                }
            };
            // Whoever is woken by the answer may panic.
            drop(catch_unwind(AssertUnwindSafe(|| job(&mut connection))));
        }
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").field("waiting", &self.state().jobs.len()).finish()
    }
}

fn rows<T>(
    database: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let collect = || {
        let mut sql = database.prepare_cached(sql)?;
        sql.query_map(params, read)?.collect::<rusqlite::Result<Vec<T>>>()
    };
    collect().map_err(fault)
}

fn limited(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The key of a session that is there.
fn key(database: &Connection, id: &SessionId) -> Result<i64, StoreError> {
    let found = database
        .prepare_cached("SELECT key FROM session WHERE name = ?1 AND deleted = 0")
        .and_then(|mut sql| sql.query_row([id.as_str()], |row| row.get(0)).optional());
    found.map_err(fault)?.ok_or_else(|| StoreError::NoSession(id.to_string()))
}

fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    let head = head(row)?;
    let (messages, name) = (head.messages(), row.get::<_, String>(16)?);
    Ok(SessionRow {
        id: SessionId::new(name),
        agent: row.get(17)?,
        settings: row.get::<_, String>(18)?.into(),
        created_ms: count(row.get(19)?),
        updated_ms: count(row.get(20)?),
        generation: head.generation,
        running: head.running,
        first_seq: head.first_seq,
        last_seq: head.last_seq,
        messages,
        message_bytes: head.message_bytes,
        event_bytes: head.event_bytes,
        units_open: head.units_open,
        units_unread: head.units_unread,
    })
}

pub(super) fn sessions(
    database: &Connection,
    after: Option<&SessionId>,
    limit: usize,
) -> Result<Vec<SessionRow>, StoreError> {
    let after = match after {
        None => 0,
        Some(id) => {
            // Also one that is deleted has its place.
            let found = database
                .prepare_cached("SELECT key FROM session WHERE name = ?1")
                .and_then(|mut sql| sql.query_row([id.as_str()], |row| row.get(0)).optional());
            let found: Option<i64> = found.map_err(fault)?;
            found.ok_or_else(|| StoreError::NoSession(id.to_string()))?
        }
    };
    let sql = format!(
        "SELECT {HEAD}, name, agent, settings, created_ms, updated_ms FROM {SESSION} \
         WHERE key > ?1 AND deleted = 0 ORDER BY key LIMIT ?2"
    );
    rows(database, &sql, params![after, limited(limit)], session_row)
}

pub(super) fn session(database: &Connection, id: &SessionId) -> Result<SessionRow, StoreError> {
    let sql = format!(
        "SELECT {HEAD}, name, agent, settings, created_ms, updated_ms FROM {SESSION} \
         WHERE key = ?1"
    );
    let mut found = rows(database, &sql, [key(database, id)?], session_row)?;
    found.pop().ok_or_else(|| StoreError::NoSession(id.to_string()))
}

pub(super) fn events(
    database: &Connection,
    id: &SessionId,
    after: u64,
    limit: usize,
    bytes: usize,
) -> Result<EventPage, StoreError> {
    Journal::find(database, key(database, id)?)?.page(after, limit, bytes)
}

pub(super) fn messages(
    database: &Connection,
    id: &SessionId,
    limit: usize,
    bytes: usize,
) -> Result<Vec<MessageRow>, StoreError> {
    let key = key(database, id)?;
    let read = || {
        let mut sql = database.prepare_cached(
            "SELECT number, at_ms, body FROM message WHERE session = ?1 \
             ORDER BY number DESC LIMIT ?2",
        )?;
        let mut found = sql.query(params![key, limited(limit)])?;
        let mut newest = Vec::new();
        let mut room = bytes;
        while let Some(row) = found.next()? {
            let body = row.get_ref(2)?.as_str()?;
            let Some(left) = room.checked_sub(body.len()) else { break };
            room = left;
            let (number, at_ms) = (count(row.get(0)?), count(row.get(1)?));
            newest.push(MessageRow { number, at_ms, body: body.into() });
        }
        newest.reverse();
        Ok(newest)
    };
    read().map_err(fault)
}

pub(super) fn memory(
    database: &Connection,
    id: &SessionId,
) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let sql = "SELECT key, value FROM memory WHERE session = ?1 ORDER BY key";
    rows(database, sql, [key(database, id)?], |row| Ok((row.get(0)?, row.get(1)?)))
}

pub(super) fn units(
    database: &Connection,
    id: &SessionId,
    read: usize,
) -> Result<Vec<UnitRow>, StoreError> {
    let key = key(database, id)?;
    // From which place on acknowledged ones are wanted. Places begin at 1.
    let from = match read {
        0 => i64::MAX,
        read => {
            let sql = "SELECT ended FROM unit WHERE session = ?1 AND state = ?2 \
                       ORDER BY ended DESC LIMIT 1 OFFSET ?3";
            let places =
                rows(database, sql, params![key, ACKNOWLEDGED, limited(read - 1)], |row| {
                    row.get(0)
                })?;
            places.first().copied().unwrap_or(0)
        }
    };
    let sql = "SELECT unit, state, body, completion, ended, deliveries FROM unit \
               WHERE session = ?1 AND (state < ?2 OR ended >= ?3) ORDER BY unit";
    let mut units = rows(database, sql, params![key, ACKNOWLEDGED, from], |row| {
        let state: UnitState = state(row.get(1)?);
        Ok(UnitRow {
            unit: count(row.get(0)?),
            session: id.clone(),
            state,
            body: row.get::<_, String>(2)?.into(),
            children: Vec::new(),
            completion: row.get::<_, Option<String>>(3)?.map(Into::into),
            ended: count(row.get(4)?),
            deliveries: u32::try_from(row.get::<_, i64>(5)?).unwrap_or(u32::MAX),
        })
    })?;
    let sql = "SELECT task, body FROM child WHERE unit = ?1 ORDER BY task";
    for unit in &mut units {
        unit.children = rows(database, sql, [int(unit.unit)], |row| {
            Ok((row.get(0)?, row.get::<_, String>(1)?.into()))
        })?;
    }
    Ok(units)
}

pub(super) fn kept(
    database: &Connection,
    id: &SessionId,
    run: &str,
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT body FROM kept WHERE session = ?1 AND run = ?2 ORDER BY place";
    rows(database, sql, params![key(database, id)?, run], |row| row.get(0))
}

pub(super) fn open_runs(
    database: &Connection,
    id: &SessionId,
) -> Result<Vec<(String, String)>, StoreError> {
    let sql = "SELECT run, body FROM open_run WHERE session = ?1 ORDER BY place";
    rows(database, sql, [key(database, id)?], |row| Ok((row.get(0)?, row.get(1)?)))
}

pub(super) fn unfinished(database: &Connection) -> Result<Vec<SessionId>, StoreError> {
    let sql = "SELECT name FROM session WHERE deleted = 0 AND \
               (run IS NOT NULL OR units_open > 0 OR units_unread > 0 OR runs_open > 0) \
               ORDER BY key";
    rows(database, sql, [], |row| row.get::<_, String>(0).map(SessionId::new))
}
