//! Events, as they lie in the database: those of all sessions in one table, in the order in which they were committed.
//!
//! A commit writes to the end of that table, a page or two of it however many sessions it is of. An event knows the place
//! of the one before it in its session, and every [`MARKED`]th of a session is marked: from a mark at most that many steps
//! back lead to the one with a number.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, params};

use super::fault::{count, fault, int};
use super::tables::Tables;
use crate::store::rules::Head;
use crate::store::{Body, EventPage, EventRow, StoreError};

/// From one mark of a session to the next. The schema has it too.
const MARKED: u64 = 64;

/// The events of one session that are there.
#[derive(Debug)]
pub(super) struct Journal<'c> {
    database: &'c Connection,
    /// The session's key.
    session: i64,
    first_seq: u64,
    last_seq: u64,
    /// The place of the last.
    newest: i64,
}

impl<'c> Journal<'c> {
    pub(super) fn of(database: &'c Connection, head: &Head) -> Journal<'c> {
        Journal {
            database,
            session: int(head.key),
            first_seq: head.first_seq,
            last_seq: head.last_seq,
            newest: int(head.newest),
        }
    }

    /// Reads where a session's events are.
    pub(super) fn find(database: &'c Connection, session: i64) -> Result<Journal<'c>, StoreError> {
        let sql = "SELECT first_seq, last_seq, newest FROM extent WHERE session = ?1";
        let found = database.prepare_cached(sql).and_then(|mut sql| {
            sql.query_row([session], |row| {
                Ok(Journal {
                    database,
                    session,
                    first_seq: row.get(0).map(count)?,
                    last_seq: row.get(1).map(count)?,
                    newest: row.get(2)?,
                })
            })
        });
        found.map_err(fault)
    }

    /// The events after that number, in their order, up to so many and so many bytes. The first is there whatever it
    /// takes.
    pub(super) fn page(
        &self,
        after: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<EventPage, StoreError> {
        let mut page = EventPage { first: self.first_seq, events: Vec::new() };
        let (mut next, mut room) = (self.first_seq.max(after.saturating_add(1)), bytes);
        while next <= self.last_seq {
            for place in self.lot(next)? {
                if page.events.len() >= limit {
                    return Ok(page);
                }
                let event = self.event(next, place)?;
                let left = room.checked_sub(event.body.len());
                if left.is_none() && !page.events.is_empty() {
                    return Ok(page);
                }
                room = left.unwrap_or(0);
                page.events.push(event);
                next += 1;
            }
        }
        Ok(page)
    }

    /// The places of an event and of those after it up to the next mark, in their order. Bodies are not read for it.
    pub(super) fn lot(&self, from: u64) -> Result<Vec<i64>, StoreError> {
        let mark = from.next_multiple_of(MARKED);
        let (last, place) = match self.last_seq {
            last if last <= mark => (last, Some(self.newest)),
            _ => (mark, self.marked(mark)?),
        };
        let mut places = Vec::new();
        let mut next = place.ok_or_else(|| torn(mark))?;
        for seq in (from..=last).rev() {
            let before =
                "SELECT before FROM journal WHERE place = ?1 AND session = ?2 AND seq = ?3";
            let before = self.row(before, params![next, self.session, int(seq)])?;
            places.push(next);
            next = before.ok_or_else(|| torn(seq))?;
        }
        places.reverse();
        Ok(places)
    }

    fn marked(&self, seq: u64) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT place FROM mark WHERE session = ?1 AND seq = ?2";
        self.row(sql, params![self.session, int(seq)])
    }

    fn row(&self, sql: &str, params: impl rusqlite::Params) -> Result<Option<i64>, StoreError> {
        let found = self
            .database
            .prepare_cached(sql)
            .and_then(|mut sql| sql.query_row(params, |row| row.get(0)).optional());
        found.map_err(fault)
    }

    fn event(&self, seq: u64, place: i64) -> Result<EventRow, StoreError> {
        let sql = "SELECT at_ms, run, body FROM journal WHERE place = ?1";
        let found = self.database.prepare_cached(sql).and_then(|mut sql| {
            sql.query_row([place], |row| {
                let (run, body) = (row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?);
                let at_ms = row.get(0).map(count)?;
                Ok(EventRow { seq, at_ms, run: run.into(), body: body.into() })
            })
        });
        found.map_err(fault)
    }
}

/// The chain of events has a gap where nothing was dropped.
fn torn(seq: u64) -> StoreError {
    StoreError::Corrupt(format!("event {seq} of a session is not where it was written"))
}

/// Writes events behind all others. Its statement is looked up once for a batch.
pub(super) struct Append<'c> {
    tables: Tables<'c>,
    insert: CachedStatement<'c>,
}

impl<'c> Append<'c> {
    pub(super) fn new(tables: Tables<'c>) -> Result<Append<'c>, StoreError> {
        let sql = "INSERT INTO journal (session, seq, before, at_ms, run, body) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let insert = tables.0.prepare_cached(sql).map_err(fault)?;
        Ok(Append { tables, insert })
    }

    /// Writes the next event of a session, and where it is.
    pub(super) fn event(
        &mut self,
        head: &mut Head,
        seq: u64,
        at_ms: u64,
        run: &str,
        body: &Body,
    ) -> Result<(), StoreError> {
        let (body, session) = (body.text(), int(head.key));
        let event = params![session, int(seq), int(head.newest), int(at_ms), run, &*body];
        let place = self.insert.insert(event).map_err(fault)?;
        if seq.is_multiple_of(MARKED) {
            let sql = "INSERT INTO mark (session, seq, place) VALUES (?1, ?2, ?3)";
            self.tables.run(sql, params![session, int(seq), place])?;
        }
        head.newest = count(place);
        head.event_bytes += body.len() as u64;
        Ok(())
    }
}

impl Tables<'_> {
    /// Drops the oldest events of a session while they are too much, and a bound is kept: the marks lead to them, a lot at
    /// a time. Says how many bytes they had.
    pub(super) fn drop_oldest(
        &self,
        head: &mut Head,
        too_much: impl Fn(&Head) -> bool,
    ) -> Result<u64, StoreError> {
        let mut dropped = 0;
        for place in Journal::of(self.0, head).lot(head.first_seq)? {
            if !too_much(head) {
                break;
            }
            let sql = "DELETE FROM journal WHERE place = ?1 RETURNING octet_length(body)";
            let bytes = self.one(sql, [place], |row| row.get(0).map(count))?.unwrap_or(0);
            head.first_seq += 1;
            head.event_bytes = head.event_bytes.saturating_sub(bytes);
            dropped += bytes;
        }
        let sql = "DELETE FROM mark WHERE session = ?1 AND seq < ?2";
        self.run(sql, params![int(head.key), int(head.first_seq)])?;
        Ok(dropped)
    }

    /// Drops a piece of the events of a session that is deleted, the newest first. Says whether there were any.
    pub(super) fn drop_newest(&self, session: i64, most: u64) -> Result<bool, StoreError> {
        let newest = "SELECT newest FROM extent WHERE session = ?1";
        let Some(newest) = self.one(newest, [session], |row| row.get::<_, i64>(0))? else {
            return Ok(false);
        };
        let mut place = newest;
        for _ in 0..most {
            let sql = "DELETE FROM journal WHERE place = ?1 AND session = ?2 RETURNING before";
            match self.one(sql, [place, session], |row| row.get(0))? {
                Some(before) => place = before,
                None => break,
            }
        }
        if place == newest {
            return Ok(false);
        }
        self.run("UPDATE extent SET newest = ?2 WHERE session = ?1", [session, place])?;
        Ok(true)
    }
}
