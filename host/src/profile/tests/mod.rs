//! Tests of this room through its public items, with a real tree of work, real files, and a second process where a rule
//! speaks of one. Nothing sleeps.

mod authority;
mod count;
mod identity;
mod lock;
mod model;
mod registry;
mod tickets;
mod watcher;

use std::any::Any;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use super::{Held, HomeLock, NotClosed, NotOpened, Opens, Wanted};
use crate::work::{Drained, Work};

/// One poll, to show that something has not happened.
fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs what has to end. The bound is there for the day when it does not.
fn soon<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let bounded = async { tokio::time::timeout(Duration::from_secs(60), future).await };
    runtime.block_on(bounded).expect("this should have happened at once")
}

/// Waits for what another thread or process does. The bound is there for the day when it does not.
fn until(happened: impl Fn() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "this should have happened at once");
        std::thread::yield_now();
    }
}

/// What a profile of these tests did, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<&'static str>>>);

impl Diary {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    fn read(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, what: &str) -> usize {
        self.read().iter().filter(|noted| **noted == what).count()
    }
}

/// What a profile of these tests holds.
struct Things {
    diary: Diary,
    /// Somebody writes still, so the store cannot be closed.
    writing: Arc<AtomicBool>,
    /// Closing does not come to an end.
    hangs: Arc<AtomicBool>,
    handles: Arc<Handles>,
}

/// What it has open in its home.
struct Handles(Diary);

impl Things {
    fn new(diary: &Diary) -> Things {
        let handles = Arc::new(Handles(diary.clone()));
        Things { diary: diary.clone(), writing: Arc::default(), hangs: Arc::default(), handles }
    }
}

impl Held for Things {
    fn handles(&self) -> Arc<dyn Any + Send + Sync> {
        self.handles.clone()
    }

    fn unpublish(&self) {
        self.diary.note("unpublished");
    }

    fn unbind_schedule(&self) {
        self.diary.note("unbound");
    }

    async fn close(&self, _drained: Drained) -> Result<(), NotClosed> {
        if self.writing.load(Ordering::SeqCst) {
            return Err(NotClosed("a write is under way".to_owned()));
        }
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.diary.note("closed");
        Ok(())
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

/// Opens profiles of these tests. The last one's diary and node can be looked at.
#[derive(Default)]
struct Opener {
    opened: Mutex<Vec<(String, Diary, Work)>>,
    loaded: AtomicUsize,
    /// Something beside the configurations has changed.
    outdated: AtomicBool,
    /// Lets one go on whose configuration says that it is slow.
    goes_on: tokio::sync::Notify,
}

impl Opener {
    async fn is_slow(&self, wanted: &Wanted) {
        if std::fs::read_to_string(&wanted.configuration).unwrap().contains("slow") {
            self.goes_on.notified().await;
        }
    }
}

impl Opener {
    /// The diary of the profile that was opened last under that name, and a way to work in it.
    fn last(&self, name: &str) -> (Diary, Work) {
        let opened = self.opened.lock().unwrap();
        let (_, diary, work) = opened.iter().rev().find(|(opened, ..)| opened == name).unwrap();
        (diary.clone(), work.share())
    }
}

/// A configuration of these tests is wrong when it says so.
fn check(wanted: &Wanted) -> Result<(), NotOpened> {
    let text = std::fs::read_to_string(&wanted.configuration).unwrap();
    match text.lines().position(|line| line.starts_with("wrong")) {
        None => Ok(()),
        Some(line) => Err(NotOpened::Configuration {
            file: wanted.configuration.clone(),
            line: Some(line + 1),
            key: Some("wrong".to_owned()),
            words: "there is no such key".to_owned(),
        }),
    }
}

impl Opens for Arc<Opener> {
    type Held = Things;

    async fn open(&self, wanted: &Wanted, work: &Work) -> Result<Things, NotOpened> {
        check(wanted)?;
        self.is_slow(wanted).await;
        let diary = Diary::default();
        self.opened.lock().unwrap().push((wanted.name.clone(), diary.clone(), work.share()));
        Ok(Things::new(&diary))
    }

    async fn is_outdated(&self, _held: &Things) -> bool {
        self.outdated.load(Ordering::SeqCst)
    }

    async fn reload(&self, wanted: &Wanted, _held: &Things) -> Result<Vec<String>, NotOpened> {
        check(wanted)?;
        self.is_slow(wanted).await;
        self.loaded.fetch_add(1, Ordering::SeqCst);
        let beside = self.outdated.swap(false, Ordering::SeqCst);
        Ok(beside.then(|| "a plugin".to_owned()).into_iter().collect())
    }
}

/// A second process that holds the lock of a home.
struct OtherProcess(Child);

impl OtherProcess {
    /// It is this very program, told to run [`lock::another_process_holds_a_home`].
    fn holding(home: &Path) -> OtherProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture"])
            .arg("profile::tests::lock::another_process_holds_a_home")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{}", home.display()).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| line.unwrap());
        lines.find(|line| line.contains("it is held")).expect("the other process holds the lock");
        OtherProcess(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// As `kill -9` does, without taking note of its end.
    fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    fn reap(&mut self) {
        self.0.wait().unwrap();
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        self.kill();
        self.reap();
    }
}

fn lock(home: &Path) -> HomeLock {
    HomeLock::take(home).unwrap()
}
