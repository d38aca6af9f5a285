//! Makes the calls of one answer in batches, and nothing twice that may do harm.

use checkrein_guest::prelude::*;

use crate::toolbox::Toolbox;

/// A batch stays below this many bytes of arguments, so that it crosses the door in one call.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// What became of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    /// It was made, and this came of it; or it was refused.
    Answered(ToolResult),
    /// It was under way when the stop came: nobody here knows what it did.
    Unknown,
    /// The stop came before it.
    Untried,
}

/// Makes calls in batches.
#[derive(Debug)]
pub(crate) struct Caller {
    /// As many at once.
    batch: usize,
}

impl Caller {
    /// A caller that makes so many calls at once.
    pub(crate) fn new(batch: usize) -> Caller {
        Caller { batch: batch.max(1) }
    }

    /// Makes all calls, in order, through `call`. One entry for each; and the interruption, when a stop came in
    /// between.
    pub(crate) fn make(
        &self,
        call: impl Fn(&[ToolCall]) -> Result<Vec<ToolResult>, Failure>,
        toolbox: &Toolbox,
        calls: &[ToolCall],
    ) -> (Vec<Made>, Option<Failure>) {
        let mut made = vec![Made::Untried; calls.len()];
        let mut pending: Vec<usize> = (0..calls.len()).rev().collect();
        // Calls whose results were too much together go one by one.
        let mut alone = vec![false; calls.len()];
        while let Some(places) = self.next_batch(&mut pending, calls, &alone) {
            // Ids of models repeat from answer to answer; the host wants them unique within a request.
            let batch: Vec<ToolCall> = places
                .iter()
                .map(|place| ToolCall { id: place.to_string(), ..calls[*place].clone() })
                .collect();
            match call(&batch) {
                Ok(results) => {
                    for place in &places {
                        let id = place.to_string();
                        let found = results.iter().find(|result| result.id == id);
                        made[*place] = Made::Answered(match found {
                            Some(result) => {
                                ToolResult { id: calls[*place].id.clone(), ..result.clone() }
                            }
                            None => answer(
                                &calls[*place],
                                "error",
                                "the host gave no result for this call",
                            ),
                        });
                    }
                }
                Err(failure) if failure.is_interrupted() => {
                    for place in places {
                        made[place] = Made::Unknown;
                    }
                    return (made, Some(failure));
                }
                Err(failure) if failure.code == Failure::TOO_LARGE && places.len() > 1 => {
                    // The results were too much at once. Whether the tools did their work is not known.
                    for place in places.into_iter().rev() {
                        if toolbox.is_repeatable(&calls[place].name) {
                            alone[place] = true;
                            pending.push(place);
                        } else {
                            made[place] =
                                Made::Answered(answer(&calls[place], "too-large", UNSURE));
                        }
                    }
                }
                Err(failure) => {
                    for place in places {
                        let refused = answer(&calls[place], &failure.code, &failure.message);
                        made[place] = Made::Answered(refused);
                    }
                }
            }
        }
        (made, None)
    }

    fn next_batch(
        &self,
        pending: &mut Vec<usize>,
        calls: &[ToolCall],
        alone: &[bool],
    ) -> Option<Vec<usize>> {
        let first = pending.pop()?;
        let mut places = vec![first];
        let mut bytes = calls[first].arguments.len();
        while let Some(next) = pending.last().copied() {
            bytes += calls[next].arguments.len();
            if places.len() >= self.batch || alone[first] || alone[next] || bytes > MAX_BATCH_BYTES
            {
                break;
            }
            pending.pop();
            places.push(next);
        }
        Some(places)
    }
}

const UNSURE: &str = "the results of these calls together were too large to be handed over; this call may have done \
    its work: look at what it was to change before you repeat it";

fn answer(call: &ToolCall, status: &str, content: &str) -> ToolResult {
    ToolResult { id: call.id.clone(), status: status.to_owned(), content: content.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn toolbox() -> Toolbox {
        let tool = |name: &str, hint: Hint| ToolSpec {
            name: name.to_owned(),
            hints: vec![hint.as_str().to_owned()],
            ..ToolSpec::default()
        };
        Toolbox::new(vec![tool("read", Hint::ReadOnly), tool("write", Hint::Destructive)])
    }

    fn calls(names: &[&str]) -> Vec<ToolCall> {
        let call = |name: &&str| ToolCall::new("same", *name, &json!({})).unwrap();
        names.iter().map(call).collect()
    }

    fn all_ok(batch: &[ToolCall]) -> Vec<ToolResult> {
        batch.iter().map(|call| answer(call, "ok", &call.name)).collect()
    }

    fn statuses(made: &[Made]) -> String {
        let status = |made: &Made| match made {
            Made::Answered(result) => result.status.clone(),
            Made::Unknown => "unknown".to_owned(),
            Made::Untried => "not made".to_owned(),
        };
        made.iter().map(status).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn results_too_large_together_come_one_by_one_but_nothing_is_written_twice() {
        let written = RefCell::new(0);
        let host = |batch: &[ToolCall]| {
            *written.borrow_mut() += batch.iter().filter(|call| call.name == "write").count();
            if batch.len() > 1 { Err(Failure::too_large("5 MiB")) } else { Ok(all_ok(batch)) }
        };
        let (made, _) = Caller::new(8).make(host, &toolbox(), &calls(&["read", "write", "read"]));
        assert_eq!(statuses(&made), "ok too-large ok");
        assert_eq!(*written.borrow(), 1);
    }

    #[test]
    fn a_refusal_of_one_call_is_its_result() {
        let host = |_: &[ToolCall]| Err(Failure::new(Failure::LIMIT, "nothing left"));
        let (made, interrupted) = Caller::new(8).make(host, &toolbox(), &calls(&["read", "read"]));
        assert_eq!((statuses(&made).as_str(), interrupted), ("limit limit", None));
    }

    #[test]
    fn long_arguments_get_batches_of_their_own() {
        let sizes = RefCell::new(Vec::new());
        let host = |batch: &[ToolCall]| {
            sizes.borrow_mut().push(batch.len());
            Ok(all_ok(batch))
        };
        let long = ToolCall { arguments: "x".repeat(600 << 10), ..calls(&["write"]).remove(0) };
        Caller::new(8).make(host, &toolbox(), &[long.clone(), long.clone(), long]);
        assert_eq!(*sizes.borrow(), [1, 1, 1]);
    }

    #[test]
    fn results_keep_the_ids_of_the_model() {
        let host = |batch: &[ToolCall]| {
            assert_eq!(batch[1].id, "1");
            Ok(all_ok(&batch[..1]))
        };
        let (made, _) = Caller::new(8).make(host, &toolbox(), &calls(&["read", "read"]));
        assert_eq!(statuses(&made), "ok error");
        assert!(
            made.iter().all(|made| matches!(made, Made::Answered(result) if result.id == "same"))
        );
    }
}
