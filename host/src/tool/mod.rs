//! From the name of a tool to what answers it.
//!
//! A [`Toolbox`] is what one run may call. Each of its routes leads to one tool of one tool component, with the
//! grants, limits and configuration of that plugin; a call opens a node below the caller, checks the arguments
//! against the tool's schema, and runs the component in a store of its own.
//!
//! What holds:
//!
//! 1. A call ends with its caller, whatever it is doing (S3).
//! 2. A tool that fails, traps or runs out of something is a result that says so; the caller goes on.
//! 3. Arguments that do not fit the schema never reach the guest.
//! 4. What a schema can make a check cost is bounded, and no check that takes long is on a thread that a stop needs.
//!
//! Not here: who may call what (`plugin`), and what is shown of a call (`session`).

mod arguments;
mod budget;
mod name;
mod plugin_host;
mod toolbox;

pub use arguments::{Arguments, SchemaError};
pub use budget::Excess;
pub use name::{NameError, full_name};
pub use plugin_host::{Environment, LogSink, Plugged};
pub use toolbox::{ToolError, ToolPlugin, Toolbox};
