//! The spans of a session's work, for whoever follows it through `tracing`. One that nobody asked for costs a look.

use tracing::{Span, info_span};

use super::run::Plan;
use super::session::Shared;
use crate::delegation::DelegationId;
use crate::work::Kind;

/// The target of all of them, by which a filter can name them.
pub(super) const TARGET: &str = "checkrein::run";

/// The span of a run.
pub(super) fn of_run(session: &Shared, plan: &Plan) -> Span {
    let (kind, agent) = (plan.work.kind(), &plan.agent.plugged.name);
    macro_rules! run {
        ($name:literal) => {
            info_span!(
                target: TARGET,
                $name,
                profile = session.profile.as_deref(),
                session = %session.id,
                run = %plan.run,
                kind = kind.as_str(),
                agent = %agent,
            )
        };
    }
    #[allow(clippy::wildcard_enum_match_arm, reason = "other kinds of work run no agents")]
    match kind {
        Kind::Turn => run!("turn"),
        Kind::Child => run!("child"),
        Kind::SideRun => run!("side run"),
        _ => run!("run"),
    }
}

/// The span of a call of a tool. A guest may ask for one of any name: only those that there are have theirs shown.
pub(super) fn of_tool_call(session: &Shared, run: &str, tool: Option<&str>) -> Span {
    info_span!(
        target: TARGET,
        "tool call",
        profile = session.profile.as_deref(),
        session = %session.id,
        run,
        kind = Kind::ToolCall.as_str(),
        tool,
    )
}

/// The span of a request to a model.
pub(super) fn of_model_request(session: &Shared, run: &str, model: &str) -> Span {
    info_span!(
        target: TARGET,
        "model request",
        profile = session.profile.as_deref(),
        session = %session.id,
        run,
        kind = Kind::ModelRequest.as_str(),
        model,
    )
}

/// The span of a unit in the background.
pub(super) fn of_unit(session: &Shared, run: &str, unit: DelegationId) -> Span {
    info_span!(
        target: TARGET,
        "unit",
        profile = session.profile.as_deref(),
        session = %session.id,
        run,
        kind = Kind::Unit.as_str(),
        unit = %unit,
    )
}
