//! The tool `http_fetch` through the sandbox, against servers of this machine.

use std::convert::Infallible;
use std::ffi::OsString;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use checkrein::plugin::Configuration;
use checkrein::sandbox::{Names, Pool};
use checkrein::{Compilation, Host};
use checkrein_testkit::within;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::start::{Result, agent};

/// An address of the public internet at which nobody listens: it belongs to a sink for stray questions.
const SINK: &str = "2620:4f:8000::1";

/// What names stand for.
struct Book;

impl Names for Book {
    fn look_up(&self, host: &str) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let found: &[&str] = match host {
            "local.test" | "inner.test" | "other.test" => &["127.0.0.1"],
            "metadata.test" => &["169.254.169.254", "::1", "fd00::1"],
            "both.test" => &["127.0.0.1", SINK, "::ffff:127.0.0.1"],
            _ => &[],
        };
        let found = found.iter().filter_map(|text| text.parse().ok()).collect();
        std::future::ready(Ok(found)).boxed()
    }
}

/// A host whose names are those of the [`Book`].
struct Desk {
    host: Host,
    /// What plugins were refused, as the operator reads it.
    log: Arc<Mutex<Vec<String>>>,
    /// Removed when this is dropped.
    _home: TempDir,
}

impl Desk {
    /// `network` is the list of what the plugin `http` is granted.
    fn new(network: &str, roots: &[Vec<u8>]) -> Result<Desk> {
        let home = tempfile::tempdir()?;
        let text = format!("[plugins.http.grants]\nnetwork = [{network}]");
        let arguments = vec![OsString::from("compile-child")];
        let mut builder = Host::builder(Compilation::Child {
            program: env!("CARGO_BIN_EXE_checkrein").into(),
            arguments,
        })
        .configuration(Configuration::parse(&text, &home.path().join("checkrein.toml"))?)
        .cache(concat!(env!("CARGO_TARGET_TMPDIR"), "/code-cache"))
        .pool(Pool::Slots(16))
        .names(Arc::new(Book))
        .plugin(agent().write(home.path())?);
        for root in roots {
            builder = builder.trust(root.clone());
        }
        Ok(Desk { host: builder.build()?, log: Arc::default(), _home: home })
    }

    /// What an agent hears of a request.
    async fn fetch(&self, arguments: &Value) -> Result<String> {
        let log = Arc::clone(&self.log);
        let sink = move |_: &str, _: &str, line: &str| {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        };
        let session = self.host.session("agent").log(sink).open().await?;
        let goal = format!("call http_fetch {arguments}");
        let heard = within(&goal, session.prompt(&*goal, "")?.ended()).await?.output;
        let tree = self.host.tree();
        assert_eq!(tree.executions(tree.root()).len(), 0, "something is left of {goal}");
        Ok(heard)
    }

    async fn get(&self, url: &str) -> Result<String> {
        self.fetch(&json!({ "url": url })).await
    }

    /// The answer to a request that works.
    async fn works(&self, arguments: &Value) -> Result<Value> {
        let heard = self.fetch(arguments).await?;
        let Some(answer) = heard.strip_prefix("ok: ") else {
            anyhow::bail!("{arguments}: {heard}")
        };
        Ok(serde_json::from_str(answer)?)
    }

    /// What the operator can read of refusals.
    fn refusals(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}

/// A server that answers by path, and knows which paths it was asked for.
struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    /// Aborts the server when this goes.
    _server: JoinSet<()>,
}

impl Server {
    async fn start() -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let router = Router::new().fallback(answer).with_state((port, Arc::clone(&asked)));
        let mut server = JoinSet::new();
        server.spawn(async move {
            // Never returns, and has no error to tell.
            let _ended = axum::serve(listener, router).await.is_ok();
        });
        Ok(Server { port, asked, _server: server })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type Asked = (u16, Arc<Mutex<Vec<String>>>);

async fn answer(State((port, asked)): State<Asked>, uri: Uri) -> Response {
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(uri.path().to_owned());
    let to = |host: &str, path: &str| {
        (StatusCode::FOUND, [("location", format!("http://{host}:{port}{path}"))])
    };
    let pieces = |pieces| Body::from_stream(StreamExt::map(pieces, Ok::<_, Infallible>));
    match uri.path() {
        "/round" => to("local.test", "/round").into_response(),
        "/hop" => to("local.test", "/").into_response(),
        "/to-inner" => to("inner.test", "/secret").into_response(),
        "/to-other" => to("other.test", "/secret").into_response(),
        "/to-address" => to("127.0.0.1", "/secret").into_response(),
        "/to-metadata" => to("metadata.test", "/secret").into_response(),
        "/endless" => {
            pieces(stream::repeat(Bytes::from_static(&[b'z'; 16 << 10])).boxed()).into_response()
        }
        "/drip" => {
            // A moment between any two bytes is what dripping means.
            let ticks = tokio::time::interval(Duration::from_millis(20));
            let drops = stream::unfold(ticks, |mut ticks| async {
                ticks.tick().await;
                Some((Bytes::from_static(b"d"), ticks))
            });
            pieces(drops.boxed()).into_response()
        }
        "/silent" => {
            std::future::pending::<Infallible>().await;
            StatusCode::NO_CONTENT.into_response()
        }
        _ => "hello".into_response(),
    }
}

fn granted(host: &str, port: u16) -> String {
    format!("{{ host = \"{host}\", port = {port}, private = true }}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_not_granted_is_denied_before_anything_is_sent() -> Result {
    let server = Server::start().await?;
    let port = server.port;
    for network in [
        String::new(),
        granted("elsewhere.test", port),
        granted("local.test", if port == 1 { 2 } else { 1 }),
        granted("*.local.test", port),
    ] {
        let desk = Desk::new(&network, &[])?;
        let heard = desk.get(&format!("http://local.test:{port}/")).await?;
        assert!(
            heard.starts_with("denied: ") && heard.contains("was not granted local.test"),
            "{network}: {heard}"
        );
        assert!(desk.refusals().contains("network: local.test"), "{}", desk.refusals());
    }
    assert_eq!(server.asked(), [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_name_works_and_other_spellings_of_its_address_do_not() -> Result {
    let server = Server::start().await?;
    let port = server.port;
    let desk = Desk::new(&granted("local.test", port), &[])?;
    let answer = desk.works(&json!({"url": format!("http://local.test:{port}/path")})).await?;
    assert_eq!((&answer["status"], &answer["text"]), (&json!(200), &json!("hello")), "{answer}");
    let answer = desk.works(&json!({"url": format!("http://LOCAL.test.:{port}/hop")})).await?;
    assert_eq!(
        (&answer["status"], answer["redirects"].as_array().map(Vec::len)),
        (&json!(200), Some(1)),
        "{answer}"
    );
    let asked = server.asked().len();
    // The grant is for the name: not for its address, however it is spelt.
    for host in ["127.0.0.1", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "other.test"] {
        let heard = desk.get(&format!("http://{host}:{port}/")).await?;
        assert!(heard.starts_with("denied: "), "{host}: {heard}");
    }
    assert_eq!(server.asked().len(), asked);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_stands_for_a_private_address_is_denied_without_a_grant_for_private_ones()
-> Result {
    let server = Server::start().await?;
    let port = server.port;
    for network in
        [format!("{{ host = \"local.test\", port = {port} }}"), "{ host = \"*\" }".to_owned()]
    {
        let desk = Desk::new(&network, &[])?;
        let heard = desk.get(&format!("http://local.test:{port}/")).await?;
        let reason =
            format!("local.test:{port} stands for an address that this run was not granted");
        assert!(heard.starts_with("denied: ") && heard.contains(&reason), "{heard}");
        // The operator reads which address it was, and what the grant is for.
        assert!(desk.refusals().contains("local.test (127.0.0.1)"), "{}", desk.refusals());
        assert!(desk.refusals().contains("public addresses only"), "{}", desk.refusals());
    }
    let desk = Desk::new("{ host = \"*\" }", &[])?;
    for host in
        ["metadata.test", "169.254.169.254", "127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "10.0.0.1"]
    {
        let heard = desk.get(&format!("http://{host}:{port}/")).await?;
        assert!(heard.starts_with("denied: "), "{host}: {heard}");
    }
    assert_eq!(server.asked(), [""; 0]);
    Ok(())
}

/// A redirect is a new request, which is checked like the first one.
#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_what_was_not_granted_is_denied_at_that_hop() -> Result {
    let server = Server::start().await?;
    let port = server.port;
    // The one name may be private; the others are granted for public addresses, or not at all.
    let network = format!(
        "{}, {{ host = \"inner.test\" }}, {{ host = \"metadata.test\" }}",
        granted("local.test", port)
    );
    let desk = Desk::new(&network, &[])?;
    for (path, target) in [
        ("/to-inner", "inner.test"),
        ("/to-other", "other.test"),
        ("/to-address", "127.0.0.1"),
        ("/to-metadata", "metadata.test"),
    ] {
        let heard = desk.get(&format!("http://local.test:{port}{path}")).await?;
        let way = format!("http://local.test:{port}{path} → http://{target}:{port}/secret");
        assert!(heard.starts_with("denied: ") && heard.contains(&way), "{path}: {heard}");
    }
    assert_eq!(server.asked(), ["/to-inner", "/to-other", "/to-address", "/to-metadata"]);
    let heard = desk.get(&format!("http://local.test:{port}/round")).await?;
    assert!(heard.contains("5 redirects were followed"), "{heard}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_public_and_private_never_leads_to_the_private_address() -> Result {
    let server = Server::start().await?;
    let port = server.port;
    let desk = Desk::new(&format!("{{ host = \"both.test\", port = {port} }}"), &[])?;
    let heard = desk
        .fetch(&json!({"url": format!("http://both.test:{port}/"), "timeout_seconds": 1}))
        .await?;
    assert!(!heard.starts_with("ok: "), "{heard}");
    assert_eq!(server.asked(), [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_without_an_end_are_cut_by_size_and_by_time() -> Result {
    let server = Server::start().await?;
    let desk = Desk::new(&granted("local.test", server.port), &[])?;
    let url = |path: &str| format!("http://local.test:{}{path}", server.port);
    let answer = desk.works(&json!({"url": url("/endless"), "max_bytes": 100_000})).await?;
    assert_eq!((&answer["bytes"], &answer["cut"]), (&json!(100_000), &json!("max_bytes")));
    assert_eq!(answer["text"].as_str().map(str::len), Some(100_000));
    let answer = desk.works(&json!({"url": url("/drip"), "timeout_seconds": 1})).await?;
    assert_eq!(answer["cut"], "time", "{answer}");
    assert!(
        answer["text"]
            .as_str()
            .is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte == b'd')),
        "{answer}"
    );
    let heard = desk.fetch(&json!({"url": url("/silent"), "timeout_seconds": 1})).await?;
    assert!(
        heard.starts_with("error: ")
            && (heard.contains("in time") || heard.contains("within 1 second")),
        "{heard}"
    );
    Ok(())
}

/// A server for `local.test` that speaks TLS, with a certificate that an authority of its own has signed.
async fn tls_server(server: &mut JoinSet<Result>) -> Result<(u16, Vec<u8>)> {
    let authority_key = rcgen::KeyPair::generate()?;
    let mut authority = rcgen::CertificateParams::new(vec![])?;
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key)?.der().to_vec();
    let key = rcgen::KeyPair::generate()?;
    let params = rcgen::CertificateParams::new(vec!["local.test".to_owned()])?;
    let certificate =
        params.signed_by(&key, &rcgen::Issuer::new(authority, authority_key))?.der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key.serialize_der().into()))?;
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    server.spawn(async move {
        loop {
            // A client that does not trust us breaks off here.
            let Ok(mut connection) = acceptor.accept(listener.accept().await?.0).await else {
                continue;
            };
            let mut heard = Vec::new();
            while !heard.ends_with(b"\r\n\r\n") && connection.read_buf(&mut heard).await? > 0 {}
            let answer =
                b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\ncontent-type: text/plain\r\n\r\nsealed";
            connection.write_all(answer).await?;
            connection.flush().await?;
            connection.read_to_end(&mut heard).await.ok();
        }
    });
    Ok((port, root))
}

#[tokio::test(flavor = "multi_thread")]
async fn https_needs_a_certificate_that_is_trusted_for_the_name() -> Result {
    let mut server = JoinSet::new();
    let (port, root) = tls_server(&mut server).await?;
    let network = format!("{}, {}", granted("local.test", port), granted("other.test", port));
    let trusting = Desk::new(&network, &[root])?;
    let answer = trusting.works(&json!({"url": format!("https://local.test:{port}/")})).await?;
    assert_eq!((&answer["status"], &answer["text"]), (&json!(200), &json!("sealed")), "{answer}");
    let heard = trusting.get(&format!("https://other.test:{port}/")).await?;
    assert!(
        heard.starts_with("error: ") && heard.contains("certificate of the server is not trusted"),
        "{heard}"
    );
    let heard = Desk::new(&network, &[])?.get(&format!("https://local.test:{port}/")).await?;
    assert!(
        heard.starts_with("error: ") && heard.contains("certificate of the server is not trusted"),
        "{heard}"
    );
    Ok(())
}
