//! What clients and daemon have said to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::api::daemon::{Answer, Client};
use crate::killed::journal::Journal;

/// Whoever speaks to the daemon, and the book of what was promised.
pub(super) struct Talk {
    client: Mutex<Client>,
    book: Mutex<BTreeMap<String, Account>>,
    numbers: AtomicUsize,
    ending: AtomicBool,
    /// Sorts of faults that have not been seen yet.
    awaited: Mutex<BTreeSet<&'static str>>,
}

/// What was promised of a session.
#[derive(Debug, Default)]
struct Account {
    turns: BTreeMap<u64, Told>,
    events: BTreeMap<u64, String>,
}

/// What was said of a turn.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) session: String,
    pub(super) generation: u64,
    pub(super) work: String,
    goal: String,
    /// Its status and its output.
    ended: Option<(String, String)>,
    /// The report of the shutdown names it.
    cut: bool,
}

impl Talk {
    pub(super) fn new(client: Client) -> Talk {
        Talk {
            client: Mutex::new(client),
            book: Mutex::default(),
            numbers: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            awaited: Mutex::default(),
        }
    }

    pub(super) fn client(&self) -> Client {
        lock(&self.client).clone()
    }

    /// From now on the daemon is another one.
    pub(super) fn meets(&self, client: Client) {
        *lock(&self.client) = client;
    }

    /// From now on the daemon may end, and whoever speaks to it leaves.
    pub(super) fn ends(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    pub(super) fn awaits(&self, fault: &'static str) {
        lock(&self.awaited).insert(fault);
    }

    /// That sort of fault has come and gone.
    pub(super) fn has_met(&self, fault: &'static str) {
        lock(&self.awaited).remove(fault);
    }

    pub(super) fn has_met_every_fault(&self) -> bool {
        lock(&self.awaited).is_empty()
    }

    pub(super) fn get(&self, path: &str) -> Result<Value> {
        let answer = self.client().get(path)?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
        Ok(answer.body)
    }

    pub(super) fn number(&self) -> usize {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn opens(&self, profile: &str) -> Result<String> {
        let answer = self.try_to_open(profile)?;
        ensure!(answer.status == 201, "{answer:?}");
        self.opened(profile, &answer)
    }

    pub(super) fn try_to_open(&self, profile: &str) -> Result<Answer> {
        let body = json!({ "agent": "agent", "delivery": "polled" });
        self.client().post(&format!("/v1/profiles/{profile}/sessions"), &body)
    }

    pub(super) fn opened(&self, profile: &str, answer: &Answer) -> Result<String> {
        let id = answer.body["id"].as_str().context("an id")?;
        let path = format!("/v1/profiles/{profile}/sessions/{id}");
        let before = self.lock().insert(path.clone(), Account::default());
        ensure!(before.is_none(), "the name of {path} was used before");
        Ok(path)
    }

    /// Starts a turn that lasts until it is stopped.
    pub(super) fn begins(&self, session: &str) -> Result<Told> {
        let number = self.number();
        let mut goal = format!("say p{number}\ntry emits 3 50\nremember last {number}");
        if number.is_multiple_of(10) {
            let task = |name: &str| json!({ "goal": format!("say {name}{number}\nemits 2 20") });
            let tasks = [task("a"), task("b")];
            let request = json!({ "mode": "background", "tasks": tasks });
            goal.push_str(&format!("\ntry delegate {request}"));
        }
        self.prompts(session, &format!("{goal}\npartial so far\ntry sleep 600000\nsay on"))
    }

    /// Starts a turn.
    pub(super) fn prompts(&self, session: &str, goal: &str) -> Result<Told> {
        let answer = self.try_to_prompt(session, goal)?;
        ensure!(answer.status == 202, "{session}: {answer:?}");
        self.recorded(session, goal, &answer)
    }

    pub(super) fn try_to_prompt(&self, session: &str, goal: &str) -> Result<Answer> {
        self.client().post(&format!("{session}/prompts"), &json!({ "goal": goal }))
    }

    /// It was said that the turn is recorded.
    pub(super) fn recorded(&self, session: &str, goal: &str, answer: &Answer) -> Result<Told> {
        let told = Told {
            session: session.to_owned(),
            generation: answer.body["generation"].as_u64().context("a generation")?,
            work: answer.body["work"].as_str().context("a name")?.to_owned(),
            goal: goal.to_owned(),
            ended: None,
            cut: false,
        };
        let mut book = self.lock();
        let account = book.entry(session.to_owned()).or_default();
        let before = account.turns.insert(told.generation, told.clone());
        ensure!(before.is_none(), "{session}: generation {} came twice", told.generation);
        Ok(told)
    }

    /// Stops a turn in one of the ways that there are, and hears of its end.
    pub(super) fn finishes(&self, turn: &Told) -> Result<()> {
        let stop = json!({ "kind": "hard", "message": "enough" });
        let session = format!("{}/stop", turn.session);
        let (path, stop) = match turn.generation % 3 {
            0 => (format!("/v1/work/{}/stop", turn.work), stop),
            1 => {
                let generation = turn.generation;
                let soft = json!({
                    "scope": "turn", "kind": "soft", "message": "enough", "generation": generation,
                });
                (session, soft)
            }
            _ => (session, stop),
        };
        let answer = self.client().post(&path, &stop)?;
        ensure!(answer.status == 200, "{turn:?}: {answer:?}");
        self.hears_the_end(turn).map(drop)
    }

    /// Follows a session until a turn has ended, and gives its status.
    pub(super) fn hears_the_end(&self, turn: &Told) -> Result<String> {
        let last = {
            let book = self.lock();
            let account = book.get(&turn.session).context("a session")?;
            account.events.keys().next_back().copied().unwrap_or(0)
        };
        let mut events = self.client().events(&turn.session, last)?;
        let run = turn.run();
        loop {
            let event = events.next()?.with_context(|| format!("more events of {turn:?}"))?;
            let Some(seq) = event.id else { bail!("{event:?}") };
            let mut book = self.lock();
            let account = book.entry(turn.session.clone()).or_default();
            account.events.insert(seq, event.text);
            if event.event == "run-ended" && event.data["run"] == run.as_str() {
                let text = |name: &str| event.data[name].as_str().unwrap_or_default().to_owned();
                let turn = account.turns.get_mut(&turn.generation).context("the turn")?;
                turn.ended = Some((text("status"), text("output")));
                return Ok(text("status"));
            }
        }
    }

    /// Those turns were named as cut.
    pub(super) fn was_cut(&self, cut: &BTreeSet<&str>) {
        let mut book = self.lock();
        for turn in book.values_mut().flat_map(|account| account.turns.values_mut()) {
            turn.cut = cut.contains(turn.work.as_str());
        }
    }

    /// A session was deleted.
    pub(super) fn forgets(&self, session: &str) {
        self.lock().remove(session);
    }

    /// All that was said in a profile is there.
    pub(super) fn is_kept_in(&self, profile: &str) -> Result<()> {
        let client = self.client();
        for (path, account) in &*self.lock() {
            if path.starts_with(&format!("/v1/profiles/{profile}/")) {
                account.is_kept(&client, path).with_context(|| path.clone())?;
            }
        }
        Ok(())
    }

    /// All that was said is there, but for what was on a disk that is gone.
    pub(super) fn is_kept(&self) -> Result<()> {
        for profile in ["main", "apart", "coming"] {
            self.is_kept_in(profile)?;
        }
        Ok(())
    }

    pub(super) fn summary(&self) -> String {
        let book = self.lock();
        let turns: usize = book.values().map(|account| account.turns.len()).sum();
        let events: usize = book.values().map(|account| account.events.len()).sum();
        format!("{} sessions, {turns} turns, {events} events followed", book.len())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        lock(&self.book)
    }
}

impl Told {
    /// The name of its run.
    fn run(&self) -> String {
        let session = self.session.rsplit('/').next().unwrap_or_default();
        format!("{session}.{}", self.generation)
    }
}

impl Account {
    fn is_kept(&self, client: &Client, path: &str) -> Result<()> {
        let events = client.all_events(path, 0)?;
        let journal = Journal::read(&events, 1)?;
        journal.is_over()?;
        journal.nothing_twice()?;
        for (seq, text) in &self.events {
            let there = events.get(usize::try_from(seq - 1)?).map(|event| &event.text);
            ensure!(there == Some(text), "event {seq} was {text}, and is {there:?}");
        }
        for turn in self.turns.values() {
            let run = journal.runs.get(&turn.run()).with_context(|| format!("{turn:?} is lost"))?;
            let end = run.end.as_ref().context("an end")?;
            ensure!(run.goal == turn.goal, "{turn:?} is {run:?}");
            if let Some((status, output)) = &turn.ended {
                ensure!(end.status == *status && end.output == *output, "{turn:?} is {run:?}");
            }
            // What was cut is never recorded as a success.
            ensure!(!turn.cut || end.status == "interrupted", "{turn:?} is {run:?}");
        }
        let said = client.get(&format!("{path}/messages?limit=10000"))?.body;
        let said = said["messages"].as_array().context("messages")?.iter();
        let said: Vec<(&str, &str)> = said
            .filter_map(|said| {
                Some((said["message"]["role"].as_str()?, said["message"]["text"].as_str()?))
            })
            .collect();
        ensure!(said == journal.conversation(), "{said:?}");
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
