//! Prompts: a turn is started, and its end is waited for or not.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::server::api::Route;
use crate::server::app::App;
use crate::server::problem::{Problem, ProblemKind};
use crate::server::read::{self, Named};
use crate::server::scope::Verb;
use crate::server::ticket::Purpose;
use crate::server::view::TurnView;

/// An input of a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Prompt {
    /// What the agent shall do.
    goal: String,
    /// Further input for it.
    #[serde(default)]
    input: Option<Value>,
    /// Answer when the turn has ended, with its result. Otherwise the answer comes as soon as it is recorded that the turn
    /// has begun.
    #[serde(default)]
    wait: bool,
    /// Stand in line while a turn is going on. Otherwise the answer is `busy`. Who goes away leaves the line.
    #[serde(default)]
    queue: bool,
}

/// A turn that has begun.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct Begun {
    /// Which execution of the session it is. Stops can name it.
    generation: u64,
    /// The name of its work.
    work: String,
}

pub(super) fn routes() -> Vec<Route> {
    const PROMPTS: &str = "/v1/profiles/{profile}/sessions/{session}/prompts";
    vec![
        Route::post(PROMPTS, Verb::Prompt, "Starts a turn.", prompt)
            .body::<Prompt>()
            .takes(Purpose::Prompt)
            .fails(&[ProblemKind::Busy, ProblemKind::Limit])
            .answers::<TurnView>(200)
            .answers::<Begun>(202),
    ]
}

async fn prompt(
    State(app): State<App>,
    Named((profile, session)): Named<(String, String)>,
    read::Json(prompt): read::Json<Prompt>,
) -> Result<Response, Problem> {
    let session = app.session(&profile, &session).await?;
    let input = prompt.input.map(|input| input.to_string()).unwrap_or_default();
    let mut turn = match prompt.queue {
        true => session.prompt_in_turn(prompt.goal, input).await?,
        false => session.prompt(prompt.goal, input)?,
    };
    turn.recorded().await?;
    if prompt.wait {
        return Ok(Json(TurnView::from(turn.ended().await)).into_response());
    }
    let begun = Begun { generation: turn.generation().0, work: turn.id().to_string() };
    Ok((StatusCode::ACCEPTED, Json(begun)).into_response())
}
