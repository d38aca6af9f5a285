//! What is counted of the API itself.

use std::time::Instant;

use super::api::{Method, Route};
use super::places::NoPlace;
use crate::host::Page;
use crate::metrics::{Counter, Counts, Histogram};

/// The statuses that answers have.
const STATUSES: [u16; 21] = [
    200, 201, 202, 204, 400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 413, 415, 422, 429, 500,
    503, 504,
];

/// What a listener listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketKind {
    Unix,
    Tcp,
}

/// The figures of the connections of one listener.
#[derive(Debug)]
pub(super) struct ConnectionFigures {
    /// Those that have a place now.
    open: Counter,
    refused: Counts<NoPlace, 2>,
}

impl ConnectionFigures {
    fn new() -> ConnectionFigures {
        let refused = Counts::new(&[NoPlace::Full, NoPlace::Share]);
        ConnectionFigures { open: Counter::default(), refused }
    }

    pub(super) fn open(&self) -> &Counter {
        &self.open
    }

    pub(super) fn refused(&self, why: NoPlace) {
        self.refused.of(why).one();
    }
}

/// The figures of an API.
#[derive(Debug)]
pub(super) struct Figures {
    /// In the order of the routes.
    routes: Vec<RouteFigure>,
    /// Requests that no route takes.
    strangers: Counts<u16, 21>,
    /// Streams of events that are open.
    streams: Counter,
    unix: ConnectionFigures,
    tcp: ConnectionFigures,
}

/// The figures of one route.
#[derive(Debug)]
struct RouteFigure {
    method: Method,
    path: &'static str,
    answers: Counts<u16, 21>,
    times: Histogram,
}

impl Figures {
    pub(super) fn new(routes: &[Route]) -> Figures {
        let routes = routes.iter().map(|route| RouteFigure {
            method: route.method,
            path: route.path,
            answers: Counts::new(&STATUSES),
            times: Histogram::default(),
        });
        let (strangers, streams) = (Counts::new(&STATUSES), Counter::default());
        let (unix, tcp) = (ConnectionFigures::new(), ConnectionFigures::new());
        Figures { routes: routes.collect(), strangers, streams, unix, tcp }
    }

    /// A request of that route has come.
    pub(super) fn asked(&self, route: usize) -> Asked<'_> {
        Asked { route: self.routes.get(route), begun: Instant::now(), status: None }
    }

    /// A request came that no route takes.
    pub(super) fn stranger(&self, status: u16) {
        self.strangers.of(status).one();
    }

    pub(super) fn streams(&self) -> &Counter {
        &self.streams
    }

    pub(super) fn connections(&self, kind: SocketKind) -> &ConnectionFigures {
        match kind {
            SocketKind::Unix => &self.unix,
            SocketKind::Tcp => &self.tcp,
        }
    }

    /// Puts the figures on a page.
    pub(super) fn write(&self, page: &mut Page) {
        let requests = page.counter("checkrein_api_requests", "Requests that were answered.");
        for route in &self.routes {
            let (method, path) = (route.method.as_str(), route.path);
            for (status, count) in route.answers.iter().filter(|(_, count)| *count > 0) {
                let status = name(status);
                requests.count([("method", method), ("route", path), ("status", &status)], count);
            }
        }
        for (status, count) in self.strangers.iter().filter(|(_, count)| *count > 0) {
            let status = name(status);
            requests.count([("method", "any"), ("route", "none"), ("status", &status)], count);
        }
        let help = "From a request to the beginning of its answer.";
        let times = page.seconds("checkrein_api_request", help);
        for route in &self.routes {
            let labels = [("method", route.method.as_str()), ("route", route.path)];
            let read = route.times.read();
            if read.count > 0 {
                times.times(labels, read);
            }
        }
        page.gauge("checkrein_event_streams", "Streams of events that are open now.", None)
            .value([], self.streams.get() as f64);
        let sockets = [("unix", &self.unix), ("tcp", &self.tcp)];
        let open = page.gauge("checkrein_connections", "Connections that have a place now.", None);
        for (socket, connections) in sockets {
            open.value([("socket", socket)], connections.open.get() as f64);
        }
        let help = "Connections that got no place.";
        let refused = page.counter("checkrein_connections_refused", help);
        for (socket, connections) in sockets {
            for (reason, why) in [("full", NoPlace::Full), ("share", NoPlace::Share)] {
                let labels = [("socket", socket), ("reason", reason)];
                refused.count(labels, connections.refused.of(why).get());
            }
        }
    }
}

fn name(status: Option<u16>) -> String {
    status.map_or_else(|| "other".to_owned(), |status| status.to_string())
}

/// A request on its way. One that is given up is counted too.
pub(super) struct Asked<'a> {
    route: Option<&'a RouteFigure>,
    begun: Instant,
    status: Option<u16>,
}

impl Asked<'_> {
    pub(super) fn answered(mut self, status: u16) {
        self.status = Some(status);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Some(route) = self.route else { return };
        let panicked = if std::thread::panicking() { 500 } else { 0 };
        route.answers.of(self.status.unwrap_or(panicked)).one();
        route.times.took(self.begun.elapsed());
    }
}
