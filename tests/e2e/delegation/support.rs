//! What the tests of delegation start from.

use checkrein::session::{Event, EventKind, Session};
use checkrein_testkit::TestHost;
use serde_json::{Value, json};

use crate::start::Result;

/// One task of the same agent.
pub(crate) fn task(goal: &str) -> Value {
    json!({ "goal": goal })
}

/// The step by which the test agent hands out tasks.
pub(crate) fn delegate(mode: &str, tasks: &[Value], more: &Value) -> String {
    let mut request = json!({ "mode": mode, "tasks": tasks });
    if let (Some(request), Some(more)) = (request.as_object_mut(), more.as_object()) {
        request.extend(more.clone());
    }
    format!("delegate {request}")
}

/// Hands out tasks inside the call.
pub(crate) fn inline(tasks: &[Value]) -> String {
    delegate("inline", tasks, &json!({}))
}

/// Hands out tasks in the background, as one unit.
pub(crate) fn background(tasks: &[Value]) -> String {
    delegate("background", tasks, &json!({}))
}

/// What a line of an agent's answer says.
pub(crate) fn read(line: &str) -> Result<Value> {
    serde_json::from_str(line).map_err(|error| anyhow::anyhow!("{line}: {error}"))
}

/// The statuses of results, in their order.
pub(crate) fn statuses(results: &Value) -> Vec<&str> {
    let results = results.as_array().map_or(&[][..], Vec::as_slice);
    results.iter().filter_map(|result| result["status"].as_str()).collect()
}

/// Everything that has happened in a session so far.
pub(crate) fn events(session: &Session) -> Vec<Event> {
    let mut events = session.events(0);
    std::iter::from_fn(|| events.try_next().ok().flatten()).collect()
}

/// Waits for the first event of which `found` makes something.
pub(crate) async fn event<T>(
    session: &Session,
    what: &str,
    mut found: impl FnMut(&Event) -> Option<T>,
) -> Result<T> {
    let mut events = session.events(0);
    let looking = async {
        while let Some(event) = events.next().await? {
            if let Some(found) = found(&event) {
                return Ok(found);
            }
        }
        anyhow::bail!("the session has ended")
    };
    checkrein_testkit::within(&format!("{what}; so far: {:#?}", self::events(session)), looking)
        .await?
}

/// Waits until the last unit has gone, whose node goes when its completion can be read, and checks that nothing is left.
pub(crate) async fn over(host: &TestHost) -> Result {
    host.until("the last unit goes", |nodes| nodes.is_empty()).await?;
    host.is_idle()
}

/// Waits until the completion of that unit can be read.
pub(crate) async fn completed(session: &Session, unit: &str) -> Result<()> {
    event(session, &format!("the completion of {unit}"), |event| {
        let EventKind::DelegationEnded { delegation, .. } = &event.kind else { return None };
        (delegation == unit).then_some(())
    })
    .await
}
