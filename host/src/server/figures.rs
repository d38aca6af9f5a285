//! What is counted of the API itself.

use std::time::Instant;

use super::api::{Method, Route};
use crate::host::Page;
use crate::metrics::{Counter, Counts, Histogram};

/// The statuses that answers have.
const STATUSES: [u16; 21] = [
    200, 201, 202, 204, 400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 413, 415, 422, 429, 500,
    503, 504,
];

/// The figures of an API.
#[derive(Debug)]
pub(super) struct Figures {
    /// In the order of the routes.
    routes: Vec<RouteFigure>,
    /// Requests that no route takes.
    strangers: Counts<u16, 21>,
    /// Streams of events that are open.
    streams: Counter,
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
        Figures { routes: routes.collect(), strangers, streams }
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
