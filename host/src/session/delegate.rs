//! A delegating call: from what an agent asks for to children that run, inside the call or in the background.
//!
//! ```text
//!   checked ──► agents found ──► children opened and paid ──► units handed out, one by one ──► outcome
//!   (nothing is built)           (in one go, below the run)    (host work: it goes on when the guest is gone)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::{FutureExt, join_all};
use tracing::Instrument;

use super::driver::Driver;
use super::event::{EventKind, TaskEnd};
use super::fit::fit;
use super::ledger::Ledger;
use super::run::{Plan, RunReport, begin};
use super::session::{Agent, Shared};
use super::span;
use super::stream::Entry;
use crate::delegation::{
    Admission, Answer, Became, Budget, Child, ChildStatus, DelegationId, Descendants, Grouping,
    Mode, Origin, Parent, Policy, Receives, TaskOutcome, Then, Unit, Wanted, note, split, units,
};
use crate::message::{Failure, FailureCode};
use crate::sandbox::{
    ChildTask, DelegateOutcome, DelegateRequest, DelegationCapacity, LimitKind, Limits, Outcome,
    Purse, Reach, TaskResult, Waiting, lower,
};
use crate::store::{Body, Change, Class};
use crate::work::{Kind, StopKind, Work, spawn_charged};

/// Characters of a goal that stand in a completion.
const GOAL: usize = 200;

/// Bytes of what a result says of what went wrong: a failure has the words of its guest.
const DETAIL: usize = 4 << 10;

/// Bytes of the results that a completion keeps until it is read.
pub(super) const KEPT: usize = 1 << 20;

/// The run that hands out.
struct Caller {
    run: Arc<str>,
    work: Work,
    agent: Arc<Agent>,
    session: Arc<Shared>,
    limits: Limits,
    depth: u32,
    descendants: Descendants,
    /// Counts the children of the run, for their names.
    children: Arc<AtomicU64>,
    purse: Purse,
    /// It runs in a background unit itself.
    beside: bool,
}

/// What was asked for, understood.
struct Asked {
    tasks: Vec<ChildTask>,
    mode: Mode,
    policy: Policy,
    grouping: Grouping,
}

/// One child, ready to be started once its unit has been decided about.
struct Planned {
    run: Arc<str>,
    agent: Arc<Agent>,
    goal: String,
    input: String,
    limits: Limits,
    descendants: Descendants,
    /// Fuel and tokens that the caller paid for it.
    paid: (u64, u64),
}

/// What all children of one call share.
struct Call {
    run: Arc<str>,
    session: Arc<Shared>,
    depth: u32,
    descendants: Descendants,
    purse: Purse,
    beside: bool,
    children: Vec<Planned>,
}

/// What the run of `driver` may hand out now, by the same limits that its calls are held to.
pub(super) fn capacity(driver: &Driver) -> Result<DelegationCapacity, Failure> {
    let (background, plugged) = (&driver.session.background, &driver.agent.plugged);
    let granted = &plugged.effective.delegation;
    if granted.is_empty() {
        let words = "handing tasks to other runs is not granted to this agent";
        return Err(Failure::new(FailureCode::Denied, words));
    }
    let (limits, depth) = (background.slots.limits(), u64::from(driver.task.depth));
    limits.allow(depth, 0).map_err(|over| Failure::new(FailureCode::Limit, over.to_string()))?;
    let own = plugged.name.to_string();
    let same_agent = granted.allows(&own);
    let others = granted.iter().map(ToString::to_string).filter(|name| *name != own);
    let slots = limits.units_per_host.min(limits.units_per_session);
    let bounded = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(DelegationCapacity {
        agents: same_agent.then(|| own.clone()).into_iter().chain(others).collect(),
        same_agent,
        tasks_per_call: bounded(limits.children_per_call),
        descendants_left: driver.descendants.left(),
        depth_left: bounded(limits.depth.saturating_sub(depth)),
        background: slots > 0 && background.receives() == Receives::Later,
    })
}

/// Hands out what `request` asks for, for the run of `driver`.
pub(super) fn delegate(
    driver: &Driver,
    request: DelegateRequest,
    purse: Purse,
) -> Waiting<DelegateOutcome> {
    let caller = Caller {
        run: Arc::clone(&driver.run),
        work: driver.work.share(),
        agent: Arc::clone(&driver.agent),
        session: Arc::clone(&driver.session),
        limits: driver.limits.clone(),
        depth: driver.task.depth,
        descendants: driver.descendants.clone(),
        children: Arc::clone(&driver.children),
        purse,
        beside: driver.beside,
    };
    match understood(request).and_then(|asked| caller.allow(&asked).map(|()| asked)) {
        Ok(asked) => caller.call(asked).boxed(),
        Err(failure) => std::future::ready(Err(failure)).boxed(),
    }
}

fn understood(request: DelegateRequest) -> Result<Asked, Failure> {
    let invalid = |words: String| Failure::new(FailureCode::Invalid, words);
    let DelegateRequest { tasks, mode, independent_completions, policy } = request;
    if tasks.is_empty() {
        return Err(invalid("a delegation needs at least one task".to_owned()));
    }
    let mode = Mode::parse(&mode).ok_or_else(|| {
        let mode = mode.escape_debug();
        invalid(format!("`{mode}` is not a mode of delegation: use `background` or `inline`"))
    })?;
    let policy = Policy::parse(&policy).ok_or_else(|| {
        let policy = policy.escape_debug();
        invalid(format!(
            "`{policy}` is not a policy for want of capacity: use `inline`, `queue` or `refuse`"
        ))
    })?;
    let grouping = if independent_completions { Grouping::Independent } else { Grouping::Whole };
    Ok(Asked { tasks, mode, policy, grouping })
}

impl Caller {
    /// What can be refused before anything is looked up (A9).
    fn allow(&self, asked: &Asked) -> Result<(), Failure> {
        let limits = self.session.background.slots.limits();
        limits
            .allow(u64::from(self.depth), asked.tasks.len() as u64)
            .map_err(|over| Failure::new(FailureCode::Limit, over.to_string()))?;
        let wanted = asked.tasks.iter().filter_map(|task| task.agent.as_deref());
        let own = &*self.agent.plugged.name;
        let mut all =
            wanted.chain(asked.tasks.iter().any(|task| task.agent.is_none()).then_some(own));
        match all.find(|name| !self.agent.plugged.effective.delegation.allows(name)) {
            Some(name) => Err(Failure::new(
                FailureCode::Denied,
                format!(
                    "handing tasks to the agent `{}` is not granted to this agent",
                    name.escape_debug()
                ),
            )),
            None => Ok(()),
        }
    }

    async fn call(self, asked: Asked) -> Result<DelegateOutcome, Failure> {
        let agents = self.agents(&asked).await?;
        // From here to the spawn nothing waits, so that children are opened and handed out, or are not there.
        let (call, children) = self.open(&asked, agents)?;
        let most = usize::try_from(self.limits.call_bytes / 4 * 3).unwrap_or(usize::MAX);
        let control = self.session.sandbox.control().clone();
        // It goes on also when a hard stop takes the guest away in the middle (A7, H3), and holds the run's node.
        let handed_out = spawn_charged(
            &control,
            self.work.share(),
            hand_out(call, self.work.share(), asked, children).in_current_span(),
        );
        let mut outcome = handed_out.await.unwrap_or_else(|_| {
            Err(Failure::new(FailureCode::Failed, "the host failed in this delegation"))
        })?;
        fit(&mut outcome.results, most);
        fit(&mut outcome.inline_results, most);
        Ok(outcome)
    }

    /// The agents of all tasks. A soft stop ends the search, because nobody carries it yet who would; it is told in the
    /// place of an answer.
    async fn agents(&self, asked: &Asked) -> Result<Vec<Arc<Agent>>, Failure> {
        let found = async {
            let mut agents = Vec::with_capacity(asked.tasks.len());
            for task in &asked.tasks {
                agents.push(self.agent_for(task).await?);
            }
            Ok(agents)
        };
        let signal = self.work.signal();
        if signal.is_raised() {
            // The run knows of its stop, and wraps up.
            return found.await;
        }
        tokio::select! {
            biased;
            agents = found => agents,
            stop = signal.raised(StopKind::Soft) => {
                let words = format!("stopped by {}: {}", stop.issuer(), stop.message());
                Err(Failure::new(FailureCode::Interrupted, words))
            }
        }
    }

    /// The agent of a task, with no more than this run may touch and call (A10).
    async fn agent_for(&self, task: &ChildTask) -> Result<Arc<Agent>, Failure> {
        let own = &self.agent;
        let name = task.agent.as_deref().unwrap_or(&own.plugged.name);
        let is_own = name == &*own.plugged.name;
        let counts =
            self.limits.fuel.is_some() || task.limits.iter().any(|(name, _)| name == "fuel");
        let same_code = is_own && (own.code.is_metered() || !counts);
        if same_code && task.tools.is_none() {
            return Ok(Arc::clone(own));
        }
        let (plugged, code) = if same_code {
            (own.plugged.clone(), own.code.clone())
        } else {
            let found = own.agents.find(self.work.share(), name, counts).await?;
            let mut plugged = found.plugged;
            plugged.effective = Arc::new(plugged.effective.within(&own.plugged.effective));
            (plugged, found.code)
        };
        let tools = &plugged.effective.tools;
        let mut toolbox = own.toolbox.narrowed(|name| tools.allows(name));
        if let Some(wanted) = &task.tools {
            if let Some(other) = wanted.iter().find(|name| !toolbox.has(name)) {
                let words = format!(
                    "the tool `{}` cannot be passed on: this run does not have it, or the agent `{}` may not use it",
                    other.escape_debug(),
                    name.escape_debug()
                );
                return Err(Failure::new(FailureCode::Denied, words));
            }
            toolbox = toolbox.narrowed(|name| wanted.iter().any(|wanted| wanted == name));
        }
        let reach = plugged.effective.reach(&*plugged.environment);
        Ok(Arc::new(Agent {
            reach: Arc::new(Reach { share: own.reach.share.clone(), ..reach }),
            plugged,
            code,
            toolbox,
            models: own.models.clone(),
            agents: Arc::clone(&own.agents),
            directories: own.directories.clone(),
        }))
    }

    /// Pays for the children and opens their nodes, all of them or none.
    fn open(&self, asked: &Asked, agents: Vec<Arc<Agent>>) -> Result<(Call, Vec<Child>), Failure> {
        let limit = |words: String| Failure::new(FailureCode::Limit, words);
        let claimed =
            self.descendants.claim(agents.len() as u64).map_err(|over| limit(over.to_string()))?;
        let mut limits = Vec::with_capacity(agents.len());
        let mut wanted = Vec::with_capacity(agents.len());
        for (task, agent) in asked.tasks.iter().zip(&agents) {
            let most = agent.plugged.effective.limits.under(&self.limits);
            let (asked, wants) = asked_for(&task.limits, most)?;
            limits.push(asked);
            wanted.push(wants);
        }
        let left = self.purse.left();
        let left =
            Budget { fuel: left.fuel, model_tokens: left.model_tokens, wall_time: left.wall_time };
        let waits = asked.mode == Mode::Inline || self.receives() == Receives::Never;
        let parent = if waits { Parent::Waits } else { Parent::GoesOn };
        let wishes: Vec<Wanted> = wanted.iter().map(|wants| wants.budget).collect();
        let shares = split(&left, &wishes, parent).children;

        let mut planned = Vec::with_capacity(agents.len());
        let mut children = Vec::with_capacity(agents.len());
        let now = Instant::now();
        let tasks = (0_u32..).zip(asked.tasks.iter().zip(agents));
        for (((task, (asked, agent)), (most, wants)), share) in
            tasks.zip(limits.into_iter().zip(wanted)).zip(shares)
        {
            let limits = Limits {
                fuel: lower(most.fuel, share.fuel),
                model_tokens: lower(most.model_tokens, share.model_tokens),
                wall_time: lower(most.wall_time, share.wall_time),
                ..most
            };
            if limits.fuel == Some(0) || limits.wall_time == Some(Duration::ZERO) {
                return Err(limit(format!(
                    "nothing was started: this run has nothing left of the limit `{}` for task {task}",
                    if limits.fuel == Some(0) { LimitKind::Fuel } else { LimitKind::WallTime }
                )));
            }
            let number = self.children.fetch_add(1, Ordering::Relaxed) + 1;
            let run: Arc<str> = format!("{}.{number}", self.run).into();
            let label = format!("{} {run}", agent.plugged.name);
            let work = self.work.open(Kind::Child, label).map_err(|refused| {
                Failure::new(FailureCode::Unavailable, format!("nothing was started: {refused}"))
            })?;
            // It counts from now on, also while the child waits in line.
            if let Some(end) = limits.wall_time.and_then(|time| now.checked_add(time)) {
                work.set_deadline(end);
            }
            let paid = |bound: Option<u64>, own: Option<u64>| own.map_or(0, |_| bound.unwrap_or(0));
            planned.push(Planned {
                run,
                agent,
                goal: asked.goal.clone(),
                input: asked.input.clone(),
                paid: (paid(limits.fuel, left.fuel), paid(limits.model_tokens, left.model_tokens)),
                limits,
                descendants: match wants.descendants {
                    Some(most) => self.descendants.below(most),
                    None => self.descendants.clone(),
                },
            });
            let mut goal: String = asked.goal.chars().take(GOAL).collect();
            if goal.len() < asked.goal.len() {
                goal.push('…');
            }
            children.push(Child { task, goal, work });
        }
        let sum = |of: fn(&Planned) -> u64| planned.iter().map(of).sum();
        self.purse.take(sum(|child| child.paid.0), sum(|child| child.paid.1));
        claimed.started();
        let call = Call {
            run: Arc::clone(&self.run),
            session: Arc::clone(&self.session),
            depth: self.depth,
            descendants: self.descendants.clone(),
            purse: self.purse.clone(),
            beside: self.beside,
            children: planned,
        };
        Ok((call, children))
    }

    fn receives(&self) -> Receives {
        self.session.background.receives()
    }
}

/// What a task asks for by name.
struct Wants {
    budget: Wanted,
    descendants: Option<u64>,
}

/// The limits of a child whose task names some of them, and what it wants of what is split.
fn asked_for(named: &[(String, u64)], most: Limits) -> Result<(Limits, Wants), Failure> {
    let mut limits = most;
    let mut wants = Wants { budget: Wanted::default(), descendants: None };
    for (name, value) in named {
        let value = *value;
        match name.as_str() {
            "fuel" => {
                limits.fuel = lower(limits.fuel, Some(value));
                wants.budget.fuel = limits.fuel;
            }
            "model-tokens" => {
                limits.model_tokens = lower(limits.model_tokens, Some(value));
                wants.budget.model_tokens = limits.model_tokens;
            }
            "wall-time" => {
                limits.wall_time = lower(limits.wall_time, Some(Duration::from_millis(value)));
                wants.budget.wall_time = limits.wall_time;
            }
            "memory" => limits.memory = limits.memory.min(value),
            "door-bytes" => limits.door_bytes = limits.door_bytes.min(value),
            "log-bytes" => limits.log_bytes = limits.log_bytes.min(value),
            "descendants" => wants.descendants = Some(value),
            other => {
                let words = format!(
                    "`{}` is not a limit of a child: use fuel, model-tokens, wall-time (milliseconds), memory, \
                     door-bytes, log-bytes or descendants",
                    other.escape_debug()
                );
                return Err(Failure::new(FailureCode::Invalid, words));
            }
        }
    }
    Ok((limits, wants))
}

/// Hands the units out, one at a time and in order (A6).
async fn hand_out(
    call: Call,
    caller: Work,
    asked: Asked,
    children: Vec<Child>,
) -> Result<DelegateOutcome, Failure> {
    let call = Arc::new(call);
    if asked.mode == Mode::Inline {
        let results = call.inside(&caller, children).await;
        return Ok(call.answer(&[], results, note(Mode::Inline, &[])));
    }
    let background = &call.session.background;
    let origin = Origin {
        session: call.session.id.clone(),
        registry: call.session.registry.share(),
        completions: call.session.completions.clone(),
        receives: background.receives(),
        recorder: Arc::new(Ledger {
            run: Arc::clone(&call.run),
            session: Arc::clone(&call.session),
            children: call.children.iter().map(|child| Arc::clone(&child.run)).collect(),
        }),
    };
    // Who is in the background holds a slot, and would wait for one that is perhaps its own.
    let waits = asked.policy == Policy::Queue;
    let policy = if waits && call.beside { Policy::Inline } else { asked.policy };
    let mut submitting = background.slots.call(origin, policy);
    let groups: Vec<Option<&str>> = asked.tasks.iter().map(|task| task.group.as_deref()).collect();
    let mut waiting: Vec<Option<Child>> = children.into_iter().map(Some).collect();
    let (mut answers, mut accepted, mut inline) = (Vec::new(), Vec::new(), Vec::new());
    for tasks in units(&groups, asked.grouping) {
        let children = tasks.iter().filter_map(|task| waiting.get_mut(*task as usize)?.take());
        let became = match submitting.submit(children.collect()).await {
            Admission::Accepted(unit) => {
                let id = unit.id();
                accepted.push(id);
                call.tell(EventKind::DelegationAccepted {
                    delegation: id.to_string(),
                    tasks: tasks.clone(),
                });
                call.supervise(unit);
                Became::Accepted(id)
            }
            Admission::Rejected(rejected) => {
                let then = rejected.then;
                let (session, reason) = (&call.session.id, &rejected.reason);
                tracing::info!(%session, run = %call.run, %reason, "a unit was refused");
                call.tell(EventKind::DelegationRejected {
                    tasks: tasks.clone(),
                    reason: rejected.reason.code().to_owned(),
                    detail: rejected.reason.to_string(),
                    then: match then {
                        Then::RunInline => "inline".to_owned(),
                        Then::Refuse => "refused".to_owned(),
                    },
                });
                match then {
                    Then::RunInline => {
                        inline.extend(call.inside(&caller, rejected.children).await);
                        Became::RanInline(rejected.reason)
                    }
                    Then::Refuse => {
                        call.descendants.give_back(rejected.children.len() as u64);
                        for child in rejected.children {
                            call.refund(child.task);
                        }
                        Became::Refused(rejected.reason)
                    }
                }
            }
        };
        answers.push(Answer { tasks, became });
    }
    let note = note(Mode::Background, &answers);
    if accepted.is_empty() && inline.is_empty() {
        // Nothing runs and nothing has run: that is a refusal of the whole call.
        let later = answers.iter().any(|answer| match &answer.became {
            Became::Refused(reason) => reason.retry().is_some(),
            Became::Accepted(_) | Became::RanInline(_) | Became::AsAsked => false,
        });
        let code = if later { FailureCode::Busy } else { FailureCode::Unavailable };
        return Err(Failure::new(code, note));
    }
    Ok(call.answer(&accepted, inline, note))
}

/// The form in which an outcome crosses the door.
pub(super) fn result(entry: TaskOutcome) -> TaskResult {
    TaskResult {
        task: entry.task,
        status: entry.status.as_str().to_owned(),
        output: entry.output,
        detail: entry.detail,
    }
}

impl Call {
    fn tell(&self, kind: EventKind) {
        self.session.stream.publish(&self.run, kind);
    }

    /// What becomes of the call. Watchers hear of it too, and also where no guest is left to hear.
    fn answer(
        &self,
        accepted: &[DelegationId],
        mut ended: Vec<TaskOutcome>,
        note: String,
    ) -> DelegateOutcome {
        ended.sort_by_key(|entry| entry.task);
        let outcome = if accepted.is_empty() { "completed" } else { "dispatched" }.to_owned();
        let delegation_ids: Vec<String> = accepted.iter().map(ToString::to_string).collect();
        let end = |entry: &TaskOutcome| TaskEnd {
            task: entry.task,
            status: entry.status.as_str().to_owned(),
        };
        self.tell(EventKind::Delegated {
            outcome: outcome.clone(),
            delegations: delegation_ids.clone(),
            results: ended.iter().map(end).collect(),
            note: note.clone(),
        });
        let ended: Vec<TaskResult> = ended.into_iter().map(result).collect();
        let (results, inline_results) =
            if accepted.is_empty() { (ended, Vec::new()) } else { (Vec::new(), ended) };
        DelegateOutcome { outcome, delegation_ids, results, inline_results, note }
    }

    /// Runs children inside the call, at once, and returns when nothing of them is left (H3, H5).
    async fn inside(&self, caller: &Work, children: Vec<Child>) -> Vec<TaskOutcome> {
        let tree = caller.tree();
        let runs = children.into_iter().map(|child| {
            let (id, tree) = (child.work.id(), tree.clone());
            async move {
                let (outcome, ended) = self.run(child, None).await;
                self.tell_end(&outcome, ended, None);
                // A call that cannot be interrupted may be left of it. Under a hard stop nobody waits for the
                // answer, and what is left is in the tree by name.
                tokio::select! {
                    () = tree.gone(id) => {}
                    _ = async { caller.signal().raised(StopKind::Hard).await } => {}
                }
                outcome
            }
        });
        join_all(runs).await
    }

    /// Runs one child to its end. That has not been told yet.
    async fn run(
        &self,
        child: Child,
        unit: Option<DelegationId>,
    ) -> (TaskOutcome, Option<EventKind>) {
        let Child { task, work, .. } = child;
        let Some(planned) = self.children.get(task as usize) else {
            let detail = "the host lost this task".to_owned();
            let (status, output) = (ChildStatus::Unknown, String::new());
            return (TaskOutcome { task, status, output, detail }, None);
        };
        let plan = Plan {
            run: Arc::clone(&planned.run),
            work,
            agent: Arc::clone(&planned.agent),
            goal: planned.goal.clone(),
            input: planned.input.clone(),
            limits: planned.limits.clone(),
            depth: self.depth + 1,
            descendants: planned.descendants.clone(),
            parent: Some(Arc::clone(&self.run)),
            delegation: unit,
            beside: self.beside || unit.is_some(),
        };
        let stream = &self.session.stream;
        stream.publish_with(&planned.run, plan.event(), plan.began());
        let begun = begin(&self.session, plan);
        let report = begun.ended(&self.session).await;
        let ended = report.event();
        self.settle(planned, &report);
        (task_outcome(task, report), Some(ended))
    }

    /// Whoever watches the parent hears of the end of a child at once, whatever becomes of its unit. Its end and its result are
    /// recorded in one: a host that ends here has lost both or neither.
    fn tell_end(
        &self,
        outcome: &TaskOutcome,
        ended: Option<EventKind>,
        unit: Option<DelegationId>,
    ) {
        let Some(planned) = self.children.get(outcome.task as usize) else { return };
        let told = EventKind::ChildEnded {
            child: Arc::clone(&planned.run),
            task: outcome.task,
            delegation: unit.map(|id| id.to_string()),
            status: outcome.status.as_str().to_owned(),
            detail: (!outcome.detail.is_empty()).then(|| outcome.detail.clone()),
        };
        let run = &planned.run;
        let over = ended.map(|ended| {
            let change = Change::RunEnded { run: Arc::clone(run) };
            [Entry::Event(Arc::clone(run), ended), Entry::Change(change)]
        });
        // What it said is kept from now on, also if the host does not live to see the unit end.
        let result = unit.map(|unit| {
            let body = Body::Later(Arc::new(outcome.clone()));
            Entry::Change(Change::ChildEnded { unit: unit.number(), task: outcome.task, body })
        });
        let entries = over
            .into_iter()
            .flatten()
            .chain([Entry::Event(Arc::clone(&self.run), told)])
            .chain(result);
        // Nothing waits for it: what does is behind it.
        drop(self.session.stream.record(Class::Owed, entries));
    }

    /// Gives back what a child did not use.
    fn settle(&self, child: &Planned, report: &RunReport) {
        // Of a guest that was cut on a processor nobody knows to the last unit what it had burnt.
        let cut = match &report.outcome {
            Outcome::Interrupted { stop, .. } => stop.kind() == StopKind::Hard,
            Outcome::Limit(kind) => *kind == LimitKind::WallTime,
            Outcome::HostPanicked(_) | Outcome::Unknown(_) => true,
            Outcome::Completed(())
            | Outcome::Failed(_)
            | Outcome::Trapped(_)
            | Outcome::NoPlace
            | Outcome::NotStarted(_) => false,
        };
        let ((fuel, tokens), used) = (child.paid, report.used.model_tokens);
        let fuel = if cut { 0 } else { fuel.saturating_sub(report.used.fuel.unwrap_or(0)) };
        self.purse.give_back(fuel, tokens.saturating_sub(used));
        // The last answer may have been longer than what was left for it; and where there is no bound nothing was paid
        // before. Either way the figure of the caller is that of the tree below it.
        self.purse.take(0, used.saturating_sub(tokens));
    }

    /// Gives back all that a child was paid that will not run.
    fn refund(&self, task: u32) {
        if let Some(child) = self.children.get(task as usize) {
            self.purse.give_back(child.paid.0, child.paid.1);
        }
    }

    /// Sees a unit in the background to its completion, and the completion to the session.
    fn supervise(self: &Arc<Self>, mut unit: Unit) {
        let (call, held) = (Arc::clone(self), unit.work().share());
        let control = self.session.sandbox.control();
        let span = span::of_unit(&self.session, &self.run, unit.id());
        let supervise = async move {
            let id = unit.id();
            let children = unit.take_children();
            let most = KEPT / children.len().max(1);
            let runs = children.into_iter().map(|child| async {
                let (mut outcome, ended) = call.run(child, Some(id)).await;
                fit(std::slice::from_mut(&mut outcome), most);
                // Recorded first: who hears of it finds it.
                unit.record(outcome.clone());
                call.tell_end(&outcome, ended, Some(id));
            });
            join_all(runs).await;
            unit.finish().await;
            call.session.bring();
        };
        let _detached = spawn_charged(control, held, supervise.instrument(span));
    }
}

fn task_outcome(task: u32, report: RunReport) -> TaskOutcome {
    let RunReport { outcome, output, .. } = report;
    let detail = outcome.detail();
    let (status, detail) = match outcome {
        Outcome::Completed(()) => (ChildStatus::Completed, None),
        Outcome::Interrupted { .. } => (ChildStatus::Interrupted, detail),
        Outcome::Failed(_) | Outcome::NoPlace => (ChildStatus::Failed, detail),
        Outcome::Limit(kind) => (ChildStatus::Limit { which: kind.as_str().to_owned() }, detail),
        Outcome::Trapped(_) | Outcome::HostPanicked(_) => (ChildStatus::Trapped, detail),
        Outcome::Unknown(_) => (ChildStatus::Unknown, detail),
        // Why is for the operator to know, and stands in the events.
        Outcome::NotStarted(_) => {
            (ChildStatus::Failed, Some("the host could not start it".to_owned()))
        }
    };
    let mut detail = detail.unwrap_or_default();
    if detail.len() > DETAIL {
        detail.truncate(detail.floor_char_boundary(DETAIL));
        detail.push('…');
    }
    TaskOutcome { task, status, output, detail }
}
