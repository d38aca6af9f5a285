//! What went wrong, for people: what was attempted, why it failed, and the exit code that goes with it.

use std::io::Write;

use checkrein::Error;

use super::code::Code;
use super::text;

/// Why the command did not do what was asked.
#[derive(Debug)]
pub(super) struct Problem {
    code: Code,
    error: anyhow::Error,
    /// What may help, beyond what the error says.
    advice: Option<String>,
}

impl Problem {
    /// A problem with the words alone.
    pub(super) fn new(code: Code, words: impl Into<String>) -> Problem {
        Problem { code, error: anyhow::Error::msg(words.into()), advice: None }
    }

    /// A problem with its cause.
    pub(super) fn because(
        code: Code,
        words: impl Into<String>,
        cause: impl Into<anyhow::Error>,
    ) -> Problem {
        Problem { code, error: cause.into().context(words.into()), advice: None }
    }

    /// The same problem, with something that may help.
    pub(super) fn advise(self, advice: impl Into<String>) -> Problem {
        Problem { advice: Some(advice.into()), ..self }
    }

    /// One line for what was attempted, one for each cause that says something new, one for advice.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for cause in self.error.chain() {
            let words = text::shown(&cause.to_string());
            if !lines.iter().any(|line| line.contains(&words)) {
                lines.push(words);
            }
        }
        lines.extend(self.advice.clone());
        lines
    }

    /// Prints it on standard error, and gives the exit code.
    pub(super) fn tell(&self) -> Code {
        let words = self.lines().join("\n").replace('\n', "\n  ");
        // Where this cannot be written nobody is there to read.
        writeln!(std::io::stderr(), "error: {words}").ok();
        self.code
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem { code: error.kind().into(), error: error.into(), advice: None }
    }
}

#[cfg(test)]
mod tests {
    use checkrein::ErrorKind;

    use super::*;

    #[test]
    fn causes_are_told_once_and_in_order() {
        let inner =
            Error::because(ErrorKind::Component, "b: c", Error::new(ErrorKind::Component, "c"));
        let problem = Problem::from(Error::because(ErrorKind::Component, "a", inner)).advise("d");
        assert_eq!(problem.lines(), ["a", "b: c", "d"]);
        assert_eq!(problem.code, Code::Refused);
    }
}
