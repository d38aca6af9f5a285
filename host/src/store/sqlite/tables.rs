//! The statements of the writer.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params, Row, params};

use super::fault::{count, fault, int};
use super::journal::Append;
use crate::ids::SessionId;
use crate::store::rules::{Facts, Head, Known, Step};
use crate::store::{MOST_KEPT, Running, Start, StoreError, UnitState};

/// What is counted for the whole database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) last_key: u64,
    pub(super) next_session: u64,
    pub(super) next_unit: u64,
}

/// The tables, as the writer uses them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables<'c>(pub(super) &'c Connection);

/// Where a session is in the database.
pub(super) const SESSION: &str = "session JOIN extent ON extent.session = session.key";

/// The columns of [`SESSION`] that a [`Head`] is made of, in the order of [`head`].
pub(super) const HEAD: &str = "key, generation, run, brings, first_seq, last_seq, event_bytes, first_message, \
     last_message, message_bytes, ended, units_open, units_unread, units_read, runs_open, newest";

/// A head from the first columns of a row.
pub(super) fn head(row: &Row<'_>) -> rusqlite::Result<Head> {
    let number = |column: usize| row.get::<_, i64>(column).map(count);
    let generation = number(1)?;
    let run: Option<String> = row.get(2)?;
    let brings: Option<i64> = row.get(3)?;
    let running = run.map(|run| Running { generation, run: run.into(), brings: brings.map(count) });
    Ok(Head {
        key: number(0)?,
        generation,
        running,
        first_seq: number(4)?,
        last_seq: number(5)?,
        event_bytes: number(6)?,
        first_message: number(7)?,
        last_message: number(8)?,
        message_bytes: number(9)?,
        ended: number(10)?,
        units_open: number(11)?,
        units_unread: number(12)?,
        units_read: number(13)?,
        runs_open: number(14)?,
        newest: number(15)?,
    })
}

/// How far a unit is, as it is written.
pub(super) const ACCEPTED: i64 = 0;
pub(super) const ENDED: i64 = 1;
pub(super) const ACKNOWLEDGED: i64 = 2;

/// How far a unit is, from what was written.
pub(super) fn state(written: i64) -> UnitState {
    match written {
        ACCEPTED => UnitState::Accepted,
        ENDED => UnitState::Ended,
        _ => UnitState::Acknowledged,
    }
}

impl Tables<'_> {
    pub(super) fn run(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        self.0.prepare_cached(sql).and_then(|mut sql| sql.execute(params)).map_err(fault)
    }

    pub(super) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let mut sql = self.0.prepare_cached(sql).map_err(fault)?;
        sql.query_row(params, read).optional().map_err(fault)
    }

    fn number(&self, sql: &str) -> Result<i64, StoreError> {
        Ok(self.one(sql, [], |row| row.get(0))?.unwrap_or(0))
    }

    pub(super) fn data_version(&self) -> Result<i64, StoreError> {
        self.number("PRAGMA data_version")
    }

    /// Bytes of the file, and those of them that are in use.
    pub(super) fn bytes(&self) -> Result<(u64, u64), StoreError> {
        let page = count(self.number("PRAGMA page_size")?);
        let pages = count(self.number("PRAGMA page_count")?);
        let free = count(self.number("PRAGMA freelist_count")?);
        Ok((pages * page, pages.saturating_sub(free) * page))
    }

    /// Brings pages home from the write-ahead log, or none of them with `NOOP`. Says how many are left in it.
    pub(super) fn checkpoint(&self, how: &str) -> Result<u64, StoreError> {
        let sql = format!("PRAGMA wal_checkpoint({how})");
        let left = self.one(&sql, [], |row| {
            let (there, home) = (row.get::<_, i64>(1)?, row.get::<_, i64>(2)?);
            Ok(count(there).saturating_sub(count(home)))
        })?;
        Ok(left.unwrap_or(0))
    }

    pub(super) fn counters(&self) -> Result<Counters, StoreError> {
        let counter = |name: &str| {
            let sql = "SELECT value FROM counter WHERE name = ?1";
            let value: Option<i64> = self.one(sql, [name], |row| row.get(0))?;
            value.map(count).ok_or_else(|| StoreError::Corrupt(format!("no counter {name}")))
        };
        Ok(Counters {
            last_key: count(self.number("SELECT ifnull(max(key), 0) FROM session")?),
            next_session: counter("next-session")?,
            next_unit: counter("next-unit")?,
        })
    }

    pub(super) fn start(&self) -> Result<Start, StoreError> {
        let Counters { next_session, next_unit, .. } = self.counters()?;
        Ok(Start { next_session, next_unit })
    }

    /// Writes what has changed of the counters.
    pub(super) fn count(&self, before: &Counters, now: &Counters) -> Result<(), StoreError> {
        let sql = "UPDATE counter SET value = ?2 WHERE name = ?1";
        if before.next_session != now.next_session {
            self.run(sql, params!["next-session", int(now.next_session)])?;
        }
        if before.next_unit != now.next_unit {
            self.run(sql, params!["next-unit", int(now.next_unit)])?;
        }
        Ok(())
    }

    /// Writes something that changes nothing.
    pub(super) fn touch(&self) -> Result<(), StoreError> {
        self.run("UPDATE counter SET value = value", []).map(drop)
    }

    /// What is recorded of a session. A new one would have that key.
    pub(super) fn known(&self, id: &SessionId, key: u64) -> Result<Known, StoreError> {
        let sql = format!("SELECT {HEAD}, deleted FROM {SESSION} WHERE name = ?1");
        let found =
            self.one(&sql, [id.as_str()], |row| Ok((head(row)?, row.get::<_, i64>(16)?)))?;
        Ok(match found {
            Some((head, 0)) => Known::Here(head),
            Some(_) => Known::Gone,
            None => Known::Never(key),
        })
    }

    /// Carries out one step, and counts its bytes.
    pub(super) fn carry_out(
        &self,
        id: &SessionId,
        head: &mut Head,
        step: &Step<'_>,
        at_ms: u64,
        journal: &mut Append<'_>,
    ) -> Result<(), StoreError> {
        let key = int(head.key);
        match step {
            Step::Create { agent, settings } => {
                let sql = "INSERT INTO session (key, name, agent, settings, created_ms) \
                           VALUES (?1, ?2, ?3, ?4, ?5)";
                let settings = settings.text();
                self.run(sql, params![key, id.as_str(), agent, &*settings, int(at_ms)])?;
                let sql = "INSERT INTO extent VALUES (?1, 1, 0, 0, 0, ?2)";
                self.run(sql, params![key, int(at_ms)])?;
            }
            Step::CreatedBefore { ms } => {
                let sql = "UPDATE session SET created_ms = ?2 WHERE key = ?1";
                self.run(sql, params![key, int(*ms)])?;
            }
            Step::At { .. } => {}
            Step::Delete => {
                let sql =
                    "UPDATE session SET deleted = 1, agent = '', settings = '' WHERE key = ?1";
                self.run(sql, [key])?;
                *head = Head {
                    first_seq: head.last_seq + 1,
                    last_seq: head.last_seq,
                    newest: head.newest,
                    ..Head::new(head.key)
                };
            }
            Step::Event { seq, run, body } => journal.event(head, *seq, at_ms, run, body)?,
            Step::Message { number, body } => {
                let body = body.text();
                head.message_bytes += body.len() as u64;
                let sql =
                    "INSERT INTO message (session, number, at_ms, body) VALUES (?1, ?2, ?3, ?4)";
                self.run(sql, params![key, int(*number), int(at_ms), &*body])?;
            }
            Step::Remember { key: name, value: Some(value) } => {
                let sql = "INSERT INTO memory (session, key, value) VALUES (?1, ?2, ?3) \
                           ON CONFLICT DO UPDATE SET value = excluded.value";
                self.run(sql, params![key, name, value])?;
            }
            Step::Remember { key: name, value: None } => {
                let sql = "DELETE FROM memory WHERE session = ?1 AND key = ?2";
                self.run(sql, params![key, name])?;
            }
            Step::OpenRun { run, body } => {
                let sql = "INSERT INTO open_run (session, run, body) VALUES (?1, ?2, ?3)";
                self.run(sql, params![key, &***run, &*body.text()])?;
            }
            Step::CloseRun { run } => {
                let sql = "DELETE FROM open_run WHERE session = ?1 AND run = ?2";
                self.run(sql, params![key, &***run])?;
            }
            Step::Keep { run, body } => {
                let sql = "INSERT INTO kept (session, run, body) VALUES (?1, ?2, ?3)";
                self.run(sql, params![key, &***run, &*body.text()])?;
                let sql = "DELETE FROM kept WHERE session = ?1 AND run = ?2 AND place <= (
                    SELECT place FROM kept WHERE session = ?1 AND run = ?2
                    ORDER BY place DESC LIMIT 1 OFFSET ?3)";
                self.run(sql, params![key, &***run, i64::try_from(MOST_KEPT).unwrap_or(i64::MAX)])?;
            }
            Step::DropKept { run } => {
                let sql = "DELETE FROM kept WHERE session = ?1 AND run = ?2";
                self.run(sql, params![key, &**run])?;
            }
            Step::AddUnit { .. }
            | Step::RemoveUnit { .. }
            | Step::Child { .. }
            | Step::EndUnit { .. }
            | Step::ReadUnit { .. }
            | Step::Deliver { .. } => self.of_a_unit(key, step)?,
        }
        Ok(())
    }

    fn of_a_unit(&self, key: i64, step: &Step<'_>) -> Result<(), StoreError> {
        match step {
            Step::AddUnit { unit, body } => {
                let sql = "INSERT INTO unit (unit, session, state, body) VALUES (?1, ?2, ?3, ?4)";
                self.run(sql, params![int(*unit), key, ACCEPTED, &*body.text()])?;
            }
            Step::RemoveUnit { unit } => self.drop_unit(*unit)?,
            Step::Child { unit, task, body } => {
                let sql = "INSERT OR IGNORE INTO child (unit, task, body) VALUES (?1, ?2, ?3)";
                self.run(sql, params![int(*unit), task, &*body.text()])?;
            }
            Step::EndUnit { unit, place, body } => {
                let sql = "UPDATE unit SET state = ?2, ended = ?3, completion = ?4 WHERE unit = ?1";
                self.run(sql, params![int(*unit), ENDED, int(*place), &*body.text()])?;
            }
            Step::ReadUnit { unit } => {
                let sql = "UPDATE unit SET state = ?2 WHERE unit = ?1";
                self.run(sql, params![int(*unit), ACKNOWLEDGED])?;
            }
            Step::Deliver { unit } => {
                let sql = "UPDATE unit SET deliveries = deliveries + 1 WHERE unit = ?1";
                self.run(sql, [int(*unit)])?;
            }
            Step::Create { .. }
            | Step::CreatedBefore { .. }
            | Step::At { .. }
            | Step::Delete
            | Step::Event { .. }
            | Step::Message { .. }
            | Step::Remember { .. }
            | Step::OpenRun { .. }
            | Step::CloseRun { .. }
            | Step::Keep { .. }
            | Step::DropKept { .. } => {}
        }
        Ok(())
    }

    /// Drops a unit and what its children gave.
    pub(super) fn drop_unit(&self, unit: u64) -> Result<(), StoreError> {
        self.run("DELETE FROM child WHERE unit = ?1", [int(unit)])?;
        self.run("DELETE FROM unit WHERE unit = ?1", [int(unit)]).map(drop)
    }
}

/// Writes where sessions stand. Its statement is looked up once for a batch.
pub(super) struct Stands<'c> {
    tables: Tables<'c>,
    extent: CachedStatement<'c>,
}

impl<'c> Stands<'c> {
    pub(super) fn new(tables: Tables<'c>) -> Result<Stands<'c>, StoreError> {
        let sql = "UPDATE extent SET first_seq = ?2, last_seq = ?3, newest = ?4, event_bytes = ?5, \
                   updated_ms = ifnull(?6, updated_ms) WHERE session = ?1";
        let extent = tables.0.prepare_cached(sql).map_err(fault)?;
        Ok(Stands { tables, extent })
    }

    /// Writes where a session stands that stood `before`, where that is known. Most writes are events, which change
    /// nothing of its own row.
    pub(super) fn write(
        &mut self,
        head: &Head,
        before: Option<&Head>,
        updated_ms: Option<u64>,
    ) -> Result<(), StoreError> {
        if !before.is_some_and(|before| head.differs_in_events(before)) {
            self.tables.write_row(head)?;
        }
        let row = params![
            int(head.key),
            int(head.first_seq),
            int(head.last_seq),
            int(head.newest),
            int(head.event_bytes),
            updated_ms.map(int),
        ];
        there(head, self.extent.execute(row).map_err(fault)?)
    }
}

impl Tables<'_> {
    fn write_row(&self, head: &Head) -> Result<(), StoreError> {
        let running = head.running.as_ref();
        let sql = "UPDATE session SET generation = ?2, run = ?3, brings = ?4, first_message = ?5, \
                   last_message = ?6, message_bytes = ?7, ended = ?8, units_open = ?9, \
                   units_unread = ?10, units_read = ?11, runs_open = ?12 WHERE key = ?1";
        let row = params![
            int(head.key),
            int(head.generation),
            running.map(|running| &*running.run),
            running.and_then(|running| running.brings).map(int),
            int(head.first_message),
            int(head.last_message),
            int(head.message_bytes),
            int(head.ended),
            int(head.units_open),
            int(head.units_unread),
            int(head.units_read),
            int(head.runs_open),
        ];
        there(head, self.run(sql, row)?)
    }
}

fn there(head: &Head, changed: usize) -> Result<(), StoreError> {
    if changed == 1 {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!("the row of session {} is not there", head.key)))
}

impl Facts for Tables<'_> {
    fn unit(&mut self, unit: u64) -> Result<Option<(u64, UnitState)>, StoreError> {
        let sql = "SELECT session, state FROM unit WHERE unit = ?1";
        self.one(sql, [int(unit)], |row| Ok((count(row.get(0)?), state(row.get(1)?))))
    }

    fn open_run(&mut self, key: u64, run: &str) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM open_run WHERE session = ?1 AND run = ?2";
        Ok(self.one(sql, params![int(key), run], |_| Ok(()))?.is_some())
    }
}
