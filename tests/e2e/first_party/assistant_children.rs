//! The assistant hands tasks to others, as its model asks for it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use checkrein::message::{Message, Role, ToolCall, Usage};
use checkrein::model::{
    Delta, Finish, Provider, Reply, Request, Response, ResponseStream, Scripted,
};
use checkrein::sandbox::{Access, Outcome};
use checkrein::session::{Delivery, EventKind, Session};
use checkrein_testkit::{TestHost, within};
use futures::stream;

use super::{events, folder, open, until};
use crate::start::{Result, host};

/// What the tools told the model in that request.
fn told(request: &Request) -> Vec<&str> {
    let results = request.messages.iter().filter(|message| message.role == Role::Tool);
    results.map(|message| message.text.as_str()).collect()
}

fn offered(request: &Request) -> Vec<&str> {
    let tools = request.tools.iter().map(|tool| tool.name.as_str());
    tools.filter(|name| name.starts_with("deleg")).collect()
}

const OFFERED: [&str; 4] = ["delegate", "delegation-status", "delegation-wait", "delegation-stop"];

fn with(model: &Scripted, configuration: &str) -> Result<TestHost> {
    host().with_first_party().model(model.clone()).configuration(configuration).build()
}

async fn assistant(host: &TestHost) -> Result<Session> {
    open(host, "assistant", &folder(host, "work")?, Access::Read).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_does_its_task_with_a_fresh_context_and_its_answer_is_a_result() -> Result {
    let call = r#"{"tasks":[{"goal":"What is six times seven?","input":{"in":"words"}}]}"#;
    let model = Scripted::new(
        "main",
        [
            Reply::new().text("Hello."),
            Reply::new().call("delegate", call),
            Reply::new().text("Forty-two."),
            Reply::new().text("It is 42."),
        ],
    )
    .recording();
    let host = with(&model, "")?;
    let session = assistant(&host).await?;
    within("hello", session.prompt("Hello!", "")?.ended()).await?;
    let report = within("the answer", session.prompt("Ask a child.", "")?.ended()).await?;
    assert_eq!((report.outcome, &*report.output), (Outcome::Completed(()), "It is 42."));
    let requests = model.requests();
    let [_, first, child, last] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(offered(first), OFFERED);
    assert!(first.messages[0].text.contains("a goal must be complete in itself"));
    // The child knows nothing of the conversation.
    assert!(
        child.messages[0].text.contains("handed to you by another run"),
        "{:?}",
        child.messages
    );
    let said: Vec<&str> = child.messages[1..].iter().map(|message| &*message.text).collect();
    assert_eq!(
        said,
        ["What is six times seven?\n\nFurther input for this task:\n\n{\"in\":\"words\"}"]
    );
    assert_eq!(
        told(last),
        ["All tasks ran inside this call, as asked; their results are here.\n\nresults:\n\n\
          Task 0 (What is six times seven?): completed\nForty-two."]
    );
    host.settles().await
}

/// Rules A3 and A4, as a model hears of it: no place in the background, so the results are here already.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_told_that_there_was_no_place_in_the_background() -> Result {
    let call = r#"{"background":true,"tasks":[{"goal":"What is six times seven?"}]}"#;
    let model = Scripted::new(
        "main",
        [
            Reply::new().call("delegate", call),
            Reply::new().text("Forty-two."),
            Reply::new().text("It is 42."),
        ],
    )
    .recording();
    let host = with(&model, "[delegation]\nunits-per-host = 0\n")?;
    let session = assistant(&host).await?;
    let report = within("the answer", session.prompt("Ask a child.", "")?.ended()).await?;
    assert_eq!(report.output, "It is 42.");
    let requests = model.requests();
    // It was told beforehand, too; a model may ask all the same.
    assert_eq!(offered(&requests[0]), ["delegate"]);
    let [told] = told(&requests[2])[..] else { panic!("{requests:?}") };
    assert!(
        told.starts_with(
            "Synchronous execution: the only task ran inside this call and not in the background, because there is no \
             free place in the background (the limit `units-per-host` is 0) (capacity)."
        ),
        "{told}"
    );
    assert!(
        told.ends_with("results:\n\nTask 0 (What is six times seven?): completed\nForty-two."),
        "{told}"
    );
    assert!(session.completions().is_empty());
    host.settles().await
}

/// Rules A9 and A10: what cannot be is not offered, or is refused with a word about what to do; the turn goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_handed_out_is_not_offered_or_refused_with_advice() -> Result {
    for (lines, offers) in [
        ("", 4),
        ("[plugins.assistant.grants]\ndelegation = []\n", 0),
        ("[delegation]\ndepth = 0\n", 0),
        ("[delegation]\ndescendants-per-tree = 0\n", 0),
    ] {
        let model = Scripted::new("main", [Reply::new().text("Hello.")]).recording();
        let host = with(&model, lines)?;
        within("hello", assistant(&host).await?.prompt("Hello!", "")?.ended()).await?;
        assert_eq!(offered(&model.requests()[0]).len(), offers, "{lines}");
        host.settles().await?;
    }
    let call = |tasks: &str| Reply::new().call("delegate", format!("{{\"tasks\":[{tasks}]}}"));
    let model = Scripted::new(
        "main",
        [
            call(r#"{"goal":"survey","agent":"surveyor"}"#),
            call(r#"{"goal":"a"},{"goal":"b"}"#),
            call(r#"{"goal":"a","tools":["no_tool"]}"#),
            // Its child cannot hand out any more, and is not offered to.
            call(r#"{"goal":"a"}"#),
            Reply::new().text("A."),
            Reply::new().text("Done."),
        ],
    )
    .recording();
    let lines = "[plugins.assistant.grants]\ndelegation = [\"assistant\"]\n\
        [delegation]\nchildren-per-call = 1\ndepth = 1\n";
    let host = with(&model, lines)?;
    let report = within("the answer", assistant(&host).await?.prompt("Try.", "")?.ended()).await?;
    assert_eq!((report.outcome, &*report.output), (Outcome::Completed(()), "Done."));
    let requests = model.requests();
    let told = told(&requests[5]);
    for (told, expected) in told.iter().zip([
        "[denied] handing tasks to the agent `surveyor` is not granted to this agent. Nothing was handed out; do the work yourself",
        "[limit] nothing was started: the call has 2 tasks, and 1 is the most that the limit `children-per-call` allows. \
         Hand out fewer tasks, or do the work yourself",
        "[denied] the tool `no_tool` cannot be passed on",
        "All tasks ran inside this call",
    ]) {
        assert!(told.starts_with(expected), "`{told}` does not begin with `{expected}`");
    }
    assert_eq!((offered(&requests[0]).len(), offered(&requests[4]).len()), (4, 0));
    let delegate = requests[0].tools.iter().find(|tool| tool.name == "delegate");
    let told = delegate.map(|tool| format!("{} {}", tool.description, tool.parameters));
    for words in
        ["it takes at most 1, and 256 children", "one of: assistant. Left out: one like you."]
    {
        assert!(told.as_ref().is_some_and(|told| told.contains(words)), "{words}: {told:?}");
    }
    host.settles().await
}

/// A model whose answer depends on what it was told last.
#[derive(Clone)]
struct ByWords {
    answer: fn(&str) -> Message,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl fmt::Debug for ByWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByWords")
    }
}

impl Provider for ByWords {
    fn name(&self) -> &str {
        "main"
    }

    fn start(&self, request: Request) -> ResponseStream {
        let last = request.messages.last().map_or("", |message| &message.text);
        let message = (self.answer)(last);
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let finish = if message.tool_calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        let response =
            Response { message, finish, usage: Usage::default(), model: "main".to_owned() };
        Box::pin(stream::iter([Ok(Delta::Done(response))]))
    }
}

fn two_in_the_background(told: &str) -> Message {
    let text = |text: &str| Message::text(Role::Assistant, text);
    match told {
        "Do both." => {
            let call = ToolCall {
                id: "1".to_owned(),
                name: "delegate".to_owned(),
                arguments: r#"{"background":true,"tasks":[{"goal":"one"},{"goal":"two"}]}"#
                    .to_owned(),
            };
            Message { tool_calls: vec![call], ..text("") }
        }
        "one" => text("The first is done."),
        "two" => text("The second is done."),
        told if told.starts_with("In the background: d1 (task 0), d2 (task 1).") => {
            text("Under way.")
        }
        told if told.contains("The first is done.") => text("I heard of the first."),
        told if told.contains("The second is done.") => text("I heard of the second."),
        told => text(&format!("unexpected: {told}")),
    }
}

/// Rules C3 and C7: each task comes back as a turn of its own, and the model is told that it is a result.
#[tokio::test(flavor = "multi_thread")]
async fn results_of_the_background_come_as_turns_that_are_no_wish_of_a_person() -> Result {
    let model = ByWords { answer: two_in_the_background, requests: Arc::default() };
    let host = host().with_first_party().model(model.clone()).build()?;
    let work = folder(&host, "work")?;
    let directory = checkrein::sandbox::Directory {
        mount: "/work".to_owned(),
        path: work,
        access: Access::Read,
    };
    let session =
        host.opening("assistant").directory(directory).delivery(Delivery::Turns).open().await?;
    let report = within("the answer", session.prompt("Do both.", "")?.ended()).await?;
    assert_eq!(report.output, "Under way.");
    for answer in ["I heard of the first.", "I heard of the second."] {
        let ended = |event: &EventKind| matches!(event, EventKind::RunEnded { output, .. } if output == answer);
        until(&mut session.events(0), answer, ended).await?;
    }
    let requests = model.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let completions: Vec<&Request> = requests
        .iter()
        .filter(|request| {
            request
                .messages
                .last()
                .is_some_and(|message| message.text.starts_with("[A message of the host"))
        })
        .collect();
    assert_eq!(completions.len(), 2, "{requests:?}");
    for request in &completions {
        assert!(request.messages.iter().any(|message| message.text == "Do both."));
        let last = &request.messages[request.messages.len() - 1];
        assert_eq!(
            (last.role, last.text.matches(" is done.").count()),
            (Role::User, 1),
            "{}",
            last.text
        );
    }
    // The last one is acknowledged when its turn is over.
    host.until("both are acknowledged", |_| session.completions().is_empty()).await?;
    let turns = |event: &&EventKind| {
        matches!(event, EventKind::RunStarted { parent: None, delegation: Some(_), .. })
    };
    assert_eq!(events(&session).iter().filter(turns).count(), 2);
    host.until("the last unit goes", |nodes| nodes.is_empty()).await?;
    host.settles().await
}
