//! Admission on a real tree: faults at every point, stops on both sides of the step, and random interleavings.

mod completions;
mod faults;
mod interleavings;
mod line;
mod ownership;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;

use super::*;
use crate::ids::{SessionId, WorkId};
use crate::work::{Grace, Kind, Stop, Tree, Work};

/// What a scheduler says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Yes,
    No,
    /// It panics before it has returned a future.
    PanicAtOnce,
    /// Its future panics.
    PanicLater,
    /// It says what it is told to later.
    Open,
}

/// A scheduler that does as the test says, and holds admissions open.
#[derive(Debug, Default)]
struct Door {
    next: Mutex<Option<Verdict>>,
    asked: Mutex<BTreeMap<DelegationId, oneshot::Sender<Verdict>>>,
}

impl Door {
    fn set(&self, verdict: Verdict) {
        *self.next.lock().unwrap() = Some(verdict);
    }

    /// Ends an admission that is held open.
    fn answer(&self, id: DelegationId, verdict: Verdict) {
        self.asked
            .lock()
            .unwrap()
            .remove(&id)
            .expect("it was asked about that unit")
            .send(verdict)
            .ok();
    }

    fn open(&self) -> Vec<DelegationId> {
        self.asked.lock().unwrap().keys().copied().collect()
    }
}

impl Scheduler for Door {
    fn admit(&self, unit: &UnitRequest) -> BoxFuture<'static, Result<(), SchedulerRefusal>> {
        let say = |verdict| match verdict {
            Verdict::Yes => Ok(()),
            Verdict::No => Err(SchedulerRefusal::new("not now")),
            Verdict::PanicAtOnce | Verdict::PanicLater | Verdict::Open => {
                panic!("a scheduler that fails")
            }
        };
        match self.next.lock().unwrap().unwrap_or(Verdict::Yes) {
            Verdict::PanicAtOnce => std::panic::resume_unwind(Box::new("a scheduler that fails")),
            Verdict::PanicLater => {
                async { std::panic::resume_unwind(Box::new("a scheduler that fails later")) }
                    .boxed()
            }
            Verdict::Open => {
                let (tell, told) = oneshot::channel();
                self.asked.lock().unwrap().insert(unit.id, tell);
                async move { say(told.await.unwrap_or(Verdict::No)) }.boxed()
            }
            verdict @ (Verdict::Yes | Verdict::No) => std::future::ready(say(verdict)).boxed(),
        }
    }
}

/// A recorder that remembers what it was told, and fails when the test says so.
#[derive(Debug, Default)]
struct Notes {
    fails: AtomicBool,
    panics: AtomicBool,
    accepted: Mutex<Vec<DelegationId>>,
    withdrawn: Mutex<Vec<DelegationId>>,
    ended: Mutex<Vec<DelegationId>>,
}

impl Notes {
    fn write(&self, to: &Mutex<Vec<DelegationId>>, id: DelegationId) -> Result<(), RecordError> {
        if self.panics.load(Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("a recorder that fails"));
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(RecordError { words: "the disk is full".to_owned() });
        }
        to.lock().unwrap().push(id);
        Ok(())
    }
}

impl Recorder for Notes {
    fn accepted(&self, unit: &UnitRequest) -> BoxFuture<'static, Result<(), RecordError>> {
        std::future::ready(self.write(&self.accepted, unit.id)).boxed()
    }

    fn withdrawn(&self, unit: DelegationId) {
        self.write(&self.withdrawn, unit).ok();
    }

    fn ended(&self, completion: &Arc<Completion>, seen: Seen) {
        self.write(&self.ended, completion.id).ok();
        seen.now();
    }
}

/// A host with its capacity.
struct Host {
    tree: Tree,
    root: Work,
    slots: Slots,
    door: Arc<Door>,
    notes: Arc<Notes>,
}

impl Host {
    fn new(limits: DelegationLimits) -> Host {
        let (tree, root) = Tree::new("host");
        let (door, notes) = (Arc::new(Door::default()), Arc::new(Notes::default()));
        let hooks = Hooks { scheduler: Arc::clone(&door) as Arc<dyn Scheduler>, first_id: 1 };
        Host { tree, root, slots: Slots::new(limits, hooks), door, notes }
    }

    fn with_capacity(host: u64, session: u64, line: u64) -> Host {
        Host::new(DelegationLimits {
            units_per_host: host,
            units_per_session: session,
            queued_units: line,
            ..DelegationLimits::default()
        })
    }

    fn session(&self, name: &str) -> Session {
        let work = self.root.open(Kind::Session, name).unwrap();
        let registry = work.open(Kind::Registry, format!("{name} background")).unwrap();
        let turn = work.open(Kind::Turn, format!("{name} 1")).unwrap();
        let recorder = Arc::clone(&self.notes) as Arc<dyn Recorder>;
        let completions = Completions::new();
        Session { name: name.to_owned(), work, registry, turn, completions, recorder }
    }

    fn owner(&self, id: WorkId) -> Option<WorkId> {
        self.tree.snapshot(id).first().and_then(|view| view.owner)
    }
}

/// A session with a turn.
struct Session {
    name: String,
    work: Work,
    registry: Work,
    turn: Work,
    completions: Completions,
    recorder: Arc<dyn Recorder>,
}

impl Session {
    fn origin(&self) -> Origin {
        Origin {
            session: SessionId::new(self.name.clone()),
            registry: self.registry.share(),
            completions: self.completions.clone(),
            receives: Receives::Later,
            recorder: Arc::clone(&self.recorder),
        }
    }

    fn child(&self, task: u32) -> Child {
        Child {
            task,
            goal: format!("task {task}"),
            work: self.turn.open(Kind::Child, format!("task {task}")).unwrap(),
        }
    }

    /// How many children the turn owns.
    fn owned_by_turn(&self) -> usize {
        self.turn.count()
    }
}

fn soft(message: &str) -> Stop {
    Stop::soft("a test", message, Grace::Never)
}

fn hard(message: &str) -> Stop {
    Stop::hard("a test", message)
}

fn outcome(task: u32, status: ChildStatus) -> TaskOutcome {
    TaskOutcome { task, status, output: format!("output {task}"), detail: String::new() }
}

#[track_caller]
fn accepted(admission: Admission) -> Unit {
    match admission {
        Admission::Accepted(unit) => unit,
        Admission::Rejected(rejected) => panic!("rejected: {}", rejected.reason),
    }
}

#[track_caller]
fn rejected(admission: Admission) -> Rejected {
    match admission {
        Admission::Accepted(unit) => panic!("{} was accepted", unit.id()),
        Admission::Rejected(rejected) => rejected,
    }
}

/// Whoever drives a call, a unit or a session's book may do so on any thread.
#[tokio::test]
async fn what_is_driven_can_move_between_threads() {
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let host = Host::with_capacity(1, 1, 0);
    let session = host.session("s");
    let mut call = sent(host.slots.call(session.origin(), Policy::Queue));
    let unit = sent(accepted(sent(call.submit(vec![session.child(0)])).await));
    let ids = [unit.id()];
    drop(sent(session.completions.ended(&ids)));
    drop(sent(session.completions.next()));
    sent(unit.finish()).await;
}
