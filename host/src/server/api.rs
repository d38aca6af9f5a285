//! The routes as a table, and the router that is made of it.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, RawPathParams, Request, State};
use axum::handler::Handler;
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Router};
use futures::FutureExt;
use hyper::body::{Frame, SizeHint};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use tokio::sync::OwnedSemaphorePermit;

use super::app::App;
use super::gate::{Asking, Gate};
use super::problem::{Problem, ProblemKind};
use super::rate::Peer;
use super::routes;
use super::scope::{Target, Verb};
use super::ticket::{self, Purpose};

/// Gives the schema of a type, and keeps what it is made of in the generator.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// One route: what does it, and what is said of it.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// What whoever asks must be allowed; none for what everybody may see.
    pub(super) verb: Option<Verb>,
    /// What it does, in a sentence.
    pub(super) does: &'static str,
    pub(super) query: Option<SchemaOf>,
    /// A header that it reads, what it says and its form.
    pub(super) header: Option<(&'static str, &'static str, SchemaOf)>,
    pub(super) body: Option<(&'static str, SchemaOf)>,
    /// Whether its body is a session, which may be larger than other bodies.
    carries: bool,
    /// The tickets with which it can be asked too.
    pub(super) ticket: Option<Purpose>,
    pub(super) answers: Vec<Answer>,
    /// What can go wrong beside what can go wrong with every route of its form.
    fails: &'static [ProblemKind],
    handler: MethodRouter<App>,
}

/// The methods that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Delete,
}

impl Method {
    /// The name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }
}

/// A wanted answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) media: &'static str,
    pub(super) schema: SchemaOf,
}

impl Route {
    fn new<H: Handler<T, App>, T: 'static>(
        (method, filter): (Method, MethodFilter),
        path: &'static str,
        verb: Option<Verb>,
        does: &'static str,
        handler: H,
    ) -> Route {
        let (query, header, body, answers) = (None, None, None, Vec::new());
        let handler = on(filter, handler);
        let (carries, ticket, fails) = (false, None, &[][..]);
        Route {
            method,
            path,
            verb,
            does,
            query,
            header,
            body,
            carries,
            ticket,
            answers,
            fails,
            handler,
        }
    }

    pub(super) fn open<H: Handler<T, App>, T: 'static>(
        path: &'static str,
        does: &'static str,
        handler: H,
    ) -> Route {
        Route::new((Method::Get, MethodFilter::GET), path, None, does, handler)
    }

    pub(super) fn get<H: Handler<T, App>, T: 'static>(
        path: &'static str,
        verb: Verb,
        does: &'static str,
        handler: H,
    ) -> Route {
        Route::new((Method::Get, MethodFilter::GET), path, Some(verb), does, handler)
    }

    pub(super) fn post<H: Handler<T, App>, T: 'static>(
        path: &'static str,
        verb: Verb,
        does: &'static str,
        handler: H,
    ) -> Route {
        Route::new((Method::Post, MethodFilter::POST), path, Some(verb), does, handler)
    }

    pub(super) fn delete<H: Handler<T, App>, T: 'static>(
        path: &'static str,
        verb: Verb,
        does: &'static str,
        handler: H,
    ) -> Route {
        Route::new((Method::Delete, MethodFilter::DELETE), path, Some(verb), does, handler)
    }

    pub(super) fn query<T: JsonSchema>(self) -> Route {
        Route { query: Some(schema::<T>), ..self }
    }

    pub(super) fn header<T: JsonSchema>(self, name: &'static str, says: &'static str) -> Route {
        Route { header: Some((name, says, schema::<T>)), ..self }
    }

    /// What else can go wrong, beyond what its path, its body and its verb bring along.
    pub(super) fn fails(self, fails: &'static [ProblemKind]) -> Route {
        Route { fails, ..self }
    }

    /// All that can go wrong.
    pub(super) fn problems(&self) -> BTreeSet<ProblemKind> {
        use ProblemKind as Kind;

        let gated: &[Kind] = match self.verb {
            None => &[],
            Some(Verb::Stop | Verb::Admin) => {
                &[Kind::Unauthenticated, Kind::Forbidden, Kind::TooMany]
            }
            // There may be no room for another one.
            Some(Verb::Read | Verb::Prompt) => {
                &[Kind::Unauthenticated, Kind::Forbidden, Kind::TooMany, Kind::Refused]
            }
        };
        let when = |is: bool, kinds: &'static [Kind]| if is { kinds } else { &[] };
        let names = |name: &str| self.path.contains(name);
        let all = [
            &[Kind::Internal][..],
            gated,
            when(names("{") || self.query.is_some() || self.header.is_some(), &[Kind::BadRequest]),
            when(
                self.body.is_some(),
                &[Kind::BadRequest, Kind::TooSlow, Kind::TooLarge, Kind::NotJson],
            ),
            when(names("{profile}"), &[Kind::NotFound, Kind::Refused, Kind::Store]),
            // A session may have to be woken, with its agent and its tools.
            when(names("{session}"), &[Kind::NotFound, Kind::Unusable, Kind::Machine]),
            when(names("{work}"), &[Kind::Gone]),
            self.fails,
        ];
        all.into_iter().flatten().copied().collect()
    }

    pub(super) fn body<T: JsonSchema>(self) -> Route {
        Route { body: Some(("application/json", schema::<T>)), ..self }
    }

    /// The body is a session, in lines of that type.
    pub(super) fn carries(self, media: &'static str) -> Route {
        Route { body: Some((media, schema::<String>)), carries: true, ..self }
    }

    /// It can be asked with a ticket for that, too.
    pub(super) fn takes(self, purpose: Purpose) -> Route {
        Route { ticket: Some(purpose), ..self }
    }

    pub(super) fn answers<T: JsonSchema>(self, status: u16) -> Route {
        self.streams::<T>(status, "application/json")
    }

    pub(super) fn streams<T: JsonSchema>(mut self, status: u16, media: &'static str) -> Route {
        self.answers.push(Answer { status, media, schema: schema::<T> });
        self
    }
}

/// The API, behind a gate. It can be asked without a socket, as any tower service.
pub fn router(app: App, gate: Arc<dyn Gate>) -> Router {
    let mut router = Router::new();
    for (place, route) in routes::all().into_iter().enumerate() {
        let (admitted, gate) = (app.clone(), Arc::clone(&gate));
        let needs = (route.verb, route.ticket);
        let handler = match route.carries {
            true => route.handler.layer(DefaultBodyLimit::max(app.import_bytes())),
            false => route.handler,
        };
        let handler = handler.route_layer(from_fn(
            move |parameters: RawPathParams, request: Request, next: Next| {
                let (app, gate) = (admitted.clone(), Arc::clone(&gate));
                async move {
                    let asked = app.figures().asked(place);
                    let answer = admit(&app, &*gate, needs, &parameters, request, next).await;
                    asked.answered(answer.status().as_u16());
                    answer
                }
            },
        ));
        router = router.route(route.path, handler);
    }
    let most = app.body_bytes();
    router
        .fallback(async |State(app): State<App>| {
            app.figures().stranger(404);
            Problem::new(ProblemKind::NotFound, "there is nothing at this path")
        })
        .method_not_allowed_fallback(async |State(app): State<App>| {
            app.figures().stranger(405);
            Problem::new(ProblemKind::MethodNotAllowed, "this path does not take that method")
        })
        .layer(DefaultBodyLimit::max(most))
        .layer(Extension(gate))
        .layer(from_fn(around))
        .with_state(app)
}

/// The one place where a request is let in: who asks, whether they may, and whether there is room.
async fn admit(
    app: &App,
    gate: &dyn Gate,
    (verb, purpose): (Option<Verb>, Option<Purpose>),
    parameters: &RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let Some(verb) = verb else {
        // Health is told without a token, and also when there is no room: what it says is a few bytes.
        return match gate.health(peer) {
            Ok(()) => next.run(request).await,
            Err(denied) => Problem::from(denied).into_response(),
        };
    };
    let named = |wanted| parameters.iter().find(|(name, _)| *name == wanted).map(|(_, name)| name);
    let (profile, session) = (named("profile"), named("session"));
    let target = profile.map_or(Target::Host, Target::Profile);
    let let_in = match ticket::shown(request.headers(), request.uri(), purpose) {
        Some(ticket) => gate.with_ticket(peer).and_then(|()| {
            ticket::redeem((app, gate), (purpose, verb), (profile, session), &ticket)
        }),
        None => {
            let authorization = request.headers().get(header::AUTHORIZATION);
            let authorization = authorization.map(HeaderValue::as_bytes);
            gate.check(&Asking { peer, authorization, target, verb })
        }
    };
    let who = match let_in {
        Ok(who) => who,
        Err(denied) => return Problem::from(denied).into_response(),
    };
    request.extensions_mut().insert(who);
    // Who waits for the end of a turn must keep out neither who looks for what to stop nor who stops it.
    let rooms = match verb {
        Verb::Read => app.reads(),
        Verb::Prompt => app.requests(),
        Verb::Stop | Verb::Admin => return next.run(request).await,
    };
    let Ok(room) = Arc::clone(rooms).try_acquire_owned() else {
        return Problem::crowded("the host works on as many requests as it may").into_response();
    };
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind == "text/event-stream") {
        // A stream of events holds next to nothing, and stays for as long as its client wants.
        return response;
    }
    // Until its client has taken it an answer takes the memory that it takes.
    response.map(|body| Body::new(Held { body, _room: room }))
}

/// The body of an answer, with the room that it takes.
struct Held {
    body: Body,
    _room: OwnedSemaphorePermit,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What is around every answer: a defect becomes one, and browsers take it for nothing but what it says it is.
async fn around(request: Request, next: Next) -> Response {
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(|_| {
        tracing::error!("a request made the host panic");
        Problem::new(ProblemKind::Internal, "the host failed; its log says more").into_response()
    });
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
