//! One profile being served, from the lock on its home to the last thing that is released (P2–P5).
//!
//! ```text
//!   serve ──► published ──retire──► retiring ──all work has ended──► released
//!                                    │    ▲
//!                                    └────┘ the bound passed: not released, to be asked again
//! ```
//!
//! The steps of retiring, in this order: closed for new work, unpublished, tickets revoked, everything stopped hard;
//! then a wait; then the schedule owner is unbound, the store closed, the count written, the lock given back. Nothing
//! after the wait happens while any work is alive, and nothing of it happens twice.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant as Clock};

use tokio::sync::Mutex as Turnstile;
use tokio::time::{Instant, timeout_at};

use super::count::CountWriter;
use super::lock::HomeLock;
use super::tickets::Tickets;
use crate::ids::WorkId;
use crate::work::{Body, Cutting, Drained, Kind, NodeView, Refused, Stop, Tree, Work};

/// What everything in a profile is stopped with when the profile is retired.
pub const STOPPING: &str = "profile is stopping";

/// How long the last steps may take once no work is left. Nothing is cut when it has passed: they are tried again.
const CLOSING: Duration = Duration::from_secs(2);

/// What a profile holds while it is served: sessions, the schedule owner, the store. An [`Authority`] calls each step
/// from one place, in the order in which they stand here.
pub trait Held: Send + Sync + 'static {
    /// What is open in the home, such as the store. It is kept until the last piece of work has gone, also when the authority was
    /// lost, and let go of before the lock. There must be no hold on the profile's work in it, or the work would keep itself.
    fn handles(&self) -> Arc<dyn Any + Send + Sync>;

    /// Takes the profile out of whatever lists and routes it. Called once, before anything is stopped. It must not wait.
    fn unpublish(&self);

    /// Unbinds the owner of the home's schedules. Called once, when no work is left.
    fn unbind_schedule(&self);

    /// Closes the store and whatever else is open in the home. No work is left, and none can come.
    ///
    /// It may be given up and called again, so it must be cancel safe, and right when all is closed already.
    ///
    /// # Errors
    ///
    /// [`NotClosed`] when it cannot be closed yet, because somebody writes. The profile is not released then. A failure
    /// that stays is to be reported and answered with `Ok`, for else the home could not be served again.
    fn close(&self, drained: Drained) -> impl Future<Output = Result<(), NotClosed>> + Send;
}

/// Why what a profile holds is not closed yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotClosed(pub String);

/// One profile being served. Cheap to clone; every clone is the same authority. When the last one goes without a
/// retirement, the work is stopped, and the lock stays until it has ended.
pub struct Authority<H: Held> {
    shared: Arc<Shared<H>>,
}

struct Shared<H: Held> {
    name: Arc<str>,
    home: Arc<Path>,
    id: WorkId,
    tree: Tree,
    /// From the beginning of the retirement on.
    retiring: AtomicBool,
    /// Done once; whoever retires at the same time goes on when it has been done.
    unpublished: OnceLock<()>,
    tickets: Arc<Tickets>,
    /// None once everything is released. The lock is for a look; steps that take time are behind `releasing`.
    possession: Mutex<Option<Arc<Possession<H>>>>,
    /// One retirement at a time is past its wait.
    releasing: Turnstile<Releasing>,
}

/// How far the last steps have come.
#[derive(Default)]
struct Releasing {
    unbound: bool,
    closed: bool,
}

/// What is held until all work has ended. Field order is teardown order.
struct Possession<H> {
    held: Arc<H>,
    count: Arc<CountWriter>,
    node: Node,
}

/// The hold on the profile's node. Let go of, it stops what is below.
#[derive(Debug)]
struct Node(Work);

impl Node {
    /// The node itself carries the stop, so that what comes late is born with it (W6).
    fn stop(&self) {
        self.0.close(STOPPING);
        self.0.stop(&Stop::hard("host", STOPPING));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The body of a profile's node. It keeps something as long as the node is in the tree, whoever has let go of the
/// authority: the lock and the handles outlive the last piece of work.
struct Keeps<T>(T);

impl<T: Send + Sync> Body for Keeps<T> {
    fn cut(&self) -> Cutting {
        Cutting::Done
    }
}

/// A home that was locked and has its node in the tree. What it is to hold can be opened on it. Dropped, it stops what
/// was opened, and the lock stays until that has ended.
#[derive(Debug)]
pub struct Claimed {
    name: Arc<str>,
    lock: Arc<HomeLock>,
    node: Node,
}

impl Claimed {
    /// Opens the profile's node below the host's, on a home that is locked.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the host takes no new work.
    pub fn new(host: &Work, name: &str, lock: HomeLock) -> Result<Claimed, Refused> {
        let lock = Arc::new(lock);
        let node = Node(host.open(Kind::Profile, name)?);
        node.0.set_body(Arc::new(Keeps(Arc::clone(&lock))));
        Ok(Claimed { name: name.into(), lock, node })
    }

    /// The profile's node: what a profile opens while it is being opened is below it.
    pub fn work(&self) -> &Work {
        &self.node.0
    }
}

impl<H: Held> Authority<H> {
    /// Serves what was opened on a claimed home. It is published from now on.
    ///
    /// # Errors
    ///
    /// When the system gives no thread for the count of work.
    pub fn serve(claimed: Claimed, held: H) -> std::io::Result<Authority<H>> {
        let Claimed { name, lock, node } = claimed;
        let (id, tree, home) = (node.0.id(), node.0.tree(), lock.home().into());
        let held = Arc::new(held);
        let count = Arc::new(CountWriter::start(&node.0, Arc::clone(&lock))?);
        // Not what is held itself: that has holds on the node, and would keep what keeps it.
        node.0.set_body(Arc::new(Keeps((held.handles(), Arc::clone(&count), lock))));
        let shared = Shared {
            name,
            home,
            id,
            tree,
            retiring: AtomicBool::new(false),
            unpublished: OnceLock::new(),
            tickets: Arc::new(Tickets::new(Clock::now)),
            possession: Mutex::new(Some(Arc::new(Possession { held, count, node }))),
            releasing: Turnstile::default(),
        };
        Ok(Authority { shared: Arc::new(shared) })
    }

    /// The profile's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The home.
    pub fn home(&self) -> &Path {
        &self.shared.home
    }

    /// The profile's node.
    pub fn id(&self) -> WorkId {
        self.shared.id
    }

    /// Whether the profile is listed and takes new work: false from the first step of its retirement on.
    pub fn is_published(&self) -> bool {
        !self.shared.retiring.load(Ordering::SeqCst)
    }

    /// Whether everything is released.
    pub fn is_released(&self) -> bool {
        self.shared.possession().is_none()
    }

    /// What the profile holds, also while it is being retired; none once everything is released.
    pub fn possession(&self) -> Option<Arc<H>> {
        self.shared.possession().as_ref().map(|possession| Arc::clone(&possession.held))
    }

    /// What the profile holds; none once the profile is being retired.
    pub fn held(&self) -> Option<Arc<H>> {
        let possession = self.shared.possession().clone();
        possession.filter(|_| self.is_published()).map(|possession| Arc::clone(&possession.held))
    }

    /// The tickets of this profile (P8). Once it is being retired there are none, and none are made.
    pub fn tickets(&self) -> &Arc<Tickets> {
        &self.shared.tickets
    }

    /// Waits until what is live now is in the count of the home.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn count_settled(&self) {
        let possession = self.shared.possession().clone();
        if let Some(possession) = possession {
            possession.count.settled().await;
        }
    }

    /// Begins the retirement without a wait: from now on the profile is unlisted, takes no new work, has no tickets, and
    /// everything in it carries a hard stop (P2, P3).
    pub fn unpublish(&self) {
        let Some(possession) = self.shared.possession().clone() else { return };
        possession.node.0.close(STOPPING);
        self.shared.retiring.store(true, Ordering::SeqCst);
        self.shared.unpublished.get_or_init(|| {
            self.shared.tickets.revoke();
            possession.held.unpublish();
        });
        possession.node.stop();
    }

    /// Stops serving: unpublishes, stops everything hard, waits for its end within `bound`, and releases what was held.
    /// Retirements at the same time join; each has its own bound, and all have the same answer in the end.
    ///
    /// The bound is that of the wait for work. The last steps, when no work is left, have one of their own of two seconds.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is done stays done, and a later call goes on from there.
    pub async fn retire(&self, bound: Duration) -> Retired {
        self.unpublish();
        let Some(possession) = self.shared.possession().clone() else { return Retired::Released };
        match possession.node.0.drain(STOPPING, bound).await {
            Ok(drained) => self.release(possession, drained).await,
            Err(alive) => self.not_released(Why::Alive(alive.nodes)),
        }
    }

    /// Whether no work of this profile is left.
    pub fn is_idle(&self) -> bool {
        self.shared.tree.count(self.shared.id) == 0
    }

    /// Waits until no work of this profile is left. It stops nothing and releases nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn idle(&self) {
        self.shared.tree.idle(self.shared.id).await;
    }

    /// The last steps. Each is done once, and only when the one before has been.
    async fn release(&self, possession: Arc<Possession<H>>, drained: Drained) -> Retired {
        let until = Instant::now() + CLOSING;
        let Ok(mut releasing) = timeout_at(until, self.shared.releasing.lock()).await else {
            return self.not_released(Why::Closing("another retirement is closing it".to_owned()));
        };
        if self.is_released() {
            return Retired::Released;
        }
        if !std::mem::replace(&mut releasing.unbound, true) {
            possession.held.unbind_schedule();
        }
        if !releasing.closed {
            match timeout_at(until, possession.held.close(drained)).await {
                Ok(Ok(())) => releasing.closed = true,
                Ok(Err(NotClosed(words))) => return self.not_released(Why::Closing(words)),
                Err(_) => {
                    return self.not_released(Why::Closing("closing takes too long".to_owned()));
                }
            }
        }
        if timeout_at(until, possession.count.finish()).await.is_err() {
            return self
                .not_released(Why::Closing("the count of work cannot be written".to_owned()));
        }
        // The lock goes here: nothing else keeps it but the node's body, and the thread that counts is gone.
        possession.node.0.set_body(Arc::new(Keeps(())));
        let last = self.shared.possession().take();
        drop(last);
        Retired::Released
    }

    /// What is in the way of a release at this moment; none when it is only to be asked for, or done already.
    pub fn left(&self) -> Option<NotReleased> {
        let alive = self.shared.tree.executions(self.shared.id);
        let name = Arc::clone(&self.shared.name);
        (!alive.is_empty()).then_some(NotReleased { name, why: Why::Alive(alive) })
    }

    fn not_released(&self, why: Why) -> Retired {
        let name = Arc::clone(&self.shared.name);
        Retired::NotReleased(NotReleased { name, why })
    }
}

impl<H: Held> Shared<H> {
    fn possession(&self) -> MutexGuard<'_, Option<Arc<Possession<H>>>> {
        self.possession.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Held> Clone for Authority<H> {
    fn clone(&self) -> Authority<H> {
        Authority { shared: Arc::clone(&self.shared) }
    }
}

impl<H: Held> fmt::Debug for Authority<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("name", &self.shared.name)
            .field("home", &self.shared.home)
            .field("published", &self.is_published())
            .finish_non_exhaustive()
    }
}

/// What a retirement came to.
#[derive(Debug)]
#[must_use = "what is not released has to be retired again"]
pub enum Retired {
    /// No work is left, and everything is given back.
    Released,
    /// Authority, lock, handles and schedule owner are kept. To be asked again.
    NotReleased(NotReleased),
}

/// A profile that is unpublished and stopped, and not released yet.
#[derive(Debug)]
pub struct NotReleased {
    /// The profile.
    pub name: Arc<str>,
    /// What is in the way.
    pub why: Why,
}

/// What is in the way of a release.
#[derive(Debug)]
#[non_exhaustive]
pub enum Why {
    /// Each execution that is alive.
    Alive(Vec<NodeView>),
    /// No work is left, and what was held is not closed yet.
    Closing(String),
}

impl fmt::Display for NotReleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the profile {} is stopped and not released: ", self.name)?;
        match &self.why {
            Why::Alive(nodes) => {
                write!(f, "{} piece(s) of work have not ended", nodes.len())?;
                for (at, node) in nodes.iter().take(10).enumerate() {
                    let comma = if at == 0 { ": " } else { ", " };
                    write!(f, "{comma}{} {} ({})", node.kind.as_str(), node.label, node.id)?;
                }
                Ok(())
            }
            Why::Closing(words) => f.write_str(words),
        }
    }
}
