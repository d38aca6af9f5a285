//! Submissions, stops, ends, losses and closings in random order, against what must hold at every instant.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// A future that is polled by hand, and whether it has asked to be.
struct Driven<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    asked: Arc<Asked>,
}

#[derive(Default)]
struct Asked(AtomicBool);

impl Wake for Asked {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<T> Driven<T> {
    fn new(future: impl Future<Output = T> + 'static) -> Driven<T> {
        let asked = Arc::new(Asked::default());
        asked.0.store(true, Ordering::SeqCst);
        Driven { future: Box::pin(future), asked }
    }

    fn poll(&mut self) -> Option<T> {
        self.asked.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.asked));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn has_asked(&self) -> bool {
        self.asked.0.load(Ordering::SeqCst)
    }
}

/// What a child must carry: the first stop of each kind, and hard covers soft (S5).
#[derive(Debug, Clone, Default)]
struct Carried {
    soft: Option<Stop>,
    hard: Option<Stop>,
}

impl Carried {
    fn take(&mut self, stop: &Stop) {
        match stop.kind() {
            crate::work::StopKind::Soft if self.hard.is_none() => {
                self.soft.get_or_insert_with(|| stop.clone());
            }
            crate::work::StopKind::Hard => {
                self.hard.get_or_insert_with(|| stop.clone());
            }
            crate::work::StopKind::Soft => {}
        }
    }

    fn highest(&self) -> Option<Stop> {
        self.hard.clone().or_else(|| self.soft.clone())
    }
}

/// One child, as it must be.
struct ChildModel {
    id: WorkId,
    carried: Carried,
    /// The hold, once the child is in the test's hands.
    work: Option<Work>,
    /// A call that outlives the child.
    late: Option<Work>,
    recorded: Option<ChildStatus>,
    gone: bool,
}

impl ChildModel {
    fn take(&mut self, stop: &Stop) {
        if !self.gone {
            self.carried.take(stop);
        }
    }
}

enum Stage {
    /// Submitted and not decided.
    Open(Driven<(Call, Admission)>),
    /// In the background, with its supervisor.
    Running(Unit),
    Finishing(Driven<Arc<Completion>>),
    /// In the background, and its supervisor is lost.
    Lost,
    /// Not accepted: its children are the turn's.
    Inline,
    /// Given up, or ended.
    Over,
}

struct UnitModel {
    session: usize,
    call: usize,
    children: Vec<ChildModel>,
    stage: Stage,
    /// Its name and its node, once it is accepted.
    accepted: Option<(DelegationId, WorkId)>,
    carried: Carried,
    completed: bool,
}

struct World {
    host: Host,
    limits: (u64, u64, u64),
    sessions: Vec<Session>,
    turns: Vec<Carried>,
    calls: Vec<(usize, Option<Call>)>,
    units: Vec<UnitModel>,
    /// In the order of ending.
    ended: Vec<Vec<DelegationId>>,
    acknowledged: BTreeSet<DelegationId>,
    stops: u32,
}

type Step = (u8, Index, Index);

impl World {
    fn new(limits: (u64, u64, u64)) -> World {
        let host = Host::with_capacity(limits.0, limits.1, limits.2);
        let sessions = vec![host.session("a"), host.session("b")];
        World {
            host,
            limits,
            sessions,
            turns: vec![Carried::default(); 2],
            calls: Vec::new(),
            units: Vec::new(),
            ended: vec![Vec::new(); 2],
            acknowledged: BTreeSet::new(),
            stops: 0,
        }
    }

    fn stop(&mut self, which: usize) -> Stop {
        self.stops += 1;
        let message = format!("stop {}", self.stops);
        if which == 0 { soft(&message) } else { hard(&message) }
    }

    /// One of the units that are in a stage.
    fn pick(&self, which: Index, wanted: impl Fn(&UnitModel) -> bool) -> Option<usize> {
        let all: Vec<usize> =
            (0..self.units.len()).filter(|unit| wanted(&self.units[*unit])).collect();
        (!all.is_empty()).then(|| all[which.index(all.len())])
    }

    fn step(&mut self, (op, which, how): Step) {
        match op {
            0..=2 => {
                let session = which.index(2);
                let policy =
                    [Policy::Inline, Policy::Queue, Policy::Queue, Policy::Refuse][how.index(4)];
                let call = self.host.slots.call(self.sessions[session].origin(), policy);
                self.calls.push((session, Some(call)));
                self.submit(self.calls.len() - 1, how);
            }
            3..=5 => {
                let idle: Vec<usize> =
                    (0..self.calls.len()).filter(|call| self.calls[*call].1.is_some()).collect();
                if !idle.is_empty() {
                    self.submit(idle[which.index(idle.len())], how);
                }
            }
            6..=8 => {
                let open = self.host.door.open();
                if !open.is_empty() {
                    let verdict =
                        [Verdict::Yes, Verdict::Yes, Verdict::Yes, Verdict::No][how.index(4)];
                    self.host.door.answer(open[which.index(open.len())], verdict);
                }
            }
            9..=11 => {
                if let Some(unit) = self.pick(which, |unit| matches!(unit.stage, Stage::Open(_))) {
                    self.poll(unit);
                }
            }
            12 => {
                if let Some(unit) = self.pick(which, |unit| matches!(unit.stage, Stage::Open(_))) {
                    // The caller is gone, and the call with it.
                    self.units[unit].stage = Stage::Over;
                    self.units[unit].children.iter_mut().for_each(|child| child.gone = true);
                }
            }
            13 => {
                let (session, stop) = (which.index(2), self.stop(how.index(2)));
                self.turns[session].take(&stop);
                let mut expected = 0;
                for unit in self.units.iter_mut().filter(|unit| unit.session == session) {
                    if let Stage::Open(_) | Stage::Inline = unit.stage {
                        expected += unit.children.iter().filter(|child| !child.gone).count();
                        unit.children.iter_mut().for_each(|child| child.take(&stop));
                    }
                }
                let reached = self.sessions[session].turn.stop(&stop);
                // The turn itself, its children and their late calls, but for those that carry it already.
                assert!(reached <= 1 + 2 * expected);
            }
            14 => {
                let (session, stop) = (which.index(2), self.stop(1));
                let mut expected = 0;
                for unit in self.units.iter_mut().filter(|unit| unit.session == session) {
                    if unit.accepted.is_some() && !unit.completed {
                        expected += usize::from(unit.carried.hard.is_none());
                        unit.carried.take(&stop);
                        unit.children.iter_mut().for_each(|child| child.take(&stop));
                    }
                }
                assert_eq!(self.sessions[session].registry.stop_children(&stop), expected);
            }
            15 => {
                let stop = self.stop(how.index(2));
                if let Some(unit) =
                    self.pick(which, |unit| unit.accepted.is_some() && !unit.completed)
                {
                    let unit = &mut self.units[unit];
                    let Some((id, _)) = unit.accepted else { return };
                    unit.carried.take(&stop);
                    unit.children.iter_mut().for_each(|child| child.take(&stop));
                    let completions = &self.sessions[unit.session].completions;
                    completions.stop(&self.host.tree, &[id], &stop).unwrap();
                }
            }
            16..=21 => {
                let held = |child: &ChildModel| child.work.is_some();
                if let Some(unit) = self.pick(which, |unit| unit.children.iter().any(held)) {
                    let held: Vec<usize> = (0..self.units[unit].children.len())
                        .filter(|at| held(&self.units[unit].children[*at]))
                        .collect();
                    let at = held[how.index(held.len())];
                    self.child_ends(unit, at, op);
                }
            }
            22..=23 => {
                if let Some(unit) =
                    self.pick(which, |unit| unit.children.iter().any(|child| child.late.is_some()))
                {
                    self.units[unit].children.iter_mut().for_each(|child| {
                        child.gone |= child.late.is_some();
                        child.late = None;
                    });
                    self.settle(unit);
                }
            }
            24..=26 => {
                if let Some(unit) = self.pick(which, |unit| matches!(unit.stage, Stage::Running(_)))
                {
                    let Stage::Running(held) =
                        std::mem::replace(&mut self.units[unit].stage, Stage::Over)
                    else {
                        unreachable!()
                    };
                    self.units[unit].stage = Stage::Finishing(Driven::new(held.finish()));
                    self.poll(unit);
                }
            }
            27 => {
                let accepted = |unit: &UnitModel| {
                    matches!(unit.stage, Stage::Running(_) | Stage::Finishing(_))
                };
                if let Some(unit) = self.pick(which, accepted) {
                    self.units[unit].stage = Stage::Lost;
                    self.settle(unit);
                }
            }
            28 => {
                let completions = &self.sessions[which.index(2)].completions;
                if let Some(first) = completions.list().first() {
                    assert!(completions.acknowledge(first.id).is_some());
                    assert!(self.acknowledged.insert(first.id));
                }
            }
            29 => {
                self.host.notes.fails.store(how.index(3) == 0, Ordering::SeqCst);
            }
            30 if how.index(4) == 0 => {
                self.sessions[which.index(2)].registry.close("a session ends")
            }
            31 if how.index(8) == 0 => self.host.slots.close("the host ends"),
            _ => {}
        }
    }

    fn submit(&mut self, call: usize, how: Index) {
        // A stopper looks at so many bodies itself. More go to the warden, and this tree has none.
        if self
            .units
            .iter()
            .filter(|unit| !matches!(unit.stage, Stage::Inline | Stage::Over))
            .count()
            == 4
        {
            return;
        }
        let (session, held) = (self.calls[call].0, self.calls[call].1.take().unwrap());
        let verdicts = [
            Verdict::Yes,
            Verdict::Open,
            Verdict::Yes,
            Verdict::Open,
            Verdict::No,
            Verdict::PanicLater,
        ];
        self.host.door.set(verdicts[how.index(verdicts.len())]);
        let children: Vec<Child> = (0..1 + u32::try_from(how.index(3)).unwrap())
            .map(|task| self.sessions[session].child(task))
            .collect();
        let models = children.iter().map(|child| ChildModel {
            id: child.work.id(),
            carried: self.turns[session].clone(),
            work: None,
            late: None,
            recorded: None,
            gone: false,
        });
        let models = models.collect();
        let submitted = async move {
            let mut call = held;
            let admission = call.submit(children).await;
            (call, admission)
        };
        let stage = Stage::Open(Driven::new(submitted));
        let (accepted, carried) = (None, Carried::default());
        self.units.push(UnitModel {
            session,
            call,
            children: models,
            stage,
            accepted,
            carried,
            completed: false,
        });
        self.poll(self.units.len() - 1);
    }

    /// Polls what the unit waits for.
    fn poll(&mut self, unit: usize) {
        let model = &mut self.units[unit];
        match &mut model.stage {
            Stage::Open(driven) => {
                let Some((call, admission)) = driven.poll() else { return };
                self.calls[model.call].1 = Some(call);
                let children = match admission {
                    Admission::Accepted(mut accepted) => {
                        model.accepted = Some((accepted.id(), accepted.work().id()));
                        let children = accepted.take_children();
                        model.stage = Stage::Running(accepted);
                        children
                    }
                    Admission::Rejected(rejected) => {
                        model.stage = Stage::Inline;
                        rejected.children
                    }
                };
                assert_eq!(children.len(), model.children.len());
                for (child, model) in children.into_iter().zip(&mut model.children) {
                    assert_eq!(child.work.id(), model.id);
                    model.work = Some(child.work);
                }
            }
            Stage::Finishing(driven) => {
                let Some(completion) = driven.poll() else { return };
                let Some((id, _)) = model.accepted else { panic!("a completion of nothing") };
                assert_eq!(completion.id, id);
                model.stage = Stage::Over;
                model.completed = true;
                self.ended[model.session].push(id);
            }
            Stage::Running(_) | Stage::Lost | Stage::Inline | Stage::Over => {}
        }
    }

    fn child_ends(&mut self, unit: usize, at: usize, how: u8) {
        let model = &mut self.units[unit];
        let child = &mut model.children[at];
        if let (Stage::Running(held), 16..=18) = (&model.stage, how) {
            held.record(outcome(u32::try_from(at).unwrap(), ChildStatus::Failed));
            child.recorded = Some(ChildStatus::Failed);
        }
        let work = child.work.take().unwrap();
        if how == 21 {
            child.late = Some(work.open(Kind::Blocking, "a late call").unwrap());
        } else {
            child.gone = true;
        }
        drop(work);
        self.settle(unit);
    }

    /// A unit without a supervisor completes with its last child.
    fn settle(&mut self, unit: usize) {
        let model = &mut self.units[unit];
        let over = model.children.iter().all(|child| child.gone);
        if let (Stage::Lost, Some((id, _)), true) = (&model.stage, model.accepted, over) {
            model.stage = Stage::Over;
            model.completed = true;
            self.ended[model.session].push(id);
        }
    }

    fn check(&self) {
        let nodes: BTreeMap<WorkId, _> = self
            .host
            .tree
            .snapshot(self.host.root.id())
            .into_iter()
            .map(|node| (node.id, node))
            .collect();
        for unit in &self.units {
            let turn = self.sessions[unit.session].turn.id();
            let registry = self.sessions[unit.session].registry.id();
            // W1: the turn before the step, the unit after it, and nobody else.
            let owner = unit.accepted.map_or(turn, |(_, node)| node);
            for child in &unit.children {
                let node = nodes.get(&child.id);
                assert_eq!(
                    node.is_none(),
                    child.gone,
                    "W3, W4: {} is in the tree until it has ended",
                    child.id
                );
                let Some(node) = node else { continue };
                assert_eq!(node.owner, Some(owner), "W1, H1, H2: who owns {}", child.id);
                assert_eq!(
                    node.stop,
                    child.carried.highest(),
                    "H1, H2, S6, S7: what {} carries",
                    child.id
                );
            }
            if let Some((_, node)) = unit.accepted {
                let node = nodes.get(&node);
                assert_eq!(
                    node.is_none(),
                    unit.completed,
                    "a unit is in the tree until it has completed"
                );
                assert!(node.is_none_or(|node| node.owner == Some(registry)), "S6");
            }
        }

        // A8: a slot for each call with something in the background, within the limits (A9).
        let background = |unit: &&UnitModel| unit.accepted.is_some() && !unit.completed;
        let calls: BTreeSet<(usize, usize)> =
            self.units.iter().filter(background).map(|unit| (unit.session, unit.call)).collect();
        let used = self.host.slots.used();
        assert_eq!(used.held, calls.len() as u64, "A8");
        assert!(used.held <= self.limits.0 && used.waiting <= self.limits.2, "A9");
        for session in 0..2 {
            assert!(
                calls.iter().filter(|call| call.0 == session).count() as u64 <= self.limits.1,
                "A9"
            );
        }

        for (session, ended) in self.sessions.iter().zip(&self.ended) {
            // C1: one for each accepted unit that has ended, in that order, until acknowledged; and none else.
            let unread: Vec<DelegationId> =
                ended.iter().copied().filter(|id| !self.acknowledged.contains(id)).collect();
            let listed = session.completions.list();
            assert_eq!(
                listed.iter().map(|completion| completion.id).collect::<Vec<_>>(),
                unread,
                "C1, C3"
            );
            for completion in listed {
                let unit = self
                    .units
                    .iter()
                    .find(|unit| unit.accepted.is_some_and(|(id, _)| id == completion.id));
                let unit = unit.expect("a completion belongs to an accepted unit");
                assert!(unit.children.iter().all(|child| child.gone), "C2");
                assert_eq!(completion.entries.len(), unit.children.len(), "C5");
                for (entry, child) in completion.entries.iter().zip(&unit.children) {
                    let expected =
                        child.recorded.clone().unwrap_or(match child.carried.highest() {
                            Some(_) => ChildStatus::Interrupted,
                            None => ChildStatus::Unknown,
                        });
                    assert_eq!(entry.status, expected, "C4, C5");
                }
            }
        }
    }

    /// Lets everything end, and polls only what has asked to be polled.
    fn end(mut self) {
        self.host.notes.fails.store(false, Ordering::SeqCst);
        loop {
            for id in self.host.door.open() {
                self.host.door.answer(id, Verdict::Yes);
            }
            let mut moved = false;
            for unit in 0..self.units.len() {
                for at in 0..self.units[unit].children.len() {
                    if self.units[unit].children[at].work.is_some() {
                        self.child_ends(unit, at, 20);
                        moved = true;
                    }
                    if self.units[unit].children[at].late.take().is_some() {
                        self.units[unit].children[at].gone = true;
                        self.settle(unit);
                        moved = true;
                    }
                }
                if let Stage::Running(_) = self.units[unit].stage {
                    let Stage::Running(held) =
                        std::mem::replace(&mut self.units[unit].stage, Stage::Over)
                    else {
                        unreachable!()
                    };
                    self.units[unit].stage = Stage::Finishing(Driven::new(held.finish()));
                }
                let asked = match &self.units[unit].stage {
                    Stage::Open(driven) => driven.has_asked(),
                    Stage::Finishing(driven) => driven.has_asked(),
                    Stage::Running(_) | Stage::Lost | Stage::Inline | Stage::Over => false,
                };
                if asked {
                    self.poll(unit);
                    moved = true;
                }
                self.check();
            }
            if !moved {
                break;
            }
        }
        // Only a host without any slot leaves somebody in line.
        if self.limits.0 > 0 && self.limits.1 > 0 {
            for unit in &self.units {
                assert!(
                    !matches!(unit.stage, Stage::Open(_) | Stage::Finishing(_)),
                    "a wake-up was lost"
                );
            }
            assert_eq!(self.host.slots.used(), SlotsUsed { held: 0, waiting: 0 });
        }
        self.units.iter_mut().for_each(|unit| {
            if let Stage::Open(_) = unit.stage {
                unit.stage = Stage::Over;
                unit.children.iter_mut().for_each(|child| child.gone = true);
            }
        });
        self.check();
        assert_eq!(self.host.slots.used(), SlotsUsed { held: 0, waiting: 0 });
        for session in &self.sessions {
            assert_eq!((session.owned_by_turn(), session.registry.count()), (0, 0), "H5");
            assert_eq!(session.completions.unread(), session.completions.list().len());
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec((0u8..32, any::<Index>(), any::<Index>()), 0..90)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Rules W1, W3, W4, H1, H2, H5, S6, S7, A2, A8, A9, C1, C2, C4, C5.
    #[test]
    fn whatever_the_order_ownership_slots_and_completions_hold(
        limits in (0u64..4, 0u64..4, 0u64..4), steps in steps(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let mut world = World::new(limits);
        for step in steps {
            world.step(step);
            world.check();
        }
        world.end();
    }
}
