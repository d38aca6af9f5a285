//! A gate for tests: it counts what passes, and its pool is that of the test's runtime.

#![expect(clippy::disallowed_methods, reason = "this stands in for the one place that spawns")]

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::gate::{Closed, FilePermit, Gate, Place, Places, Task};
use super::http::Answer;
use super::network::Resolver;
use crate::sandbox::reach::Share;

/// Counts and remembers; limits what a test tells it to.
pub(super) struct TestGate {
    printed: Mutex<Vec<String>>,
    denied: Mutex<Vec<String>>,
    pub(super) charged: AtomicUsize,
    pub(super) blocked: AtomicUsize,
    budget: AtomicUsize,
    print_budget: AtomicUsize,
    places: Places,
    /// Stands in for the places of the host.
    pub(super) blocking: Arc<Semaphore>,
    pub(super) files: Arc<Semaphore>,
}

impl TestGate {
    pub(super) fn new() -> Arc<TestGate> {
        let blocking = Arc::new(Semaphore::new(64));
        Arc::new(TestGate {
            printed: Mutex::default(),
            denied: Mutex::default(),
            charged: AtomicUsize::new(0),
            blocked: AtomicUsize::new(0),
            budget: AtomicUsize::new(usize::MAX),
            print_budget: AtomicUsize::new(usize::MAX),
            places: Places::new(&Share::default(), &blocking),
            blocking,
            files: Arc::new(Semaphore::new(64)),
        })
    }

    pub(super) fn allow(&self, bytes: usize) {
        self.budget.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn allow_print(&self, bytes: usize) {
        self.print_budget.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn printed(&self) -> Vec<String> {
        self.printed.lock().unwrap().clone()
    }

    pub(super) fn denials(&self) -> Vec<String> {
        self.denied.lock().unwrap().clone()
    }
}

fn take(budget: &AtomicUsize, amount: usize) -> wasmtime::Result<()> {
    match budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(amount))
    {
        Ok(_) => Ok(()),
        Err(_) => Err(wasmtime::format_err!("the budget is used up")),
    }
}

impl Gate for TestGate {
    fn enter(&self, _interface: &'static str) {}

    fn charge(&self, bytes: usize) -> wasmtime::Result<()> {
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        take(&self.budget, bytes)
    }

    fn print(&self, stream: &'static str, text: &[u8]) -> wasmtime::Result<()> {
        take(&self.print_budget, text.len())?;
        self.printed.lock().unwrap().push(format!("{stream}: {}", String::from_utf8_lossy(text)));
        Ok(())
    }

    fn denied(&self, reason: &str) {
        self.denied.lock().unwrap().push(reason.to_owned());
    }

    fn place(&self) -> Task<Result<Place, Closed>> {
        Box::pin(self.places.clone().wait())
    }

    fn blocking(
        &self,
        _what: &'static str,
        place: Place,
        job: Box<dyn FnOnce() + Send>,
    ) -> Result<(), Closed> {
        self.blocked.fetch_add(1, Ordering::Relaxed);
        drop(Handle::current().spawn_blocking(move || {
            let _place = place;
            job();
        }));
        Ok(())
    }

    fn spawn_connection(&self, _what: &'static str, task: Task<()>) -> JoinHandle<()> {
        Handle::current().spawn(task)
    }

    fn spawn_request(&self, _what: &'static str, task: Task<Answer>) -> JoinHandle<Answer> {
        Handle::current().spawn(task)
    }

    fn open_file(&self) -> Option<FilePermit> {
        self.files.clone().try_acquire_owned().ok().map(FilePermit::from)
    }
}

/// Names that only a test knows.
pub(super) struct Names(HashMap<String, Vec<IpAddr>>);

impl Names {
    pub(super) fn new(names: &[(&str, &[&str])]) -> Names {
        let parse =
            |addresses: &[&str]| addresses.iter().map(|address| address.parse().unwrap()).collect();
        Names(
            names.iter().map(|(name, addresses)| ((*name).to_owned(), parse(addresses))).collect(),
        )
    }
}

impl Resolver for Names {
    fn resolve(&self, host: &str, _gate: &Arc<dyn Gate>) -> Task<io::Result<Vec<IpAddr>>> {
        let found = self.0.get(host).cloned().ok_or_else(|| io::ErrorKind::NotFound.into());
        Box::pin(std::future::ready(found))
    }
}
