//! Write agents and tools for checkrein: a struct, a trait and one macro line.
//!
//! checkrein runs agents and tools as WebAssembly components. A plugin holds nothing but its own memory: files, models,
//! other tools, the conversation and the clock belong to the host, which says what a plugin may touch and can stop it at
//! any time. This crate is the Rust side of a plugin. You write ordinary Rust, test it with `cargo test`, and build it
//! for the target `wasm32-wasip2`.
//!
//! This page is a tour. `docs/writing-a-plugin.md` in the repository is the same as a walk, from an empty folder to a
//! tool that a model calls.
//!
//! # The smallest agent
//!
//! ```
//! use checkrein_guest::prelude::*;
//!
//! #[derive(Default)]
//! struct Greeter;
//!
//! impl Agent for Greeter {
//!     fn run(&self, run: &Run) -> Result<String, Failure> {
//!         Ok(format!("Hello, {}!", run.task().goal))
//!     }
//! }
//!
//! agent!(Greeter);
//! # fn main() {}
//! ```
//!
//! An [`Agent`] gets a [`Run`], does its task and returns the final text. Everything it can ask for is a method of
//! `Run`: [the task](Run::task), [models](Run::complete), [tools](Run::tools), [children](Run::delegate),
//! [the conversation](Run::history), [a small memory](Run::memory_set), [events](Run::emit), [the log](Run::log).
//! Every run has an instance of its own, which is gone when the run ends.
//!
//! An agent that lets a model work is not much longer:
//!
//! ```
//! # use checkrein_guest::prelude::*;
//! #[derive(Default)]
//! struct Worker;
//!
//! impl Agent for Worker {
//!     fn run(&self, run: &Run) -> Result<String, Failure> {
//!         let mut request = Request::ask(run.task().goal).tools(run.tools()?);
//!         loop {
//!             let response = run.complete(&request)?;
//!             if response.tool_calls().is_empty() {
//!                 return Ok(response.message.text);
//!             }
//!             // All calls of one answer run at once.
//!             let results = run.call(response.tool_calls())?;
//!             request.messages.push(response.message);
//!             request.messages.extend(results.into_iter().map(Message::from));
//!         }
//!     }
//! }
//! # agent!(Worker);
//! # fn main() {}
//! ```
//!
//! # A tool
//!
//! ```
//! use checkrein_guest::prelude::*;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Arguments {
//!     /// The file to look at.
//!     path: String,
//!     /// Count only lines that contain this text.
//!     containing: Option<String>,
//! }
//!
//! struct CountLines;
//!
//! impl Tool for CountLines {
//!     const NAME: &str = "count-lines";
//!     const DESCRIPTION: &str = "Counts the lines of a text file.";
//!     const HINTS: &[Hint] = &[Hint::ReadOnly, Hint::Idempotent];
//!     type Arguments = Arguments;
//!
//!     fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
//!         let path = &arguments.path;
//!         let text = std::fs::read_to_string(path).context(format!("cannot read {path}"))?;
//!         let wanted = arguments.containing.as_deref().unwrap_or("");
//!         let lines = text.lines().filter(|line| line.contains(wanted)).count();
//!         Output::json(&json!({ "lines": lines }))
//!     }
//! }
//!
//! tools!(CountLines);
//! # fn main() {}
//! ```
//!
//! A [`Tool`] has a name, a description and typed arguments. The JSON Schema that a model reads is derived from the
//! arguments: names, types and doc comments of the fields; `Option` and `#[serde(default)]` mark what may be left out.
//! A component holds one tool or several: `tools!(List, Read, Write)`. The host puts the name of the plugin in front
//! of each: the tool `list` of the plugin `files` is `files_list` for an agent.
//!
//! Files, environment and sockets are those of `std`, as far as the grants of the plugin go. Without a grant there is no
//! directory to open and no address to connect to, and `std` says so with an ordinary error.
//!
//! # Configuration
//!
//! The table `[configuration]` of a plugin, after the operator has had a word, is a type of yours:
//!
//! ```
//! # use checkrein_guest::prelude::*;
//! #[derive(Deserialize)]
//! #[serde(default)]
//! struct Config {
//!     rounds: u32,
//!     language: Option<String>,
//! }
//!
//! impl Default for Config {
//!     fn default() -> Config {
//!         Config { rounds: 10, language: None }
//!     }
//! }
//!
//! # struct Show;
//! # impl Tool for Show {
//! #     const NAME: &str = "show";
//! #     const DESCRIPTION: &str = "Shows the configuration.";
//! #     type Arguments = NoArguments;
//! fn call(_: NoArguments, cx: &ToolContext) -> Result<Output, Failure> {
//!     let config: Config = cx.config()?;
//!     Ok(format!("{} rounds", config.rounds).into())
//! }
//! # }
//! # let test = checkrein_guest::testing::ToolTest::new();
//! # assert_eq!(test.call::<Show>(json!({})).unwrap(), "10 rounds");
//! ```
//!
//! # Secrets
//!
//! A tool asks for a secret by name: `cx.secret("weather-key")?`. The manifest asks for the grant, the operator gives the
//! value. Agents cannot read secrets at all, so no conversation with a model can talk one out of them; keys of models
//! stay in the host.
//!
//! # Failures
//!
//! There are two ways in which something goes wrong, and they are kept apart.
//!
//! - A call that does not do what was asked gives a [`Failure`]: a code to decide by, and a message for people and
//!   models. The plugin goes on. A failure that a tool returns is the result of the agent's call; a failure that an agent
//!   returns is the outcome of its run.
//! - What ends a plugin (a hard stop, a limit, a panic) never comes back as a value. There is nothing to catch.
//!
//! [`Context`] puts words in front of an error: say what was attempted and on what.
//!
//! # Stops
//!
//! Someone may ask a run to stop: a person, the parent run, the operator. A *soft* stop is a request. The call that
//! waits, or the next one that can wait, fails with the code `interrupted` and carries the [`Stop`]. From then on calls
//! work again until the grace period ends, so an agent can wrap up:
//!
//! ```
//! use checkrein_guest::prelude::*;
//!
//! #[derive(Default)]
//! struct Reader;
//!
//! impl Agent for Reader {
//!     fn run(&self, run: &Run) -> Result<String, Failure> {
//!         let mut notes = String::new();
//!         for page in 1..=100 {
//!             match read(run, page) {
//!                 Ok(note) => notes.push_str(&note),
//!                 Err(failure) if failure.is_interrupted() => {
//!                     // Calls work again, but not for long.
//!                     run.memory_set("page", page)?;
//!                     return Ok(format!("Stopped before page {page}. So far:\n{notes}"));
//!                 }
//!                 Err(failure) => return Err(failure),
//!             }
//!             run.partial(&notes)?;
//!         }
//!         Ok(notes)
//!     }
//! }
//!
//! fn read(run: &Run, page: u32) -> Result<String, Failure> {
//!     run.call_one("book_page", json!({ "number": page }))
//! }
//! # let report = checkrein_guest::testing::AgentTest::new("read")
//! #     .tool("book_page", |_| Ok("a note\n".to_owned()))
//! #     .stop_after(2, "enough")
//! #     .run::<Reader>();
//! # assert_eq!(report.text(), "Stopped before page 3. So far:\na note\na note\n");
//! # assert_eq!(report.memory_of::<u32>("page"), Some(3));
//! ```
//!
//! Passing the failure on with `?` is fine too, when there is nothing to report. An agent that computes for long asks
//! [`Run::stop_requested`] now and then. When the grace period is over, or when the stop was a *hard* one from the start,
//! the instance ends between two instructions; no destructor runs. What was reported with [`Run::partial`] is kept.
//!
//! # Delegation
//!
//! An agent hands tasks to children, which are runs with limits of their own:
//!
//! ```
//! # use checkrein_guest::prelude::*;
//! # #[derive(Default)]
//! # struct Editor;
//! # impl Agent for Editor {
//! fn run(&self, run: &Run) -> Result<String, Failure> {
//!     if run.task().depth > 0 {
//!         return Ok(run.task().goal.to_uppercase());
//!     }
//!     let chapters = ["one", "two", "three"];
//!     let tasks = chapters.map(|chapter| ChildTask::new(chapter).limit("wall-time", 60_000));
//!     let outcome = run.delegate(DelegateRequest::new(tasks.into()))?;
//!     Ok(outcome.results.into_iter().map(|result| result.output).collect::<Vec<_>>().join(" "))
//! }
//! # }
//! # let report = checkrein_guest::testing::AgentTest::new("edit")
//! #     .children(|task| Ok(task.goal.to_uppercase()))
//! #     .run::<Editor>();
//! # assert_eq!(report.text(), "ONE TWO THREE");
//! ```
//!
//! The children run at once, and the call returns when all have ended. With [`DelegateRequest::background`] it returns
//! when they are accepted; they outlive the run, and [`Run::delegations`], [`Run::wait`] and [`Run::stop`] reach them by
//! their ids. What ends later comes to the session as a turn whose input is an object with the key `delegation`.
//!
//! The manifest asks for it with `delegation = ["editor"]` under `[grants]`: the names of the agents that get tasks. A
//! host can refuse, so an agent does well to have another way; [`Run::delegation_capacity`] asks beforehand to whom and
//! how much. A child has a fresh context: its goal and its input, and an empty [`Run::history`].
//!
//! # Testing
//!
//! [`testing`] plays the host, natively: no WebAssembly, no server, no keys. See its page for tools, models, stops and
//! what a report holds.
//!
//! ```
//! # use checkrein_guest::prelude::*;
//! # #[derive(Default)]
//! # struct Greeter;
//! # impl Agent for Greeter {
//! #     fn run(&self, run: &Run) -> Result<String, Failure> {
//! #         Ok(format!("Hello, {}!", run.task().goal))
//! #     }
//! # }
//! use checkrein_guest::testing::AgentTest;
//!
//! let report = AgentTest::new("Ada").run::<Greeter>();
//! assert_eq!(report.text(), "Hello, Ada!");
//! ```
//!
//! # Building
//!
//! A plugin is a library crate of the type `cdylib`:
//!
//! ```toml
//! [package]
//! name = "greeter"
//! version = "0.1.0"
//! edition = "2024"
//!
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! checkrein-guest = "0.1"
//! # For the arguments of tools: the derives of the prelude need them by name.
//! schemars = "1"
//! serde = { version = "1", features = ["derive"] }
//!
//! [profile.release]
//! opt-level = "s"
//! lto = true
//! strip = true
//! panic = "abort"
//! codegen-units = 1
//! ```
//!
//! ```console
//! $ rustup target add wasm32-wasip2
//! $ cargo build --release --target wasm32-wasip2
//! ```
//!
//! The component is `target/wasm32-wasip2/release/greeter.wasm`. It imports what it uses of the package
//! `checkrein:plugin`, and WASI. A custom section `checkrein-sdk` names the version of this crate.
//!
//! # plugin.toml
//!
//! A manifest beside the component says what it is and what it asks for. Nothing is granted by default, and an operator
//! can give less than a manifest asks for.
//!
//! ```toml
//! name = "greeter"
//! version = "0.1.0"
//! kind = "agent"
//! component = "greeter.wasm"
//! description = "Greets whoever the task names."
//!
//! [grants]
//! tools = ["files_*"]
//!
//! [limits]
//! memory = "16MiB"
//!
//! [configuration]
//! rounds = 5
//! ```
//!
//! `checkrein plugin check greeter/` says whether a host would load it, and `checkrein run greeter/ Ada` runs it.

mod agent;
#[cfg(target_arch = "wasm32")]
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "generated code has rules of its own"
)]
mod bindings;
mod config;
mod delegate;
#[cfg(target_arch = "wasm32")]
mod door;
mod failure;
mod host;
mod log;
mod message;
mod model;
pub mod prelude;
mod run;
mod schema;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod tool;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use agent::Agent;
pub use delegate::{
    ChildTask, DelegateOutcome, DelegateRequest, DelegationCapacity, TaskResult, UnitStatus,
};
pub use failure::{Context, Failure, Stop};
pub use log::Level;
pub use message::{Message, ToolCall, ToolResult, ToolSpec};
pub use model::{Request, Response, Usage};
pub use run::{Budget, Run, Task};
pub use tool::{Hint, NoArguments, Output, Tool, ToolContext};

pub use {schemars, serde, serde_json};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
