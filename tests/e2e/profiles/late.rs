//! Calls that cannot be interrupted, and outlive their guests: the drain waits for them, and what outlives the drain is named.
//!
//! A file that hangs cannot be had here. So the threads for such calls are held instead: a call of a guest waits for one of them
//! in the way in which it would wait for a disk.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use checkrein::session::Session;
use checkrein::work::shutdown::{Bounds, Ended, Report, Request, Step, Steps};
use checkrein::work::{Kind, NodeView};
use checkrein_testkit::{Mortal, PATIENCE, TestHost, within};
use futures::FutureExt;
use tokio::task::JoinSet;

use super::shutting_down::{REASON, admitted, bounds, ended, reason};
use crate::start::{Result, agent, hard, host, interrupted, tool};

/// How many threads for blocking calls the runtime of such a test has.
const THREADS: usize = 4;

/// All of them, held until this is dropped.
struct Threads {
    _held: Vec<mpsc::Sender<()>>,
    _holding: JoinSet<()>,
}

impl Threads {
    /// Whoever comes first gets a thread first, so all are held when the last of these has begun.
    async fn hold() -> Result<Threads> {
        let (mut held, mut holding) = (Vec::new(), JoinSet::new());
        for _ in 0..THREADS {
            let (hold, until) = mpsc::channel::<()>();
            let (begins, begun) = tokio::sync::oneshot::channel();
            holding.spawn_blocking(move || {
                begins.send(()).ok();
                // Never anything but the end of the other side.
                until.recv().ok();
            });
            within("a thread", begun).await??;
            held.push(hold);
        }
        Ok(Threads { _held: held, _holding: holding })
    }
}

/// Runs a test whose runtime has that few threads for blocking calls.
fn on_few_threads(test: impl Future<Output = Result>) -> Result {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()?;
    runtime.block_on(test)
}

/// A host whose tools write files.
fn with_files() -> Result<TestHost> {
    let asked = "directories = [{ mount = \"work\", access = \"read-write\" }]";
    let given = asked.replace("mount = \"work\"", "mount = \"work\", path = \"work\"");
    let host = host()
        .plugin(agent())
        .plugin(tool().grants(asked))
        .configuration(&format!("[plugins.tool.grants]\n{given}"))
        .build()?;
    std::fs::create_dir(host.home().join("work"))?;
    Ok(host)
}

fn late(host: &TestHost) -> Vec<NodeView> {
    host.executions().into_iter().filter(|node| node.kind == Kind::Blocking).collect()
}

/// A session in which a tool was stopped hard while it wrote a file: its turn is over, the guests are gone, and the call is there.
async fn with_a_late_call(host: &TestHost) -> Result<(Session, Threads)> {
    let session = host.session("agent").await?;
    let others = host.host().sandbox().pool_use();
    let turn = session.prompt("call tool_files {\"text\":\"write\"}", "")?;
    host.logged("looping").await?;
    let threads = Threads::hold().await?;
    // The loop stands still in the one call for which there is no thread.
    host.until("the call hangs", |nodes| nodes.iter().any(|node| node.kind == Kind::Blocking))
        .await?;
    let call = late(host)[0].id;
    session.stop_turn(None, &hard("enough"))?;
    let report = within("the turn", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("enough")), "it does not wait for the call");
    host.until("the guests go", |_| host.host().sandbox().pool_use() == others).await?;
    let left = late(host);
    assert_eq!((left.len(), left[0].id, left[0].stop.clone()), (1, call, Some(hard("enough"))));
    Ok((session, threads))
}

/// Rules D1 and W3: the drain waits for a call that has outlived its guest, and ends with it.
#[test]
fn a_drain_waits_for_a_late_blocking_call() -> Result {
    on_few_threads(async {
        let host = with_files()?;
        let (_session, threads) = with_a_late_call(&host).await?;
        let long = Duration::from_secs(60);
        let shutdown = host.host().shutdown_in_steps(bounds(long, long), Steps::new());
        shutdown.request(&Request::drain("operator", REASON));
        host.until("new work is refused", |_| {
            host.host()
                .tree()
                .snapshot(host.host().tree().root())
                .iter()
                .any(|node| node.closed.is_some())
        })
        .await?;
        assert_eq!(late(&host).len(), 1);
        assert!(shutdown.ended().now_or_never().is_none(), "the call is work");
        drop(threads);
        let report = ended(&shutdown).await?;
        assert!(report.is_clean(), "{report:?}");
        host.is_idle()
    })
}

/// Rules D3, D4 and D7: a drain that has had its time stops what has been built, what has not begun yet and what has nothing that
/// could be stopped. The first ends; the others are no error, are named with what they do, and are left alone.
#[test]
fn what_cannot_be_stopped_is_named_as_left_and_keeps_nothing_else_from_its_stop() -> Result {
    on_few_threads(async {
        let (host, store) = (with_files()?, Mortal::new());
        let built = host.session("agent").await?;
        let running = built.prompt("partial half\ncheckpoint here", "")?;
        host.reached("here").await?;
        let (_session, not_built) = admitted(&host, &store).await?;
        let (late_session, threads) = with_a_late_call(&host).await?;
        let call = late(&host)[0].clone();
        let short = Duration::from_millis(50);
        // Ample, on a busy machine, too: it is to be done and not to time out.
        let bounds = Bounds { hard_stop: PATIENCE, ..bounds(short, short) };
        let shutdown = host.host().shutdown_in_steps(bounds, Steps::new());
        shutdown.request(&Request::drain("operator", REASON));
        let report = ended(&shutdown).await?;
        let steps = [Step::Drain, Step::HardStop, Step::Settle].map(|step| report.step(step));
        let expected = [&Ended::TimedOut, &Ended::Done, &Ended::TimedOut];
        assert_eq!(steps, expected.map(Some), "no thread for calls is needed for a stop");
        let ids = |pieces: &[checkrein::work::shutdown::Piece]| -> BTreeSet<String> {
            pieces.iter().map(|piece| piece.id.clone()).collect()
        };
        assert_eq!(ids(&report.cut), BTreeSet::from([running.id().to_string()]));
        let owner = call.owner.map(|owner| owner.to_string()).unwrap_or_default();
        let [call_id, waiting] = [call.id, not_built.id()].map(|id| id.to_string());
        let names = ids(&report.left);
        assert!(names.is_superset(&BTreeSet::from([call_id.clone(), waiting])), "{report:?}");
        names_the_call(&report, &call_id, &owner)?;
        let outcome = within("the turn that was built", running.ended()).await?.outcome;
        assert_eq!(outcome, interrupted(reason()));
        // Neither cancelled nor forgotten.
        assert_eq!(late(&host).len(), 1, "the call is there still");
        let outcome = within("the turn that was not", not_built.ended()).await?.outcome;
        assert_eq!(outcome, interrupted(reason()));
        drop(threads);
        store.heals();
        drop(late_session);
        within("the rest", host.host().tree().idle(host.host().tree().root())).await?;
        host.is_idle()
    })
}

/// What a report says of the call: what it is, who owned it, how long it is there, what it does.
fn names_the_call(report: &Report, id: &str, owner: &str) -> Result {
    let call = report.left.iter().find(|piece| piece.id == id);
    let call = call.ok_or_else(|| anyhow::anyhow!("the call is not named: {report}"))?;
    assert_eq!((call.kind.as_str(), call.label.as_str()), ("blocking call", "writes a file"));
    assert!(call.owner.as_ref().is_some_and(|named| named.contains(owner)), "{call:?}");
    assert!(call.age > Duration::ZERO, "{call:?}");
    assert!(report.to_string().contains("left: blocking call writes a file"), "{report}");
    Ok(())
}
