//! The settings of an engine: what every engine has, and what changes the code that it compiles.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmtime::{Config, Engine, WasmFeatures};

use super::pool::Pool;
use crate::sandbox::limits::{LimitKind, Limits};

/// The largest memory of one run, whatever its limits say: all that 32 bits can address.
pub const MAX_MEMORY: u64 = 4 << 30;

/// The most elements that one table can have, whatever the limits say.
pub const MAX_TABLE_ELEMENTS: u64 = 65_536;

/// Address space for each memory. With the whole 4 GiB reserved, code needs no bounds checks.
const FULL_RESERVATION: u64 = 4 << 30;

/// Address space for each memory where the process may not have much: code checks its bounds, and memories move
/// when they outgrow it.
const SMALL_RESERVATION: u64 = 16 << 20;

/// Guest code may use this much of a fiber's stack. The rest is for host functions: a host function that needs
/// more than the rest aborts the process.
const WASM_STACK: usize = 512 << 10;

/// The stack of a fiber: a guest and the host functions that it calls.
const FIBER_STACK: usize = 2 << 20;

/// Part of every [`CodeKey`]. Raise it when compiled code changes in a way that wasmtime's own settings do not show.
const CODE_VERSION: u32 = 1;

/// How the engines are set up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineSettings {
    /// Where instances come from.
    pub pool: Pool,
}

/// Whether compiled code counts what it executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metering {
    /// It does not.
    None,
    /// It burns fuel, which costs up to 1.4 times on tight loops.
    Fuel,
}

impl fmt::Display for Metering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Metering::None => "without fuel",
            Metering::Fuel => "with fuel",
        })
    }
}

/// Whether each memory gets all the address space that it could ever use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reservation {
    Full,
    Small,
}

/// Everything about an engine that changes the code it compiles and is not the same for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSettings {
    pub(in crate::sandbox) metering: Metering,
    pub(super) reservation: Reservation,
}

impl CodeSettings {
    /// The configuration of an engine with these settings, which allocates on demand.
    ///
    /// Whatever is switched off here is off because nobody needs it yet and each proposal is a part of the compiler
    /// that hostile code can reach.
    pub(super) fn config(self) -> Config {
        let mut config = Config::new();
        config
            .epoch_interruption(true)
            .consume_fuel(self.metering == Metering::Fuel)
            .concurrency_support(false)
            .max_wasm_stack(WASM_STACK)
            .async_stack_size(FIBER_STACK)
            .memory_init_cow(true)
            .parallel_compilation(true)
            .wasm_backtrace_max_frames(NonZeroUsize::new(20))
            .memory_reservation(match self.reservation {
                Reservation::Full => FULL_RESERVATION,
                Reservation::Small => SMALL_RESERVATION,
            })
            .gc_support(false)
            .shared_memory(false);
        for proposal in [
            WasmFeatures::CM_ASYNC,
            WasmFeatures::EXCEPTIONS,
            WasmFeatures::FUNCTION_REFERENCES,
            WasmFeatures::GC,
            WasmFeatures::MEMORY64,
            WasmFeatures::RELAXED_SIMD,
            WasmFeatures::TAIL_CALL,
            WasmFeatures::THREADS,
        ] {
            config.wasm_features(proposal, false);
        }
        config
    }

    /// An engine that can compile with these settings and is not meant to run anything.
    ///
    /// # Errors
    ///
    /// When wasmtime refuses the settings on this machine.
    pub fn compiling_engine(self) -> Result<Engine, wasmtime::Error> {
        Engine::new(&self.config())
    }
}

/// Says which compiled code fits which engine: equal keys, and only they, mean that it loads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CodeKey([u8; 32]);

impl CodeKey {
    /// The key of an engine.
    pub fn of(engine: &Engine) -> CodeKey {
        let mut hashing = Hashing(Sha256::new());
        CODE_VERSION.hash(&mut hashing);
        engine.precompile_compatibility_hash().hash(&mut hashing);
        CodeKey(hashing.0.finalize().into())
    }

    /// The key as bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for CodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CodeKey({:02x}{:02x}{:02x}{:02x}…)", self.0[0], self.0[1], self.0[2], self.0[3])
    }
}

/// Feeds what is hashed to SHA-256, because the standard hasher may differ from one process to the next.
struct Hashing(Sha256);

impl Hasher for Hashing {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0 // never asked: the whole digest is taken
    }
}

/// Refuses limits that no engine can keep.
///
/// # Errors
///
/// Names the limit that is above its cap.
pub fn check_caps(limits: &Limits) -> Result<(), AboveCap> {
    for (limit, asked, cap) in [
        (LimitKind::Memory, limits.memory, MAX_MEMORY),
        (LimitKind::TableElements, limits.table_elements, MAX_TABLE_ELEMENTS),
    ] {
        if asked > cap {
            return Err(AboveCap { limit, asked, cap });
        }
    }
    Ok(())
}

/// A limit is higher than any engine of this host can grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the limit {limit} is set to {asked}, but no run can have more than {cap}: set it to {cap} or less"
)]
pub struct AboveCap {
    /// Which limit.
    pub limit: LimitKind,
    /// What it was set to.
    pub asked: u64,
    /// The most that it can be.
    pub cap: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_that_changes_code_changes_the_key() {
        let mut keys = Vec::new();
        for metering in [Metering::None, Metering::Fuel] {
            for reservation in [Reservation::Full, Reservation::Small] {
                let settings = CodeSettings { metering, reservation };
                let (one, other) =
                    (settings.compiling_engine().unwrap(), settings.compiling_engine().unwrap());
                assert_eq!(CodeKey::of(&one), CodeKey::of(&other), "{settings:?}");
                keys.push(CodeKey::of(&one));
            }
        }
        keys.sort_by_key(|key| *key.as_bytes());
        keys.dedup();
        assert_eq!(keys.len(), 4);
    }

    #[test]
    fn limits_above_a_cap_are_refused_by_name() {
        assert_eq!(check_caps(&Limits::default()), Ok(()));
        let refused =
            check_caps(&Limits { memory: MAX_MEMORY + 1, ..Limits::default() }).unwrap_err();
        assert_eq!(refused.limit, LimitKind::Memory);
        let refused =
            check_caps(&Limits { table_elements: 1 << 20, ..Limits::default() }).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the limit table-elements is set to 1048576, but no run can have more than 65536: set it to 65536 or less"
        );
    }
}
