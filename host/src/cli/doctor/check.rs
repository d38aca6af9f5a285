//! What one check says, and how all of them are shown.

use serde_json::{Value, json};

use crate::cli::text;

/// How it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// As it should be.
    #[default]
    Ok,
    /// The host works, and not as well as it could.
    Warning,
    /// Something will not work.
    Problem,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Problem => "problem",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    /// What was looked at.
    pub(super) name: String,
    pub(super) verdict: Verdict,
    /// What was seen.
    pub(super) saw: String,
    /// What to do, where there is something to do.
    pub(super) advice: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &str, saw: impl Into<String>) -> Check {
        Check { name: name.to_owned(), verdict: Verdict::Ok, saw: saw.into(), advice: None }
    }

    pub(super) fn warning(name: &str, saw: impl Into<String>, advice: impl Into<String>) -> Check {
        let (verdict, advice) = (Verdict::Warning, Some(advice.into()));
        Check { verdict, advice, ..Check::ok(name, saw) }
    }

    pub(super) fn problem(name: &str, saw: impl Into<String>, advice: impl Into<String>) -> Check {
        let (verdict, advice) = (Verdict::Problem, Some(advice.into()));
        Check { verdict, advice, ..Check::ok(name, saw) }
    }
}

/// All checks, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Checks {
    checks: Vec<Check>,
}

impl Checks {
    pub(super) fn add(&mut self, check: Check) {
        self.checks.push(check);
    }

    pub(super) fn add_all(&mut self, checks: impl IntoIterator<Item = Check>) {
        self.checks.extend(checks);
    }

    /// The worst of all.
    pub(super) fn verdict(&self) -> Verdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or_default()
    }

    pub(super) fn as_text(&self) -> String {
        let row = |check: &Check| {
            vec![check.name.clone(), check.verdict.as_str().to_owned(), text::shown(&check.saw)]
        };
        let lines = text::columns(&self.checks.iter().map(row).collect::<Vec<_>>());
        let mut out = String::new();
        for (line, check) in lines.lines().zip(&self.checks) {
            out.push_str(&format!("{line}\n"));
            if let Some(advice) = &check.advice {
                out.push_str(&format!("    {}\n", text::shown(advice)));
            }
        }
        let count = |verdict| self.checks.iter().filter(|check| check.verdict == verdict).count();
        let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
        out.push_str(&match (problems, warnings) {
            (0, 0) => "all is well\n".to_owned(),
            _ => format!("problems: {problems}, warnings: {warnings}\n"),
        });
        out
    }

    pub(super) fn as_json(&self) -> Value {
        let check = |check: &Check| {
            json!({
                "check": check.name,
                "verdict": check.verdict.as_str(),
                "saw": check.saw,
                "advice": check.advice,
            })
        };
        json!({
            "verdict": self.verdict().as_str(),
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
        })
    }
}

/// The words of an error and of its causes, in one line.
pub(super) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let cause = text::line(&cause.to_string(), 400);
        if !words.iter().any(|word| word.contains(&cause)) {
            words.push(cause);
        }
    }
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_check_counts_and_advice_stands_below_its_check() {
        let mut checks = Checks::default();
        assert_eq!(checks.as_text(), "all is well\n");
        checks.add(Check::ok("clock", "it goes"));
        checks.add(Check::warning("open-files", "few", "raise it"));
        assert_eq!(checks.verdict(), Verdict::Warning);
        let text = "clock       ok       it goes\nopen-files  warning  few\n    raise it\nproblems: 0, warnings: 1\n";
        assert_eq!(checks.as_text(), text);
        checks.add(Check::problem("cache", "gone\u{1b}[2J", "make it"));
        assert_eq!(checks.verdict(), Verdict::Problem);
        assert!(checks.as_text().contains("gone\\u{1b}[2J"));
        let json = checks.as_json();
        assert_eq!(
            (&json["verdict"], &json["checks"][1]["advice"]),
            (&json!("problem"), &json!("raise it"))
        );
    }
}
