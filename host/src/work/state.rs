//! The tree itself: a plain structure with pure transitions. No lock, no clock, no waking, no wasm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use slab::Slab;

use super::stop::{Grace, Stop, StopKind};
use super::tree::Kind;
use crate::ids::WorkId;

#[cfg(test)]
mod model;

/// All nodes, and the times at which some of them end by themselves. `X` is what the caller keeps with a node.
#[derive(Debug)]
pub(super) struct State<X> {
    nodes: Slab<Node<X>>,
    /// Counts openings; its value at the opening is part of a node's name, so that no name comes twice.
    generation: u64,
    /// The ends of wall-time budgets and of grace periods, earliest first.
    timers: BTreeSet<(Instant, WorkId, Timer)>,
}

/// One node. Its children form a list through the nodes themselves, so that moving one is a few writes.
#[derive(Debug)]
pub(super) struct Node<X> {
    pub(super) id: WorkId,
    pub(super) kind: Kind,
    pub(super) label: Arc<str>,
    pub(super) opened: Instant,
    /// None for the root alone. Changes in [`State::adopt`].
    pub(super) owner: Option<WorkId>,
    first_child: Option<u32>,
    next: Option<u32>,
    previous: Option<u32>,
    /// How many values of the program keep this node. At 0 it lingers until its last child is gone.
    holds: u32,
    /// Why no new work may be opened here. Never taken back.
    pub(super) closed: Option<Arc<str>>,
    soft: Option<Stop>,
    hard: Option<Stop>,
    /// When the highest stop that it carries was given, if that came after it was opened.
    pub(super) stopped: Option<(StopKind, Instant)>,
    deadline: Option<Instant>,
    grace_end: Option<Instant>,
    pub(super) extra: X,
}

/// Which of a node's times has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Deadline,
    Grace,
}

/// What the caller keeps with a node hears of each stop while the lock is still held, so that nobody can see a
/// subtree that is marked in part (S4).
pub(super) trait Carries: Clone {
    fn carry(&self, stop: &Stop);
}

impl Carries for () {
    fn carry(&self, _stop: &Stop) {}
}

/// What a stop changed at one node, for the caller to pass on once it has let go of the lock.
#[derive(Debug)]
pub(super) struct Reached<X> {
    pub(super) extra: X,
    pub(super) kind: StopKind,
    /// It is a piece of work of its own. The process of a run that is reached with it is not.
    pub(super) counts: bool,
    /// It only holds others.
    pub(super) is_container: bool,
}

/// What moving nodes changed.
#[derive(Debug)]
pub(super) struct Adopted<X> {
    pub(super) reached: Vec<Reached<X>>,
    pub(super) gone: Vec<Node<X>>,
}

impl<X: Carries> State<X> {
    /// A tree with nothing but its root, held once.
    pub(super) fn new(label: Arc<str>, now: Instant, extra: X) -> (Self, WorkId) {
        let mut state = State { nodes: Slab::new(), generation: 0, timers: BTreeSet::new() };
        let id = state.insert(None, Kind::Host, label, now, extra);
        (state, id)
    }

    pub(super) fn get(&self, id: WorkId) -> Option<&Node<X>> {
        self.nodes.get(id.place as usize).filter(|node| node.id == id)
    }

    fn get_mut(&mut self, id: WorkId) -> Option<&mut Node<X>> {
        self.nodes.get_mut(id.place as usize).filter(|node| node.id == id)
    }

    /// Puts a node under `owner`, held once, with every stop that the owner carries (W6).
    pub(super) fn open(
        &mut self,
        owner: WorkId,
        kind: Kind,
        label: Arc<str>,
        now: Instant,
        extra: X,
    ) -> Result<WorkId, Refused> {
        self.admits(owner)?;
        let (soft, hard) = self.stops(owner);
        for stop in [&soft, &hard].into_iter().flatten() {
            extra.carry(stop);
        }
        let id = self.insert(Some(owner), kind, label, now, extra);
        if let Some(node) = self.get_mut(id) {
            (node.soft, node.hard) = (soft, hard);
        }
        Ok(id)
    }

    /// The stops that a node carries: soft, hard.
    pub(super) fn stops(&self, id: WorkId) -> (Option<Stop>, Option<Stop>) {
        self.get(id).map(|node| (node.soft.clone(), node.hard.clone())).unwrap_or_default()
    }

    /// Changes what the caller keeps with a node. Says also whether the node carries a hard stop.
    pub(super) fn set_extra<R>(
        &mut self,
        id: WorkId,
        change: impl FnOnce(&mut X) -> R,
    ) -> Option<(R, bool)> {
        self.get_mut(id).map(|node| (change(&mut node.extra), node.hard.is_some()))
    }

    /// Whether a node has ended but for calls that cannot be interrupted: it is gone, or nothing holds it and
    /// nothing but blocking calls is below it.
    pub(super) fn is_spent(&self, id: WorkId) -> bool {
        self.get(id).is_none_or(|node| {
            node.holds == 0
                && self
                    .executions_below(id)
                    .all(|below| below.kind == Kind::Blocking || below.holds == 0)
        })
    }

    /// Whether work may be opened under `owner` (W5). Work that was admitted may finish what it has to do: under
    /// it only its own mark counts. Under a container, every container above it has a say.
    pub(super) fn admits(&self, owner: WorkId) -> Result<(), Refused> {
        let mut at = Some(owner);
        while let Some(id) = at {
            let Some(node) = self.get(id) else { return Err(Refused::Gone { owner: id }) };
            if let Some(reason) = &node.closed {
                return Err(Refused::Closed {
                    by: id,
                    label: node.label.clone(),
                    reason: reason.clone(),
                });
            }
            at = if node.kind.is_container() { node.owner } else { None };
        }
        Ok(())
    }

    /// Moves nodes to another owner, all of them or none, and gives them the stops which that owner carries. A grace
    /// period that runs for them goes on running, also when it was counted at an owner that they leave (S10, H1).
    /// Reports what those stops changed, and the old owners that nothing kept but these children.
    pub(super) fn adopt(
        &mut self,
        children: &[WorkId],
        new_owner: WorkId,
        now: Instant,
    ) -> Result<Adopted<X>, Refused> {
        self.admits(new_owner)?;
        let (mut above, mut at) = (Vec::new(), Some(new_owner));
        while let Some(id) = at {
            above.push(id);
            at = self.get(id).and_then(|node| node.owner);
        }
        for child in children {
            let Some(node) = self.get(*child) else { return Err(Refused::Gone { owner: *child }) };
            if node.owner.is_none() || above.contains(child) {
                return Err(Refused::Cycle { child: *child, owner: new_owner });
            }
        }
        let (soft, hard) = self.stops(new_owner);
        let (mut reached, mut gone) = (Vec::new(), Vec::new());
        let mut left = Vec::new();
        for child in children {
            left.extend(self.get(*child).and_then(|node| node.owner));
            let grace_end = self.grace_end_above(*child);
            self.unlink(*child);
            self.link(*child, new_owner);
            if let Some(end) = grace_end {
                self.set_grace_end(*child, end);
            }
            for stop in [&soft, &hard].into_iter().flatten() {
                self.mark(*child, stop, now, &mut reached);
            }
        }
        // Not before all have moved: an old owner may be one of the children.
        for owner in left {
            gone.append(&mut self.settle(owner));
        }
        Ok(Adopted { reached, gone })
    }

    /// The first end of a grace period that reaches a node: its own, or one that is counted above it.
    fn grace_end_above(&self, id: WorkId) -> Option<Instant> {
        let (mut earliest, mut at) = (None, self.get(id));
        while let Some(node) = at {
            earliest = earliest.into_iter().chain(node.grace_end).min();
            at = node.owner.and_then(|owner| self.get(owner));
        }
        earliest
    }

    fn set_grace_end(&mut self, id: WorkId, end: Instant) {
        let Some(node) = self.get_mut(id) else { return };
        if let Some(old) = node.grace_end.replace(end) {
            self.timers.remove(&(old, id, Timer::Grace));
        }
        self.timers.insert((end, id, Timer::Grace));
    }

    /// Marks a node and everything below it (S4). Reports the nodes that it changed, the node itself first.
    pub(super) fn stop(&mut self, id: WorkId, stop: &Stop, now: Instant) -> Vec<Reached<X>> {
        let mut reached = Vec::new();
        let changed = self.mark(id, stop, now, &mut reached);
        if let (true, StopKind::Soft, Grace::After(grace)) = (changed, stop.kind(), stop.grace())
            && let Some(end) = now.checked_add(grace)
        {
            self.set_grace_end(id, end);
        }
        reached
    }

    /// Stops each child of a node, and not the node itself. The first figure counts the children that changed.
    pub(super) fn stop_children(
        &mut self,
        id: WorkId,
        stop: &Stop,
        now: Instant,
    ) -> (usize, Vec<Reached<X>>) {
        self.stop_each(self.children(id).map(|node| node.id).collect(), stop, now)
    }

    /// The same for children of one kind only.
    pub(super) fn stop_children_of(
        &mut self,
        id: WorkId,
        kind: Kind,
        stop: &Stop,
        now: Instant,
    ) -> (usize, Vec<Reached<X>>) {
        let of_that_kind = self.children(id).filter(|node| node.kind == kind);
        self.stop_each(of_that_kind.map(|node| node.id).collect(), stop, now)
    }

    fn stop_each(
        &mut self,
        children: Vec<WorkId>,
        stop: &Stop,
        now: Instant,
    ) -> (usize, Vec<Reached<X>>) {
        let (mut count, mut reached) = (0, Vec::new());
        for child in children {
            let mut below = self.stop(child, stop, now);
            count += usize::from(!below.is_empty());
            reached.append(&mut below);
        }
        (count, reached)
    }

    /// Returns whether the node itself changed. The first stop of a kind stays, and hard covers soft (S5).
    fn mark(
        &mut self,
        top: WorkId,
        stop: &Stop,
        now: Instant,
        reached: &mut Vec<Reached<X>>,
    ) -> bool {
        let mut changed_top = false;
        let mut at = self.get(top).map(|node| node.id.place);
        while let Some(place) = at {
            let Some(node) = self.nodes.get_mut(place as usize) else { break };
            let changes = match stop.kind() {
                StopKind::Soft => node.soft.is_none() && node.hard.is_none(),
                StopKind::Hard => node.hard.is_none(),
            };
            if changes {
                match stop.kind() {
                    StopKind::Soft => node.soft = Some(stop.clone()),
                    StopKind::Hard => node.hard = Some(stop.clone()),
                }
                node.stopped = Some((stop.kind(), now));
                node.extra.carry(stop);
                changed_top |= node.id == top;
                let counts = node.kind != Kind::Worker || node.id == top;
                reached.push(Reached {
                    extra: node.extra.clone(),
                    kind: stop.kind(),
                    counts,
                    is_container: node.kind.is_container(),
                });
            }
            // What does not change has it already, and then everything below has it too.
            at = if changes { self.after(top, place) } else { self.beyond(top, place) };
        }
        changed_top
    }

    /// No new work under this node from now on. The first reason stays.
    pub(super) fn close(&mut self, id: WorkId, reason: Arc<str>) {
        if let Some(node) = self.get_mut(id) {
            node.closed.get_or_insert(reason);
        }
    }

    /// One more hold. False when the node is gone.
    pub(super) fn hold(&mut self, id: WorkId) -> bool {
        self.get_mut(id).map(|node| node.holds += 1).is_some()
    }

    /// One hold less. None when others are left; else the nodes that are gone by it, lowest first. They are none
    /// when the node lingers, and yet whoever waits for it has to look again.
    pub(super) fn release(&mut self, id: WorkId) -> Option<Vec<Node<X>>> {
        let node = self.get_mut(id)?;
        node.holds = node.holds.saturating_sub(1);
        (node.holds == 0).then(|| self.settle(id))
    }

    /// Removes a node that nothing keeps, and then its owner if nothing keeps that either.
    fn settle(&mut self, id: WorkId) -> Vec<Node<X>> {
        let (mut gone, mut at) = (Vec::new(), Some(id));
        while let Some(id) = at {
            match self.get(id) {
                Some(node) if node.holds == 0 && node.first_child.is_none() => {}
                Some(_) | None => break,
            }
            self.unlink(id);
            let node = self.nodes.remove(id.place as usize);
            if let Some(end) = node.deadline {
                self.timers.remove(&(end, id, Timer::Deadline));
            }
            if let Some(end) = node.grace_end {
                self.timers.remove(&(end, id, Timer::Grace));
            }
            at = node.owner;
            gone.push(node);
        }
        gone
    }

    /// Sets when a node ends by itself; the earlier of two deadlines stays.
    pub(super) fn set_deadline(&mut self, id: WorkId, deadline: Instant) {
        let Some(node) = self.get_mut(id) else { return };
        let old = node.deadline;
        if old.is_none_or(|old| deadline < old) {
            node.deadline = Some(deadline);
            if let Some(old) = old {
                self.timers.remove(&(old, id, Timer::Deadline));
            }
            self.timers.insert((deadline, id, Timer::Deadline));
        }
    }

    /// When the next deadline or grace period ends.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, ..)| *at)
    }

    /// Takes the earliest time that has come, and the stop that follows from it.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(WorkId, Timer, Stop)> {
        loop {
            let (at, id, timer) = *self.timers.first()?;
            if at > now {
                return None;
            }
            self.timers.pop_first();
            let Some(node) = self.get_mut(id) else { continue };
            let stop = match timer {
                Timer::Deadline => {
                    node.deadline = None;
                    Some(Stop::hard("host", "the wall-time limit is reached"))
                }
                Timer::Grace => {
                    node.grace_end = None;
                    node.soft.as_ref().map(Stop::risen)
                }
            };
            // What carries a hard stop already was not ended by its time.
            if let (Some(stop), None) = (stop, &node.hard) {
                return Some((id, timer, stop));
            }
        }
    }

    /// The children of a node, newest first.
    pub(super) fn children(&self, id: WorkId) -> impl Iterator<Item = &Node<X>> {
        let mut at = self.get(id).and_then(|node| node.first_child);
        std::iter::from_fn(move || {
            let node = self.nodes.get(at? as usize)?;
            at = node.next;
            Some(node)
        })
    }

    /// Every node of the subtree, the node itself first, owners before what they own.
    pub(super) fn subtree(&self, id: WorkId) -> impl Iterator<Item = &Node<X>> {
        let mut at = self.get(id).map(|node| node.id.place);
        std::iter::from_fn(move || {
            let node = self.nodes.get(at? as usize)?;
            at = self.after(id, node.id.place);
            Some(node)
        })
    }

    /// The node to visit after that one in a walk of the subtree of `top`: owners before what they own. The walk
    /// keeps nothing but its place, because it is made under the lock.
    fn after(&self, top: WorkId, place: u32) -> Option<u32> {
        self.nodes.get(place as usize)?.first_child.or_else(|| self.beyond(top, place))
    }

    /// The same, leaving out what is below that node.
    fn beyond(&self, top: WorkId, place: u32) -> Option<u32> {
        let mut node = self.nodes.get(place as usize)?;
        while node.id != top {
            if node.next.is_some() {
                return node.next;
            }
            node = self.get(node.owner?)?;
        }
        None
    }

    /// The executions in the subtree, the node itself left out: what a drain waits for.
    pub(super) fn executions_below(&self, id: WorkId) -> impl Iterator<Item = &Node<X>> {
        self.subtree(id).filter(move |node| node.id != id && !node.kind.is_container())
    }

    /// The pieces of work in the subtree, as an operator counts them: what a container owns directly. A session's turn
    /// and its managed worker are two sides of one execution, and so one piece (W8).
    pub(super) fn pieces_below(&self, id: WorkId) -> BTreeMap<Kind, usize> {
        let mut pieces = BTreeMap::new();
        for container in self.subtree(id).filter(|node| node.kind.is_container()) {
            let mut execution = None;
            for node in self.children(container.id).filter(|node| !node.kind.is_container()) {
                if node.kind == Kind::Turn {
                    execution = Some(Kind::Turn);
                } else if node.kind == Kind::Worker {
                    execution = execution.or(Some(Kind::Worker));
                } else {
                    *pieces.entry(node.kind).or_default() += 1;
                }
            }
            if let Some(kind) = execution {
                *pieces.entry(kind).or_default() += 1;
            }
        }
        pieces
    }

    /// A node and everything above it, the node itself first.
    pub(super) fn above(&self, id: WorkId) -> impl Iterator<Item = &Node<X>> {
        std::iter::successors(self.get(id), |node| node.owner.and_then(|owner| self.get(owner)))
    }

    fn insert(
        &mut self,
        owner: Option<WorkId>,
        kind: Kind,
        label: Arc<str>,
        now: Instant,
        extra: X,
    ) -> WorkId {
        self.generation += 1;
        let entry = self.nodes.vacant_entry();
        let id = WorkId { place: entry.key() as u32, generation: self.generation };
        entry.insert(Node {
            id,
            kind,
            label,
            opened: now,
            owner: None,
            first_child: None,
            next: None,
            previous: None,
            holds: 1,
            closed: None,
            soft: None,
            hard: None,
            stopped: None,
            deadline: None,
            grace_end: None,
            extra,
        });
        if let Some(owner) = owner {
            self.link(id, owner);
        }
        id
    }

    fn link(&mut self, id: WorkId, owner: WorkId) {
        let Some(parent) = self.get_mut(owner) else { return };
        let first = parent.first_child.replace(id.place);
        if let Some(first) = first.and_then(|place| self.nodes.get_mut(place as usize)) {
            first.previous = Some(id.place);
        }
        if let Some(node) = self.get_mut(id) {
            node.owner = Some(owner);
            node.next = first;
            node.previous = None;
        }
    }

    fn unlink(&mut self, id: WorkId) {
        let Some(node) = self.get_mut(id) else { return };
        let (next, previous, owner) = (node.next.take(), node.previous.take(), node.owner);
        if let Some(next) = next.and_then(|place| self.nodes.get_mut(place as usize)) {
            next.previous = previous;
        }
        match previous.and_then(|place| self.nodes.get_mut(place as usize)) {
            Some(previous) => previous.next = next,
            None => {
                if let Some(owner) = owner.and_then(|owner| self.get_mut(owner)) {
                    owner.first_child = next;
                }
            }
        }
    }
}

/// Why work was not opened or moved. A refusal is an ordinary answer, not a failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A node takes no new work: it is draining or retiring (W5).
    #[error("{label} ({by}) takes no new work: {reason}")]
    Closed {
        /// The node that refuses.
        by: WorkId,
        /// Its label.
        label: Arc<str>,
        /// Why it was closed.
        reason: Arc<str>,
    },
    /// The owner, or a node to be moved, has ended.
    #[error("the work {owner} has ended")]
    Gone {
        /// The node that is gone.
        owner: WorkId,
    },
    /// A node cannot be moved below itself, and the root cannot be moved.
    #[error("the work {child} cannot be owned by {owner}, which is below it")]
    Cycle {
        /// The node to be moved.
        child: WorkId,
        /// The owner that was asked for.
        owner: WorkId,
    },
}
