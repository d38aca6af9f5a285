//! Connections: who is refused can read why, and nobody takes all of them.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};
use checkrein_testkit::PATIENCE;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::commands::{is, run};
use super::daemon::{Answer, Daemon};
use crate::metrics::samples;

/// Bytes of a body that fits into no buffer of a socket.
const BODY: usize = 8 << 20;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection whose answers are read.
type Connection = BufReader<Box<dyn Stream>>;

fn start(serve: &str) -> Result<Daemon> {
    Daemon::start(&format!("tcp = \"127.0.0.1:0\"\n{serve}"))
}

fn address(daemon: &Daemon) -> Result<SocketAddr> {
    let line = daemon.printed.iter().find_map(|line| line.strip_prefix("listening on http://"));
    Ok(line.context("the address")?.parse()?)
}

fn over_unix(daemon: &Daemon) -> Result<Connection> {
    Ok(BufReader::new(Box::new(daemon.connect()?)))
}

fn over_tcp(daemon: &Daemon) -> Result<Connection> {
    let stream = TcpStream::connect(address(daemon)?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(Box::new(stream)))
}

/// A connection from another address of this machine.
fn from_elsewhere(daemon: &Daemon) -> Result<Connection> {
    let from: SocketAddr = "127.0.0.2:0".parse()?;
    let descriptor = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&descriptor, &from)?;
    connect(&descriptor, &address(daemon)?)?;
    let stream = TcpStream::from(descriptor);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(Box::new(stream)))
}

const WAYS: [fn(&Daemon) -> Result<Connection>; 2] = [over_unix, over_tcp];

fn head(method: &str, path: &str, body: usize) -> String {
    let kind = "content-type: application/json";
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{kind}\r\ncontent-length: {body}\r\n\r\n"
    )
}

/// Sends that much of a body. A connection that was closed makes it fail.
fn body(to: &mut Connection, bytes: usize) -> Result<()> {
    let part = vec![b' '; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let size = left.min(part.len());
        to.get_mut().write_all(&part[..size]).context("the rest of the body")?;
        left -= size;
    }
    Ok(())
}

fn is_problem(answer: &Answer, status: u16, kind: &str) {
    assert_eq!((answer.status, answer.kind()), (status, kind), "{answer:?}");
}

/// After the answer comes the end, and no failure.
fn is_over(from: &mut Connection) -> Result<()> {
    let mut rest = Vec::new();
    from.read_to_end(&mut rest).context("the end")?;
    assert_eq!(rest, b"");
    Ok(())
}

/// Asks for something and keeps the connection.
fn asked(connection: &mut Connection) -> Result<Answer> {
    connection.get_mut().write_all(head("GET", "/livez", 0).as_bytes())?;
    Answer::read(connection)
}

/// A route that needs no body answers before the body has come. Whoever still sends it must not be cut off for that.
#[test]
fn a_body_that_nobody_reads_does_not_break_the_connection() -> Result<()> {
    let daemon = start("")?;
    for way in WAYS {
        let mut connection = way(&daemon)?;
        connection.get_mut().write_all(head("POST", "/v1/reload", BODY).as_bytes())?;
        let answer = Answer::read(&mut connection)?;
        assert_eq!(answer.status, 200, "{answer:?}");
        body(&mut connection, BODY)?;
        is_over(&mut connection)?;
    }
    Ok(())
}

#[test]
fn who_sends_too_much_can_send_it_and_reads_that_it_was_too_much() -> Result<()> {
    let daemon = start("body-bytes = 1000")?;
    for way in WAYS {
        let mut connection = way(&daemon)?;
        let path = "/v1/profiles/main/sessions";
        connection.get_mut().write_all(head("POST", path, BODY).as_bytes())?;
        body(&mut connection, BODY)?;
        is_problem(&Answer::read(&mut connection)?, 413, "too-large");
        is_over(&mut connection)?;
    }
    Ok(())
}

#[test]
fn who_is_too_slow_reads_it_and_may_still_send_the_rest() -> Result<()> {
    let daemon = start("head-time = \"1s\"\nbody-time = \"1s\"")?;
    for way in WAYS {
        let path = "/v1/profiles/main/sessions";
        let mut half = way(&daemon)?;
        half.get_mut().write_all(head("POST", path, BODY).as_bytes())?;
        body(&mut half, 1000)?;
        let mut silent = way(&daemon)?;
        silent.get_mut().write_all(b"GET /livez HTTP/1.1\r\nho")?;
        for late in [&mut half, &mut silent] {
            is_problem(&Answer::read(late)?, 408, "too-slow");
            body(late, BODY / 2)?;
            is_over(late)?;
        }
        // Who has said nothing is told nothing.
        is_over(&mut way(&daemon)?)?;
    }
    Ok(())
}

#[test]
fn who_asks_too_often_reads_it_however_long_the_request_is() -> Result<()> {
    let rates = "[serve.rates]\npeer-requests-per-minute = 1\npeer-burst = 1";
    let daemon = start(rates)?;
    let mut first = over_tcp(&daemon)?;
    first.get_mut().write_all(head("GET", "/v1/tree", 0).as_bytes())?;
    assert_eq!(Answer::read(&mut first)?.status, 200);
    let mut second = over_tcp(&daemon)?;
    second.get_mut().write_all(head("POST", "/v1/reload", BODY).as_bytes())?;
    body(&mut second, BODY)?;
    is_problem(&Answer::read(&mut second)?, 429, "too-many");
    is_over(&mut second)
}

#[test]
fn who_gets_no_place_reads_it_however_long_the_request_is() -> Result<()> {
    let daemon = start("connections = 1")?;
    for way in WAYS {
        let mut held = way(&daemon)?;
        assert_eq!(asked(&mut held)?.status, 200);
        let mut refused = way(&daemon)?;
        let head = head("POST", "/v1/profiles/main/sessions", BODY);
        for part in head.as_bytes().chunks(10) {
            refused.get_mut().write_all(part)?;
        }
        body(&mut refused, BODY)?;
        let answer = Answer::read(&mut refused)?;
        is_problem(&answer, 503, "refused");
        assert_eq!(answer.header("retry-after"), Some("1"));
        is_over(&mut refused)?;
    }
    Ok(())
}

/// There are clients that take an answer for a defect that comes before they have asked. That of the command is one.
#[test]
fn the_command_says_that_there_is_no_place() -> Result<()> {
    let daemon = Daemon::start("connections = 1")?;
    let mut held = over_unix(&daemon)?;
    assert_eq!(asked(&mut held)?.status, 200);
    for _ in 0..10 {
        let ended = run(&daemon, &["ps"])?;
        let words = "the host has as many connections as it may; try again";
        assert!(ended.code != Some(0) && ended.err.contains(words), "{}", ended.err);
    }
    Ok(())
}

/// As many connections as one peer gets, and the answer to the first that it does not get.
fn all_of_one(
    daemon: &Daemon,
    way: fn(&Daemon) -> Result<Connection>,
) -> Result<(Vec<Connection>, Answer)> {
    let mut held = Vec::new();
    loop {
        let mut next = way(daemon)?;
        let answer = asked(&mut next)?;
        if answer.status != 200 {
            return Ok((held, answer));
        }
        held.push(next);
        ensure!(held.len() < 1000, "there is no end of it");
    }
}

/// A stop is certain: a process that has all the connections that it can get keeps no other one out.
#[test]
fn one_process_has_its_share_of_the_connections_and_another_one_can_stop_things() -> Result<()> {
    let daemon = Daemon::start("connections = 16")?;
    let session = daemon.session()?;
    daemon.until_ready(&session, "sleep 600000")?;
    let (mut held, refused) = all_of_one(&daemon, over_unix)?;
    is_problem(&refused, 429, "too-many");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(held.len() <= 8, "{}", held.len());
    let stopped = run(&daemon, &["stop", "s1"])?;
    assert_eq!(stopped.code, Some(0), "{}{}", stopped.out, stopped.err);
    is(&run(&daemon, &["ps"])?, 0, "nothing runs\n");
    // One of its own that has ended makes room.
    let mut first = held.remove(0);
    first.get_mut().write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut page = String::new();
    first.read_to_string(&mut page)?;
    let figures = samples(page.split_once("\r\n\r\n").context("a body")?.1);
    assert_eq!(figures["checkrein_connections{socket=\"tcp\"}"], 0.0);
    assert!(figures["checkrein_connections{socket=\"unix\"}"] >= held.len() as f64, "{page}");
    let refusals = "checkrein_connections_refused_total{socket=\"unix\",reason=\"share\"}";
    assert_eq!(figures[refusals], 1.0, "{page}");
    drop(first);
    while asked(&mut over_unix(&daemon)?)?.status != 200 {}
    Ok(())
}

/// Also one that may have as many as there are gets none of the last ones.
#[test]
fn the_last_connections_are_for_those_who_have_none() -> Result<()> {
    let daemon = Daemon::start("connections = 16\npeer-connections = 16")?;
    let (held, refused) = all_of_one(&daemon, over_unix)?;
    is_problem(&refused, 503, "refused");
    assert_eq!(held.len(), 14);
    is(&run(&daemon, &["ps"])?, 0, "nothing runs\n");
    Ok(())
}

#[test]
fn one_address_has_its_share_of_the_connections() -> Result<()> {
    let daemon = start("connections = 16\npeer-connections = 3")?;
    let (held, refused) = all_of_one(&daemon, over_tcp)?;
    is_problem(&refused, 429, "too-many");
    assert_eq!(held.len(), 3);
    assert_eq!(asked(&mut from_elsewhere(&daemon)?)?.status, 200);
    // The socket has places of its own.
    assert_eq!(daemon.get("/livez")?.status, 200);
    Ok(())
}
