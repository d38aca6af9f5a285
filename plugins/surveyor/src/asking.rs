//! Asking tools: in batches, split where they are too much, and with an eye on stops and budgets.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;

use checkrein_guest::prelude::*;

/// Below this many milliseconds of wall time nothing new is started: there must be time for the report.
const LEAST_TIME: u64 = 10_000;
/// Likewise for bytes across the door.
const LEAST_BYTES: u64 = 8 << 20;
/// When so many calls of one list of jobs have failed, the rest is not split any further.
const MOST_FAILURES: u32 = 40;

/// Why a survey ends before it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A soft stop arrived.
    Stopped(Stop),
    /// A budget is nearly used up; it is named in words.
    NoBudget(&'static str),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Stopped(stop) => write!(f, "stopped by {}: {}", stop.issuer, stop.message),
            Ended::NoBudget(what) => write!(f, "{what} is nearly used up"),
        }
    }
}

/// How much of the wall time is kept for the report.
pub(crate) fn reserve(time: &Budget) -> u64 {
    LEAST_TIME.min(time.limit / 10)
}

/// One question to a tool.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// The tool.
    pub(crate) tool: &'static str,
    /// Its arguments.
    pub(crate) arguments: Value,
}

/// An answer: the output, or why there is none.
pub(crate) type Answer = Result<String, Failure>;

/// Asks tools through a run.
pub(crate) struct Asker<'r> {
    run: &'r Run,
    tools: Vec<String>,
    batch: Cell<usize>,
}

impl<'r> Asker<'r> {
    /// Asks the tools of this run, so many at once.
    pub(crate) fn new(run: &'r Run, batch: usize) -> Result<Asker<'r>, Failure> {
        let tools = run.tools()?.into_iter().map(|tool| tool.name).collect();
        Ok(Asker { run, tools, batch: Cell::new(batch) })
    }

    /// Whether the run was granted that tool.
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|name| name == tool)
    }

    /// The run.
    pub(crate) fn run(&self) -> &'r Run {
        self.run
    }

    /// How many calls go out at once.
    pub(crate) fn batch(&self) -> usize {
        self.batch.get()
    }

    /// Asks one question.
    pub(crate) fn one(&self, ask: Ask) -> Result<Answer, Ended> {
        let answers = self.all(vec![ask])?;
        Ok(answers
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(Failure::failed("the host gave no answer"))))
    }

    /// Asks all questions, and gives an answer for each, in order.
    pub(crate) fn all(&self, asks: Vec<Ask>) -> Result<Vec<Answer>, Ended> {
        ask_all(asks, &self.batch, |calls| {
            self.check()?;
            match self.run.call(calls) {
                Ok(results) => match self.run.stop_requested() {
                    // A tool that was cut short is no reason to read on.
                    Some(stop) if results.iter().any(|result| result.status == "interrupted") => {
                        Err(Ended::Stopped(stop))
                    }
                    Some(_) | None => Ok(Ok(results)),
                },
                Err(Failure { stop: Some(stop), .. }) => Err(Ended::Stopped(stop)),
                Err(failure) => Ok(Err(failure)),
            }
        })
    }

    /// Looks for a stop, and for budgets that are nearly used up.
    pub(crate) fn check(&self) -> Result<(), Ended> {
        if let Some(stop) = self.run.stop_requested() {
            return Err(Ended::Stopped(stop));
        }
        for budget in self.run.budgets() {
            match budget.name.as_str() {
                "wall-time" if budget.left < reserve(&budget) => {
                    return Err(Ended::NoBudget("the time of the run"));
                }
                "door-bytes" if budget.left < LEAST_BYTES.min(budget.limit / 10) => {
                    return Err(Ended::NoBudget(
                        "the bytes that may pass between the run and its tools",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Sends the questions in batches that the host takes. A refusal of several calls together is tried again in halves:
/// all tools of a survey only read.
fn ask_all(
    asks: Vec<Ask>,
    batch: &Cell<usize>,
    call: impl Fn(&[ToolCall]) -> Result<Result<Vec<ToolResult>, Failure>, Ended>,
) -> Result<Vec<Answer>, Ended> {
    let calls: Vec<ToolCall> = asks
        .into_iter()
        .enumerate()
        .map(|(place, ask)| ToolCall {
            id: place.to_string(),
            name: ask.tool.to_owned(),
            arguments: ask.arguments.to_string(),
        })
        .collect();
    let mut answers: Vec<Answer> = Vec::with_capacity(calls.len());
    let mut size = batch.get().max(1);
    while answers.len() < calls.len() {
        let from = answers.len();
        let some = &calls[from..calls.len().min(from + size)];
        match call(some)? {
            Ok(results) => {
                answers.extend(some.iter().map(|call| {
                    let result = results.iter().find(|result| result.id == call.id);
                    result
                        .cloned()
                        .map_or_else(|| Err(Failure::failed("the host gave no result")), output)
                }));
                size = batch.get().max(1);
            }
            Err(failure) if some.len() > 1 => {
                size = some.len() / 2;
                if failure.code == Failure::LIMIT {
                    batch.set(size);
                }
            }
            Err(failure) => answers.push(Err(failure)),
        }
    }
    Ok(answers)
}

/// The output; or a failure with the status as its code, whatever it is.
fn output(result: ToolResult) -> Answer {
    if result.is_ok() {
        Ok(result.content)
    } else {
        Err(Failure::new(&result.status, result.content))
    }
}

/// Work for one tool on a list of paths, which can be halved when it is too much.
#[derive(Debug, Clone)]
pub(crate) struct Job<'f, K> {
    /// What is done.
    pub(crate) kind: K,
    /// The files.
    pub(crate) paths: Vec<&'f str>,
    /// Where the last answer ended.
    pub(crate) cursor: Option<String>,
}

/// Whether there is more to ask after an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum More {
    /// No.
    Nothing,
    /// The same again, with this cursor.
    Cursor(String),
    /// About the paths from this one on, counted from 0.
    From(usize),
}

/// What becomes of the answers of jobs.
pub(crate) trait Jobs<K> {
    /// The question that a job is.
    fn ask(&self, job: &Job<'_, K>) -> Ask;
    /// Takes an answer, and says whether there is more to ask.
    fn take(&mut self, job: &Job<'_, K>, answer: &str) -> Result<More, Failure>;
    /// Notes that nothing could be learnt about a path.
    fn trouble(&mut self, job: &Job<'_, K>, path: &str, why: &str);
}

/// Does all jobs. One file that a tool cannot cope with costs only itself: the list it is in is halved until it stands
/// alone.
pub(crate) fn run_jobs<K: Copy>(
    asker: &Asker<'_>,
    jobs: Vec<Job<'_, K>>,
    taker: &mut impl Jobs<K>,
) -> Result<(), Ended> {
    let mut queue: VecDeque<Job<'_, K>> = jobs.into();
    let mut failures = 0;
    while !queue.is_empty() {
        let some: Vec<Job<'_, K>> = queue.drain(..queue.len().min(asker.batch().max(1))).collect();
        let answers = asker.all(some.iter().map(|job| taker.ask(job)).collect())?;
        // Whatever goes on goes before the rest, in order.
        let mut again = Vec::new();
        for (job, answer) in some.into_iter().zip(answers) {
            let failure = match answer.and_then(|text| taker.take(&job, &text)) {
                Ok(More::Nothing) => continue,
                Ok(More::Cursor(cursor)) if job.cursor.as_ref() != Some(&cursor) => {
                    again.push(Job { cursor: Some(cursor), ..job });
                    continue;
                }
                Ok(More::From(place)) if (1..job.paths.len()).contains(&place) => {
                    again.push(Job { paths: job.paths[place..].to_vec(), ..job });
                    continue;
                }
                Ok(More::Cursor(_) | More::From(_)) => {
                    Failure::failed("the tool does not get on from where it stopped")
                }
                Err(failure) => failure,
            };
            failures += 1;
            let hopeless = matches!(
                failure.code.as_str(),
                Failure::DENIED | Failure::NOT_FOUND | Failure::UNAVAILABLE
            );
            if job.paths.len() > 1 && job.cursor.is_none() && !hopeless && failures <= MOST_FAILURES
            {
                let (first, second) = job.paths.split_at(job.paths.len() / 2);
                again.push(Job { kind: job.kind, paths: first.to_vec(), cursor: None });
                again.push(Job { kind: job.kind, paths: second.to_vec(), cursor: None });
            } else {
                for path in &job.paths {
                    taker.trouble(&job, path, &failure.message);
                }
            }
        }
        for job in again.into_iter().rev() {
            queue.push_front(job);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn asks(count: usize) -> Vec<Ask> {
        vec![Ask { tool: "t", arguments: json!({}) }; count]
    }

    fn all_ok(calls: &[ToolCall]) -> Vec<ToolResult> {
        calls
            .iter()
            .map(|call| ToolResult {
                id: call.id.clone(),
                status: "ok".into(),
                content: call.id.clone(),
            })
            .collect()
    }

    #[test]
    fn batches_shrink_to_what_the_host_takes() {
        let (batch, sizes) = (Cell::new(8), RefCell::new(Vec::new()));
        let answers = ask_all(asks(10), &batch, |calls| {
            sizes.borrow_mut().push(calls.len());
            Ok(if calls.len() > 2 {
                Err(Failure::new(Failure::LIMIT, "2"))
            } else {
                Ok(all_ok(calls))
            })
        })
        .unwrap();
        assert_eq!(
            answers.iter().map(|answer| answer.clone().unwrap()).collect::<Vec<_>>().concat(),
            "0123456789"
        );
        assert_eq!(*sizes.borrow(), [8, 4, 2, 2, 2, 2, 2]);
        assert_eq!(batch.get(), 2);
    }

    #[test]
    fn answers_too_large_together_are_asked_for_apart_and_later_ones_together_again() {
        let (batch, sizes) = (Cell::new(4), RefCell::new(Vec::new()));
        let answers = ask_all(asks(8), &batch, |calls| {
            sizes.borrow_mut().push(calls.len());
            let heavy = calls.len() > 1 && calls.iter().any(|call| call.id == "1");
            Ok(if heavy { Err(Failure::too_large("5 MiB")) } else { Ok(all_ok(calls)) })
        })
        .unwrap();
        assert!(answers.iter().all(Result::is_ok) && answers.len() == 8);
        assert_eq!(batch.get(), 4);
        assert_eq!(*sizes.borrow(), [4, 2, 1, 4, 2, 1, 4, 2]);
    }

    #[test]
    fn one_call_that_is_refused_is_an_answer() {
        let refused = |_: &[ToolCall]| Ok(Err(Failure::too_large("9 MiB")));
        let answers = ask_all(asks(3), &Cell::new(8), refused).unwrap();
        assert!(answers.len() == 3 && answers.iter().all(Result::is_err));
    }

    #[test]
    fn an_end_is_passed_on_at_once() {
        let ended = ask_all(asks(3), &Cell::new(1), |_| Err(Ended::NoBudget("time")));
        assert_eq!(ended.unwrap_err(), Ended::NoBudget("time"));
    }
}
