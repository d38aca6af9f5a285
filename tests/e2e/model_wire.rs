//! Models over the wire: both dialects against an endpoint that speaks the real protocol over real HTTP.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use checkrein::message::{FailureCode, Message, Role, ToolSpec, Usage};
use checkrein::model::{
    Delta, Finish, Kind, Lookup, ModelError, Provider, ProviderConfig, Request, Response,
    TimeLimit, TimeLimits,
};
use checkrein_testkit::wire::{self, Ended, Reply, Wire};
use futures::StreamExt;
use serde_json::{Value, json};

type Result<T = ()> = anyhow::Result<T>;

/// No test may show this, wherever it looks.
const KEY: &str = "sk-very-secret-0815";

const BOTH: [Kind; 2] = [Kind::OpenAi, Kind::Anthropic];

/// Knows one key and no file.
struct Desk;

impl Lookup for Desk {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "THE_KEY").then(|| KEY.to_owned())
    }

    fn file(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }
}

fn base(wire: &Wire, kind: Kind) -> String {
    if kind == Kind::OpenAi { wire.openai() } else { wire.anthropic() }
}

/// A description with pauses so short that nobody waits for them.
fn config(base_url: String, kind: Kind) -> ProviderConfig {
    ProviderConfig {
        model: Some("asked-for".to_owned()),
        base_url: Some(base_url),
        key_env: Some("THE_KEY".to_owned()),
        max_retries: 2,
        retry_pause: Duration::from_millis(1),
        ..ProviderConfig::new(kind)
    }
}

fn open(wire: &Wire, kind: Kind) -> Result<Arc<dyn Provider>> {
    Ok(config(base(wire, kind), kind).open("main", &Desk)?)
}

fn ask() -> Request {
    Request { messages: vec![Message::text(Role::User, "go")], ..Request::default() }
}

/// Everything that a stream gives but figures, and its end.
async fn read(
    model: &Arc<dyn Provider>,
    request: Request,
) -> (Vec<Delta>, std::result::Result<Response, ModelError>) {
    let mut stream = model.start(request);
    let mut deltas = Vec::new();
    let mut end = None;
    while let Some(item) = stream.next().await {
        assert!(end.is_none(), "nothing comes after the end");
        match item {
            Ok(Delta::Done(response)) => end = Some(Ok(response)),
            Ok(Delta::Used(_)) => {}
            Ok(delta) => deltas.push(delta),
            Err(error) => end = Some(Err(error)),
        }
    }
    let missing = ModelError::Broken {
        model: String::new(),
        reason: "the stream ended without an end".to_owned(),
    };
    (deltas, end.unwrap_or(Err(missing)))
}

fn error(end: std::result::Result<Response, ModelError>) -> Result<ModelError> {
    match end {
        Ok(response) => bail!("an answer instead of an error: {response:?}"),
        Err(error) => {
            ensure!(!format!("{error} {error:?}").contains(KEY), "the key is in {error:?}");
            Ok(error)
        }
    }
}

fn text(text: &str) -> Delta {
    Delta::Text(text.to_owned())
}

#[tokio::test]
async fn text_streams_and_comes_whole_with_usage() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().text("Grü").text("ße").usage(11, 7));
        let (deltas, end) = read(&open(&wire, kind)?, ask()).await;
        assert_eq!(deltas, [text("Grü"), text("ße")], "{kind}");
        let response = Response {
            message: Message::text(Role::Assistant, "Grüße"),
            finish: Finish::Stop,
            usage: Usage { input_tokens: 11, output_tokens: 7 },
            model: wire::MODEL.to_owned(),
        };
        assert_eq!(end, Ok(response), "{kind}");
        assert_eq!(wire.ended(0).await, Ended::Said);
    }
    Ok(())
}

#[tokio::test]
async fn the_endpoint_gets_the_request_and_the_key() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().text("yes")).reply(Reply::new().text("yes"));
        let model = open(&wire, kind)?;
        let tool = ToolSpec {
            name: "look".to_owned(),
            description: "looks".to_owned(),
            parameters: r#"{"type":"object"}"#.to_owned(),
            hints: Vec::new(),
        };
        let request = Request { tools: vec![tool], max_output_tokens: Some(50), ..ask() };
        read(&model, request).await.1?;
        read(&model, Request { model: Some("another".to_owned()), ..ask() }).await.1?;
        let received = wire.request(0).await;
        let header = if kind == Kind::OpenAi { "authorization" } else { "x-api-key" };
        assert!(received.header(header).ends_with(KEY));
        assert_eq!(received.body["model"], "asked-for");
        assert_eq!(received.body["max_tokens"], 50);
        assert_eq!(received.body["stream"], true);
        assert_eq!(received.body["tools"].as_array().map(Vec::len), Some(1));
        assert_eq!(wire.request(1).await.body["model"], "another");
    }
    Ok(())
}

#[tokio::test]
async fn tool_calls_come_whole_however_the_stream_is_cut() -> Result {
    for kind in BOTH {
        for size in [1, 7, 4096] {
            let wire = Wire::start().await?;
            wire.reply(
                Reply::new()
                    .text("I läok.")
                    .call("a", "files_list", &["{\"path\"", ": \"/wörk\"", "}"])
                    .call("b", "text_hash", &[])
                    .call("c", "files_read", &["{\"big\":12345678901234567890123,", "\"x\":[{}]}"])
                    .usage(5, 6)
                    .cut(size),
            );
            let (deltas, end) = read(&open(&wire, kind)?, ask()).await;
            let names: Vec<_> = deltas
                .iter()
                .filter_map(|delta| {
                    if let Delta::ToolCall { name } = delta { Some(name.as_str()) } else { None }
                })
                .collect();
            assert_eq!(names, ["files_list", "text_hash", "files_read"], "{kind}, {size}");
            let response = end?;
            let calls: Vec<_> = response
                .message
                .tool_calls
                .iter()
                .map(|call| (&*call.id, &*call.name, &*call.arguments))
                .collect();
            let expected = [
                ("a", "files_list", "{\"path\": \"/wörk\"}"),
                ("b", "text_hash", "{}"),
                ("c", "files_read", "{\"big\":12345678901234567890123,\"x\":[{}]}"),
            ];
            assert_eq!(calls, expected, "{kind}, {size}");
            assert_eq!(
                (response.finish, response.message.text.as_str()),
                (Finish::ToolCalls, "I läok.")
            );
            assert_eq!(response.usage.total(), 11);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_busy_endpoint_is_asked_again() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        let busy = r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#;
        wire.reply(Reply::status(429, busy)?.header("retry-after", "0.002"))
            .reply(Reply::status(503, "")?)
            .reply(Reply::new().text("now"));
        let (deltas, end) = read(&open(&wire, kind)?, ask()).await;
        assert_eq!(end?.message.text, "now");
        let [
            Delta::Retrying { attempt: 1, after, reason },
            Delta::Retrying { attempt: 2, .. },
            Delta::Text(_),
        ] = &deltas[..]
        else {
            bail!("{kind}: {deltas:?}");
        };
        assert_eq!(*after, Duration::from_millis(2), "the endpoint said so");
        assert!(reason.contains("429") && reason.contains("slow down"), "{reason}");
        assert_eq!(wire.count(), 3);
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_wants_a_longer_pause_than_there_is_time_is_not_waited_for() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::status(429, "busy")?.header("retry-after", "86400"));
        let (deltas, end) = read(&open(&wire, kind)?, ask()).await;
        assert_eq!(deltas, []);
        let error = error(end)?;
        let ModelError::RateLimited { attempts: 1, retry_after, .. } = &error else {
            bail!("{error:?}")
        };
        assert_eq!(*retry_after, Some(Duration::from_secs(86400)));
        assert_eq!(error.code(), FailureCode::Busy);
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_fails_three_times_is_given_up() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        for _ in 0..3 {
            wire.reply(Reply::status(500, r#"{"error":{"message":"out of order"}}"#)?);
        }
        let error = error(read(&open(&wire, kind)?, ask()).await.1)?;
        let expected = ModelError::ServerFailed {
            model: "main".to_owned(),
            status: 500,
            attempts: 3,
            reason: "out of order".to_owned(),
        };
        assert_eq!(error, expected);
        assert_eq!((wire.count(), error.code()), (3, FailureCode::Unavailable));
    }
    Ok(())
}

#[tokio::test]
async fn what_will_not_pass_is_not_tried_again() -> Result {
    for kind in BOTH {
        for (status, body, code) in [
            (400, r#"{"error":{"message":"no"}}"#, FailureCode::Invalid),
            (401, r#"{"error":{"message":"no"}}"#, FailureCode::Unavailable),
            (404, "no", FailureCode::Invalid),
            (307, "no", FailureCode::Invalid),
            (
                429,
                r#"{"error":{"message":"no","code":"insufficient_quota"}}"#,
                FailureCode::Unavailable,
            ),
        ] {
            let wire = Wire::start().await?;
            wire.reply(Reply::status(status, body)?.header("location", "http://127.0.0.1:1/"));
            let error = error(read(&open(&wire, kind)?, ask()).await.1)?;
            assert_eq!((error.code(), wire.count()), (code, 1), "{status}: {error}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_an_error_after_the_retries() -> Result {
    for kind in BOTH {
        // A port that was free a moment ago and that nobody listens on now.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        drop(listener);
        let (deltas, end) = read(&config(url, kind).open("main", &Desk)?, ask()).await;
        assert_eq!(deltas.len(), 2);
        let error = error(end)?;
        assert!(matches!(error, ModelError::Unreachable { attempts: 3, .. }), "{error:?}");
        assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_speaks_no_tls_is_an_error() -> Result {
    let wire = Wire::start().await?;
    let url = format!("https://{}/v1", wire.address());
    let error = error(read(&config(url, Kind::OpenAi).open("main", &Desk)?, ask()).await.1)?;
    assert!(matches!(error, ModelError::Unreachable { .. }), "{error:?}");
    assert_eq!(wire.count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_stream_that_stalls_reaches_the_idle_limit_and_is_closed() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().text("so far").stall());
        let limits = TimeLimits { idle: Duration::from_millis(300), ..TimeLimits::default() };
        let model =
            ProviderConfig { limits, ..config(base(&wire, kind), kind) }.open("main", &Desk)?;
        let (deltas, end) = read(&model, ask()).await;
        assert_eq!(deltas, [text("so far")]);
        let error = error(end)?;
        assert!(matches!(error, ModelError::TimedOut { limit: TimeLimit::Idle, .. }), "{error:?}");
        assert_eq!(wire.ended(0).await, Ended::ClientGone);
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_says_nothing_reaches_the_limit_of_the_first_byte() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::silence());
        let limits = TimeLimits { first_byte: Duration::from_millis(50), ..TimeLimits::default() };
        let model =
            ProviderConfig { limits, ..config(base(&wire, kind), kind) }.open("main", &Desk)?;
        let error = error(read(&model, ask()).await.1)?;
        assert!(
            matches!(error, ModelError::TimedOut { limit: TimeLimit::FirstByte, .. }),
            "{error:?}"
        );
        assert_eq!((wire.ended(0).await, wire.count()), (Ended::ClientGone, 1));
    }
    Ok(())
}

#[tokio::test]
async fn a_stream_that_never_ends_reaches_the_total_limit() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().text("so far").stall());
        let limits = TimeLimits { total: Duration::from_millis(50), ..TimeLimits::default() };
        let model =
            ProviderConfig { limits, ..config(base(&wire, kind), kind) }.open("main", &Desk)?;
        let error = error(read(&model, ask()).await.1)?;
        assert!(matches!(error, ModelError::TimedOut { limit: TimeLimit::Total, .. }), "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_stream_that_breaks_in_the_middle_of_a_tool_call_gives_no_call() -> Result {
    for kind in BOTH {
        for reply in [
            Reply::new()
                .call_begins("a", "files_write", &["{\"path\":\"/work/a\"", ",\"te"])
                .break_off(),
            // Arguments that are whole by chance do not make the call whole.
            Reply::new().call_begins("a", "files_write", &["{\"path\":\"/work/a\"}"]).break_off(),
            // The body ends well, the answer does not.
            Reply::new().call_begins("a", "files_write", &["{\"path\":\"/work/a\"}"]).end_early(),
        ] {
            let wire = Wire::start().await?;
            wire.reply(reply);
            let (deltas, end) = read(&open(&wire, kind)?, ask()).await;
            assert_eq!(deltas, [Delta::ToolCall { name: "files_write".to_owned() }]);
            let error = error(end)?;
            assert!(matches!(error, ModelError::Broken { .. }), "{kind}: {error:?}");
            assert_eq!(wire.count(), 1, "what has begun is not begun again");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_call_that_the_bound_cut_off_is_left_out() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(
            Reply::new()
                .call("a", "one", &["{}"])
                .call_begins("b", "two", &["{\"x\":"])
                .finish(wire::Finish::Length),
        );
        let response = read(&open(&wire, kind)?, ask()).await.1?;
        let names: Vec<_> =
            response.message.tool_calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!((names.as_slice(), response.finish), (&["one"][..], Finish::Length));
    }
    Ok(())
}

#[tokio::test]
async fn a_stream_that_breaks_before_it_said_anything_is_tried_again() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().break_off()).reply(Reply::new().text("now"));
        let (deltas, end) = read(&open(&wire, kind)?, ask()).await;
        assert!(matches!(&deltas[..], [Delta::Retrying { .. }, Delta::Text(_)]), "{deltas:?}");
        assert_eq!(end?.message.text, "now");
    }
    Ok(())
}

#[tokio::test]
async fn an_error_in_the_stream_is_tried_again_only_before_the_answer_began() -> Result {
    for kind in BOTH {
        let overloaded = if kind == Kind::OpenAi { "server_error" } else { "overloaded_error" };
        let wire = Wire::start().await?;
        wire.reply(Reply::new().error(overloaded, "too much"))
            .reply(Reply::new().text("a").error(overloaded, "too much"));
        let (deltas, end) = read(&open(&wire, kind)?, ask()).await;
        assert!(matches!(&deltas[..], [Delta::Retrying { .. }, Delta::Text(_)]), "{deltas:?}");
        let error = error(end)?;
        assert!(matches!(error, ModelError::ServerFailed { attempts: 2, .. }), "{error:?}");
        assert_eq!(wire.count(), 2);
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_of_the_protocol_is_an_error() -> Result {
    for kind in BOTH {
        for junk in [
            &b"data: {not json\n\n"[..],
            b"data: {\"choices\": 7, \"type\": 8}\n\n",
            b"data: \xff\xfe\n\n",
            b"data: [1,2]\n\n",
            b"data: {\"type\":\"message_start\",\"choices\":[{\"delta\":[]}]}\n\n",
        ] {
            let wire = Wire::start().await?;
            wire.reply(Reply::new().text("so far").raw(junk));
            let (deltas, end) = read(&open(&wire, kind)?, ask()).await;
            assert_eq!(deltas, [text("so far")]);
            let error = error(end)?;
            assert!(matches!(error, ModelError::Malformed { .. }), "{kind}: {error:?}");
        }
    }
    Ok(())
}

/// The answer is whole and in order; what the model wrote in it is for the tool to refuse, so that the model hears of it.
#[tokio::test]
async fn arguments_that_are_no_json_come_as_they_are_and_go_back_in_an_object() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().call("a", "one", &["{\"x\":", "oops}"]))
            .reply(Reply::new().text("b"));
        let model = open(&wire, kind)?;
        let answer = read(&model, ask()).await.1?.message;
        assert_eq!(answer.tool_calls[0].arguments, "{\"x\":oops}");
        let result = Message {
            tool_call_id: Some("a".to_owned()),
            ..Message::text(Role::Tool, "the arguments are not JSON")
        };
        let asked = Request { messages: [ask().messages, vec![answer, result]].concat(), ..ask() };
        read(&model, asked).await.1?;
        let body = wire.request(1).await.body;
        let sent: Value = if kind == Kind::OpenAi {
            let text = &body["messages"][1]["tool_calls"][0]["function"]["arguments"];
            serde_json::from_str(text.as_str().unwrap_or_default())?
        } else {
            body["messages"][1]["content"][0]["input"].clone()
        };
        assert_eq!(sent, json!({ "not-a-json-object": "{\"x\":oops}" }), "{body}");
    }
    Ok(())
}

#[tokio::test]
async fn a_page_instead_of_a_stream_is_an_error() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::status(200, "<html>welcome</html>")?.header("content-type", "text/html"));
        let error = error(read(&open(&wire, kind)?, ask()).await.1)?;
        assert!(
            matches!(&error, ModelError::Malformed { reason, .. } if reason.contains("text/html")),
            "{error:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn endless_events_and_endless_errors_do_not_fill_the_memory() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        let mut endless = b"data: ".to_vec();
        endless.resize(5 << 20, b'a');
        wire.reply(Reply::new().raw(endless).stall())
            .reply(Reply::status(400, "b".repeat(5 << 20))?);
        let model = open(&wire, kind)?;
        let end = read(&model, ask()).await.1;
        let too_large = error(end)?;
        assert!(matches!(too_large, ModelError::TooLarge { .. }), "{too_large:?}");
        assert_eq!(wire.ended(0).await, Ended::ClientGone);
        let refused = error(read(&model, ask()).await.1)?.to_string();
        assert!(refused.len() < 1000, "{} bytes", refused.len());
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_goes_away_closes_the_connection() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::new().text("so far").stall());
        let model = open(&wire, kind)?;
        let mut stream = model.start(ask());
        while stream.next().await.context("a first delta")?? != text("so far") {}
        wire.stalled(1).await;
        drop(stream);
        assert_eq!(wire.ended(0).await, Ended::ClientGone, "{kind}");
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_goes_away_before_the_answer_closes_the_connection() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::silence());
        let model = open(&wire, kind)?;
        let mut stream = model.start(ask());
        tokio::select! {
            item = stream.next() => bail!("nothing was said, but there is {item:?}"),
            () = wire.stalled(1) => {}
        }
        drop(stream);
        assert_eq!(wire.ended(0).await, Ended::ClientGone, "{kind}");
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_sent_before_the_first_poll() -> Result {
    let wire = Wire::start().await?;
    wire.reply(Reply::new().text("a"));
    let model = open(&wire, Kind::OpenAi)?;
    drop(model.start(ask()));
    read(&model, Request { model: Some("polled".to_owned()), ..ask() }).await.1?;
    assert_eq!(wire.request(0).await.body["model"], "polled");
    Ok(())
}

#[tokio::test]
async fn a_senseless_request_is_refused_without_asking_anybody() -> Result {
    for kind in BOTH {
        let wire = Wire::start().await?;
        let error = error(read(&open(&wire, kind)?, Request::default()).await.1)?;
        assert_eq!((error.code(), wire.count()), (FailureCode::Invalid, 0));
    }
    Ok(())
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_key_is_shown_nowhere_even_when_the_endpoint_repeats_it() -> Result {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // Everything of this test, the tasks of the HTTP client included, runs on this thread.
    let _guard = tracing::subscriber::set_default(subscriber);
    let told = json!({ "error": { "message": format!("the key {KEY} is not ours") } }).to_string();
    let long = format!("{}{KEY}", "x".repeat(490));
    for kind in BOTH {
        let wire = Wire::start().await?;
        wire.reply(Reply::status(401, told.as_str())?)
            .reply(Reply::status(500, format!("your key is {KEY}"))?)
            .reply(Reply::new().error("odd", format!("your key is {KEY}")))
            .reply(Reply::new().text("a").raw(format!("data: {KEY}\n\n")))
            .reply(Reply::status(400, long.as_str())?)
            .reply(Reply::status(200, KEY)?.header("content-type", "text/plain"))
            .reply(Reply::new().text("fine"));
        let config = config(base(&wire, kind), kind);
        let model = config.open("main", &Desk)?;
        let mut shown = format!("{config:?} {model:?}");
        while wire.count() < 7 {
            let (deltas, end) = read(&model, ask()).await;
            shown += &format!("{deltas:?} {end:?}");
            if let Err(error) = end {
                shown += &format!("{error} {}", checkrein::message::Failure::from(error.clone()));
            }
        }
        assert!(shown.contains("[secret]") && shown.contains("fine"), "{shown}");
        assert!(!shown.contains("sk-very"), "{shown}");
    }
    let logged =
        String::from_utf8_lossy(&log.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    assert!(logged.contains("asking a model"), "something is logged");
    assert!(!logged.contains("sk-very"), "the key is in the log");
    Ok(())
}
