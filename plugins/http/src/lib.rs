//! The tool `fetch`: requests to web servers, within limits of time, size and redirects.
//!
//! Which servers can be reached is up to the host, which checks every request, also those that follow a redirect.

mod answer;
mod charset;
mod exchange;
mod fetch;
mod transport;
#[cfg(target_arch = "wasm32")]
mod wasi;

pub use fetch::Fetch;

checkrein_guest::tools!(Fetch);
