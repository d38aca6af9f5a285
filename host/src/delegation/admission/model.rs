//! The rule of admission against a naive one, and its cases one by one.

use proptest::prelude::*;

use super::*;

fn ask(id: u64, call: u64, session: &str) -> Ask {
    let place = session.bytes().map(u32::from).sum();
    let session = WorkId { place, generation: 1 };
    Ask { id: DelegationId(id), call: CallId(call), session }
}

fn capacity(host: u64, session: u64, line: u64) -> Capacity {
    Capacity::new(Bounds { host, session, line })
}

use Decision::{Accepted, Closed, Full, LineFull, Waits};
use WithoutSlot::{Leave, Wait};

/// Rule A1: capacity is the host's, so another session's unit can hold the last slot.
#[test]
fn another_session_can_hold_the_last_slot() {
    let mut slots = capacity(1, 1, 0);
    assert_eq!(slots.decide(&ask(1, 1, "a"), Leave), Accepted);
    assert_eq!(slots.decide(&ask(2, 2, "b"), Leave), Full(DelegationLimit::UnitsPerHost));
    slots.release(CallId(1));
    assert_eq!(slots.decide(&ask(3, 2, "b"), Leave), Accepted);
}

/// Rule A9: a session has a limit of its own, and it is the one that is named.
#[test]
fn a_session_has_a_limit_of_its_own() {
    let mut slots = capacity(9, 1, 0);
    assert_eq!(slots.decide(&ask(1, 1, "a"), Leave), Accepted);
    assert_eq!(slots.decide(&ask(2, 2, "a"), Leave), Full(DelegationLimit::UnitsPerSession));
    assert_eq!(slots.decide(&ask(3, 3, "b"), Leave), Accepted);
}

/// Rule A8: the units of one call share a slot, and it is free when the last of them has ended.
#[test]
fn the_units_of_one_call_share_a_slot() {
    let mut slots = capacity(1, 1, 0);
    for unit in 1..=3 {
        assert_eq!(slots.decide(&ask(unit, 7, "a"), Leave), Accepted);
    }
    assert_eq!(slots.used(), 1);
    slots.release(CallId(7));
    slots.release(CallId(7));
    assert_eq!(slots.decide(&ask(4, 8, "b"), Leave), Full(DelegationLimit::UnitsPerHost));
    slots.release(CallId(7));
    assert_eq!(slots.decide(&ask(5, 8, "b"), Leave), Accepted);
    // The call has lost its slot, so its next unit asks for capacity like a first one.
    assert_eq!(slots.decide(&ask(6, 7, "a"), Leave), Full(DelegationLimit::UnitsPerHost));
}

/// Rule A3: the line is bounded and in order; one that comes later does not overtake it.
#[test]
fn the_line_is_bounded_and_in_order() {
    let mut slots = capacity(1, 1, 2);
    assert_eq!(slots.decide(&ask(1, 1, "a"), Wait), Accepted);
    assert_eq!(slots.decide(&ask(2, 2, "b"), Wait), Waits { ahead: 0 });
    assert_eq!(slots.decide(&ask(3, 3, "c"), Wait), Waits { ahead: 1 });
    assert_eq!(slots.decide(&ask(4, 4, "d"), Wait), LineFull);
    assert_eq!(slots.called(), []);
    slots.release(CallId(1));
    assert_eq!(slots.called(), [DelegationId(2)]);
    assert_eq!(slots.decide(&ask(5, 5, "e"), Leave), Full(DelegationLimit::UnitsPerHost));
    assert_eq!(slots.decide(&ask(3, 3, "c"), Wait), Waits { ahead: 1 });
    slots.leave_line(DelegationId(2));
    assert_eq!(slots.called(), [DelegationId(3)]);
    assert_eq!(slots.decide(&ask(3, 3, "c"), Wait), Accepted);
    assert_eq!(slots.waiting(), 0);
}

#[test]
fn a_session_at_its_limit_does_not_hold_up_the_line() {
    let mut slots = capacity(2, 1, 2);
    assert_eq!(slots.decide(&ask(1, 1, "a"), Wait), Accepted);
    assert_eq!(slots.decide(&ask(2, 2, "a"), Wait), Waits { ahead: 0 });
    assert_eq!(slots.decide(&ask(3, 3, "b"), Leave), Accepted);
}

/// Rule D2: once closed nothing is admitted, neither from the line nor into a slot that is held already.
#[test]
fn a_closed_host_admits_nothing() {
    let mut slots = capacity(1, 1, 1);
    assert_eq!(slots.decide(&ask(1, 1, "a"), Wait), Accepted);
    assert_eq!(slots.decide(&ask(2, 2, "b"), Wait), Waits { ahead: 0 });
    slots.close("going down".into());
    slots.close("again".into());
    assert_eq!(slots.called(), [DelegationId(2)]);
    assert_eq!(slots.decide(&ask(2, 2, "b"), Wait), Closed("going down".into()));
    assert_eq!(slots.decide(&ask(3, 1, "a"), Leave), Closed("going down".into()));
    assert_eq!((slots.used(), slots.waiting()), (1, 0));
}

/// The same rule in the most literal way: lists that are counted anew each time.
#[derive(Debug, Clone, Default)]
struct Naive {
    running: Vec<Ask>,
    line: Vec<Ask>,
    closed: bool,
}

impl Naive {
    fn fits(&self, ask: &Ask, bounds: Bounds) -> bool {
        let mut calls: Vec<(CallId, WorkId)> =
            self.running.iter().map(|unit| (unit.call, unit.session)).collect();
        calls.sort_unstable();
        calls.dedup();
        let of_session = calls.iter().filter(|(_, session)| *session == ask.session).count() as u64;
        calls.iter().any(|(call, _)| *call == ask.call)
            || (of_session < bounds.session && (calls.len() as u64) < bounds.host)
    }

    /// Plays what would happen if everybody in line asked before `id`, in order.
    fn after_those_ahead(&self, id: DelegationId, bounds: Bounds) -> Naive {
        let mut played = self.clone();
        for other in self.line.iter().take_while(|other| other.id != id) {
            if played.fits(other, bounds) {
                played.running.push(other.clone());
            }
        }
        played
    }

    fn decide(&mut self, ask: &Ask, without: WithoutSlot, bounds: Bounds) -> &'static str {
        let known = self.line.iter().any(|other| other.id == ask.id);
        if self.closed {
            self.line.retain(|other| other.id != ask.id);
            return "closed";
        }
        if self.after_those_ahead(ask.id, bounds).fits(ask, bounds) {
            self.line.retain(|other| other.id != ask.id);
            self.running.push(ask.clone());
            return "accepted";
        }
        match without {
            _ if known => "waits",
            Leave => "full",
            Wait if self.line.len() as u64 >= bounds.line => "line full",
            Wait => {
                self.line.push(ask.clone());
                "waits"
            }
        }
    }
}

fn name(decision: &Decision) -> &'static str {
    match decision {
        Accepted => "accepted",
        Waits { .. } => "waits",
        Full(_) => "full",
        LineFull => "line full",
        Closed(_) => "closed",
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Rules A1, A3, A8, A9: the same answers as the naive rule, within every limit, in order, and nothing left over.
    #[test]
    fn admission_answers_as_the_naive_rule_does(
        (host, session, line) in (0u64..4, 0u64..4, 0u64..4),
        steps in proptest::collection::vec((0u8..20, 0u64..6, any::<prop::sample::Index>()), 0..80),
    ) {
        let bounds = Bounds { host, session, line };
        let (mut slots, mut naive) = (Capacity::new(bounds), Naive::default());
        let mut next = 0;
        for (step, call, which) in steps {
            match step {
                0..=8 => {
                    next += 1;
                    // A call belongs to one session.
                    let ask = ask(next, call, ["a", "b", "c"][call as usize % 3]);
                    let without = if step % 2 == 0 { Leave } else { Wait };
                    let decision = slots.decide(&ask, without);
                    prop_assert_eq!(name(&decision), naive.decide(&ask, without, bounds));
                    if let Waits { ahead } = decision {
                        prop_assert_eq!(ahead + 1, naive.line.len());
                    }
                }
                9..=12 if !naive.line.is_empty() => {
                    let ask = naive.line[which.index(naive.line.len())].clone();
                    prop_assert_eq!(name(&slots.decide(&ask, Wait)), naive.decide(&ask, Wait, bounds));
                }
                13..=16 if !naive.running.is_empty() => {
                    let ended = naive.running.remove(which.index(naive.running.len()));
                    slots.release(ended.call);
                }
                17..=18 if !naive.line.is_empty() => {
                    let left = naive.line.remove(which.index(naive.line.len()));
                    slots.leave_line(left.id);
                }
                19 if next > 20 => {
                    slots.close("closed".into());
                    naive.closed = true;
                }
                _ => {}
            }
            prop_assert!(slots.used() <= host && slots.waiting() <= line);
            prop_assert!(slots.sessions.values().all(|held| *held <= session && *held > 0));
            prop_assert_eq!(slots.sessions.values().sum::<u64>(), slots.used());
            prop_assert_eq!(slots.held.values().map(|held| held.units).sum::<u64>(), naive.running.len() as u64);
            let line: Vec<_> = naive.line.iter().map(|other| other.id).collect();
            prop_assert_eq!(slots.line.iter().map(|other| other.id).collect::<Vec<_>>(), line);
            let called = |other: &&Ask| {
                naive.closed || naive.after_those_ahead(other.id, bounds).fits(other, bounds)
            };
            let called: Vec<_> = naive.line.iter().filter(called).map(|other| other.id).collect();
            prop_assert_eq!(slots.called(), called);
        }
        for unit in naive.running.drain(..) {
            slots.release(unit.call);
        }
        prop_assert!(slots.held.is_empty() && slots.sessions.is_empty());
    }
}
