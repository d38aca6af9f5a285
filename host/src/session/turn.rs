//! The turn of a session, as a pure state machine: who may start, who may be stopped.

/// Counts the executions of one session, from 1. A stop names the one that it means (S9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Generation(pub u64);

/// Whether a session has a turn, and which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No run; `last` was the newest one.
    Idle { last: u64 },
    /// That run is going on.
    Running { now: u64 },
}

/// What is asked of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// An input wants a turn.
    Prompt,
    /// Somebody stops an execution; none for whichever is going on.
    Stop(Option<Generation>),
    /// The run of that generation has ended physically.
    Ended(Generation),
}

/// What the driver has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Start a run of that generation.
    Start(Generation),
    /// Tell the asker that a turn is going on.
    Busy(Generation),
    /// Stop that run.
    StopRun(Generation),
    /// Tell the asker that the execution it means is over.
    Stale,
    /// Nothing.
    Nothing,
}

impl State {
    /// No run, after so many.
    pub(super) fn after(last: u64) -> State {
        State::Idle { last }
    }

    pub(super) fn step(self, step: Step) -> (State, Effect) {
        match (self, step) {
            (State::Idle { last }, Step::Prompt) => {
                (State::Running { now: last + 1 }, Effect::Start(Generation(last + 1)))
            }
            (State::Running { now }, Step::Prompt) => (self, Effect::Busy(Generation(now))),
            (State::Idle { .. }, Step::Stop(Some(_))) => (self, Effect::Stale),
            (State::Idle { .. }, Step::Stop(None)) => (self, Effect::Nothing),
            (State::Running { now }, Step::Stop(Some(meant))) if meant.0 != now => {
                (self, Effect::Stale)
            }
            (State::Running { now }, Step::Stop(_)) => (self, Effect::StopRun(Generation(now))),
            (State::Running { now }, Step::Ended(ended)) if ended.0 == now => {
                (State::Idle { last: now }, Effect::Nothing)
            }
            (State::Running { .. } | State::Idle { .. }, Step::Ended(_)) => (self, Effect::Nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    #[test]
    fn a_session_has_one_turn_at_a_time() {
        let (state, effect) = State::after(0).step(Step::Prompt);
        assert_eq!(effect, Effect::Start(Generation(1)));
        assert_eq!(state.step(Step::Prompt), (state, Effect::Busy(Generation(1))));
    }

    /// Rule S9: a stop for an older generation is refused as stale and never hits the next turn.
    #[test]
    fn a_stop_for_an_older_execution_is_stale() {
        let (state, _) = State::after(0).step(Step::Prompt);
        let (state, _) = state.step(Step::Ended(Generation(1)));
        assert_eq!(state.step(Step::Stop(Some(Generation(1)))).1, Effect::Stale);
        let (state, _) = state.step(Step::Prompt);
        assert_eq!(state.step(Step::Stop(Some(Generation(1)))), (state, Effect::Stale));
        assert_eq!(state.step(Step::Stop(Some(Generation(2)))).1, Effect::StopRun(Generation(2)));
    }

    proptest! {
        /// Generations only count up, and only the running one is ever stopped.
        #[test]
        fn only_the_running_generation_is_stopped(steps in proptest::collection::vec(0u8..4, 0..64), meant in 0u64..8) {
            let (mut state, mut newest, mut running) = (State::after(0), 0, None);
            for step in steps {
                let step = match step {
                    0 => Step::Prompt,
                    1 => Step::Stop(None),
                    2 => Step::Stop(Some(Generation(meant))),
                    _ => Step::Ended(Generation(newest)),
                };
                let (next, effect) = state.step(step);
                match effect {
                    Effect::Start(started) => {
                        prop_assert!(running.is_none());
                        prop_assert_eq!(started.0, newest + 1);
                        (newest, running) = (started.0, Some(started));
                    }
                    Effect::StopRun(stopped) => prop_assert_eq!(Some(stopped), running),
                    Effect::Busy(busy) => prop_assert_eq!(Some(busy), running),
                    Effect::Stale | Effect::Nothing => {}
                }
                if let Step::Ended(_) = step {
                    running = None;
                }
                state = next;
            }
        }
    }
}
