//! A worker is work: it is counted, told of a stop, waited for and, where it must be, killed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use checkrein::message::Failure;
use checkrein::sandbox::{
    Isolation, Limits, Outcome, PluginHost, Reach, Run, SandboxSettings, Start, ToolHost,
    WorkerSettings,
};
use checkrein::work::{Kind, NodeView, Work};
use checkrein_testkit::{guest, within};
use tokio::runtime::Handle;

use super::{PROGRAM, deaf, folder, stops_told};
use crate::ownership::ours::Ours;
use crate::start::{Result, hard, soft};

/// A sandbox whose workers are what that shell script is.
fn with_workers(script: &str) -> Ours {
    let arguments = vec!["-c".into(), script.into()];
    let workers = WorkerSettings {
        stop_bound: Duration::from_millis(200),
        ..WorkerSettings::new("/bin/sh", arguments)
    };
    let settings = SandboxSettings { workers: Some(workers), ..SandboxSettings::default() };
    Ours::with(Handle::current(), 4, &settings)
}

/// Starts the agent that does what its goal says, as the turn of that session.
async fn start(ours: &Ours, session: &Work, goal: &str) -> Result<Run<String>> {
    let (bytes, limits) = (guest("agent").into(), Limits::default());
    let code = ours.sandbox.load_agent(&ours.root, bytes, &limits, Isolation::Process).await?;
    Ok(ours.start_on(session.open(Kind::Turn, "turn")?, &code, goal))
}

/// Waits until what runs is as `wanted` says.
async fn until(ours: &Ours, what: &str, wanted: impl Fn(&[NodeView]) -> bool) -> Result {
    super::until(what, || wanted(&ours.tree.executions(ours.root.id()))).await
}

/// Waits until a worker that keeps its input was told of a stop.
async fn is_told(file: &Path) -> Result {
    super::until("the stop is told", || stops_told(file).is_ok_and(|stops| !stops.is_empty())).await
}

/// Sorted, because owners stand before what they own and nothing else has an order.
fn kinds(nodes: &[NodeView]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = nodes.iter().map(|node| node.kind).collect();
    kinds.sort_unstable();
    kinds
}

fn does(nodes: &[NodeView], what: &str) -> bool {
    nodes.iter().any(|node| node.activity.as_ref().is_some_and(|doing| doing.what == what))
}

/// Rules M1, M2, M3 and W8, with a real worker and a real guest: it counts as one piece of work, also when nothing else
/// knows it; a stop is one frame of each kind; a drain with no time says from the real state that time is over; a drain
/// with time waits until the process has been reaped.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_worker_is_one_piece_of_work_that_is_told_once_and_waited_for() -> Result {
    let folder = folder()?;
    let told = folder.path().join("told");
    let script = format!("/usr/bin/tee {} | {PROGRAM} worker", told.display());
    let ours = with_workers(&script);
    let session = ours.root.open(Kind::Session, "session")?;
    let run = start(&ours, &session, "try sleep 100000000\ntry sleep 100000000").await?;
    let turn = run.id();
    until(&ours, "it sleeps", |nodes| does(nodes, "run.sleep")).await?;
    assert_eq!(kinds(&ours.tree.executions(session.id())), [Kind::Turn, Kind::Worker]);
    assert_eq!((ours.tree.pieces(session.id()), ours.tree.pieces(ours.root.id())), (1, 1));

    // The stop counts the run and its process as one, and so does whoever asks again.
    assert_eq!(ours.tree.stop(turn, &soft("please leave"))?, 1);
    assert_eq!(ours.tree.stop(turn, &soft("I said please"))?, 0);
    let left = session.drain("nothing new", Duration::ZERO).await.unwrap_err();
    assert_eq!(kinds(&left.nodes), [Kind::Turn, Kind::Worker]);

    // The guest has seen the stop and goes on, in its own time.
    let drain = session.drain("nothing new", Duration::from_secs(60));
    tokio::pin!(drain);
    assert!(futures::poll!(&mut drain).is_pending());
    is_told(&told).await?;
    assert!(futures::poll!(&mut drain).is_pending());
    assert_eq!(ours.tree.pieces(session.id()), 1);
    // Nobody waits for the run any more, which stops it hard; the worker counts until it has been reaped.
    drop(run);
    assert_eq!(ours.tree.pieces(session.id()), 1);
    within("the drain", drain).await??;
    assert_eq!((ours.tree.pieces(session.id()), ours.tree.count(ours.root.id())), (0, 0));
    assert_eq!(stops_told(&told)?, ["soft", "hard"]);
    Ok(())
}

/// Rules M4, W3: a worker that does not answer its stop is killed and reaped within its bound. Its run had begun and left
/// no word about its end, so nobody knows how it ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_hear_is_killed_within_its_bound() -> Result {
    let folder = folder()?;
    let told = folder.path().join("told");
    let ours = with_workers(&deaf(&told));
    let session = ours.root.open(Kind::Session, "session")?;
    let run = start(&ours, &session, "say never").await?;
    until(&ours, "it has begun", |nodes| does(nodes, "computing")).await?;
    let turn = run.id();
    ours.tree.stop(turn, &soft("please leave"))?;
    is_told(&told).await?;
    ours.tree.stop(turn, &hard("now"))?;
    ours.tree.stop(turn, &hard("and again"))?;
    let report = within("its end", run.ended()).await?;
    let Outcome::Unknown(words) = &report.outcome else { panic!("{report:?}") };
    assert!(words.contains("did not end within 200 ms") && words.contains("now"), "{words}");
    assert_eq!(report.outcome.status(), "unknown");
    assert!(!ours.tree.contains(turn));
    assert_eq!(stops_told(&told)?, ["soft", "hard"]);
    Ok(())
}

/// Rule M4: of a worker that is killed before its guest has begun it is known how its run ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_not_begun_is_interrupted() -> Result {
    let folder = folder()?;
    let told = folder.path().join("told");
    let ours = with_workers(&format!("exec /bin/cat 3>&1 > {}", told.display()));
    let session = ours.root.open(Kind::Session, "session")?;
    let run = start(&ours, &session, "say never").await?;
    until(&ours, "it is there", |_| told.exists()).await?;
    ours.tree.stop(run.id(), &hard("now"))?;
    let report = within("its end", run.ended()).await?;
    assert_eq!(report.outcome, Outcome::Interrupted { stop: hard("now"), said: None });
    Ok(())
}

/// Rule S2: a hard stop that was there before the run keeps its process from being started; a soft one is visible from
/// the guest's first instruction, and is not told again.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_before_the_start_is_there_from_the_start() -> Result {
    let folder = folder()?;
    let told = folder.path().join("told");
    let script = format!("/usr/bin/tee {} | {PROGRAM} worker", told.display());
    let ours = with_workers(&script);
    let session = ours.root.open(Kind::Session, "session")?;
    session.stop(&soft("before it began"));
    let report = start(&ours, &session, "stop?\ntry sleep 1").await?.ended().await;
    let said = Some("soft | before it began | user\nfine".to_owned());
    assert_eq!(report.outcome, Outcome::Interrupted { stop: soft("before it began"), said });
    assert_eq!(stops_told(&told)?, [""; 0]);

    std::fs::remove_file(&told)?;
    let session = ours.root.open(Kind::Session, "other")?;
    session.stop(&hard("never begin"));
    let report = start(&ours, &session, "say never").await?.ended().await;
    assert_eq!(report.outcome, Outcome::Interrupted { stop: hard("never begin"), said: None });
    assert!(!Path::new(&told).exists());
    Ok(())
}

/// A tool that asks nothing.
struct Quiet;

impl PluginHost for Quiet {
    fn config(&self, _key: &str) -> Option<String> {
        None
    }
    fn config_keys(&self) -> Vec<String> {
        Vec::new()
    }
    fn log(&self, _level: &str, _message: &str) {}
}

impl ToolHost for Quiet {
    fn secret(&self, name: &str) -> Result<String, Failure> {
        Ok(name.to_owned())
    }
}

/// Rule D3: what is stopped when a drain has timed out may be built, may not be built yet, and may have nothing that can be
/// stopped. None of that is an error, and what is left is named.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_cut_may_be_built_not_yet_built_or_have_nothing_to_stop() -> Result {
    let ours = with_workers(&format!("exec {PROGRAM} worker"));
    let session = ours.root.open(Kind::Session, "session")?;
    let built = start(&ours, &session, "spin").await?;
    let (bytes, limits) = (guest("bench-tool").into(), Limits::default());
    let code = ours.sandbox.load_tool(&ours.root, bytes, &limits, Isolation::Process).await?;
    let work = session.open(Kind::ToolCall, "call")?;
    let (reach, host) = (Arc::new(Reach::default()), Arc::new(Quiet) as Arc<dyn ToolHost>);
    let call = Start { work, limits, reach, host };
    let claimed = ours.sandbox.call_tool(&code, call, "echo".into(), std::future::pending());
    let nothing = session.open(Kind::Worker, "nobody knows it")?;
    until(&ours, "one is built", |nodes| {
        let begun = |node: &NodeView| {
            node.kind == Kind::Turn && does(std::slice::from_ref(node), "computing")
        };
        nodes.iter().any(begun)
    })
    .await?;
    let executions = [Kind::Turn, Kind::ToolCall, Kind::Worker, Kind::Worker, Kind::Worker];
    let left = session.drain("the end", Duration::ZERO).await.unwrap_err();
    assert_eq!(kinds(&left.nodes), executions);

    assert_eq!(session.stop_children(&hard("too late")), 3);
    assert_eq!(session.stop_children(&hard("once each")), 0);
    let stop = hard("too late");
    let built = within("what was built", built.ended()).await?;
    assert_eq!(built.outcome, Outcome::Interrupted { stop: stop.clone(), said: None });
    let claimed = within("what was not", claimed.ended()).await?;
    assert_eq!(claimed.outcome, Outcome::Interrupted { stop, said: None });
    let left = session.drain("the end", Duration::ZERO).await.unwrap_err();
    assert_eq!(left.nodes.len(), 1);
    assert_eq!(&*left.nodes[0].label, "nobody knows it");
    drop(nothing);
    session.drain("the end", Duration::ZERO).await?;
    Ok(())
}
