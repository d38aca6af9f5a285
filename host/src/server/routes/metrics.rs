//! The figures, as text for Prometheus.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use crate::server::api::Route;
use crate::server::app::App;
use crate::server::scope::Verb;

/// What the answer is: OpenMetrics, which Prometheus takes as its own.
const MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn routes() -> Vec<Route> {
    const DOES: &str = "The figures of the host, its profiles and the API, for Prometheus.";
    vec![Route::get("/metrics", Verb::Read, DOES, metrics).streams::<String>(200, MEDIA)]
}

async fn metrics(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, MEDIA)], app.metrics())
}
