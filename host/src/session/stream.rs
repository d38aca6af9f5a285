//! The journal of a session, as it is written and as it is watched: what can be seen was recorded.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::future::FutureExt;
use tokio::sync::{oneshot, watch};

use super::event::{Draft, Event, EventKind, MOST_TEXT};
use crate::ids::SessionId;
use crate::store::{Body, Change, Class, EventPage, Read, Recorded, Store, StoreError, Write};

/// How many events a session remembers in memory, for whoever is a little slow. Older ones are read from the store.
const REMEMBERED: usize = 4_096;

/// How many bytes of memory they may take. The newest is remembered whatever it takes.
const MOST_BYTES: usize = 8 << 20;

/// Bytes of a session that may wait to be recorded. What may be left out is left out above it.
const MOST_WAITING: usize = 4 << 20;

/// Events that are read from the store at one time, and bytes of them.
const PAGE: usize = 256;
const PAGE_BYTES: usize = 1 << 20;

type Answer = oneshot::Sender<Result<Recorded, StoreError>>;
type First = Box<dyn FnOnce() + Send>;

/// Where a session's events go, and with them all that is recorded of it: in one order.
pub(super) struct Stream {
    shared: Arc<Shared>,
    /// Held while a write is queued, so that a store that answers at once answers in order. Counts the events that were
    /// left out since the last that was not.
    order: Mutex<u64>,
}

struct Shared {
    id: SessionId,
    store: Arc<dyn Store>,
    log: Mutex<Log>,
    /// The number of the newest event. It is told while the log is locked, so that numbers and order agree.
    newest: watch::Sender<u64>,
    /// Bytes that are queued and not recorded.
    waiting: AtomicUsize,
}

/// What is remembered. The lock is held for a look or a push, never while an event is copied.
#[derive(Debug, Default)]
struct Log {
    last: u64,
    /// Numbered without gaps, up to `last`.
    remembered: VecDeque<Arc<Draft>>,
    /// What they take together.
    bytes: usize,
}

impl Log {
    fn push(&mut self, seq: u64, draft: Arc<Draft>) {
        self.last = seq;
        self.bytes += draft.bytes;
        self.remembered.push_back(draft);
        while self.remembered.len() > REMEMBERED
            || (self.bytes > MOST_BYTES && self.remembered.len() > 1)
        {
            let Some(draft) = self.remembered.pop_front() else { return };
            self.bytes -= draft.bytes;
        }
    }

    /// The event after that one.
    fn after(&self, seq: u64) -> After {
        if seq >= self.last {
            return After::Nothing;
        }
        let oldest = self.last + 1 - self.remembered.len() as u64;
        match (seq + 1).checked_sub(oldest).and_then(|at| usize::try_from(at).ok()) {
            Some(at) => self
                .remembered
                .get(at)
                .map_or(After::Nothing, |draft| After::Event(seq + 1, Arc::clone(draft))),
            None => After::Older,
        }
    }
}

enum After {
    /// It has not happened yet.
    Nothing,
    /// This one.
    Event(u64, Arc<Draft>),
    /// One that only the store may have.
    Older,
}

/// What is recorded together.
pub(super) enum Entry {
    /// An event of a run.
    Event(Arc<str>, EventKind),
    /// Another change.
    Change(Change),
}

impl Stream {
    /// The journal of a session whose newest event has that number.
    pub(super) fn new(id: SessionId, store: Arc<dyn Store>, last: u64) -> Stream {
        let log = Mutex::new(Log { last, ..Log::default() });
        let (newest, waiting) = (watch::Sender::new(last), AtomicUsize::new(0));
        let shared = Arc::new(Shared { id, store, log, newest, waiting });
        Stream { shared, order: Mutex::default() }
    }

    /// Tells what happened.
    pub(super) fn publish(&self, run: &Arc<str>, kind: EventKind) {
        let EventKind::ModelText { text } = kind else { return self.push(run, kind.cut(), None) };
        let mut rest = text.as_str();
        while rest.len() > MOST_TEXT {
            let (piece, more) = rest.split_at(rest.floor_char_boundary(MOST_TEXT));
            self.push(run, EventKind::ModelText { text: piece.to_owned() }, None);
            rest = more;
        }
        let text = if rest.len() == text.len() { text } else { rest.to_owned() };
        self.push(run, EventKind::ModelText { text }, None);
    }

    /// Tells what happened, and records a change with it.
    pub(super) fn publish_with(&self, run: &Arc<str>, kind: EventKind, change: Change) {
        self.push(run, kind.cut(), Some(change));
    }

    fn push(&self, run: &Arc<str>, kind: EventKind, change: Option<Change>) {
        let mut left_out = self.lock();
        if kind.may_be_left_out() && self.is_behind() {
            *left_out += 1;
            return;
        }
        let draft = Arc::new(Draft::new(run, kind));
        let lost = lost(run, &mut left_out);
        let drafts: Vec<Arc<Draft>> = lost.into_iter().chain([draft]).collect();
        let changes = drafts.iter().map(event).chain(change).collect();
        self.queue(Class::Owed, changes, drafts, None, None);
    }

    /// Records a change.
    pub(super) fn change(&self, change: Change) {
        let _order = self.lock();
        self.queue(Class::Owed, vec![change], Vec::new(), None, None);
    }

    /// Records all of it together, and says when that is done and its events can be seen.
    pub(super) fn record(&self, class: Class, entries: impl IntoIterator<Item = Entry>) -> Receipt {
        self.together(class, entries, None)
    }

    /// The same; `first` is called when that is done or has failed, before its events can be seen. It is called under the
    /// lock of this stream, or on the thread of the store, and must record nothing itself.
    pub(super) fn record_then(
        &self,
        class: Class,
        entries: impl IntoIterator<Item = Entry>,
        first: impl FnOnce() + Send + 'static,
    ) -> Receipt {
        self.together(class, entries, Some(Box::new(first)))
    }

    fn together(
        &self,
        class: Class,
        entries: impl IntoIterator<Item = Entry>,
        first: Option<First>,
    ) -> Receipt {
        let (answer, receipt) = oneshot::channel();
        let (mut changes, mut drafts) = (Vec::new(), Vec::new());
        for entry in entries {
            changes.push(match entry {
                Entry::Event(run, kind) => {
                    let draft = Arc::new(Draft::new(&run, kind.cut()));
                    let change = event(&draft);
                    drafts.push(draft);
                    change
                }
                Entry::Change(change) => change,
            });
        }
        let mut left_out = self.lock();
        // A promise may be refused, and with it what it tells.
        if let (Class::Owed, Some(first)) = (class, drafts.first())
            && let Some(lost) = lost(first.run(), &mut left_out)
        {
            changes.insert(0, event(&lost));
            drafts.insert(0, lost);
        }
        self.queue(class, changes, drafts, Some(answer), first);
        Receipt { answer: receipt }
    }

    /// The number of the newest event.
    pub(super) fn newest(&self) -> u64 {
        *self.shared.newest.borrow()
    }

    /// Whether so much waits to be recorded that no more should be said.
    pub(super) fn is_behind(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) > MOST_WAITING
    }

    /// Whether nothing waits to be recorded.
    pub(super) fn is_written(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) == 0
    }

    /// The caller holds `order`.
    fn queue(
        &self,
        class: Class,
        changes: Vec<Change>,
        drafts: Vec<Arc<Draft>>,
        answer: Option<Answer>,
        first: Option<First>,
    ) {
        let shared = Arc::clone(&self.shared);
        let bytes: usize = changes.iter().map(Change::weight).sum();
        shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let then = move |recorded: Result<Recorded, StoreError>| {
            shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            if let Some(first) = first {
                first();
            }
            match &recorded {
                Ok(recorded) => shared.tell(recorded, drafts),
                Err(error) if answer.is_none() => {
                    tracing::error!(session = %shared.id, %error, "something was not recorded");
                }
                Err(_) => {}
            }
            if let Some(answer) = answer {
                // Whoever has lost interest does not hear of it.
                answer.send(recorded).ok();
            }
        };
        let (session, store) = (self.shared.id.clone(), &self.shared.store);
        store.write(Write { session, changes, class, then: Some(Box::new(then)) });
    }

    /// Everything after the event of that number, and then what comes. What is kept no more is reported as
    /// [`Lagged`] first.
    pub(super) fn watch(&self, after: u64) -> Events {
        Events {
            newest: self.shared.newest.subscribe(),
            shared: Arc::downgrade(&self.shared),
            store: Arc::clone(&self.shared.store),
            id: self.shared.id.clone(),
            last: after,
            page: VecDeque::new(),
            reading: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// The events of a write have their numbers, and can be seen.
    fn tell(&self, recorded: &Recorded, drafts: Vec<Arc<Draft>>) {
        if drafts.is_empty() {
            return;
        }
        let first = (recorded.seq + 1).saturating_sub(drafts.len() as u64);
        let mut log = lock(&self.log);
        for (seq, draft) in (first..).zip(drafts) {
            log.push(seq, draft);
        }
        self.newest.send_replace(recorded.seq);
    }
}

/// Tells how many events were left out since the last that was not.
fn lost(run: &Arc<str>, left_out: &mut u64) -> Option<Arc<Draft>> {
    match std::mem::take(left_out) {
        0 => None,
        count => Some(Arc::new(Draft::new(run, EventKind::EventsLost { count }))),
    }
}

fn event(draft: &Arc<Draft>) -> Change {
    let body = Body::Later(Arc::clone(draft) as _);
    Change::Event { run: Arc::clone(draft.run()), body }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("session", &self.shared.id).finish_non_exhaustive()
    }
}

/// What says that something is recorded.
#[derive(Debug)]
#[must_use = "what is not awaited is not known to be recorded"]
pub(super) struct Receipt {
    answer: oneshot::Receiver<Result<Recorded, StoreError>>,
}

impl Receipt {
    /// The answer, if it is there already.
    pub(super) fn now(&mut self) -> Option<Result<Recorded, StoreError>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(StoreError::Closed)),
            Err(oneshot::error::TryRecvError::Empty) => None,
        }
    }
}

impl Future for Receipt {
    type Output = Result<Recorded, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.poll_unpin(context).map(|answer| answer.unwrap_or(Err(StoreError::Closed)))
    }
}

/// The events of one session, for one watcher. A watcher holds its place, and a page of what it has not read where it is
/// far behind.
pub struct Events {
    newest: watch::Receiver<u64>,
    /// Gone with the session.
    shared: std::sync::Weak<Shared>,
    store: Arc<dyn Store>,
    id: SessionId,
    /// The number of the newest event that was given out, or is missed.
    last: u64,
    /// Read from the store and not given out.
    page: VecDeque<Event>,
    reading: Option<Read<EventPage>>,
}

impl Events {
    /// The next event; none when the session is gone.
    ///
    /// # Errors
    ///
    /// [`WatchError::Lagged`] when events passed this watcher by: it began after an event that is kept no more, or was too
    /// slow. The next call goes on after the gap. [`WatchError::Store`] when old events cannot be read; the next call tries again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Result<Option<Event>, WatchError> {
        loop {
            let more = match self.look() {
                Look::Event(event) => return Ok(Some(*event)),
                Look::Older => false,
                Look::Nothing => true,
            };
            if more {
                if self.newest.changed().await.is_err() {
                    // What was told last may have been told since.
                    return self.try_next();
                }
            } else {
                let page = self.reading().await;
                self.turn(page)?;
            }
        }
    }

    /// The next event if one is there already. Where old events are read from a disk the answer may be that none is there
    /// while that goes on.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Events::next).
    pub fn try_next(&mut self) -> Result<Option<Event>, WatchError> {
        loop {
            match self.look() {
                Look::Event(event) => return Ok(Some(*event)),
                Look::Nothing => return Ok(None),
                Look::Older => match self.reading().now_or_never() {
                    Some(page) => self.turn(page)?,
                    None => return Ok(None),
                },
            }
        }
    }

    fn look(&mut self) -> Look {
        if let Some(event) = self.page.pop_front() {
            self.last = event.seq;
            return Look::Event(Box::new(event));
        }
        let Some(shared) = self.shared.upgrade() else {
            // Nothing is remembered, and the newest number is the last word.
            return if self.last < *self.newest.borrow() { Look::Older } else { Look::Nothing };
        };
        let found = lock(&shared.log).after(self.last);
        match found {
            After::Nothing => Look::Nothing,
            After::Older => Look::Older,
            After::Event(seq, draft) => {
                self.last = seq;
                Look::Event(Box::new(draft.numbered(seq)))
            }
        }
    }

    /// The read that is going on, or a new one.
    fn reading(&mut self) -> &mut Read<EventPage> {
        self.reading.get_or_insert_with(|| self.store.events(&self.id, self.last, PAGE, PAGE_BYTES))
    }

    /// Takes what was read.
    fn turn(&mut self, page: Result<EventPage, StoreError>) -> Result<(), WatchError> {
        self.reading = None;
        let EventPage { first, events } = page.map_err(WatchError::Store)?;
        let next = events.first().map_or(first, |event| event.seq);
        if events.is_empty() && next <= self.last + 1 {
            let words =
                format!("the event after {} of session {} is not there", self.last, self.id);
            return Err(WatchError::Store(StoreError::Corrupt(words)));
        }
        self.page = events.iter().map(Event::from_row).collect();
        match next.saturating_sub(self.last + 1) {
            0 => Ok(()),
            missed => {
                self.last = next - 1;
                Err(WatchError::Lagged(Lagged { missed }))
            }
        }
    }
}

enum Look {
    Event(Box<Event>),
    Nothing,
    Older,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("last", &self.last).finish_non_exhaustive()
    }
}

/// Why there is no next event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// Events passed by.
    #[error(transparent)]
    Lagged(#[from] Lagged),
    /// Old events cannot be read.
    #[error("could not read old events of the session")]
    Store(#[source] StoreError),
}

/// Events passed by before a watcher read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{missed} events passed by before they were read")]
pub struct Lagged {
    /// How many.
    pub missed: u64,
}

#[cfg(test)]
mod tests {
    use super::super::event::{MOST_NAME, MOST_PAYLOAD};
    use super::*;
    use crate::store::{Memory, Retention};

    fn run() -> Arc<str> {
        "s1.1".into()
    }

    fn text(bytes: usize) -> EventKind {
        EventKind::Progress { text: "x".repeat(bytes) }
    }

    /// The stream of a session that was just created.
    fn stream() -> Stream {
        let store = Arc::new(Memory::new(Retention::memory()));
        let id = SessionId::new("s1");
        let created =
            Change::Created { agent: "agent".to_owned(), settings: "{}".to_owned().into() };
        let recorded = crate::store::record(&*store, id.clone(), vec![created]).now_or_never();
        recorded.unwrap().unwrap();
        Stream::new(id, store, 0)
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_in_bytes() {
        let stream = stream();
        for _ in 0..REMEMBERED + 10 {
            stream.publish(&run(), text(1));
        }
        assert_eq!(lock(&stream.shared.log).remembered.len(), REMEMBERED);
        for _ in 0..200 {
            stream.publish(&run(), text(MOST_PAYLOAD));
        }
        let log = lock(&stream.shared.log);
        assert!(log.bytes <= MOST_BYTES && log.remembered.len() >= 100, "{}", log.remembered.len());
        assert_eq!(log.bytes, log.remembered.iter().map(|draft| draft.bytes).sum::<usize>());
    }

    #[test]
    fn the_newest_event_is_remembered_whatever_it_takes() {
        let stream = stream();
        let mut events = stream.watch(0);
        stream.publish(&run(), text(1));
        stream.publish(&run(), text(MOST_BYTES + 1));
        assert_eq!(events.try_next(), Err(Lagged { missed: 1 }.into()));
        assert_eq!(events.try_next().unwrap().unwrap().seq, 2);
        assert_eq!(events.try_next(), Ok(None));
    }

    #[test]
    fn whoever_is_slow_or_late_is_told_how_many_events_are_missing() {
        let stream = stream();
        let mut slow = stream.watch(0);
        for _ in 0..REMEMBERED + 5 {
            stream.publish(&run(), text(1));
        }
        for mut events in [stream.watch(0), stream.watch(2)] {
            let missed = 5 - events.last;
            assert_eq!(events.try_next(), Err(Lagged { missed }.into()));
            assert_eq!(events.try_next().unwrap().unwrap().seq, 6);
        }
        assert_eq!(slow.try_next(), Err(Lagged { missed: 5 }.into()));
        let mut rest = 0;
        while slow.try_next().unwrap().is_some() {
            rest += 1;
        }
        assert_eq!(rest, REMEMBERED);
        let mut late = stream.watch(5);
        assert_eq!(late.try_next().unwrap().unwrap().seq, 6, "nothing is missing after 5");
        assert_eq!(stream.watch(u64::MAX).try_next(), Ok(None));
    }

    #[tokio::test]
    async fn a_watcher_hears_what_comes_and_of_the_end() {
        let stream = stream();
        let mut events = stream.watch(0);
        assert!(events.next().now_or_never().is_none());
        let (first, ()) = tokio::join!(events.next(), async { stream.publish(&run(), text(1)) });
        assert_eq!(first.unwrap().unwrap().seq, 1);
        stream.publish(&run(), text(1));
        drop(stream);
        assert_eq!(events.next().await.unwrap().unwrap().seq, 2);
        assert_eq!(events.next().await, Ok(None));
    }

    #[test]
    fn names_are_cut_and_streamed_text_is_split() {
        let stream = stream();
        let mut events = stream.watch(0);
        let long = "ä".repeat(MOST_TEXT);
        stream.publish(&run(), EventKind::ModelToolCall { tool: long.clone() });
        let Some(EventKind::ModelToolCall { tool }) =
            events.try_next().unwrap().map(|event| event.kind)
        else {
            panic!("no tool call");
        };
        assert_eq!(tool.chars().count(), MOST_NAME + 1);
        stream.publish(&run(), EventKind::ModelText { text: long.clone() });
        let mut whole = String::new();
        while let Some(event) = events.try_next().unwrap() {
            let EventKind::ModelText { text } = event.kind else { panic!("no text") };
            assert!(text.len() <= MOST_TEXT);
            whole.push_str(&text);
        }
        assert_eq!(whole, long);
    }
}
