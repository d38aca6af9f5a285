//! Unit tests of agents and tools without WebAssembly.
//!
//! A plugin is ordinary Rust. On the target that your tests run on, this module stands where the host would stand:
//! it hands out the task, plays the model and the tools from a script, lets a stop arrive where you want it, and
//! keeps what the plugin did. It exists on every target but `wasm32`.
//!
//! # A tool
//!
//! [`ToolTest`] holds configuration and secrets, and calls a tool with JSON, as a host would.
//!
//! ```
//! use checkrein_guest::prelude::*;
//! use checkrein_guest::testing::ToolTest;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Arguments {
//!     /// The name of the person.
//!     name: String,
//! }
//!
//! #[derive(Deserialize)]
//! struct Config {
//!     greeting: String,
//! }
//!
//! struct Greet;
//!
//! impl Tool for Greet {
//!     const NAME: &str = "greet";
//!     const DESCRIPTION: &str = "Greets a person by name.";
//!     type Arguments = Arguments;
//!
//!     fn call(arguments: Arguments, cx: &ToolContext) -> Result<Output, Failure> {
//!         let config: Config = cx.config()?;
//!         Ok(format!("{}, {}!", config.greeting, arguments.name).into())
//!     }
//! }
//!
//! let test = ToolTest::new().config("greeting", "Good day");
//! assert_eq!(test.call::<Greet>(json!({"name": "Ada"})).unwrap(), "Good day, Ada!");
//!
//! let failure = test.call::<Greet>(json!({"nome": "Ada"})).unwrap_err();
//! assert_eq!(failure.code, Failure::INVALID);
//! ```
//!
//! # An agent
//!
//! [`AgentTest`] is the script of one run; [`Report`] is what came of it.
//!
//! ```
//! use checkrein_guest::prelude::*;
//! use checkrein_guest::testing::AgentTest;
//!
//! /// Lets a model work with the tools until it is done.
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
//!             let results = run.call(response.tool_calls())?;
//!             request.messages.push(response.message);
//!             request.messages.extend(results.into_iter().map(Message::from));
//!         }
//!     }
//! }
//!
//! let report = AgentTest::new("How many lines has the list?")
//!     .tool("files_read", |arguments| {
//!         assert_eq!(arguments["path"], "/work/list");
//!         Ok("one\ntwo\n".to_owned())
//!     })
//!     .model_calls([("files_read", json!({"path": "/work/list"}))])
//!     .model_says("Two.")
//!     .run::<Worker>();
//!
//! assert_eq!(report.text(), "Two.");
//! assert_eq!(report.requests[1].messages[2].text, "one\ntwo\n");
//! ```
//!
//! # A stop
//!
//! [`AgentTest::stop_after`] lets a soft stop arrive after so many calls that can wait; the next one fails with the code
//! `interrupted`, as in a real run. [`AgentTest::grace`] says how many calls the agent has left then.
//!
//! ```
//! # use checkrein_guest::prelude::*;
//! # use checkrein_guest::testing::AgentTest;
//! /// Counts to ten, and says how far it came.
//! #[derive(Default)]
//! struct Counter;
//!
//! impl Agent for Counter {
//!     fn run(&self, run: &Run) -> Result<String, Failure> {
//!         for number in 1..=10 {
//!             match run.sleep(Duration::from_secs(1)) {
//!                 Err(failure) if failure.is_interrupted() => return Ok(format!("came to {}", number - 1)),
//!                 other => other?,
//!             }
//!             run.progress(&number.to_string())?;
//!         }
//!         Ok("done".to_owned())
//!     }
//! }
//!
//! let report = AgentTest::new("count").stop_after(3, "enough").run::<Counter>();
//! assert_eq!(report.text(), "came to 3");
//! assert_eq!(report.progress(), ["1", "2", "3"]);
//! ```

mod agent;
mod fake;
mod report;
mod tool;

pub use agent::AgentTest;
pub use report::{End, Report};
pub use tool::ToolTest;
