//! Times of change, as numbers that sort and print well.

use std::fmt;

use checkrein_guest::prelude::*;

/// A moment in UTC: the digits of `YYYYMMDDhhmmss` as a number; 0 when it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Reads `2026-03-01T12:30:00Z`, with or without fractions of a second.
    pub(crate) fn parse(text: &str) -> Moment {
        let digits: String = text.chars().filter(char::is_ascii_digit).take(14).collect();
        let known = digits.len() == 14 && text.as_bytes().get(4) == Some(&b'-');
        Moment(if known { digits.parse().unwrap_or(0) } else { 0 })
    }

    /// Whether it is a moment at all.
    pub(crate) fn is_known(self) -> bool {
        self.0 > 0
    }

    /// The day, at midnight.
    pub(crate) fn day(self) -> Moment {
        Moment(self.0 / 1_000_000 * 1_000_000)
    }

    /// The hour, at its beginning.
    pub(crate) fn hour(self) -> Moment {
        Moment(self.0 / 10_000 * 10_000)
    }

    /// The stretch of ten minutes that it lies in.
    pub(crate) fn ten_minutes(self) -> Moment {
        Moment(self.0 / 1_000 * 1_000)
    }

    /// The day, as `2026-03-01`.
    pub(crate) fn date(self) -> String {
        let date = self.0 / 1_000_000;
        format!("{:04}-{:02}-{:02}", date / 10_000, date / 100 % 100, date % 100)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:02}:{:02}", self.date(), self.0 / 10_000 % 100, self.0 / 100 % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_and_written() {
        let moment = Moment::parse("2026-03-01T12:30:59Z");
        assert_eq!(moment.to_string(), "2026-03-01 12:30");
        assert_eq!(moment.day().to_string(), "2026-03-01 00:00");
        assert_eq!(moment.hour().to_string(), "2026-03-01 12:00");
        assert_eq!(Moment::parse("2026-03-01T12:39:59Z").ten_minutes(), moment.ten_minutes());
        assert!(moment > Moment::parse("2026-02-28T23:59:59.123Z"));
        assert!(!Moment::parse("yesterday").is_known());
        assert!(!Moment::parse("").is_known());
    }
}
