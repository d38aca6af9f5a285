//! Random numbers: those of wasmtime-wasi, with a bound on how many a guest gets at once.

use wasmtime::bail;
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};

use super::state::WasiState;

/// Random bytes of one call.
const RANDOM_BYTES: u64 = 1 << 20;

impl WasiState {
    /// The interface has no error for this, so a guest that asks for too much ends.
    fn charge_random(&self, len: u64) -> wasmtime::Result<()> {
        if len > RANDOM_BYTES {
            bail!(
                "the guest asked for {len} random bytes at once; a call gives at most {RANDOM_BYTES}"
            );
        }
        self.gate.charge(len as usize)
    }
}

impl random::Host for WasiState {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.charge_random(len)?;
        random::Host::get_random_bytes(self.random(), len)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        random::Host::get_random_u64(self.random())
    }
}

impl insecure::Host for WasiState {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.charge_random(len)?;
        insecure::Host::get_insecure_random_bytes(self.random(), len)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        insecure::Host::get_insecure_random_u64(self.random())
    }
}

impl insecure_seed::Host for WasiState {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        insecure_seed::Host::insecure_seed(self.random())
    }
}
