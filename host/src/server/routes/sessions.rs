//! Sessions: listed, opened, looked at, deleted.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;
use crate::ids::SessionId;
use crate::server::api::Route;
use crate::server::app::App;
use crate::server::problem::{Problem, ProblemKind};
use crate::server::read::{self, Asked, Named};
use crate::server::scope::Verb;
use crate::server::view::{MessageView, SessionView};
use crate::session::Delivery;

/// Sessions in one answer, where nothing else is asked, and the most of them.
const SESSIONS: usize = 100;
const MOST_SESSIONS: usize = 1_000;

/// The same for messages, and the most bytes of them.
const MESSAGES: usize = 100;
const MOST_MESSAGES: usize = 10_000;
const MESSAGE_BYTES: usize = 16 << 20;

/// Which sessions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Page {
    /// Those after this one, in the order of their creation.
    after: Option<String>,
    /// At most so many: 100 where nothing is said, and no more than 1,000.
    limit: Option<usize>,
}

/// Sessions in the order of their creation.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct SessionsView {
    /// The sessions.
    sessions: Vec<SessionView>,
    /// What to ask for as `after` to get more; none when these were the last.
    next: Option<String>,
}

/// A session to be opened.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Opening {
    /// The agent that answers it: the name of a plugin.
    agent: String,
    /// What becomes of the completions of its background units.
    #[serde(default)]
    delivery: DeliveryName,
}

/// What becomes of completions.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum DeliveryName {
    /// Each comes as a turn of its own.
    #[default]
    Turns,
    /// They are listed until they are acknowledged.
    Polled,
    /// Nothing runs in the background.
    Never,
}

impl From<DeliveryName> for Delivery {
    fn from(name: DeliveryName) -> Delivery {
        match name {
            DeliveryName::Turns => Delivery::Turns,
            DeliveryName::Polled => Delivery::Polled,
            DeliveryName::Never => Delivery::Never,
        }
    }
}

/// Which messages.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Newest {
    /// At most so many of the newest: 100 where nothing is said, and no more than 10,000.
    limit: Option<usize>,
}

/// The newest messages, in their order.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct MessagesView {
    /// The messages. Fewer than were asked for where they are long.
    messages: Vec<MessageView>,
}

pub(super) fn routes() -> Vec<Route> {
    const ALL: &str = "/v1/profiles/{profile}/sessions";
    const ONE: &str = "/v1/profiles/{profile}/sessions/{session}";
    const MESSAGES: &str = "/v1/profiles/{profile}/sessions/{session}/messages";
    vec![
        Route::get(ALL, Verb::Read, "The sessions of a profile, page by page.", list)
            .query::<Page>()
            .answers::<SessionsView>(200),
        Route::post(ALL, Verb::Prompt, "Opens a session with an agent.", open)
            .body::<Opening>()
            .fails(&[ProblemKind::Unusable, ProblemKind::Machine, ProblemKind::Limit])
            .answers::<SessionView>(201),
        Route::get(ONE, Verb::Read, "One session, as the store has it.", one)
            .answers::<SessionView>(200),
        Route::delete(ONE, Verb::Admin, "Deletes a session with all that belongs to it.", delete)
            .fails(&[ProblemKind::InUse])
            .answers::<()>(204),
        Route::get(MESSAGES, Verb::Read, "The conversation of a session.", messages)
            .query::<Newest>()
            .answers::<MessagesView>(200),
    ]
}

async fn list(
    State(app): State<App>,
    Named(profile): Named<String>,
    Asked(page): Asked<Page>,
) -> Result<Json<SessionsView>, Problem> {
    let limit = page.limit.unwrap_or(SESSIONS).clamp(1, MOST_SESSIONS);
    let after = page.after.map(SessionId::new);
    let mut rows = app.profile(&profile)?.sessions(after, limit + 1).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
    Ok(Json(SessionsView { sessions: rows.into_iter().map(SessionView::from).collect(), next }))
}

async fn open(
    State(app): State<App>,
    Named(profile): Named<String>,
    read::Json(opening): read::Json<Opening>,
) -> Result<(StatusCode, Json<SessionView>), Problem> {
    let profile = app.profile(&profile)?;
    let session = profile.open(&opening.agent, opening.delivery.into()).await?;
    let row = profile.row(session.id()).await?;
    Ok((StatusCode::CREATED, Json(row.into())))
}

async fn one(
    State(app): State<App>,
    Named((profile, session)): Named<(String, String)>,
) -> Result<Json<SessionView>, Problem> {
    let row = app.profile(&profile)?.row(&SessionId::new(session)).await?;
    Ok(Json(row.into()))
}

async fn delete(
    State(app): State<App>,
    Named((profile, session)): Named<(String, String)>,
) -> Result<StatusCode, Problem> {
    let deleted = app.profile(&profile)?.delete(&SessionId::new(session)).await;
    match deleted {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) if error.kind() == ErrorKind::Usage => {
            Err(Problem::of(ProblemKind::InUse, &error))
        }
        Err(error) => Err(error.into()),
    }
}

async fn messages(
    State(app): State<App>,
    Named((profile, session)): Named<(String, String)>,
    Asked(newest): Asked<Newest>,
) -> Result<Json<MessagesView>, Problem> {
    let limit = newest.limit.unwrap_or(MESSAGES).clamp(1, MOST_MESSAGES);
    let profile = app.profile(&profile)?;
    let rows = profile.store().messages(&SessionId::new(session), limit, MESSAGE_BYTES).await?;
    Ok(Json(MessagesView { messages: rows.into_iter().map(MessageView::from).collect() }))
}
