//! From bytes to a loaded component, each step at most once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use wasmtime::component::Component;

use super::cache::{Cache, EntryName};
use super::code::OwnCode;
use super::compiler::{CompileError, Compiler};
use super::digest::Digest;
use crate::metrics::{Counter, Histogram};
use crate::sandbox::engine::{EngineError, Engines, Metering};
use crate::work::{StopKind, Work};

/// Components that are kept loaded after their last use.
const KEPT_COMPONENTS: usize = 64;

/// Bytes of machine code that are kept loaded after their last use.
const KEPT_CODE: usize = 512 << 20;

/// More bytes than this are hashed on a thread where nobody waits for a timer.
const HASHED_HERE: usize = 256 << 10;

/// Loads components: from memory, from the cache on disk, or by compiling. Cheap to clone.
///
/// Await it on the runtime that serves timers and processes, not where guests run.
#[derive(Clone)]
pub struct Loader {
    inner: Arc<Inner>,
}

struct Inner {
    engines: Engines,
    compiler: Arc<Compiler>,
    cache: Option<Cache>,
    figures: LoadFigures,
    /// Protects both lists below; held only to look something up or put it in.
    state: Mutex<State>,
}

/// Components that were brought into memory.
#[derive(Debug, Default)]
pub struct LoadFigures {
    /// From the cache on disk.
    pub cached: Counter,
    /// By compiling them.
    pub compiled: Counter,
    /// Compilations that gave no code, or were given up by a stop.
    pub failed: Counter,
    /// How long compilations took, with the wait for their turn.
    pub times: Histogram,
}

impl LoadFigures {
    fn compilation(&self, compiled: bool, took: Duration) {
        if compiled {
            self.compiled.one()
        } else {
            self.failed.one()
        }
        self.times.took(took);
    }
}

#[derive(Default)]
struct State {
    /// Loads at work. The future is owned by those who wait for it, so that it ends with the last of them.
    loading: HashMap<Id, WeakShared<Load>>,
    /// Loaded components, the most recently used last.
    loaded: Vec<(Id, Component)>,
}

/// The same bytes give other code with fuel.
type Id = (Digest, Metering);

type Load = BoxFuture<'static, Result<Component, LoadError>>;

impl Loader {
    /// A loader for these engines.
    pub fn new(engines: Engines, compiler: Compiler, cache: Option<Cache>) -> Loader {
        let (compiler, state) = (Arc::new(compiler), Mutex::default());
        let figures = LoadFigures::default();
        Loader { inner: Arc::new(Inner { engines, compiler, cache, figures, state }) }
    }

    /// Loads a component. If it has to be compiled, that is work below `owner`, or below whoever asked for the same one
    /// before.
    ///
    /// # Errors
    ///
    /// Says why these bytes are no component that this host can run, or that `owner` was stopped hard.
    ///
    /// # Cancel safety
    ///
    /// When the last of those who wait for the same component drops this future, its compilation is killed.
    pub async fn load(
        &self,
        component: Arc<[u8]>,
        metering: Metering,
        owner: &Work,
    ) -> Result<Component, LoadError> {
        self.inner.compiler.check(&component)?;
        let digest = match component.len() {
            0..=HASHED_HERE => Digest::of(&component),
            _ => {
                let component = Arc::clone(&component);
                off_thread(move || Digest::of(&component)).await.ok_or(CompileError::Closing)?
            }
        };
        let signal = owner.signal();
        loop {
            let (load, joined) =
                self.join_or_start((digest, metering), Arc::clone(&component), owner);
            let stopped = Err(LoadError::Compile(CompileError::Stopped));
            let loaded = tokio::select! {
                biased;
                _ = signal.raised(StopKind::Hard) => return stopped,
                loaded = load => loaded,
            };
            match loaded {
                // Stopped with somebody else who had asked for it before: it is compiled again for this one.
                Err(LoadError::Compile(CompileError::Stopped)) if joined => {}
                loaded => return loaded,
            }
        }
    }

    /// The component with that digest, if it is loaded. Costs one look-up.
    pub fn loaded(&self, digest: &Digest, metering: Metering) -> Option<Component> {
        self.inner.state().take_loaded(&(*digest, metering))
    }

    /// What was loaded so far.
    pub fn figures(&self) -> &LoadFigures {
        &self.inner.figures
    }

    /// The engines for which components are loaded.
    pub fn engines(&self) -> &Engines {
        &self.inner.engines
    }

    /// A future of the load of that component: a new one, or the one that others wait for already, which the second
    /// value says.
    fn join_or_start(&self, id: Id, component: Arc<[u8]>, owner: &Work) -> (Shared<Load>, bool) {
        let mut state = self.inner.state();
        if let Some(component) = state.take_loaded(&id) {
            return (futures::future::ready(Ok(component)).boxed().shared(), false);
        }
        if let Some(load) = state.loading.get(&id).and_then(WeakShared::upgrade) {
            return (load, true);
        }
        let load = Arc::clone(&self.inner).load(id, component, owner.share()).boxed().shared();
        // Loads that were given up leave a dead entry each; this is where they go.
        state.loading.retain(|_, load| load.upgrade().is_some());
        if let Some(weak) = load.downgrade() {
            state.loading.insert(id, weak);
        }
        (load, false)
    }
}

impl Inner {
    async fn load(
        self: Arc<Self>,
        id: Id,
        component: Arc<[u8]>,
        owner: Work,
    ) -> Result<Component, LoadError> {
        let loaded = self.load_unshared(id, component, &owner).await;
        // The future may be kept for longer than its owner lives.
        drop(owner);
        let mut state = self.state();
        state.loading.remove(&id);
        let given_up = loaded.as_ref().map(|component| state.keep(id, component.clone()));
        drop(state);
        // Unmapping code takes milliseconds, which nobody should wait for under the lock.
        drop(given_up);
        loaded
    }

    async fn load_unshared(
        self: &Arc<Self>,
        id: Id,
        component: Arc<[u8]>,
        owner: &Work,
    ) -> Result<Component, LoadError> {
        let (digest, metering) = id;
        let key = self.engines.code_key(metering)?;
        let name = EntryName::new(&digest, &key);
        if self.cache.is_some() {
            let this = Arc::clone(self);
            let cached = off_thread(move || this.load_cached(name, metering))
                .await
                .ok_or(CompileError::Closing)?;
            if let Some(component) = cached {
                self.figures.cached.one();
                return Ok(component);
            }
        }
        let settings = self.engines.code_settings(metering);
        let begun = Instant::now();
        let compiled = self.compiler.compile(settings, key, &component, owner).await;
        self.figures.compilation(compiled.is_ok(), begun.elapsed());
        let code = compiled?;
        let this = Arc::clone(self);
        let loaded = off_thread(move || {
            let loaded = this.load_code(&code, metering)?;
            if let Some(cache) = &this.cache {
                cache.write(&name, &code);
            }
            Ok(loaded)
        });
        loaded.await.ok_or(CompileError::Closing)?
    }

    fn load_cached(&self, name: EntryName, metering: Metering) -> Option<Component> {
        let cache = self.cache.as_ref()?;
        let code = cache.read(&name)?;
        match self.load_code(&code, metering) {
            Ok(component) => Some(component),
            Err(error) => {
                // We wrote it and it fits by its name, so this should not happen; compiling it again decides.
                tracing::warn!(entry = %name, %error, "a cached component does not load and is compiled again");
                cache.remove(&name);
                None
            }
        }
    }

    fn load_code(&self, code: &OwnCode, metering: Metering) -> Result<Component, LoadError> {
        let engine = self.engines.get(metering)?;
        let refused = |error: wasmtime::Error| LoadError::Refused { message: format!("{error:#}") };
        let component = code.load(engine).map_err(refused)?;
        // Otherwise the first run pays for it.
        component.initialize_copy_on_write_image().map_err(refused)?;
        Ok(component)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_loaded(&mut self, id: &Id) -> Option<Component> {
        let at = self.loaded.iter().position(|(loaded, _)| loaded == id)?;
        let entry = self.loaded.remove(at);
        let component = entry.1.clone();
        self.loaded.push(entry);
        Some(component)
    }

    /// Keeps a component, and gives back those that had to go for it.
    fn keep(&mut self, id: Id, component: Component) -> Vec<(Id, Component)> {
        self.loaded.retain(|(loaded, _)| *loaded != id);
        self.loaded.push((id, component));
        let mut code: usize = self.loaded.iter().map(|(_, component)| code_bytes(component)).sum();
        let too_many = self.loaded.iter().enumerate().take_while(|(at, (_, component))| {
            let left = self.loaded.len() - at;
            let must_go = left > KEPT_COMPONENTS || (code > KEPT_CODE && left > 1);
            code = code.saturating_sub(code_bytes(component));
            must_go
        });
        let too_many = too_many.count();
        self.loaded.drain(..too_many).collect()
    }
}

fn code_bytes(component: &Component) -> usize {
    let image = component.image_range();
    image.end as usize - image.start as usize
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state();
        f.debug_struct("Loader")
            .field("compiler", &self.inner.compiler)
            .field("cache", &self.inner.cache)
            .field("loading", &state.loading.len())
            .field("loaded", &state.loaded.len())
            .finish_non_exhaustive()
    }
}

/// Loads code that the process which started this one has sent through a pipe of its own: code which that had loaded.
///
/// # Errors
///
/// When the code does not fit the engine.
pub(in crate::sandbox) fn load_from_parent(
    code: Vec<u8>,
    engine: &wasmtime::Engine,
) -> Result<Component, wasmtime::Error> {
    OwnCode::from_parent(code).load(engine)
}

/// Does what takes milliseconds where nobody waits for a timer. It runs to its end also when nobody waits for it; it
/// has no guest in it and its length is bounded by the size of a component. None while the runtime shuts down.
#[allow(
    clippy::disallowed_methods,
    reason = "plain computation and our own cache files; nothing here can be stopped"
)]
pub(super) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_shutting_down) => None,
        },
    }
}

/// A component could not be loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    /// It could not be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// There is no engine for it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It is a valid component, but it needs more than this host gives to any.
    #[error("the component is valid, but asks for more than this host gives to any: {message}")]
    Refused {
        /// What wasmtime says.
        message: String,
    },
}
