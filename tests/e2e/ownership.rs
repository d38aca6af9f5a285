//! The tree of work, with real guests in it (rules W), and the stops of whole sessions (rules S7 and S8).

#[path = "../../host/benches/side/ours.rs"]
#[allow(dead_code, clippy::expect_used, reason = "the benchmarks use more of it")]
pub(crate) mod ours;

use std::collections::HashSet;

use checkrein::model::{Hold, Reply, Scripted};
use checkrein::sandbox::{Isolation, Limits, Outcome};
use checkrein::session::{PromptError, Stopped};
use checkrein::work::{Kind, NodeView, Refused};
use checkrein_testkit::{PATIENCE, within};

use crate::start::{Result, hard, interrupted, with_agent};

/// Rule W1: at every instant each node has one owner, which is in the tree, and only the root has none.
fn is_one_tree(nodes: &[NodeView]) {
    let mut seen = HashSet::new();
    for node in nodes {
        match node.owner {
            Some(owner) => assert!(seen.contains(&owner), "{node:?} is owned by nobody"),
            None => assert_eq!(node.kind, Kind::Host, "{node:?} has no owner"),
        }
        assert!(seen.insert(node.id), "{node:?} stands twice in the tree");
    }
}

/// Rules W1 and W2: whatever guests begin and end meanwhile, each piece of work has one owner; and what is counted, what
/// is listed and what a stop reaches are the same.
#[tokio::test(flavor = "multi_thread")]
async fn work_has_one_owner_and_what_is_counted_is_listed_and_stopped() -> Result {
    let hold = Hold::new();
    let model = Scripted::new("model", [Reply::new().hold(&hold).repeat()]);
    let host = with_agent().model(model).build()?;
    let tree = host.host().tree();
    let mut turns = Vec::new();
    for goal in
        ["forever call tool_echo", "forever calls 3 tool_size", "times 5 call tool_panic\nspin"]
    {
        let session = host.session("agent").await?;
        turns.push((session.prompt(goal, "")?, session));
    }
    let (mut tools, mut looks) = (HashSet::new(), 0);
    while tools.len() < 100 || looks < 1_000 {
        let nodes = tree.snapshot(tree.root());
        is_one_tree(&nodes);
        tools.extend(nodes.iter().filter(|node| node.kind == Kind::ToolCall).map(|node| node.id));
        looks += 1;
        tokio::task::yield_now().await;
    }
    for (turn, session) in turns {
        session.stop_turn(None, &hard("enough"))?;
        within("the end", turn.ended()).await?;
        drop(session);
    }

    let session = host.session("agent").await?;
    let turn = session.prompt("calls 3 tool_spin", "")?;
    within("three tools spin", host.logs().written("spinning", 3)).await?;
    let other = host.session("agent").await?;
    let asks = other.prompt("ask anything", "")?;
    within("the model", hold.reached(1)).await?;
    assert_eq!(host.executions().len(), 6);
    assert_eq!(tree.count(tree.root()), 6);
    // As an operator counts them: one for each session.
    assert_eq!(tree.pieces(tree.root()), 2);
    for (turn, session, executions) in [(turn, session, 4), (asks, other, 2)] {
        let below = tree.snapshot(session.work());
        assert_eq!(tree.count(session.work()), executions);
        assert_eq!(tree.stop(session.work(), &hard("all of it"))?, below.len());
        assert_eq!(within("the end", turn.ended()).await?.outcome, interrupted(hard("all of it")));
        assert_eq!(tree.count(session.work()), 0);
    }
    host.is_idle()
}

/// Rule W5: the refusal has a type, and says which node refuses and why.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_host_that_goes_says_so_to_whoever_wants_to_begin() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    host.host().shutdown("gone for lunch", PATIENCE).await?;
    let refused = match session.prompt("say hello", "") {
        Err(PromptError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    };
    let Refused::Closed { by, reason, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((*by, &**reason), (host.host().tree().root(), "gone for lunch"));
    host.is_idle()
}

/// Rules W4 and W7: work that has ended is not in the tree, and its id gets an answer that is no wait.
#[tokio::test(flavor = "multi_thread")]
async fn the_ids_of_a_turn_and_its_tools_outlive_them() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("try calls 2 tool_spin\ncheckpoint after", "")?;
    within("two tools spin", host.logs().written("spinning", 2)).await?;
    let tree = host.host().tree();
    let ids: Vec<_> = host.executions().iter().map(|node| node.id).collect();
    assert_eq!(ids.len(), 3);
    session.stop("user", "enough");
    within("the end", turn.ended()).await?;
    for id in ids {
        assert!(!tree.contains(id) && tree.snapshot(id).is_empty());
        assert_eq!((tree.count(id), tree.stop(id, &hard("late")).is_err()), (0, true));
    }
    host.is_idle()
}

/// Rule S7: a stop of the background that selects nothing stops nothing, and the turn least of all.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_stop_of_the_background_leaves_the_turn_alone() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("checkpoint here\nstop?\ncall tool_echo {\"text\":\"on\"}", "")?;
    host.reached("here").await?;
    assert_eq!(session.stop_background("user", "all of you"), 0);
    host.release("here");
    let report = within("the end", turn.ended()).await?;
    assert_eq!((report.outcome, &*report.output), (Outcome::Completed(()), "no stop\nok: on"));
    host.is_idle()
}

/// Rule S8: a person's Stop is hard, reaches the turn with its tools, gives back what there was, and is no error when
/// the session is idle.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_stop_of_a_session_brings_back_what_there_was() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    assert_eq!(session.stop("user", "nothing to do"), Stopped { turn: 0, background: 0, side: 0 });
    let turn = session.prompt("partial so far\ncalls 2 tool_spin", "")?;
    within("two tools spin", host.logs().written("spinning", 2)).await?;
    assert_eq!(session.stop("user", "enough"), Stopped { turn: 3, background: 0, side: 0 });
    let report = within("the end", turn.ended()).await?;
    assert_eq!((report.outcome, &*report.output), (interrupted(hard("enough")), "so far"));
    assert_eq!(session.stop("user", "again"), Stopped { turn: 0, background: 0, side: 0 });
    // Rule S13: the next turn knows nothing of it.
    let turn = session.prompt("stop?", "")?;
    assert_eq!(within("the end", turn.ended()).await?.output, "no stop");
    host.is_idle()
}

/// Rule W8: a session with a turn of a real guest and an open worker is one piece of work, and it is one until both have
/// ended, also where nothing of the turn knows of the worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_and_a_worker_of_one_session_are_one_piece_of_work() -> Result {
    let ours = ours::Ours::new(tokio::runtime::Handle::current(), 16);
    let bytes = checkrein_testkit::guest("bench-agent").into();
    let code =
        ours.sandbox.load_agent(&ours.root, bytes, &Limits::default(), Isolation::Instance).await?;
    let (tree, root) = (&ours.tree, ours.root.id());
    let session = ours.root.open(Kind::Session, "one")?;
    let other = ours.root.open(Kind::Session, "other")?;
    let turn = session.open(Kind::Turn, "turn")?;
    let turn_id = turn.id();
    let run = ours.start_on(turn, &code, "spin");
    assert_eq!(tree.pieces(root), 1);
    let worker = session.open(Kind::Worker, "worker")?;
    assert_eq!((tree.pieces(root), tree.count(root)), (1, 2));
    let _elsewhere = other.open(Kind::Worker, "worker")?;
    assert_eq!(tree.pieces(root), 2);
    tree.stop(turn_id, &hard("enough"))?;
    assert_eq!(within("the run", run.ended()).await?.outcome.status(), "interrupted");
    // Nothing else knows the worker, and it counts (M1).
    assert_eq!((tree.pieces(root), tree.pieces(session.id())), (2, 1));
    drop(worker);
    assert_eq!((tree.pieces(root), tree.pieces(session.id())), (1, 0));
    Ok(())
}
