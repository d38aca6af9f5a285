//! The profiles, and the plugins of each.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::server::api::Route;
use crate::server::app::App;
use crate::server::problem::Problem;
use crate::server::read::Named;
use crate::server::scope::Verb;
use crate::server::served::Listed;
use crate::server::view::{HealthView, PluginsView};

/// All profiles.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct ProfilesView {
    /// By name.
    profiles: Vec<ProfileView>,
}

/// A profile.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct ProfileView {
    /// Its name.
    name: String,
    /// Its folder on the host.
    home: String,
    /// Whether it is served.
    served: bool,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The name of its node in the tree of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<String>,
    /// Executions that are going on in it.
    executions: usize,
    /// How its store is.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<HealthView>,
}

impl From<Listed> for ProfileView {
    fn from(listed: Listed) -> ProfileView {
        let Listed { name, home, state } = listed;
        let home = home.display().to_string();
        match state {
            Ok(profile) => ProfileView {
                name,
                home,
                served: true,
                reason: None,
                work: Some(profile.work().to_string()),
                executions: profile.host().tree().count(profile.work()),
                store: Some(profile.health().into()),
            },
            Err(reason) => ProfileView {
                name,
                home,
                served: false,
                reason: Some(reason),
                work: None,
                executions: 0,
                store: None,
            },
        }
    }
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/v1/profiles",
            Verb::Read,
            "The profiles, also those that are not served.",
            all,
        )
        .answers::<ProfilesView>(200),
        Route::get("/v1/profiles/{profile}", Verb::Read, "One profile.", one)
            .answers::<ProfileView>(200),
        Route::get(
            "/v1/profiles/{profile}/plugins",
            Verb::Read,
            "The plugins of a profile.",
            plugins,
        )
        .answers::<PluginsView>(200),
    ]
}

async fn all(State(app): State<App>) -> Json<ProfilesView> {
    Json(ProfilesView { profiles: app.profiles().into_iter().map(ProfileView::from).collect() })
}

async fn one(
    State(app): State<App>,
    Named(name): Named<String>,
) -> Result<Json<ProfileView>, Problem> {
    match app.profiles().into_iter().find(|listed| listed.name == name) {
        Some(listed) => Ok(Json(listed.into())),
        // Says that there is none.
        None => app.profile(&name).map(|profile| {
            let (name, home) = (name.clone(), profile.home().to_owned());
            Json(Listed { name, home, state: Ok(profile) }.into())
        }),
    }
}

async fn plugins(
    State(app): State<App>,
    Named(name): Named<String>,
) -> Result<Json<PluginsView>, Problem> {
    Ok(Json(app.profile(&name)?.look(|catalogue, _| catalogue.into())))
}
