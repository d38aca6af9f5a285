//! A host that goes, with every kind of work alive in its profiles (rules D and R1).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use checkrein::Schedules;
use checkrein::model::{Hold, Reply, Scripted};
use checkrein::sandbox::Outcome;
use checkrein::session::{Aside, Delivery, PromptError, Session, SideRun, Turn};
use checkrein::work::shutdown::{
    Bounds, Ended, Report, Request, Requested, Settled, Shutdown, Step, Steps,
};
use checkrein::work::{Kind, Stop};
use checkrein_testkit::{Mortal, TestClock, TestHost, within};
use futures::FutureExt;

use super::{Bed, profile, released, session};
use crate::durable;
use crate::start::{Result, interrupted, with_agent};

pub(super) const REASON: &str = "the machine goes down";

pub(super) fn reason() -> Stop {
    Stop::hard("operator", REASON)
}

pub(super) fn bounds(drain: Duration, settle: Duration) -> Bounds {
    let short = Duration::from_millis(50);
    Bounds {
        tell_clients: short,
        drain,
        hard_stop: short,
        settle,
        flush: short,
        ..Bounds::default()
    }
}

/// Waits until it is kept how the first scheduled run ended: a moment after its work has gone, for which a service waits before
/// it lets go of the home.
async fn first_has_ended(schedules: &Schedules) -> Result {
    let ended = async {
        while schedules.list()[0].runs[0].status == "running" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within("the end of the scheduled run", ended).await
}

/// How often each step of the caller was taken.
#[derive(Debug, Default)]
struct Taken {
    revoked: AtomicUsize,
    stopped: AtomicUsize,
    closed: AtomicUsize,
    exited: AtomicUsize,
}

impl Taken {
    fn steps(self: &Arc<Self>) -> Steps {
        let count = |of: fn(&Taken) -> &AtomicUsize| {
            let taken = Arc::clone(self);
            move || {
                of(&taken).fetch_add(1, Ordering::SeqCst);
                std::future::ready(Ok(()))
            }
        };
        let (closes, exits) = (count(|taken| &taken.closed), count(|taken| &taken.exited));
        Steps::new()
            .revoke_tickets(count(|taken| &taken.revoked))
            .stop_listeners(count(|taken| &taken.stopped))
            .flush(move |settled| match settled {
                Settled::Drained(_) => closes(),
                Settled::Left(_) => std::future::ready(Ok(())),
            })
            .exit(move |_report| exits())
    }

    /// Tickets revoked, listeners stopped, stores closed, exit state written.
    fn counts(&self) -> [usize; 4] {
        let Taken { revoked, stopped, closed, exited } = self;
        [revoked, stopped, closed, exited].map(|count| count.load(Ordering::SeqCst))
    }
}

/// A profile with every kind of work that guests and clients can have alive.
struct Everything {
    bed: Bed,
    clock: TestClock,
    session: Session,
    turn: Turn,
    side: SideRun,
    aside: Aside,
    asked: Aside,
    /// At which places its guests wait.
    places: [&'static str; 6],
}

/// Waits for a child inside the call beside one in the background and a tool that sleeps; a second turn asks a model.
async fn everything(hold: &Hold) -> Result<Everything> {
    let clock = TestClock::at("2026-05-01T11:30:00Z")?;
    let model =
        Scripted::new("model", [Reply::new().text("half").hold(hold).text("whole").repeat()]);
    let bed = Bed::new(with_agent().clock(clock.clone()).model(model).build()?)?;
    let schedule = "[schedules.it]\ncron = \"0 * * * *\"\nagent = \"agent\"\ngoal = \"checkpoint by the clock\"\n";
    let authority = bed.with("main", schedule).await?;
    let session = session(&authority).await?;
    let turn = session.prompt(
        "delegate {\"mode\":\"background\",\"tasks\":[{\"goal\":\"checkpoint child\"}]}\n\
         delegate {\"tasks\":[{\"goal\":\"checkpoint inside\"}]}\nsay done",
        "",
    )?;
    let side = session.side_run("partial half\ncheckpoint side\nsay whole", "")?;
    let aside = session.aside("checkpoint aside\nsay whole")?;
    let asked = session.ask("why?", None)?;
    let places = ["child", "inside", "side", "aside", "by the clock", "nobody"];
    clock.set("2026-05-01T12:00:00Z")?;
    for place in &places[..5] {
        bed.host.reached(place).await?;
    }
    Ok(Everything { bed, clock, session, turn, side, aside, asked, places })
}

fn kinds(report: &[checkrein::work::shutdown::Piece]) -> BTreeSet<&str> {
    report.iter().map(|piece| piece.kind.as_str()).collect()
}

pub(super) async fn ended(shutdown: &Shutdown) -> Result<Arc<Report>> {
    within("the shutdown", shutdown.ended()).await?.ok_or_else(|| anyhow::anyhow!("no report"))
}

/// Rules D1 and D2: new work is refused at once; the drain waits for every kind of work, ends with the last of it, and nothing
/// was cut.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_drain_waits_for_every_kind_of_work() -> Result {
    let hold = Hold::new();
    let Everything { bed, clock, session, turn, side, aside, asked, places } =
        everything(&hold).await?;
    let taken = Arc::new(Taken::default());
    let long = Duration::from_secs(60);
    let shutdown = bed.host.host().shutdown_in_steps(bounds(long, long), taken.steps());
    assert_eq!(shutdown.request(&Request::drain("operator", REASON)), Requested::Began);
    assert_eq!(shutdown.request(&Request::drain("somebody", "else")), Requested::Joined);
    assert!(session.side_run("say x", "").is_err() && session.aside("say x").is_err());
    // What comes due now is for whoever serves the home next.
    clock.set("2026-05-01T13:00:00Z")?;
    for place in places {
        assert!(shutdown.ended().now_or_never().is_none(), "before `{place}`");
        bed.host.release(place);
    }
    assert_eq!(within("the turn", turn.ended()).await?.outcome, Outcome::Completed(()));
    assert_eq!(within("the side run", side.ended()).await?.output, "whole");
    assert_eq!(within("the aside", aside.ended()).await?.text, "whole");
    bed.host.until("only the question is left", |nodes| nodes.len() == 1).await?;
    assert!(shutdown.ended().now_or_never().is_none(), "a question is work, too");
    hold.open();
    assert_eq!(within("the question", asked.ended()).await?.text, "halfwhole");
    let report = ended(&shutdown).await?;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(
        (report.issuer.as_str(), report.step(Step::HardStop)),
        ("operator", Some(&Ended::NotNeeded))
    );
    assert_eq!(taken.counts(), [1, 1, 1, 1]);
    let authority = bed.profiles.get("main").ok_or_else(|| anyhow::anyhow!("not served"))?;
    let schedules = profile(&authority)?.schedules();
    first_has_ended(&schedules).await?;
    let runs: Vec<String> = schedules.list()[0].runs.iter().map(|run| run.status.clone()).collect();
    assert_eq!(runs, ["completed"], "what was due in the drain has not been decided about");
    Ok(())
}

/// Rules D3 and D7: when the drain has had its time, everything that is counted is stopped hard with the caller's reason, and the
/// report names it.
#[tokio::test(flavor = "multi_thread")]
async fn what_outlives_the_drain_is_cut_with_the_callers_reason() -> Result {
    let Everything { bed, session, turn, side, aside, asked, .. } =
        everything(&Hold::new()).await?;
    let tools = bed.profiles.get("main").ok_or_else(|| anyhow::anyhow!("not served"))?;
    let other = super::session(&tools).await?;
    let tool = other.prompt("call tool_sleep {\"text\":\"block\"}", "")?;
    let models = super::session(&tools).await?;
    let model = models.prompt("ask why", "")?;
    bed.host.doing("tools.call").await?;
    bed.host.doing("model.complete").await?;
    let taken = Arc::new(Taken::default());
    let short = Duration::from_millis(50);
    let settle = Duration::from_secs(30);
    let shutdown = bed.host.host().shutdown_in_steps(bounds(short, settle), taken.steps());
    shutdown.request(&Request::drain("operator", REASON));
    let report = ended(&shutdown).await?;
    assert_eq!(report.step(Step::Drain), Some(&Ended::TimedOut));
    assert!(report.left.is_empty() && !report.is_clean(), "{report:?}");
    let expected = ["child", "model request", "side run", "tool call", "turn", "unit"];
    assert_eq!(kinds(&report.cut), BTreeSet::from(expected));
    let ids: BTreeSet<&str> = report.cut.iter().map(|piece| piece.id.as_str()).collect();
    assert_eq!(ids.len(), report.cut.len(), "once each");
    assert_eq!(within("the turn", turn.ended()).await?.outcome, interrupted(reason()));
    for turn in [tool, model] {
        assert_eq!(within("a turn", turn.ended()).await?.outcome, interrupted(reason()));
    }
    let side = within("the side run", side.ended()).await?;
    assert_eq!((side.outcome, side.output.as_str()), (interrupted(reason()), "half"));
    for aside in [aside, asked] {
        let answer = within("a question", aside.ended()).await?;
        assert_eq!((answer.outcome, answer.text.as_str()), (interrupted(reason()), ""));
    }
    let schedules = profile(&tools)?.schedules();
    first_has_ended(&schedules).await?;
    assert_eq!(schedules.list()[0].runs[0].status, "interrupted", "K1");
    let unit = within("the unit", session.completion()).await?;
    assert_eq!(unit.status.as_str(), "interrupted");
    assert_eq!(taken.counts(), [1, 1, 1, 1]);
    assert!(released(&within("the profile", tools.retire(settle)).await?));
    bed.host.is_idle()
}

/// A turn that is admitted, and does not begin before its store has answered.
pub(super) async fn admitted(host: &TestHost, store: &Arc<Mortal>) -> Result<(Session, Turn)> {
    let profile = durable::profile(host, store.clone()).await?;
    let session = profile.open("agent", Delivery::Turns).await?;
    store.stalls();
    let turn = session.prompt("say late", "")?;
    Ok((session, turn))
}

/// Rule R1: an admitted turn that has not started counts, is stopped with the host, and ends interrupted; its success, had it one
/// later, is nowhere. Rule D3: that there was nothing to stop yet is no error.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_turn_that_was_admitted_and_not_started_ends_interrupted() -> Result {
    let store = Mortal::new();
    let host = with_agent().build()?;
    let (session, turn) = admitted(&host, &store).await?;
    let nodes = host.executions();
    assert_eq!((nodes.len(), nodes[0].kind, nodes[0].id), (1, Kind::Turn, turn.id()), "it counts");
    let (zero, short) = (Duration::ZERO, Duration::from_millis(50));
    let shutdown = host.host().shutdown_in_steps(bounds(zero, short), Steps::new());
    shutdown.request(&Request::drain("operator", REASON));
    let report = ended(&shutdown).await?;
    assert_eq!(report.left.len(), 1, "it waits for its store: {report:?}");
    assert_eq!(report.left[0].id, turn.id().to_string());
    let doing = report.left[0].doing.as_deref().unwrap_or_default();
    assert!(doing.starts_with("waits to be recorded"), "{doing}");
    assert_eq!(host.executions()[0].stop, Some(reason()));
    // The store comes late, and with it the turn.
    store.heals();
    let report = within("the turn", turn.ended()).await?;
    assert_eq!((report.outcome, report.output.as_str()), (interrupted(reason()), ""));
    assert_eq!(report.used.calls, 0, "no guest has run");
    within("the rest", host.host().tree().idle(host.host().tree().root())).await?;
    within("the records", session.recorded()).await?;
    assert!(matches!(session.prompt("say x", ""), Err(PromptError::Refused(_))));
    host.is_idle()?;
    // That is what the next host finds, too.
    let second = with_agent().build()?;
    let profile = durable::profile(&second, store.next_life()?).await?;
    let session = within("it wakes", profile.session(session.id())).await??;
    let told = durable::ends(&durable::journal(&session).await?);
    assert_eq!(told, [("s1.1".to_owned(), "interrupted".to_owned(), String::new())]);
    Ok(())
}

/// Rules D4 and D5: a run whose end hangs and a task that never ends keep no step from being taken; they are named, left alone,
/// and end by themselves when they can.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_never_ends_is_named_and_left_alone() -> Result {
    let store = Mortal::new();
    let host = with_agent().build()?;
    let wedged = host.session("agent").await?;
    host.places().linger("wedged");
    let side = wedged.side_run("partial half\ncheckpoint wedged", "")?;
    host.reached("wedged").await?;
    let (_session, endless) = admitted(&host, &store).await?;
    let taken = Arc::new(Taken::default());
    let short = Duration::from_millis(50);
    let shutdown = host.host().shutdown_in_steps(bounds(short, short), taken.steps());
    let began = Instant::now();
    shutdown.request(&Request::drain("operator", REASON));
    let report = ended(&shutdown).await?;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(taken.counts(), [1, 1, 0, 1], "each step once, and no store closed under a writer");
    let left: BTreeSet<&str> = report.left.iter().map(|piece| piece.id.as_str()).collect();
    let expected = [side.id().to_string(), endless.id().to_string()];
    assert_eq!(left, expected.iter().map(String::as_str).collect());
    assert!(report.left.iter().all(|piece| piece.owner.is_some() && !piece.label.is_empty()));
    // Neither ended nor cancelled. Whoever waits for the one that waits for its store hears of the stop, and its work goes on.
    let (wedged_id, endless_id) = (side.id(), endless.id());
    let mut side = Box::pin(side.ended());
    assert_eq!(within("the endless", endless.ended()).await?.outcome, interrupted(reason()));
    assert!((&mut side).now_or_never().is_none());
    let tree = host.host().tree();
    assert!(tree.contains(wedged_id) && tree.contains(endless_id));
    host.release("wedged");
    store.heals();
    let side = within("the wedged", side).await?;
    assert_eq!((side.outcome, side.output.as_str()), (interrupted(reason()), "half"));
    within("the rest", tree.idle(tree.root())).await?;
    host.host().shutdown("the end", Duration::ZERO).await?;
    host.is_idle()
}
