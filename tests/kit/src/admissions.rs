//! A scheduler whose answers the test gives.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use checkrein::delegation::{Scheduler, SchedulerRefusal, UnitRequest};
use checkrein::ids::SessionId;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

/// Which unit: the session that asks, and the first task of the unit.
type Key = (SessionId, u32);

/// Lets every unit in at once, but for those that the test has something to say about.
#[derive(Clone)]
pub struct Admissions {
    units: Arc<watch::Sender<HashMap<Key, Unit>>>,
}

#[derive(Debug, Clone, Default)]
struct Unit {
    asked: bool,
    held: bool,
    refused: Option<String>,
}

impl Admissions {
    /// Lets everything in.
    pub fn new() -> Admissions {
        Admissions { units: Arc::new(watch::Sender::new(HashMap::new())) }
    }

    /// Holds the admission of a unit open until [`admit`](Admissions::admit) or [`refuse`](Admissions::refuse).
    pub fn hold(&self, session: &SessionId, task: u32) {
        self.change(session, task, |unit| unit.held = true);
    }

    /// Waits until a unit has asked.
    pub async fn asked(&self, session: &SessionId, task: u32) {
        let key = (session.clone(), task);
        let asked = |units: &HashMap<Key, Unit>| units.get(&key).is_some_and(|unit| unit.asked);
        // Never an error: the sender lives in `self`, so that the channel cannot close.
        let _closed = self.units.subscribe().wait_for(asked).await.is_err();
    }

    /// Says yes to a unit.
    pub fn admit(&self, session: &SessionId, task: u32) {
        self.change(session, task, |unit| unit.held = false);
    }

    /// Says no to a unit.
    pub fn refuse(&self, session: &SessionId, task: u32, words: &str) {
        self.change(session, task, |unit| {
            unit.held = false;
            unit.refused = Some(words.to_owned());
        });
    }

    fn change(&self, session: &SessionId, task: u32, change: impl FnOnce(&mut Unit)) {
        let key = (session.clone(), task);
        self.units.send_modify(|units| change(units.entry(key).or_default()));
    }
}

impl Default for Admissions {
    fn default() -> Self {
        Admissions::new()
    }
}

impl Scheduler for Admissions {
    fn admit(&self, unit: &UnitRequest) -> BoxFuture<'static, Result<(), SchedulerRefusal>> {
        let task = unit.tasks.first().copied().unwrap_or_default();
        let (admissions, key) = (self.clone(), (unit.origin.clone(), task));
        admissions.change(&key.0, key.1, |unit| unit.asked = true);
        async move {
            let mut units = admissions.units.subscribe();
            let decided =
                |units: &HashMap<Key, Unit>| units.get(&key).is_none_or(|unit| !unit.held);
            let refused = match units.wait_for(decided).await {
                Ok(units) => units.get(&key).and_then(|unit| unit.refused.clone()),
                Err(_closed) => None,
            };
            refused.map_or(Ok(()), |words| Err(SchedulerRefusal::new(words)))
        }
        .boxed()
    }
}

impl fmt::Debug for Admissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admissions").field(&*self.units.borrow()).finish()
    }
}
