//! The tree against a naive model: one flat list of records, in which everything is found by looking at all of them.
//!
//! Random sequences of all transitions, with a clock that the test moves; after each step everything that can be
//! asked of the tree is compared.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::stop::{Grace, Stop, StopKind};
use super::super::tree::Kind;
use super::{Carries, Reached, Refused, State, Timer};
use crate::ids::WorkId;

/// How many sequences are tried where `PROPTEST_CASES` does not ask for more.
const SEQUENCES: u32 = 10_000;

const KINDS: [Kind; 6] =
    [Kind::Session, Kind::Registry, Kind::Turn, Kind::ToolCall, Kind::Child, Kind::Blocking];

/// Kept with a node: what it was told while the lock was held.
#[derive(Debug, Clone)]
struct Ear {
    record: usize,
    heard: Arc<Mutex<Vec<Stop>>>,
}

impl Ear {
    fn of(record: usize) -> Ear {
        Ear { record, heard: Arc::default() }
    }
}

impl Carries for Ear {
    fn carry(&self, stop: &Stop) {
        self.heard.lock().unwrap().push(stop.clone());
    }
}

/// Which node a step is about: one of the live ones for the most part, else any that ever was.
#[derive(Debug, Clone, Copy)]
struct Pick(u8);

#[derive(Debug, Clone)]
enum Step {
    Open { owner: Pick, kind: usize },
    Share(Pick),
    Drop(Pick),
    Stop { at: Pick, stop: Stop },
    StopChildren { of: Pick, stop: Stop },
    Adopt { children: Vec<Pick>, owner: Pick },
    Close { at: Pick, reason: u8 },
    Deadline { at: Pick, after: u8 },
    Pass { time: u8 },
}

fn pick() -> impl Strategy<Value = Pick> {
    any::<u8>().prop_map(Pick)
}

fn stop() -> impl Strategy<Value = Stop> {
    let grace = prop_oneof![
        Just(Grace::Never),
        (0u64..20).prop_map(|n| Grace::After(Duration::from_secs(n)))
    ];
    let soft = (any::<u8>(), grace)
        .prop_map(|(word, grace)| Stop::soft("a user", word.to_string(), grace));
    let hard = any::<u8>().prop_map(|word| Stop::hard("a user", word.to_string()));
    prop_oneof![3 => soft, 2 => hard]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (pick(), 0..KINDS.len()).prop_map(|(owner, kind)| Step::Open { owner, kind }),
        2 => pick().prop_map(Step::Share),
        6 => pick().prop_map(Step::Drop),
        3 => (pick(), stop()).prop_map(|(at, stop)| Step::Stop { at, stop }),
        1 => (pick(), stop()).prop_map(|(of, stop)| Step::StopChildren { of, stop }),
        3 => (proptest::collection::vec(pick(), 0..4), pick())
            .prop_map(|(children, owner)| Step::Adopt { children, owner }),
        1 => (pick(), any::<u8>()).prop_map(|(at, reason)| Step::Close { at, reason }),
        2 => (pick(), 0u8..20).prop_map(|(at, after)| Step::Deadline { at, after }),
        2 => (0u8..10).prop_map(|time| Step::Pass { time }),
    ]
}

/// One node, living or gone. Records are never removed, so their places are names.
#[derive(Debug)]
struct Record {
    id: WorkId,
    kind: Kind,
    owner: Option<usize>,
    holds: u32,
    gone: bool,
    closed: Option<String>,
    soft: Option<Stop>,
    hard: Option<Stop>,
    deadline: Option<Instant>,
    grace_end: Option<Instant>,
    told: Vec<Stop>,
    ear: Ear,
}

#[derive(Debug)]
struct Model {
    records: Vec<Record>,
    now: Instant,
}

impl Model {
    fn live(&self) -> Vec<usize> {
        (0..self.records.len()).filter(|at| !self.records[*at].gone).collect()
    }

    fn pick(&self, Pick(number): Pick) -> usize {
        let (number, live) = (usize::from(number), self.live());
        if number.is_multiple_of(8) || live.is_empty() {
            number / 8 % self.records.len()
        } else {
            live[number % live.len()]
        }
    }

    /// The node and everything above it.
    fn chain(&self, at: usize) -> Vec<usize> {
        std::iter::successors(Some(at), |at| self.records[*at].owner).collect()
    }

    /// The node and everything below it.
    fn below(&self, top: usize) -> Vec<usize> {
        if self.records[top].gone {
            return Vec::new();
        }
        self.live().into_iter().filter(|at| self.chain(*at).contains(&top)).collect()
    }

    fn children(&self, of: usize) -> Vec<usize> {
        self.live().into_iter().filter(|at| self.records[*at].owner == Some(of)).collect()
    }

    fn executions_below(&self, top: usize) -> Vec<usize> {
        let execution = |at: &usize| *at != top && !self.records[*at].kind.is_container();
        self.below(top).into_iter().filter(execution).collect()
    }

    fn is_spent(&self, at: usize) -> bool {
        let record = &self.records[at];
        let busy =
            |at: &usize| self.records[*at].holds > 0 && self.records[*at].kind != Kind::Blocking;
        record.gone || (record.holds == 0 && !self.executions_below(at).iter().any(busy))
    }

    /// Why nothing may be opened under a node.
    fn refusal(&self, owner: usize) -> Option<Refused> {
        if self.records[owner].gone {
            return Some(Refused::Gone { owner: self.records[owner].id });
        }
        for (height, at) in self.chain(owner).into_iter().enumerate() {
            let record = &self.records[at];
            if height > 0 && !self.records[owner].kind.is_container() {
                break;
            }
            if let Some(reason) = &record.closed {
                let (label, reason) = (at.to_string().into(), reason.as_str().into());
                return Some(Refused::Closed { by: record.id, label, reason });
            }
            if !record.kind.is_container() {
                break;
            }
        }
        None
    }

    /// Returns the records that the stop changed.
    fn stop(&mut self, top: usize, stop: &Stop) -> BTreeSet<usize> {
        let mut changed = BTreeSet::new();
        for at in self.below(top) {
            let record = &mut self.records[at];
            let unchanged =
                record.hard.is_some() || (stop.kind() == StopKind::Soft && record.soft.is_some());
            if unchanged {
                continue;
            }
            match stop.kind() {
                StopKind::Soft => record.soft = Some(stop.clone()),
                StopKind::Hard => record.hard = Some(stop.clone()),
            }
            record.told.push(stop.clone());
            changed.insert(at);
        }
        if let (true, StopKind::Soft, Grace::After(grace)) =
            (changed.contains(&top), stop.kind(), stop.grace())
        {
            self.records[top].grace_end = Some(self.now + grace);
        }
        changed
    }

    /// What is neither held nor an owner is gone, until nothing more goes. Returns what went.
    fn sweep(&mut self) -> BTreeSet<usize> {
        let mut went = BTreeSet::new();
        while let Some(at) = self
            .live()
            .into_iter()
            .find(|at| self.records[*at].holds == 0 && self.children(*at).is_empty())
        {
            self.records[at].gone = true;
            went.insert(at);
        }
        went
    }

    /// Everything whose time is set, earliest first.
    fn timers(&self) -> Vec<(Instant, WorkId, Timer, usize)> {
        let mut timers = Vec::new();
        for at in self.live() {
            let record = &self.records[at];
            timers.extend(record.deadline.map(|time| (time, record.id, Timer::Deadline, at)));
            timers.extend(record.grace_end.map(|time| (time, record.id, Timer::Grace, at)));
        }
        timers.sort();
        timers
    }
}

/// The tree and its model, side by side.
struct Pair {
    state: State<Ear>,
    model: Model,
}

impl Pair {
    fn new() -> Pair {
        let (now, ear) = (Instant::now(), Ear::of(0));
        let (state, id) = State::new("0".into(), now, ear.clone());
        let mut pair = Pair { state, model: Model { records: Vec::new(), now } };
        pair.record(id, Kind::Host, None, ear);
        pair
    }

    fn record(&mut self, id: WorkId, kind: Kind, owner: Option<usize>, ear: Ear) {
        let (soft, hard) = owner
            .map(|owner| {
                (self.model.records[owner].soft.clone(), self.model.records[owner].hard.clone())
            })
            .unwrap_or_default();
        let told = [&soft, &hard].into_iter().flatten().cloned().collect();
        self.model.records.push(Record {
            id,
            kind,
            owner,
            holds: 1,
            gone: false,
            closed: None,
            soft,
            hard,
            deadline: None,
            grace_end: None,
            told,
            ear,
        });
    }

    fn id(&self, at: usize) -> WorkId {
        self.model.records[at].id
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Open { owner, kind } => self.open(owner, KINDS[kind]),
            Step::Share(at) => {
                let at = self.model.pick(at);
                let live = !self.model.records[at].gone;
                assert_eq!(self.state.hold(self.id(at)), live);
                self.model.records[at].holds += u32::from(live);
            }
            Step::Drop(at) => {
                let at = self.model.pick(at);
                // The root goes last of all, so that a sequence is about something.
                if at != 0 {
                    self.release(at);
                }
            }
            Step::Stop { at, stop } => {
                let at = self.model.pick(at);
                let reached = self.state.stop(self.id(at), &stop, self.model.now);
                let changed = self.model.stop(at, &stop);
                if changed.contains(&at) {
                    assert_eq!(reached[0].extra.record, at, "the node itself comes first");
                }
                same_reach(&reached, &changed, stop.kind());
            }
            Step::StopChildren { of, stop } => {
                let of = self.model.pick(of);
                let (count, reached) = self.state.stop_children(self.id(of), &stop, self.model.now);
                let children = self.model.children(of);
                let changed: Vec<_> =
                    children.into_iter().map(|child| self.model.stop(child, &stop)).collect();
                assert_eq!(count, changed.iter().filter(|below| !below.is_empty()).count());
                same_reach(&reached, &changed.into_iter().flatten().collect(), stop.kind());
            }
            Step::Adopt { children, owner } => self.adopt(&children, owner),
            Step::Close { at, reason } => {
                let at = self.model.pick(at);
                self.state.close(self.id(at), reason.to_string().into());
                let record = &mut self.model.records[at];
                if !record.gone {
                    record.closed.get_or_insert(reason.to_string());
                }
            }
            Step::Deadline { at, after } => {
                let at = self.model.pick(at);
                let time = self.model.now + Duration::from_secs(after.into());
                self.state.set_deadline(self.id(at), time);
                let record = &mut self.model.records[at];
                if !record.gone {
                    record.deadline = record.deadline.into_iter().chain([time]).min();
                }
            }
            Step::Pass { time } => self.pass(Duration::from_secs(time.into())),
        }
    }

    fn open(&mut self, owner: Pick, kind: Kind) {
        let (owner, number) = (self.model.pick(owner), self.model.records.len());
        let ear = Ear::of(number);
        let label = number.to_string().into();
        let opened = self.state.open(self.id(owner), kind, label, self.model.now, ear.clone());
        assert_eq!(opened.as_ref().err(), self.model.refusal(owner).as_ref());
        if let Ok(id) = opened {
            assert!(self.model.records.iter().all(|record| record.id != id), "no name comes twice");
            self.record(id, kind, Some(owner), ear);
        }
    }

    fn release(&mut self, at: usize) {
        let record = &mut self.model.records[at];
        // Who has no hold cannot drop one; what is gone takes no notice.
        if record.holds == 0 && !record.gone {
            return;
        }
        let gone = self.state.release(self.id(at));
        let record = &mut self.model.records[at];
        record.holds = record.holds.saturating_sub(1);
        assert_eq!(gone.is_some(), !record.gone && record.holds == 0);
        let gone = gone.unwrap_or_default();
        for pair in gone.windows(2) {
            assert_eq!(pair[0].owner, Some(pair[1].id), "lowest first");
        }
        let gone: BTreeSet<usize> = gone.iter().map(|node| node.extra.record).collect();
        assert_eq!(gone, self.model.sweep());
    }

    fn adopt(&mut self, children: &[Pick], owner: Pick) {
        let owner = self.model.pick(owner);
        let children: Vec<usize> = children.iter().map(|child| self.model.pick(*child)).collect();
        let ids: Vec<WorkId> = children.iter().map(|child| self.id(*child)).collect();
        let adopted = self.state.adopt(&ids, self.id(owner), self.model.now);
        let refusal = self.model.refusal(owner).or_else(|| {
            children.iter().find_map(|at| {
                let record = &self.model.records[*at];
                if record.gone {
                    return Some(Refused::Gone { owner: record.id });
                }
                let cycle = record.owner.is_none() || self.model.chain(owner).contains(at);
                cycle.then(|| Refused::Cycle { child: record.id, owner: self.id(owner) })
            })
        });
        assert_eq!(adopted.as_ref().err(), refusal.as_ref());
        let Ok(adopted) = adopted else { return };

        let (soft, hard) =
            (self.model.records[owner].soft.clone(), self.model.records[owner].hard.clone());
        let mut expected = [BTreeSet::new(), BTreeSet::new()];
        for child in children {
            let above = self.model.chain(child);
            let ends = above.iter().filter_map(|at| self.model.records[*at].grace_end);
            self.model.records[child].grace_end = ends.min();
            self.model.records[child].owner = Some(owner);
            for (stop, expected) in [&soft, &hard].into_iter().zip(&mut expected) {
                // Only the marks: no grace period begins because of a move.
                let changed = stop.as_ref().map(|stop| {
                    let grace_end = self.model.records[child].grace_end;
                    let changed = self.model.stop(child, stop);
                    self.model.records[child].grace_end = grace_end;
                    changed
                });
                expected.extend(changed.into_iter().flatten());
            }
        }
        let (soft, hard): (Vec<_>, Vec<_>) =
            adopted.reached.into_iter().partition(|reached| reached.kind == StopKind::Soft);
        same_reach(&soft, &expected[0], StopKind::Soft);
        same_reach(&hard, &expected[1], StopKind::Hard);
        let gone: BTreeSet<usize> = adopted.gone.iter().map(|node| node.extra.record).collect();
        assert_eq!(gone, self.model.sweep());
    }

    /// Lets time pass, and does what the warden does.
    fn pass(&mut self, time: Duration) {
        self.model.now += time;
        let now = self.model.now;
        while let Some((id, timer, stop)) = self.state.take_due(now) {
            // Ends of periods that have nothing left to end go without a word.
            let at = loop {
                let (time, _, due, at) = self.model.timers()[0];
                assert!(time <= now);
                let record = &mut self.model.records[at];
                match due {
                    Timer::Deadline => record.deadline = None,
                    Timer::Grace => record.grace_end = None,
                }
                if record.hard.is_none() {
                    assert_eq!(due, timer);
                    break at;
                }
            };
            assert_eq!(id, self.id(at));
            match timer {
                Timer::Deadline => assert_eq!(stop.message(), "the wall-time limit is reached"),
                Timer::Grace => {
                    let soft = self.model.records[at].soft.as_ref().unwrap();
                    assert_eq!((stop.message(), stop.issuer()), (soft.message(), soft.issuer()));
                }
            }
            assert_eq!(stop.kind(), StopKind::Hard);
            let reached = self.state.stop(id, &stop, now);
            let changed = self.model.stop(at, &stop);
            assert!(changed.contains(&at));
            same_reach(&reached, &changed, StopKind::Hard);
        }
        for (time, _, due, at) in self.model.timers() {
            if time <= now {
                let record = &mut self.model.records[at];
                assert!(record.hard.is_some(), "something was due and was not taken");
                match due {
                    Timer::Deadline => record.deadline = None,
                    Timer::Grace => record.grace_end = None,
                }
            }
        }
    }

    /// Compares everything that can be asked.
    fn compare(&self) {
        let (state, model) = (&self.state, &self.model);
        let live = model.live();
        assert_eq!(state.nodes.len(), live.len());
        assert_eq!(state.next_timer(), model.timers().first().map(|(time, ..)| *time));
        assert_eq!(state.timers.len(), model.timers().len());
        for (at, record) in model.records.iter().enumerate() {
            assert_eq!(*record.ear.heard.lock().unwrap(), record.told, "what {at} was told");
            assert_eq!(state.is_spent(record.id), model.is_spent(at), "whether {at} is spent");
            let Some(node) = state.get(record.id) else {
                assert!(record.gone, "{at} is gone too early");
                assert_eq!(state.subtree(record.id).count(), 0);
                assert_eq!(state.stops(record.id), (None, None));
                continue;
            };
            assert!(!record.gone, "{at} should be gone");
            assert_eq!(node.owner, record.owner.map(|owner| self.id(owner)), "who owns {at}");
            assert_eq!((node.kind, node.holds), (record.kind, record.holds));
            assert_eq!(node.closed.as_deref(), record.closed.as_deref());
            assert_eq!(
                state.stops(record.id),
                (record.soft.clone(), record.hard.clone()),
                "what {at} carries"
            );
            assert_eq!(state.admits(record.id).err(), model.refusal(at));
            let children: BTreeSet<usize> =
                state.children(record.id).map(|node| node.extra.record).collect();
            assert_eq!(children, model.children(at).into_iter().collect(), "the children of {at}");
            let executions = state.executions_below(record.id).count();
            assert_eq!(executions, model.executions_below(at).len(), "the count below {at}");
            if let Some(owner) = record.owner {
                let owner = &model.records[owner];
                assert!(!owner.gone, "W1: an owner is in the tree");
                assert!(
                    record.hard.is_some() || owner.hard.is_none(),
                    "W6: a hard stop above is here too"
                );
                let any = record.hard.is_some() || record.soft.is_some();
                assert!(any || owner.soft.is_none(), "W6: a soft stop above is here too");
            }
        }
        let walk: Vec<usize> = state.subtree(self.id(0)).map(|node| node.extra.record).collect();
        assert_eq!(walk.iter().copied().collect::<BTreeSet<_>>(), live.into_iter().collect());
        let mut seen = BTreeSet::new();
        for at in walk {
            assert!(
                model.records[at].owner.is_none_or(|owner| seen.contains(&owner)),
                "owners come first"
            );
            assert!(seen.insert(at), "nobody comes twice");
        }
    }

    /// Lets go of everything, and finds nothing left.
    fn end(mut self) {
        for at in (0..self.model.records.len()).rev() {
            while self.model.records[at].holds > 0 && !self.model.records[at].gone {
                self.release(at);
            }
        }
        assert!(self.state.nodes.is_empty(), "a node leaked");
        assert!(self.state.timers.is_empty(), "a timer leaked");
    }
}

fn same_reach(reached: &[Reached<Ear>], expected: &BTreeSet<usize>, kind: StopKind) {
    assert!(reached.iter().all(|reached| reached.kind == kind));
    assert_eq!(reached.len(), expected.len(), "each is reported once");
    assert_eq!(
        &reached.iter().map(|reached| reached.extra.record).collect::<BTreeSet<_>>(),
        expected
    );
}

fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.max(SEQUENCES), failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(config())]

    /// Rules W1, W2, W3, W4, W5, W6, W7, S4, S5, S10, S13.
    #[test]
    fn the_tree_does_what_the_naive_model_does(steps in proptest::collection::vec(step(), 0..48)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
            pair.compare();
        }
        pair.end();
    }
}
