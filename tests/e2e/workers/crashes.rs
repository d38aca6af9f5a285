//! A process that crashes ends one run and nothing else, and what that had reported is kept (S12).

use std::time::{Duration, Instant};

use checkrein::model::{Reply, Scripted};
use checkrein::sandbox::Outcome;
use checkrein::session::TurnReport;
use checkrein_testkit::{PATIENCE, within};
use rustix::process::{Pid, Signal, kill_process};

use super::{folder, numbered, numbers};
use crate::api::daemon::{Daemon, PROFILE, home};
use crate::start::{Beside, Result, agent, host, neighbour, with_agent};

fn words(report: &TurnReport) -> String {
    let words = report.outcome.detail().filter(|_| report.outcome.status() == "unknown");
    let words = words.unwrap_or_else(|| format!("{:?}", report.outcome));
    words.replace("nobody knows how it ended: ", "")
}

/// Whichever way the process of a turn goes, its turn ends as `unknown` with what it had said and what tools had
/// answered; a neighbour in a process beside it goes on, and so does the session.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_of_a_turn_is_killed() -> Result {
    for signal in [Signal::KILL, Signal::ABORT, Signal::TERM] {
        let folder = folder()?;
        let model = Scripted::new("model", [Reply::new().text("an answer").repeat()]);
        let configuration = "[plugins.agent]\nisolation = \"process\"";
        let host = with_agent().plugin(neighbour()).model(model).configuration(configuration);
        let host = numbered(host, folder.path()).build()?;
        let beside = Beside::start(&host).await?;
        let session = host.session("agent").await?;
        let goal = "call tool_echo {\"text\":\"kept\"}\npartial before\ncheckpoint held";
        let turn = session.prompt(goal, "")?;
        host.reached("held").await?;
        let [process] = numbers(folder.path(), 1).await?[..] else { panic!("one process") };
        kill_process(Pid::from_raw(process).expect("a number"), signal)?;
        let report = within("the end", turn.ended()).await?;
        let expected = format!("its process ended by signal {}", signal.as_raw());
        assert_eq!(words(&report), expected);
        assert_eq!(report.output, "before");
        assert_eq!(report.tools.len(), 1, "{report:?}");
        assert_eq!(report.tools[0].content, "kept");
        // The session has its next turn, in a process of its own.
        let turn = session.prompt("ask anything", "")?;
        assert_eq!(within("the next turn", turn.ended()).await?.output, "an answer");
        beside.finishes(&host).await?;
        host.is_idle()?;
    }
    Ok(())
}

/// The agent hears of it when the process of a tool is killed, and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_of_a_tool_is_killed() -> Result {
    let folder = folder()?;
    let host = with_agent().configuration("[plugins.tool]\nisolation = \"process\"");
    let host = numbered(host, folder.path()).build()?;
    let session = host.session("agent").await?;
    // The first one is where the tool said what it is.
    let described = numbers(folder.path(), 1).await?;
    let turn = session.prompt("call tool_spin\nsay and on", "")?;
    let both = numbers(folder.path(), 2).await?;
    host.doing("computing").await?;
    let process = both.into_iter().find(|process| !described.contains(process));
    kill_process(Pid::from_raw(process.expect("a second")).expect("a number"), Signal::KILL)?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, Outcome::Completed(()));
    let expected = "trapped: nobody knows how it ended: its process ended by signal 9\nand on";
    assert_eq!(report.output, expected);
    host.is_idle()
}

/// Runs a goal beside a neighbour in the process of the host, with a configuration for the workers.
async fn beside(configuration: &str, goal: &str) -> Result<TurnReport> {
    let configuration = format!("{configuration}\n[plugins.agent]\nisolation = \"process\"");
    let most = "memory = \"256MiB\"\ncall-bytes = \"64MiB\"\noutput-bytes = \"64MiB\"";
    let host = host().plugin(agent().limits(most)).plugin(neighbour());
    let host = host.configuration(&configuration).build()?;
    let beside = Beside::start(&host).await?;
    let report = host.run("agent", goal).await?;
    beside.finishes(&host).await?;
    host.is_idle()?;
    Ok(report)
}

/// The memory limit of the operating system holds for what the sandbox does for a guest as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_memory_ends_one_run() -> Result {
    let configuration = "[limits]\nmemory = \"256MiB\"\ncall-bytes = \"64MiB\"\noutput-bytes = \"64MiB\"\n\
                         [workers]\nmemory = \"112MiB\"";
    let report = beside(configuration, "partial before\nfail-long 40000000").await?;
    assert_eq!(words(&report), "its process had no memory left of its 117440512 bytes");
    assert_eq!(report.output, "before");
    Ok(())
}

/// The limit of processor time ends a run that nothing else ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_processor_time_ends_one_run() -> Result {
    let report = beside("[workers]\nprocessor-time = \"100ms\"", "partial before\nspin").await?;
    assert_eq!(words(&report), "its process used up its processor time");
    assert_eq!(report.output, "before");
    Ok(())
}

/// The process that this one has started, which must be one.
fn child_of(parent: Pid) -> Result<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        // A process may go meanwhile.
        let Ok(stat) = std::fs::read_to_string(path.join("stat")) else { continue };
        let fields = stat.rsplit(") ").next().unwrap_or_default();
        let its = fields.split(' ').nth(1).and_then(|parent| parent.parse().ok());
        if its == Some(parent.as_raw_nonzero().get()) {
            found.extend(path.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok()));
        }
    }
    match found[..] {
        [one] => Ok(one),
        _ => anyhow::bail!("{found:?} are the processes of {parent:?}"),
    }
}

/// Rule M: a process does not outlive its host, however that ends and whatever its guest does: one that is killed tells nobody.
#[test]
fn a_process_goes_with_its_host() -> Result {
    for goal in ["spin", "sleep 100000000"] {
        let home = home("")?;
        let profile = home.path().join("profiles/main/profile.toml");
        // Should it stay, the operating system ends it.
        let limit = "[workers]\nprocessor-time = \"5m\"\n";
        let table = std::fs::read_to_string(home.path().join("checkrein.toml"))?;
        std::fs::write(home.path().join("checkrein.toml"), format!("{table}{limit}"))?;
        std::fs::write(profile, format!("isolation = \"process\"\n{PROFILE}"))?;
        let daemon = Daemon::on(home)?;
        let session = daemon.session()?;
        daemon.until_ready(&session, goal)?;
        let worker = child_of(daemon.pid())?;
        daemon.signal(Signal::KILL)?;
        daemon.ends(PATIENCE)?;
        let stat = format!("/proc/{worker}/stat");
        let begun = Instant::now();
        // It is not ours to reap, so it may be a while until somebody does.
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            anyhow::ensure!(begun.elapsed() < PATIENCE, "{goal}: the process goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
