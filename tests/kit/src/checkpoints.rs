//! Named places at which guests wait for the test.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use checkrein::session::Checkpoints;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

/// The places that guests name with `run.checkpoint`. A guest waits at one until the test lets it go. The place
/// `free` holds nobody.
#[derive(Clone)]
pub struct Places {
    places: Arc<watch::Sender<HashMap<String, Place>>>,
    /// For those who linger: they hold a thread.
    turn: Arc<Mutex<()>>,
    changed: Arc<Condvar>,
}

/// How often those who linger look again.
const GLANCE: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Guests that ever came. Only grows.
    came: usize,
    /// Guests that went away while they waited. Only grows.
    left: usize,
    open: bool,
    lingers: bool,
}

impl Places {
    pub(crate) fn new() -> Places {
        let places = Places {
            places: Arc::new(watch::Sender::new(HashMap::new())),
            turn: Arc::default(),
            changed: Arc::default(),
        };
        places.release("free");
        places
    }

    /// Waits until that many guests have come to the place.
    pub async fn reached(&self, name: &str, count: usize) {
        self.until(name, |place| place.came >= count).await;
    }

    /// Waits until that many guests were taken away from the place while they waited there.
    pub async fn abandoned(&self, name: &str, count: usize) {
        self.until(name, |place| place.left >= count).await;
    }

    /// Whoever is taken away from the place lets go of it only when it is released: what a hard stop has to tear down
    /// takes as long as the test wants. Whoever stops waits for that, so stop from a thread of its own.
    pub fn linger(&self, name: &str) {
        self.change(name, |place| place.lingers = true);
    }

    /// Lets everybody pass at the place, those who wait and those to come.
    pub fn release(&self, name: &str) {
        self.change(name, |place| place.open = true);
    }

    /// How many guests ever came to the place.
    pub fn count(&self, name: &str) -> usize {
        self.places.borrow().get(name).map_or(0, |place| place.came)
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Place)) {
        self.places.send_modify(|places| change(places.entry(name.to_owned()).or_default()));
        self.changed.notify_all();
    }

    /// Holds this thread until the place is open, where that was asked for.
    fn lingers(&self, name: &str) {
        let held =
            || self.places.borrow().get(name).is_some_and(|place| place.lingers && !place.open);
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        while held() {
            // A change between the look and the wait is seen at the next glance.
            turn = match self.changed.wait_timeout(turn, GLANCE) {
                Ok((turn, _)) => turn,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    async fn until(&self, name: &str, mut wanted: impl FnMut(Place) -> bool) {
        let mut places = self.places.subscribe();
        let arrived =
            places.wait_for(|places| wanted(places.get(name).copied().unwrap_or_default()));
        // Never an error: the sender lives in `self`, so that the channel cannot close.
        let _closed = arrived.await.is_err();
    }
}

impl Checkpoints for Places {
    fn reached(&self, _run: &str, name: &str) -> BoxFuture<'static, ()> {
        let (places, name) = (self.clone(), name.to_owned());
        async move {
            places.change(&name, |place| place.came += 1);
            let mut waiting = Waiting { places: &places, name: &name, passed: false };
            places.until(&name, |place| place.open).await;
            waiting.passed = true;
        }
        .boxed()
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Places").field(&*self.places.borrow()).finish()
    }
}

struct Waiting<'a> {
    places: &'a Places,
    name: &'a str,
    passed: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.passed {
            self.places.change(self.name, |place| place.left += 1);
            self.places.lingers(self.name);
        }
    }
}
