//! What an agent sees of the host: tools, models, children, memory, and stops.

use checkrein_guest::prelude::*;
use checkrein_guest::testing::{AgentTest, End, ToolTest};

/// An agent that is a function.
macro_rules! agent_fn {
    ($name:ident, $body:expr) => {
        #[derive(Default)]
        struct $name;

        impl Agent for $name {
            fn run(&self, run: &Run) -> Result<String, Failure> {
                let body: fn(&Run) -> Result<String, Failure> = $body;
                body(run)
            }
        }
    };
}

#[test]
fn a_task_carries_typed_input_and_directories() {
    #[derive(Serialize, Deserialize, Default)]
    struct Input {
        depth: u32,
    }
    agent_fn!(Reader, |run| {
        let task = run.task();
        let input: Input = task.input_as()?.unwrap_or_default();
        Ok(format!("{} {} {} {}", task.goal, input.depth, task.directories.join(","), task.depth))
    });
    let test = || AgentTest::new("look").directory("/work").depth(2);
    assert_eq!(test().run::<Reader>().text(), "look 0 /work 2");
    assert_eq!(test().input(Input { depth: 7 }).run::<Reader>().text(), "look 7 /work 2");
    assert_eq!(test().input("seven").run::<Reader>().failure().code, Failure::INVALID);
}

#[test]
fn tools_are_called_at_once_and_answer_in_order() {
    agent_fn!(Caller, |run| {
        let calls = [
            ToolCall::new("a", "math_add", &json!({"x": 1, "y": 2}))?,
            ToolCall::new("b", "math_divide", &json!({}))?,
            ToolCall::new("c", "math_root", &json!({}))?,
        ];
        let results = run.call(&calls)?;
        Ok(results
            .into_iter()
            .map(|result| format!("{}={}:{} ", result.id, result.status, result.content))
            .collect())
    });
    let report = AgentTest::new("")
        .tool("math_add", |arguments| Ok((arguments["x"].as_i64().unwrap() + 2).to_string()))
        .tool("math_divide", |_| Err(Failure::failed("by zero")))
        .run::<Caller>();
    assert_eq!(
        report.text(),
        "a=ok:3 b=error:by zero c=not-found:this test has no tool `math_root` "
    );
    assert_eq!(report.tool_calls.len(), 3);
    assert_eq!(report.waits, 1);
}

#[test]
fn a_real_tool_can_play_itself() {
    #[derive(Deserialize, JsonSchema)]
    struct Words {
        text: String,
    }
    struct Count;
    impl Tool for Count {
        const NAME: &str = "count";
        const DESCRIPTION: &str = "Counts words.";
        type Arguments = Words;
        fn call(arguments: Words, cx: &ToolContext) -> Result<Output, Failure> {
            let unit: String = cx.config::<Value>()?["unit"].as_str().unwrap_or("words").to_owned();
            Output::json(&json!({ unit: arguments.text.split_whitespace().count() }))
        }
    }
    agent_fn!(Caller, |run| {
        let spec = run.tools()?.remove(0);
        Ok(format!(
            "{}: {}",
            spec.name,
            run.call_one(&spec.name, json!({"text": run.task().goal}))?
        ))
    });
    let report = AgentTest::new("one two three")
        .real_tool::<Count>("text", ToolTest::new().config("unit", "w"))
        .run::<Caller>();
    assert_eq!(report.text(), r#"text_count: {"w":3}"#);
}

#[test]
fn one_call_fails_with_the_status_of_its_result() {
    agent_fn!(Caller, |run| run.call_one("files_read", json!({"path": "/etc/passwd"})));
    let report = AgentTest::new("")
        .tool("files_read", |_| Err(Failure::denied("no grant for /etc")))
        .run::<Caller>();
    assert_eq!(report.failure(), &Failure::denied("no grant for /etc"));
}

#[test]
fn a_model_answers_from_the_script_and_then_no_more() {
    agent_fn!(Asker, |run| {
        let first = run.complete(Request::ask("first").model("small"))?;
        let second = run.complete(Request::ask("second")).unwrap_err();
        let third = run.complete(Request::ask("third")).unwrap_err();
        Ok(format!("{} / {} / {}", first.text(), second.code, third.code))
    });
    let report = AgentTest::new("")
        .model_says("hello")
        .model_fails(Failure::new(Failure::BUSY, "later"))
        .run::<Asker>();
    assert_eq!(report.text(), "hello / busy / unavailable");
    assert_eq!(report.requests[0].model.as_deref(), Some("small"));
}

#[test]
fn children_answer_inline_or_from_the_background() {
    agent_fn!(Parent, |run| {
        let tasks = vec![
            ChildTask::new("a").group("x"),
            ChildTask::new("b"),
            ChildTask::new("bad").group("x").agent("other").input(&json!([1]))?,
        ];
        let request = DelegateRequest::new(tasks);
        assert_eq!(run.delegation_capacity()?.tasks(), 32);
        let inline = run.delegate(&request)?;
        assert!(!inline.is_dispatched());
        let statuses: Vec<&str> =
            inline.results.iter().map(|result| result.status.as_str()).collect();

        let background = run.delegate(request.background().independent_completions())?;
        assert!(background.is_dispatched());
        let first = run.wait(&background.delegation_ids)?;
        assert_eq!(run.delegations(&[])?.len(), 2);
        assert_eq!(run.stop(&background.delegation_ids, "enough")?, 0);
        assert_eq!(run.wait(&["nobody".to_owned()]).unwrap_err().code, Failure::NOT_FOUND);
        let places: Vec<u32> = first.results.iter().map(|result| result.task).collect();
        Ok(format!("{} {places:?}", statuses.join(" ")))
    });
    let report = AgentTest::new("")
        .children(|task| match task.goal.as_str() {
            "bad" => Err(Failure::failed("could not")),
            goal => Ok(goal.to_owned()),
        })
        .run::<Parent>();
    assert_eq!(report.text(), "completed completed failed [0, 2]");
    assert_eq!(report.delegations.len(), 2);
    assert_eq!(AgentTest::new("").run::<Parent>().failure().code, Failure::UNAVAILABLE);
}

#[test]
fn no_more_is_handed_out_than_there_is_capacity() {
    agent_fn!(Parent, |run| {
        let mut told = Vec::new();
        loop {
            let capacity = run.delegation_capacity()?;
            told.push(capacity.tasks().to_string());
            if capacity.tasks() == 0 {
                return Ok(told.join(" "));
            }
            let tasks = |count: u32| (0..count).map(|_| ChildTask::new("a")).collect();
            let over = run.delegate(DelegateRequest::new(tasks(capacity.tasks() + 1)));
            assert_eq!(over.unwrap_err().code, Failure::LIMIT);
            let request = DelegateRequest::new(tasks(capacity.tasks())).background();
            assert!(!run.delegate(request)?.is_dispatched());
        }
    });
    let capacity = DelegationCapacity {
        agents: vec!["parent".to_owned()],
        same_agent: true,
        tasks_per_call: 2,
        descendants_left: 5,
        depth_left: 1,
        background: false,
    };
    let test = |capacity| AgentTest::new("").children(|_| Ok(String::new())).capacity(capacity);
    assert_eq!(test(capacity.clone()).run::<Parent>().text(), "2 2 1 0");
    for (without, code) in [
        (DelegationCapacity { agents: Vec::new(), ..capacity.clone() }, Failure::DENIED),
        (DelegationCapacity { depth_left: 0, ..capacity }, Failure::LIMIT),
    ] {
        assert_eq!(test(without).run::<Parent>().failure().code, code);
    }
}

#[test]
fn a_child_sees_nothing_of_the_conversation() {
    agent_fn!(Reader, |run| Ok(run.history(10)?.len().to_string()));
    let test = || AgentTest::new("").history([Message::user("a")]);
    assert_eq!(test().run::<Reader>().text(), "1");
    assert_eq!(test().depth(1).run::<Reader>().text(), "0");
}

#[test]
fn memory_and_history_outlive_the_run() {
    agent_fn!(Rememberer, |run| {
        let seen: u32 = run.memory_get("seen")?.unwrap_or(0);
        run.memory_set("seen", seen + 1)?;
        run.memory_set_bytes("raw", b"\x00\x01")?;
        run.memory_delete("old")?;
        assert_eq!(run.memory_set("big", "x".repeat(65_536)).unwrap_err().code, Failure::TOO_LARGE);
        assert_eq!(run.memory_get::<u32>("raw").unwrap_err().code, Failure::INVALID);
        let said: Vec<String> = run.history(2)?.into_iter().map(|message| message.text).collect();
        Ok(format!("{seen} {} {}", run.memory_keys("")?.join(","), said.join(",")))
    });
    let report = AgentTest::new("")
        .memory("seen", 4)
        .memory("old", "x")
        .history([Message::user("a"), Message::assistant("b"), Message::user("c")])
        .run::<Rememberer>();
    assert_eq!(report.text(), "4 raw,seen b,c");
    assert_eq!(report.memory_of::<u32>("seen"), Some(5));
    assert_eq!(report.memory["raw"], [0, 1]);
}

#[test]
fn events_checkpoints_sleeps_budgets_and_the_log_are_recorded() {
    agent_fn!(Busy, |run| {
        run.checkpoint("begun")?;
        run.progress("reading")?;
        run.partial("half")?;
        run.emit("score", json!({"points": 3}))?;
        run.sleep(Duration::from_secs(3_600))?;
        run.warn("careful");
        let config: Value = run.config()?;
        Ok(format!("{} {}", run.budget("fuel").map_or(0, |budget| budget.left), config["name"]))
    });
    let report = AgentTest::new("").budget("fuel", 100, 40).config("name", "busy").run::<Busy>();
    assert_eq!(report.text(), "40 \"busy\"");
    assert_eq!(report.checkpoints, ["begun"]);
    assert_eq!(report.progress(), ["reading"]);
    assert_eq!(report.partial(), Some("half"));
    assert_eq!(report.events_of("score"), [&json!({"points": 3})]);
    assert_eq!(report.slept, Duration::from_secs(3_600));
    assert_eq!(report.log, [(Level::Warn, "careful".to_owned())]);
}

agent_fn!(Patient, |run| {
    for _ in 0..10 {
        if let Err(Failure { stop: Some(stop), .. }) = run.checkpoint("waiting") {
            run.progress("wrapping up")?;
            run.progress("nearly there")?;
            return Ok(format!("{} {} {}", stop.kind, stop.message, stop.issuer));
        }
    }
    Ok("done".to_owned())
});

/// Rule S1: an agent reads kind, message and issuer of its stop.
#[test]
fn a_stop_interrupts_one_call_and_then_calls_work_again() {
    let report = AgentTest::new("").stop_after(3, "enough").run::<Patient>();
    assert_eq!(report.text(), "soft enough user");
    assert_eq!(report.progress(), ["wrapping up", "nearly there"]);
    assert_eq!(report.waits, 4);
}

#[test]
fn a_run_that_is_over_before_its_stop_does_not_see_it() {
    assert_eq!(AgentTest::new("").stop_after(10, "late").run::<Patient>().text(), "done");
}

/// Rule S2: a stop that was given before the start is visible from the first instruction.
#[test]
fn asking_for_the_stop_counts_as_having_noticed_it() {
    agent_fn!(Asker, |run| {
        let stop = run.stop_requested().unwrap();
        run.checkpoint("still works")?;
        assert_eq!(run.stop_requested().as_ref(), Some(&stop));
        Ok(stop.message)
    });
    let report = AgentTest::new("").stop_after(0, "do not start").run::<Asker>();
    assert_eq!(report.text(), "do not start");
    assert_eq!(report.checkpoints, ["still works"]);
}

#[test]
fn passing_an_interruption_on_fails_the_run_with_it() {
    agent_fn!(Hasty, |run| {
        run.sleep(Duration::from_secs(1))?;
        Ok(String::new())
    });
    let report = AgentTest::new("").stop_after(0, "now").run::<Hasty>();
    assert!(report.failure().is_interrupted());
}

#[test]
fn an_agent_that_uses_up_its_grace_is_ended_by_force() {
    let report = AgentTest::new("").stop_after(3, "enough").grace(1).run::<Patient>();
    let End::Stopped(stop) = &report.end else { panic!("{:?}", report.end) };
    assert_eq!((stop.kind.as_str(), stop.message.as_str()), ("hard", "enough"));
    assert_eq!(report.progress(), ["wrapping up"]);

    let report = AgentTest::new("").stop_after(3, "enough").grace(2).run::<Patient>();
    assert_eq!(report.text(), "soft enough user");
}

#[test]
#[should_panic(expected = "a mistake of the agent")]
fn a_panic_of_the_agent_is_a_panic_of_the_test() {
    agent_fn!(Broken, |_| panic!("a mistake of the agent"));
    AgentTest::new("").run::<Broken>();
}

#[test]
fn calls_that_are_answered_at_once_do_not_end_with_the_stop() {
    agent_fn!(Teller, |run| {
        run.progress("told all the same")?;
        run.partial("half")?;
        run.sleep(Duration::from_secs(1))?;
        Ok(String::new())
    });
    let report = AgentTest::new("").stop_after(0, "now").run::<Teller>();
    assert!(report.failure().is_interrupted());
    assert_eq!(report.partial(), Some("half"));
}
