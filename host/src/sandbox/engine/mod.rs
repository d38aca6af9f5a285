//! The two engines, and the pool from which runs take their memories, tables and stacks.
//!
//! Fuel is a property of compiled code, so there are two engines: [`Metering::None`] and [`Metering::Fuel`]. They
//! share every other setting. The one with fuel is made when it is first asked for.
//!
//! What holds:
//!
//! 1. Both engines together never need more mappings than the kernel gives a process, also when every slot is in
//!    use. A number of slots that would is refused when the engines are made.
//! 2. Where the address space for a pool cannot be had, instances are allocated on demand, and one warning says so.
//! 3. Code compiled for one engine loads into another exactly when their [`CodeKey`]s are equal.
//!
//! Not here: stores, limits of a run, the ticker thread. Who ticks holds [`WeakEngines`].

mod engines;
mod pool;
mod settings;

pub(super) use engines::Nudge;
pub use engines::{EngineError, Engines, PoolUse, WeakEngines};
pub(super) use pool::MEMORIES_PER_COMPONENT;
pub use pool::Pool;
pub use settings::{
    AboveCap, CodeKey, CodeSettings, EngineSettings, MAX_MEMORY, MAX_TABLE_ELEMENTS, Metering,
    check_caps,
};
