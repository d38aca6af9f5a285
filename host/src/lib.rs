//! A host that runs third-party AI agents and tools as WebAssembly components, where a stop is certain.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

pub mod delegation;
pub mod error;
mod host;
pub mod ids;
pub mod message;
pub mod metrics;
pub mod model;
pub mod plugin;
pub mod profile;
pub mod sandbox;
pub mod schedule;
pub mod secret;
#[cfg(feature = "server")]
pub mod server;
pub mod session;
pub mod store;
pub mod tool;
pub mod work;

pub use error::{Error, ErrorKind};
pub use host::{
    Clock, Compacted, Compilation, DATABASE, HomeStore, Homes, Host, HostBuilder, Profile,
    ProfileSettings, SCHEDULES, ScheduleView, ScheduledRun, Schedules, Served, Service,
    ServiceSettings, SessionBuilder, SystemClock,
};

/// What the child process runs that compiles components: one component from standard input, its code to standard
/// output. An embedder who chooses [`Compilation::Child`] calls it from the program named there.
pub fn compile_child() -> std::process::ExitCode {
    sandbox::child_main(std::io::stdin(), std::io::stdout())
}

/// What the process of one run does where a plugin has `isolation = "process"`: the run, between its standard input and
/// output. An embedder calls it from the program that [`HostBuilder::workers`] names.
pub fn worker_child() -> std::process::ExitCode {
    sandbox::worker_main(std::io::stdin(), std::io::stdout())
}
