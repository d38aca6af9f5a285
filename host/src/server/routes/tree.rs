//! The tree of work.

use axum::Json;
use axum::extract::State;

use crate::server::api::Route;
use crate::server::app::App;
use crate::server::problem::Problem;
use crate::server::read::Named;
use crate::server::scope::Verb;
use crate::server::view::TreeView;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/tree", Verb::Read, "All running work.", whole).answers::<TreeView>(200),
        Route::get("/v1/profiles/{profile}/tree", Verb::Read, "The running work of a profile.", of)
            .answers::<TreeView>(200),
    ]
}

async fn whole(State(app): State<App>) -> Json<TreeView> {
    Json(TreeView::whole(app.host().tree()))
}

async fn of(
    State(app): State<App>,
    Named(profile): Named<String>,
) -> Result<Json<TreeView>, Problem> {
    let profile = app.profile(&profile)?;
    Ok(Json(TreeView::of(&app.host().tree().snapshot(profile.work()))))
}
