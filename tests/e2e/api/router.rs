//! The router by itself, without a socket: who is let in, and what a client is told of what goes wrong inside.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use checkrein::plugin::Configuration;
use checkrein::profile::Tickets;
use checkrein::server::{
    App, Asking, Closing, Denied, Gate, Listed, Listener, ListenerLimits, LocalUser, NotServed,
    Peer, Reconciled, Served, Target, Verb, Who, open_api, router,
};
use checkrein::session::Delivery;
use checkrein::store::{Memory, Retention};
use checkrein::{Profile, ProfileSettings};
use checkrein_testkit::{TestHost, within};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::ServiceExt;

use crate::start::with_agent;

/// One profile, `main`. One that is asked for by the name `panic` is a defect.
pub(super) struct One {
    pub(super) profile: Profile,
    pub(super) tickets: Arc<Tickets>,
}

impl Served for One {
    fn list(&self) -> Vec<Listed> {
        let (name, home) = (self.profile.name().to_owned(), self.profile.home().to_owned());
        vec![Listed { name, home, state: Ok(self.profile.clone()) }]
    }

    fn get(&self, name: &str) -> Result<Profile, NotServed> {
        match name {
            "main" => Ok(self.profile.clone()),
            "panic" => std::panic::resume_unwind(Box::new("the inside of the host")),
            _ => Err(NotServed::Unknown(name.to_owned())),
        }
    }

    fn tickets(&self, name: &str) -> Result<Arc<Tickets>, NotServed> {
        self.get(name).map(|_| Arc::clone(&self.tickets))
    }

    fn reconcile(&self) -> BoxFuture<'static, Reconciled> {
        Box::pin(async { Reconciled::default() })
    }
}

pub(super) async fn profile(host: &TestHost, retention: Retention) -> Result<Profile> {
    let text = "[plugins.agent]\npath = \"plugins/agent\"\n";
    let configuration = Configuration::parse(text, &host.home().join("profile.toml"))?;
    let settings = ProfileSettings {
        name: "main".to_owned(),
        home: host.home().to_owned(),
        configuration,
        store: Arc::new(Memory::new(retention)),
    };
    Ok(host.host().profile(settings).await?)
}

fn app(profile: Profile) -> App {
    app_until(profile, Closing::new())
}

fn app_until(profile: Profile, closing: Closing) -> App {
    let host = profile.host().clone();
    let tickets = Arc::new(Tickets::new(Instant::now));
    App::builder(host, Arc::new(One { profile, tickets }), closing)
        .keep_alive(Duration::from_secs(3600))
        .build()
}

async fn ask(
    router: &Router,
    method: &str,
    path: &str,
    token: Option<&str>,
) -> Result<(u16, Value)> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request =
        request.header(header::CONTENT_TYPE, "application/json").body(Body::from("{}"))?;
    let response = within(path, router.clone().oneshot(request)).await??;
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }
    let bytes = within(path, to_bytes(response.into_body(), 1 << 20)).await??;
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes)? };
    Ok((status.as_u16(), body))
}

/// Lets `reader` read the profile `main`, and tells `eager` to come back later.
struct Tokens;

impl Gate for Tokens {
    fn check(&self, asking: &Asking<'_>) -> Result<Who, Denied> {
        let refused = |words: &str| Denied::Unauthenticated(words.to_owned());
        match asking.authorization {
            None => Err(refused("this needs a token")),
            Some(b"Bearer eager") => {
                Err(Denied::TooMany { retry_after: Duration::from_millis(1500) })
            }
            Some(b"Bearer reader") => {
                let may = asking.verb == Verb::Read && asking.target == Target::Profile("main");
                let forbidden = || Denied::Forbidden("the token is not good for this".to_owned());
                may.then(|| Who::named("reader")).ok_or_else(forbidden)
            }
            Some(_) => Err(refused("the token is not accepted")),
        }
    }

    fn is_still_good(&self, _who: &Who, _target: Target<'_>, _verb: Verb) -> bool {
        true
    }

    fn with_ticket(&self, _peer: Option<Peer>) -> Result<(), Denied> {
        Ok(())
    }

    fn health(&self, _peer: Option<Peer>) -> Result<(), Denied> {
        Ok(())
    }

    fn authenticates(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_health_is_answered_without_a_token() -> Result<()> {
    let host = with_agent().build()?;
    let router = router(app(profile(&host, Retention::memory()).await?), Arc::new(Tokens));
    let described = open_api();
    let paths = described["paths"].as_object().context("paths")?;
    assert!(paths.len() > 20, "{}", paths.len());
    for (path, methods) in paths {
        let filled = path
            .replace("{profile}", "main")
            .replace("{session}", "s1")
            .replace("{work}", "w1-1")
            .replace("{delegation}", "d1");
        for (method, operation) in methods.as_object().context("methods")? {
            let method = method.to_uppercase();
            let (status, body) = ask(&router, &method, &filled, None).await?;
            if matches!(path.as_str(), "/livez" | "/readyz") {
                assert_eq!(status, 200, "{path}: {body}");
                continue;
            }
            assert_eq!(
                (status, &body["error"]["kind"]),
                (401, &"unauthenticated".into()),
                "{path}"
            );
            let wrong = ask(&router, &method, &filled, Some("wrong")).await?;
            assert_eq!(wrong.0, 401, "{path}");
            // Who may read one profile may do that and nothing else.
            let reader = ask(&router, &method, &filled, Some("reader")).await?;
            let verb = &operation["security"][1]["token"][0];
            let may = verb == "read" && path.starts_with("/v1/profiles/{profile}");
            assert_eq!(reader.0 != 403, may, "{method} {path} needs {verb}: {reader:?}");
        }
    }
    let (status, body) = ask(&router, "GET", "/v1/tree", Some("eager")).await?;
    assert_eq!((status, &body["error"]["retry-after"]), (429, &2.into()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn why_the_host_is_not_ready_is_told_to_those_who_may_read_it() -> Result<()> {
    let host = with_agent().build()?;
    let app = app(profile(&host, Retention::memory()).await?);
    let (open, guarded) = (router(app.clone(), Arc::new(LocalUser)), router(app, Arc::new(Tokens)));
    assert_eq!(ask(&open, "GET", "/readyz", None).await?.0, 200);
    host.host().drain("an upgrade", Duration::ZERO).await?;
    let (status, body) = ask(&open, "GET", "/readyz", None).await?;
    assert_eq!((status, &body["reasons"][0]["detail"]), (503, &"an upgrade".into()));
    let (status, body) = ask(&guarded, "GET", "/readyz", None).await?;
    assert_eq!((status, body["reasons"].as_array().map(Vec::len)), (503, Some(0)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_defect_is_an_answer_that_tells_nothing_of_the_inside() -> Result<()> {
    let host = with_agent().build()?;
    let router = router(app(profile(&host, Retention::memory()).await?), Arc::new(LocalUser));
    let (status, body) = ask(&router, "GET", "/v1/profiles/panic/plugins", None).await?;
    assert_eq!((status, &body["error"]["kind"]), (500, &"internal".into()));
    assert!(!body.to_string().contains("inside"), "{body}");
    assert_eq!(ask(&router, "GET", "/v1/profiles/main", None).await?.0, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_too_late_for_old_events_is_told_how_many_are_missing() -> Result<()> {
    let host = with_agent().build()?;
    let retention = Retention { events_per_session: 4, ..Retention::memory() };
    let profile = profile(&host, retention).await?;
    let session = profile.open("agent", Delivery::Polled).await?;
    let turn = session.prompt("emits 8 10", "")?;
    within("the turn", turn.ended()).await?;
    let id = session.id().clone();
    drop(session);
    // What is in memory is more than what is kept: it must be read from the store.
    while profile.rest() > 0 {
        tokio::task::yield_now().await;
    }
    let router = router(app(profile), Arc::new(LocalUser));
    let path = format!("/v1/profiles/main/sessions/{id}/events?follow=false&after=2");
    let response = router.oneshot(Request::get(path).body(Body::empty())?).await?;
    let bytes = within("the events", to_bytes(response.into_body(), 1 << 20)).await??;
    let text = String::from_utf8(bytes.to_vec())?;
    // Ten events, of which the last four are kept.
    assert!(text.starts_with("event: lagged\ndata: {\"missed\":4}\n\nid: 7\n"), "{text}");
    assert_eq!(text.matches("\nid: ").count(), 4, "{text}");
    assert!(text.contains("\nid: 10\nevent: run-ended\n"), "{text}");
    Ok(())
}

/// A client that takes nothing keeps its connection no longer than the listener's bound: what it had not got is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_end_is_cut() -> Result<()> {
    let host = with_agent().build()?;
    let profile = profile(&host, Retention::memory()).await?;
    let session = profile.open("agent", Delivery::Polled).await?;
    // More than the buffers of a socket hold.
    let turn = session.prompt("emits 200 20000", "")?;
    within("the turn", turn.ended()).await?;
    let socket = host.home().join("api.sock");
    let (listener, closing) = (Listener::unix(&socket)?, Closing::new());
    let app = app_until(profile, closing.clone());
    let router = router(app.clone(), Arc::new(LocalUser));
    let limits = ListenerLimits::default();
    let serving = listener.serve(&app, router, &limits, Duration::from_millis(10));
    let stalling = async {
        let mut client = tokio::net::UnixStream::connect(&socket).await?;
        let path = format!("/v1/profiles/main/sessions/{}/events", session.id());
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await?;
        client.readable().await?;
        closing.end();
        anyhow::Ok(client)
    };
    let (cut, client) = within("the end", async { tokio::join!(serving, stalling) }).await?;
    assert_eq!(cut, 1);
    let mut got = Vec::new();
    within("the rest", client?.read_to_end(&mut got)).await?.ok();
    assert!(got.starts_with(b"HTTP/1.1 200 OK"));
    assert!(!got.ends_with(b"0\r\n\r\n"), "it got all of {} bytes", got.len());
    assert!(!socket.exists());
    Ok(())
}
