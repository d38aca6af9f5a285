//! Spans reach a collector, all of them and with what they are about, before the command ends. Needs the feature `otel`.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use checkrein_testkit::{Plugin, guest};

/// What was sent, request by request.
type Received = Arc<Mutex<Vec<Bytes>>>;

#[tokio::test(flavor = "multi_thread")]
async fn the_spans_of_a_run_are_sent_before_the_command_ends() -> Result<()> {
    let received = Received::default();
    let address = collector(Arc::clone(&received)).await?;
    let home = tempfile::tempdir()?;
    Plugin::agent("agent", guest("agent")).write(home.path())?;
    Plugin::tool("tool", guest("tool")).write(home.path())?;
    fs::write(home.path().join("script.toml"), "[[reply]]\ntext = \"an answer\"\n")?;
    fs::write(
        home.path().join("checkrein.toml"),
        format!(
            "default-model = \"main\"\n[models.main]\nkind = \"scripted\"\nscript = \"script.toml\"\n\
             [telemetry]\notlp-endpoint = \"http://{address}/v1/traces\"\n"
        ),
    )?;
    let tasks = r#"delegate {"mode":"inline","tasks":[{"goal":"ask something\ncall tool_echo {\"text\":\"x\"}\ntrap"}]}"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_checkrein"));
    command
        .args(["run", "--config", "checkrein.toml", "--plugin", "./tool", "./agent", tasks])
        .current_dir(home.path())
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("CHECKREIN_LOG")
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    ensure!(output.status.success(), "{output:?}");

    let requests = received.lock().expect("nobody panics").clone();
    let spans: Vec<Span> =
        requests.iter().map(|body| spans(body)).collect::<Result<Vec<_>>>()?.concat();
    let find = |name: &str| {
        spans
            .iter()
            .find(|span| span.name == name)
            .with_context(|| format!("no {name}: {spans:#?}"))
    };
    let (turn, child) = (find("turn")?, find("child")?);
    let (tool, model) = (find("tool call")?, find("model request")?);
    // Each stands below the one that it was done for, in one trace.
    for (span, above) in [(child, turn), (tool, child), (model, child)] {
        assert_eq!(span.parent, above.id, "{span:?} is not below {above:?}");
        assert_eq!(span.trace, turn.trace);
    }
    assert!(turn.parent.is_empty() && turn.trace.len() == 16, "{turn:?}");
    let session = turn.attributes.get("session").context("a session")?;
    let (of_turn, of_child) = (format!("{session}.1"), format!("{session}.1.1"));
    for (span, run, key, value) in [
        (turn, &of_turn, "agent", "agent"),
        (child, &of_child, "agent", "agent"),
        (tool, &of_child, "tool", "tool_echo"),
        (model, &of_child, "model", "main"),
    ] {
        let expected =
            [("session", &**session), ("run", &**run), ("kind", &*span.name), (key, value)];
        for (key, value) in expected {
            assert_eq!(span.attributes.get(key).map(String::as_str), Some(value), "{span:?}");
        }
    }
    assert!(child.events.iter().any(|event| event.contains("a guest broke off")), "{child:?}");
    Ok(())
}

/// Takes what is sent to it.
async fn collector(received: Received) -> Result<std::net::SocketAddr> {
    let take = async |State(received): State<Received>, body: Bytes| {
        received.lock().expect("nobody panics").push(body);
    };
    let collector = Router::new().route("/v1/traces", post(take)).with_state(received);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(collector.clone());
            let stream = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(stream, service),
            );
        }
    });
    Ok(address)
}

#[derive(Debug, Clone, Default)]
struct Span {
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    name: String,
    /// Those that are text.
    attributes: BTreeMap<String, String>,
    events: Vec<String>,
}

/// The spans of an `ExportTraceServiceRequest`.
fn spans(request: &[u8]) -> Result<Vec<Span>> {
    let mut found = Vec::new();
    for resource in parts(request, 1)? {
        for scope in parts(resource, 2)? {
            for span in parts(scope, 2)? {
                let one = |number| Ok::<_, anyhow::Error>(parts(span, number)?.concat());
                let mut attributes = BTreeMap::new();
                for attribute in parts(span, 9)? {
                    let key = String::from_utf8(parts(attribute, 1)?.concat())?;
                    let values = parts(&parts(attribute, 2)?.concat(), 1)?.concat();
                    attributes.insert(key, String::from_utf8(values)?);
                }
                let events = parts(span, 11)?.into_iter();
                let events = events.map(|event| Ok(String::from_utf8(parts(event, 2)?.concat())?));
                found.push(Span {
                    trace: one(1)?,
                    id: one(2)?,
                    parent: one(4)?,
                    name: String::from_utf8(one(5)?)?,
                    attributes,
                    events: events.collect::<Result<_>>()?,
                });
            }
        }
    }
    Ok(found)
}

/// The fields of that number in a message of protobuf: those that have a length.
fn parts(mut message: &[u8], number: u64) -> Result<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut message)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?)?,
            5 => 4,
            other => bail!("a field of the kind {other}"),
        };
        let (field, rest) = message.split_at_checked(length).context("a whole field")?;
        message = rest;
        if tag == number << 3 | 2 {
            found.push(field);
        }
    }
    Ok(found)
}

fn varint(message: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first().context("more bytes")?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a number that does not end")
}
