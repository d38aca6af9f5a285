//! What the operator says of processes for single runs, and what becomes of it.

use checkrein::plugin::Configuration;
use checkrein::sandbox::{LimitKind, Outcome};
use checkrein::{Compilation, ErrorKind, Host};

use super::{folder, numbered, numbers};
use crate::start::{Result, agent, host, neighbour, tool, with_agent};

/// Only what is said to have processes has some, each run one of its own: a tool where it says what it is and at each
/// call, an agent at each turn.
#[tokio::test(flavor = "multi_thread")]
async fn each_run_of_what_is_apart_has_a_process_of_its_own() -> Result {
    for (configuration, expected) in [
        ("", 0),
        ("isolation = \"instance\"", 0),
        ("[plugins.agent]\nisolation = \"process\"", 2),
        ("[plugins.tool]\nisolation = \"process\"", 3),
        ("isolation = \"process\"", 5),
        ("isolation = \"process\"\n[plugins.agent]\nisolation = \"instance\"", 3),
    ] {
        let folder = folder()?;
        let host = with_agent().configuration(configuration);
        let host = numbered(host, folder.path()).build()?;
        let session = host.session("agent").await?;
        for _ in 0..2 {
            let turn = session.prompt("call tool_echo {\"text\":\"hello\"}", "")?;
            assert_eq!(turn.ended().await.output, "ok: hello");
        }
        assert_eq!(numbers(folder.path(), 0).await?.len(), expected, "{configuration}");
        host.is_idle()?;
    }
    Ok(())
}

/// A run that finds all processes taken has no place, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_processes_than_the_operator_says() -> Result {
    let configuration = "isolation = \"process\"\n[workers]\nprocesses = 1";
    let host = with_agent().plugin(neighbour()).configuration(configuration).build()?;
    let report = host.run("agent", "call tool_echo {\"text\":\"hello\"}\nsay and on").await?;
    let expected = "error: all places for running guests are taken; try again later\nand on";
    assert_eq!(report.output, expected);
    let session = host.session("agent").await?;
    let held = session.prompt("checkpoint held", "")?;
    host.reached("held").await?;
    assert_eq!(host.run("neighbour", "1").await?.outcome, Outcome::NoPlace);
    host.release("held");
    assert_eq!(held.ended().await.outcome, Outcome::Completed(()));
    host.is_idle()
}

/// A host that cannot do what the configuration says is not made.
#[tokio::test(flavor = "multi_thread")]
async fn isolation_that_cannot_be_had_is_an_error() -> Result {
    for text in ["isolation = \"process\"", "[plugins.a]\nisolation = \"process\""] {
        let configuration = Configuration::parse(text, "checkrein.toml".as_ref())?;
        let builder = Host::builder(Compilation::InProcess).configuration(configuration);
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        let words = format!("{:#}", anyhow::Error::from(error));
        assert!(words.contains("HostBuilder::workers"), "{words}");
        assert!(words.contains("checkrein.toml:"), "{words}");
    }
    Ok(())
}

/// A bare name is looked up in the `PATH` that the host is shown, as that of the program that compiles.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_an_error() -> Result {
    let configuration = Configuration::parse("isolation = \"process\"", "checkrein.toml".as_ref())?;
    let builder = Host::builder(Compilation::InProcess).configuration(configuration);
    let builder = builder.workers("no-such-program", Vec::new());
    let error = builder.environment(|_| Some("/nowhere".to_owned())).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    let words = error.to_string();
    assert!(words.contains("no-such-program") && words.contains("runs guests"), "{words}");
    Ok(())
}

/// The time of a run is bounded, whatever its process does with it; the time that the process takes to start counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_run_in_a_process_is_bounded() -> Result {
    let short = "wall-time = \"1s\"";
    let host = host().plugin(agent().limits(short)).plugin(tool().limits(short));
    let host = host.configuration("isolation = \"process\"").build()?;
    for goal in ["spin", "sleep 100000000", "call tool_spin"] {
        let report = host.run("agent", goal).await?;
        assert_eq!(report.outcome, Outcome::Limit(LimitKind::WallTime), "{goal}");
        host.is_idle()?;
    }
    Ok(())
}
