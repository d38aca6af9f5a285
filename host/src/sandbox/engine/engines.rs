//! Making the engines, and letting others tick them.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use wasmtime::{Engine, InstanceAllocationStrategy};

use super::pool::{Machine, OnDemand, Plan, pool_config};
use super::settings::{CodeKey, CodeSettings, EngineSettings, Metering, Reservation};

/// Makes guests that are on a processor look up.
pub(in crate::sandbox) type Nudge = Arc<dyn Fn() + Send + Sync>;

/// Both engines. Cheap to clone; the engines live as long as the last clone, instance or component.
#[derive(Clone)]
pub struct Engines {
    inner: Arc<Inner>,
}

struct Inner {
    reservation: Reservation,
    plain: Made,
    /// Made at the first call of [`Engines::fuel`].
    fuel: OnceLock<Made>,
    /// Held while the engine with fuel is made, so that it is made once.
    making: Mutex<()>,
}

/// An engine with what is known about it.
struct Made {
    engine: Engine,
    /// Moves its epoch on. Shared by all runs, so that none makes its own.
    nudge: Nudge,
    key: CodeKey,
    /// None when it allocates on demand.
    slots: Option<u32>,
}

impl Engines {
    /// Makes the engine without fuel, and settles how the other one will be.
    ///
    /// # Errors
    ///
    /// When the settings ask for more than this machine can hold, or wasmtime refuses them. A pool that cannot be
    /// had is no error: a warning in the log says so, and instances are allocated on demand.
    pub fn new(settings: &EngineSettings) -> Result<Engines, EngineError> {
        let plan = Plan::new(settings.pool, &Machine::here())?;
        let reservation = match plan {
            Plan::Pooled(_) => Reservation::Full,
            Plan::OnDemand { reservation, why } => {
                warn_of(why);
                reservation
            }
        };
        let slots = match plan {
            Plan::Pooled(slots) => Some(slots),
            Plan::OnDemand { .. } => None,
        };
        let plain = Made::new(CodeSettings { metering: Metering::None, reservation }, slots)?;
        Ok(Engines {
            inner: Arc::new(Inner {
                reservation,
                plain,
                fuel: OnceLock::new(),
                making: Mutex::new(()),
            }),
        })
    }

    /// Engines without a pool that load code compiled with those settings: for a process with one run in it.
    ///
    /// # Errors
    ///
    /// When wasmtime refuses the settings on this machine.
    pub(in crate::sandbox) fn for_one(code: CodeSettings) -> Result<Engines, EngineError> {
        let reservation = code.reservation;
        let plain = Made::new(CodeSettings { metering: Metering::None, reservation }, None)?;
        let (fuel, making) = (OnceLock::new(), Mutex::new(()));
        Ok(Engines { inner: Arc::new(Inner { reservation, plain, fuel, making }) })
    }

    /// The engine whose code does not count.
    pub fn plain(&self) -> &Engine {
        &self.inner.plain.engine
    }

    /// The engine whose code burns fuel.
    ///
    /// # Errors
    ///
    /// When it is asked for the first time and cannot be made.
    pub fn fuel(&self) -> Result<&Engine, EngineError> {
        Ok(&self.made_with_fuel()?.engine)
    }

    /// The engine with that metering.
    ///
    /// # Errors
    ///
    /// As [`Engines::fuel`].
    pub fn get(&self, metering: Metering) -> Result<&Engine, EngineError> {
        Ok(&self.made(metering)?.engine)
    }

    /// What makes the guests look up whose code was loaded with that metering.
    pub(in crate::sandbox) fn nudge(&self, metering: Metering) -> &Nudge {
        // The engine was made when the code was loaded.
        &self.made(metering).unwrap_or(&self.inner.plain).nudge
    }

    /// What to compile with for that engine.
    pub fn code_settings(&self, metering: Metering) -> CodeSettings {
        CodeSettings { metering, reservation: self.inner.reservation }
    }

    /// Says which compiled code fits that engine.
    ///
    /// # Errors
    ///
    /// As [`Engines::fuel`].
    pub fn code_key(&self, metering: Metering) -> Result<CodeKey, EngineError> {
        Ok(self.made(metering)?.key)
    }

    /// A handle for a ticker, which does not keep the engines.
    pub fn weak(&self) -> WeakEngines {
        WeakEngines { inner: Arc::downgrade(&self.inner) }
    }

    /// Live runs without fuel that the pool has room for; none when instances are allocated on demand. A run that
    /// finds the pool full gets [`wasmtime::PoolConcurrencyLimitError`].
    pub fn slots(&self) -> Option<u32> {
        self.inner.plain.slots
    }

    /// Whether instances without fuel come from a pool.
    pub fn is_pooling(&self) -> bool {
        self.slots().is_some()
    }

    /// What is taken from the pools of both engines now. All zero without a pool.
    pub fn pool_use(&self) -> PoolUse {
        let mut sum = PoolUse::default();
        for made in std::iter::once(&self.inner.plain).chain(self.inner.fuel.get()) {
            if let Some(metrics) = made.engine.pooling_allocator_metrics() {
                sum.components += metrics.component_instances();
                sum.core_instances += metrics.core_instances();
                sum.memories += metrics.memories() as u64;
                sum.tables += metrics.tables() as u64;
                sum.stacks += metrics.stacks() as u64;
            }
        }
        sum
    }

    fn made(&self, metering: Metering) -> Result<&Made, EngineError> {
        match metering {
            Metering::None => Ok(&self.inner.plain),
            Metering::Fuel => self.made_with_fuel(),
        }
    }

    fn made_with_fuel(&self) -> Result<&Made, EngineError> {
        let inner = &*self.inner;
        if let Some(made) = inner.fuel.get() {
            return Ok(made);
        }
        let _making = inner.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = inner.fuel.get() {
            return Ok(made);
        }
        let made = Made::new(self.code_settings(Metering::Fuel), inner.plain.slots)?;
        Ok(inner.fuel.get_or_init(|| made))
    }
}

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engines")
            .field("slots", &self.slots())
            .field("fuel", &self.inner.fuel.get().is_some())
            .field("pool_use", &self.pool_use())
            .finish_non_exhaustive()
    }
}

impl Made {
    /// An engine with a pool of that many slots, or of fewer, or without one: the best that can be had.
    fn new(code: CodeSettings, slots: Option<u32>) -> Result<Made, EngineError> {
        let mut config = code.config();
        let mut next = slots;
        while let Some(size) = next {
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool_config(size)));
            match Engine::new(&config) {
                Ok(engine) => {
                    if next != slots {
                        tracing::warn!(
                            asked = slots,
                            slots = size,
                            "the pool of the engine {} is smaller than it should be, so fewer runs can live at one \
                             time: the address space for more could not be had; allow this process more of it",
                            code.metering
                        );
                    }
                    return Ok(Made::of(engine, Some(size)));
                }
                Err(error) => {
                    next = Plan::smaller(size);
                    if next.is_none() {
                        tracing::warn!(
                            asked = slots,
                            %error,
                            "no pool for the engine {}: instances are allocated on demand, which starts runs several \
                             times slower; allow this process more address space (ulimit -v, vm.overcommit_memory), \
                             or choose the pool `on-demand` if this is meant",
                            code.metering
                        );
                    }
                }
            }
        }
        config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
        let engine = Engine::new(&config).map_err(|error| EngineError::Create {
            metering: code.metering,
            message: format!("{error:#}"),
        })?;
        Ok(Made::of(engine, None))
    }

    fn of(engine: Engine, slots: Option<u32>) -> Made {
        let nudged = engine.clone();
        let nudge = Arc::new(move || nudged.increment_epoch());
        Made { key: CodeKey::of(&engine), engine, nudge, slots }
    }
}

/// The one line that says why there is no pool.
fn warn_of(why: OnDemand) {
    match why {
        OnDemand::Chosen => {}
        OnDemand::Mappings => tracing::warn!(
            "no pool: instances are allocated on demand, which starts runs several times slower; the kernel allows \
             this process too few mappings: raise vm.max_map_count to 65530 or more (sysctl)"
        ),
        OnDemand::Addresses => tracing::warn!(
            "no pool: instances are allocated on demand, which starts runs several times slower; the address space \
             of this process is limited: raise the limit (ulimit -v) to 16 TiB or remove it"
        ),
    }
}

/// A handle for a ticker: it does not keep the engines, and reaches also one that is made later.
#[derive(Clone)]
pub struct WeakEngines {
    inner: Weak<Inner>,
}

impl WeakEngines {
    /// Moves the epoch of every engine on by one. False when the engines are gone and the ticker can end.
    #[must_use]
    pub fn increment_epoch(&self) -> bool {
        let Some(inner) = self.inner.upgrade() else { return false };
        inner.plain.engine.increment_epoch();
        if let Some(fuel) = inner.fuel.get() {
            fuel.engine.increment_epoch();
        }
        true
    }
}

impl fmt::Debug for WeakEngines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakEngines").finish_non_exhaustive()
    }
}

/// What is taken from the pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Live component instances.
    pub components: u64,
    /// Live instances of core modules.
    pub core_instances: u64,
    /// Linear memories in use.
    pub memories: u64,
    /// Tables in use.
    pub tables: u64,
    /// Fiber stacks in use.
    pub stacks: u64,
}

/// The engines cannot be as the settings want them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A pool without slots.
    #[error("a pool of 0 slots can hold no run: set a number of slots, `auto` or `on-demand`")]
    NoSlots,
    /// More slots than the machine has mappings or address space for.
    #[error(
        "a pool of {asked} slots does not fit: this machine has room for {most} (vm.max_map_count is {}, the limit \
         on address space is {}); set {most} slots or less, or raise them",
        shown(.mappings), shown(.addresses)
    )]
    TooManySlots {
        /// What the settings say.
        asked: u32,
        /// The most that there is room for.
        most: u64,
        /// `vm.max_map_count`.
        mappings: Option<u64>,
        /// The limit on the address space, in bytes.
        addresses: Option<u64>,
    },
    /// Wasmtime refuses the settings.
    #[error("the engine {metering} cannot be made on this machine: {message}")]
    Create {
        /// Which engine.
        metering: Metering,
        /// What wasmtime says.
        message: String,
    },
}

fn shown(number: &Option<u64>) -> String {
    number.map_or_else(|| "unlimited".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::Pool;
    use super::*;

    fn engines(pool: Pool) -> Engines {
        Engines::new(&EngineSettings { pool }).unwrap()
    }

    #[test]
    fn code_for_the_pool_is_the_code_that_is_compiled_without_one() {
        let pooled = engines(Pool::Slots(16));
        assert_eq!((pooled.is_pooling(), pooled.slots()), (true, Some(16)));
        for metering in [Metering::None, Metering::Fuel] {
            let compiling = pooled.code_settings(metering).compiling_engine().unwrap();
            assert_eq!(pooled.code_key(metering).unwrap(), CodeKey::of(&compiling), "{metering}");
        }
        assert_ne!(pooled.code_key(Metering::None), pooled.code_key(Metering::Fuel));
    }

    #[test]
    fn without_a_pool_everything_but_the_pool_is_there() {
        let engines = engines(Pool::OnDemand);
        assert!(!engines.is_pooling());
        assert_eq!(engines.pool_use(), PoolUse::default());
        assert!(engines.fuel().is_ok());
    }

    #[test]
    fn a_pool_that_is_not_to_be_had_becomes_a_smaller_one() {
        let code = CodeSettings { metering: Metering::None, reservation: Reservation::Full };
        let beyond_47_bits = 60_000;
        let made = Made::new(code, Some(beyond_47_bits)).unwrap();
        assert!(made.slots.is_some_and(|slots| slots < beyond_47_bits), "{:?}", made.slots);
        assert_eq!(made.key, CodeKey::of(&code.compiling_engine().unwrap()));
    }

    #[test]
    fn the_engine_with_fuel_is_made_once() {
        let engines = engines(Pool::Slots(16));
        let other = engines.clone();
        let both = std::thread::scope(|scope| {
            let here = scope.spawn(|| engines.fuel().unwrap().clone());
            let there = scope.spawn(|| other.fuel().unwrap().clone());
            (here.join().unwrap(), there.join().unwrap())
        });
        assert!(Engine::same(&both.0, &both.1));
    }

    #[test]
    fn a_ticker_reaches_both_engines_and_keeps_neither() {
        let engines = engines(Pool::OnDemand);
        let weak = engines.weak();
        assert!(weak.increment_epoch());
        let (plain, fuel) = (engines.plain().weak(), engines.fuel().unwrap().weak());
        assert!(weak.increment_epoch());
        drop(engines);
        assert!(!weak.increment_epoch());
        assert!(plain.upgrade().is_none() && fuel.upgrade().is_none());
    }
}
