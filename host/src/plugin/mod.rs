//! Plugins: what each says about itself, what it may touch, and where it is found.
//!
//! ```text
//!   plugin.toml ──► Manifest ─────────┐
//!   --config FILE ─► Configuration ─► Given ──► decide ──► Effective ──► Reach, Limits (sandbox)
//!   --dir PATH ───► DirectoryArgument ┘            └─────► Finding for each request
//!
//!   [plugins.NAME] path │ plugin-directories │ Embedded ──► Catalogue ──► Plugin ──► Component
//! ```
//!
//! What holds:
//!
//! 1. Nothing is granted by default. What a plugin gets is never more than its manifest asks for and never
//!    more than the operator gives; a manifest can only lower the limits ([`decide`]).
//! 2. Manifests and components come from strangers. Reading them is bounded in size, never waits, never
//!    leaves the plugin's folder, and never shows a control character of theirs.
//! 3. A key that nothing reads is refused, with its place and the key that was probably meant.
//! 4. A broken plugin does not hide the others, and no other one takes its name.
//!
//! Not here: loading a component into an engine (`sandbox`), the tools in it (`tool`), what a `[models]` table
//! says (`model`), and reading the environment (`cli`).

mod amounts;
mod catalogue;
mod configuration;
mod directory_argument;
mod document;
mod file;
mod grants;
mod hosts;
mod limits;
mod manifest;
mod names;
mod package;
mod patterns;
mod print;
mod schedules;
mod secrets;
mod settings;
mod text;

#[cfg(test)]
mod tests;

pub use amounts::{Bound, Count, Grace, Size, Time};
pub(crate) use catalogue::subfolders;
pub use catalogue::{Broken, Catalogue, Hidden, NoPlugin};
pub use configuration::{
    CompileTable, Configuration, ConfigurationError, DelegationTable, Granted, GrantedDirectory,
    PluginTable, RatesTable, SandboxTable, ServeTable, StopTable, StoreTable, TelemetryTable,
};
pub use directory_argument::{DirectoryArgument, DirectoryArgumentError};
pub use document::{DocumentError, Refusal};
pub use file::FileError;
pub use grants::{Decision, Effective, Finding, Given, Standing, Subject, Verdict, decide};
pub use hosts::{HostEntry, HostError, HostPattern};
pub use limits::{LimitsTable, shown_limit};
pub use manifest::{
    ComponentPath, Description, FILE_NAME, Interface, Kind, Manifest, ManifestError, Requested,
    RequestedDirectory, RequestedMount,
};
pub use names::{ModelName, Mount, Name, NameError, ScheduleName, SecretName, Variable, Version};
pub use package::{Component, Digest, Embedded, Plugin, PluginError, Source};
pub use patterns::{Pattern, PatternError, Patterns};
pub(crate) use print::{Print, files_of};
pub use schedules::{ScheduleSession, ScheduleTable};
pub use secrets::{SecretError, SecretSource};
pub use settings::Settings;
pub use text::{Place, printable};
