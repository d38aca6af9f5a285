//! From the bytes of a component to code that an engine can run, without trusting the component.
//!
//! ```text
//! bytes ─ small enough, a component? ─ loaded already? ─ in the cache on disk? ─ child process compiles ─ loaded
//! ```
//!
//! What holds:
//!
//! 1. Hostile bytes are compiled in a process of its own with limits of memory and time, never more of them at once
//!    than the settings say. It is work in the tree until it has been reaped; a stop of that, or that nobody waits for it any
//!    more, kills it.
//! 2. The only machine code that is ever loaded is an [`OwnCode`](code::OwnCode): it comes straight from our
//!    compiler, or from a cache entry that carries a keyed checksum which only we could have made.
//! 3. What is checked is what is loaded: a cache entry is read once into memory, and that copy is both.
//! 4. Loads of the same component at the same time share one compilation.
//! 5. A cache that cannot be trusted or used costs time, never correctness: without it everything is compiled.
//!
//! Why the child is trusted although it reads hostile bytes: it is our own program, started by us with pipes that
//! nobody else holds, and its answer is exactly as trustworthy as compiling in this process would be. A compiler that
//! a component can trick is as bad there as here; the child only makes it possible to end one that does not end.
//!
//! Not here: what a component may import, and whether it fits a world. That needs a linker.

mod cache;
mod child;
mod code;
mod compiler;
mod digest;
mod frame;
mod kind;
mod loader;
#[cfg(test)]
mod tests;

pub use cache::{Cache, CacheError};
pub use child::child_main;
pub use compiler::{CompileError, CompileLimits, Compiler};
pub use digest::Digest;
pub use kind::Found;
pub(in crate::sandbox) use loader::load_from_parent;
pub use loader::{LoadError, LoadFigures, Loader};
