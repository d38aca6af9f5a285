//! Figures that only grow, kept where things happen: a few atomics, no lock and no allocation. Who reads them is above.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts something.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn one(&self) {
        self.more(1);
    }

    /// That many more.
    pub fn more(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// One less, for what is counted while it is there.
    pub fn less(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts something by one of a few names that are known beforehand.
pub struct Counts<K: 'static, const N: usize> {
    names: &'static [K; N],
    counts: [Counter; N],
    /// What has none of those names.
    other: Counter,
}

impl<K: PartialEq + Copy, const N: usize> Counts<K, N> {
    /// Nothing was counted yet.
    pub fn new(names: &'static [K; N]) -> Counts<K, N> {
        Counts {
            names,
            counts: std::array::from_fn(|_| Counter::default()),
            other: Counter::default(),
        }
    }

    /// The counter of that name.
    pub fn of(&self, name: K) -> &Counter {
        let known = self.names.iter().position(|known| *known == name);
        known.and_then(|at| self.counts.get(at)).unwrap_or(&self.other)
    }

    /// The figure of each name, and at last, without a name, that of all others.
    pub fn iter(&self) -> impl Iterator<Item = (Option<K>, u64)> {
        let named = self.names.iter().zip(&self.counts);
        let named = named.map(|(name, count)| (Some(*name), count.get()));
        named.chain([(None, self.other.get())])
    }
}

impl<K, const N: usize> fmt::Debug for Counts<K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// The upper ends of the buckets, in microseconds: from a stop of a guest that waits to a turn that takes long.
const BOUNDS: [u64; 19] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// How long something took, in buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS.len()],
    /// Longer than the last bound.
    longer: Counter,
    microseconds: Counter,
}

impl Histogram {
    /// Something took that long.
    pub fn took(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| micros <= *bound);
        bucket.and_then(|at| self.buckets.get(at)).unwrap_or(&self.longer).one();
        self.microseconds.more(micros);
    }

    /// What was seen so far.
    pub fn read(&self) -> Times {
        let bounds = BOUNDS.iter().map(|micros| Duration::from_micros(*micros).as_secs_f64());
        let counts = self.buckets.iter().chain([&self.longer]).map(Counter::get);
        let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        Times {
            buckets,
            count,
            seconds: Duration::from_micros(self.microseconds.get()).as_secs_f64(),
        }
    }
}

/// How long something took, as it was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    /// The upper end of each bucket in seconds, and how many are in it and not in the one before.
    pub buckets: Vec<(f64, u64)>,
    /// How many there were.
    pub count: u64,
    /// How long they took together.
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_is_not_shorter() {
        let histogram = Histogram::default();
        for micros in [0, 50, 51, 60_000_000, 60_000_001] {
            histogram.took(Duration::from_micros(micros));
        }
        let read = histogram.read();
        let filled: Vec<(f64, u64)> =
            read.buckets.iter().copied().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.000_05, 2), (0.000_1, 1), (60.0, 1), (f64::INFINITY, 1)]);
        assert_eq!((read.count, read.seconds), (5, 120.000_102));
    }

    #[test]
    fn what_has_no_known_name_is_counted_apart() {
        let counts = Counts::new(&["one", "two"]);
        counts.of("two").one();
        counts.of("three").more(2);
        let read: Vec<_> = counts.iter().collect();
        assert_eq!(read, [(Some("one"), 0), (Some("two"), 1), (None, 2)]);
    }
}
