//! What becomes of a session that the host left in the middle of something: nothing is started again, and whatever was
//! recorded is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::delegate::KEPT;
use super::event::{Draft, Event, EventKind};
use super::fit::fit;
use super::ledger::Accepted;
use super::record::{Record, ToolAnswer};
use crate::delegation::{ChildStatus, Completion, DelegationId, TaskOutcome};
use crate::ids::SessionId;
use crate::message::{Message, Role};
use crate::sandbox::{Reached, Used};
use crate::store::{
    Archive, Body, Change, SessionRow, Store, StoreError, UnitRow, UnitState, record,
};

/// What whoever reads the end of such a run is told.
const WHY: &str = "the host ended while this was going on; nobody knows how far it came";

/// How far back the events are read for what lost runs had said: events, and bytes of them.
const MOST_EVENTS: usize = 20_000;
const MOST_BYTES: usize = 32 << 20;

/// Events that are read at one time.
const WINDOW: u64 = 1_000;

/// Ends what was going on in a session when the host ended (C8): its turn, its runs and their children as `unknown`, with
/// all that they had reported; background units as `unknown`, with the results that their children had recorded. All of it
/// is recorded together, or nothing is. Call it before the session is opened, while nothing of it runs. Calling it again
/// changes nothing.
///
/// # Errors
///
/// Those of the store; what is recorded cannot be trusted to be whole then, and the session should not be opened.
///
/// # Cancel safety
///
/// Cancel safe: all of it is recorded, or nothing is.
pub async fn recover(store: &dyn Store, id: &SessionId) -> Result<Recovered, StoreError> {
    let row = store.session(id).await?;
    let units = store.units(id, 0).await?;
    let units: Vec<UnitRow> =
        units.into_iter().filter(|unit| unit.state == UnitState::Accepted).collect();
    let sides = store.open_runs(id).await?;
    let mut recovered =
        Recovered { turn: row.running.is_some(), units: units.len(), runs: sides.len() };
    if row.running.is_none() && units.is_empty() && sides.is_empty() {
        return Ok(recovered);
    }
    let turn = row.running.as_ref().map(|running| Arc::clone(&running.run));
    let open = sides.into_iter().map(|(run, _)| Arc::from(run)).chain(turn.clone());
    let mut lost = Lost::read(store, &row, open).await?;
    for (run, said) in &lost.runs {
        for answer in store.kept(id, run).await? {
            if let Ok(answer) = serde_json::from_str::<ToolAnswer>(&answer) {
                said.record.keep(answer);
            }
        }
    }
    recovered.runs = lost.runs.len();

    let mut changes = Vec::new();
    for unit in &units {
        end_unit(unit, &lost, &mut changes)?;
    }
    // Children before those that started them.
    let mut ends: Vec<(&Arc<str>, &Said)> = lost.runs.iter().collect();
    ends.sort_by_key(|(_, said)| std::cmp::Reverse(said.began));
    for (run, said) in ends.into_iter().filter(|(run, _)| Some(*run) != turn.as_ref()) {
        changes.push(said.end(run));
        changes.push(Change::RunEnded { run: Arc::clone(run) });
    }
    if let (Some(running), Some(run)) = (&row.running, &turn) {
        let said = lost.runs.remove(run).unwrap_or_default();
        let answered = Message::text(Role::Assistant, said.record.said());
        changes.push(said.end(run));
        // A prompt is there from the beginning; what a completion says only once it has been brought.
        if running.brings.is_some() {
            let asked = Message::text(Role::User, said.goal.as_str());
            changes.push(Change::Message { body: Body::Later(Arc::new(asked)) });
        }
        changes.push(Change::Message { body: Body::Later(Arc::new(answered)) });
        changes.push(Change::TurnEnded { generation: running.generation });
    }
    record(store, id.clone(), changes).await?;
    Ok(recovered)
}

/// Whether what a session says that comes from elsewhere can be read by the host.
///
/// # Errors
///
/// Says what cannot, and why.
pub fn readable(archive: &Archive) -> Result<(), String> {
    let wrong = |what: String| move |error: serde_json::Error| format!("{what}: {error}");
    for message in archive.messages() {
        serde_json::from_str::<Message>(&message.body)
            .map_err(wrong(format!("the message {}", message.number)))?;
    }
    for unit in archive.units() {
        let id = DelegationId::new(unit.unit);
        serde_json::from_str::<Accepted>(&unit.body).map_err(wrong(format!("the unit {id}")))?;
        for (task, body) in &unit.children {
            serde_json::from_str::<TaskOutcome>(body)
                .map_err(wrong(format!("the result of task {task} of {id}")))?;
        }
        if let Some(completion) = &unit.completion {
            serde_json::from_str::<Completion>(completion)
                .map_err(wrong(format!("the completion of {id}")))?;
        }
    }
    Ok(())
}

/// What was ended as `unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Whether a turn was going on.
    pub turn: bool,
    /// Background units.
    pub units: usize,
    /// Runs of all sorts, the turn's among them.
    pub runs: usize,
}

/// The runs that have begun and not ended.
#[derive(Default)]
struct Lost {
    runs: BTreeMap<Arc<str>, Said>,
    /// The units of theirs that watchers were told of.
    told: BTreeSet<String>,
}

/// What a lost run had said.
#[derive(Default)]
struct Said {
    /// The number of the event that told of its beginning.
    began: u64,
    /// What it was asked to do.
    goal: String,
    record: Record,
}

impl Lost {
    /// What those runs had said, from the newest events back to where all of them began, as far as that is kept.
    async fn read(
        store: &dyn Store,
        row: &SessionRow,
        open: impl IntoIterator<Item = Arc<str>>,
    ) -> Result<Lost, StoreError> {
        let runs = open.into_iter().map(|run| (run, Said::default())).collect();
        let mut lost = Lost { runs, told: BTreeSet::new() };
        let mut unseen = lost.runs.len();
        let (mut events, mut bytes, mut before) = (Vec::new(), 0, row.last_seq);
        while unseen > 0
            && before + 1 > row.first_seq
            && events.len() < MOST_EVENTS
            && bytes < MOST_BYTES
        {
            let after = before.saturating_sub(WINDOW).max(row.first_seq.saturating_sub(1));
            let (mut older, mut at) = (Vec::new(), after);
            while at < before {
                let page = store.events(&row.id, at, 256, 1 << 20).await?;
                let Some(last) = page.events.last() else { break };
                at = last.seq;
                for event in page.events.iter().filter(|event| event.seq <= before) {
                    bytes += event.body.len();
                    if lost.runs.contains_key(&event.run) {
                        let event = Event::from_row(event);
                        unseen -= usize::from(begins(&event)).min(unseen);
                        older.push(event);
                    }
                }
            }
            older.append(&mut events);
            events = older;
            before = after;
        }
        for event in events {
            lost.hears(event);
        }
        Ok(lost)
    }

    fn hears(&mut self, event: Event) {
        let Event { seq, run, kind, .. } = event;
        let Some(said) = self.runs.get_mut(&run) else { return };
        if let EventKind::RunStarted { goal, .. } = kind {
            (said.began, said.goal) = (seq, goal);
        } else if let EventKind::DelegationAccepted { delegation, .. } = kind {
            self.told.insert(delegation);
        } else if let EventKind::Partial { text } = kind {
            said.record.partial(&text);
        } else if let EventKind::ModelStarted { .. } = kind {
            said.record.model_begins();
        } else if let EventKind::ModelText { text } = kind {
            said.record.model_text(&text);
        }
    }
}

fn begins(event: &Event) -> bool {
    matches!(event.kind, EventKind::RunStarted { .. })
}

impl Said {
    fn end(&self, run: &Arc<str>) -> Change {
        let ended = EventKind::RunEnded {
            status: "unknown".to_owned(),
            detail: Some(WHY.to_owned()),
            output: self.record.said(),
            tools: self.record.answers(),
            used: Used::default(),
            reached: Reached::default(),
        };
        event_now(run, ended)
    }
}

fn event_now(run: &Arc<str>, kind: EventKind) -> Change {
    Change::Event { run: Arc::clone(run), body: Body::Later(Arc::new(Draft::new(run, kind))) }
}

/// The end of a unit, from what its children had recorded.
fn end_unit(unit: &UnitRow, lost: &Lost, changes: &mut Vec<Change>) -> Result<(), StoreError> {
    let id = DelegationId::new(unit.unit);
    let damaged =
        |error| StoreError::Corrupt(format!("the record of {id} cannot be read: {error}"));
    let accepted: Accepted = serde_json::from_str(&unit.body).map_err(damaged)?;
    let mut ended = BTreeMap::new();
    for (task, body) in &unit.children {
        ended.insert(*task, serde_json::from_str::<TaskOutcome>(body).map_err(damaged)?);
    }
    // The host may have ended between the record of the unit and the event. What a run told that has ended is all there.
    let beginning = lost.runs.get(&accepted.run).is_some_and(|said| said.began > 0);
    if beginning && !lost.told.contains(&id.to_string()) {
        let (delegation, tasks) = (id.to_string(), accepted.tasks.clone());
        let told = EventKind::DelegationAccepted { delegation, tasks };
        changes.push(event_now(&accepted.run, told));
    }
    let most = KEPT / accepted.tasks.len().max(1);
    let mut entries = Vec::with_capacity(accepted.tasks.len());
    for (place, task) in accepted.tasks.iter().enumerate() {
        if let Some(outcome) = ended.remove(task) {
            entries.push(outcome);
            continue;
        }
        let run = accepted.children.get(place);
        let said = run.and_then(|run| lost.runs.get(run));
        let mut outcome = TaskOutcome {
            task: *task,
            status: ChildStatus::Unknown,
            output: said.map(|said| said.record.said()).unwrap_or_default(),
            detail: WHY.to_owned(),
        };
        fit(std::slice::from_mut(&mut outcome), most);
        if let Some(run) = run {
            let told = EventKind::ChildEnded {
                child: Arc::clone(run),
                task: *task,
                delegation: Some(id.to_string()),
                status: outcome.status.as_str().to_owned(),
                detail: Some(outcome.detail.clone()),
            };
            changes.push(event_now(&accepted.run, told));
        }
        entries.push(outcome);
    }
    let completion =
        Completion::from_record(id, unit.session.clone(), entries, accepted.goals.clone());
    let told = EventKind::DelegationEnded {
        delegation: id.to_string(),
        status: completion.status.as_str().to_owned(),
    };
    changes.push(Change::UnitEnded { unit: unit.unit, body: Body::Later(Arc::new(completion)) });
    changes.push(event_now(&accepted.run, told));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Memory, Retention};

    /// The events that are told when the host has ended just after it had recorded a unit, and the beginning of its turn
    /// with what more.
    async fn told_of_a_lost_unit(more: Vec<EventKind>) -> Vec<EventKind> {
        let store = Memory::new(Retention::default());
        let (id, run): (_, Arc<str>) = (SessionId::new("s1"), "s1.1".into());
        let started = EventKind::RunStarted {
            agent: "agent".to_owned(),
            goal: "hand out".to_owned(),
            parent: None,
            delegation: None,
        };
        let unit = serde_json::json!({
            "run": run, "tasks": [0, 1], "goals": ["one", "two"], "children": ["s1.1.1", "s1.1.2"],
        });
        let mut changes = vec![
            Change::Created { agent: "agent".to_owned(), settings: "{}".to_owned().into() },
            Change::TurnBegan { generation: 1, run: Arc::clone(&run), brings: None },
            event_now(&run, started),
            Change::Message { body: Body::Later(Arc::new(Message::text(Role::User, "hand out"))) },
            Change::UnitAccepted { unit: 1, body: unit.to_string().into() },
        ];
        let known = 1 + more.len();
        changes.extend(more.into_iter().map(|kind| event_now(&run, kind)));
        record(&store, id.clone(), changes).await.unwrap();
        recover(&store, &id).await.unwrap();
        let page = store.events(&id, 0, 100, 1 << 20).await.unwrap();
        page.events.iter().skip(known).map(|row| Event::from_row(row).kind).collect()
    }

    fn names(events: &[EventKind]) -> Vec<String> {
        let name = |kind| serde_json::to_value(kind).unwrap()["event"].as_str().unwrap().to_owned();
        events.iter().map(name).collect()
    }

    /// Between the record of a unit and the event that tells of it the host may end. A journal says that a unit was accepted
    /// before it says how it ended, and says it once.
    #[tokio::test]
    async fn a_unit_of_which_nobody_was_told_is_told_of_before_its_end() {
        let events = told_of_a_lost_unit(Vec::new()).await;
        let expected =
            ["delegation-accepted", "child-ended", "child-ended", "delegation-ended", "run-ended"];
        assert_eq!(names(&events), expected, "{events:#?}");
        let EventKind::DelegationAccepted { delegation, tasks } = &events[0] else {
            panic!("{events:#?}");
        };
        assert_eq!((delegation.as_str(), &tasks[..]), ("d1", &[0, 1][..]));

        let told = EventKind::DelegationAccepted { delegation: "d1".to_owned(), tasks: vec![0, 1] };
        let events = told_of_a_lost_unit(vec![told]).await;
        assert_eq!(names(&events), expected[1..], "{events:#?}");
    }
}
