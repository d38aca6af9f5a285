//! Hostile guests and the network, and servers that are no better.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use checkrein::sandbox::Names;
use checkrein_testkit::{TestHost, TestHostBuilder, within};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{crowd, says};
use crate::start::{Beside, Result, agent, hard, host, interrupted, neighbour, tool};

/// What a server of the tests does with each connection.
#[derive(Debug, Clone, Copy)]
enum Serves {
    /// Answers, and is done.
    Hello,
    /// Sends whoever asks to another port.
    RedirectTo(u16),
    /// Answers, and goes on for ever.
    Endless,
    /// Answers byte by byte, for ever.
    Drip,
    /// Begins to answer, and then says nothing more.
    Stall,
    /// Takes the connection and says nothing at all.
    Silent,
}

/// A server on this machine; it ends with the value.
struct Server {
    address: SocketAddr,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start(serves: Serves) -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let mut request = [0; 4096];
                    let _read = stream.read(&mut request).await;
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n";
                    let begin = match serves {
                        Serves::Hello => format!("{head}content-length: 5\r\n\r\nhello"),
                        Serves::RedirectTo(port) => format!(
                            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{port}/\r\ncontent-length: 0\r\n\r\n"
                        ),
                        Serves::Endless | Serves::Drip | Serves::Stall => {
                            format!("{head}\r\nbegin")
                        }
                        Serves::Silent => String::new(),
                    };
                    let mut alive = stream.write_all(begin.as_bytes()).await.is_ok();
                    match serves {
                        Serves::Hello | Serves::RedirectTo(_) => {}
                        Serves::Drip => {
                            while alive {
                                tokio::time::sleep(Duration::from_millis(2)).await;
                                alive = stream.write_all(b"x").await.is_ok();
                            }
                        }
                        Serves::Stall | Serves::Silent => {
                            // Until the other side goes.
                            while matches!(stream.read(&mut request).await, Ok(1..)) {}
                        }
                        Serves::Endless => {
                            // Slow enough that no limit ends it before a stop does, on a machine that is busy, too.
                            while alive {
                                tokio::time::sleep(Duration::from_millis(1)).await;
                                alive = stream.write_all(&[b'x'; 16 << 10]).await.is_ok();
                            }
                        }
                    }
                });
            }
        });
        Ok(Server { address, _serving: serving })
    }

    fn port(&self) -> u16 {
        self.address.port()
    }
}

/// A host whose tool may connect to these ports of this machine.
fn with_ports(ports: &[u16], limits: &str) -> TestHostBuilder {
    let entries: Vec<String> = ports
        .iter()
        .map(|port| format!("{{ host = \"127.0.0.1\", port = {port}, private = true }}"))
        .collect();
    let network = format!("network = [{}]", entries.join(", "));
    host()
        .plugin(agent())
        .plugin(neighbour())
        .plugin(tool().grants(&network).limits(limits))
        .configuration(&format!("[plugins.tool.grants]\n{network}"))
}

fn fetch(host: &str, port: u16) -> String {
    format!("call tool_fetch {{\"host\":\"{host}\",\"port\":{port},\"path\":\"/\"}}")
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn private_addresses_are_out_of_reach_by_any_name() -> Result {
    let server = Server::start(Serves::Hello).await?;
    let port = server.port();
    // Every host, but only as far as the public internet goes.
    let network = "network = [{ host = \"*\" }]";
    let host = host()
        .plugin(agent())
        .plugin(neighbour())
        .plugin(tool().grants(network))
        .configuration(&format!("[plugins.tool.grants]\n{network}"))
        .build()?;
    for name in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "10.0.0.1",
    ] {
        let hears = says(&host, &fetch(name, port)).await?;
        assert!(hears.starts_with("error: "), "{name}: {hears}");
        let connect = format!(
            "call tool_connect {{\"host\":\"{}\",\"port\":{port}}}",
            name.trim_matches(['[', ']'])
        );
        let hears = says(&host, &connect).await?;
        assert!(!hears.starts_with("ok"), "{name}: {hears}");
    }
    // Without any grant there is no network at all.
    let host = crowd().build()?;
    assert!(!says(&host, &fetch("127.0.0.1", port)).await?.starts_with("ok"));
    // With one, there is.
    let host = with_ports(&[port], "").build()?;
    assert_eq!(says(&host, &fetch("127.0.0.1", port)).await?, "ok: hello");
    Ok(())
}

/// A server of names that mixes what is private into its answers.
#[derive(Debug)]
struct Mixed;

impl Names for Mixed {
    fn look_up(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let found = match host {
            "both.test" => {
                ["127.0.0.1", "93.184.215.14", "10.0.0.1", "169.254.169.254", "::1"].as_slice()
            }
            _ => &["127.0.0.1", "192.168.0.1", "::ffff:10.0.0.1", "fe80::1"],
        };
        let found = found.iter().filter_map(|address| address.parse().ok()).collect();
        async move { Ok(found) }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_name_that_is_public_and_private_is_only_what_is_public() -> Result {
    let network = "network = [{ host = \"*\" }]";
    let host = host()
        .plugin(agent())
        .plugin(neighbour())
        .plugin(tool().grants(network))
        .configuration(&format!("[plugins.tool.grants]\n{network}"))
        .names(Arc::new(Mixed))
        .build()?;
    assert_eq!(
        says(&host, "call tool_resolve {\"host\":\"both.test\"}").await?,
        "ok: 93.184.215.14"
    );
    let server = Server::start(Serves::Hello).await?;
    let hears = says(&host, "call tool_resolve {\"host\":\"inside.test\"}").await?;
    assert!(!hears.starts_with("ok"), "{hears}");
    let hears = says(&host, &fetch("inside.test", server.port())).await?;
    assert!(!hears.starts_with("ok"), "{hears}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_redirect_leads_no_further_than_the_grants() -> Result {
    let target = Server::start(Serves::Hello).await?;
    let server = Server::start(Serves::RedirectTo(target.port())).await?;
    let host = with_ports(&[server.port()], "").build()?;
    let hears = says(&host, &fetch("127.0.0.1", server.port())).await?;
    assert!(hears.starts_with("error: "), "{hears}");
    let host = with_ports(&[server.port(), target.port()], "").build()?;
    assert_eq!(says(&host, &fetch("127.0.0.1", server.port())).await?, "ok: hello");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn an_endless_body_ends_at_the_limit() -> Result {
    let server = Server::start(Serves::Endless).await?;
    let host = with_ports(&[server.port()], "door-bytes = \"4MiB\"").build()?;
    let hears = says(&host, &fetch("127.0.0.1", server.port())).await?;
    assert_eq!(hears, "limit: the tool used up its limit `door-bytes`: ask for less at once");
    Ok(())
}

/// Rule S11: a stop reaches a guest that waits for a server, in whatever it waits.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_server_that_does_not_go_on_holds_nobody() -> Result {
    for (serves, begins) in [
        (Serves::Drip, "answered"),
        (Serves::Stall, "answered"),
        (Serves::Silent, "asked"),
        (Serves::Endless, "answered"),
    ] {
        let server = Server::start(serves).await?;
        let host = with_ports(&[server.port()], "").build()?;
        stopped_while_it_waits(&host, &fetch("127.0.0.1", server.port()), begins).await?;
    }
    for serves in [Serves::Silent, Serves::Drip, Serves::Endless] {
        let server = Server::start(serves).await?;
        let host = with_ports(&[server.port()], "").build()?;
        let goal =
            format!("call tool_connect {{\"host\":\"127.0.0.1\",\"port\":{}}}", server.port());
        stopped_while_it_waits(&host, &goal, "connected").await?;
    }
    Ok(())
}

async fn stopped_while_it_waits(host: &TestHost, goal: &str, begins: &str) -> Result {
    let beside = Beside::start(host).await?;
    let session = host.session("agent").await?;
    let turn = session.prompt(goal, "")?;
    host.logged(begins).await?;
    beside.finishes(host).await?;
    session.stop_turn(None, &hard("enough"))?;
    assert_eq!(
        within("the end", turn.ended()).await?.outcome,
        interrupted(hard("enough")),
        "{goal}"
    );
    host.is_idle()
}
