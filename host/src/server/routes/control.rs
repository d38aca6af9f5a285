//! What operators ask of the host as a whole.

use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::server::api::Route;
use crate::server::app::{App, ShutdownRequest};
use crate::server::gate::Who;
use crate::server::problem::Problem;
use crate::server::read;
use crate::server::scope::Verb;
use crate::server::served::Reconciled;
use crate::server::view::TreeView;

/// The longest that a drain is waited for in one request.
const LONGEST: Duration = Duration::from_secs(600);

/// A drain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Drain {
    /// Why, as refusals say it.
    #[serde(default)]
    reason: Option<String>,
    /// How long to wait for what is there, in milliseconds: not at all where nothing is said, and at most ten minutes.
    #[serde(default)]
    wait_ms: u64,
}

/// How far a drain has come.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct DrainView {
    /// Whether nothing is left, and all that has happened is recorded.
    drained: bool,
    /// What is left.
    left: TreeView,
    /// Profiles in which something has happened that is not recorded yet.
    unrecorded: Vec<String>,
}

/// A shutdown.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Shutdown {
    /// Why.
    #[serde(default)]
    reason: Option<String>,
    /// Stop hard what is there, without waiting for it.
    #[serde(default)]
    at_once: bool,
}

/// A shutdown has begun, or had already.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct ShutdownBegun {
    /// Executions that there were when it was asked for.
    executions: usize,
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/v1/reload",
            Verb::Admin,
            "Looks again at the profiles, their configurations, and the plugins and keys that those name. Turns that run keep what they began with.",
            reload,
        )
        .answers::<Reconciled>(200),
        Route::post("/v1/drain", Verb::Admin, "Takes no new work from now on, and stops nothing. Waits until nothing is left and all is recorded.", drain)
            .body::<Drain>()
            .answers::<DrainView>(200),
        Route::post("/v1/shutdown", Verb::Admin, "Shuts the host down. A second request joins the first.", shutdown)
            .body::<Shutdown>()
            .answers::<ShutdownBegun>(202),
    ]
}

async fn reload(State(app): State<App>) -> Json<Reconciled> {
    Json(app.reconcile().await)
}

async fn drain(
    State(app): State<App>,
    read::Json(asked): read::Json<Drain>,
) -> Result<Json<DrainView>, Problem> {
    read::short("reason", asked.reason.as_deref().unwrap_or_default())?;
    let reason = asked.reason.as_deref().unwrap_or("the host is draining");
    let bound = Duration::from_millis(asked.wait_ms).min(LONGEST);
    let until = Instant::now() + bound;
    let left = match app.host().drain(reason, bound).await {
        Ok(_) => Vec::new(),
        Err(left) => left.nodes,
    };
    // The work of a turn is gone before its end is recorded.
    let unrecorded = app.recorded(until.saturating_duration_since(Instant::now())).await;
    let drained = left.is_empty() && unrecorded.is_empty();
    Ok(Json(DrainView { drained, left: TreeView::of(&left), unrecorded }))
}

async fn shutdown(
    State(app): State<App>,
    Extension(who): Extension<Who>,
    read::Json(asked): read::Json<Shutdown>,
) -> Result<(StatusCode, Json<ShutdownBegun>), Problem> {
    read::short("reason", asked.reason.as_deref().unwrap_or_default())?;
    let reason = asked.reason.unwrap_or_else(|| "the API was asked to shut down".to_owned());
    let tree = app.host().tree();
    let executions = tree.count(tree.root());
    app.shut_down(ShutdownRequest { issuer: who.name, reason, at_once: asked.at_once });
    Ok((StatusCode::ACCEPTED, Json(ShutdownBegun { executions })))
}
