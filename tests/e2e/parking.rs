//! Rule S11: a hard stop ends a guest in every import of both worlds, whether the guest waits in it or calls it
//! without end. The imports are read from the WIT, so that a new one without a case here fails.

pub(crate) mod wasi;

use std::collections::BTreeMap;

use anyhow::Context;
use checkrein::model::{Reply, Scripted};
use checkrein_testkit::{TestHost, World, imports, within};

use crate::start::{Result, agent, hard, host, interrupted, tool};

/// How a guest is caught in an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// It waits there: what the agent does, and the activity by which the host shows it.
    Waits(&'static str, &'static str),
    /// The import answers at once, so the guest calls it for ever.
    Loops,
}

use Case::{Loops, Waits};

/// Waits for a child inside the call.
const CHILD_INSIDE: &str = r#"delegate {"tasks":[{"goal":"checkpoint nobody opens"}]}"#;

/// Waits for a child in the background, which outlives the turn.
const CHILD_BESIDE: &str = "delegate {\"mode\":\"background\",\"tasks\":[{\"goal\":\"checkpoint nobody opens\"}]}\n\
    wait-for-it";

const AGENT: [(&str, Case); 22] = [
    ("config.get", Loops),
    ("config.keys", Loops),
    ("delegate.capacity", Loops),
    ("delegate.run", Waits(CHILD_INSIDE, "delegate.run")),
    ("delegate.status", Loops),
    ("delegate.stop", Loops),
    ("delegate.wait", Waits(CHILD_BESIDE, "delegate.wait")),
    ("log.write", Loops),
    ("model.complete", Waits("ask anything", "model.complete")),
    ("run.budgets", Loops),
    ("run.checkpoint", Waits("checkpoint nobody opens", "run.checkpoint")),
    ("run.current-task", Loops),
    ("run.sleep", Waits("sleep 100000000", "run.sleep")),
    ("run.stop-requested", Loops),
    ("session.delete", Loops),
    ("session.emit", Loops),
    ("session.get", Loops),
    ("session.history", Loops),
    ("session.keys", Loops),
    ("session.set", Loops),
    ("tools.call", Waits("call tool_sleep {\"text\":\"block\"}", "tools.call")),
    ("tools.list-tools", Loops),
];

const TOOL: [(&str, Case); 4] =
    [("config.get", Loops), ("config.keys", Loops), ("log.write", Loops), ("secrets.get", Loops)];

/// A host in which no limit ends a loop before a stop does.
fn crowd(limits: &str) -> Result<TestHost> {
    let model = Scripted::new("model", [Reply::new().stall().repeat()]);
    host()
        .plugin(agent().limits(limits))
        .plugin(tool().limits(limits))
        .configuration("[limits]\nlog-bytes = \"1TiB\"\ndoor-bytes = \"1TiB\"")
        .model(model)
        .build()
}

/// Stops a guest in each of these imports. `goal` says how an import is called for ever.
async fn stop_in_each(
    host: &TestHost,
    cases: &[(&str, Case)],
    goal: impl Fn(&str) -> String,
) -> Result {
    let mut looping = 0;
    for (import, case) in cases {
        let session = host.session("agent").await?;
        let turn = match case {
            Waits(goal, activity) => {
                let turn = session.prompt(*goal, "")?;
                host.doing(activity).await.context(import.to_string())?;
                turn
            }
            Loops => {
                let turn = session.prompt(goal(import), "")?;
                looping += 1;
                within(import, host.logs().written("looping", looping)).await?;
                turn
            }
        };
        let work = turn.id();
        assert!(host.host().tree().contains(work), "{import}: it ended by itself");
        let message = format!("stopped in {import}");
        assert!(session.stop_turn(None, &hard(&message))? >= 1);
        let report = within(import, turn.ended()).await?;
        assert_eq!(report.outcome, interrupted(hard(&message)));
        assert!(!host.host().tree().contains(work));
        if *import == "delegate.wait" {
            assert_eq!(session.stop_background("user", "the child"), 1);
            host.until("the child goes", |nodes| nodes.is_empty()).await?;
        }
        host.is_idle().context(import.to_string())?;
    }
    Ok(())
}

/// Every import of the world has a case, and every case is an import.
fn covers(world: World, cases: &[(&str, Case)]) -> Result {
    let known: BTreeMap<&str, Case> = cases.iter().copied().collect();
    assert_eq!(known.len(), cases.len(), "an import stands twice");
    let imports = imports(world)?;
    let without: Vec<&String> =
        imports.iter().filter(|import| !known.contains_key(import.as_str())).collect();
    assert!(without.is_empty(), "no case parks a guest in {without:?} and stops it");
    let strange: Vec<&&str> =
        known.keys().filter(|import| !imports.iter().any(|known| known == **import)).collect();
    assert!(strange.is_empty(), "no import of the world {world:?} is called {strange:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn an_agent_is_stopped_in_every_import_of_its_world() -> Result {
    covers(World::Agent, &AGENT)?;
    stop_in_each(&crowd("")?, &AGENT, |import| format!("loop {import}")).await
}

/// The code that counts is other code than the code that does not.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_fuel_is_stopped_in_every_import_of_its_world() -> Result {
    stop_in_each(&crowd("fuel = 1000000000000")?, &AGENT, |import| format!("loop {import}")).await
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_tool_is_stopped_in_every_import_of_its_world() -> Result {
    covers(World::Tool, &TOOL)?;
    stop_in_each(&crowd("")?, &TOOL, |import| format!("call tool_loop {{\"text\":\"{import}\"}}"))
        .await
}
