//! The host: the only place that knows all parts, and what an embedder talks to.
//!
//! Not here: printing, the environment, signals (`cli`).

mod beside;
mod builder;
mod carry;
mod describe;
mod figures;
mod first_party;
mod guard;
mod home_store;
mod homes;
#[allow(clippy::module_inception, reason = "the room's main type has the room's name")]
mod host;
mod library;
mod loaded;
mod open;
mod profile;
mod program;
mod report;
mod schedules;
mod service;
mod setting;

pub use builder::{Compilation, HostBuilder};
pub use carry::Compacted;
#[cfg(feature = "server")]
pub(crate) use figures::Page;
pub use home_store::HomeStore;
pub use homes::{DATABASE, Homes, Served};
pub use host::Host;
pub use open::SessionBuilder;
pub use profile::{Profile, ProfileSettings};
pub use schedules::{Clock, SCHEDULES, ScheduleView, ScheduledRun, Schedules, SystemClock};
pub use service::{Service, ServiceSettings};
