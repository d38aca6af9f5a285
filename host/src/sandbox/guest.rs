//! What a store holds for its guest. Everything that the guest can get hold of hangs on this and goes with it.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::door::{Door, Scope};
use super::limits::LimitKind;
use super::meter::Limiter;
use super::upward::{Above, ForAgent, ForTool};
use super::wasi::{Answer, Closed, FilePermit, Gate, HasWasi, Place, Task, WasiState};
use crate::work::{blocking, spawn_charged};

/// The store data of an agent.
pub(super) type AgentGuest = Guest<ForAgent>;
/// The store data of a tool.
pub(super) type ToolGuest = Guest<ForTool>;

/// The data of one store.
pub(super) struct Guest<H> {
    door: Door<H>,
    wasi: WasiState,
    pub(super) limiter: Limiter,
}

impl<H: Above> Guest<H> {
    pub(super) fn new(door: Door<H>, wasi: WasiState, limiter: Limiter) -> Guest<H> {
        Guest { door, wasi, limiter }
    }

    /// Hands over what the guest printed without ending the line.
    pub(super) fn flush_output(&mut self) -> wasmtime::Result<()> {
        self.wasi.flush_output()
    }

    pub(super) fn door(&self) -> &Door<H> {
        &self.door
    }
}

impl<H: Above> HasWasi for Guest<H> {
    fn wasi(&mut self) -> &mut WasiState {
        &mut self.wasi
    }
}

/// The door, as the WASI interfaces see it.
impl Gate for Scope {
    fn enter(&self, interface: &'static str) {
        self.record(interface);
    }

    fn charge(&self, bytes: usize) -> wasmtime::Result<()> {
        Scope::charge(self, bytes)
    }

    fn print(&self, stream: &'static str, text: &[u8]) -> wasmtime::Result<()> {
        let level = if stream == "stderr" { "warn" } else { "info" };
        self.log(level, &String::from_utf8_lossy(text))
    }

    fn denied(&self, reason: &str) {
        // What a guest was refused is worth a line, but not worth ending it when its log is full.
        self.log("warn", reason).ok();
    }

    fn place(&self) -> Task<Result<Place, Closed>> {
        Box::pin(self.places.clone().wait())
    }

    fn blocking(
        &self,
        what: &'static str,
        place: Place,
        job: Box<dyn FnOnce() + Send>,
    ) -> Result<(), Closed> {
        let Place { of_run, of_share, of_host } = place;
        let job = move || {
            let _place = (of_run, of_share);
            job();
        };
        // The job answers by itself, so nobody listens here.
        let _unheard =
            blocking(self.control(), &self.work, what, of_host, job).map_err(|_| Closed)?;
        Ok(())
    }

    fn spawn_connection(&self, _what: &'static str, task: Task<()>) -> JoinHandle<()> {
        spawn_charged(self.control(), self.work.share(), task)
    }

    fn spawn_request(&self, _what: &'static str, task: Task<Answer>) -> JoinHandle<Answer> {
        spawn_charged(self.control(), self.work.share(), task)
    }

    fn open_file(&self) -> Option<FilePermit> {
        let permit = Arc::clone(self.files()).try_acquire_owned().ok();
        self.asked(LimitKind::OpenFiles, permit.is_some());
        permit.map(FilePermit::from)
    }
}
