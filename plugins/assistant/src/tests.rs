//! Whole runs of the assistant against a scripted model.

mod children;

use checkrein_guest::prelude::*;
use checkrein_guest::testing::{AgentTest, Report};

use crate::Assistant;

fn ask(goal: &str) -> AgentTest {
    AgentTest::new(goal).directory("/work")
}

fn with_read(test: AgentTest) -> AgentTest {
    test.tool("files_read", |arguments| match arguments["path"].as_str() {
        Some("/work/secret") => Err(Failure::denied("no grant for it")),
        Some(path) => Ok(format!("content of {path}")),
        None => Err(Failure::failed("no path")),
    })
}

fn read(path: &str) -> (&'static str, Value) {
    ("files_read", json!({ "path": path }))
}

/// What the model was told in its latest request, by tools.
fn told(report: &Report) -> Vec<&str> {
    let request = report.requests.last().unwrap();
    request
        .messages
        .iter()
        .filter(|message| message.role == "tool")
        .map(|message| message.text.as_str())
        .collect()
}

fn calling(calls: Vec<ToolCall>) -> Response {
    Response {
        message: Message { tool_calls: calls, ..Message::assistant("") },
        finish: "tool-calls".to_owned(),
        ..Response::default()
    }
}

fn raw(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

#[test]
fn an_answer_without_tools_is_the_result() {
    let report = ask("What is 6 times 7?").model_says("42\n").run::<Assistant>();
    assert_eq!(report.text(), "42");
    let request = &report.requests[0];
    assert_eq!(request.messages[0].role, "system");
    assert!(request.messages[0].text.contains("/work"));
    assert_eq!(request.messages[1], Message::user("What is 6 times 7?"));
}

#[test]
fn calls_of_one_answer_go_out_together_and_come_back_in_order() {
    let report = with_read(ask("Compare a and b."))
        .model_calls([read("/work/a"), read("/work/b")])
        .model_says("They differ.")
        .run::<Assistant>();
    assert_eq!(report.text(), "They differ.");
    assert_eq!(told(&report), ["content of /work/a", "content of /work/b"]);
    let ids: Vec<&str> = report.requests[1]
        .messages
        .iter()
        .filter_map(|message| message.tool_call_id.as_deref())
        .collect();
    assert_eq!(ids, ["call-1-1", "call-1-2"]);
    assert_eq!(report.progress(), ["round 1: files_read /work/a, files_read /work/b"]);
    // Two questions, one batch.
    assert_eq!(report.waits, 3);
}

#[test]
fn what_went_wrong_is_told_as_it_is() {
    let report = with_read(ask("Look."))
        .tool("crash_now", |_| Err(Failure::new("trapped", "unreachable")))
        .tool("quiet_now", |_| Ok(String::new()))
        .model_calls([
            read("/work/secret"),
            ("crash_now", json!({})),
            ("quiet_now", json!({})),
            ("files_read", json!({})),
        ])
        .model_says("done")
        .run::<Assistant>();
    assert_eq!(
        told(&report),
        [
            "[denied] no grant for it",
            "[trapped] the tool crashed and gave no result: unreachable",
            "[ok, without output]",
            "[error] no path",
        ]
    );
}

#[test]
fn malformed_calls_are_answered_and_never_made() {
    let report = with_read(ask("Look."))
        .model_answers(calling(vec![
            raw("", "read", "{}"),
            raw("same", "files_read", "{\"path\": \"/wo"),
            raw("same", "files_read", "{\"path\": \"/work/a\"}"),
        ]))
        .model_says("done")
        .run::<Assistant>();
    let told = told(&report);
    assert!(
        told[0].starts_with("[not-found] there is no tool `read`; do you mean `files_read`?"),
        "{told:?}"
    );
    assert!(told[1].starts_with("[invalid] the arguments are not JSON"), "{told:?}");
    assert_eq!(told[2], "content of /work/a");
    assert_eq!(report.tool_calls.len(), 1);
    let ids: Vec<&str> =
        report.requests[1].messages[2].tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call-1-0", "same", "call-1-2"]);
}

#[test]
fn large_batches_are_split() {
    let calls = (0..20).map(|number| read(&format!("/work/{number}")));
    let report = with_read(ask("Read all."))
        .config("batch", 6)
        .model_calls(calls.collect::<Vec<_>>())
        .model_says("done")
        .run::<Assistant>();
    assert_eq!(told(&report).len(), 20);
    assert_eq!(told(&report)[19], "content of /work/19");
    // Two questions, and four batches of at most six.
    assert_eq!(report.waits, 2 + 4);
}

#[test]
fn a_long_result_is_shortened_with_a_note() {
    let report = ask("Read.")
        .config("result-bytes", 2_000)
        .tool("files_read", |_| Ok("x".repeat(100_000)))
        .model_calls([read("/work/big")])
        .model_says("done")
        .run::<Assistant>();
    let text = told(&report)[0];
    assert!(text.len() <= 2_000 && text.contains("of 100000 bytes were cut out here"), "{text}");
}

#[test]
fn after_the_last_round_the_model_is_asked_once_without_tools() {
    let report = with_read(ask("Read on."))
        .config("max-rounds", 2)
        .model_calls([read("/work/1")])
        .model_calls([read("/work/2")])
        .model_says("I read two.")
        .run::<Assistant>();
    let text = report.text();
    assert!(
        text.starts_with(
            "I read two.\n\n[This run was ended early: it reached the limit of 2 rounds"
        ),
        "{text}"
    );
    let last = report.requests.last().unwrap();
    assert!(last.tools.is_empty());
    assert!(
        last.messages.iter().all(|message| message.tool_calls.is_empty() && message.role != "tool")
    );
    assert!(last.messages.last().unwrap().text.contains("You cannot use tools any more"));
    assert_eq!(report.requests.len(), 3);
}

#[test]
fn a_last_answer_that_asks_for_tools_again_is_replaced_by_an_account() {
    let report = with_read(ask("Read on."))
        .config("max-rounds", 1)
        .model_calls([read("/work/1")])
        .model_calls([read("/work/2")])
        .run::<Assistant>();
    assert!(
        report.text().starts_with(
            "The model gave no final answer. Done so far: 1 tool call in 1 round (1 ok)"
        )
    );
    assert_eq!(report.tool_calls.len(), 1);
}

#[test]
fn the_same_failing_call_is_told_then_refused_then_the_end() {
    let mut test = with_read(ask("Get it."));
    for _ in 0..5 {
        test = test.model_calls([read("/work/secret")]);
    }
    let report = test.model_says("I could not.").run::<Assistant>();
    assert!(
        report
            .text()
            .starts_with("I could not.\n\n[This run was ended early: the model kept asking"),
        "{}",
        report.text()
    );
    // Made three times, refused once, and then the end.
    assert_eq!(report.tool_calls.len(), 3);
    let after_third = &report.requests[3].messages.last().unwrap().text;
    assert!(after_third.contains("failed 3 times and will not be made again"), "{after_third}");
    let after_fourth = &report.requests[4].messages.last().unwrap().text;
    assert!(after_fourth.starts_with("[repeated]"), "{after_fourth}");
    assert_eq!(report.requests.len(), 6);
}

#[test]
fn a_model_that_fails_leaves_what_was_done() {
    let report = with_read(ask("Look."))
        .model_calls([read("/work/a")])
        .model_fails(Failure::new(Failure::UNAVAILABLE, "the provider does not answer"))
        .run::<Assistant>();
    let failure = report.failure();
    assert_eq!(failure.code, Failure::UNAVAILABLE);
    assert!(
        failure.message.starts_with("the assistant could not go on after 1 round: the provider does not answer\nDone before that: 1 tool call"),
        "{failure}"
    );
    assert!(report.partial().unwrap().contains("- files_read /work/a: ok"));
}

#[test]
fn a_request_that_is_too_large_is_tried_smaller() {
    let report = ask("Look.")
        .config("context-bytes", 64_000)
        .history([Message::user("h".repeat(30_000)), Message::assistant("yes")])
        .model_fails(Failure::too_large("too many tokens"))
        .model_says("fine")
        .run::<Assistant>();
    assert_eq!(report.text(), "fine");
    assert_eq!(report.requests[0].messages.len(), 4);
    assert_eq!(report.requests[1].messages.len(), 2);
    assert!(report.requests[1].messages[1].text.contains("were left out"));
}

#[test]
fn an_empty_answer_is_asked_for_again_once() {
    let report = ask("Look.").model_says("").model_says("ok").run::<Assistant>();
    assert_eq!(report.text(), "ok");
    let report = ask("Look.").model_says("").model_says(" ").run::<Assistant>();
    assert!(report.failure().message.contains("nothing, twice"));
}

#[test]
fn an_answer_that_was_cut_off_says_so() {
    let cut = Response {
        message: Message::assistant("It is"),
        finish: "length".to_owned(),
        ..Response::default()
    };
    let report = ask("Look.").model_answers(cut).run::<Assistant>();
    assert!(report.text().starts_with("It is\n\n[The answer was cut off here"));
}

/// Rule S1, as the assistant passes it on: who stopped it, and in which words.
#[test]
fn a_stop_at_any_moment_gives_an_honest_account_and_nothing_new() {
    let run = |after: usize| {
        let calls = (0..10).map(|number| read(&format!("/work/{number}")));
        with_read(ask("Read all."))
            .model_calls(calls.collect::<Vec<_>>())
            .model_calls([read("/work/last")])
            .model_says("All read.")
            .stop_after(after, "that is enough")
            .run::<Assistant>()
    };
    let whole = run(1_000);
    assert_eq!(whole.text(), "All read.");
    for after in 0..whole.waits {
        let report = run(after);
        let text = report.text();
        assert!(text.starts_with("Stopped by user: that is enough\n\n"), "{after}: {text}");
        assert!(
            text.ends_with("Not finished: the task \"Read all.\" has no final answer."),
            "{after}: {text}"
        );
        assert_eq!(report.partial(), Some(text), "{after}");
        // At most the call that noticed the stop.
        assert!(report.waits <= after + 1, "{after}: {}", report.waits);
    }
    assert!(run(0).text().contains("Nothing was done yet."));
    // A question, the first batch: the second batch is under way.
    let text = run(2).text().to_owned();
    assert!(
        text.contains(
            "10 tool calls in 1 round (8 ok, 2 under way when the stop came, effect unknown)"
        ),
        "{text}"
    );
    let text = run(1).text().to_owned();
    assert!(text.contains("8 under way when the stop came, effect unknown, 2 not made"), "{text}");
}

#[test]
fn an_account_is_left_before_a_hard_stop() {
    let report = with_read(ask("Read."))
        .model_calls([read("/work/a")])
        .model_calls([read("/work/b")])
        .stop_after(3, "now")
        .grace(0)
        .run::<Assistant>();
    assert!(report.partial().unwrap().contains("- files_read /work/a: ok"));
}

#[test]
fn an_empty_task_is_refused_with_advice() {
    let report = AgentTest::new(" \n").run::<Assistant>();
    assert_eq!(report.failure().code, Failure::INVALID);
    assert!(report.failure().message.contains("say in a sentence"));
    assert_eq!(report.waits, 0);
    let report =
        AgentTest::new("").input(json!({"sum": [1, 2]})).model_says("3").run::<Assistant>();
    assert_eq!(report.text(), "3");
}

#[test]
fn settings_are_checked_and_reach_the_model() {
    let report = ask("Look.")
        .config("model", "small")
        .config("temperature", 0.5)
        .config("max-output-tokens", 100)
        .config("instructions", "Answer in French.")
        .model_says("Oui")
        .run::<Assistant>();
    let request = &report.requests[0];
    assert_eq!(
        (request.model.as_deref(), request.temperature, request.max_output_tokens),
        (Some("small"), Some(0.5), Some(100))
    );
    assert!(request.messages[0].text.contains("Answer in French."));
    let failure = ask("Look.").config("max-rounds", 0).run::<Assistant>().failure().clone();
    assert!(failure.message.contains("`max-rounds` to 0"), "{failure}");
    assert_eq!(
        ask("Look.").config("rounds", 3).run::<Assistant>().failure().code,
        Failure::INVALID
    );
}

#[test]
fn history_comes_before_the_task() {
    let report = ask("And now?")
        .history([Message::user("Hello"), Message::assistant("Hi")])
        .model_says("ok")
        .run::<Assistant>();
    let roles: Vec<&str> =
        report.requests[0].messages.iter().map(|message| message.text.as_str()).skip(1).collect();
    assert_eq!(roles, ["Hello", "Hi", "And now?"]);
}
