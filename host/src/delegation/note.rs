//! The words of a call's outcome, for whoever reads it: often a model.

use std::fmt::Write;

use super::id::DelegationId;
use super::policy::Mode;
use super::refusal::Reason;

/// What became of one unit of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The places of its tasks in the call.
    pub tasks: Vec<u32>,
    /// What became of it.
    pub became: Became,
}

/// What became of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Became {
    /// It runs in the background.
    Accepted(DelegationId),
    /// It ran inside the call because it was not accepted.
    RanInline(Reason),
    /// It did not run.
    Refused(Reason),
    /// It ran inside the call because that was asked for.
    AsAsked,
}

/// What happened and why. `mode` is what was asked for, `units` are in order.
pub fn note(mode: Mode, units: &[Answer]) -> String {
    if mode == Mode::Inline {
        return "All tasks ran inside this call, as asked; their results are here.".to_owned();
    }
    let mut words = String::new();
    let background: Vec<&Answer> =
        units.iter().filter(|unit| matches!(unit.became, Became::Accepted(_))).collect();
    if !background.is_empty() {
        let named = background.iter().filter_map(|unit| match unit.became {
            Became::Accepted(id) => Some(format!("{id} ({})", tasks(&unit.tasks))),
            Became::RanInline(_) | Became::Refused(_) | Became::AsAsked => None,
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let _ = write!(
            words,
            "In the background: {named}. Their results are not here yet; each comes by itself as a message when all \
             its tasks have ended. Do not start these tasks again."
        );
    }
    let mut rest =
        units.iter().filter(|unit| !matches!(unit.became, Became::Accepted(_))).peekable();
    while let Some(unit) = rest.next() {
        let mut together = unit.tasks.clone();
        while let Some(next) = rest.next_if(|next| next.became == unit.became) {
            together.extend(&next.tasks);
        }
        if !words.is_empty() {
            words.push(' ');
        }
        let which = if background.is_empty() && together.len() == all(units) {
            if together.len() == 1 {
                "the only task".to_owned()
            } else {
                format!("all {} tasks", together.len())
            }
        } else {
            tasks(&together)
        };
        let results = if background.is_empty() {
            "The results are here, and nothing runs in the background"
        } else {
            "The results are under inline-results"
        };
        match &unit.became {
            Became::RanInline(reason) => {
                let _ = write!(
                    words,
                    "Synchronous execution: {which} ran inside this call and not in the background, because \
                     {reason} ({}). {results}.",
                    reason.code()
                );
                again(&mut words, reason, "More can run in the background");
            }
            Became::Refused(reason) => {
                let _ = write!(words, "Not run: {which}, because {reason} ({}).", reason.code());
                again(&mut words, reason, "Try again");
            }
            Became::AsAsked => {
                let _ = write!(words, "Ran inside this call, as asked: {which}.");
            }
            Became::Accepted(_) => {}
        }
    }
    words
}

fn again(words: &mut String, reason: &Reason, what: &str) {
    if let Some(retry) = reason.retry() {
        let _ = write!(words, " {what} {retry}.");
    }
}

fn all(units: &[Answer]) -> usize {
    units.iter().map(|unit| unit.tasks.len()).sum()
}

fn tasks(tasks: &[u32]) -> String {
    let list = tasks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    format!("{} {list}", if tasks.len() == 1 { "task" } else { "tasks" })
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::delegation::limits::DelegationLimit;
    use crate::delegation::scheduler::SchedulerRefusal;

    fn full() -> Reason {
        Reason::Capacity { limit: DelegationLimit::UnitsPerHost, allowed: 1 }
    }

    fn unit(tasks: &[u32], became: Became) -> Answer {
        Answer { tasks: tasks.to_vec(), became }
    }

    #[track_caller]
    fn check(units: &[Answer], expected: &str) {
        assert_eq!(note(Mode::Background, units), expected);
    }

    /// Rules A3, A4: a call that ran inline says so, and why, and when it can be otherwise.
    #[test]
    fn a_call_that_ran_inline_names_synchronous_execution_and_the_reason() {
        check(
            &[unit(&[0], Became::RanInline(full()))],
            "Synchronous execution: the only task ran inside this call and not in the background, because there is \
             no free place in the background (the limit `units-per-host` is 1) (capacity). The results are here, \
             and nothing runs in the background. More can run in the background when a unit of this host ends.",
        );
        check(
            &[
                unit(&[0, 2], Became::RanInline(Reason::OneShot)),
                unit(&[1], Became::RanInline(Reason::OneShot)),
            ],
            "Synchronous execution: all 3 tasks ran inside this call and not in the background, because this \
             session ends with this run and could not receive a later result (one-shot). The results are here, and \
             nothing runs in the background.",
        );
    }

    /// Rule A5: in a mixed call the note says which is where.
    #[test]
    fn a_mixed_call_says_which_task_is_where() {
        let no = Reason::Scheduler(SchedulerRefusal::new("not on a Sunday"));
        check(
            &[
                unit(&[0], Became::Accepted(DelegationId(3))),
                unit(&[1], Became::RanInline(no)),
                unit(&[2, 3], Became::Accepted(DelegationId(5))),
            ],
            "In the background: d3 (task 0), d5 (tasks 2, 3). Their results are not here yet; each comes by itself \
             as a message when all its tasks have ended. Do not start these tasks again. Synchronous execution: \
             task 1 ran inside this call and not in the background, because the scheduler said no: not on a Sunday \
             (scheduler). The results are under inline-results.",
        );
    }

    #[test]
    fn a_refused_call_says_when_to_try_again() {
        check(
            &[unit(&[0, 1], Became::Refused(full()))],
            "Not run: all 2 tasks, because there is no free place in the background (the limit `units-per-host` is \
             1) (capacity). Try again when a unit of this host ends.",
        );
        assert!(note(Mode::Inline, &[unit(&[0], Became::AsAsked)]).contains("as asked"));
    }
}
