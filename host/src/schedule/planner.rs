//! The plan: what is due, what was missed, and when to look again. Pure: the clock and what runs are arguments.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::settings::{Missed, Overlap, Schedule};

/// A run that is later than this was missed: the host was not there, or slept.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// The most scheduled times that are looked at one by one. Of more, only these are counted.
const COUNTED: usize = Missed::MOST as usize + 1;

/// The plan of all schedules of one owner.
#[derive(Debug, Clone)]
pub struct Planner {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    schedule: Schedule,
    /// Every scheduled time until this was decided about. Never goes back.
    decided: Timestamp,
    /// Runs that wait for an earlier one, oldest first. They were decided about when they came in.
    line: VecDeque<Start>,
}

/// One answer of [`Planner::due`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    /// What to start now, in this order.
    pub start: Vec<Decision<Start>>,
    /// What will not be started, and why.
    pub passed: Vec<Decision<Passed>>,
}

/// What was decided about a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<T> {
    /// The name of the schedule.
    pub schedule: String,
    /// What.
    pub what: T,
}

/// A run to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The time that it is scheduled for. No two runs of a schedule have the same.
    pub scheduled: Timestamp,
    /// Whether the host was not there at that time, and makes up for it now.
    pub makes_up: bool,
}

/// Scheduled times, one or several in a row, that are not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// The first one.
    pub first: Timestamp,
    /// The last one.
    pub last: Timestamp,
    /// How many there are.
    pub count: usize,
    /// There were more before the first one, which nobody has counted.
    pub more: bool,
    /// Why.
    pub why: Why,
}

/// Why a scheduled time is not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The host was not there at that time.
    Missed,
    /// An earlier run of the schedule has not ended.
    Overlaps,
    /// An earlier run has not ended, and another one waits for that already.
    LineIsFull,
}

impl Planner {
    /// A plan. `decided` is what [`Planner::decided`] said when it was last kept, by name of the schedule; one that is not
    /// in there begins now and has missed nothing.
    pub fn new(
        schedules: impl IntoIterator<Item = (String, Schedule)>,
        decided: &BTreeMap<String, Timestamp>,
        now: Timestamp,
    ) -> Planner {
        let entry = |(name, schedule): (String, Schedule)| {
            let decided = decided.get(&name).copied().unwrap_or(now);
            (name, Entry { schedule, decided, line: VecDeque::new() })
        };
        Planner { entries: schedules.into_iter().map(entry).collect() }
    }

    /// Takes over other schedules. One whose times are as they were keeps what was decided about it and what waits in its
    /// line; another begins now, so that no time before that comes due by it.
    pub fn rebind(
        &mut self,
        schedules: impl IntoIterator<Item = (String, Schedule)>,
        now: Timestamp,
    ) {
        let mut old = std::mem::take(&mut self.entries);
        let entry = |(name, schedule): (String, Schedule)| {
            let same = |old: &Entry| {
                old.schedule.cron == schedule.cron && old.schedule.time_zone == schedule.time_zone
            };
            let entry = match old.remove(&name).filter(same) {
                Some(old) => Entry { schedule, ..old },
                None => Entry { schedule, decided: now, line: VecDeque::new() },
            };
            (name, entry)
        };
        self.entries = schedules.into_iter().map(entry).collect();
    }

    /// When to ask what is due; none when there is no schedule. A time before `now` means at once. Also ask whenever a
    /// scheduled run has ended, because another may wait for that, and when the clock was set.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.entries.values().filter_map(|entry| entry.next()).min().map(|next| next.max(now))
    }

    /// Decides about everything until `now`. `running` says how many runs of a schedule have not ended; those that this
    /// says to start count from now on.
    pub fn due(&mut self, now: Timestamp, running: impl Fn(&str) -> usize) -> Due {
        let mut due = Due::default();
        for (name, entry) in &mut self.entries {
            let (start, passed) = entry.due(now, running(name));
            let start = start.into_iter().map(|what| Decision { schedule: name.clone(), what });
            let passed = passed.into_iter().map(|what| Decision { schedule: name.clone(), what });
            due.start.extend(start);
            due.passed.extend(passed);
        }
        due
    }

    /// When a schedule is due next; none for one that is not in the plan.
    pub fn next_of(&self, schedule: &str) -> Option<Timestamp> {
        self.entries.get(schedule).and_then(Entry::next)
    }

    /// How many runs of a schedule wait for an earlier one.
    pub fn waiting(&self, schedule: &str) -> usize {
        self.entries.get(schedule).map_or(0, |entry| entry.line.len())
    }

    /// Until when each schedule was decided about, by name. Kept and given to [`Planner::new`], it lets nothing come
    /// twice. What waits in line is decided about, and is lost with the planner.
    pub fn decided(&self) -> BTreeMap<String, Timestamp> {
        self.entries.iter().map(|(name, entry)| (name.clone(), entry.decided)).collect()
    }
}

impl Entry {
    fn next(&self) -> Option<Timestamp> {
        self.schedule.cron.after(self.decided, &self.schedule.time_zone)
    }

    fn due(&mut self, now: Timestamp, mut running: usize) -> (Vec<Start>, Vec<Passed>) {
        let (mut start, mut passed) = (Vec::new(), Vec::new());
        if running == 0
            && let Some(waited) = self.line.pop_front()
        {
            running = 1;
            start.push(waited);
        }
        let (times, more) = self.times_until(now);
        let Some(last) = times.last().copied() else { return (start, passed) };
        self.decided = last;

        let on_time = now.duration_since(last) <= LATE;
        let missed = times.len() - usize::from(on_time);
        let kept = match self.schedule.missed {
            Missed::Skip => 0,
            // A run that is on time makes up for all before it.
            Missed::Once => usize::from(!on_time),
            Missed::All(most) => usize::try_from(most).unwrap_or(usize::MAX).min(missed),
        };
        let (given_up, wanted) = times.split_at(missed - kept);
        if let (Some(first), Some(last)) = (given_up.first(), given_up.last()) {
            let count = given_up.len();
            passed.push(Passed { first: *first, last: *last, count, more, why: Why::Missed });
        }
        for (place, scheduled) in wanted.iter().enumerate() {
            let run = Start { scheduled: *scheduled, makes_up: place < kept };
            // Without this, of all runs that make up for others only the first would ever be.
            let in_a_row = run.makes_up && matches!(self.schedule.missed, Missed::All(_));
            let free = running == 0 && self.line.is_empty();
            match self.schedule.overlap {
                _ if free => {
                    running = 1;
                    start.push(run);
                }
                Overlap::Allow => start.push(run),
                Overlap::Skip | Overlap::Queue if in_a_row && self.line.len() < COUNTED => {
                    self.line.push_back(run);
                }
                Overlap::Queue if self.line.is_empty() => self.line.push_back(run),
                Overlap::Skip => passed.push(Passed::one(*scheduled, Why::Overlaps)),
                Overlap::Queue => passed.push(Passed::one(*scheduled, Why::LineIsFull)),
            }
        }
        (start, passed)
    }

    /// The scheduled times that are not decided about and not after `now`, in order. When they are very many, the latest
    /// of them, and that there were more.
    fn times_until(&self, now: Timestamp) -> (Vec<Timestamp>, bool) {
        // The way back is taken in ever longer steps, so that neither many times nor long gaps between them take long.
        let mut back = SignedDuration::from_hours(1);
        loop {
            let from = now.checked_sub(back).map_or(self.decided, |from| from.max(self.decided));
            let (mut times, mut at, mut more) = (VecDeque::new(), from, false);
            while let Some(next) = self.schedule.cron.after(at, &self.schedule.time_zone)
                && next <= now
            {
                if times.len() == COUNTED {
                    times.pop_front();
                    more = true;
                }
                times.push_back(next);
                at = next;
            }
            if more || from <= self.decided {
                return (times.into(), more);
            }
            back = back.saturating_mul(2);
        }
    }
}

impl Passed {
    fn one(scheduled: Timestamp, why: Why) -> Passed {
        Passed { first: scheduled, last: scheduled, count: 1, more: false, why }
    }
}
