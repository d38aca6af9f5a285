//! Dropping what is beyond the bounds, a bounded piece at a time.

use std::collections::BTreeSet;

use rusqlite::{TransactionBehavior, params};

use super::books::Standing;
use super::fault::{Point, count, fault, int};
use super::queue::Waiter;
use super::tables::{ACKNOWLEDGED, SESSION, Stands, Tables};
use super::writer::Writer;
use crate::ids::SessionId;
use crate::store::rules::{Head, Known};
use crate::store::{Retention, StoreError, Transcript};

/// Rows that go in one transaction at most, for each kind of rows.
const ROWS: u64 = 1_024;

/// Bytes of bodies from which a transaction drops no more.
const BYTES: u64 = 4 << 20;

/// Pages that are given back to the disk at a time.
const PAGES: u32 = 256;

/// What the writer has to drop.
#[derive(Debug, Default)]
pub(super) struct Chores {
    /// Sessions that are beyond a bound.
    over: BTreeSet<SessionId>,
    /// Rows of deleted sessions may be left.
    sweep: bool,
    /// Sessions beyond a bound are to be looked for.
    find: bool,
    /// Free pages are to be given back.
    vacuum: bool,
    /// One of them has failed, so none is tried before the next write is there.
    paused: bool,
}

impl Chores {
    /// What may be left from the last time.
    pub(super) fn left() -> Chores {
        Chores { sweep: true, ..Chores::default() }
    }

    /// All that there is.
    pub(super) fn all(&mut self) {
        (self.sweep, self.find, self.vacuum) = (true, true, true);
        self.paused = false;
    }

    /// Whether anything is to be done now.
    pub(super) fn any(&self) -> bool {
        !self.paused && (!self.over.is_empty() || self.sweep || self.find || self.vacuum)
    }

    /// What has failed may go well now: a write was there.
    pub(super) fn go_on(&mut self) {
        self.paused = false;
    }

    /// A session was deleted.
    pub(super) fn sweep(&mut self) {
        self.sweep = true;
    }

    /// A session has changed.
    pub(super) fn look_at(&mut self, id: &SessionId, head: &Head, keep: &Retention, more: bool) {
        if more || Over::of(head, keep, Slack::None).any() {
            self.over.insert(id.clone());
        }
    }
}

/// How far beyond a bound something may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slack {
    /// Not at all.
    None,
    /// By a tenth.
    Some,
}

impl Slack {
    fn over(self, has: u64, most: u64) -> bool {
        match self {
            Slack::None => has > most,
            Slack::Some => has > most.saturating_add(most / 10),
        }
    }
}

/// What a session has too much of.
#[derive(Debug, Clone, Copy)]
struct Over {
    events: bool,
    messages: bool,
    units: bool,
}

impl Over {
    fn of(head: &Head, keep: &Retention, slack: Slack) -> Over {
        let events = slack.over(head.events(), keep.events_per_session)
            || slack.over(head.event_bytes, keep.event_bytes_per_session);
        let messages = slack.over(head.message_bytes, keep.transcript_bytes_per_session);
        Over {
            events: events && head.events() > 1,
            messages: messages && head.messages() > 1 && keep.transcript == Transcript::DropOldest,
            units: slack.over(head.units_read, keep.read_units_per_session),
        }
    }

    fn any(self) -> bool {
        self.events || self.messages || self.units
    }
}

impl Slack {
    /// Drops what is beyond the bounds, down to the bounds, where something is too far beyond them. Says whether there is
    /// more.
    pub(super) fn trim(
        self,
        tables: &Tables<'_>,
        head: &mut Head,
        keep: &Retention,
    ) -> Result<bool, StoreError> {
        let over = Over::of(head, keep, self);
        if over.events {
            trim_events(tables, head, keep, self)?;
        }
        if over.messages {
            trim_messages(tables, head, keep)?;
        }
        if over.units {
            trim_units(tables, head, keep)?;
        }
        Ok(over.any() && Over::of(head, keep, Slack::None).any())
    }
}

fn sizes(tables: &Tables<'_>, sql: &str, key: u64) -> Result<Vec<(u64, u64)>, StoreError> {
    let read = || {
        let mut sql = tables.0.prepare_cached(sql)?;
        let rows = sql.query_map(params![int(key), int(ROWS)], |row| {
            Ok((count(row.get(0)?), count(row.get(1)?)))
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    read().map_err(fault)
}

/// Events go in lots from one mark to the next. In the midst of writes no more of them go than have to: what is left over
/// the bounds goes when there is time.
fn trim_events(
    tables: &Tables<'_>,
    head: &mut Head,
    keep: &Retention,
    slack: Slack,
) -> Result<(), StoreError> {
    let (first, mut dropped) = (head.first_seq, 0);
    while Over::of(head, keep, slack).events && head.first_seq - first < ROWS && dropped <= BYTES {
        dropped += tables.drop_oldest(head, |head| Over::of(head, keep, Slack::None).events)?;
    }
    Ok(())
}

fn trim_messages(tables: &Tables<'_>, head: &mut Head, keep: &Retention) -> Result<(), StoreError> {
    let sql = "SELECT number, octet_length(body) FROM message WHERE session = ?1 ORDER BY number LIMIT ?2";
    let mut dropped = 0;
    for (number, bytes) in sizes(tables, sql, head.key)? {
        if !Over::of(head, keep, Slack::None).messages || dropped > BYTES {
            break;
        }
        head.first_message = number + 1;
        head.message_bytes = head.message_bytes.saturating_sub(bytes);
        dropped += bytes;
    }
    let sql = "DELETE FROM message WHERE session = ?1 AND number < ?2";
    tables.run(sql, params![int(head.key), int(head.first_message)]).map(drop)
}

fn trim_units(tables: &Tables<'_>, head: &mut Head, keep: &Retention) -> Result<(), StoreError> {
    let excess = head.units_read.saturating_sub(keep.read_units_per_session).min(ROWS);
    let sql = "SELECT unit FROM unit WHERE session = ?1 AND state = ?2 ORDER BY ended LIMIT ?3";
    let read = || {
        let mut sql = tables.0.prepare_cached(sql)?;
        let bounds = params![int(head.key), ACKNOWLEDGED, int(excess)];
        let rows = sql.query_map(bounds, |row| row.get(0).map(count))?;
        rows.collect::<rusqlite::Result<Vec<u64>>>()
    };
    for unit in read().map_err(fault)? {
        tables.drop_unit(unit)?;
        head.units_read = head.units_read.saturating_sub(1);
    }
    Ok(())
}

/// Drops rows of sessions that are deleted. Says whether there may be more.
fn sweep(tables: &Tables<'_>) -> Result<bool, StoreError> {
    let next = "SELECT key FROM session WHERE deleted = 1 LIMIT 1";
    let Some(key) = tables.one(next, [], |row| row.get::<_, i64>(0))? else { return Ok(false) };
    let pieces = [
        "DELETE FROM mark WHERE session = ?1 AND seq IN \
         (SELECT seq FROM mark WHERE session = ?1 ORDER BY seq LIMIT ?2)",
        "DELETE FROM message WHERE session = ?1 AND number IN \
         (SELECT number FROM message WHERE session = ?1 ORDER BY number LIMIT ?2)",
        "DELETE FROM memory WHERE session = ?1 AND key IN \
         (SELECT key FROM memory WHERE session = ?1 ORDER BY key LIMIT ?2)",
        "DELETE FROM kept WHERE place IN (SELECT place FROM kept WHERE session = ?1 LIMIT ?2)",
        "DELETE FROM open_run WHERE place IN \
         (SELECT place FROM open_run WHERE session = ?1 LIMIT ?2)",
        "DELETE FROM child WHERE (unit, task) IN (SELECT child.unit, child.task FROM unit \
         JOIN child ON child.unit = unit.unit WHERE unit.session = ?1 LIMIT ?2)",
        "DELETE FROM unit WHERE unit IN (SELECT unit FROM unit WHERE session = ?1 LIMIT ?2)",
    ];
    if tables.drop_newest(key, ROWS / 4)? {
        return Ok(true);
    }
    for piece in pieces {
        if tables.run(piece, params![key, int(ROWS / 4)])? > 0 {
            return Ok(true);
        }
    }
    tables.run("UPDATE session SET deleted = 2 WHERE key = ?1", [key])?;
    Ok(true)
}

impl Writer {
    /// Does one piece, or tells those who wait that all is done.
    pub(super) fn tidy(&mut self, waiting: &mut Vec<Waiter>) {
        match self.piece() {
            Ok(true) => {}
            Ok(false) => {
                self.checkpoint();
                if !waiting.is_empty() {
                    self.shorten();
                }
                self.measure();
                for waiter in waiting.drain(..) {
                    drop(waiter.send(Ok(())));
                }
            }
            Err(error) => {
                // Whoever asks again begins again, and so does the next write.
                self.chores.paused = true;
                self.books.forget();
                self.pages = 0;
                tracing::debug!(%error, "nothing can be dropped now");
                for waiter in waiting.drain(..) {
                    drop(waiter.send(Err(error.clone())));
                }
            }
        }
    }

    fn piece(&mut self) -> Result<bool, StoreError> {
        self.faults.at(Point::Tidy, &self.connection)?;
        if !self.chores.any() {
            return Ok(false);
        }
        if self.chores.find {
            let over = self.find()?;
            self.chores.over.extend(over);
            self.chores.find = false;
            return Ok(true);
        }
        if let Some(id) = self.chores.over.first().cloned() {
            if !self.trim(&id)? {
                self.chores.over.remove(&id);
            }
            return Ok(true);
        }
        if self.chores.sweep {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(fault)?;
            self.chores.sweep = sweep(&Tables(&transaction))?;
            transaction.commit().map_err(fault)?;
            return Ok(true);
        }
        if self.chores.vacuum {
            self.chores.vacuum = self.vacuum()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Sessions beyond a bound.
    fn find(&self) -> Result<Vec<SessionId>, StoreError> {
        let keep = &self.retention;
        let drops = keep.transcript == Transcript::DropOldest;
        let read = || {
            let sql = format!(
                "SELECT name FROM {SESSION} WHERE deleted = 0 AND (last_seq + 1 - first_seq > ?1 \
                 OR event_bytes > ?2 OR units_read > ?3 OR (?4 AND message_bytes > ?5))"
            );
            let mut sql = self.connection.prepare_cached(&sql)?;
            let bounds = params![
                int(keep.events_per_session),
                int(keep.event_bytes_per_session),
                int(keep.read_units_per_session),
                drops,
                int(keep.transcript_bytes_per_session),
            ];
            let rows = sql.query_map(bounds, |row| row.get::<_, String>(0))?;
            rows.map(|name| name.map(SessionId::new)).collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(fault)
    }

    /// Drops a piece of what a session has too much of. Says whether there is more.
    fn trim(&mut self, id: &SessionId) -> Result<bool, StoreError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(fault)?;
        let tables = Tables(&transaction);
        let mut draft = self.books.draft(&tables)?;
        let Known::Here(mut head) = self.books.known(&draft, &tables, id)? else {
            return Ok(false);
        };
        let more = Slack::None.trim(&tables, &mut head, &self.retention)?;
        Stands::new(tables)?.write(&head, self.books.committed(id), None)?;
        transaction.commit().map_err(fault)?;
        draft.heads.insert(id.clone(), Standing::Here(head, true));
        self.books.commit(draft);
        Ok(more)
    }

    /// Gives some free pages back to the disk. Says whether there are more.
    fn vacuum(&mut self) -> Result<bool, StoreError> {
        let free = || {
            let free = "PRAGMA freelist_count";
            self.connection.query_row(free, [], |row| row.get::<_, i64>(0)).map_err(fault)
        };
        let before = free()?;
        if before == 0 {
            return Ok(false);
        }
        let step = || {
            let mut sql =
                self.connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
            let mut pages = sql.query([])?;
            while pages.next()?.is_some() {}
            Ok(())
        };
        step().map_err(fault)?;
        // A database without the pages for it gives nothing back.
        Ok(free()? < before)
    }

    /// Makes the write-ahead log as short as it can be.
    fn shorten(&self) {
        if let Err(error) = Tables(&self.connection).checkpoint("TRUNCATE") {
            tracing::debug!(%error, "the write-ahead log stays as long as it is");
        }
    }
}
