//! Whether the process lives, and whether it takes work.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::server::api::Route;
use crate::server::app::App;
use crate::server::gate::{Asking, Gate};
use crate::server::rate::Peer;
use crate::server::scope::{Target, Verb};

/// Whether the process lives.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct Alive {
    /// Always true: who does not live does not answer.
    alive: bool,
}

/// Whether the host takes work.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct Ready {
    /// Whether it does.
    ready: bool,
    /// Why not. Only whoever may read the host is told.
    reasons: Vec<Reason>,
}

/// Something that is not as it should be.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct Reason {
    /// `draining`, `store` or `parked`. Parked profiles do not make the host unready: the others are served.
    kind: String,
    /// The profile that it is about; none for the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    /// What is wrong.
    detail: String,
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::open("/livez", "Whether the process lives.", alive).answers::<Alive>(200),
        Route::open("/readyz", "Whether the host takes work, and why not.", ready)
            .answers::<Ready>(200)
            .answers::<Ready>(503),
    ]
}

async fn alive() -> Json<Alive> {
    Json(Alive { alive: true })
}

async fn ready(
    State(app): State<App>,
    Extension(gate): Extension<Arc<dyn Gate>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Response {
    let mut reasons = Vec::new();
    if let Some(detail) = app.host().closed() {
        reasons.push(Reason {
            kind: "draining".to_owned(),
            profile: None,
            detail: detail.to_string(),
        });
    }
    for listed in app.profiles() {
        let (kind, detail) = match listed.state {
            Ok(profile) => ("store", profile.health().failing),
            Err(why) => ("parked", Some(why)),
        };
        if let Some(detail) = detail {
            reasons.push(Reason { kind: kind.to_owned(), profile: Some(listed.name), detail });
        }
    }
    let ready = reasons.iter().all(|reason| reason.kind == "parked");
    let authorization = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let asking = Asking {
        peer: peer.map(|Extension(peer)| peer),
        authorization,
        target: Target::Host,
        verb: Verb::Read,
    };
    if gate.check(&asking).is_err() {
        reasons.clear();
    }
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready, reasons })).into_response()
}
