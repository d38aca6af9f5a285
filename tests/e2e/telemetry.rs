//! Spans reach a collector, all of them, before the command ends.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use checkrein_testkit::{Plugin, guest};

use crate::start::Result;

#[tokio::test(flavor = "multi_thread")]
async fn the_spans_of_a_run_are_sent_before_the_command_ends() -> Result {
    let received: Arc<Mutex<Vec<u8>>> = Arc::default();
    let take = async |State(received): State<Arc<Mutex<Vec<u8>>>>, body: Bytes| {
        received.lock().expect("nobody panics").extend_from_slice(&body);
    };
    let collector = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&received));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(collector.clone());
            let stream = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(stream, service),
            );
        }
    });
    let home = tempfile::tempdir()?;
    Plugin::agent("agent", guest("agent")).write(home.path())?;
    let endpoint = format!("[telemetry]\notlp-endpoint = \"http://{address}/v1/traces\"\n");
    fs::write(home.path().join("checkrein.toml"), endpoint)?;
    let tasks = r#"delegate {"mode":"inline","tasks":[{"goal":"trap"}]}"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_checkrein"));
    command
        .args(["run", "--config", "checkrein.toml", "./agent", tasks])
        .current_dir(home.path())
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("CHECKREIN_LOG")
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    assert!(output.status.success(), "{output:?}");
    serving.abort();
    let received = received.lock().expect("nobody panics").clone();
    let has = |words: &str| {
        // A string of protobuf is its length and then its bytes.
        let framed = [&[words.len() as u8], words.as_bytes()].concat();
        received.windows(framed.len()).any(|at| at == framed)
    };
    for words in ["checkrein", "turn", "child", "s1.1", "s1.1.1", "a guest broke off"] {
        assert!(has(words), "`{words}` is not in {}", String::from_utf8_lossy(&received));
    }
    Ok(())
}
