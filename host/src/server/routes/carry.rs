//! Sessions that are taken out and read in, and the room that a profile takes.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::ErrorKind;
use crate::host::Compacted;
use crate::ids::SessionId;
use crate::server::api::Route;
use crate::server::app::App;
use crate::server::problem::{Problem, ProblemKind};
use crate::server::read::{Asked, LINES, Lines, Named};
use crate::server::scope::Verb;
use crate::server::view::SessionView;
use crate::store::{Archive, RunningTurn};

/// Bytes that are sent at one time, if a line is not longer.
const PIECE: usize = 64 << 10;

/// What is exported.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Export {
    /// Also while a turn is going on: with what is recorded so far.
    #[serde(default)]
    running: bool,
}

/// What came of a compaction.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct CompactedView {
    /// Bytes of the database before it.
    before: u64,
    /// Bytes of it now.
    after: u64,
}

impl From<Compacted> for CompactedView {
    fn from(Compacted { before, after }: Compacted) -> CompactedView {
        CompactedView { before, after }
    }
}

pub(super) fn routes() -> Vec<Route> {
    const EXPORT: &str = "/v1/profiles/{profile}/sessions/{session}/export";
    const IMPORT: &str = "/v1/profiles/{profile}/sessions/import";
    const COMPACT: &str = "/v1/profiles/{profile}/compact";
    vec![
        Route::get(
            EXPORT,
            Verb::Read,
            "A session as JSON Lines, as docs/session-export.md has them.",
            export,
        )
        .query::<Export>()
        .fails(&[ProblemKind::Busy])
        .streams::<String>(200, LINES),
        Route::post(
            IMPORT,
            Verb::Prompt,
            "Reads in a session that was exported, under a new name.",
            import,
        )
        .carries(LINES)
        .fails(&[ProblemKind::InUse, ProblemKind::Limit])
        .answers::<SessionView>(201),
        Route::post(
            COMPACT,
            Verb::Admin,
            "Drops what may be dropped from the store of a profile, and gives room back.",
            compact,
        )
        .fails(&[ProblemKind::InUse, ProblemKind::Machine])
        .answers::<CompactedView>(200),
    ]
}

async fn export(
    State(app): State<App>,
    Named((profile, session)): Named<(String, String)>,
    place: Transfer,
    Asked(asked): Asked<Export>,
) -> Result<Response, Problem> {
    let profile = app.profile(&profile)?;
    let running = if asked.running { RunningTurn::CutOff } else { RunningTurn::Refuse };
    let archive = profile.export(&SessionId::new(session), running).await;
    let archive = archive.map_err(|error| match error.kind() == ErrorKind::Refused {
        true => Problem::of(ProblemKind::Busy, &error),
        false => error.into(),
    })?;
    let mut lines = lines(archive);
    let pieces = std::iter::from_fn(move || {
        let _until_the_end = &place;
        lines.next()
    });
    let body = Body::from_stream(stream::iter(pieces));
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(LINES))], body).into_response())
}

/// The lines of a session in pieces, each put into words when it is asked for.
fn lines(archive: Archive) -> impl Iterator<Item = std::io::Result<Bytes>> + Send {
    let mut lines = archive.into_lines();
    std::iter::from_fn(move || {
        let mut piece = Vec::new();
        while piece.len() < PIECE {
            match lines.next() {
                Some(Ok(line)) => piece.extend_from_slice(&line),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        (!piece.is_empty()).then(|| Ok(piece.into()))
    })
}

/// A place for a session on its way in, held before any of it is read.
struct Transfer {
    _place: OwnedSemaphorePermit,
}

impl FromRequestParts<App> for Transfer {
    type Rejection = Problem;

    async fn from_request_parts(_parts: &mut Parts, app: &App) -> Result<Transfer, Problem> {
        match Arc::clone(app.transfers()).try_acquire_owned() {
            Ok(place) => Ok(Transfer { _place: place }),
            Err(_) => Err(Problem::crowded("the host reads and writes as many sessions as it may")),
        }
    }
}

async fn import(
    State(app): State<App>,
    Named(profile): Named<String>,
    place: Transfer,
    Lines(lines): Lines,
) -> Result<(StatusCode, Json<SessionView>), Problem> {
    let profile = app.profile(&profile)?;
    let id = profile.import_lines(lines, app.import_bytes() as u64).await?;
    drop(place);
    let row = profile.row(&id).await?;
    Ok((StatusCode::CREATED, Json(row.into())))
}

async fn compact(
    State(app): State<App>,
    Named(profile): Named<String>,
) -> Result<Json<CompactedView>, Problem> {
    Ok(Json(app.profile(&profile)?.compact().await?.into()))
}
