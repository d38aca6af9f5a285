//! The events of a session, as a stream that can be resumed at every place.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Interval, MissedTickBehavior};

use crate::ids::SessionId;
use crate::server::api::Route;
use crate::server::app::App;
use crate::server::closing::{Phase, Watch};
use crate::server::gate::{Gate, Who};
use crate::server::problem::{Failed, Problem, ProblemKind};
use crate::server::read::{Asked, Named};
use crate::server::scope::{Target, Verb};
use crate::server::ticket::Purpose;
use crate::session::{Event, Events, Session, WatchError};

/// The name of the header with which a client says what it has seen.
const LAST_EVENT_ID: &str = "last-event-id";

/// How often a stream looks whether its client may still follow.
const CHECKED: Duration = Duration::from_secs(1);

/// Which events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct From {
    /// Those after that number. The header `Last-Event-ID` goes before it.
    after: Option<u64>,
    /// Whether to go on with what happens later; `true` where nothing is said.
    follow: Option<bool>,
    /// A ticket, for clients that can set no headers. By now it is used up.
    #[serde(rename = "ticket")]
    _ticket: Option<String>,
}

/// One event: the data of a server-sent event, whose `id` is `seq` and whose `event` is `event`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct EventView {
    /// Its number in the session.
    seq: u64,
    /// When, in milliseconds since 1970 in UTC.
    at_ms: u64,
    /// The run that it belongs to.
    run: String,
    /// What happened. `docs/events.md` has the kinds and what else each of them says.
    event: String,
    /// What else this kind says.
    #[serde(flatten)]
    more: std::collections::BTreeMap<String, Value>,
}

/// What one server-sent event has as its data. Only events of the session have an `id`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Sent {
    /// `event` is the kind of an event of the session.
    Event(EventView),
    /// `lagged`: events passed by before they were sent, because only newer ones are kept.
    Lagged(Missed),
    /// `error`: old events cannot be read, and the stream ends.
    Error(Failed),
    /// `leaving`: the host goes, and the stream goes on. `closing`: the host ends the stream, because it goes itself or because
    /// whoever follows may not do so any more.
    Sign(Sign),
}

/// How many events passed by.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct Missed {
    /// How many.
    missed: u64,
}

/// An event that says all by its name.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Sign {}

pub(super) fn routes() -> Vec<Route> {
    const SEEN: &str =
        "The newest event that was seen: those after it come. It goes before `after`.";
    const EVENTS: &str = "/v1/profiles/{profile}/sessions/{session}/events";
    vec![
        Route::get(EVENTS, Verb::Read, "The events of a session, as server-sent events.", events)
            .query::<From>()
            .header::<u64>(LAST_EVENT_ID, SEEN)
            .takes(Purpose::Follow)
            .streams::<Sent>(200, "text/event-stream"),
    ]
}

async fn events(
    State(app): State<App>,
    Extension(gate): Extension<Arc<dyn Gate>>,
    Extension(who): Extension<Who>,
    Named((profile, session)): Named<(String, String)>,
    Asked(from): Asked<From>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut every = tokio::time::interval(CHECKED);
    // Who has taken nothing for a while is looked at once, not for each second of it.
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let permit = Permit { gate, who, profile, every };
    let profile = app.profile(&permit.profile)?;
    let id = SessionId::new(session);
    let after = match headers.get(LAST_EVENT_ID) {
        Some(value) => number(value.to_str().unwrap_or_default())?,
        None => from.after.unwrap_or(0),
    };
    let session = profile.session(&id).await?;
    // Read after the session is there, so that what it has recorded meanwhile is known.
    let newest = profile.row(&id).await?.last_seq;
    if after > newest {
        let words = format!("the newest event of this session is {newest}; {after} is beyond it");
        return Err(Problem::new(ProblemKind::BadRequest, words));
    }
    let until = (!from.follow.unwrap_or(true)).then_some(newest);
    app.figures().streams().one();
    let follow = Follow {
        events: session.events(after),
        _session: session,
        permit,
        last: after,
        until,
        leaving: app.closing().watch(),
        closing: app.closing().watch(),
        keep_alive: app.keep_alive(),
        state: Stream::Open,
        app,
    };
    let chunks = stream::unfold(follow, |mut follow| async move {
        follow.next().await.map(|chunk| (Ok::<_, Infallible>(chunk), follow))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((kind, Body::from_stream(chunks)).into_response())
}

fn number(text: &str) -> Result<u64, Problem> {
    text.parse().map_err(|_| {
        Problem::new(ProblemKind::BadRequest, "`Last-Event-ID` must be the number of an event")
    })
}

/// One watcher on its way through the events.
struct Follow {
    events: Events,
    /// Keeps the session from being put to sleep.
    _session: Session,
    permit: Permit,
    /// The newest that was given out or missed.
    last: u64,
    /// Where to end.
    until: Option<u64>,
    leaving: Watch,
    closing: Watch,
    keep_alive: Duration,
    state: Stream,
    /// Where it is counted as long as it is there.
    app: App,
}

/// What lets somebody follow. A token can be revoked, or expire, while its stream goes on.
struct Permit {
    gate: Arc<dyn Gate>,
    who: Who,
    profile: String,
    every: Interval,
}

impl Permit {
    /// Waits until whoever follows would not be let in any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: whoever calls it again and again asks the gate as often as who waits.
    async fn lost(&mut self) {
        let target = Target::Profile(&self.profile);
        loop {
            self.every.tick().await;
            if !self.gate.is_still_good(&self.who, target, Verb::Read) {
                return;
            }
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.app.figures().streams().less();
    }
}

#[derive(PartialEq, Eq)]
enum Stream {
    Open,
    /// It was told that the host goes.
    Told,
    Over,
}

impl Follow {
    /// What to send next; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.state == Stream::Over || self.until.is_some_and(|until| self.last >= until) {
            return None;
        }
        let next = tokio::select! {
            biased;
            () = self.leaving.raised(Phase::Leaving), if self.state == Stream::Open => {
                self.state = Stream::Told;
                return Some(own("leaving", &Sent::Sign(Sign {})));
            }
            () = self.permit.lost() => {
                self.state = Stream::Over;
                return Some(own("closing", &Sent::Sign(Sign {})));
            }
            next = self.events.next() => next,
            () = self.closing.reached(Phase::Ending) => {
                self.state = Stream::Over;
                return Some(own("closing", &Sent::Sign(Sign {})));
            }
            () = tokio::time::sleep(self.keep_alive) => return Some(Bytes::from_static(b":\n\n")),
        };
        match next {
            Ok(Some(event)) => {
                self.last = event.seq;
                Some(shown(&event))
            }
            Ok(None) => None,
            Err(WatchError::Lagged(lagged)) => {
                self.last = self.last.saturating_add(lagged.missed);
                Some(own("lagged", &Sent::Lagged(Missed { missed: lagged.missed })))
            }
            Err(error @ WatchError::Store(_)) => {
                self.state = Stream::Over;
                let failed = Failed { error: Problem::of(ProblemKind::Store, &error) };
                Some(own("error", &Sent::Error(failed)))
            }
        }
    }
}

/// An event of the stream itself.
fn own(name: &str, sent: &Sent) -> Bytes {
    let data = serde_json::to_string(sent).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// One event, as it is sent. JSON has no line breaks, so that nothing of a guest's can end a line here.
fn shown(event: &Event) -> Bytes {
    let data = serde_json::to_value(event).unwrap_or_default();
    let name = data.get("event").and_then(Value::as_str).unwrap_or("unknown");
    format!("id: {}\nevent: {name}\ndata: {data}\n\n", event.seq).into()
}
