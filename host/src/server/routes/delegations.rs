//! What a session has in the background, and what came of it.

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::stops::{Reached, WorkStop};
use crate::delegation::{DelegationId, NotADelegation, UnknownUnit};
use crate::server::api::Route;
use crate::server::app::App;
use crate::server::gate::Who;
use crate::server::problem::{Problem, ProblemKind};
use crate::server::read::{self, Named};
use crate::server::scope::Verb;
use crate::server::view::{CompletionView, DelegationView};

/// Units in the background.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct DelegationsView {
    /// Those that are open, and those whose completion is not acknowledged.
    delegations: Vec<DelegationView>,
}

/// What came of units in the background.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct CompletionsView {
    /// Those that are not acknowledged, in the order in which the units ended.
    completions: Vec<CompletionView>,
}

pub(super) fn routes() -> Vec<Route> {
    const DELEGATIONS: &str = "/v1/profiles/{profile}/sessions/{session}/delegations";
    const DELEGATION: &str = "/v1/profiles/{profile}/sessions/{session}/delegations/{delegation}";
    const STOP: &str = "/v1/profiles/{profile}/sessions/{session}/delegations/{delegation}/stop";
    const COMPLETIONS: &str = "/v1/profiles/{profile}/sessions/{session}/completions";
    const ACKNOWLEDGE: &str =
        "/v1/profiles/{profile}/sessions/{session}/completions/{delegation}/acknowledge";
    vec![
        Route::get(DELEGATIONS, Verb::Read, "The background units of a session.", list)
            .answers::<DelegationsView>(200),
        Route::get(DELEGATION, Verb::Read, "One background unit.", one)
            .answers::<DelegationView>(200),
        Route::post(STOP, Verb::Stop, "Stops a background unit.", stop)
            .body::<WorkStop>()
            .answers::<Reached>(200),
        Route::get(
            COMPLETIONS,
            Verb::Read,
            "The completions that nobody has acknowledged.",
            completions,
        )
        .answers::<CompletionsView>(200),
        Route::post(
            ACKNOWLEDGE,
            Verb::Prompt,
            "Acknowledges a completion, once. Answers when that is recorded.",
            acknowledge,
        )
        .answers::<CompletionView>(200),
    ]
}

async fn list(
    State(app): State<App>,
    Named((profile, session)): Named<(String, String)>,
) -> Result<Json<DelegationsView>, Problem> {
    let units = app.session(&profile, &session).await?.delegations(&[])?;
    let delegations = units.into_iter().map(DelegationView::from).collect();
    Ok(Json(DelegationsView { delegations }))
}

async fn one(
    State(app): State<App>,
    Named((profile, session, unit)): Named<(String, String, String)>,
) -> Result<Json<DelegationView>, Problem> {
    let id = id(&unit)?;
    let units = app.session(&profile, &session).await?.delegations(&[id])?;
    let unit = units.into_iter().next().ok_or(UnknownUnit { id: Some(id) })?;
    Ok(Json(unit.into()))
}

async fn stop(
    State(app): State<App>,
    Extension(who): Extension<Who>,
    Named((profile, session, unit)): Named<(String, String, String)>,
    read::Json(asked): read::Json<WorkStop>,
) -> Result<Json<Reached>, Problem> {
    asked.check()?;
    let grace = app.profile(&profile)?.grace();
    let session = app.session(&profile, &session).await?;
    let stop = asked.stop(&who, grace);
    let stopped = session.stop_delegations(&[id(&unit)?], &stop)?;
    Ok(Json(Reached { stopped }))
}

async fn completions(
    State(app): State<App>,
    Named((profile, session)): Named<(String, String)>,
) -> Result<Json<CompletionsView>, Problem> {
    let completions = app.session(&profile, &session).await?.completions();
    let completions = completions.iter().map(|completion| (&**completion).into()).collect();
    Ok(Json(CompletionsView { completions }))
}

async fn acknowledge(
    State(app): State<App>,
    Named((profile, session, unit)): Named<(String, String, String)>,
) -> Result<Json<CompletionView>, Problem> {
    let id = id(&unit)?;
    let session = app.session(&profile, &session).await?;
    match session.acknowledge(id).await? {
        Some(completion) => Ok(Json((&*completion).into())),
        None => {
            let words = format!("no completion of {id} waits to be acknowledged");
            Err(Problem::new(ProblemKind::NotFound, words))
        }
    }
}

fn id(text: &str) -> Result<DelegationId, Problem> {
    text.parse().map_err(|error: NotADelegation| Problem::of(ProblemKind::BadRequest, &error))
}
