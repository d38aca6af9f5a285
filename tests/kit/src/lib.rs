//! What every test of checkrein starts from: a real host on a home of its own, real guests, and ways to wait for a
//! moment without sleeping.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use checkrein_testkit::{Plugin, TestHost, guest};
//!
//! # let program = "";
//! // let program = env!("CARGO_BIN_EXE_checkrein");
//! let host = TestHost::builder(program).plugin(Plugin::agent("agent", guest("agent"))).build()?;
//! let session = host.session("agent").await?;
//! let turn = session.prompt("checkpoint here\nsay done", "")?;
//! host.reached("here").await?;
//! host.release("here");
//! assert_eq!(turn.ended().await.output, "done");
//! host.is_idle()?;
//! # Ok(())
//! # }
//! ```
//!
//! The guests are in `tests/guests`; what they can do is written at the top of each. What Rust cannot say is there as
//! text, for [`wat()`].

mod admissions;
mod checkpoints;
mod clock;
mod guests;
mod host;
mod logs;
mod mortal;
mod plugin;
mod process;
mod random;
mod wait;
pub mod wire;
mod wit;

pub use admissions::Admissions;
pub use checkpoints::Places;
pub use clock::TestClock;
pub use guests::{guest, neighbour_answer, wat};
pub use host::{TestHost, TestHostBuilder};
pub use logs::{Line, Logs};
pub use mortal::Mortal;
pub use plugin::Plugin;
pub use process::{Footprint, alone};
pub use random::Random;
pub use wait::{PATIENCE, within};
pub use wit::{World, imports, wasi};
