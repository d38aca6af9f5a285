//! Cron expressions: five fields, read once, and known to come due at some time.

use std::fmt;
use std::str::FromStr;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::zone::Zone;

/// The most characters of an expression.
const LONGEST: usize = 256;

/// A cron expression: minute, hour, day of the month, month, day of the week; or a name such as `@daily`.
///
/// With both a day of the month and a day of the week, either is enough. `L` is the last day, `MON#1` the first Monday.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Expression {
    text: String,
    cron: Box<Cron>,
    /// It leaves the hour open (`*` or `*/2`), so that it is about time going by and not about times of the day.
    every_hour: bool,
}

impl Expression {
    /// The first scheduled time after that instant.
    ///
    /// The expression is searched on the wall clock of one offset at a time, from one turn of the clocks to the next.
    pub(super) fn after(&self, instant: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let zone = zone.time_zone();
        let mut offset = zone.to_offset(instant);
        let mut from = offset.to_datetime(instant);
        let mut found = match repeated_until(zone, instant) {
            Some(end) if !self.every_hour && from < end => {
                from = end;
                self.find(from, true)
            }
            _ => self.find(from, false),
        };
        for turn in zone.following(instant) {
            let at = found.and_then(|found| offset.to_timestamp(found).ok());
            if let Some(at) = at.filter(|at| *at < turn.timestamp()) {
                return Some(at);
            }
            let old = offset.to_datetime(turn.timestamp());
            offset = turn.offset();
            let new = offset.to_datetime(turn.timestamp());
            if !self.every_hour && found.is_some_and(|found| found < new) {
                // It would have been in the gap.
                return Some(turn.timestamp());
            }
            from = if self.every_hour { new } else { old.max(new) };
            // Nothing lies between the old reading and what was found, so it only has to be looked for anew when the
            // clock has gone over it, or back.
            if from < old || found.is_none_or(|found| found < from) {
                found = self.find(from, true);
            }
        }
        found.and_then(|found| offset.to_timestamp(found).ok())
    }

    /// The next reading of a clock that never turns.
    fn find(&self, from: DateTime, inclusive: bool) -> Option<DateTime> {
        self.cron.find_next_occurrence(&from, inclusive).ok()
    }
}

/// Until which reading the clock repeats itself, if it went back at its last turn.
fn repeated_until(zone: &TimeZone, instant: Timestamp) -> Option<DateTime> {
    let moment = SignedDuration::from_nanos(1);
    let turn = zone.preceding(instant.checked_add(moment).ok()?).next()?;
    let before = zone.to_offset(turn.timestamp().checked_sub(moment).ok()?);
    Some(before.to_datetime(turn.timestamp()))
}

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Expression, ExpressionError> {
        let shown =
            || text.chars().take(LONGEST).flat_map(char::escape_default).collect::<String>();
        let wrong = |reason: String| ExpressionError::Wrong { text: shown(), reason };
        if text.len() > LONGEST {
            return Err(wrong(format!("it has more than {LONGEST} characters")));
        }
        let named = text.trim().starts_with('@');
        let fields = text.split_whitespace().count();
        if !named && fields != 5 {
            return Err(wrong(format!("it has {fields} fields")));
        }
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(text).map_err(|error| wrong(error.to_string()))?;
        let hour = text.split_whitespace().nth(1);
        let every_hour = match hour {
            Some(hour) => hour.starts_with(['*', '?']),
            None => text.trim().eq_ignore_ascii_case("@hourly"),
        };
        let read = Expression { text: text.to_owned(), cron: Box::new(cron), every_hour };
        // Any day will do: what comes due at all comes due within the four hundred years after which days repeat.
        match read.find(DateTime::constant(2000, 1, 1, 0, 0, 0, 0), true) {
            Some(_) => Ok(read),
            None => Err(ExpressionError::Never { text: shown() }),
        }
    }
}

impl TryFrom<String> for Expression {
    type Error = ExpressionError;

    fn try_from(text: String) -> Result<Expression, ExpressionError> {
        text.parse()
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not an expression that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// It is not a cron expression: mend it.
    #[error(
        "`cron`: `{text}` is not a cron expression: {reason}; write five fields (minute, hour, day of the month, month, \
         day of the week), such as \"30 2 * * MON-FRI\", or a name such as \"@daily\""
    )]
    Wrong {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No day is like that: mend it.
    #[error(
        "`cron`: `{text}` never comes due: there is no such day; check the day of the month and the month"
    )]
    Never {
        /// The text.
        text: String,
    },
}
