//! The assistant with a scripted model and the real tools.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use checkrein::message::{FailureCode, Message, Role, ToolCall, Usage};
use checkrein::model::{
    Delta, Finish, Hold, Provider, Reply, Request, Response, ResponseStream, Scripted,
};
use checkrein::sandbox::{Access, Outcome};
use checkrein::session::{EventKind, TurnReport};
use checkrein_testkit::{TestHost, within};
use futures::stream;

use super::{events, folder, open};
use crate::start::{Result, hard, host, soft};

/// What the tools told the model in its latest request.
fn told(request: &Request) -> Vec<&str> {
    let results = request.messages.iter().filter(|message| message.role == Role::Tool);
    results.map(|message| message.text.as_str()).collect()
}

fn with(model: impl Provider + 'static) -> Result<TestHost> {
    let host = host().with_first_party().model(model).build()?;
    let work = folder(&host, "work")?;
    std::fs::write(work.join("a.txt"), "alpha\nbeta\n")?;
    Ok(host)
}

async fn ask(host: &TestHost, goal: &str) -> Result<(TurnReport, Vec<EventKind>)> {
    let session = open(host, "assistant", &folder(host, "work")?, Access::Read).await?;
    let report = within(goal, session.prompt(goal, "")?.ended()).await?;
    host.settles().await?;
    Ok((report, events(&session)))
}

/// Why the run failed.
fn failed(report: TurnReport) -> Result<(FailureCode, String)> {
    let Outcome::Failed(failure) = report.outcome else { bail!("{:?}", report.outcome) };
    Ok((failure.code, failure.message))
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_answer_run_at_once_and_their_results_go_back_to_the_model() -> Result {
    let model = Scripted::new(
        "main",
        [
            Reply::new()
                .text("I look.")
                .call("files_read", r#"{"files":[{"path":"/work/a.txt"}]}"#)
                .call("files_search", r#"{"pattern":"^b","path":"/work"}"#)
                .call("text_hash", r#"{"text":"abc"}"#),
            Reply::new().text("It says alpha and beta."),
        ],
    )
    .recording();
    let host = with(model.clone())?;
    let (report, events) = ask(&host, "What does a.txt say?").await?;
    assert_eq!(
        (report.outcome, &*report.output),
        (Outcome::Completed(()), "It says alpha and beta.")
    );

    let requests = model.requests();
    let [first, second] = requests.as_slice() else { panic!("{requests:?}") };
    let offered: Vec<&str> = first.tools.iter().map(|tool| tool.name.as_str()).collect();
    for tool in [
        "files_list",
        "files_read",
        "files_search",
        "files_write",
        "http_fetch",
        "text_diff",
        "text_hash",
    ] {
        assert!(offered.contains(&tool), "{offered:?}");
    }
    assert!(first.messages[0].text.contains("can reach: /work."), "{}", first.messages[0].text);
    let told = told(second);
    assert_eq!(told.len(), 3);
    assert!(told[0].contains(r#""text":"alpha\nbeta\n""#), "{}", told[0]);
    assert!(told[1].contains("a.txt") && told[1].contains(r#""text":"beta""#), "{}", told[1]);
    assert!(
        told[2].contains("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        "{}",
        told[2]
    );
    // Each result answers the call of its id.
    let asked: Vec<&str> = second
        .messages
        .iter()
        .flat_map(|message| &message.tool_calls)
        .map(|call| &*call.id)
        .collect();
    let answered: Vec<&str> =
        second.messages.iter().filter_map(|message| message.tool_call_id.as_deref()).collect();
    assert_eq!((asked.len(), &asked), (3, &answered));
    // All had begun before one was done.
    let started = |event: &&EventKind| matches!(event, EventKind::ToolStarted { .. });
    let ended =
        |event: &&EventKind| matches!(event, EventKind::ToolEnded { status, .. } if status == "ok");
    let order: Vec<bool> = events
        .iter()
        .filter(|event| started(event) || ended(event))
        .map(|event| started(&event))
        .collect();
    assert_eq!(order, [true, true, true, false, false, false]);
    Ok(())
}

/// What a model gets of a large file, when it does not say how much it wants, is whole and says where to go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_comes_in_parts_that_nobody_shortens() -> Result {
    let model = Scripted::new(
        "main",
        [
            Reply::new().call("files_read", r#"{"files":[{"path":"/work/large.txt"}]}"#),
            Reply::new().text("There is more."),
        ],
    )
    .recording();
    let host = with(model.clone())?;
    let lines: String = (0..5_000).map(|line| format!("\"{line}\" is\ta line\n")).collect();
    std::fs::write(folder(&host, "work")?.join("large.txt"), lines)?;
    ask(&host, "Read it.").await?;
    let requests = model.requests();
    let answer: serde_json::Value = serde_json::from_str(told(&requests[1])[0])?;
    let file = &answer["files"][0];
    let read = file["text"].as_str().unwrap_or_default().lines().count();
    assert!(read > 1_000, "{read} lines");
    assert_eq!(file["next_line"], read + 1);
    Ok(())
}

/// Rule C5, as a model hears of it: what went wrong with a call, in words that it can do something with.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_fails_is_told_as_it_is_and_the_run_goes_on() -> Result {
    let long = format!(r#"{{"path":"/work/{}"}}"#, "x".repeat(200_000));
    let model = Scripted::new(
        "main",
        [
            Reply::new()
                .call("files_list", r#"{"path":"/etc"}"#)
                .call("files_list", r#"{"path":"/work/../etc"}"#)
                .call("files_list", r#"{"path":"/work/none"}"#)
                .call("files_list", r#"{"path":7}"#)
                .call("files_list", r#"{"path":"/work","surprise":1}"#)
                .call("files_search", r#"{"pattern":"(","path":"/work"}"#)
                .call("files_write", r#"{"path":"/work/new.txt","content":"x"}"#)
                .call("http_fetch", r#"{"url":"http://127.0.0.1:9/"}"#)
                .call("launch", "{}")
                .call("files_list", long.as_str()),
            Reply::new().text("Nothing worked."),
        ],
    )
    .recording();
    let host = with(model.clone())?;
    let (report, _) = ask(&host, "Try all of it.").await?;
    assert_eq!((report.outcome, &*report.output), (Outcome::Completed(()), "Nothing worked."));
    let requests = model.requests();
    let told = told(&requests[1]);
    let expected = [
        "[denied] `/etc` cannot be reached: this run was granted /work",
        "[denied] `/work/../etc` cannot be reached: this run was granted /work",
        "[not-found] ",
        "[invalid] the arguments do not fit the tool's schema: `/path`: 7 is not of type",
        "[invalid] the arguments do not fit the tool's schema: the arguments: ",
        "[invalid] ",
        "[denied] ",
        "[denied] GET http://127.0.0.1:9/: this run was not granted 127.0.0.1:9",
        "[not-found] there is no tool `launch`; there are: files_list, ",
        "[",
    ];
    assert_eq!(told.len(), expected.len());
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "`{told}` does not begin with `{expected}`");
        // What a model hears of a long argument is short.
        assert!(told.len() < 60_000, "{} bytes", told.len());
    }
    assert!(!folder(&host, "work")?.join("new.txt").exists());
    Ok(())
}

/// A model that answers with whole messages, whatever is in them.
#[derive(Clone)]
struct Whole {
    answers: Arc<Mutex<Vec<Message>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Whole {
    fn new(answers: impl IntoIterator<Item = Message>) -> Whole {
        let mut answers: Vec<Message> = answers.into_iter().collect();
        answers.reverse();
        Whole { answers: Arc::new(Mutex::new(answers)), requests: Arc::default() }
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Whole")
    }
}

impl Provider for Whole {
    fn name(&self) -> &str {
        "main"
    }

    fn start(&self, request: Request) -> ResponseStream {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let message = answer.unwrap_or_else(|| Message::text(Role::Assistant, "no more"));
        let finish = if message.tool_calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        let response =
            Response { message, finish, usage: Usage::default(), model: "main".to_owned() };
        Box::pin(stream::iter([Ok(Delta::Done(response))]))
    }
}

fn calls(calls: &[(&str, &str, &str)]) -> Message {
    let call = |(id, name, arguments): &(&str, &str, &str)| ToolCall {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    Message { tool_calls: calls.iter().map(call).collect(), ..Message::text(Role::Assistant, "") }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_no_json_object_are_answered_and_never_reach_a_tool() -> Result {
    let deep = format!("{{\"path\":{}", "[".repeat(100_000));
    let model = Whole::new([
        calls(&[
            ("", "files_list", "{\"path\": \"/wo"),
            ("same", "files_list", "[1]"),
            ("same", "files_list", "no JSON"),
            ("deep", "files_list", &deep),
            ("right", "files_list", "{\"path\":\"/work\"}"),
        ]),
        Message::text(Role::Assistant, "One of five."),
    ]);
    let host = with(model.clone())?;
    let (report, events) = ask(&host, "List.").await?;
    assert_eq!((report.outcome, &*report.output), (Outcome::Completed(()), "One of five."));
    let requests = model.requests();
    let told = told(&requests[1]);
    for (told, expected) in told.iter().zip([
        "[invalid] the arguments are not JSON",
        "[invalid] the arguments are JSON, but not an object",
        "[invalid] the arguments are not JSON",
        "[invalid] the arguments are not JSON",
        "{",
    ]) {
        assert!(told.starts_with(expected), "{told}");
    }
    let ids: Vec<&str> =
        requests[1].messages.iter().filter_map(|message| message.tool_call_id.as_deref()).collect();
    assert_eq!(ids.len(), 5);
    assert!(
        ids.iter().enumerate().all(|(place, id)| !id.is_empty() && !ids[..place].contains(id)),
        "{ids:?}"
    );
    let started =
        events.iter().filter(|event| matches!(event, EventKind::ToolStarted { .. })).count();
    assert_eq!(started, 1);
    Ok(())
}

/// An answer that cannot pass the door is not taken for anything else, and the run ends with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_too_large_for_the_door_ends_the_run_with_the_reason() -> Result {
    let huge = format!(r#"{{"text":"{}"}}"#, "x".repeat(5 << 20));
    let model = Whole::new((0..10).map(|_| calls(&[("1", "text_hash", &huge)])));
    let host = with(model.clone())?;
    let (report, _) = ask(&host, "Hash it.").await?;
    let (code, words) = failed(report)?;
    assert_eq!(code, FailureCode::TooLarge, "{words}");
    assert!(words.contains("the assistant could not go on at the start: "), "{words}");
    // One that passes goes on.
    let large = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
    let model = Whole::new([
        calls(&[("1", "text_hash", &large)]),
        Message::text(Role::Assistant, "Hashed."),
    ]);
    let host = with(model.clone())?;
    let (report, _) = ask(&host, "Hash it.").await?;
    assert_eq!((report.outcome, &*report.output), (Outcome::Completed(()), "Hashed."));
    assert!(told(&model.requests()[1])[0].contains("sha256"), "{:?}", told(&model.requests()[1]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_last_round_the_model_is_asked_once_more_without_tools() -> Result {
    let look = || Reply::new().call("files_list", r#"{"path":"/work"}"#);
    let model = Scripted::new(
        "main",
        [look(), look(), Reply::new().text("There is a.txt."), look().repeat()],
    )
    .recording();
    let host = host()
        .with_first_party()
        .model(model.clone())
        .configuration("[plugins.assistant.configuration]\nmax-rounds = 2")
        .build()?;
    let (report, _) = ask(&host, "Look on.").await?;
    assert_eq!(report.outcome, Outcome::Completed(()));
    let end = "There is a.txt.\n\n[This run was ended early: it reached the limit of 2 rounds";
    assert!(report.output.starts_with(end), "{}", report.output);
    let requests = model.requests();
    assert_eq!(
        requests.iter().map(|request| request.tools.is_empty()).collect::<Vec<_>>(),
        [false, false, true]
    );
    Ok(())
}

/// Rule S1: the assistant says who stopped it, in which words, and what it had done.
#[tokio::test(flavor = "multi_thread")]
async fn a_soft_stop_while_the_model_speaks_wraps_up() -> Result {
    let hold = Hold::new();
    let model = Scripted::new(
        "main",
        [
            Reply::new().call("files_read", r#"{"files":[{"path":"/work/a.txt"}]}"#),
            Reply::new().text("I think").hold(&hold).text(" nothing"),
        ],
    );
    let host = with(model)?;
    let session = open(&host, "assistant", &folder(&host, "work")?, Access::Read).await?;
    let turn = session.prompt("Read it.", "")?;
    within("the model", hold.reached(1)).await?;
    session.stop_turn(None, &soft("that is enough"))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, Outcome::Interrupted { stop: soft("that is enough"), said: None });
    assert!(report.output.starts_with(
        "Stopped by user: that is enough\n\nDone so far: 1 tool call in 1 round (1 ok)"
    ));
    assert!(report.output.contains("- files_read /work/a.txt: ok"), "{}", report.output);
    assert!(
        report.output.ends_with("Not finished: the task \"Read it.\" has no final answer."),
        "{}",
        report.output
    );
    // The request is given up together with the run.
    within("the stream to be dropped", hold.dropped(1)).await?;
    host.settles().await
}

/// Rules S3 and S12: a hard stop takes the model's request along, and what was done so far is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_hard_stop_leaves_the_account_of_what_was_done() -> Result {
    let hold = Hold::new();
    let read = || Reply::new().call("files_read", r#"{"files":[{"path":"/work/a.txt"}]}"#);
    let model = Scripted::new("main", [read(), read(), Reply::new().text("I think").hold(&hold)]);
    let host = with(model)?;
    let session = open(&host, "assistant", &folder(&host, "work")?, Access::Read).await?;
    let turn = session.prompt("Read it.", "")?;
    within("the model", hold.reached(1)).await?;
    session.stop_turn(None, &hard("now"))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, Outcome::Interrupted { stop: hard("now"), said: None });
    // The newest account, once.
    assert!(report.output.starts_with("2 tool calls in 2 rounds (2 ok)."), "{}", report.output);
    assert_eq!(report.output.matches("tool call").count(), 1, "{}", report.output);
    within("the stream to be dropped", hold.dropped(1)).await?;
    host.settles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_model_the_run_fails_and_says_what_is_missing() -> Result {
    let host = host().with_first_party().build()?;
    let (report, _) = ask(&host, "Say hello.").await?;
    let (code, words) = failed(report)?;
    assert_eq!(code, FailureCode::NotFound);
    assert!(words.contains("no model is configured"), "{words}");
    // One that is there but was not granted, and one that nobody knows.
    for (lines, expected, words) in [
        (
            "[plugins.assistant.grants]\nmodels = [\"other\"]",
            FailureCode::Denied,
            "the model `main` is not granted",
        ),
        (
            "[plugins.assistant.configuration]\nmodel = \"big\"",
            FailureCode::NotFound,
            "there is no model `big`; configured are: main",
        ),
    ] {
        let model = Scripted::new("main", [Reply::new().text("hello")]);
        let host =
            crate::start::host().with_first_party().model(model).configuration(lines).build()?;
        let (code, message) = failed(ask(&host, "Say hello.").await?.0)?;
        assert_eq!(code, expected);
        assert!(message.contains(words), "{message}");
    }
    Ok(())
}

/// A second turn knows of the first one.
#[tokio::test(flavor = "multi_thread")]
async fn the_conversation_goes_on_from_turn_to_turn() -> Result {
    let model = Scripted::new("main", [Reply::new().text("Four."), Reply::new().text("Eight.")])
        .recording();
    let host = with(model.clone())?;
    let session = open(&host, "assistant", &folder(&host, "work")?, Access::Read).await?;
    for (goal, answer) in [("Two and two?", "Four."), ("Twice that?", "Eight.")] {
        let report = within(goal, session.prompt(goal, "")?.ended()).await?;
        assert_eq!(report.output, answer);
    }
    let said: Vec<String> =
        model.requests()[1].messages[1..].iter().map(|message| message.text.clone()).collect();
    assert_eq!(said, ["Two and two?", "Four.", "Twice that?"]);
    host.settles().await
}
