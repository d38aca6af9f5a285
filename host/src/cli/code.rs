//! The exit codes: one table from what became of a run, and one from what went wrong before it.

use std::process::ExitCode;

use checkrein::ErrorKind;
use checkrein::message::FailureCode;
use checkrein::sandbox::Outcome;

/// How the command ended. `docs/exit-codes.md` says the same in more words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Completed = 0,
    Failed = 1,
    Usage = 2,
    Refused = 3,
    Limit = 4,
    /// What shells say of a command that Ctrl-C ended.
    Interrupted = 130,
}

impl Code {
    /// Every code with its meaning.
    pub(super) const TABLE: [(Code, &str); 6] = [
        (Code::Completed, "completed"),
        (Code::Failed, "failed: the agent gave up or broke off"),
        (Code::Usage, "usage: the arguments, the configuration or a name in them are wrong"),
        (
            Code::Refused,
            "refused: a component cannot be loaded, or the host could not start the run",
        ),
        (Code::Limit, "limit: the run used up one of its limits"),
        (Code::Interrupted, "interrupted: the run was stopped"),
    ];

    /// The table as it stands below the help.
    pub(super) fn help() -> String {
        let line = |(code, meaning): &(Code, &str)| format!("\n{:>5}  {meaning}", *code as u8);
        format!("Exit codes:{}", Code::TABLE.iter().map(line).collect::<String>())
    }
}

// Clippy's `wildcard_enum_match_arm` keeps both tables whole: a variant that the library adds and that is missing here
// is an error of CI. The last arms are for variants that this version of the library does not show.

impl<T> From<&Outcome<T>> for Code {
    fn from(outcome: &Outcome<T>) -> Code {
        match outcome {
            Outcome::Completed(_) => Code::Completed,
            Outcome::Failed(failure) if failure.code == FailureCode::Limit => Code::Limit,
            Outcome::Failed(_)
            | Outcome::Trapped(_)
            | Outcome::HostPanicked(_)
            | Outcome::Unknown(_) => Code::Failed,
            Outcome::Interrupted { .. } => Code::Interrupted,
            Outcome::Limit(_) => Code::Limit,
            Outcome::NoPlace | Outcome::NotStarted(_) => Code::Refused,
            _ => Code::Failed,
        }
    }
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Code {
        match kind {
            ErrorKind::Usage | ErrorKind::NotFound | ErrorKind::Configuration => Code::Usage,
            ErrorKind::Component | ErrorKind::Refused | ErrorKind::Machine | ErrorKind::Store => {
                Code::Refused
            }
            _ => Code::Failed,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use checkrein::message::Failure;
    use checkrein::sandbox::{LimitKind, Trapped};
    use checkrein::work::Stop;

    use super::*;

    #[test]
    fn every_way_to_end_has_its_code() {
        let stop = Stop::hard("user", "enough");
        let trapped = Trapped { cause: "unreachable".to_owned(), backtrace: Vec::new() };
        let table: [(Outcome<()>, u8); 9] = [
            (Outcome::Completed(()), 0),
            (Outcome::Failed(Failure::new(FailureCode::Failed, "no")), 1),
            (Outcome::Failed(Failure::new(FailureCode::Limit, "no")), 4),
            (Outcome::Trapped(trapped), 1),
            (Outcome::HostPanicked("oh".to_owned()), 1),
            (Outcome::Unknown("oh".to_owned()), 1),
            (Outcome::NoPlace, 3),
            (Outcome::Limit(LimitKind::Fuel), 4),
            (Outcome::Interrupted { stop, said: None }, 130),
        ];
        for (outcome, code) in table {
            assert_eq!(Code::from(&outcome) as u8, code, "{outcome:?}");
        }
    }

    #[test]
    fn every_error_has_its_code() {
        for (kind, code) in [
            (ErrorKind::Usage, 2),
            (ErrorKind::NotFound, 2),
            (ErrorKind::Configuration, 2),
            (ErrorKind::Component, 3),
            (ErrorKind::Refused, 3),
            (ErrorKind::Machine, 3),
        ] {
            assert_eq!(Code::from(kind) as u8, code, "{kind:?}");
        }
    }

    #[test]
    fn the_page_about_exit_codes_has_every_code() {
        let page = include_str!("../../../docs/exit-codes.md");
        for (code, meaning) in Code::TABLE {
            let word = meaning.split(':').next().unwrap_or_default();
            assert!(page.contains(&format!("| {} | {word} |", code as u8)), "{word}");
        }
    }
}
