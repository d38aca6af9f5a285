//! Machine code that we may load, and the loading of it: the only unsafe call of the project.
#![allow(
    unsafe_code,
    reason = "loading machine code is a promise about where it came from, which no compiler can check"
)]

use std::ops::Range;

use wasmtime::Engine;
use wasmtime::component::Component;

/// Machine code that our own compiler made and that nobody could change since.
///
/// There are three ways to have one, each of which is a promise, and all are in this room.
#[derive(Debug)]
pub(super) struct OwnCode {
    bytes: Vec<u8>,
    code: Range<usize>,
}

impl OwnCode {
    /// Code that this process compiled, or its child did and sent back through a pipe of its own.
    pub(super) fn from_compiler(bytes: Vec<u8>) -> OwnCode {
        OwnCode { code: 0..bytes.len(), bytes }
    }

    /// Code that the process which started this one had loaded itself, and sent through a pipe of its own.
    pub(super) fn from_parent(bytes: Vec<u8>) -> OwnCode {
        OwnCode { code: 0..bytes.len(), bytes }
    }

    /// Code from a cache entry whose keyed checksum was verified over exactly these bytes.
    pub(super) fn from_verified_entry(bytes: Vec<u8>, code: Range<usize>) -> OwnCode {
        OwnCode { bytes, code }
    }

    /// The code.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.code.clone()]
    }

    /// Loads it into an engine, which checks that it was compiled for such an engine.
    pub(super) fn load(&self, engine: &Engine) -> Result<Component, wasmtime::Error> {
        // SAFETY: the bytes must be what `Engine::precompile_component` gave, unchanged. All constructors promise
        // that. The bytes are in memory of our own behind a shared reference, and wasmtime copies them before it
        // looks at them, so that nothing outside can change what is loaded during or after the call.
        unsafe { Component::deserialize(engine, self.as_bytes()) }
    }
}
