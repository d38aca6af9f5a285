//! How the tests talk to a store.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::ids::SessionId;
use crate::store::{
    Body, Change, Class, EventRow, Recorded, SessionRow, Store, StoreError, UnitRow, Write,
};

/// Long enough for anything that is going to happen.
pub(super) const LONG: Duration = Duration::from_secs(60);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a read on this thread.
pub(super) fn block_on<T>(read: impl Future<Output = T>) -> T {
    let mut read = pin!(read);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match read.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park_timeout(LONG),
        }
    }
}

pub(super) fn id(name: &str) -> SessionId {
    SessionId::new(name)
}

pub(super) fn text(text: &str) -> Body {
    Body::from(text.to_owned())
}

/// What becomes of a write.
pub(super) struct Pending(mpsc::Receiver<Result<Recorded, StoreError>>);

impl Pending {
    pub(super) fn wait(self) -> Result<Recorded, StoreError> {
        self.0.recv_timeout(LONG).expect("every write is told what became of it")
    }

    pub(super) fn told(&self) -> Option<Result<Recorded, StoreError>> {
        self.0.try_recv().ok()
    }
}

pub(super) fn queue(
    store: &dyn Store,
    session: &str,
    class: Class,
    changes: Vec<Change>,
) -> Pending {
    let (tell, told) = mpsc::channel();
    let then = move |recorded| drop(tell.send(recorded));
    store.write(Write { session: id(session), changes, class, then: Some(Box::new(then)) });
    Pending(told)
}

pub(super) fn promise(
    store: &dyn Store,
    session: &str,
    changes: Vec<Change>,
) -> Result<Recorded, StoreError> {
    queue(store, session, Class::Promise, changes).wait()
}

pub(super) fn created() -> Change {
    Change::Created { agent: "agent".to_owned(), settings: text("{\"a\":1}") }
}

pub(super) fn event(body: &str) -> Change {
    Change::Event { run: Arc::from("run"), body: text(body) }
}

pub(super) fn message(body: &str) -> Change {
    Change::Message { body: text(body) }
}

pub(super) fn began(generation: u64, run: &str) -> Change {
    Change::TurnBegan { generation, run: Arc::from(run), brings: None }
}

pub(super) fn brings(generation: u64, unit: u64) -> Change {
    Change::TurnBegan { generation, run: Arc::from("bringing"), brings: Some(unit) }
}

pub(super) fn ended(generation: u64) -> Change {
    Change::TurnEnded { generation }
}

pub(super) fn accepted(unit: u64) -> Change {
    Change::UnitAccepted { unit, body: text("task") }
}

pub(super) fn done(unit: u64) -> Change {
    Change::UnitEnded { unit, body: text(&format!("done {unit}")) }
}

pub(super) fn read(unit: u64) -> Change {
    Change::UnitAcknowledged { unit }
}

pub(super) fn kept(run: &str, body: &str) -> Change {
    Change::Kept { run: Arc::from(run), body: text(body) }
}

pub(super) fn row(store: &dyn Store, session: &str) -> SessionRow {
    block_on(store.session(&id(session))).expect("it is there")
}

/// All events that are kept, page by page.
pub(super) fn all_events(store: &dyn Store, session: &str, limit: usize) -> Vec<EventRow> {
    let mut all: Vec<EventRow> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.seq);
        let page = block_on(store.events(&id(session), after, limit, usize::MAX)).expect("a page");
        if page.events.is_empty() {
            return all;
        }
        all.extend(page.events);
    }
}

pub(super) fn bodies(events: &[EventRow]) -> Vec<String> {
    events.iter().map(|event| event.body.to_string()).collect()
}

pub(super) fn messages(store: &dyn Store, session: &str) -> Vec<String> {
    let rows = block_on(store.messages(&id(session), usize::MAX, usize::MAX)).expect("messages");
    rows.iter().map(|message| message.body.to_string()).collect()
}

pub(super) fn units(store: &dyn Store, session: &str) -> Vec<UnitRow> {
    block_on(store.units(&id(session), usize::MAX)).expect("units")
}

/// Waits until something is true that is going to be.
pub(super) fn until(mut what: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < LONG, "it never came true");
        thread::yield_now();
    }
}
