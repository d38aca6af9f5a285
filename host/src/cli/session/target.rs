//! One session, wherever it is: the same questions and the same answers.

use std::io::Write;

use checkrein::HomeStore;
use checkrein::delegation::{Completion, DelegationId};
use checkrein::ids::SessionId;
use checkrein::server::{CompletionView, MessageView, SessionView};
use checkrein::session::Event;
use checkrein::store::{Look, RunningTurn, Store, UnitState};
use serde::Serialize;
use serde_json::Value;

use super::place::{Place, unread};
use crate::cli::code::Code;
use crate::cli::daemon::client::Client;
use crate::cli::daemon::events::{Events, Told};
use crate::cli::daemon::session_path;
use crate::cli::problem::Problem;

/// The most bytes of messages that are read at one time, and of events.
const MESSAGE_BYTES: usize = 16 << 20;
const EVENT_BYTES: usize = 4 << 20;

/// Events that are read at one time.
const EVENTS: usize = 1_000;

/// A session.
pub(super) enum Target {
    /// Of a daemon: the path of its routes.
    Daemon(Client, String),
    /// Of a home.
    Home(Look, SessionId),
}

impl Target {
    /// Finds out where it is. Whether it is there is seen when it is asked for something.
    pub(super) async fn find(place: &Place, named: &str) -> Result<Target, Problem> {
        match place.home() {
            Some(home) => Ok(Target::Home(HomeStore::look(home)?, SessionId::new(named))),
            None => {
                let client = place.client()?;
                let path = session_path(&client, named).await?;
                Ok(Target::Daemon(client, path))
            }
        }
    }

    /// What the store says of it.
    pub(super) async fn row(&self) -> Result<Value, Problem> {
        match self {
            Target::Daemon(client, path) => client.get(path).await,
            Target::Home(look, id) => {
                let row = look.session(id).await.map_err(|error| unread(&error))?;
                value(&SessionView::from(row))
            }
        }
    }

    /// The newest messages, in their order.
    pub(super) async fn messages(&self, limit: usize) -> Result<Vec<Value>, Problem> {
        match self {
            Target::Daemon(client, path) => {
                let answer = client.get(&format!("{path}/messages?limit={limit}")).await?;
                Ok(list(&answer["messages"]))
            }
            Target::Home(look, id) => {
                let rows = look.messages(id, limit, MESSAGE_BYTES).await;
                let rows = rows.map_err(|error| unread(&error))?;
                rows.into_iter().map(|row| value(&MessageView::from(row))).collect()
            }
        }
    }

    /// The events after that number, up to the newest.
    pub(super) async fn events(&self, after: u64) -> Result<Vec<Event>, Problem> {
        let mut all = Vec::new();
        match self {
            Target::Daemon(client, path) => {
                let path = format!("{path}/events?after={after}&follow=false");
                let mut events = Events::new(client.stream(&path).await?);
                while let Some(told) = events.next().await? {
                    if let Told::Event(event) = told {
                        all.push(*event);
                    }
                }
            }
            Target::Home(look, id) => loop {
                let after = all.last().map_or(after, |event: &Event| event.seq);
                let page = look.events(id, after, EVENTS, EVENT_BYTES).await;
                let page = page.map_err(|error| unread(&error))?;
                if page.events.is_empty() {
                    break;
                }
                all.extend(page.events.iter().map(Event::from_row));
            },
        }
        Ok(all)
    }

    /// The completions that nobody has acknowledged, in the order in which the units ended.
    pub(super) async fn unread(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Target::Daemon(client, path) => {
                let answer = client.get(&format!("{path}/completions")).await?;
                Ok(list(&answer["completions"]))
            }
            Target::Home(look, id) => {
                let mut units = look.units(id, 0).await.map_err(|error| unread(&error))?;
                units.retain(|unit| unit.state == UnitState::Ended);
                units.sort_by_key(|unit| unit.ended);
                let completion = |unit: &checkrein::store::UnitRow| {
                    let body = unit.completion.as_deref().unwrap_or_default();
                    let completion: Completion = serde_json::from_str(body).map_err(|error| {
                        let attempt = format!("could not read a completion of {id}");
                        Problem::because(Code::Failed, attempt, error)
                    })?;
                    let completion = completion.of(DelegationId::new(unit.unit), id.clone());
                    value(&CompletionView::from(&completion))
                };
                units.iter().map(completion).collect()
            }
        }
    }

    /// Writes it as JSON Lines.
    pub(super) async fn export(
        &self,
        running: RunningTurn,
        out: &mut impl Write,
    ) -> Result<(), Problem> {
        let unwritten =
            |error| Problem::because(Code::Failed, "could not write the session", error);
        match self {
            Target::Daemon(client, path) => {
                let running = running == RunningTurn::CutOff;
                let path = format!("{path}/export?running={running}");
                let mut answer = client.stream(&path).await?;
                while let Some(part) = answer.part().await? {
                    out.write_all(&part).map_err(unwritten)?;
                }
                out.flush().map_err(unwritten)
            }
            Target::Home(look, id) => {
                let archive = HomeStore::export(look, id, running).await?;
                archive.write_to(out).map_err(unwritten)
            }
        }
    }
}

fn list(answer: &Value) -> Vec<Value> {
    answer.as_array().cloned().unwrap_or_default()
}

fn value(view: &impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(view)
        .map_err(|error| Problem::because(Code::Failed, "could not show what is recorded", error))
}
