//! Rule S11, for WASI: a hard stop ends a guest in every function of WASI that can wait, in every call of a file, and in
//! a loop over each interface. The functions are read from the WIT of wasmtime, so that a new one without a place here
//! fails.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context;
use checkrein::sandbox::Names;
use checkrein_testkit::{TestHost, wasi, wat, within};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::start::{Result, agent, hard, host, interrupted, tool};

/// What answers at once, by interface.
const AT_ONCE: [(&str, &[&str]); 26] = [
    ("wasi:cli/environment", &["get-arguments", "get-environment", "initial-cwd"]),
    ("wasi:cli/exit", &["exit", "exit-with-code"]),
    ("wasi:cli/stderr", &["get-stderr"]),
    ("wasi:cli/stdin", &["get-stdin"]),
    ("wasi:cli/stdout", &["get-stdout"]),
    ("wasi:cli/terminal-stderr", &["get-terminal-stderr"]),
    ("wasi:cli/terminal-stdin", &["get-terminal-stdin"]),
    ("wasi:cli/terminal-stdout", &["get-terminal-stdout"]),
    (
        "wasi:clocks/monotonic-clock",
        &["now", "resolution", "subscribe-duration", "subscribe-instant"],
    ),
    ("wasi:clocks/wall-clock", &["now", "resolution"]),
    ("wasi:filesystem/preopens", &["get-directories"]),
    (
        "wasi:filesystem/types",
        &[
            "[method]descriptor.advise",
            "[method]descriptor.append-via-stream",
            "[method]descriptor.get-flags",
            "[method]descriptor.get-type",
            "[method]descriptor.read-via-stream",
            "[method]descriptor.write-via-stream",
            "filesystem-error-code",
        ],
    ),
    ("wasi:http/outgoing-handler", &["handle"]),
    (
        "wasi:http/types",
        &[
            "[constructor]fields",
            "[constructor]outgoing-request",
            "[constructor]outgoing-response",
            "[constructor]request-options",
            "[method]fields.append",
            "[method]fields.clone",
            "[method]fields.delete",
            "[method]fields.entries",
            "[method]fields.get",
            "[method]fields.has",
            "[method]fields.set",
            "[method]future-incoming-response.get",
            "[method]future-incoming-response.subscribe",
            "[method]future-trailers.get",
            "[method]future-trailers.subscribe",
            "[method]incoming-body.stream",
            "[method]incoming-request.authority",
            "[method]incoming-request.consume",
            "[method]incoming-request.headers",
            "[method]incoming-request.method",
            "[method]incoming-request.path-with-query",
            "[method]incoming-request.scheme",
            "[method]incoming-response.consume",
            "[method]incoming-response.headers",
            "[method]incoming-response.status",
            "[method]outgoing-body.write",
            "[method]outgoing-request.authority",
            "[method]outgoing-request.body",
            "[method]outgoing-request.headers",
            "[method]outgoing-request.method",
            "[method]outgoing-request.path-with-query",
            "[method]outgoing-request.scheme",
            "[method]outgoing-request.set-authority",
            "[method]outgoing-request.set-method",
            "[method]outgoing-request.set-path-with-query",
            "[method]outgoing-request.set-scheme",
            "[method]outgoing-response.body",
            "[method]outgoing-response.headers",
            "[method]outgoing-response.set-status-code",
            "[method]outgoing-response.status-code",
            "[method]request-options.between-bytes-timeout",
            "[method]request-options.connect-timeout",
            "[method]request-options.first-byte-timeout",
            "[method]request-options.set-between-bytes-timeout",
            "[method]request-options.set-connect-timeout",
            "[method]request-options.set-first-byte-timeout",
            "[static]fields.from-list",
            "[static]incoming-body.finish",
            "[static]outgoing-body.finish",
            "[static]response-outparam.set",
            "http-error-code",
        ],
    ),
    ("wasi:io/error", &["[method]error.to-debug-string"]),
    ("wasi:io/poll", &["[method]pollable.ready"]),
    (
        "wasi:io/streams",
        &[
            "[method]input-stream.read",
            "[method]input-stream.skip",
            "[method]input-stream.subscribe",
            "[method]output-stream.check-write",
            "[method]output-stream.flush",
            "[method]output-stream.splice",
            "[method]output-stream.subscribe",
            "[method]output-stream.write",
            "[method]output-stream.write-zeroes",
        ],
    ),
    ("wasi:random/insecure", &["get-insecure-random-bytes", "get-insecure-random-u64"]),
    ("wasi:random/insecure-seed", &["insecure-seed"]),
    ("wasi:random/random", &["get-random-bytes", "get-random-u64"]),
    ("wasi:sockets/instance-network", &["instance-network"]),
    (
        "wasi:sockets/ip-name-lookup",
        &[
            "[method]resolve-address-stream.resolve-next-address",
            "[method]resolve-address-stream.subscribe",
            "resolve-addresses",
        ],
    ),
    (
        "wasi:sockets/tcp",
        &[
            "[method]tcp-socket.accept",
            "[method]tcp-socket.address-family",
            "[method]tcp-socket.finish-bind",
            "[method]tcp-socket.finish-connect",
            "[method]tcp-socket.finish-listen",
            "[method]tcp-socket.hop-limit",
            "[method]tcp-socket.is-listening",
            "[method]tcp-socket.keep-alive-count",
            "[method]tcp-socket.keep-alive-enabled",
            "[method]tcp-socket.keep-alive-idle-time",
            "[method]tcp-socket.keep-alive-interval",
            "[method]tcp-socket.local-address",
            "[method]tcp-socket.receive-buffer-size",
            "[method]tcp-socket.remote-address",
            "[method]tcp-socket.send-buffer-size",
            "[method]tcp-socket.set-hop-limit",
            "[method]tcp-socket.set-keep-alive-count",
            "[method]tcp-socket.set-keep-alive-enabled",
            "[method]tcp-socket.set-keep-alive-idle-time",
            "[method]tcp-socket.set-keep-alive-interval",
            "[method]tcp-socket.set-listen-backlog-size",
            "[method]tcp-socket.set-receive-buffer-size",
            "[method]tcp-socket.set-send-buffer-size",
            "[method]tcp-socket.shutdown",
            "[method]tcp-socket.start-bind",
            "[method]tcp-socket.start-connect",
            "[method]tcp-socket.start-listen",
            "[method]tcp-socket.subscribe",
        ],
    ),
    ("wasi:sockets/tcp-create-socket", &["create-tcp-socket"]),
    (
        "wasi:sockets/udp",
        &[
            "[method]incoming-datagram-stream.receive",
            "[method]incoming-datagram-stream.subscribe",
            "[method]outgoing-datagram-stream.check-send",
            "[method]outgoing-datagram-stream.send",
            "[method]outgoing-datagram-stream.subscribe",
            "[method]udp-socket.address-family",
            "[method]udp-socket.finish-bind",
            "[method]udp-socket.local-address",
            "[method]udp-socket.receive-buffer-size",
            "[method]udp-socket.remote-address",
            "[method]udp-socket.send-buffer-size",
            "[method]udp-socket.set-receive-buffer-size",
            "[method]udp-socket.set-send-buffer-size",
            "[method]udp-socket.set-unicast-hop-limit",
            "[method]udp-socket.start-bind",
            "[method]udp-socket.stream",
            "[method]udp-socket.subscribe",
            "[method]udp-socket.unicast-hop-limit",
        ],
    ),
    ("wasi:sockets/udp-create-socket", &["create-udp-socket"]),
];

/// What waits for a disk, on a thread of the host's: the methods of files, directories and listings. A disk that hangs
/// cannot be had here, so a guest calls each of them for ever.
const DISK: [&str; 22] = [
    "[method]descriptor.create-directory-at",
    "[method]descriptor.is-same-object",
    "[method]descriptor.link-at",
    "[method]descriptor.metadata-hash",
    "[method]descriptor.metadata-hash-at",
    "[method]descriptor.open-at",
    "[method]descriptor.read",
    "[method]descriptor.read-directory",
    "[method]descriptor.readlink-at",
    "[method]descriptor.remove-directory-at",
    "[method]descriptor.rename-at",
    "[method]descriptor.set-size",
    "[method]descriptor.set-times",
    "[method]descriptor.set-times-at",
    "[method]descriptor.stat",
    "[method]descriptor.stat-at",
    "[method]descriptor.symlink-at",
    "[method]descriptor.sync",
    "[method]descriptor.sync-data",
    "[method]descriptor.unlink-file-at",
    "[method]descriptor.write",
    "[method]directory-entry-stream.read-directory-entry",
];

/// What waits as long as somebody else likes: where a guest is parked in it, as its tool `park` calls that.
const WAITS: [(&str, &[&str]); 8] = [
    (
        "wasi:io/poll.[method]pollable.block",
        &[
            "clock",
            "connect",
            "name",
            "answer",
            "tcp ready to read",
            "tcp ready to write",
            "body ready to read",
            "body trailers",
            "upload ready to write",
        ],
    ),
    ("wasi:io/poll.poll", &["clock poll", "connect poll", "name poll", "answer poll"]),
    ("wasi:io/streams.[method]input-stream.blocking-read", &["tcp read", "body read"]),
    ("wasi:io/streams.[method]input-stream.blocking-skip", &["tcp skip", "body skip"]),
    ("wasi:io/streams.[method]output-stream.blocking-flush", &["tcp flush"]),
    ("wasi:io/streams.[method]output-stream.blocking-splice", &["tcp splice", "body splice"]),
    (
        "wasi:io/streams.[method]output-stream.blocking-write-and-flush",
        // And letting go of a stream, which sends what was written to it.
        &["tcp write", "upload write", "tcp drop"],
    ),
    (
        "wasi:io/streams.[method]output-stream.blocking-write-zeroes-and-flush",
        &["tcp zeroes", "upload zeroes"],
    ),
];

/// Interfaces that are no import of a plugin's: what it exports to other hosts, and requests that come in.
const ABSENT: [&str; 2] = ["wasi:cli/run", "wasi:http/incoming-handler"];

/// Interfaces whose functions need what cannot be had for a loop: an error, an end of the guest.
const NOT_LOOPED: [&str; 2] = ["wasi:cli/exit", "wasi:io/error"];

/// Calls of streams, made on files: what wasmtime waits for there is a thread of the host's.
const STREAMS_OF_FILES: [&str; 6] = [
    "blocking-read",
    "blocking-skip",
    "blocking-splice",
    "blocking-write-and-flush",
    "blocking-flush",
    "blocking-write-zeroes-and-flush",
];

#[test]
fn every_function_of_wasi_has_a_place() -> Result {
    let known = wasi()?;
    let interface = |function: &str| function.split('.').next().unwrap_or_default().to_owned();
    let known: BTreeSet<String> = known
        .into_iter()
        .filter(|function| !ABSENT.contains(&interface(function).as_str()))
        .collect();
    let mut listed = Vec::new();
    for (interface, functions) in AT_ONCE {
        listed.extend(functions.iter().map(|function| format!("{interface}.{function}")));
    }
    listed.extend(DISK.iter().map(|function| format!("wasi:filesystem/types.{function}")));
    listed.extend(WAITS.iter().map(|(function, _)| (*function).to_owned()));
    let places: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(places.len(), listed.len(), "a function stands twice");
    let missing: Vec<&String> = known.difference(&places).collect();
    assert!(missing.is_empty(), "no case stops a guest in {missing:?}");
    let strange: Vec<&String> = places.difference(&known).collect();
    assert!(strange.is_empty(), "WASI has no {strange:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_of_wasi_is_absent_is_refused() -> Result {
    for interface in ABSENT {
        let import = format!("(import \"{interface}@0.2.12\" (instance (export \"run\" (func))))");
        let plugin = checkrein_testkit::Plugin::agent("agent", wat("agent", &[("MORE", &import)])?);
        let host = host().plugin(plugin).build()?;
        assert!(host.session("agent").await.is_err(), "{interface} is served");
    }
    Ok(())
}

/// Never finds a name.
#[derive(Debug)]
struct Slow;

impl Names for Slow {
    fn look_up(&self, _host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        std::future::pending().boxed()
    }
}

/// Servers that hold a guest up. They end with the value.
struct Servers {
    /// Takes connections, and neither reads nor writes.
    deaf: u16,
    /// Takes connections and answers an HTTP request with the beginning of an answer.
    begins: u16,
    /// Takes no connection: its line of those who wait is full.
    full: u16,
    _serving: JoinSet<()>,
    _line: Vec<TcpStream>,
    _listener: TcpListener,
}

impl Servers {
    async fn start() -> Result<Servers> {
        let mut serving = JoinSet::new();
        let mut ports = Vec::new();
        for begins in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            ports.push(listener.local_addr()?.port());
            serving.spawn(async move {
                let mut kept = Vec::new();
                while let Ok((mut stream, _)) = listener.accept().await {
                    if begins {
                        let _asked = stream.read(&mut [0; 4096]).await;
                        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegin";
                        let _begun = stream.write_all(head).await;
                    }
                    kept.push(stream);
                }
            });
        }
        let socket = TcpSocket::new_v4()?;
        socket.bind("127.0.0.1:0".parse()?)?;
        let listener = socket.listen(1)?;
        let address = listener.local_addr()?;
        let mut line = Vec::new();
        // The kernel lets a few more in than it was told; whoever waits a moment in vain will wait for ever.
        let moment = std::time::Duration::from_millis(300);
        while let Ok(stream) = tokio::time::timeout(moment, TcpStream::connect(address)).await {
            line.push(stream?);
        }
        Ok(Servers {
            deaf: ports[0],
            begins: ports[1],
            full: address.port(),
            _serving: serving,
            _line: line,
            _listener: listener,
        })
    }

    fn port(&self, place: &str) -> u16 {
        match place.split(' ').next() {
            Some("body") => self.begins,
            Some("connect") => self.full,
            _ => self.deaf,
        }
    }
}

/// A host in which no limit ends a loop before a stop does.
fn crowd(servers: Option<&Servers>) -> Result<TestHost> {
    let ports = servers.map_or_else(Vec::new, |servers| {
        [servers.deaf, servers.begins, servers.full]
            .map(|port| format!("{{ host = \"127.0.0.1\", port = {port}, private = true }}"))
            .into()
    });
    let hosts = match ports.as_slice() {
        [] => String::new(),
        ports => format!("network = [{}, {{ host = \"slow.test\" }}]\n", ports.join(", ")),
    };
    let asks = format!("{hosts}directories = [{{ mount = \"work\", access = \"read-write\" }}]");
    let given = asks.replace("mount = \"work\"", "mount = \"work\", path = \"work\"");
    let host = host()
        .plugin(agent())
        .plugin(tool().grants(&asks))
        .names(Arc::new(Slow))
        .configuration(&format!(
            "[limits]\nlog-bytes = \"1TiB\"\ndoor-bytes = \"1TiB\"\n[plugins.tool.grants]\n{given}"
        ))
        .build()?;
    std::fs::create_dir(host.home().join("work"))?;
    Ok(host)
}

/// Calls a tool, waits until it has written that line so many times, and stops the turn.
async fn stopped(host: &TestHost, goal: &str, line: &str, count: usize, doing: &str) -> Result {
    let session = host.session("agent").await?;
    let turn = session.prompt(goal, "")?;
    within(goal, host.logs().written(line, count)).await?;
    if !doing.is_empty() {
        host.doing(doing).await.context(goal.to_owned())?;
    }
    let work = turn.id();
    assert!(host.host().tree().contains(work), "{goal}: it ended by itself");
    session.stop_turn(None, &hard(goal))?;
    let report = within(goal, turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(hard(goal)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_is_stopped_wherever_it_waits_for_others() -> Result {
    let servers = Servers::start().await?;
    let host = crowd(Some(&servers))?;
    let mut parked = 0;
    for (function, places) in WAITS {
        let doing = function.split('.').next().unwrap_or_default();
        for place in places {
            let port = servers.port(place);
            let goal = format!(
                "call tool_park {{\"text\":\"{place}\",\"host\":\"slow.test\",\"port\":{port}}}"
            );
            parked += 1;
            stopped(&host, &goal, "parked", parked, doing).await?;
            // A thread that opened the folders has told of it a moment before it is put away.
            host.settles().await.context(goal)?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_is_stopped_in_every_call_of_a_file() -> Result {
    let host = crowd(None)?;
    let methods = DISK.iter().filter_map(|function| function.split('.').nth(1));
    for (looping, function) in methods.chain(STREAMS_OF_FILES).enumerate() {
        let goal = format!("call tool_files {{\"text\":\"{function}\"}}");
        stopped(&host, &goal, "looping", looping + 1, "").await?;
        // What was begun on a thread of the host's is finished there (W3).
        host.settles().await.context(goal)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_is_stopped_in_a_loop_over_every_interface() -> Result {
    let host = crowd(None)?;
    let looped = AT_ONCE.iter().map(|(interface, _)| *interface);
    let looped = looped.filter(|interface| !NOT_LOOPED.contains(interface));
    for (looping, interface) in looped.chain(["wasi:io/poll, waiting"]).enumerate() {
        let goal = format!("call tool_loop {{\"text\":\"{interface}\"}}");
        stopped(&host, &goal, "looping", looping + 1, "").await?;
        host.settles().await.context(goal)?;
    }
    Ok(())
}
