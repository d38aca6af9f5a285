//! What the model is told of delegation.

use checkrein_guest::prelude::*;
use checkrein_guest::testing::AgentTest;

use super::{ask, calling, raw, read, told, with_read};
use crate::Assistant;

/// A run whose children say what they were asked.
fn with_children(goal: &str) -> AgentTest {
    with_read(ask(goal)).children(|task| match task.goal.as_str() {
        "fail" => Err(Failure::failed("it did not work")),
        "limit" => Err(Failure::new(Failure::LIMIT, "the limit `fuel` is used up")),
        "long" => Ok("l".repeat(100_000)),
        goal => Ok(format!("{goal}, done{}", task.input)),
    })
}

fn delegate(goals: &[&str], background: bool) -> (&'static str, Value) {
    let tasks: Vec<Value> = goals.iter().map(|goal| json!({ "goal": goal })).collect();
    ("delegate", json!({ "tasks": tasks, "background": background }))
}

#[test]
fn delegation_is_offered_where_the_host_lets_the_run_delegate() {
    let names = |test: AgentTest| {
        let report = test.model_says("ok").run::<Assistant>();
        let request = &report.requests[0];
        let names: Vec<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
        (names, request.messages[0].text.contains("with the tool delegate"))
    };
    assert_eq!(names(with_read(ask("Look."))), (vec!["files_read".to_owned()], false));
    let (offered, told) = names(with_children("Look."));
    assert_eq!(
        offered,
        ["files_read", "delegate", "delegation-status", "delegation-wait", "delegation-stop"]
    );
    assert!(told);
}

/// As a host with the usual limits answers.
fn capacity() -> DelegationCapacity {
    DelegationCapacity {
        agents: vec!["assistant".to_owned(), "survey*".to_owned()],
        same_agent: true,
        tasks_per_call: 32,
        descendants_left: 256,
        depth_left: 4,
        background: true,
    }
}

#[test]
fn the_model_is_told_to_whom_and_how_much_it_may_hand_out() {
    let offered = |capacity: DelegationCapacity| {
        let report = with_children("Look.").capacity(capacity).model_says("ok").run::<Assistant>();
        let request = report.requests[0].clone();
        let delegate = request.tools.iter().find(|tool| tool.name == "delegate").cloned();
        let told = delegate.map(|delegate| {
            let schema: Value = serde_json::from_str(&delegate.parameters).unwrap();
            (delegate.description, schema["properties"].clone())
        });
        (request.tools.len(), request.messages[0].text.clone(), told)
    };
    let few = DelegationCapacity { descendants_left: 7, ..capacity() };
    let (tools, system, Some((description, schema))) = offered(few) else { panic!() };
    assert_eq!((tools, system.contains("into the background")), (5, true));
    assert!(
        description.contains("it takes at most 7, and 7 children can be started in all"),
        "{description}"
    );
    assert_eq!(schema["tasks"]["maxItems"], 7);
    let task = &schema["tasks"]["items"];
    assert_eq!(
        task["properties"]["agent"]["description"],
        "The agent that does it, one of: assistant, survey*. A * stands for any end of a name; use only names that you \
         were told. Left out: one like you."
    );
    assert_eq!(task["required"], json!(["goal"]));
    let others = DelegationCapacity {
        agents: vec!["surveyor".to_owned()],
        same_agent: false,
        background: false,
        ..capacity()
    };
    let (tools, system, Some((description, schema))) = offered(others) else { panic!() };
    assert_eq!((tools, system.contains("into the background")), (2, false));
    assert!(!description.contains("background") && schema["background"].is_null());
    let task = &schema["tasks"]["items"];
    assert_eq!(
        task["properties"]["agent"]["description"],
        "The agent that does it, one of: surveyor."
    );
    assert_eq!(task["required"], json!(["goal", "agent"]));
    // Nothing is left to hand out.
    let none = DelegationCapacity { descendants_left: 0, ..capacity() };
    let (tools, _, told) = offered(none);
    assert_eq!((tools, told), (1, None));
}

#[test]
fn schemas_are_objects_and_say_what_to_expect_when_there_is_no_place() {
    let specs = crate::children::specs(&capacity());
    for spec in &specs {
        let schema: Value = serde_json::from_str(&spec.parameters).unwrap();
        assert_eq!(
            (&schema["type"], &schema["additionalProperties"]),
            (&json!("object"), &json!(false))
        );
        assert!(!spec.name.contains('_'), "{} could be the name of another tool", spec.name);
    }
    let delegate = &specs[0].description;
    for words in [
        "no free place in the background",
        "Synchronous execution",
        "fresh context",
        "each goal must say everything",
    ] {
        assert!(delegate.contains(words), "{words}");
    }
}

#[test]
fn results_of_children_come_back_one_for_each_task() {
    let report = with_children("Do three things.")
        .model_calls([
            read("/work/a"),
            ("delegate", json!({"tasks": [{"goal": "first", "input": {"n": 1}, "tools": ["files_read"]}, {"goal": "fail"}, {"goal": "limit", "agent": "other"}]})),
        ])
        .model_says("Two of them.")
        .run::<Assistant>();
    assert_eq!(report.text(), "Two of them.");
    assert_eq!(
        told(&report),
        [
            "content of /work/a",
            "The call has ended: completed.\n\nresults:\n\n\
             Task 0 (first): completed\nfirst, done{\"n\":1}\n\n\
             Task 1 (fail): failed (it did not work)\n\n\
             Task 2 (limit): limit (the limit `fuel` is used up)"
        ]
    );
    let [request] = report.delegations.as_slice() else { panic!("{:?}", report.delegations) };
    assert_eq!(
        (request.mode.as_str(), request.tasks[2].agent.as_deref()),
        ("inline", Some("other"))
    );
    assert_eq!(request.tasks[0].tools.as_deref(), Some(&["files_read".to_owned()][..]));
    assert_eq!(report.progress(), ["round 1: files_read /work/a, delegate first and 2 more"]);
}

#[test]
fn what_runs_in_the_background_can_be_asked_for_waited_for_and_stopped() {
    let ids = |ids: &[&str]| json!({ "ids": ids });
    let report = with_children("Do two things.")
        .model_calls([delegate(&["one", "two"], true)])
        .model_calls([
            ("delegation-status", json!({})),
            ("delegation-wait", ids(&["unit-2"])),
            ("delegation-wait", json!({})),
            ("delegation-stop", json!({"ids": ["unit-1"], "message": "enough"})),
            ("delegation-stop", json!({"ids": [], "message": "enough"})),
            ("delegation-status", ids(&["unit-9"])),
        ])
        .model_says("Under way.")
        .run::<Assistant>();
    assert!(
        report.delegations[0].independent_completions && report.delegations[0].mode == "background"
    );
    let told = told(&report);
    assert_eq!(told[0], "The call has ended: dispatched.\n\nids: unit-1, unit-2");
    assert_eq!(
        told[1],
        "unit-1: completed\n\nTask 0: completed\none, done\n\nunit-2: completed\n\nTask 1: completed\ntwo, done"
    );
    assert!(
        told[2].starts_with("unit-2: completed\n\nTask 1: completed\ntwo, done\n\nThe same comes"),
        "{}",
        told[2]
    );
    assert!(told[3].starts_with("There is nothing to wait for"), "{}", told[3]);
    assert_eq!(told[4], "The stop reached 0 of the runs.");
    assert!(told[5].starts_with("[invalid] name the delegations"), "{}", told[5]);
    assert!(told[6].starts_with("[not-found] this session has no unit"), "{}", told[6]);
}

#[test]
fn calls_that_make_no_sense_are_answered_and_nothing_is_handed_out() {
    let report = with_children("Do it.")
        .model_answers(calling(vec![
            raw("1", "delegate", "{}"),
            raw("2", "delegate", r#"{"tasks": [{"goal": "x", "hope": 1}]}"#),
            raw("3", "delegate", r#"{"tasks": [{"goal": "x"}, {"goal": " "}]}"#),
            raw("4", "delegate", r#"{"tasks": []}"#),
            raw("5", "Delegate", r#"{"tasks": []}"#),
        ]))
        .model_says("No.")
        .run::<Assistant>();
    let told = told(&report);
    assert!(
        told[0].starts_with("[invalid] the arguments do not fit: missing field `tasks`"),
        "{told:?}"
    );
    assert!(
        told[1].starts_with("[invalid] the arguments do not fit: unknown field `hope`"),
        "{told:?}"
    );
    assert!(told[2].starts_with("[invalid] task 1 has no goal"), "{told:?}");
    assert!(told[3].starts_with("[invalid] a delegation needs at least one task"), "{told:?}");
    assert!(told[4].contains("do you mean `delegate`?"), "{told:?}");
}

#[test]
fn long_results_share_the_room() {
    let report = with_children("Do it.")
        .config("result-bytes", 9_000)
        .model_calls([delegate(&["long", "short", "long"], false)])
        .model_says("ok")
        .run::<Assistant>();
    let told = told(&report);
    assert!(told[0].len() <= 9_000 && told[0].contains("short, done"), "{}", told[0].len());
    assert_eq!(told[0].matches("of 100000 bytes were cut out here").count(), 2);
}

/// A child starts with a fresh context: the conversation of the session is not its own.
#[test]
fn a_child_knows_its_task_and_nothing_of_the_conversation() {
    let report = ask("Count.")
        .depth(1)
        .history([Message::user("Hello"), Message::assistant("Hi")])
        .model_says("3")
        .run::<Assistant>();
    let messages = &report.requests[0].messages;
    assert_eq!(messages.len(), 2);
    assert!(messages[0].text.contains("handed to you by another run"), "{}", messages[0].text);
}

/// Rules S1 and S12: what children gave before a stop is in the account.
#[test]
fn a_stop_leaves_what_children_gave() {
    let run = |after: usize| {
        with_children("Do it.")
            .model_calls([delegate(&["one"], false)])
            .model_calls([delegate(&["two"], false)])
            .model_says("All done.")
            .stop_after(after, "enough")
            .run::<Assistant>()
    };
    assert_eq!(run(1_000).text(), "All done.");
    // A question, the first call, a question: the second call is under way.
    let text = run(3).text().to_owned();
    assert!(text.starts_with("Stopped by user: enough"), "{text}");
    assert!(
        text.contains(
            "- delegate one: ok\n- delegate two: under way when the stop came, effect unknown\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("From other runs:\n")
            && text.contains("one, done")
            && !text.contains("two, done"),
        "{text}"
    );
}
