//! Clients that do whatever clients do, and write down what they were told, until the daemon is dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use checkrein_testkit::Random;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::PROFILES;
use super::book::Book;
use crate::api::daemon::{Answer, Client};

/// Sessions that there are at one time, and events after which one is left alone.
const SESSIONS: usize = 18;
const EVENTS: usize = 1_500;

/// When the daemon dies.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kill {
    /// When so many requests were answered, by the one who has just been answered.
    Answered(u64),
    /// When so many requests were sent, and so long after it.
    Sent(u64, Duration),
    /// When so much time has passed.
    After(Duration),
}

/// Kills the daemon once.
pub(super) struct Deadly {
    pid: Pid,
    kill: Kill,
    sent: AtomicU64,
    answered: AtomicU64,
    pub(super) killed: AtomicBool,
}

impl Deadly {
    pub(super) fn new(pid: Pid, kill: Kill) -> Deadly {
        let (sent, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        Deadly { pid, kill, sent, answered, killed: AtomicBool::new(false) }
    }

    pub(super) fn kill(&self) {
        // Whoever meets a closed connection looks here.
        self.killed.store(true, Ordering::SeqCst);
        kill_process(self.pid, Signal::KILL).ok();
    }

    fn was_sent(&self) {
        let count = self.sent.fetch_add(1, Ordering::SeqCst) + 1;
        if let Kill::Sent(after, delay) = self.kill
            && count == after
        {
            thread::sleep(delay);
            self.kill();
        }
    }

    fn was_answered(&self) {
        let count = self.answered.fetch_add(1, Ordering::SeqCst) + 1;
        if let Kill::Answered(after) = self.kill
            && count == after
        {
            self.kill();
        }
    }
}

/// One client, on a thread of its own.
pub(super) struct Driver {
    pub(super) number: u64,
    pub(super) client: Client,
    pub(super) book: Arc<Book>,
    pub(super) deadly: Arc<Deadly>,
    pub(super) random: Random,
}

impl Driver {
    /// Asks for things until the daemon is dead.
    pub(super) fn asks(mut self) -> Result<()> {
        while !self.is_dead() {
            let living = self.book.living();
            let Some(session) = self.random.one_of(&living).cloned() else {
                self.opens()?;
                continue;
            };
            match self.random.below(30) {
                0..4 if living.len() < SESSIONS => self.opens()?,
                0..17 => self.prompts(&session)?,
                17..22 => self.reads(&session)?,
                22..26 => self.stops(&session)?,
                26 => self.deletes(&session)?,
                _ => self.looks(&session)?,
            }
        }
        Ok(())
    }

    /// Follows sessions until the daemon is dead, and leaves them at any place.
    pub(super) fn listens(mut self) -> Result<()> {
        while !self.is_dead() {
            let living = self.book.living();
            let Some(session) = self.random.one_of(&living).cloned() else {
                thread::yield_now();
                continue;
            };
            let last = self.book.account(&session).events.keys().next_back().copied().unwrap_or(0);
            let most = 1 + self.random.below(40);
            match self.follows(&session, last, most) {
                Ok(()) => {}
                Err(_) if self.is_dead() || self.book.may_be_gone(&session) => {}
                Err(error) => return Err(error.context(format!("following {session}"))),
            }
        }
        Ok(())
    }

    fn follows(&mut self, session: &str, last: u64, most: u64) -> Result<()> {
        let follow = self.random.below(2) == 0;
        let mut events = match follow {
            true => self.client.events(session, last)?,
            false => self.client.events_so_far(session, last)?,
        };
        let mut at = last;
        for _ in 0..most {
            // Who follows a session in which nothing happens comes back later.
            let next = match events.next_within(Duration::from_millis(100)) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) if crate::api::daemon::is_silence(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some(seq) = next.id else { continue };
            ensure!(seq == at + 1, "event {seq} came after {at}");
            at = seq;
            self.book.saw("event followed");
            self.book.note(session, |account| account.events.insert(seq, next.text));
        }
        Ok(())
    }

    fn opens(&mut self) -> Result<()> {
        let profile = match self.random.below(8) {
            0 => PROFILES[2],
            1..4 => PROFILES[1],
            _ => PROFILES[0],
        };
        let delivery = if self.random.below(2) == 0 { "turns" } else { "polled" };
        let body = json!({ "agent": "agent", "delivery": delivery });
        self.book.unanswered.fetch_add(1, Ordering::SeqCst);
        let path = format!("/v1/profiles/{profile}/sessions");
        let Some(answer) = self.call("POST", &path, Some(&body))? else { return Ok(()) };
        self.book.unanswered.fetch_sub(1, Ordering::SeqCst);
        ensure!(answer.status == 201, "{answer:?}");
        let id = answer.body["id"].as_str().context("an id")?;
        self.book.saw("session opened");
        self.book.opened(&format!("{path}/{id}"), delivery)
    }

    fn prompts(&mut self, session: &str) -> Result<()> {
        if self.book.account(session).events.len() > EVENTS {
            return self.deletes(session);
        }
        let (wait, queue) = (self.random.below(2) == 0, self.random.below(3) == 0);
        let (goal, remembers) = self.goal(wait);
        let key = format!("k{}", self.number);
        if let Some(value) = remembers {
            self.book.note(session, |account| {
                account.memory.entry(key.clone()).or_default().asked = value;
            });
        }
        let body = json!({ "goal": goal, "wait": wait, "queue": queue });
        let path = format!("{session}/prompts");
        let Some(answer) = self.call("POST", &path, Some(&body))? else { return Ok(()) };
        match (answer.status, answer.kind()) {
            (200 | 202, _) => {
                let generation = answer.body["generation"].as_u64().context("a generation")?;
                let text = |name: &str| answer.body[name].as_str().unwrap_or_default().to_owned();
                let ended = wait.then(|| (text("status"), text("output")));
                ensure!(answer.body["unrecorded"].is_null(), "{answer:?}");
                self.book.saw(if wait { "turn ended" } else { "turn recorded" });
                self.book.note(session, |account| -> Result<()> {
                    let turn = account.turns.entry(generation).or_default();
                    ensure!(turn.goal.is_empty(), "{session}: generation {generation} came twice");
                    (turn.goal, turn.ended) = (goal, ended);
                    if let (Some(value), 200, "completed") =
                        (remembers, answer.status, text("status").as_str())
                    {
                        account.memory.entry(key).or_default().known = value;
                    }
                    Ok(())
                })
            }
            (409, "busy") => Ok(()),
            (404, _) | (409, _) if self.book.may_be_gone(session) => Ok(()),
            _ => bail!("{session}: {answer:?}"),
        }
    }

    /// A goal that no other prompt has, and the value that it has the session remember.
    fn goal(&mut self, wait: bool) -> (String, Option<u64>) {
        let number = self.book.number();
        let mut lines = vec![format!("say p{number}")];
        let mut remembers = None;
        for _ in 0..self.random.below(4) {
            let line = match self.random.below(10) {
                0 => format!("partial half of {number}"),
                1 => format!("emits {} {}", 1 + self.random.below(20), self.random.below(300)),
                2 => format!("sleep {}", self.random.below(30)),
                3 | 4 => {
                    remembers = Some(number);
                    format!("remember k{} {number}", self.number)
                }
                5 if !wait => "partial until then\ntry sleep 2000".to_owned(),
                6 => "try wait-for-it".to_owned(),
                _ => self.delegates(),
            };
            lines.push(line);
        }
        if self.random.below(10) == 0 {
            lines.push("fail sorry it did not work".to_owned());
        }
        (lines.join("\n"), remembers)
    }

    fn delegates(&mut self) -> String {
        let tasks: Vec<Value> = (0..1 + self.random.below(4)).map(|_| self.task()).collect();
        let mode = if self.random.below(8) == 0 { "inline" } else { "background" };
        let policy = ["inline", "inline", "queue", "refuse"][self.random.below(4) as usize];
        let independent = self.random.below(2) == 0;
        let request = json!({
            "mode": mode,
            "tasks": tasks,
            "independent-completions": independent,
            "policy": policy,
        });
        format!("try delegate {request}")
    }

    fn task(&mut self) -> Value {
        let number = self.book.number();
        let rest = match self.random.below(6) {
            0 => "\npartial a part\nsleep 2000".to_owned(),
            1 => "\nfail sorry not this one".to_owned(),
            2 => format!("\nremember child {number}"),
            3 => format!("\nemits 3 50\nsleep {}", self.random.below(40)),
            _ => String::new(),
        };
        let mut task = json!({ "goal": format!("say c{number}{rest}") });
        if self.random.below(2) == 0 {
            task["group"] = json!(format!("g{}", self.random.below(2)));
        }
        task
    }

    /// Reads completions and acknowledges some.
    fn reads(&mut self, session: &str) -> Result<()> {
        let path = format!("{session}/completions");
        let Some(answer) = self.call("GET", &path, None)? else { return Ok(()) };
        if self.is_gone(session, &answer) {
            return Ok(());
        }
        ensure!(answer.status == 200, "{answer:?}");
        let listed = answer.body["completions"].as_array().context("completions")?.clone();
        for completion in &listed {
            let id = completion["id"].as_str().context("an id")?.to_owned();
            self.book.saw("completion read");
            self.book.note(session, |account| -> Result<()> {
                let before = account.completions.insert(id.clone(), completion.clone());
                let same = before.is_none_or(|before| before == *completion);
                ensure!(same, "{session}: the completion of {id} has changed");
                Ok(())
            })?;
        }
        let Some(completion) = self.random.one_of(&listed) else { return Ok(()) };
        let id = completion["id"].as_str().context("an id")?.to_owned();
        self.book.note(session, |account| account.acknowledging.insert(id.clone()));
        let path = format!("{session}/completions/{id}/acknowledge");
        let Some(answer) = self.call("POST", &path, None)? else { return Ok(()) };
        // Another one, or the turn that brings it, may have been faster.
        if answer.status == 404 {
            return Ok(());
        }
        ensure!(answer.status == 200, "{answer:?}");
        ensure!(answer.body == *completion, "{session}: {id} was {completion}, and is {answer:?}");
        self.book.saw("completion acknowledged");
        self.book.note(session, |account| -> Result<()> {
            ensure!(account.acknowledged.insert(id.clone()), "{session}: {id} was given twice");
            Ok(())
        })
    }

    fn stops(&mut self, session: &str) -> Result<()> {
        let scope = *self.random.one_of(&["turn", "background", "all"]).context("a scope")?;
        let soft = scope == "turn" && self.random.below(2) == 0;
        let kind = if soft { "soft" } else { "hard" };
        let body = json!({ "scope": scope, "kind": kind, "message": "enough" });
        let Some(answer) = self.call("POST", &format!("{session}/stop"), Some(&body))? else {
            return Ok(());
        };
        if self.is_gone(session, &answer) {
            return Ok(());
        }
        ensure!(answer.status == 200, "{answer:?}");
        self.book.saw("stop");
        Ok(())
    }

    fn deletes(&mut self, session: &str) -> Result<()> {
        self.book.note(session, |account| account.deleting += 1);
        let Some(answer) = self.call("DELETE", session, None)? else { return Ok(()) };
        self.book.note(session, |account| {
            account.deleting -= 1;
            account.deleted |= answer.status == 204;
        });
        match answer.status {
            204 => self.book.saw("session deleted"),
            // Somebody works with it, or was faster.
            409 | 404 => {}
            _ => bail!("{answer:?}"),
        }
        Ok(())
    }

    /// Looks at a session and at its units.
    fn looks(&mut self, session: &str) -> Result<()> {
        for path in [session.to_owned(), format!("{session}/delegations")] {
            let Some(answer) = self.call("GET", &path, None)? else { return Ok(()) };
            if self.is_gone(session, &answer) {
                return Ok(());
            }
            ensure!(answer.status == 200, "{answer:?}");
        }
        Ok(())
    }

    fn is_gone(&self, session: &str, answer: &Answer) -> bool {
        answer.status == 404 && self.book.may_be_gone(session)
    }

    fn is_dead(&self) -> bool {
        self.deadly.killed.load(Ordering::SeqCst)
    }

    /// Asks; nothing when the daemon is dead before it answers.
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Option<Answer>> {
        let asked = self.client.begin(method, path, body);
        self.deadly.was_sent();
        match asked.and_then(|asked| asked.answer()) {
            Ok(answer) => {
                self.deadly.was_answered();
                Ok(Some(answer))
            }
            Err(_) if self.is_dead() => Ok(None),
            Err(error) => Err(error.context(format!("{method} {path}"))),
        }
    }
}
