//! Tickets in the API (rule P8): who may do something lets somebody else do it once.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use checkrein::profile::{MOST_TICKETS, TICKET_LIFE, Tickets};
use checkrein::server::{
    App, Closing, Gate, LocalUser, NewToken, Peer, Profiles, RateTable, TokenGate, TokenId, Tokens,
    Verb, router,
};
use checkrein::session::Delivery;
use checkrein::store::Retention;
use checkrein::work::shutdown::{Bounds, Ended, Request as Ask, Step, StepError, Steps};
use checkrein::{Service, ServiceSettings};
use checkrein_testkit::{PATIENCE, TestHost, within};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::ServiceExt;

use super::commands::run;
use super::daemon::{Answer, Client, Daemon, command, home};
use super::router::{One, profile};
use crate::start::with_agent;

/// What a client is told whose ticket is not good, whatever is wrong with it.
const BAD: &str = "this ticket is not good here; ask for a new one";

/// The router by itself, on real homes that are served.
struct Desk {
    service: Service,
    router: Router,
    host: TestHost,
}

/// The answer of a router: its status, and its body as it came.
#[derive(Debug, PartialEq)]
struct Told(u16, String);

impl Told {
    fn json(&self) -> Value {
        serde_json::from_str(&self.1).unwrap_or_default()
    }

    /// The kind of the problem that it is.
    fn kind(&self) -> (u16, String) {
        (self.0, self.json()["error"]["kind"].as_str().unwrap_or(&self.1).to_owned())
    }

    /// The ticket that was made.
    fn ticket(&self) -> Result<String> {
        ensure!(self.0 == 201, "{self:?}");
        self.json()["ticket"].as_str().map(str::to_owned).with_context(|| format!("{self:?}"))
    }
}

fn refused(status: u16, kind: &str) -> (u16, String) {
    (status, kind.to_owned())
}

/// Asks as a peer that shows this.
async fn ask(
    router: &Router,
    path: &str,
    shows: Option<&str>,
    body: Option<Value>,
) -> Result<Told> {
    let mut request = Request::builder().uri(path).extension(Peer::User(7));
    if let Some(shows) = shows {
        request = request.header(header::AUTHORIZATION, shows);
    }
    let request = match body {
        Some(body) => request
            .method("POST")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))?,
        None => request.body(Body::empty())?,
    };
    let response = within(path, router.clone().oneshot(request)).await??;
    let status = response.status().as_u16();
    let bytes = within(path, to_bytes(response.into_body(), 1 << 20)).await??;
    Ok(Told(status, String::from_utf8(bytes.to_vec())?))
}

/// Makes a ticket, as who may do everything.
async fn make(router: &Router, session: &str, purpose: &str) -> Result<Told> {
    ask(router, &format!("{session}/tickets/{purpose}"), None, Some(json!({}))).await
}

/// Follows a session up to its newest event, with a ticket.
async fn follow(router: &Router, session: &str, ticket: &str) -> Result<Told> {
    let shows = format!("Ticket {ticket}");
    ask(router, &format!("{session}/events?follow=false"), Some(&shows), None).await
}

/// Sends a prompt with a ticket and waits for what comes of it.
async fn prompt(router: &Router, session: &str, ticket: &str) -> Result<Told> {
    let (shows, goal) = (format!("Ticket {ticket}"), json!({ "goal": "say done", "wait": true }));
    ask(router, &format!("{session}/prompts"), Some(&shows), Some(goal)).await
}

impl Desk {
    async fn start(profiles: &[&str]) -> Result<Desk> {
        let host = with_agent().build()?;
        let directory = host.home().join("profiles");
        fs::create_dir_all(&directory)?;
        for name in profiles {
            write(&directory, name, "")?;
        }
        let bounds = Bounds {
            tell_clients: PATIENCE,
            stop_listeners: PATIENCE,
            drain: Duration::ZERO,
            ..Bounds::default()
        };
        let settings = ServiceSettings { profiles: directory, retire: Duration::ZERO, bounds };
        let service = Service::new(host.host(), settings);
        service.start().await?;
        let router = router(app(&service), Arc::new(LocalUser));
        Ok(Desk { service, router, host })
    }

    /// The same behind another gate.
    fn behind(&self, gate: impl Gate) -> Router {
        router(app(&self.service), Arc::new(gate))
    }

    async fn session(&self, profile: &str) -> Result<String> {
        let all = format!("/v1/profiles/{profile}/sessions");
        let opened = ask(&self.router, &all, None, Some(json!({ "agent": "agent" }))).await?;
        ensure!(opened.0 == 201, "{opened:?}");
        Ok(format!("{all}/{}", opened.json()["id"].as_str().context("an id")?))
    }

    async fn make(&self, session: &str, purpose: &str) -> Result<String> {
        make(&self.router, session, purpose).await?.ticket()
    }
}

fn app(service: &Service) -> App {
    let served = Arc::new(service.clone());
    App::builder(service.host().clone(), served, Closing::new()).build()
}

fn write(directory: &Path, name: &str, configuration: &str) -> Result<()> {
    fs::create_dir_all(directory.join(name))?;
    Ok(fs::write(directory.join(name).join("profile.toml"), configuration)?)
}

/// Follows with a header, over the socket.
fn over_the_socket(client: &Client, path: &str, header: &str) -> Result<(u16, String)> {
    use std::io::{Read, Write};
    let mut stream = client.connect()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.split(' ').nth(1).context("a status")?.parse()?;
    Ok((status, text))
}

/// Rule P8: whoever is handed a ticket follows one session once, as a browser does or with a header, or prompts it once, and has
/// nothing else, not even where its socket lets everybody do everything.
#[test]
fn a_client_with_a_ticket_does_one_thing_once() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.turn(&session, "progress seen\nsay done")?;
    let made = |purpose: &str| -> Result<String> {
        let answer = daemon.post(&format!("{session}/tickets/{purpose}"), &json!({}))?;
        ensure!(answer.status == 201, "{answer:?}");
        let shown = ["purpose", "profile", "session"].map(|name| answer.body[name].clone());
        assert_eq!(shown, [json!(purpose), json!("main"), json!("s1")]);
        assert_eq!(answer.body["life-ms"], 30_000);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        Ok(answer.body["ticket"].as_str().context("a ticket")?.to_owned())
    };
    let events = format!("{session}/events?follow=false");
    let ticket = made("follow")?;
    let header = format!("authorization: Ticket {ticket}\r\n");
    let (status, text) = over_the_socket(&daemon, &events, &header)?;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("\"text\":\"seen\""), "{text}");
    let (status, text) = over_the_socket(&daemon, &events, &header)?;
    assert_eq!(status, 401, "it was used: {text}");
    assert!(text.contains("\"unauthenticated\"") && text.contains(BAD), "{text}");

    // As an `EventSource` asks, which can set no header.
    let address = format!("{events}&ticket={}", made("follow")?);
    assert_eq!(over_the_socket(&daemon, &address, "")?.0, 200);
    assert_eq!(over_the_socket(&daemon, &address, "")?.0, 401, "it was used");

    let ticket = made("prompt")?;
    let goal = json!({ "goal": "say by ticket", "wait": true }).to_string();
    let prompted = || -> Result<Answer> {
        use std::io::{BufReader, Write};
        let (mut stream, length) = (daemon.connect()?, goal.len());
        write!(
            stream,
            "POST {session}/prompts HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Ticket {ticket}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{goal}"
        )?;
        Answer::read(&mut BufReader::new(stream))
    };
    assert_eq!(prompted()?.body["output"], "by ticket");
    let again = prompted()?;
    assert_eq!((again.status, again.kind()), (401, "unauthenticated"), "{again:?}");
    assert_eq!(daemon.get(&session)?.body["generation"], 2, "one turn more, and not two");

    // Nothing else, on a socket on which who shows nothing may do everything.
    let ticket = made("follow")?;
    let header = format!("authorization: Ticket {ticket}\r\n");
    for path in [&*session, "/v1/tree", "/v1/profiles", "/metrics"] {
        let (status, text) = over_the_socket(&daemon, path, &header)?;
        assert_eq!(status, 403, "{path}: {text}");
        assert_eq!(daemon.get(path).map(|answer| answer.status).unwrap_or(200), 200, "{path}");
    }
    assert_eq!(over_the_socket(&daemon, &events, &header)?.0, 200, "and it is good still");
    Ok(())
}

/// Rule P8: the command prints a ticket once.
#[test]
fn the_command_makes_a_ticket() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    let shown = run(&daemon, &["ticket", "follow", "s1"])?;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let json = run(&daemon, &["ticket", "follow", "main/s1", "--life", "5", "--json"])?;
    let json: Value = serde_json::from_str(&json.out)?;
    assert_eq!((&json["life-ms"], &json["purpose"]), (&json!(5000), &json!("follow")));
    for ticket in [shown.out.trim_end(), json["ticket"].as_str().context("a ticket")?] {
        let address = format!("{session}/events?follow=false&ticket={ticket}");
        assert_eq!(over_the_socket(&daemon, &address, "")?.0, 200);
        assert_eq!(over_the_socket(&daemon, &address, "")?.0, 401);
    }
    for (arguments, words) in [
        (&["ticket", "attach", "s1"][..], "[possible values: follow, prompt]"),
        (&["ticket", "follow", "s9"], "no session `s9`"),
        (&["ticket", "prompt", "s1", "--life", "31"], "30000 at most"),
    ] {
        let ended = run(&daemon, arguments)?;
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(words), "{arguments:?}: {}", ended.err);
    }
    Ok(())
}

/// Rule P8: who may do something can hand it on, and nobody can hand on what they may not do. A client with a ticket needs no token,
/// and guesses as often as the rates let it.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_hands_on_what_they_may_not_do() -> Result<()> {
    let desk = Desk::start(&["main", "other"]).await?;
    let (session, others) = (desk.session("main").await?, desk.session("other").await?);
    let file = desk.host.home().join("tokens.toml");
    let mut tokens = Tokens::load(&file)?;
    let mut token = |verbs: &[Verb]| -> Result<String> {
        let profiles = Profiles::Only(BTreeSet::from(["main".to_owned()]));
        let verbs = verbs.iter().copied().collect();
        let new = NewToken { label: "front".to_owned(), profiles, verbs, expires: None };
        let (_, text) = tokens.add(new, "2026-05-01T12:00:00Z".parse()?)?;
        Ok(format!("Bearer {}", text.expose()))
    };
    let (reader, prompter) = (token(&[Verb::Read])?, token(&[Verb::Prompt, Verb::Stop])?);
    let rates = RateTable { peer_burst: 40, peer_requests_per_minute: 1, ..RateTable::default() };
    let router = desk.behind(TokenGate::open(&file, &rates)?);
    for (session, purpose, shows, expected) in [
        (&session, "follow", Some(&*reader), 201),
        (&session, "prompt", Some(&*reader), 403),
        (&session, "prompt", Some(&*prompter), 201),
        (&session, "follow", Some(&*prompter), 403),
        (&others, "follow", Some(&*reader), 403),
        (&session, "follow", None, 401),
    ] {
        let path = format!("{session}/tickets/{purpose}");
        let told = ask(&router, &path, shows, Some(json!({}))).await?;
        assert_eq!(told.0, expected, "{path}: {told:?}");
        if told.0 != 201 {
            continue;
        }
        let ticket = told.ticket()?;
        // A ticket makes no tickets.
        let more = ask(&router, &path, Some(&format!("Ticket {ticket}")), Some(json!({}))).await?;
        assert_eq!(more.kind(), refused(403, "forbidden"));
        let used = match purpose {
            "follow" => follow(&router, session, &ticket).await?,
            _ => prompt(&router, session, &ticket).await?,
        };
        assert_eq!(used.0, 200, "{used:?}");
    }
    // A prompt takes none from its address.
    let ticket = desk.make(&session, "prompt").await?;
    let path = format!("{session}/prompts?ticket={ticket}");
    let told = ask(&router, &path, None, Some(json!({ "goal": "say x" }))).await?;
    assert_eq!(told.kind(), refused(401, "unauthenticated"));
    // What a ticket is not good for is not done because of a token beside it.
    let path = format!("{session}/events?follow=false&ticket=crt_0");
    assert_eq!(ask(&router, &path, Some(&reader), None).await?.0, 401);
    let mut guesses = 0;
    while follow(&router, &session, "crt_0").await?.kind() == refused(401, "unauthenticated") {
        guesses += 1;
        assert!(guesses < 40, "a peer can guess without end");
    }
    assert_eq!(follow(&router, &session, "crt_0").await?.kind(), refused(429, "too-many"));
    assert_eq!(follow(&router, &session, &ticket).await?.kind(), refused(429, "too-many"));
    assert_eq!(prompt(&desk.router, &session, &ticket).await?.0, 200, "it was not looked at");
    Ok(())
}

/// A stream of events goes on while its token is good, and ends when that is revoked; what the token has made ends with it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_token_has_begun_ends_when_it_is_revoked() -> Result<()> {
    let desk = Desk::start(&["main"]).await?;
    let session = desk.session("main").await?;
    let file = desk.host.home().join("tokens.toml");
    let mut tokens = Tokens::load(&file)?;
    let mut token = |verbs: &[Verb]| -> Result<(TokenId, String)> {
        let (profiles, verbs) = (Profiles::All, verbs.iter().copied().collect());
        let new = NewToken { label: "front".to_owned(), profiles, verbs, expires: None };
        let (id, text) = tokens.add(new, "2026-05-01T12:00:00Z".parse()?)?;
        Ok((id, format!("Bearer {}", text.expose())))
    };
    let (revoked, reader) = token(&[Verb::Read])?;
    let (other, also) = token(&[Verb::Read, Verb::Prompt])?;
    let rates = RateTable::default();
    let router = desk.behind(TokenGate::open(&file, &rates)?);
    let follows = async |shows: &str| -> Result<_> {
        let request = Request::builder()
            .uri(format!("{session}/events"))
            .header(header::AUTHORIZATION, shows)
            .body(Body::empty())?;
        let response = within("a stream", router.clone().oneshot(request)).await??;
        ensure!(response.status() == 200, "{response:?}");
        Ok(response.into_body().into_data_stream())
    };
    let make = async || {
        let path = format!("{session}/tickets/follow");
        ask(&router, &path, Some(&reader), Some(json!({}))).await?.ticket()
    };
    let (used, unused) = (make().await?, make().await?);
    let ended = [follows(&reader).await?, follows(&format!("Ticket {used}")).await?];
    let mut goes_on = follows(&also).await?;
    // Another one that goes is no matter of theirs.
    let (third, _) = token(&[Verb::Read])?;
    assert!(tokens.revoke(&third)? && tokens.revoke(&revoked)?);
    for stream in ended {
        let chunks = within("the end of a stream", stream.try_collect::<Vec<_>>()).await??;
        assert_eq!(
            chunks.last().map(|chunk| &chunk[..]),
            Some(&b"event: closing\ndata: {}\n\n"[..])
        );
    }
    let told = follow(&router, &session, &unused).await?;
    assert_eq!(told.kind(), refused(401, "unauthenticated"));
    let path = format!("{session}/prompts");
    let goal = json!({ "goal": "say still here", "wait": true });
    assert_eq!(ask(&router, &path, Some(&also), Some(goal)).await?.0, 200);
    within("what is said", async {
        let mut heard = String::new();
        while !heard.contains("still here") {
            let chunk = goes_on.next().await.context("the stream goes on")??;
            heard.push_str(std::str::from_utf8(&chunk)?);
        }
        anyhow::Ok(())
    })
    .await??;
    // One that has expired is no better than one that is revoked, and what is written by hand counts, too.
    let text = fs::read_to_string(&file)?;
    let line = format!("[tokens.{other}]\n");
    let expired = text.replace(&line, &format!("{line}expires = \"2026-05-01T13:00:00Z\"\n"));
    ensure!(expired != text, "{text}");
    let next = file.with_extension("next");
    fs::write(&next, expired)?;
    fs::set_permissions(&next, fs::metadata(&file)?.permissions())?;
    fs::rename(&next, &file)?;
    within("the end of a stream", goes_on.try_collect::<Vec<_>>()).await??;
    Ok(())
}

/// Rule P8: a ticket is bound to one profile, one purpose and one session. Tried for another purpose or session it is used up; another
/// profile does not know it.
#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_bound_to_its_profile_purpose_and_session() -> Result<()> {
    let desk = Desk::start(&["main", "other"]).await?;
    let (one, two) = (desk.session("main").await?, desk.session("main").await?);
    let namesake = desk.session("other").await?;
    assert_eq!(namesake.rsplit('/').next(), one.rsplit('/').next(), "the same name elsewhere");
    let router = &desk.router;
    let bad = refused(401, "unauthenticated");

    let ticket = desk.make(&one, "follow").await?;
    let told = follow(router, &namesake, &ticket).await?;
    assert_eq!((told.kind(), told.json()["error"]["message"].as_str()), (bad.clone(), Some(BAD)));
    assert_eq!(follow(router, "/v1/profiles/none/sessions/s1", &ticket).await?, told);
    assert_eq!(follow(router, &one, &ticket).await?.0, 200, "another profile does not use it up");

    for (made, used) in [("follow", "prompt"), ("prompt", "follow")] {
        let ticket = desk.make(&one, made).await?;
        let wrong = match used {
            "follow" => follow(router, &one, &ticket).await?,
            _ => prompt(router, &one, &ticket).await?,
        };
        assert_eq!(wrong, told, "{made} for {used}");
        let late = match made {
            "follow" => follow(router, &one, &ticket).await?,
            _ => prompt(router, &one, &ticket).await?,
        };
        assert_eq!(late.kind(), bad, "it is used up");
    }
    let ticket = desk.make(&one, "follow").await?;
    assert_eq!(follow(router, &two, &ticket).await?.kind(), bad, "another session");
    assert_eq!(follow(router, &one, &ticket).await?.kind(), bad, "it is used up");
    // Used up also when the request comes to nothing.
    let ticket = desk.make(&one, "prompt").await?;
    let shows = format!("Ticket {ticket}");
    let wrong = ask(router, &format!("{one}/prompts"), Some(&shows), Some(json!({}))).await?;
    assert_eq!(wrong.kind(), refused(400, "bad-request"));
    assert_eq!(prompt(router, &one, &ticket).await?.kind(), bad);
    let none = make(router, "/v1/profiles/main/sessions/s99", "follow").await?;
    assert_eq!(none.kind(), refused(404, "not-found"), "for what is not there");
    Ok(())
}

/// Profile and router on tickets whose clock is the test's.
async fn on_a_clock(
    host: &TestHost,
    now: impl Fn() -> Instant + Send + Sync + 'static,
) -> Result<(Router, String)> {
    let profile = profile(host, Retention::memory()).await?;
    let session = profile.open("agent", Delivery::Polled).await?;
    let path = format!("/v1/profiles/main/sessions/{}", session.id());
    let served = One { profile, tickets: Arc::new(Tickets::new(now)) };
    let app = App::builder(host.host().clone(), Arc::new(served), Closing::new()).build();
    Ok((router(app, Arc::new(LocalUser)), path))
}

/// Rule P8: tickets are short-lived. One lives as long as was asked for and never longer than the most; what has run out makes room
/// for others, of which there is a bound.
#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_short_lived_and_few_are_kept() -> Result<()> {
    let host = with_agent().build()?;
    let time = Arc::new(Mutex::new(Instant::now()));
    let pass = {
        let time = Arc::clone(&time);
        move |by: Duration| *time.lock().unwrap_or_else(PoisonError::into_inner) += by
    };
    let now = move || *time.lock().unwrap_or_else(PoisonError::into_inner);
    let (router, session) = on_a_clock(&host, now).await?;
    let path = format!("{session}/tickets/follow");
    let wanted =
        async |life: u64| ask(&router, &path, None, Some(json!({ "life-ms": life }))).await;
    let moment = Duration::from_nanos(1);

    let short = [wanted(5000).await?.ticket()?, wanted(5000).await?.ticket()?];
    let full = make(&router, &session, "follow").await?.ticket()?;
    let nothing = wanted(0).await?.ticket()?;
    assert_eq!(follow(&router, &session, &nothing).await?.0, 401);
    pass(Duration::from_secs(5) - moment);
    assert_eq!(follow(&router, &session, &short[0]).await?.0, 200);
    pass(moment);
    assert_eq!(follow(&router, &session, &short[1]).await?.0, 401);
    pass(TICKET_LIFE - Duration::from_secs(5));
    assert_eq!(follow(&router, &session, &full).await?.0, 401);
    let long = wanted(30_001).await?;
    assert_eq!(long.kind(), refused(400, "bad-request"), "{long:?}");
    assert!(TICKET_LIFE <= Duration::from_secs(30), "it is short");

    for _ in 0..MOST_TICKETS {
        wanted(30_000).await?.ticket()?;
    }
    pass(Duration::from_secs(10));
    let more = wanted(1).await?;
    assert_eq!(more.kind(), refused(429, "too-many"));
    assert_eq!(more.json()["error"]["retry-after"], 20, "{more:?}");
    pass(Duration::from_secs(20));
    wanted(1).await?.ticket()?;
    Ok(())
}

/// Rule P8: tickets are kept hashed. No file of the host, no line of its log, however much it logs, and no page that it shows has the
/// text of one, before or after its use.
#[test]
fn nothing_that_is_kept_has_the_text_of_a_ticket() -> Result<()> {
    let home = Arc::new(home("")?);
    let mut serve = command(home.path(), &["serve", "--config", "checkrein.toml"]);
    let quiet = "wasmtime=info,cranelift=info,wasmtime_cranelift=info,regalloc2=info";
    serve.env("CHECKREIN_LOG", format!("trace,{quiet}"));
    let mut daemon = Daemon::run(Arc::clone(&home), serve)?;
    daemon.says("ready")?;
    let session = daemon.session()?;
    daemon.turn(&session, "say done")?;
    let mut texts = Vec::new();
    for _ in 0..6 {
        let made = daemon.post(&format!("{session}/tickets/follow"), &json!({}))?;
        let ticket = made.body["ticket"].as_str().context("a ticket")?;
        texts.push(ticket.strip_prefix("crt_").context("a prefix")?.to_owned());
    }
    daemon.says("a ticket was made")?;
    let events = format!("{session}/events?follow=false");
    let header = format!("authorization: Ticket crt_{}\r\n", texts[0]);
    assert_eq!(over_the_socket(&daemon, &events, &header)?.0, 200);
    let address = format!("{events}&ticket=crt_{}", texts[1]);
    assert_eq!(over_the_socket(&daemon, &address, "")?.0, 200);
    // Refused ones are not written down either.
    let header = format!("authorization: Ticket crt_{}\r\n", texts[2]);
    assert_eq!(over_the_socket(&daemon, "/v1/tree", &header)?.0, 403);
    let address = format!("{session}/events?ticket=crt_{}&x=1", texts[3]);
    assert_eq!(over_the_socket(&daemon, &address, "")?.0, 400);
    let (_, metrics) = over_the_socket(&daemon, "/metrics", "")?;
    let shown = [metrics, daemon.get("/v1/tree")?.body.to_string()];
    daemon.signal(rustix::process::Signal::TERM)?;
    let (_, printed) = daemon.ends(PATIENCE)?;
    let mut files = Vec::new();
    everything_below(home.path(), &mut files)?;
    let database = files.iter().any(|(name, _)| name.ends_with("sessions.db"));
    assert!(database, "{:?}", files.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let kept = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    let told = printed.iter().chain(&shown).map(|text| ("what it said", text.as_bytes()));
    for (place, bytes) in kept.chain(told) {
        for text in &texts {
            let found = bytes.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(!found, "{place} has a ticket");
        }
    }
    Ok(())
}

fn everything_below(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type()))?;
        let kind = kind?;
        if kind.is_dir() {
            everything_below(&path, found)?;
        } else if kind.is_file() {
            found.push((path.display().to_string(), fs::read(&path)?));
        }
    }
    Ok(())
}

/// Rules P8, P2 and P4: a profile that is unknown, parked, being retired or not served any more has no tickets, and who shows one hears
/// nothing of why. What was made before a retirement is not good after it, whenever the profile is served again.
#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_tickets_for_a_profile_that_is_not_served() -> Result<()> {
    let desk = Desk::start(&["main"]).await?;
    let directory = desk.service.directory().to_owned();
    write(&directory, "parked", "[lmits]\n")?;
    desk.service.reconcile().await?;
    let (router, session) = (&desk.router, desk.session("main").await?);
    let bad = follow(router, &session, "crt_0").await?;
    assert_eq!(bad.kind(), refused(401, "unauthenticated"));
    for (name, expected) in
        [("none", refused(404, "not-found")), ("parked", refused(503, "refused"))]
    {
        let there = format!("/v1/profiles/{name}/sessions/s1");
        for purpose in ["follow", "prompt"] {
            assert_eq!(make(router, &there, purpose).await?.kind(), expected, "{name}");
        }
        assert_eq!(follow(router, &there, "crt_0").await?, bad, "{name}");
    }

    // One that is being retired, and whose work does not end.
    let tickets = [desk.make(&session, "follow").await?, desk.make(&session, "prompt").await?];
    let goal = json!({ "goal": "checkpoint stuck" });
    assert_eq!(ask(router, &format!("{session}/prompts"), None, Some(goal)).await?.0, 202);
    desk.host.reached("stuck").await?;
    desk.host.places().linger("stuck");
    let authority = desk.service.profiles().get("main").context("it is served")?;
    let stopper = thread::spawn(move || authority.unpublish());
    within("it is taken away", desk.host.places().abandoned("stuck", 1)).await?;
    assert_eq!(make(router, &session, "follow").await?.kind(), refused(503, "refused"));
    assert_eq!(follow(router, &session, &tickets[0]).await?, bad, "it is revoked");
    assert_eq!(prompt(router, &session, &tickets[1]).await?, bad, "it is revoked");
    desk.host.release("stuck");
    stopper.join().map_err(|_| anyhow!("the stopper failed"))?;

    let again = async {
        loop {
            // Whoever watches the directory may have been first.
            desk.service.reconcile().await?;
            if let Ok(ticket) = desk.make(&session, "follow").await {
                return anyhow::Ok(ticket);
            }
        }
    };
    let ticket = within("it is served again", again).await??;
    assert_eq!(follow(router, &session, &tickets[0]).await?, bad, "of the time before");
    assert_eq!(follow(router, &session, &ticket).await?.0, 200);
    Ok(())
}

/// Says that a step of the shutdown is reached, and stays in it until the test lets it go.
async fn held(tell: oneshot::Sender<()>, go: oneshot::Receiver<()>) -> Result<(), StepError> {
    tell.send(()).ok();
    go.await.ok();
    Ok(())
}

/// Rules P8, D4 and D5: while the host drains there are tickets to follow, and none to start work; once they are revoked, and before the
/// listeners stop, there are none at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_revokes_tickets_once() -> Result<()> {
    let desk = Desk::start(&["main"]).await?;
    let (router, session) = (&desk.router, desk.session("main").await?);
    let early = [desk.make(&session, "follow").await?, desk.make(&session, "follow").await?];
    let start = desk.make(&session, "prompt").await?;
    let authority = desk.service.profiles().get("main").context("it is served")?;
    let ((telling, told), (go_on, went_on)) = (oneshot::channel(), oneshot::channel());
    let ((stopping, stopped), (end, ended)) = (oneshot::channel(), oneshot::channel());
    let steps = Steps::new()
        .tell_clients(move || held(telling, went_on))
        .stop_listeners(move || held(stopping, ended));
    desk.service.on_shutdown(steps);
    desk.service.request(&Ask::drain("operator", "an upgrade"));

    within("the drain", told).await??;
    assert_eq!(follow(router, &session, &early[0]).await?.0, 200, "what ends can be followed");
    let late = desk.make(&session, "follow").await?;
    let none = make(router, &session, "prompt").await?;
    assert_eq!(none.kind(), refused(503, "refused"));
    assert!(none.1.contains("an upgrade"), "{none:?}");
    assert_eq!(prompt(router, &session, &start).await?.kind(), refused(503, "refused"));
    assert_eq!(prompt(router, &session, &start).await?.kind(), refused(401, "unauthenticated"));
    go_on.send(()).ok();

    within("the listeners", stopped).await??;
    for ticket in [&early[1], &late] {
        let told = follow(router, &session, ticket).await?;
        assert_eq!(told.kind(), refused(401, "unauthenticated"), "it is revoked");
    }
    assert_eq!(make(router, &session, "follow").await?.kind(), refused(503, "refused"));
    // Also for a request that had found its profile before.
    assert!(authority.tickets().redeem(&late, "follow s1").is_err());
    assert_eq!(authority.tickets().revoke(), 0, "nothing is left to revoke");
    end.send(()).ok();
    let report = within("the end", desk.service.shutdown().ended()).await?.context("a report")?;
    assert_eq!(report.step(Step::RevokeTickets), Some(&Ended::Done));
    let revoked = report.steps.iter().filter(|taken| taken.step == Step::RevokeTickets);
    assert_eq!(revoked.count(), 1);
    Ok(())
}

/// What takers do when they have come to the place in redeeming at which the clock is read.
#[derive(Clone, Copy, PartialEq)]
enum Takers {
    /// Go on.
    Free,
    /// The one of this name waits until it is let go.
    Held(&'static str),
    /// Each waits until so many have come in all.
    Meet(usize),
}

/// Follows with a ticket, on a thread of that name.
fn taker(
    name: &'static str,
    router: &Router,
    session: &str,
    ticket: &str,
) -> Result<thread::JoinHandle<Result<u16>>> {
    let (router, session, ticket) = (router.clone(), session.to_owned(), ticket.to_owned());
    let take = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { Ok(follow(&router, &session, &ticket).await?.0) })
    };
    Ok(thread::Builder::new().name(name.to_owned()).spawn(take)?)
}

fn taken(taker: thread::JoinHandle<Result<u16>>) -> Result<u16> {
    taker.join().map_err(|_| anyhow!("a taker failed"))?
}

/// Rule P8: of two takers at the same time exactly one wins. Each of them can: the one that is held in the middle of redeeming while
/// the other comes and goes has lost.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_takers_one_wins() -> Result<()> {
    const NAMES: [&str; 2] = ["taker one", "taker two"];
    let host = with_agent().build()?;
    let mode = Arc::new(Mutex::new(Takers::Free));
    let set = |to: Takers| *mode.lock().unwrap_or_else(PoisonError::into_inner) = to;
    let (inside, came_inside) = mpsc::channel();
    let (go_on, went_on) = mpsc::channel::<()>();
    let (met, went_on) = (AtomicUsize::new(0), Mutex::new(went_on));
    let now = {
        let mode = Arc::clone(&mode);
        move || {
            let now = Instant::now();
            let current = thread::current();
            let Some(name) = current.name().filter(|name| NAMES.contains(name)) else { return now };
            let mode = *mode.lock().unwrap_or_else(PoisonError::into_inner);
            match mode {
                Takers::Held(held) if held == name => {
                    inside.send(()).ok();
                    let went_on = went_on.lock().unwrap_or_else(PoisonError::into_inner);
                    went_on.recv_timeout(PATIENCE).ok();
                }
                Takers::Free | Takers::Held(_) => {}
                Takers::Meet(all) => {
                    met.fetch_add(1, Ordering::SeqCst);
                    while met.load(Ordering::SeqCst) < all && now.elapsed() < PATIENCE {
                        std::hint::spin_loop();
                    }
                }
            }
            now
        }
    };
    let (router, session) = on_a_clock(&host, now).await?;
    for [held, other] in [NAMES, [NAMES[1], NAMES[0]]] {
        let ticket = make(&router, &session, "follow").await?.ticket()?;
        set(Takers::Held(held));
        let loser = taker(held, &router, &session, &ticket)?;
        came_inside.recv_timeout(PATIENCE)?;
        assert_eq!(taken(taker(other, &router, &session, &ticket)?)?, 200, "{other} wins");
        go_on.send(())?;
        assert_eq!(taken(loser)?, 401, "{held} has lost");
    }
    for round in 1..=200 {
        let ticket = make(&router, &session, "follow").await?.ticket()?;
        set(Takers::Meet(2 * round));
        let takers = NAMES.map(|name| taker(name, &router, &session, &ticket));
        let mut told = Vec::new();
        for taker in takers {
            told.push(taken(taker?)?);
        }
        told.sort_unstable();
        assert_eq!(told, [200, 401], "round {round}");
    }
    Ok(())
}
