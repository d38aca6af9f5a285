//! The writes of one transaction, and who may still come to it.
//!
//! Whoever waits for the record of one thing often records the next thing at once. A writer that goes on immediately has a
//! commit with half of them, and another with the other half, and each half waits for two commits. So a transaction stays
//! open for those who were told of the one before, while they come, and their writes are carried out as they do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::queue::{Queue, Queued};
use crate::store::{Change, Class, StoreError};

/// So many times in a row at most nobody is waited for, as its base-2 logarithm.
const MOST_MISSED: u32 = 6;

/// The least and the most that one look at who has come takes.
const LOOK: (Duration, Duration) = (Duration::from_micros(50), Duration::from_micros(200));

/// Writes that are committed together, each with why it is left out.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) writes: Vec<(Queued, Option<StoreError>)>,
    /// Bytes of them.
    pub(super) bytes: u64,
}

impl Batch {
    /// Adds writes, with all bodies in words. Whose words panic is refused.
    pub(super) fn add(&mut self, more: Vec<Queued>) {
        for mut queued in more {
            self.bytes += queued.bytes;
            let changes = &mut queued.write.changes;
            let said = catch_unwind(AssertUnwindSafe(|| {
                changes.iter_mut().for_each(Change::put_into_words);
            }));
            let refused = said
                .err()
                .map(|_panic| StoreError::Invalid("it could not be put into words".to_owned()));
            self.writes.push((queued, refused));
        }
    }

    /// How many wait for it.
    pub(super) fn promises(&self) -> usize {
        let promises = |(queued, _): &&(Queued, _)| queued.write.class == Class::Promise;
        self.writes.iter().filter(promises).count()
    }
}

/// Who is waited for. Where nobody comes, it is tried ever more seldom.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    expected: Option<Expected>,
    /// How long the transaction has stayed open for them.
    waited: Duration,
    missed: u32,
    /// So many times nobody is waited for.
    passes: u32,
}

#[derive(Debug, Clone, Copy)]
struct Expected {
    /// Writes that wait already.
    waiting: usize,
    /// Those who were told.
    told: usize,
    until: Instant,
    look: Duration,
}

impl Gathering {
    /// So many have been told of a commit that took that long, and so many writes wait for the next one. Looks out for the
    /// first of those who are expected.
    pub(super) fn told(&mut self, told: usize, waiting: usize, took: Duration, queue: &Queue) {
        let passes = self.passes > 0;
        self.passes = self.passes.saturating_sub(1);
        let (bound, look) = bounds(took.saturating_sub(std::mem::take(&mut self.waited)));
        let expected = Expected { waiting, told, until: Instant::now() + bound, look };
        self.expected = (told > 0 && !passes).then_some(expected);
        if self.expected.is_some() {
            queue.look_out(LOOK.0);
        }
    }

    /// Adds those to the batch that have come or come soon. Says whether there were any.
    pub(super) fn more(&mut self, batch: &mut Batch, queue: &Queue) -> bool {
        let Some(expected) = self.expected else { return false };
        let rest = (expected.waiting + expected.told).saturating_sub(batch.writes.len());
        let begun = Instant::now();
        let left = expected.until.saturating_duration_since(begun);
        let more = match rest {
            0 => Vec::new(),
            rest => queue.more(rest, expected.look.min(left), batch),
        };
        self.waited += begun.elapsed();
        if more.is_empty() {
            self.expected = None;
            // Who comes when the time is over was not waited for.
            if rest == 0 || !left.is_zero() {
                self.came(expected.told, batch.writes.len().saturating_sub(expected.waiting));
            }
            return false;
        }
        batch.add(more);
        true
    }

    fn came(&mut self, told: usize, came: usize) {
        match came >= told.div_ceil(2) {
            true => self.missed = 0,
            false => {
                self.missed = (self.missed + 1).min(MOST_MISSED);
                self.passes = 1 << self.missed;
            }
        }
    }
}

/// How long it is waited at most, when a commit takes that long: who has come meanwhile would wait as long for the next one.
/// It ends with the first look that finds nobody new.
fn bounds(commit: Duration) -> (Duration, Duration) {
    (commit, (commit / 4).clamp(LOOK.0, LOOK.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;
    use crate::store::Write;

    fn tries(gathering: &mut Gathering, came: usize) -> Vec<usize> {
        let queue = Queue::default();
        let due = |_| {
            gathering.told(8, 0, Duration::ZERO, &queue);
            gathering.expected.take().map(|expected| gathering.came(expected.told, came)).is_some()
        };
        let due: Vec<bool> = (0..400).map(due).collect();
        due.iter().enumerate().filter(|(_, due)| **due).map(|(at, _)| at).collect()
    }

    #[test]
    fn nobody_is_waited_for_who_does_not_come() {
        let mut gathering = Gathering::default();
        let (seldom, often) = (tries(&mut gathering, 3), tries(&mut gathering, 4));
        assert_eq!(seldom, [0, 3, 8, 17, 34, 67, 132, 197, 262, 327, 392]);
        assert_eq!(often, Vec::from_iter(57..400), "who has come back is waited for again");
        gathering.told(0, 8, Duration::ZERO, &Queue::default());
        assert!(gathering.expected.is_none(), "nobody was told");
    }

    const LONG: Duration = Duration::from_secs(3_600);

    fn come(queue: &Queue, writes: usize) {
        for _ in 0..writes {
            let (session, changes) = (SessionId::new("s1"), Vec::new());
            let write = Write { session, changes, class: Class::Promise, then: None };
            queue.push(write).expect("it is open");
        }
    }

    #[test]
    fn those_who_come_back_are_in_the_same_transaction() {
        let (queue, mut gathering, mut batch) = <(Queue, Gathering, Batch)>::default();
        gathering.told(3, 1, LONG, &queue);
        come(&queue, 2);
        assert!(gathering.more(&mut batch, &queue));
        assert_eq!(batch.writes.len(), 2);
        come(&queue, 2);
        assert!(gathering.more(&mut batch, &queue));
        come(&queue, 1);
        assert!(!gathering.more(&mut batch, &queue), "all who were expected are there");
        assert_eq!((batch.writes.len(), batch.promises(), gathering.missed), (4, 4, 0));
        assert!(!gathering.more(&mut batch, &queue), "and no more until others are told");
    }

    #[test]
    fn a_transaction_stays_open_no_longer_than_a_look() {
        let (queue, mut gathering, mut batch) = <(Queue, Gathering, Batch)>::default();
        gathering.told(4, 0, LONG, &queue);
        come(&queue, 1);
        assert!(gathering.more(&mut batch, &queue));
        assert!(!gathering.more(&mut batch, &queue), "nobody has come");
        assert_eq!((batch.writes.len(), gathering.missed, gathering.passes), (1, 1, 2));
        // When the time is over, whoever comes has not been waited for.
        let mut gathering = Gathering::default();
        gathering.told(4, 0, Duration::ZERO, &queue);
        assert!(!gathering.more(&mut batch, &queue));
        assert_eq!((gathering.missed, gathering.expected.is_none()), (0, true));
    }

    #[test]
    fn how_long_it_stayed_open_makes_the_next_one_no_longer() {
        let (queue, mut gathering) =
            (Queue::default(), Gathering { waited: LONG, ..Gathering::default() });
        gathering.told(1, 0, LONG + Duration::from_secs(9), &queue);
        let expected = gathering.expected.expect("one is expected");
        assert!(expected.until <= Instant::now() + Duration::from_secs(9));
        assert_eq!(gathering.waited, Duration::ZERO);
    }

    #[test]
    fn a_look_is_short_where_a_commit_is_long() {
        let micros = |micros| Duration::from_micros(micros);
        assert_eq!(bounds(micros(20)), (micros(20), micros(50)));
        assert_eq!(bounds(micros(400)), (micros(400), micros(100)));
        assert_eq!(bounds(micros(9_000)), (micros(9_000), micros(200)));
    }
}
