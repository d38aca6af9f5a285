//! The assistant over real HTTP, in both dialects, as an operator's configuration describes the model.

use anyhow::bail;
use checkrein::message::FailureCode;
use checkrein::sandbox::{Access, Directory, Outcome};
use checkrein::session::{EventKind, Session, TurnReport};
use checkrein_testkit::wire::{Ended, Reply, Wire};
use checkrein_testkit::{TestHost, within};
use serde_json::{Value, json};

use crate::start::{Result, hard, host, soft};

/// No test may find this anywhere but in the header of a request.
const KEY: &str = "sk-very-secret-4711";

const BOTH: [&str; 2] = ["openai", "anthropic"];

/// A host whose model is that endpoint.
fn desk(wire: &Wire, dialect: &str) -> Result<TestHost> {
    with_limits(wire, dialect, "")
}

/// The same, with limits on the time that the model takes.
fn with_limits(wire: &Wire, dialect: &str, limits: &str) -> Result<TestHost> {
    let base = if dialect == "openai" { wire.openai() } else { wire.anthropic() };
    let configuration = format!(
        "default-model = \"main\"\n\n[models.main]\nkind = \"{dialect}\"\nmodel = \"asked-for\"\nbase-url = \"{base}\"\n\
         key-env = \"THE_KEY\"\nmax-retries = 0\nlimits = {{ {limits} }}\n"
    );
    let host =
        host().with_first_party().variable("THE_KEY", KEY).configuration(&configuration).build()?;
    std::fs::create_dir(host.home().join("work"))?;
    std::fs::write(host.home().join("work/a.txt"), "alpha\n")?;
    Ok(host)
}

async fn open(host: &TestHost) -> Result<Session> {
    let (mount, path) = ("/work".to_owned(), host.home().join("work"));
    Ok(host
        .opening("assistant")
        .directory(Directory { mount, path, access: Access::Read })
        .open()
        .await?)
}

/// Runs one turn to its end, and checks that nothing is left and that the key is nowhere.
async fn ask(host: &TestHost, session: &Session) -> Result<TurnReport> {
    let report = within("the end", session.prompt("Read it.", "")?.ended()).await?;
    host.settles().await?;
    hides_the_key(host, session, &report)?;
    Ok(report)
}

/// The key is in no event, log line, result or message.
fn hides_the_key(host: &TestHost, session: &Session, report: &TurnReport) -> Result {
    let mut all = format!("{report:?}{:?}{:?}", host.logs().lines(), session.history(100));
    let mut events = session.events(0);
    while let Some(event) = events.try_next()? {
        all.push_str(&serde_json::to_string(&event)?);
    }
    all.push_str(&format!("{:?}{:?}", host.host(), host.host().models()));
    assert!(!all.contains(KEY) && !all.contains("very-secret"), "the key is told: {all}");
    Ok(())
}

fn events(session: &Session) -> Vec<EventKind> {
    let mut events = session.events(0);
    // So few are all remembered.
    std::iter::from_fn(|| events.try_next().ok().flatten()).map(|event| event.kind).collect()
}

/// Why the turn failed.
fn failure(report: &TurnReport) -> Result<(FailureCode, &str)> {
    let Outcome::Failed(failure) = &report.outcome else { bail!("{:?}", report.outcome) };
    Ok((failure.code, &failure.message))
}

/// The beginning of an answer that asks for a file, up to the middle of the call.
fn begins() -> Reply {
    Reply::new().text("I begin").call_begins("a", "files_read", &["{\"files\":[{\"pa"])
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_tool_call_goes_out_and_its_result_comes_back_in_both_dialects() -> Result {
    for dialect in BOTH {
        let wire = Wire::start().await?;
        wire.reply(
            Reply::new()
                .text("I look.")
                .call("a", "files_read", &["{\"files\":[{\"path\":", "\"/work/a.txt\"}]}"])
                .call("b", "text_hash", &["{\"text\":\"abc\"}"])
                .cut(7),
        )
        .reply(Reply::new().text("It says ").text("alpha."));
        let host = desk(&wire, dialect)?;
        let session = open(&host).await?;
        let report = ask(&host, &session).await?;
        assert_eq!(
            (report.outcome, &*report.output),
            (Outcome::Completed(()), "It says alpha."),
            "{dialect}"
        );
        let header = if dialect == "openai" { "authorization" } else { "x-api-key" };
        let (first, second) = (wire.request(0).await, wire.request(1).await);
        assert!(first.header(header).ends_with(KEY) && second.header(header).ends_with(KEY));
        assert!(!first.body.to_string().contains(KEY) && !second.body.to_string().contains(KEY));
        assert_eq!(first.body["model"], "asked-for");
        let offered = first.body["tools"].to_string();
        assert!(offered.contains("files_read") && offered.contains("text_hash"), "{offered}");
        let messages = second.body["messages"].as_array().cloned().unwrap_or_default();
        let results: Vec<(Value, String)> = if dialect == "openai" {
            let tools = messages.iter().filter(|message| message["role"] == "tool");
            tools
                .map(|message| (message["tool_call_id"].clone(), message["content"].to_string()))
                .collect()
        } else {
            let blocks =
                messages.iter().filter_map(|message| message["content"].as_array()).flatten();
            let results = blocks.filter(|block| block["type"] == "tool_result");
            results
                .map(|block| (block["tool_use_id"].clone(), block["content"].to_string()))
                .collect()
        };
        let [(one, read), (two, hash)] = results.as_slice() else {
            panic!("{dialect}: {messages:?}")
        };
        assert_eq!((one, two), (&json!("a"), &json!("b")));
        assert!(read.contains("alpha") && hash.contains("ba7816bf"), "{read} {hash}");
    }
    Ok(())
}

/// Rule S12: what the model had said stays, also when the turn fails.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_stream_that_breaks_stalls_or_makes_no_sense_fails_the_turn_and_keeps_its_text()
-> Result {
    for dialect in BOTH {
        for (what, reply, words) in [
            ("it breaks in a call", begins().break_off(), "broke off"),
            ("it ends in a call", begins().end_early(), "broke off"),
            ("it stalls in a call", begins().stall(), "longer than `idle-seconds` allows (300ms)"),
            (
                "it is no JSON",
                Reply::new().text("I begin").raw("data: {\"choices\": [nonsense\n\n"),
                "cannot be understood",
            ),
            (
                "it reports an error",
                Reply::new().text("I begin").error("overloaded_error", "too much"),
                "too much",
            ),
        ] {
            let wire = Wire::start().await?;
            wire.reply(reply);
            let limits = if what.contains("stalls") { "idle-seconds = 0.3" } else { "" };
            let host = with_limits(&wire, dialect, limits)?;
            let session = open(&host).await?;
            let report = ask(&host, &session).await?;
            let (_, message) = failure(&report)?;
            assert!(
                message.contains("the assistant could not go on at the start: "),
                "{dialect}, {what}: {message}"
            );
            assert!(message.contains(words), "{dialect}, {what}: {message}");
            assert_eq!(report.output, "I begin", "{dialect}, {what}");
            let events = events(&session);
            let ended = |event: &EventKind| matches!(event, EventKind::ModelEnded { finish, detail: Some(_), .. } if finish == "failed");
            assert!(events.iter().any(ended), "{dialect}, {what}: {events:?}");
            assert!(
                !events.iter().any(|event| matches!(event, EventKind::ToolStarted { .. })),
                "{dialect}, {what}"
            );
            // It was not asked again: its answer had begun.
            assert_eq!(wire.count(), 1, "{dialect}, {what}");
        }
    }
    Ok(())
}

/// A model that gets its arguments wrong hears of it and can mend them.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_call_that_is_no_json_is_answered_and_the_turn_goes_on() -> Result {
    for dialect in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().text("I begin").call("a", "files_read", &["{\"files\": [}"]))
            .reply(Reply::new().text("I see my mistake."));
        let host = desk(&wire, dialect)?;
        let session = open(&host).await?;
        let report = ask(&host, &session).await?;
        assert_eq!(
            (report.outcome, &*report.output),
            (Outcome::Completed(()), "I see my mistake."),
            "{dialect}"
        );
        let heard = wire.request(1).await.body["messages"].to_string();
        assert!(heard.contains("the arguments are not JSON"), "{dialect}: {heard}");
    }
    Ok(())
}

/// An answer that breaks off costs what the endpoint said of it before, or what was sent when it said nothing.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn an_answer_that_breaks_off_is_billed() -> Result {
    for (dialect, used) in [("anthropic", 40_012), ("openai", 0)] {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().text("I begin").usage(40_011, 7).break_off());
        let host = desk(&wire, dialect)?;
        let session = open(&host).await?;
        let report = ask(&host, &session).await?;
        failure(&report)?;
        let ended = events(&session).into_iter().find_map(|event| {
            if let EventKind::ModelEnded { usage, .. } = event { Some(usage.total()) } else { None }
        });
        assert_eq!(ended, Some(used), "{dialect}");
        // What was sent has thousands of bytes: the tools are among it.
        let billed = report.used.model_tokens;
        assert!(
            if used > 0 { billed == used } else { (500..20_000).contains(&billed) },
            "{billed}"
        );
    }
    Ok(())
}

/// What was done before is told, too.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_stream_that_breaks_in_the_second_round_leaves_the_account_of_the_first()
-> Result {
    for dialect in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().text("I look.").call(
            "a",
            "files_read",
            &["{\"files\":[{\"path\":\"/work/a.txt\"}]}"],
        ))
        .reply(begins().break_off());
        let host = desk(&wire, dialect)?;
        let session = open(&host).await?;
        let report = ask(&host, &session).await?;
        let (code, message) = failure(&report)?;
        assert_eq!(code, FailureCode::Failed, "{message}");
        assert!(
            message.contains("after 1 round: ")
                && message.contains("Done before that: 1 tool call"),
            "{message}"
        );
        assert!(report.output.starts_with("1 tool call in 1 round (1 ok)."), "{}", report.output);
    }
    Ok(())
}

/// Rules S3, S11 and S12: a hard stop in the middle of a stream closes its connection.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_hard_stop_in_the_middle_of_a_stream_closes_the_connection() -> Result {
    for dialect in BOTH {
        let wire = Wire::start().await?;
        wire.reply(begins().stall());
        let host = desk(&wire, dialect)?;
        for way in ["the turn", "the session"] {
            let number = wire.count();
            if number > 0 {
                wire.reply(begins().stall());
            }
            let session = open(&host).await?;
            let mut watch = session.events(0);
            let turn = session.prompt("Read it.", "")?;
            within("the beginning of a call", async {
                while let Some(event) = watch.next().await? {
                    if matches!(event.kind, EventKind::ModelToolCall { .. }) {
                        break;
                    }
                }
                anyhow::Ok(())
            })
            .await??;
            within("the stall", wire.stalled(number + 1)).await?;
            if way == "the turn" {
                assert_eq!(session.stop_turn(None, &hard("now"))?, 2);
            } else {
                assert_eq!(session.stop("user", "now").turn, 2);
            }
            let report = within("the end", turn.ended()).await?;
            assert_eq!(
                report.outcome,
                Outcome::Interrupted { stop: hard("now"), said: None },
                "{dialect}"
            );
            assert_eq!(report.output, "I begin", "{dialect}");
            host.is_idle()?;
            assert_eq!(
                within("the connection to close", wire.ended(number)).await?,
                Ended::ClientGone,
                "{dialect}"
            );
            hides_the_key(&host, &session, &report)?;
            let said: Vec<String> =
                session.history(2).into_iter().map(|message| message.text).collect();
            assert_eq!(said, ["Read it.", "I begin"]);
        }
    }
    Ok(())
}

/// Rule S1: a soft stop is heard while the model speaks; the request ends with the run.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_soft_stop_in_the_middle_of_a_stream_wraps_up_and_closes_the_connection()
-> Result {
    for dialect in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().text("I begin").stall());
        let base = if dialect == "openai" { wire.openai() } else { wire.anthropic() };
        let configuration =
            format!("[models.main]\nkind = \"{dialect}\"\nmodel = \"m\"\nbase-url = \"{base}\"\n");
        let host = host().with_first_party().configuration(&configuration).build()?;
        std::fs::create_dir(host.home().join("work"))?;
        let session = open(&host).await?;
        let turn = session.prompt("Read it.", "")?;
        within("the stall", wire.stalled(1)).await?;
        session.stop_turn(None, &soft("enough"))?;
        let report = within("the end", turn.ended()).await?;
        assert_eq!(
            report.outcome,
            Outcome::Interrupted { stop: soft("enough"), said: None },
            "{dialect}"
        );
        assert!(
            report.output.starts_with("Stopped by user: enough\n\nNothing was done yet."),
            "{}",
            report.output
        );
        assert_eq!(
            within("the connection to close", wire.ended(0)).await?,
            Ended::ClientGone,
            "{dialect}"
        );
        host.is_idle()?;
    }
    Ok(())
}

/// An endpoint that sends the key back in its error does not make it public.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_key_that_the_endpoint_sends_back_is_told_to_nobody() -> Result {
    for dialect in BOTH {
        for (status, code) in [
            (401, FailureCode::Unavailable),
            (400, FailureCode::Invalid),
            (500, FailureCode::Unavailable),
        ] {
            let wire = Wire::start().await?;
            let body = json!({"error": {"type": "authentication_error", "message": format!("bad key {KEY}, Bearer {KEY}")}});
            wire.reply(Reply::status(status, body.to_string())?);
            let host = desk(&wire, dialect)?;
            let session = open(&host).await?;
            let report = ask(&host, &session).await?;
            let (found, message) = failure(&report)?;
            assert_eq!(found, code, "{dialect} {status}: {message}");
            assert!(message.contains("bad key"), "{dialect} {status}: {message}");
        }
        // In a text it is the model's own words, and in the middle of a stream an error like any other.
        let wire = Wire::start().await?;
        wire.reply(Reply::new().error("invalid_request_error", format!("bad key {KEY}")));
        let host = desk(&wire, dialect)?;
        let session = open(&host).await?;
        let report = ask(&host, &session).await?;
        assert!(failure(&report)?.1.contains("bad key"), "{report:?}");
    }
    Ok(())
}

/// A model whose key is missing is left out, and whoever asks for it hears that it is not there.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_model_without_its_key_is_asked_nothing() -> Result {
    let wire = Wire::start().await?;
    let configuration = format!(
        "[models.main]\nkind = \"openai\"\nmodel = \"m\"\nbase-url = \"{}\"\nkey-env = \"THE_KEY\"\n",
        wire.openai()
    );
    let host = host().with_first_party().configuration(&configuration).build()?;
    std::fs::create_dir(host.home().join("work"))?;
    let session = open(&host).await?;
    let report = ask(&host, &session).await?;
    let (code, message) = failure(&report)?;
    assert_eq!((code, wire.count()), (FailureCode::NotFound, 0));
    assert!(message.contains("no model is configured"), "{message}");
    Ok(())
}
