//! How long to wait before an endpoint is asked again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

/// No pause of our own choice is longer than this.
const LONGEST: Duration = Duration::from_secs(30);

/// The pause after that many attempts: what the endpoint asked for, or twice as long as the one before.
///
/// Our own pauses are cut by up to a half, as `chance` (from 0 to 1) has it, so that the runs of a host that were
/// refused together do not come back together.
pub(super) fn pause(
    first: Duration,
    attempts: u32,
    asked: Option<Duration>,
    chance: f64,
) -> Duration {
    asked.unwrap_or_else(|| {
        let doubled = first.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(LONGEST);
        doubled.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
    })
}

/// A number from 0 to 1 that is another one each time. The keys of the standard hasher are random enough for this.
#[allow(clippy::cast_precision_loss, reason = "a pause needs no more than 53 bits")]
pub(super) fn chance() -> f64 {
    (RandomState::new().hash_one(()) >> 11) as f64 / (1_u64 << 53) as f64
}

/// What the headers of a refusal say about when to come back.
///
/// A date is measured against the date of the same answer, so that neither clock has to be right.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(milliseconds) = text("retry-after-ms").and_then(number) {
        return Some(milliseconds / 1000);
    }
    let after = text(RETRY_AFTER.as_str())?;
    number(after).or_else(|| {
        let then = httpdate::parse_http_date(after).ok()?;
        let now = httpdate::parse_http_date(text(DATE.as_str())?).ok()?;
        Some(then.duration_since(now).unwrap_or_default())
    })
}

/// A number, as seconds. Fractions are sent by some.
fn number(text: &str) -> Option<Duration> {
    let number: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_vary_by_half() {
        let first = Duration::from_millis(500);
        let lengths: Vec<_> =
            (1..9).map(|attempts| pause(first, attempts, None, 0.0).as_millis()).collect();
        assert_eq!(lengths, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert_eq!(pause(first, 1, None, 1.0), Duration::from_millis(250));
        assert_eq!(pause(first, u32::MAX, None, 0.0), LONGEST);
        for _ in 0..100 {
            assert!((0.0..1.0).contains(&chance()));
        }
    }

    #[test]
    fn the_endpoint_decides_when_it_says_so() {
        let check = |pairs: &[(&'static str, &'static str)], expected: Option<f64>| {
            let headers: HeaderMap = pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            assert_eq!(retry_after(&headers), expected.map(Duration::from_secs_f64), "{pairs:?}");
        };
        check(&[], None);
        check(&[("retry-after", "7")], Some(7.0));
        check(&[("retry-after", "0.5")], Some(0.5));
        check(&[("retry-after", "7"), ("retry-after-ms", "250")], Some(0.25));
        let later = ("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT");
        check(&[later, ("date", "Fri, 31 Dec 1999 23:59:29 GMT")], Some(30.0));
        check(&[later, ("date", "Sat, 01 Jan 2000 00:00:00 GMT")], Some(0.0));
        check(&[later], None);
        check(&[("retry-after", "-1")], None);
        check(&[("retry-after", "1e300")], None);
        check(&[("retry-after", "soon")], None);
    }
}
