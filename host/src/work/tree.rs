//! The handles: the tree, a held node, and what a node does when it is stopped hard.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::signal::{Cell, StopSignal};
use super::state::{Adopted, Carries, Node, Reached, Refused, State, Timer};
use super::stop::{Grace, Stop, StopKind};
use super::sync::{Mutex, Notify, lock};
use super::view::{Activity, BudgetUse, NodeView};
use super::warden::Alarm;
use super::watch::{Told, Watched};
use crate::ids::WorkId;
use crate::metrics::{Counter, Histogram};

/// What sort of work a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// The root.
    Host,
    /// One served home.
    Profile,
    /// A conversation.
    Session,
    /// The owner of a session's background units.
    Registry,
    /// The run that answers one input of a session.
    Turn,
    /// One call of a tool.
    ToolCall,
    /// One request to a model.
    ModelRequest,
    /// A run that another run asked for.
    Child,
    /// The part of a delegation that is admitted and completes as one.
    Unit,
    /// A run that starts from a session, outside its turn.
    SideRun,
    /// An execution in a process of its own.
    Worker,
    /// A call that cannot be interrupted and holds a thread.
    Blocking,
    /// The compilation of a component.
    Compilation,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 13] = [
        Kind::Host,
        Kind::Profile,
        Kind::Session,
        Kind::Registry,
        Kind::Turn,
        Kind::ToolCall,
        Kind::ModelRequest,
        Kind::Child,
        Kind::Unit,
        Kind::SideRun,
        Kind::Worker,
        Kind::Blocking,
        Kind::Compilation,
    ];

    /// Whether nodes of this kind only hold others. A drain waits for what is not a container.
    pub fn is_container(self) -> bool {
        matches!(self, Kind::Host | Kind::Profile | Kind::Session | Kind::Registry)
    }

    /// The name, as operators see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Host => "host",
            Kind::Profile => "profile",
            Kind::Session => "session",
            Kind::Registry => "registry",
            Kind::Turn => "turn",
            Kind::ToolCall => "tool call",
            Kind::ModelRequest => "model request",
            Kind::Child => "child",
            Kind::Unit => "unit",
            Kind::SideRun => "side run",
            Kind::Worker => "worker",
            Kind::Blocking => "blocking call",
            Kind::Compilation => "compilation",
        }
    }
}

/// What is behind a node: how to end it, and what it has used.
pub trait Body: Send + Sync {
    /// Ends the work now, without waiting. Called again and again while the answer is [`Cutting::Busy`].
    fn cut(&self) -> Cutting;

    /// What the work has used of its budgets.
    fn budgets(&self) -> Vec<BudgetUse> {
        Vec::new()
    }

    /// What the work is doing, as far as it has not said so itself.
    fn doing(&self) -> Option<&'static str> {
        None
    }
}

/// What an attempt to end a piece of work came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cutting {
    /// It has ended, or will end without further help.
    Done,
    /// It is on a processor right now; it was nudged. Ask again soon.
    Busy,
}

/// One attempt at a body. Should it panic, it takes along neither the stopper nor the warden.
pub(super) fn attempt(body: &dyn Body) -> Cutting {
    catch_unwind(AssertUnwindSafe(|| body.cut())).unwrap_or(Cutting::Done)
}

#[derive(Clone)]
pub(super) struct Extra {
    pub(super) cell: Arc<Cell>,
    pub(super) body: Option<Arc<dyn Body>>,
    /// Who hears of changes of what is below.
    pub(super) told: Option<Told>,
}

impl Extra {
    fn new(cell: &Arc<Cell>) -> Extra {
        Extra { cell: Arc::clone(cell), body: None, told: None }
    }
}

impl Carries for Extra {
    fn carry(&self, stop: &Stop) {
        self.cell.mark(stop);
    }
}

impl fmt::Debug for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extra").finish_non_exhaustive()
    }
}

/// How many bodies a stopper cuts itself. More would make it wait.
const CUT_BY_THE_STOPPER: usize = 4;

/// What all handles share. The lock protects the whole tree; nothing is woken, ended or dropped under it.
pub(super) struct Shared {
    root: WorkId,
    pub(super) state: Mutex<State<Extra>>,
    /// Woken whenever a node has gone, has lost its last hold, or has moved.
    pub(super) left: Notify,
    pub(super) alarm: Arc<Alarm>,
    pub(super) watched: Watched,
    stops: StopFigures,
}

/// The stops that work came to carry, also those that its own time gave it, and how long it then took to end.
#[derive(Debug, Default)]
pub struct StopFigures {
    soft: StopFigure,
    hard: StopFigure,
}

/// The stops of one kind.
#[derive(Debug, Default)]
pub struct StopFigure {
    /// Pieces of work that came to carry one. What only holds others does not count, nor does the process of a run.
    pub given: Counter,
    /// From the stop to the end of the work, of which this was the highest stop.
    pub ended: Histogram,
}

impl StopFigures {
    /// Those of that kind.
    pub fn of(&self, kind: StopKind) -> &StopFigure {
        match kind {
            StopKind::Soft => &self.soft,
            StopKind::Hard => &self.hard,
        }
    }

    fn given(&self, reached: &[Reached<Extra>]) {
        for node in reached.iter().filter(|node| node.counts && !node.is_container) {
            self.of(node.kind).given.one();
        }
    }

    fn ended(&self, gone: &[Node<Extra>]) {
        let stopped =
            gone.iter().filter(|node| !node.kind.is_container() && node.kind != Kind::Worker);
        for (kind, at) in stopped.filter_map(|node| node.stopped) {
            self.of(kind).ended.took(at.elapsed());
        }
    }
}

/// The tree of all running work of a host. Cheap to clone; every clone is the same tree.
#[derive(Clone)]
pub struct Tree {
    pub(super) shared: Arc<Shared>,
}

impl Tree {
    /// A tree with nothing in it, and the hold on its root.
    pub fn new(label: &str) -> (Tree, Work) {
        let cell = Arc::new(Cell::default());
        let extra = Extra::new(&cell);
        let (state, root) = State::new(label.into(), Instant::now(), extra);
        let alarm = Arc::new(Alarm::default());
        let shared = Arc::new(Shared {
            root,
            state: Mutex::new(state),
            left: Notify::new(),
            alarm,
            watched: Watched::default(),
            stops: StopFigures::default(),
        });
        let work = Work { shared: Arc::clone(&shared), id: root, kind: Kind::Host, cell };
        (Tree { shared }, work)
    }

    /// The root's name.
    pub fn root(&self) -> WorkId {
        self.shared.root
    }

    /// Stops a piece of work and everything below it. Returns how many nodes it changed, a run and its process as one; 0
    /// for work that carries such a stop already.
    ///
    /// # Errors
    ///
    /// [`Gone`] when no such work runs: it has ended, or there never was any (W7).
    pub fn stop(&self, id: WorkId, stop: &Stop) -> Result<usize, Gone> {
        self.shared.stop(id, stop).ok_or(Gone { id })
    }

    /// Stops everything that a node owns, and not the node itself. Returns how many of its children it changed.
    ///
    /// # Errors
    ///
    /// [`Gone`] when no such work runs.
    pub fn stop_children(&self, id: WorkId, stop: &Stop) -> Result<usize, Gone> {
        let (count, reached) = {
            let mut state = lock(&self.shared.state);
            state.get(id).ok_or(Gone { id })?;
            state.stop_children(id, stop, Instant::now())
        };
        self.shared.pass_on(reached, stop);
        Ok(count)
    }

    /// The stops so far.
    pub fn stop_figures(&self) -> &StopFigures {
        &self.shared.stops
    }

    /// Whether that work is still in the tree.
    pub fn contains(&self, id: WorkId) -> bool {
        lock(&self.shared.state).get(id).is_some()
    }

    /// How many executions are live below a node; containers do not count, nor does the node itself.
    pub fn count(&self, id: WorkId) -> usize {
        lock(&self.shared.state).executions_below(id).count()
    }

    /// How many pieces of work there are below a node, as an operator counts them: one for each thing that a session,
    /// its registry, a profile or the host owns directly, with all that is below it. A session's turn and its managed
    /// worker are one piece (W8).
    pub fn pieces(&self, id: WorkId) -> usize {
        lock(&self.shared.state).pieces_below(id).values().sum()
    }

    /// The same pieces by their kinds. A turn with a managed worker is a turn.
    pub fn pieces_by_kind(&self, id: WorkId) -> BTreeMap<Kind, usize> {
        lock(&self.shared.state).pieces_below(id)
    }

    /// How many nodes of each kind are live now: a walk of the tree.
    pub fn nodes_by_kind(&self) -> BTreeMap<Kind, u64> {
        let mut nodes = BTreeMap::new();
        for node in lock(&self.shared.state).subtree(self.shared.root) {
            *nodes.entry(node.kind).or_default() += 1;
        }
        nodes
    }

    /// Every node below (and with) a node, owners before what they own. Takes the lock once, for as long as it
    /// takes to copy; budgets and activities are read afterwards.
    pub fn snapshot(&self, id: WorkId) -> Vec<NodeView> {
        let copied = copy(&lock(&self.shared.state), id, Instant::now());
        copied.into_iter().map(seen).collect()
    }

    /// Stops everything that a node owns, as [`Tree::stop_children`] does, and says what there was: every node below (and
    /// with) that node at the instant of the stop, as it was just before it was ended. Nothing is cut that is not listed.
    ///
    /// # Errors
    ///
    /// [`Gone`] when no such work runs.
    pub fn stop_and_list(&self, id: WorkId, stop: &Stop) -> Result<Vec<NodeView>, Gone> {
        let now = Instant::now();
        let (copied, reached) = {
            let mut state = lock(&self.shared.state);
            state.get(id).ok_or(Gone { id })?;
            let copied = copy(&state, id, now);
            (copied, state.stop_children(id, stop, now).1)
        };
        // Before the bodies are cut: what they were doing is gone with them.
        let seen = copied.into_iter().map(seen).collect();
        self.shared.pass_on(reached, stop);
        Ok(seen)
    }
}

/// What is known of the nodes under the lock, and what the rest is read from.
fn copy(state: &State<Extra>, top: WorkId, now: Instant) -> Vec<(NodeView, Extra)> {
    let view = |node: &Node<Extra>| NodeView {
        id: node.id,
        owner: node.owner,
        kind: node.kind,
        label: Arc::clone(&node.label),
        stop: None,
        closed: node.closed.clone(),
        age: now.saturating_duration_since(node.opened),
        activity: None,
        budgets: Vec::new(),
    };
    state.subtree(top).map(|node| (view(node), node.extra.clone())).collect()
}

/// Adds what the node and its body say themselves. A body that panics says nothing.
fn seen((view, Extra { cell, body, .. }): (NodeView, Extra)) -> NodeView {
    let ask = |body: &Arc<dyn Body>| {
        let asked = AssertUnwindSafe(|| (body.doing(), body.budgets()));
        catch_unwind(asked).unwrap_or_default()
    };
    let (doing, budgets) = body.as_ref().map(ask).unwrap_or_default();
    let doing = doing.map(|what| Activity { what, detail: None, since: None });
    let activity = cell.activity().or(doing);
    NodeView { stop: StopSignal { cell }.stop(), activity, budgets, ..view }
}

impl Shared {
    /// None when no such work runs.
    pub(super) fn stop(&self, id: WorkId, stop: &Stop) -> Option<usize> {
        let reached = {
            let mut state = lock(&self.state);
            state.get(id)?;
            state.stop(id, stop, Instant::now())
        };
        Some(self.pass_on(reached, stop))
    }

    /// Wakes who waits for the stop, and ends what a hard stop reached: the first few bodies here and now; the
    /// rest, and those on a processor, are the warden's. Not under the lock.
    fn pass_on(&self, reached: Vec<Reached<Extra>>, stop: &Stop) -> usize {
        let count = reached.iter().filter(|node| node.counts).count();
        self.stops.given(&reached);
        let mut first = wake(reached);
        let rest = first.split_off(first.len().min(CUT_BY_THE_STOPPER));
        self.alarm.pursue(rest);
        first.retain(|body| attempt(&**body) == Cutting::Busy);
        self.alarm.pursue(first);
        if let Grace::After(grace) = stop.grace()
            && let Some(end) = Instant::now().checked_add(grace)
        {
            self.alarm.look_again_before(end);
        }
        count
    }

    /// Stops what is due and leaves its bodies to the warden. Returns when to look again.
    pub(super) fn expire(&self, now: Instant) -> Option<Instant> {
        loop {
            let (due, next) = {
                let mut state = lock(&self.state);
                let due = state.take_due(now).map(|(id, timer, stop)| {
                    if timer == Timer::Deadline
                        && let Some(node) = state.get(id)
                    {
                        node.extra.cell.mark_expired();
                    }
                    state.stop(id, &stop, now)
                });
                (due, state.next_timer())
            };
            match due {
                Some(reached) => {
                    self.stops.given(&reached);
                    self.alarm.pursue(wake(reached));
                }
                None => return next,
            }
        }
    }

    /// Says how that work is ended; ends it now if it carries a hard stop already.
    pub(super) fn set_body(&self, id: WorkId, body: Arc<dyn Body>) {
        let set = lock(&self.state).set_extra(id, |extra| extra.body.replace(Arc::clone(&body)));
        // The body that was there before is dropped here, because what it holds may want the lock.
        let Some((_before, stopped)) = set else { return };
        if stopped && attempt(&*body) == Cutting::Busy {
            self.alarm.pursue(vec![body]);
        }
    }

    fn leave(&self, gone: Vec<Node<Extra>>) {
        self.stops.ended(&gone);
        self.left.notify_waiters();
        drop(gone);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.alarm.end();
    }
}

/// Wakes who waits for a stop, and returns the bodies that it ends.
fn wake(reached: Vec<Reached<Extra>>) -> Vec<Arc<dyn Body>> {
    let mut bodies = Vec::new();
    for node in reached {
        node.extra.cell.wake();
        if node.kind == StopKind::Hard {
            bodies.extend(node.extra.body);
        }
    }
    bodies
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("root", &self.shared.root).finish_non_exhaustive()
    }
}

/// A hold on one node. Whoever has it owns the work, or has a share of it; the node is gone when the last hold
/// is dropped and nothing is below it.
#[must_use = "dropping the hold ends the work"]
pub struct Work {
    pub(super) shared: Arc<Shared>,
    id: WorkId,
    kind: Kind,
    cell: Arc<Cell>,
}

impl Work {
    /// The node's name.
    pub fn id(&self) -> WorkId {
        self.id
    }

    /// What sort of work it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Opens work that this node owns. It starts with every stop that this node carries (W6).
    ///
    /// # Errors
    ///
    /// [`Refused::Closed`] when this node, or a container above it, takes no new work (W5).
    pub fn open(&self, kind: Kind, label: impl Into<Arc<str>>) -> Result<Work, Refused> {
        let cell = Arc::new(Cell::default());
        let extra = Extra::new(&cell);
        let (label, now) = (label.into(), Instant::now());
        let (id, told) = {
            let mut state = lock(&self.shared.state);
            let id = state.open(self.id, kind, label, now, extra)?;
            (id, self.shared.watched.of(&state, self.id))
        };
        told.tell();
        Ok(Work { shared: Arc::clone(&self.shared), id, kind, cell })
    }

    /// A second hold on the same node.
    pub fn share(&self) -> Work {
        lock(&self.shared.state).hold(self.id);
        let (shared, cell) = (Arc::clone(&self.shared), Arc::clone(&self.cell));
        Work { shared, id: self.id, kind: self.kind, cell }
    }

    /// What notices a stop of this work without owning it.
    pub fn signal(&self) -> StopSignal {
        StopSignal { cell: Arc::clone(&self.cell) }
    }

    /// The tree that this work is in.
    pub fn tree(&self) -> Tree {
        Tree { shared: Arc::clone(&self.shared) }
    }

    /// Stops this work and everything below it, and returns how many nodes it changed.
    pub fn stop(&self, stop: &Stop) -> usize {
        self.shared.stop(self.id, stop).unwrap_or(0)
    }

    /// Stops everything that this node owns, and not the node itself. Returns how many of its children it changed.
    pub fn stop_children(&self, stop: &Stop) -> usize {
        let (count, reached) =
            lock(&self.shared.state).stop_children(self.id, stop, Instant::now());
        self.shared.pass_on(reached, stop);
        count
    }

    /// Stops everything of that kind that this node owns directly, with all that is below it, and nothing else. Returns
    /// how many of its children it changed.
    pub fn stop_children_of(&self, kind: Kind, stop: &Stop) -> usize {
        let (count, reached) =
            lock(&self.shared.state).stop_children_of(self.id, kind, stop, Instant::now());
        self.shared.pass_on(reached, stop);
        count
    }

    /// Takes over work from other owners, all of it or none, in one step (W1). What this node carries reaches it.
    ///
    /// # Errors
    ///
    /// [`Refused`] when this node takes no new work, or when one of the children has ended.
    pub fn adopt(&self, children: &[&Work]) -> Result<(), Refused> {
        let ids: Vec<WorkId> = children.iter().map(|child| child.id).collect();
        let now = Instant::now();
        let (adopted, stops, told) = {
            let mut state = lock(&self.shared.state);
            let mut told = self.shared.watched.of_owners(&state, &ids);
            let adopted = state.adopt(&ids, self.id, now)?;
            told.append(self.shared.watched.of(&state, self.id));
            (adopted, state.stops(self.id), told)
        };
        let Adopted { reached, gone } = adopted;
        let (soft, hard): (Vec<_>, Vec<_>) =
            reached.into_iter().partition(|node| node.kind == StopKind::Soft);
        for (reached, stop) in [(soft, stops.0), (hard, stops.1)] {
            if let Some(stop) = stop {
                self.shared.pass_on(reached, &stop);
            }
        }
        self.shared.leave(gone);
        told.tell();
        Ok(())
    }

    /// No new work here from now on, for that reason (W5). Work that is here goes on.
    pub fn close(&self, reason: impl Into<Arc<str>>) {
        lock(&self.shared.state).close(self.id, reason.into());
    }

    /// Why this node takes no new work, when it takes none.
    pub fn closed(&self) -> Option<Arc<str>> {
        lock(&self.shared.state).get(self.id).and_then(|node| node.closed.clone())
    }

    /// How many executions are live below this node.
    pub fn count(&self) -> usize {
        lock(&self.shared.state).executions_below(self.id).count()
    }

    /// Says when this work ends by itself, as if somebody had stopped it hard. The earliest deadline counts.
    pub fn set_deadline(&self, deadline: Instant) {
        lock(&self.shared.state).set_deadline(self.id, deadline);
        self.shared.alarm.look_again_before(deadline);
    }

    /// Says how this work is ended. If it carries a hard stop already, it is ended now. A node has one body: the
    /// last one that was set.
    pub fn set_body(&self, body: Arc<dyn Body>) {
        self.shared.set_body(self.id, body);
    }

    /// Whether this work carries a hard stop. One load.
    pub(super) fn is_hard(&self) -> bool {
        self.cell.is_hard()
    }

    /// Says what this work waits for; none when it goes on.
    pub fn set_activity(&self, activity: Option<Activity>) {
        self.cell.set_activity(activity);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let (gone, told) = {
            let mut state = lock(&self.shared.state);
            let Some(gone) = state.release(self.id) else { return };
            let told = self.shared.watched.of_gone(&state, &gone);
            (gone, told)
        };
        self.shared.leave(gone);
        told.tell();
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.id).finish()
    }
}

/// No such work runs: it has ended, or there never was any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no work {id} is running: it has ended, or there never was any")]
pub struct Gone {
    /// The name that was asked for.
    pub id: WorkId,
}
