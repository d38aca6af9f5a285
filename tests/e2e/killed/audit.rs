//! What a daemon says that has just been started is held against the books.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use checkrein_testkit::{PATIENCE, Random};
use serde_json::{Value, json};

use super::PROFILES;
use super::book::{Account, Book};
use super::journal::{Journal, statuses};
use crate::api::daemon::{Client, Sent};

/// How often a completion is brought whose turns do not end, before it waits for a prompt.
const DELIVERIES: usize = 3;

/// Sessions whose memory is asked for.
const ASKED: u64 = 3;

/// Checks everything that was ever acknowledged.
pub(super) fn audit(book: &Book, client: &Client, random: &mut Random) -> Result<()> {
    let mut units = BTreeMap::new();
    for profile in PROFILES {
        for path in sessions(book, client, profile)? {
            let audit = Audit { book, client, path: &path, account: book.account(&path) };
            audit.all(&mut units).with_context(|| path.clone())?;
        }
        units.clear();
    }
    let living = book.living();
    for _ in 0..ASKED {
        if let Some(path) = random.one_of(&living) {
            remembers(book, client, path).with_context(|| path.clone())?;
        }
    }
    is_idle(client)
}

/// The sessions of a profile: all that were opened, none that was deleted.
fn sessions(book: &Book, client: &Client, profile: &str) -> Result<Vec<String>> {
    let (mut listed, mut after) = (BTreeSet::new(), String::new());
    let root = format!("/v1/profiles/{profile}/sessions");
    loop {
        let page = client.get(&format!("{root}?limit=50{after}"))?;
        ensure!(page.status == 200, "{page:?}");
        for session in page.body["sessions"].as_array().context("sessions")? {
            let id = session["id"].as_str().context("an id")?;
            ensure!(listed.insert(format!("{root}/{id}")), "{id} is listed twice");
        }
        match page.body["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    for path in book.paths().into_iter().filter(|path| path.starts_with(&format!("{root}/"))) {
        let account = book.account(&path);
        match (listed.remove(&path), account.deleted, account.deleting > 0) {
            (true, false, _) => book.note(&path, |account| account.deleting = 0),
            (false, true, _) => {}
            (false, false, true) => book.note(&path, |account| account.deleted = true),
            (true, true, _) => bail!("{path} was deleted, and is there"),
            (false, false, false) => bail!("{path} is lost"),
        }
    }
    // Those whose opening was recorded, and not answered any more.
    for path in listed {
        ensure!(book.unanswered.load(Ordering::SeqCst) > 0, "nobody has opened {path}");
        book.unanswered.fetch_sub(1, Ordering::SeqCst);
        let delivery = client.get(&path)?.body["settings"]["delivery"].clone();
        book.opened(&path, delivery.as_str().context("how completions are delivered")?)?;
    }
    let living = book.living().into_iter();
    Ok(living.filter(|path| path.starts_with(&format!("{root}/"))).collect())
}

/// One session under audit.
struct Audit<'a> {
    book: &'a Book,
    client: &'a Client,
    path: &'a str,
    account: Account,
}

impl Audit<'_> {
    fn all(&self, units: &mut BTreeMap<String, String>) -> Result<()> {
        let (view, events, unread) = self.at_rest()?;
        let first = view["first-event"].as_u64().context("a first event")?;
        let journal = Journal::read(&events, first)?;
        ensure!(view["last-event"] == first + events.len() as u64 - 1, "{view}");
        self.events(&events)?;
        journal.is_over()?;
        journal.nothing_twice()?;
        journal.since(self.book.died_ms())?;
        self.turns(&journal)?;
        self.conversation(&journal, &view)?;
        self.completions(&journal, &unread)?;
        for unit in journal.units.keys() {
            if let Some(other) = units.insert(unit.clone(), self.path.to_owned()) {
                bail!("{other} has a unit {unit} too");
            }
        }
        self.counts(&journal);
        self.book.note(self.path, |account| {
            let seen = events.iter().filter_map(|event| Some((event.id?, event.text.clone())));
            account.events.extend(seen);
            account.completions.extend(unread.iter().filter_map(|completion| {
                Some((completion["id"].as_str()?.to_owned(), completion.clone()))
            }));
        });
        Ok(())
    }

    /// What the kill has come to in it.
    fn counts(&self, journal: &Journal) {
        let since = |at_ms: u64| at_ms > self.book.died_ms();
        for run in journal.runs.values().filter(|run| run.parent.is_none()) {
            if run.end.as_ref().is_some_and(|end| since(end.at_ms) && end.status == "unknown") {
                self.book.saw("turn lost");
            }
            if run.delegation.is_some() && since(run.began_ms) {
                self.book.saw("completion brought");
            }
        }
        for unit in journal.units.values().filter(|unit| since(unit.ended_ms)) {
            if unit.ended.as_deref() == Some("unknown") {
                self.book.saw("unit lost");
            }
        }
    }

    /// Waits until nothing of it goes on and its completions were brought, and reads it.
    fn at_rest(&self) -> Result<(Value, Vec<Sent>, Vec<Value>)> {
        let until = Instant::now() + PATIENCE;
        loop {
            let (view, unread) = (self.get("")?, self.get("/completions")?);
            let unread = unread["completions"].as_array().context("completions")?.clone();
            if view["running"].is_null() && view["units-open"] == 0 {
                let events = self.client.all_events(self.path, 0)?;
                let again = self.get("")?;
                let waits = self.account.delivery == "polled" || unread.is_empty();
                let same = again["running"].is_null() && again["last-event"] == view["last-event"];
                if same && (waits || self.is_quiet(&events, &unread)?) {
                    return Ok((again, events, unread));
                }
            }
            ensure!(Instant::now() < until, "it does not come to rest: {view}, {unread:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether a completion that was brought again and again holds up those that wait.
    fn is_quiet(&self, events: &[Sent], unread: &[Value]) -> Result<bool> {
        let first = events.first().and_then(|event| event.id).unwrap_or(1);
        let journal = Journal::read(events, first)?;
        let brought = |unit: &Value| {
            let unit = unit["id"].as_str().and_then(|id| journal.units.get(id));
            unit.map_or(0, |unit| unit.brought.len())
        };
        Ok(unread.iter().any(|unit| brought(unit) >= DELIVERIES))
    }

    /// What was seen is there, byte for byte.
    fn events(&self, events: &[Sent]) -> Result<()> {
        let now: BTreeMap<u64, &str> =
            events.iter().filter_map(|event| Some((event.id?, event.text.as_str()))).collect();
        for (seq, seen) in &self.account.events {
            let there = now.get(seq);
            ensure!(there == Some(&seen.as_str()), "event {seq} was {seen}, and is {there:?}");
        }
        Ok(())
    }

    /// What was said of turns is so.
    fn turns(&self, journal: &Journal) -> Result<()> {
        let id = self.path.rsplit('/').next().unwrap_or_default();
        for (generation, turn) in &self.account.turns {
            let run = journal.runs.get(&format!("{id}.{generation}"));
            let run = run.with_context(|| format!("turn {generation} is lost: {turn:?}"))?;
            ensure!(run.goal == turn.goal, "turn {generation} was {turn:?}, and is {run:?}");
            let Some((status, output)) = &turn.ended else { continue };
            let end = run.end.as_ref().context("its end")?;
            let same = end.status == *status && end.output == *output;
            ensure!(same, "turn {generation} had ended with {turn:?}, and now with {run:?}");
        }
        Ok(())
    }

    /// The conversation is that of the turns.
    fn conversation(&self, journal: &Journal, view: &Value) -> Result<()> {
        let said = self.get("/messages?limit=10000")?;
        let said = said["messages"].as_array().context("messages")?;
        ensure!(view["messages"] == said.len(), "{view}");
        let expected = journal.conversation();
        ensure!(said.len() == expected.len(), "{} messages of {}", said.len(), expected.len());
        for (message, (role, text)) in said.iter().zip(expected) {
            let there = &message["message"];
            ensure!(there["role"] == role && there["text"] == text, "{there} for {role}: {text}");
        }
        Ok(())
    }

    /// Each unit has one completion, which is read once.
    fn completions(&self, journal: &Journal, unread: &[Value]) -> Result<()> {
        let mut waiting = BTreeSet::new();
        for completion in unread {
            let id = completion["id"].as_str().context("an id")?;
            ensure!(waiting.insert(id), "{id} is listed twice");
            let unit = journal.units.get(id).with_context(|| format!("{id} is of no unit"))?;
            ensure!(
                unit.ended.as_deref() == completion["status"].as_str(),
                "{completion}, {unit:?}"
            );
            ensure!(statuses(completion) == unit.children, "{completion}, {unit:?}");
            let before = self.account.completions.get(id).unwrap_or(completion);
            ensure!(before == completion, "{id} was {before}, and is {completion}");
        }
        for (id, unit) in &journal.units {
            let (last, failed) = match unit.brought.split_last() {
                Some((last, failed)) => (Some(last), failed),
                None => (None, &[][..]),
            };
            ensure!(
                failed.iter().all(|turn| !journal.has_read(turn)),
                "{id} was read twice: {unit:?}"
            );
            let by_turn = last.is_some_and(|turn| journal.has_read(turn));
            let acknowledged = self.account.acknowledged.contains(id);
            let waits = waiting.contains(id.as_str());
            let perhaps = self.account.acknowledging.contains(id);
            if acknowledged || by_turn {
                ensure!(!waits, "{id} was read, and is there again: {unit:?}");
            } else {
                ensure!(waits || perhaps, "{id} was read by nobody, and is gone: {unit:?}");
            }
            let brought = last.and_then(|turn| journal.runs.get(turn));
            let again = brought.is_some_and(|run| run.began_ms > self.book.died_ms());
            ensure!(!(acknowledged && again), "{id} was acknowledged, and is brought: {unit:?}");
            ensure!(last.is_none() || self.account.delivery == "turns", "{id} is to be polled");
        }
        Ok(())
    }

    fn get(&self, what: &str) -> Result<Value> {
        let answer = self.client.get(&format!("{}{what}", self.path))?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.body)
    }
}

/// Values that were remembered are there, or later ones.
fn remembers(book: &Book, client: &Client, path: &str) -> Result<()> {
    let account = book.account(path);
    let number = book.number();
    let keys: Vec<&String> = account.memory.keys().collect();
    let goal: Vec<String> = keys.iter().map(|key| format!("recall {key}\n")).collect();
    let goal = format!("say p{number}\n{}", goal.concat());
    let body = json!({ "goal": goal, "wait": true, "queue": true });
    let answer = client.post(&format!("{path}/prompts"), &body)?;
    ensure!(answer.body["status"] == "completed", "{answer:?}");
    let output = answer.body["output"].as_str().context("an output")?;
    for (key, value) in keys.into_iter().zip(output.split('\n').skip(1)) {
        let (is, was) = (value.parse().unwrap_or(0_u64), account.memory[key]);
        ensure!(was.known <= is && is <= was.asked, "{key} was {was:?}, and is {is}");
        book.note(path, |account| account.memory.entry(key.clone()).or_default().known = is);
    }
    Ok(())
}

/// Nothing runs.
fn is_idle(client: &Client) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let tree = client.get("/v1/tree")?.body;
        if tree["executions"] == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < until, "it does not come to rest: {tree}");
        thread::sleep(Duration::from_millis(2));
    }
}
