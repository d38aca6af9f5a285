//! Runs beside the turn: who stops them, what of them anybody hears, and how they end (rules G, S).

use std::sync::Arc;
use std::time::Duration;

use checkrein::model::{Delta, ModelError, Provider, Reply, Request, ResponseStream, Scripted};
use checkrein::sandbox::Outcome;
use checkrein::session::{
    Checkpoints, Delivery, EventKind, MOST_SIDE_RUNS, Session, SideError, TakeInError,
};
use checkrein::store::{Memory, Retention};
use checkrein::work::{Kind, NodeView, Refused};
use checkrein_testkit::{Mortal, TestHost, within};
use futures::future::{BoxFuture, FutureExt};
use futures::{StreamExt, stream};
use tokio::sync::watch;

use crate::durable::{ends, journal, profile};
use crate::start::{Result, agent, hard, host, interrupted, with_agent};

fn side_runs(host: &TestHost) -> Vec<NodeView> {
    let mut nodes = host.executions();
    nodes.retain(|node| node.kind == Kind::SideRun);
    nodes
}

/// Rules G1, S6, S8: it is in the tree below its session; the stop of the turn does not reach it, a person's Stop does, and
/// what it had said comes back.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_side_run_is_stopped_with_its_session_and_not_with_the_turn() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("checkpoint turn", "")?;
    let side = session.side_run("partial half\ncheckpoint side", "")?;
    host.reached("turn").await?;
    host.reached("side").await?;
    let nodes = side_runs(&host);
    assert_eq!((nodes.len(), nodes[0].owner, nodes[0].id), (1, Some(session.work()), side.id()));
    assert_eq!(session.stop_turn(None, &hard("only the turn"))?, 1);
    assert_eq!(within("the turn", turn.ended()).await?.outcome, interrupted(hard("only the turn")));
    assert!(side_runs(&host)[0].stop.is_none(), "it was not meant");
    assert_eq!(session.stop_background("user", "units"), 0, "it is no unit (S7)");
    let aside = session.aside("checkpoint aside")?;
    host.reached("aside").await?;
    let stopped = session.stop("user", "all of it");
    assert_eq!((stopped.turn, stopped.background, stopped.side), (0, 0, 2));
    let report = within("the side run", side.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("all of it")));
    assert_eq!(report.output, "half");
    assert_eq!(within("the aside", aside.ended()).await?.outcome, interrupted(hard("all of it")));
    assert_eq!(session.stop("user", "again").side, 0, "selecting nothing stops nothing");
    host.is_idle()
}

/// Rules D5 and G1: who waits until all is recorded finds the ends of side runs, also of one whose work has just gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_recorded_has_the_ends_of_side_runs() -> Result {
    let host = with_agent().build()?;
    let profile = profile(&host, Arc::new(Memory::new(Retention::memory()))).await?;
    let session = profile.open("agent", Delivery::Turns).await?;
    for round in 1..=200 {
        let side = session.side_run("say done", "")?;
        // Nobody waits for the side run itself.
        within("its work goes", host.host().tree().gone(side.id())).await?;
        within("the records", profile.recorded()).await?;
        assert!(profile.is_recorded(), "round {round}");
        assert_eq!(ends(&journal(&session).await?).len(), round);
    }
    host.is_idle()
}

/// Rule G1: its events have a name of their own; its result is no part of the conversation until somebody says so, and is not
/// spliced into a turn.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn the_result_of_a_side_run_enters_the_conversation_when_somebody_says_so()
-> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    session.prompt("say one", "")?.ended().await;
    let turn = session.prompt("checkpoint turn\nsay two", "")?;
    host.reached("turn").await?;
    let side = session.side_run("input\nhistory 10\nremember key side", "{\"a\":1}")?;
    let run = Arc::clone(side.run());
    let report = within("the side run", side.ended()).await?;
    assert_eq!(report.output, "{\"a\":1}\nsay one / one");
    let all = journal(&session).await?;
    let of_it: Vec<_> =
        all.iter().filter(|event| event.run == run).map(|event| &event.kind).collect();
    assert!(run.starts_with(&format!("{}.side", session.id())), "{run}");
    assert!(matches!(of_it.first(), Some(EventKind::RunStarted { parent: None, .. })), "{of_it:?}");
    assert!(matches!(of_it.last(), Some(EventKind::RunEnded { .. })), "{of_it:?}");
    assert!(matches!(session.take_in(&report).await, Err(TakeInError::Busy { .. })));
    assert_eq!(session.history(10).len(), 2, "nothing is spliced in");
    host.release("turn");
    within("the turn", turn.ended()).await?;
    let next = within("a turn", session.prompt("history 10\nrecall key", "")?.ended()).await?;
    assert!(!next.output.contains("input"), "{}", next.output);
    assert!(next.output.ends_with("\nside"), "its memory is the session's: {}", next.output);
    session.take_in(&report).await?;
    let said: Vec<String> = session.history(2).into_iter().map(|message| message.text).collect();
    assert_eq!(said, [report.goal, report.output]);
    Ok(())
}

/// Rule G5, and what an aside is: it knows the conversation and the memory, and nothing of it stays, neither in the journal
/// nor in the memory; nothing it asks for runs in the background.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn an_aside_knows_the_conversation_and_changes_nothing() -> Result {
    let host = with_agent().build()?;
    let store = Mortal::new();
    let profile = profile(&host, store).await?;
    let session = profile.open("agent", Delivery::Polled).await?;
    session.prompt("remember key old\nsay one", "")?.ended().await;
    let (before, newest) = (session.history(100), session.newest());
    let question = "history 10\nrecall key\nremember key new\nrecall key\nemit note\n\
        delegate {\"mode\":\"background\",\"tasks\":[{\"goal\":\"say child\"}]}";
    let aside = session.aside(question)?;
    let mut events = aside.events();
    let first = within("its first event", events.next()).await??;
    assert!(matches!(first.map(|event| event.kind), Some(EventKind::RunStarted { .. })));
    let answer = within("the answer", aside.ended()).await?;
    assert_eq!(answer.outcome, Outcome::Completed(()));
    let lines: Vec<&str> = answer.text.lines().collect();
    assert_eq!(lines[..4], ["remember key old", "say one / one", "old", "new"], "{answer:?}");
    assert!(lines[4].contains("completed") && lines[4].contains("one-shot"), "{answer:?}");
    assert_eq!((session.newest(), session.history(100)), (newest, before), "nobody hears of it");
    assert!(session.completions().is_empty());
    let next = within("a turn", session.prompt("recall key", "")?.ended()).await?;
    assert_eq!(next.output, "old");
    host.is_idle()
}

/// Rule G4: who lets go of an aside has stopped it. Rule G5: it publishes nothing, also when the answer was there.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn an_aside_that_nobody_waits_for_is_stopped_and_says_nothing() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let aside = session.aside("partial half\ncheckpoint here\nsay late")?;
    host.reached("here").await?;
    drop(aside);
    host.until("it has gone", <[NodeView]>::is_empty).await?;
    assert_eq!(host.places().count("here"), 1);
    // One that had answered softly all the same.
    let aside = session.aside("checkpoint there\nsay late")?;
    host.reached("there").await?;
    host.host().tree().stop(aside.id(), &crate::start::soft("enough"))?;
    host.release("there");
    let answer = within("the aside", aside.ended()).await?;
    assert!(matches!(answer.outcome, Outcome::Interrupted { .. }), "{answer:?}");
    assert_eq!((answer.text.as_str(), session.newest()), ("", 0));
    host.is_idle()
}

/// A model that never answers, and knows who still listens.
#[derive(Debug, Clone)]
struct Listened {
    to: Arc<watch::Sender<usize>>,
}

struct Hears(Arc<watch::Sender<usize>>);

impl Drop for Hears {
    fn drop(&mut self) {
        self.0.send_modify(|listeners| *listeners -= 1);
    }
}

impl Provider for Listened {
    fn name(&self) -> &'static str {
        "listened"
    }

    fn start(&self, _request: Request) -> ResponseStream {
        self.to.send_modify(|listeners| *listeners += 1);
        let hears = Hears(Arc::clone(&self.to));
        let text = stream::iter([Ok(Delta::Text("half".to_owned()))]);
        let never = stream::pending::<Result<Delta, ModelError>>().map(move |delta| {
            let _kept = &hears;
            delta
        });
        text.chain(never).boxed()
    }
}

async fn listeners(model: &Listened, wanted: usize) -> Result {
    let mut to = model.to.subscribe();
    within("listeners", to.wait_for(|listeners| *listeners == wanted)).await??;
    Ok(())
}

/// Rules G4 and S3: the request of a one-shot question is really cancelled when it is abandoned and when it is stopped.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_question_to_a_model_is_cancelled_with_whoever_asked_it() -> Result {
    let model = Listened { to: Arc::new(watch::Sender::new(0)) };
    let host = with_agent().model(model.clone()).build()?;
    let session = host.session("agent").await?;
    let asked = session.ask("why?", None)?;
    listeners(&model, 1).await?;
    let nodes = side_runs(&host);
    assert_eq!((nodes.len(), nodes[0].id), (1, asked.id()));
    drop(asked);
    listeners(&model, 0).await?;
    host.until("it has gone", <[NodeView]>::is_empty).await?;

    let asked = session.ask("why?", None)?;
    let mut events = asked.events();
    let heard = async {
        while let Some(event) = events.next().await? {
            if matches!(event.kind, EventKind::ModelText { .. }) {
                return Ok(());
            }
        }
        anyhow::bail!("it is over")
    };
    within("the first words", heard).await??;
    assert_eq!(session.stop_side_runs("user", "enough"), 1);
    let answer = within("its end", asked.ended()).await?;
    assert_eq!((answer.outcome, answer.text.as_str()), (interrupted(hard("enough")), ""));
    listeners(&model, 0).await?;
    assert_eq!(session.newest(), 0, "nobody hears of it");
    host.is_idle()
}

/// A one-shot question has the conversation, is held to the agent's grants, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_model_is_asked_about_the_conversation() -> Result {
    let model = Scripted::new("main", [Reply::new().text("because").repeat()]).recording();
    let other = Scripted::new("other", [Reply::new().text("no").repeat()]);
    let own = agent().grants("models = [\"main\"]");
    let host = host().plugin(own).model(model.clone()).model(other).build()?;
    let session = host.session("agent").await?;
    session.prompt("say one", "")?.ended().await;
    let newest = session.newest();
    let answer = within("the answer", session.ask("why?", Some("main"))?.ended()).await?;
    assert_eq!((answer.outcome, answer.text.as_str()), (Outcome::Completed(()), "because"));
    let texts: Vec<String> =
        model.requests()[0].messages.iter().map(|message| message.text.clone()).collect();
    assert_eq!(texts, ["say one", "one", "why?"]);
    for model in ["other", "nothing"] {
        let refused = session.ask("why?", Some(model));
        assert!(matches!(refused, Err(SideError::Model { .. })), "{refused:?}");
    }
    assert_eq!((session.newest(), session.history(10).len()), (newest, 2));
    host.is_idle()
}

/// A host function that panics at one place.
struct Breaks;

impl Checkpoints for Breaks {
    fn reached(&self, _run: &str, name: &str) -> BoxFuture<'static, ()> {
        assert!(name != "panic", "a defect of the host");
        std::future::ready(()).boxed()
    }
}

/// Breaks in the middle of an answer.
#[derive(Debug)]
struct Panics;

impl Provider for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn start(&self, request: Request) -> ResponseStream {
        assert!(request.messages.is_empty(), "a defect of the host");
        stream::empty().boxed()
    }
}

/// Rule G3: a side run that dies in an unusual way leaves the tree, is reported as what it was, and a join with no time
/// succeeds.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_side_run_that_dies_leaves_the_tree_and_is_reported_as_that() -> Result {
    type Died = fn(&Outcome<()>) -> bool;
    let trapped: Died = |outcome| matches!(outcome, Outcome::Trapped(_));
    let panicked: Died = |outcome| matches!(outcome, Outcome::HostPanicked(_));
    let deaths = [("trap", trapped), ("exit 3", trapped), ("checkpoint panic", panicked)];
    for (death, expected) in deaths {
        let host = with_agent().checkpoints(Breaks).model(Panics).build()?;
        let session = host.session("agent").await?;
        let side = session.side_run(format!("partial half\n{death}"), "")?;
        let run = Arc::clone(side.run());
        let report = within(death, side.ended()).await?;
        assert!(expected(&report.outcome), "{death}: {report:?}");
        assert_eq!(report.output, "half", "{death}");
        let told = ends(&journal(&session).await?);
        assert_eq!(told, [(run.to_string(), "trapped".to_owned(), "half".to_owned())], "{death}");
        let answer = within(death, session.aside(death)?.ended()).await?;
        assert!(expected(&answer.outcome), "{death}: {answer:?}");
        let answer = within("a question", session.ask("why?", None)?.ended()).await?;
        assert!(panicked(&answer.outcome), "{answer:?}");
        host.is_idle()?;
        host.host().shutdown("the end", Duration::ZERO).await?;
    }
    Ok(())
}

/// Rule G6: side runs pass the gate that turns pass. They are bounded, by a count of those that live.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_or_full_session_lets_no_side_run_in() -> Result {
    let model = Scripted::new("model", [Reply::new().stall().repeat()]);
    let host = with_agent().model(model).build()?;
    let session = host.session("agent").await?;
    let mut sides = Vec::new();
    for _ in 0..MOST_SIDE_RUNS - 2 {
        sides.push(session.side_run("checkpoint here", "")?);
    }
    let (aside, asked) = (session.aside("checkpoint here")?, session.ask("why?", None)?);
    let kinds = |session: &Session| {
        [
            session.side_run("say x", "").map(drop),
            session.aside("say x").map(drop),
            session.ask("why?", None).map(drop),
        ]
    };
    for refused in kinds(&session) {
        assert!(matches!(refused, Err(SideError::TooMany { most: MOST_SIDE_RUNS })), "{refused:?}");
    }
    drop((aside, asked));
    host.until("there is room", |nodes| nodes.len() < MOST_SIDE_RUNS).await?;
    host.release("here");
    for side in sides {
        assert_eq!(within("a side run", side.ended()).await?.outcome, Outcome::Completed(()));
    }
    host.host().shutdown("the end", Duration::ZERO).await?;
    for refused in kinds(&session) {
        let Err(SideError::Refused(Refused::Closed { .. })) = refused else {
            panic!("{refused:?}");
        };
    }
    let figures = host.host().metrics();
    for (sample, count) in [
        ("admissions_total{work=\"side run\"}", MOST_SIDE_RUNS),
        ("refusals_total{work=\"side run\",reason=\"capacity\"}", 3),
        ("refusals_total{work=\"side run\",reason=\"draining\"}", 3),
    ] {
        assert!(figures.contains(&format!("checkrein_{sample} {count}\n")), "{sample}: {figures}");
    }
    host.is_idle()
}

/// Rule C8 for side runs: one that was going on when the host died is recorded as unknown, with what it had said; an aside was
/// never there. The names of those that follow are new.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_side_run_that_was_going_on_when_the_host_died_is_unknown() -> Result {
    let store = Mortal::new();
    let first = with_agent().build()?;
    let before = profile(&first, store.clone()).await?;
    let session = before.open("agent", Delivery::Turns).await?;
    let side = session.side_run("partial half\ncheckpoint here", "")?;
    let aside = session.aside("partial half\ncheckpoint there")?;
    first.reached("here").await?;
    first.reached("there").await?;
    store.dies();
    session.stop("a test", "the old process is gone");
    let run = side.run().to_string();
    drop((aside, side.ended().now_or_never()));

    let second = with_agent().build()?;
    let after = profile(&second, store.next_life()?).await?;
    let session = within("it wakes", after.session(session.id())).await??;
    let told = ends(&journal(&session).await?);
    assert_eq!(told, [(run.clone(), "unknown".to_owned(), "half".to_owned())]);
    let next = session.side_run("say x", "")?;
    assert_ne!(*run, **next.run(), "no run has the name of another");
    assert_eq!(within("the next", next.ended()).await?.unrecorded, None);
    second.is_idle()
}

/// Rule W4: side runs leave nothing behind, however they end.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn side_runs_leave_nothing_behind() -> Result {
    let model = Scripted::new("model", [Reply::new().text("x").repeat()]);
    let host = with_agent().model(model).build()?;
    let session = host.session("agent").await?;
    for round in 0..60_u32 {
        let side = session.side_run("say x", "")?;
        let (aside, asked) = (session.aside("say x")?, session.ask("x", None)?);
        match round % 4 {
            0 => drop((aside, asked)),
            1 => drop((aside.ended().now_or_never(), asked.ended().await)),
            2 => drop((aside.ended().await, asked.ended().now_or_never())),
            _ => {
                session.stop("user", "all of it");
                drop((aside.ended().await, asked.ended().await));
            }
        }
        within("the side run", side.ended()).await?;
        host.until("it is over", <[NodeView]>::is_empty).await?;
    }
    host.is_idle()
}
