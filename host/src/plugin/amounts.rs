//! Sizes, times and counts, as `[limits]` and the operator's settings spell them.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::Deserializer;

use super::document::{from_text, from_text_or_whole, from_whole};
use super::text::printable;

/// The longest time that can be asked for. Longer ones overflow clocks.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// A number of bytes: an integer, or a text such as `"64MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A number of things, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

/// A time with its unit, such as `"30s"` or `"10m"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// A bound that can be switched off with `"none"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound<T> {
    /// No bound of its own: in a manifest, that of the ceiling.
    None,
    /// At most this.
    At(T),
}

/// How long a soft stop leaves a run before it becomes hard: a time, `"0s"` too, or `"never"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// The stop becomes hard after this time.
    After(Duration),
    /// The stop stays soft.
    Never,
}

impl<T> Bound<T> {
    /// The bound, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Bound::None => None,
            Bound::At(value) => Some(value),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(shift, _)| self.0 != 0 && self.0.is_multiple_of(1 << shift))
        {
            Some((shift, unit)) => write!(f, "{} {unit}", self.0 >> shift),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        let units = [(3_600_000, "h"), (60_000, "min"), (1_000, "s")];
        match units
            .into_iter()
            .find(|(unit, _)| milliseconds != 0 && milliseconds.is_multiple_of(*unit))
        {
            Some((unit, name)) => write!(f, "{} {name}", milliseconds / unit),
            None => write!(f, "{milliseconds} ms"),
        }
    }
}

const SIZE: &str = "a size: a number of bytes, or a text such as \"64MiB\"";
const COUNT: &str = "a whole number";
const TIME: &str = "a time such as \"30s\" or \"10m\"";

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        from_text_or_whole(
            deserializer,
            SIZE,
            |text| size(text).map(Size),
            |whole| some(whole).map(Size),
        )
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
        from_whole(deserializer, COUNT, |whole| some(whole).map(Count))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        from_text(deserializer, TIME, |text| positive_time(text).map(Time))
    }
}

impl<'de> Deserialize<'de> for Bound<Count> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bound<Count>, D::Error> {
        from_text_or_whole(
            deserializer,
            "a whole number, or \"none\"",
            |text| match text {
                "none" => Ok(Bound::None),
                _ => Err(format!("`{}` is not {COUNT}, nor \"none\"", printable(text))),
            },
            |whole| some(whole).map(|whole| Bound::At(Count(whole))),
        )
    }
}

impl<'de> Deserialize<'de> for Bound<Time> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bound<Time>, D::Error> {
        from_text(deserializer, "a time such as \"30s\" or \"10m\", or \"none\"", |text| match text
        {
            "none" => Ok(Bound::None),
            _ => positive_time(text).map(|time| Bound::At(Time(time))),
        })
    }
}

impl<'de> Deserialize<'de> for Grace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Grace, D::Error> {
        from_text(deserializer, "a time such as \"10s\", or \"never\"", |text| match text {
            "never" => Ok(Grace::Never),
            _ => time(text).map(Grace::After),
        })
    }
}

fn some(whole: u64) -> Result<u64, String> {
    match whole {
        0 => Err("0 would let nothing run; leave the key out for the default".to_owned()),
        whole => Ok(whole),
    }
}

/// Splits `64 MiB` into its number and its unit.
fn split<'t>(text: &'t str, expected: &str) -> Result<(u64, &'t str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    match number.parse::<u64>() {
        Ok(number) => Ok((number, unit.trim())),
        Err(_) if digits > 0 => Err(format!("`{}` is more than can be counted", printable(text))),
        Err(_) => Err(format!("`{}` is not {expected}", printable(text))),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text, SIZE)?;
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => {
            return Err(format!(
                "`{}` has no unit of size that is known: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB",
                printable(text)
            ));
        }
    };
    match number.checked_mul(unit) {
        Some(bytes) => some(bytes),
        None => Err(format!("`{}` is more than can be counted", printable(text))),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text, TIME)?;
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => {
            return Err(format!(
                "`{}` has no unit of time that is known: ms, s, m, h",
                printable(text)
            ));
        }
    };
    match number.checked_mul(milliseconds).map(Duration::from_millis) {
        Some(time) if time <= LONGEST => Ok(time),
        Some(_) | None => Err(format!("`{}` is too long; at most 10 years", printable(text))),
    }
}

fn positive_time(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    some(u64::from(!time.is_zero())).map(|_| time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_with_their_units() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("64 mib"), Ok(64 << 20));
        assert_eq!(size("1000"), Ok(1000));
        assert_eq!(size("2GB"), Ok(2_000_000_000));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        for bad in [
            "",
            "MiB",
            "-1",
            "1.5GiB",
            "99999999999GiB",
            "99999999999999999999999",
            "0",
            "0MiB",
            "5 parsecs",
            "٣KiB",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
        for bad in [
            "",
            "10",
            "s",
            "-5s",
            "1e9s",
            "99999999999999999999s",
            "99999999h",
            "18446744073709551615h",
        ] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert!(positive_time("0ms").is_err());
    }

    #[test]
    fn amounts_are_shown_as_people_write_them() {
        assert_eq!(Size(64 << 20).to_string(), "64 MiB");
        assert_eq!(Size(1000).to_string(), "1000 bytes");
        assert_eq!(Time(Duration::from_secs(600)).to_string(), "10 min");
        assert_eq!(Time(Duration::from_millis(1500)).to_string(), "1500 ms");
    }
}
