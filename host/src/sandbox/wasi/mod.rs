//! WASI 0.2 as guests see it: every interface is linked for every component, nothing is granted unless the run's
//! [`Reach`](crate::sandbox::reach::Reach) says so, and every call passes the [`Gate`].
//!
//! ```text
//!   guest ─ call ─▶ link (names the interface to the gate) ─▶ WasiState ─┬─ io           streams and polls; charges every byte
//!                                                                        ├─ cli          environment, output, exit
//!                                                                        ├─ clocks, random
//!                                                                        ├─ filesystem   cap-std, on the gate's pool
//!                                                                        ├─ sockets      connect only ┐
//!                                                                        └─ http         one request  ┴─ network: who may be reached
//! ```
//!
//! 1. Nothing here spawns or blocks a thread but through the gate, so what a run has at work is always counted.
//! 2. What a guest holds lives in one resource table; dropping the [`WasiState`] ends all of it.
//! 3. A path is resolved beneath its grant only, and what is opened is a regular file or a directory.
//! 4. A connection goes to an address that was checked, never to a name.
//! 5. What a guest may not do gives it the error code that its interface has for that. Only a used-up budget ends it.
//!
//! Not here: listening sockets, UDP (both answer `access-denied`) and `wasi:http/incoming-handler`, which is an export.

mod address;
mod cli;
mod filesystem;
mod gate;
mod http;
mod io;
mod link;
mod network;
mod random;
mod sockets;
mod state;
#[cfg(test)]
mod testing;

pub(crate) use gate::{Closed, FilePermit, Gate, Place, Places, Task};
pub(crate) use http::Answer;
pub(crate) use link::{HasWasi, INTERFACES, add_to_linker};
pub use network::Names;
pub(crate) use state::{Outside, WasiState};
