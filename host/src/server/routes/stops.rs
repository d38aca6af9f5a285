//! Stops: of a turn, of a session's background, of all of it, or of any piece of work.

use std::collections::HashSet;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::Profile;
use crate::ids::WorkId;
use crate::server::api::Route;
use crate::server::app::App;
use crate::server::gate::Who;
use crate::server::problem::{Problem, ProblemKind};
use crate::server::read::{self, Named};
use crate::server::scope::Verb;
use crate::server::view::StopKindName;
use crate::session::Generation;
use crate::work::{Gone, Grace, Stop, Tree};

/// A stop of a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SessionStop {
    /// What it reaches; `all` where nothing is said.
    #[serde(default)]
    scope: Scope,
    /// Soft or hard; hard where nothing is said. Only a turn can be stopped softly.
    #[serde(default)]
    kind: Option<StopKindName>,
    /// The words that guests and reports read.
    #[serde(default)]
    message: String,
    /// The execution that is meant. When another one is going on, nothing is stopped and the answer is `stale`.
    #[serde(default)]
    generation: Option<u64>,
    /// Milliseconds after which a soft stop becomes hard; the grace period of the profile where nothing is said.
    #[serde(default)]
    grace_ms: Option<u64>,
}

/// What a stop of a session reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Scope {
    /// The turn that is going on.
    Turn,
    /// What runs in the background.
    Background,
    /// Both. Completions of what was stopped wake nobody.
    #[default]
    All,
}

/// What a stop of a session changed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct SessionStopped {
    /// Pieces of work of the turn.
    turn: usize,
    /// Units in the background.
    background: usize,
    /// Runs beside the turn.
    side_runs: usize,
}

/// A stop.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WorkStop {
    /// Soft or hard; hard where nothing is said.
    #[serde(default)]
    kind: Option<StopKindName>,
    /// The words that guests and reports read.
    #[serde(default)]
    message: String,
    /// Milliseconds after which a soft stop becomes hard; the grace period of the profile where nothing is said.
    #[serde(default)]
    grace_ms: Option<u64>,
}

/// What a stop changed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Reached {
    /// Pieces of work that carry the stop and did not before.
    pub(super) stopped: usize,
}

impl WorkStop {
    /// Refuses words that are too long.
    pub(super) fn check(&self) -> Result<(), Problem> {
        read::short("message", &self.message)
    }

    pub(super) fn stop(&self, who: &Who, grace: Grace) -> Stop {
        stop(self.kind, who, &self.message, self.grace_ms, grace)
    }
}

fn stop(
    kind: Option<StopKindName>,
    who: &Who,
    message: &str,
    grace_ms: Option<u64>,
    usual: Grace,
) -> Stop {
    match kind {
        Some(StopKindName::Soft) => {
            let grace = grace_ms.map_or(usual, |ms| Grace::After(Duration::from_millis(ms)));
            Stop::soft(who.name.as_ref(), message, grace)
        }
        Some(StopKindName::Hard) | None => Stop::hard(who.name.as_ref(), message),
    }
}

pub(super) fn routes() -> Vec<Route> {
    const SESSION: &str = "/v1/profiles/{profile}/sessions/{session}/stop";
    vec![
        Route::post(
            SESSION,
            Verb::Stop,
            "Stops the turn of a session, its background, or both.",
            of_session,
        )
        .body::<SessionStop>()
        .fails(&[ProblemKind::Stale])
        .answers::<SessionStopped>(200),
        Route::post(
            "/v1/profiles/{profile}/work/{work}/stop",
            Verb::Stop,
            "Stops a piece of work of that profile, and everything below it.",
            of_profile,
        )
        .body::<WorkStop>()
        .answers::<Reached>(200),
        Route::post(
            "/v1/work/{work}/stop",
            Verb::Stop,
            "Stops a piece of work, whatever it is, and everything below it.",
            of_host,
        )
        .body::<WorkStop>()
        .answers::<Reached>(200),
    ]
}

async fn of_session(
    State(app): State<App>,
    Extension(who): Extension<Who>,
    Named((profile, session)): Named<(String, String)>,
    read::Json(asked): read::Json<SessionStop>,
) -> Result<Json<SessionStopped>, Problem> {
    let soft = asked.kind == Some(StopKindName::Soft);
    if soft && asked.scope != Scope::Turn {
        let words = "only a turn can be stopped softly: send `\"scope\": \"turn\"`";
        return Err(Problem::new(ProblemKind::BadRequest, words));
    }
    if asked.generation.is_some() && asked.scope == Scope::Background {
        let words = "what runs in the background has no generation: leave it out, or stop the turn";
        return Err(Problem::new(ProblemKind::BadRequest, words));
    }
    read::short("message", &asked.message)?;
    let grace = app.profile(&profile)?.grace();
    let session = app.session(&profile, &session).await?;
    let stop = stop(asked.kind, &who, &asked.message, asked.grace_ms, grace);
    let meant = asked.generation.map(Generation);
    let stopped = match asked.scope {
        Scope::Turn => {
            let turn = session.stop_turn(meant, &stop)?;
            SessionStopped { turn, background: 0, side_runs: 0 }
        }
        Scope::Background => {
            let background = session.stop_background(&who.name, &asked.message);
            SessionStopped { turn: 0, background, side_runs: 0 }
        }
        Scope::All => {
            // One that means an execution that is over stops nothing at all.
            let stopped = session.stop_execution(meant, &who.name, &asked.message)?;
            SessionStopped {
                turn: stopped.turn,
                background: stopped.background,
                side_runs: stopped.side,
            }
        }
    };
    Ok(Json(stopped))
}

async fn of_host(
    State(app): State<App>,
    Extension(who): Extension<Who>,
    Named(work): Named<String>,
    read::Json(asked): read::Json<WorkStop>,
) -> Result<Json<Reached>, Problem> {
    asked.check()?;
    let tree = app.host().tree();
    let work = id(&work)?;
    let profiles = app.profiles().into_iter().filter_map(|listed| listed.state.ok());
    let grace =
        profiles.filter(|profile| holds(tree, profile, work)).map(|profile| profile.grace()).next();
    let grace = grace.unwrap_or_else(|| app.host().grace());
    let stopped = stop_work(tree, work, &asked.stop(&who, grace))?;
    Ok(Json(Reached { stopped }))
}

async fn of_profile(
    State(app): State<App>,
    Extension(who): Extension<Who>,
    Named((profile, work)): Named<(String, String)>,
    read::Json(asked): read::Json<WorkStop>,
) -> Result<Json<Reached>, Problem> {
    asked.check()?;
    let (profile, work) = (app.profile(&profile)?, id(&work)?);
    let tree = app.host().tree();
    if !holds(tree, &profile, work) {
        return Err(Gone { id: work }.into());
    }
    let stopped = stop_work(tree, work, &asked.stop(&who, profile.grace()))?;
    Ok(Json(Reached { stopped }))
}

/// Whether that work is in a profile.
fn holds(tree: &Tree, profile: &Profile, work: WorkId) -> bool {
    tree.snapshot(profile.work()).iter().any(|node| node.id == work)
}

fn id(text: &str) -> Result<WorkId, Problem> {
    text.parse().map_err(|error: crate::ids::NotAnId| Problem::of(ProblemKind::BadRequest, &error))
}

/// Stops that work. What only holds others goes on holding: a stop of it would reach all that it ever holds again, so the
/// executions that it holds now are stopped, and it is not.
fn stop_work(tree: &Tree, id: WorkId, stop: &Stop) -> Result<usize, Problem> {
    let nodes = tree.snapshot(id);
    let whole = nodes.first().ok_or(Gone { id })?;
    if !whole.kind.is_container() {
        return Ok(tree.stop(id, stop)?);
    }
    let (containers, executions): (Vec<_>, Vec<_>) =
        nodes.iter().partition(|node| node.kind.is_container());
    let containers: HashSet<WorkId> = containers.iter().map(|node| node.id).collect();
    let owned =
        executions.iter().filter(|node| node.owner.is_some_and(|id| containers.contains(&id)));
    // One that has ended meanwhile needs no stop.
    Ok(owned.map(|node| tree.stop(node.id, stop).unwrap_or(0)).sum())
}
