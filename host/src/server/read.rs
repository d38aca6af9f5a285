//! Reading what a client sent: bounded in size and time, and strict.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::app::App;
use super::problem::{Problem, ProblemKind};

/// A body that is JSON. One with a field that nobody reads is refused, where its type denies unknown fields.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Json<T>, Problem> {
        let bytes = body(request, app, "application/json", "JSON").await?;
        // A list would be read as the fields of a request, in their order.
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            let words = "the body must be a JSON object";
            return Err(Problem::new(ProblemKind::BadRequest, words));
        }
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Json(value)),
            Err(error) => {
                let words = format!("the body cannot be read: {error}");
                Err(Problem::new(ProblemKind::BadRequest, words))
            }
        }
    }
}

/// The most bytes of words that stand on work and in reports, such as the message of a stop.
const SHORT: usize = 4 << 10;

/// Refuses words that are too long to stand on work and in reports.
pub(super) fn short(field: &str, words: &str) -> Result<(), Problem> {
    if words.len() <= SHORT {
        return Ok(());
    }
    let words = format!("`{field}` has {} bytes; at most {SHORT} are taken", words.len());
    Err(Problem::new(ProblemKind::BadRequest, words))
}

/// A body that is JSON Lines. They are not looked at here.
pub(super) struct Lines(pub(super) Bytes);

/// What such a body says of itself.
pub(super) const LINES: &str = "application/x-ndjson";

impl FromRequest<App> for Lines {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Lines, Problem> {
        body(request, app, LINES, "JSON Lines").await.map(Lines)
    }
}

async fn body(request: Request, app: &App, media: &str, what: &str) -> Result<Bytes, Problem> {
    // A page in a browser can send other types to a loopback address without asking first.
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case(media) {
        let words = format!("the body must be {what}: send `Content-Type: {media}`");
        return Err(Problem::new(ProblemKind::NotJson, words));
    }
    let within = app.body_time();
    let read = tokio::time::timeout(within, Bytes::from_request(request, &())).await;
    read.map_err(|_| too_slow(within))?.map_err(|error| unread(&error))
}

fn too_slow(within: Duration) -> Problem {
    Problem::new(ProblemKind::TooSlow, format!("the body did not come within {within:?}"))
}

fn unread(error: &BytesRejection) -> Problem {
    let kind = match error.status().as_u16() {
        413 => ProblemKind::TooLarge,
        _ => ProblemKind::BadRequest,
    };
    Problem::new(kind, format!("the body cannot be read: {}", error.body_text()))
}

/// The part of the address behind `?`.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Asked<T>, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(value)) => Ok(Asked(value)),
            Err(error) => Err(Problem::new(ProblemKind::BadRequest, error.body_text())),
        }
    }
}

/// The names in the path.
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named<T>, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Named(value)),
            Err(error) => Err(misnamed(&error)),
        }
    }
}

fn misnamed(error: &PathRejection) -> Problem {
    Problem::new(ProblemKind::BadRequest, error.body_text())
}
