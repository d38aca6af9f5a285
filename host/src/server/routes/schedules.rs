//! Runs that begin by the clock: when they are due, and what came of the newest.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::server::api::Route;
use crate::server::app::App;
use crate::server::problem::Problem;
use crate::server::read::Named;
use crate::server::scope::Verb;
use crate::server::view::ScheduleView;

/// The schedules of a profile.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct SchedulesView {
    /// All of them, by name.
    schedules: Vec<ScheduleView>,
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/v1/profiles/{profile}/schedules",
            Verb::Read,
            "The schedules of a profile, and what came of their newest runs.",
            list,
        )
        .answers::<SchedulesView>(200),
    ]
}

async fn list(
    State(app): State<App>,
    Named(profile): Named<String>,
) -> Result<Json<SchedulesView>, Problem> {
    let schedules = app.profile(&profile)?.schedules().list();
    Ok(Json(SchedulesView { schedules: schedules.into_iter().map(ScheduleView::from).collect() }))
}
