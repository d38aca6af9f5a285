//! Runs beside the turn: prompts of their own, and questions that change nothing.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::server::api::Route;
use crate::server::app::App;
use crate::server::problem::{Problem, ProblemKind};
use crate::server::read::{self, Named};
use crate::server::scope::Verb;
use crate::server::view::{AnswerView, SideView};

/// A prompt beside the turn.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SidePrompt {
    /// What the agent shall do.
    goal: String,
    /// Further input for it.
    #[serde(default)]
    input: Option<Value>,
    /// Answer when the run has ended, with its result. Otherwise the answer comes as soon as it is recorded that it has
    /// begun; its end is an event of the session.
    #[serde(default)]
    wait: bool,
    /// Take the result into the conversation when it has ended well; only with `wait`. It is refused while a turn is going on.
    #[serde(default)]
    take_in: bool,
}

/// A side run that has begun.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct SideBegun {
    /// Its name, as events have it.
    run: String,
    /// The name of its work, by which it is stopped.
    work: String,
}

/// A question about the conversation.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Question {
    /// What is asked.
    question: String,
    /// Who answers.
    #[serde(default)]
    to: To,
    /// The model, where a model answers; the default one where nothing is said.
    #[serde(default)]
    model: Option<String>,
}

/// Who answers a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum To {
    /// A fork of the session's agent, which knows the conversation and changes nothing.
    #[default]
    Agent,
    /// A model that the agent may ask, without any guest.
    Model,
}

pub(super) fn routes() -> Vec<Route> {
    const SIDES: &str = "/v1/profiles/{profile}/sessions/{session}/side-runs";
    const ASIDES: &str = "/v1/profiles/{profile}/sessions/{session}/asides";
    vec![
        Route::post(SIDES, Verb::Prompt, "Starts a run beside the turn, with a prompt of its own.", side)
            .body::<SidePrompt>()
            .fails(&[ProblemKind::Busy])
.answers::<SideView>(200)
            .answers::<SideBegun>(202),
        Route::post(
            ASIDES,
            Verb::Prompt,
            "Asks something about the conversation, and changes nothing of it. Who goes away has given the question up.",
            aside,
        )
        .body::<Question>()
        .fails(&[ProblemKind::Busy])
        .answers::<AnswerView>(200),
    ]
}

async fn side(
    State(app): State<App>,
    Named((profile, session)): Named<(String, String)>,
    read::Json(prompt): read::Json<SidePrompt>,
) -> Result<Response, Problem> {
    if prompt.take_in && !prompt.wait {
        let words = "`take-in` needs `wait`: the result is taken in when it is there";
        return Err(Problem::new(ProblemKind::BadRequest, words));
    }
    let session = app.session(&profile, &session).await?;
    let input = prompt.input.map(|input| input.to_string()).unwrap_or_default();
    let mut run = session.side_run(prompt.goal, input)?;
    run.recorded().await?;
    if !prompt.wait {
        let begun = SideBegun { run: run.run().to_string(), work: run.id().to_string() };
        return Ok((StatusCode::ACCEPTED, Json(begun)).into_response());
    }
    let report = run.ended().await;
    if prompt.take_in && report.outcome.status() == "completed" {
        session.take_in(&report).await?;
    }
    Ok(Json(SideView::from(report)).into_response())
}

async fn aside(
    State(app): State<App>,
    Named((profile, session)): Named<(String, String)>,
    read::Json(asked): read::Json<Question>,
) -> Result<Json<AnswerView>, Problem> {
    let session = app.session(&profile, &session).await?;
    let aside = match asked.to {
        To::Agent => session.aside(asked.question)?,
        To::Model => session.ask(asked.question, asked.model.as_deref())?,
    };
    Ok(Json(aside.ended().await.into()))
}
