//! Calls that fail again and again: told to the model, then no longer made, then the end of the rounds.

use std::collections::BTreeMap;

/// What is known about calls that failed.
#[derive(Debug)]
pub(crate) struct Repeats {
    bound: u32,
    failures: BTreeMap<(String, String), Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    made: u32,
    refused: u32,
}

/// What to do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Make it.
    Make,
    /// It has failed too often: say so in place of making it.
    Refuse,
    /// That was said before, and here it is again: the model runs in a circle.
    Circle,
}

impl Repeats {
    /// Nothing has failed yet. A call is made until it has failed `bound` times in a row.
    pub(crate) fn new(bound: u32) -> Repeats {
        Repeats { bound, failures: BTreeMap::new() }
    }

    /// What to do with a call of that tool with those arguments.
    pub(crate) fn verdict(&mut self, name: &str, arguments: &str) -> Verdict {
        match self.failures.get_mut(&(name.to_owned(), arguments.to_owned())) {
            Some(failures) if failures.made >= self.bound => {
                failures.refused += 1;
                if failures.refused > 1 { Verdict::Circle } else { Verdict::Refuse }
            }
            Some(_) | None => Verdict::Make,
        }
    }

    /// The call worked: what went before does not count any more.
    pub(crate) fn worked(&mut self, name: &str, arguments: &str) {
        self.failures.remove(&(name.to_owned(), arguments.to_owned()));
    }

    /// The call failed. Gives how often it has, once that is too often.
    pub(crate) fn failed(&mut self, name: &str, arguments: &str) -> Option<u32> {
        let failures = self.failures.entry((name.to_owned(), arguments.to_owned())).or_default();
        failures.made += 1;
        (failures.made >= self.bound).then_some(failures.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_made_until_it_has_failed_so_often() {
        let mut repeats = Repeats::new(2);
        assert_eq!(repeats.verdict("a", "{}"), Verdict::Make);
        assert_eq!(repeats.failed("a", "{}"), None);
        assert_eq!(repeats.verdict("a", "{}"), Verdict::Make);
        assert_eq!(repeats.failed("a", "{}"), Some(2));
        assert_eq!(repeats.verdict("a", "{}"), Verdict::Refuse);
        assert_eq!(repeats.verdict("a", "{}"), Verdict::Circle);
        assert_eq!(repeats.verdict("a", "{\"x\":1}"), Verdict::Make);
    }

    #[test]
    fn success_makes_up_for_failures() {
        let mut repeats = Repeats::new(2);
        repeats.failed("a", "{}");
        repeats.worked("a", "{}");
        assert_eq!(repeats.failed("a", "{}"), None);
    }
}
