//! Stops, as a guest meets them and as whoever stops meets them (rules S).

use std::time::Duration;

use checkrein::model::{Hold, Reply, Scripted};
use checkrein::sandbox::Outcome;
use checkrein::session::{EventKind, Generation, Session, StopError, ToolAnswer};
use checkrein::work::{Gone, Grace, Kind, Stop, StopKind};
use checkrein_testkit::{TestHost, within};

use crate::start::{Beside, Result, hard, interrupted, neighbour, soft, with_agent};

/// Everything that has happened in a session so far.
fn events(session: &Session) -> Vec<EventKind> {
    let mut events = session.events(0);
    std::iter::from_fn(|| events.try_next().ok().flatten()).map(|event| event.kind).collect()
}

/// Rules S1 and S5: each call that can wait says once that a soft stop has come, with its kind, its exact words and
/// who asked; from then on it works again, and the run ends in its own time.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn each_call_that_waits_tells_of_a_soft_stop_once() -> Result {
    let model = Scripted::new("model", [Reply::new().text("an answer").repeat()]);
    let host = with_agent().model(model).build()?;
    for (call, works) in [
        ("checkpoint free", "fine"),
        ("sleep 1", "fine"),
        ("ask anything", "an answer\nfine"),
        ("call tool_echo {\"text\":\"hello\"}", "ok: hello\nfine"),
    ] {
        let session = host.session("agent").await?;
        let before = format!("before {call}");
        let turn =
            session.prompt(format!("try checkpoint {before}\ntry {call}\ntry {call}"), "")?;
        host.reached(&before).await?;
        // The guest is in the door already: it hears of the stop there. The calls after it work again.
        session.stop_turn(None, &soft("words, exactly: ä \"quoted\""))?;
        let report = within("the end", turn.ended()).await?;
        let told = "interrupted | soft | words, exactly: ä \"quoted\" | user";
        assert_eq!(report.output, format!("{told}\n{works}\n{works}"), "{call}");
        let stop = soft("words, exactly: ä \"quoted\"");
        assert_eq!(report.outcome, Outcome::Interrupted { stop, said: None }, "{call}");
        host.is_idle()?;
    }
    Ok(())
}

/// Rule S1: whichever call can wait is the first one to tell of the stop.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn the_first_call_that_waits_tells_of_a_stop_that_came_while_the_guest_computed()
-> Result {
    let model = Scripted::new("model", [Reply::new().text("an answer").repeat()]);
    let host = with_agent().model(model).build()?;
    for call in
        ["checkpoint free", "sleep 1", "ask anything", "call tool_echo {\"text\":\"hello\"}"]
    {
        let session = host.session("agent").await?;
        // Calls that do not wait work all along.
        let turn = session
            .prompt(format!("times 20000 remember key value\nrecall key\ntry {call}"), "")?;
        session.stop_turn(None, &soft("enough"))?;
        let report = within("the end", turn.ended()).await?;
        assert_eq!(report.output, "value\ninterrupted | soft | enough | user", "{call}");
        host.is_idle()?;
    }
    Ok(())
}

/// Rule S1: asking is observing.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_asks_for_its_stop_has_observed_it() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session
        .prompt("stop?\ntimes 20000 remember key value\nstop?\ntry checkpoint free\nstop?", "")?;
    session.stop_turn(None, &soft("enough"))?;
    let output = within("the end", turn.ended()).await?.output;
    let (first, rest) = output.split_once('\n').unwrap_or_default();
    assert!(["no stop", "soft | enough | user"].contains(&first), "{first}");
    assert_eq!(rest, "soft | enough | user\nfine\nsoft | enough | user");
    host.is_idle()
}

/// Rule S2: a stop given before the run has started is visible from the guest's first instruction.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_stop_before_the_start_is_visible_from_the_first_instruction() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    // A session that carries a stop gives it to what starts in it later.
    host.host().tree().stop(session.work(), &soft("before it began"))?;
    let report =
        within("the end", session.prompt("stop?\ntry checkpoint free", "")?.ended()).await?;
    assert_eq!(report.output, "soft | before it began | user\nfine");
    assert_eq!(report.outcome, interrupted(soft("before it began")));

    let session = host.session("agent").await?;
    host.host().tree().stop(session.work(), &hard("never begin"))?;
    let report = within("the end", session.prompt("emit it ran", "")?.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("never begin")));
    assert!(!events(&session).iter().any(|event| matches!(event, EventKind::Custom { .. })));
    assert_eq!(report.used.calls, 0);
    host.is_idle()
}

/// Rule S10: when the grace period ends, the stop becomes hard, with the same words.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_soft_stop_becomes_hard_when_its_grace_period_ends() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("try checkpoint a\npartial it went on\nspin", "")?;
    host.reached("a").await?;
    let stop = Stop::soft("user", "be quick", Grace::After(Duration::from_millis(50)));
    session.stop_turn(None, &stop)?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("be quick")));
    assert_eq!(report.output, "it went on");
    assert!(report.used.wall_time >= Duration::from_millis(50), "{:?}", report.used.wall_time);
    // Watchers hear of both, though nobody gave the second one.
    let stops: Vec<EventKind> = events(&session)
        .into_iter()
        .filter(|event| matches!(event, EventKind::Stop { .. }))
        .collect();
    let told = |kind: &str| EventKind::Stop {
        kind: kind.to_owned(),
        message: "be quick".to_owned(),
        issuer: "user".to_owned(),
    };
    assert_eq!(stops, [told("soft"), told("hard")]);
    host.is_idle()
}

/// Rule S10: between observing its stop and the end of the grace period all calls work.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_wraps_up_within_its_grace_period() -> Result {
    let model = Scripted::new("model", [Reply::new().text("a summary")]);
    let host = with_agent().model(model).build()?;
    let session = host.session("agent").await?;
    let goal = "try checkpoint a\nask for a summary\ncall tool_echo {\"text\":\"saved\"}\nremember k v\nsleep 1";
    let turn = session.prompt(goal, "")?;
    host.reached("a").await?;
    session
        .stop_turn(None, &Stop::soft("user", "wrap up", Grace::After(Duration::from_secs(60))))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.output, "interrupted | soft | wrap up | user\na summary\nok: saved");
    let Outcome::Interrupted { stop, .. } = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!((stop.kind(), stop.message()), (StopKind::Soft, "wrap up"));
    host.is_idle()
}

/// Rules S1 and W6: a tool that is called during the grace period starts with the stop of its caller, which it cannot
/// hear of; so what it answers is its own.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_tool_that_is_called_during_the_grace_period_answers_for_itself() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let calls =
        "call tool_fail {\"text\":\"not-found\"}\ncall tool_panic\ncall tool_size {\"count\":2}";
    let turn = session.prompt(format!("try checkpoint a\n{calls}"), "")?;
    host.reached("a").await?;
    session.stop_turn(None, &soft("wrap up"))?;
    let output = within("the end", turn.ended()).await?.output;
    let statuses: Vec<&str> =
        output.lines().skip(1).filter_map(|line| line.split_once(": ")).map(|(s, _)| s).collect();
    assert_eq!(statuses, ["not-found", "trapped", "ok"], "{output}");
    host.is_idle()
}

/// Rule S10: a run that ended within its grace period takes the rest of it along.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_grace_period_never_reaches_the_next_turn() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("try checkpoint a", "")?;
    host.reached("a").await?;
    session
        .stop_turn(None, &Stop::soft("user", "leave", Grace::After(Duration::from_millis(30))))?;
    within("the first end", turn.ended()).await?;
    // Rule S13: no stop leaks into a later run.
    let turn = session.prompt("stop?\nsleep 100\nstop?", "")?;
    let report = within("the second end", turn.ended()).await?;
    assert_eq!(report.outcome, Outcome::Completed(()));
    assert_eq!(report.output, "no stop\nno stop");
    host.is_idle()
}

/// Rule S5: stops are idempotent, soft rises to hard, hard never falls back, the first message of a kind stays.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn the_first_message_of_a_kind_stays_and_hard_never_falls_back() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("try checkpoint a\nstop?\nemit seen\nforever checkpoint b", "")?;
    host.reached("a").await?;
    assert_eq!(session.stop_turn(None, &soft("first"))?, 1);
    assert_eq!(session.stop_turn(None, &soft("second"))?, 0);
    host.reached("b").await?;
    assert_eq!(session.stop_turn(None, &hard("third"))?, 1);
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("third")));
    let stops: Vec<EventKind> = events(&session)
        .into_iter()
        .filter(|event| matches!(event, EventKind::Stop { .. }))
        .collect();
    let stop = |kind: &str, message: &str| EventKind::Stop {
        kind: kind.to_owned(),
        message: message.to_owned(),
        issuer: "user".to_owned(),
    };
    assert_eq!(stops, [stop("soft", "first"), stop("hard", "third")]);

    let turn = session.prompt("checkpoint c\nspin", "")?;
    host.reached("c").await?;
    let id = turn.id();
    let tree = host.host().tree();
    assert_eq!(tree.stop(id, &hard("hard first"))?, 1);
    // It may be gone already; then that is the answer.
    assert!(matches!(tree.stop(id, &soft("soft later")), Ok(0) | Err(Gone { .. })));
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("hard first")));
    host.is_idle()
}

/// Rule S9: a stop names an execution, and one for an older execution never hits the next turn.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_stop_for_an_older_execution_is_refused_as_stale() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let first = session.prompt("say one", "")?;
    let (old, old_id) = (first.generation(), first.id());
    within("the first end", first.ended()).await?;
    assert!(matches!(session.stop_turn(Some(old), &hard("late")), Err(StopError::Stale)));

    let second = session.prompt("checkpoint a\nstop?", "")?;
    host.reached("a").await?;
    assert!(matches!(session.stop_turn(Some(old), &hard("late")), Err(StopError::Stale)));
    // Rule W7: the id of ended work gets a terminal answer.
    assert!(matches!(host.host().tree().stop(old_id, &hard("late")), Err(Gone { .. })));
    assert_eq!(second.generation(), Generation(old.0 + 1));
    host.release("a");
    let report = within("the second end", second.ended()).await?;
    assert_eq!((report.outcome, &*report.output), (Outcome::Completed(()), "no stop"));
    host.is_idle()
}

/// Rule S14: talking is not stopping.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_prompt_to_a_busy_session_stops_nobody() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("checkpoint a\nstop?", "")?;
    host.reached("a").await?;
    assert!(session.prompt("say hello", "").is_err());
    host.release("a");
    assert_eq!(within("the end", turn.ended()).await?.output, "no stop");
    // An idle session has nothing to stop.
    assert_eq!(session.stop_turn(None, &hard("anybody?"))?, 0);
    host.is_idle()
}

/// Rule S12: what a run had reported is kept and attached to its interrupted result.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_hard_stop_keeps_what_was_reported() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let goal = "progress half-way\ncall tool_echo {\"text\":\"kept\"}\npartial one\npartial one and two\nlogs 1 3\nspin";
    let turn = session.prompt(goal, "")?;
    host.logged("lll").await?;
    session.stop_turn(None, &hard("enough"))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("enough")));
    assert_eq!(report.output, "one and two");
    assert_eq!(report.tools, [answer("1", "tool_echo", "kept")]);
    let events = events(&session);
    assert!(events.contains(&EventKind::Progress { text: "half-way".to_owned() }));
    let ended = |event: &EventKind| matches!(event, EventKind::ToolEnded { status, bytes: 4, .. } if status == "ok");
    assert!(events.iter().any(ended), "{events:?}");
    let Some(EventKind::RunEnded { status, output, detail, .. }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!((&**status, &**output), ("interrupted", "one and two"));
    assert_eq!(detail.as_deref(), Some("stopped by user: enough"));
    // Rule S12: what the conversation remembers of it.
    let said: Vec<String> = session.history(2).into_iter().map(|message| message.text).collect();
    assert_eq!(said, [goal, "one and two"]);
    host.is_idle()
}

fn answer(id: &str, tool: &str, content: &str) -> ToolAnswer {
    let [id, tool, status, content] = [id, tool, "ok", content].map(str::to_owned);
    ToolAnswer { id, tool, status, content }
}

/// Rule S12: of a batch of tool calls that a stop ends, what had come back is kept, though the guest never heard of it.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_stop_keeps_the_results_of_a_batch_that_had_come_back() -> Result {
    let host = with_agent().build()?;
    let batch =
        "try batch tool_echo {\"text\":\"kept\"} | tool_spin | tool_size {\"count\":100000}";
    for (round, stop) in [soft("enough"), hard("enough")].into_iter().enumerate() {
        let session = host.session("agent").await?;
        let turn = session.prompt(format!("{batch}\nsay so"), "")?;
        let mut watching = session.events(0);
        let mut back = 0;
        while back < 2 {
            let event = within("two tools come back", watching.next()).await??;
            let came = event.is_some_and(|event| matches!(event.kind, EventKind::ToolEnded { .. }));
            back += usize::from(came);
        }
        within("a tool spins", host.logs().written("spinning", round + 1)).await?;
        session.stop_turn(None, &stop)?;
        let mut report = within("the end", turn.ended()).await?;
        assert_eq!(report.outcome, interrupted(stop.clone()));
        if stop.kind() == StopKind::Soft {
            assert_eq!(report.output, "interrupted | soft | enough | user\nso");
        }
        // One that runs in a process of its own may have said that it was interrupted, or be gone before.
        report.tools.retain(|answer| answer.status != "interrupted");
        report.tools.sort_by_key(|answer| answer.content.len());
        let most = "o".repeat(64 << 10);
        let kept =
            [answer("tool_echo", "tool_echo", "kept"), answer("tool_size", "tool_size", &most)];
        assert_eq!(report.tools, kept);
        // They are in the events, too, and so in what the command writes as JSON.
        let Some(ended @ EventKind::RunEnded { .. }) = events(&session).pop() else {
            panic!("{:?}", events(&session))
        };
        let tools = &serde_json::to_value(&ended)?["tools"];
        let all = tools.as_array().map_or(&[][..], Vec::as_slice);
        let kept = all.iter().filter(|tool| tool["status"] != "interrupted");
        assert_eq!(kept.count(), 2);
        assert!(
            tools.to_string().contains("{\"content\":\"kept\",\"id\":\"tool_echo\","),
            "{tools}"
        );
    }
    host.is_idle()
}

/// Rules S3 and S12: a hard stop reaches the model request in flight, whose stream is really dropped; the text that
/// had streamed is kept.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_hard_stop_ends_the_model_request_and_keeps_its_text() -> Result {
    let hold = Hold::new();
    let model =
        Scripted::new("model", [Reply::new().text("streamed so far").hold(&hold).text("never")]);
    let host = with_agent().model(model).build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("ask anything", "")?;
    within("the model", hold.reached(1)).await?;
    let work = turn.id();
    assert_eq!(host.executions().iter().filter(|node| node.kind == Kind::ModelRequest).count(), 1);
    // The turn and its request.
    assert_eq!(session.stop_turn(None, &hard("enough"))?, 2);
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("enough")));
    assert_eq!(report.output, "streamed so far");
    assert!(!host.host().tree().contains(work));
    host.is_idle()?;
    within("the stream is dropped", hold.dropped(1)).await
}

/// Rule S3: a soft stop ends the wait for a model, too, and with it the request; then the model can be asked again.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_soft_stop_ends_the_model_request_and_the_model_can_be_asked_again() -> Result
{
    let hold = Hold::new();
    let model = Scripted::new("model", [Reply::new().hold(&hold), Reply::new().text("goodbye")]);
    let host = with_agent().model(model).build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("try ask anything\nask for a last word", "")?;
    within("the model", hold.reached(1)).await?;
    session.stop_turn(None, &soft("enough"))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.output, "interrupted | soft | enough | user\ngoodbye");
    within("the stream is dropped", hold.dropped(1)).await?;
    host.is_idle()
}

/// Rules S3 and S4: a stop reaches all tool calls of the turn before it returns, says how many pieces of work it
/// changed, and leaves another session alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_reaches_the_tool_calls_of_the_turn_and_nothing_outside() -> Result {
    let host = with_agent().plugin(neighbour()).build()?;
    let honest = Beside::start(&host).await?;
    let session = host.session("agent").await?;
    let turn = session.prompt("calls 3 tool_spin", "")?;
    within("three tools spin", host.logs().written("spinning", 3)).await?;
    let nodes = host.executions();
    let mine =
        |kind: Kind| nodes.iter().filter(|node| node.kind == kind && node.stop.is_none()).count();
    assert_eq!((mine(Kind::Turn), mine(Kind::ToolCall)), (2, 3));

    assert_eq!(session.stop_turn(None, &hard("all of you"))?, 4);
    for node in host.executions() {
        let carries = node.stop.as_ref().map(|stop| (stop.kind(), stop.message().to_owned()));
        let is_other = node.id == honest.id();
        assert_eq!(
            carries,
            (!is_other).then(|| (StopKind::Hard, "all of you".to_owned())),
            "{node:?}"
        );
    }
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard("all of you")));
    // Nothing but the neighbour is left, at this very moment.
    assert_eq!(host.executions().iter().map(|node| node.id).collect::<Vec<_>>(), [honest.id()]);
    honest.finishes(&host).await?;
    host.is_idle()
}

/// Rule S12: watchers hear the end of whatever they heard the beginning of, before they hear the end of the run.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn what_a_stop_ends_is_ended_in_the_events_too() -> Result {
    let hold = Hold::new();
    let model = Scripted::new("model", [Reply::new().text("so far").hold(&hold).repeat()]);
    let host = with_agent().model(model).build()?;
    for stop in [soft("enough"), hard("enough")] {
        let session = host.session("agent").await?;
        let turn =
            session.prompt("try calls 2 tool_sleep {\"text\":\"std\"}\nfail failed x", "")?;
        host.until("two tools sleep", |nodes| {
            nodes.iter().filter(|node| node.kind == Kind::ToolCall).count() == 2
        })
        .await?;
        session.stop_turn(None, &stop)?;
        within("the end", turn.ended()).await?;
        let events = events(&session);
        let ended = |event: &&EventKind| matches!(event, EventKind::ToolEnded { status, .. } if status == "interrupted");
        assert_eq!(events.iter().filter(ended).count(), 2, "{events:?}");
        assert!(matches!(events.last(), Some(EventKind::RunEnded { .. })), "{events:?}");

        let session = host.session("agent").await?;
        let turn = session.prompt("ask anything", "")?;
        host.doing("model.complete").await?;
        session.stop_turn(None, &stop)?;
        within("the end", turn.ended()).await?;
        let events = self::events(&session);
        let ended = |event: &&EventKind| matches!(event, EventKind::ModelEnded { finish, .. } if finish == "interrupted");
        assert_eq!(events.iter().filter(ended).count(), 1, "{events:?}");
        assert!(matches!(events.last(), Some(EventKind::RunEnded { .. })), "{events:?}");
    }
    host.is_idle()
}

/// Rule S3: a soft stop ends a wait for tools, and the tools with it.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_soft_stop_ends_the_tool_calls_that_the_guest_waits_for() -> Result {
    let host = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("try calls 2 tool_spin\ncheckpoint after", "")?;
    within("two tools spin", host.logs().written("spinning", 2)).await?;
    session.stop_turn(None, &soft("enough"))?;
    host.reached("after").await?;
    host.until("no tool runs", |nodes| nodes.iter().all(|node| node.kind != Kind::ToolCall))
        .await?;
    host.release("after");
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.output, "interrupted | soft | enough | user");
    host.is_idle()
}

/// Rules W5, D2 and D3: a host that goes refuses new work, stops what there is with its reason, and waits for it.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn shutting_down_stops_everything_and_nothing_new_begins() -> Result {
    let host = with_agent().plugin(neighbour()).build()?;
    let mut turns = Vec::new();
    for goal in ["spin", "checkpoint x", "calls 2 tool_spin", "sleep 100000000", "loop run.budgets"]
    {
        let session = host.session("agent").await?;
        turns.push((session.prompt(goal, "")?, session));
    }
    within("the tools spin", host.logs().written("spinning", 2)).await?;
    host.reached("x").await?;
    let drained = host.host().shutdown("the host goes", checkrein_testkit::PATIENCE).await;
    assert!(drained.is_ok(), "{drained:?}");
    host.is_idle()?;
    for (turn, session) in turns {
        assert_eq!(
            within("the end", turn.ended()).await?.outcome,
            interrupted(Stop::hard("host", "the host goes"))
        );
        assert!(session.prompt("say hello", "").is_err());
    }
    assert!(host.session("agent").await.is_err());
    Ok(())
}

/// A waiter that gives up is not a stop: the turn goes on, and its end is in the session's events.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_waiter_that_gives_up_stops_nobody() -> Result {
    let host: TestHost = with_agent().build()?;
    let session = host.session("agent").await?;
    let turn = session.prompt("checkpoint a\nsay done", "")?;
    host.reached("a").await?;
    drop(turn);
    host.release("a");
    let mut watching = session.events(0);
    loop {
        let event = within("an event", watching.next()).await??;
        if let Some(EventKind::RunEnded { status, output, .. }) = event.map(|event| event.kind) {
            assert_eq!((&*status, &*output), ("completed", "done"));
            break;
        }
    }
    host.is_idle()
}
