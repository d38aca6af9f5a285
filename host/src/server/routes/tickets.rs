//! Tickets: who may do something lets somebody else do it once, without handing out what they have themselves (P8).

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::profile::TICKET_LIFE;
use crate::server::api::Route;
use crate::server::app::App;
use crate::server::gate::Who;
use crate::server::problem::{Problem, ProblemKind};
use crate::server::read::{self, Named};
use crate::server::scope::Verb;
use crate::server::ticket::Purpose;
use crate::server::token::TokenId;

/// A ticket to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Wanted {
    /// How long it shall be good for: 30,000 where nothing is said, which is the most.
    life_ms: Option<u64>,
}

/// A ticket that was made. It is here and nowhere else.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct TicketView {
    /// The ticket, as it is to be shown: `Authorization: Ticket …`.
    ticket: String,
    /// What it is good for, once: `follow` or `prompt`.
    purpose: &'static str,
    /// The profile that it is good for.
    profile: String,
    /// The session that it is good for.
    session: String,
    /// How long it is good for.
    life_ms: u64,
}

pub(super) fn routes() -> Vec<Route> {
    const FOLLOW: &str = "/v1/profiles/{profile}/sessions/{session}/tickets/follow";
    const PROMPT: &str = "/v1/profiles/{profile}/sessions/{session}/tickets/prompt";
    let follow = "Makes a ticket, with which somebody can follow the events of the session once.";
    let prompt = "Makes a ticket, with which somebody can start one turn.";
    vec![
        Route::post(FOLLOW, Verb::Read, follow, |app, who, named, wanted| {
            make(Purpose::Follow, app, who, named, wanted)
        })
        .body::<Wanted>()
        .answers::<TicketView>(201),
        Route::post(PROMPT, Verb::Prompt, prompt, |app, who, named, wanted| {
            make(Purpose::Prompt, app, who, named, wanted)
        })
        .body::<Wanted>()
        .answers::<TicketView>(201),
    ]
}

async fn make(
    purpose: Purpose,
    State(app): State<App>,
    Extension(who): Extension<Who>,
    Named((profile, session)): Named<(String, String)>,
    read::Json(wanted): read::Json<Wanted>,
) -> Result<(StatusCode, Json<TicketView>), Problem> {
    let life = wanted.life_ms.map_or(TICKET_LIFE, Duration::from_millis);
    if life > TICKET_LIFE {
        let most = TICKET_LIFE.as_millis();
        let words =
            format!("`life-ms` is {}; a ticket is good for {most} at most", life.as_millis());
        return Err(Problem::new(ProblemKind::BadRequest, words));
    }
    let tickets = app.tickets(&profile)?;
    app.profile(&profile)?.row(&SessionId::new(session.as_str())).await?;
    if purpose == Purpose::Prompt
        && let Some(reason) = app.host().closed()
    {
        let words = format!("the host takes no new work: {reason}");
        return Err(Problem::new(ProblemKind::Refused, words));
    }
    let giver = who.token.as_ref().map_or("", TokenId::as_str);
    let ticket = tickets.issue(&purpose.of(&session), giver, life)?;
    tracing::info!(
        profile,
        session,
        purpose = purpose.as_str(),
        who = &*who.name,
        "a ticket was made"
    );
    let view = TicketView {
        ticket: ticket.reveal().to_owned(),
        purpose: purpose.as_str(),
        profile,
        session,
        life_ms: u64::try_from(life.as_millis()).unwrap_or(u64::MAX),
    };
    Ok((StatusCode::CREATED, Json(view)))
}
