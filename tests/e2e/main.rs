//! End-to-end tests: the library and the command as their users meet them, with real components.

#![allow(clippy::disallowed_methods, reason = "a test may start threads and read its environment")]

mod agents_on_the_wire;
mod apart;
mod api;
mod charges;
mod churn;
mod command;
mod delegation;
mod doctor;
mod durable;
mod faults;
mod first_party;
mod hostile;
mod killed;
mod languages;
mod limits;
mod load;
mod metrics;
mod model_wire;
mod ownership;
mod parking;
mod profiles;
mod recorded;
mod side_runs;
mod start;
mod stops;
mod tokens;
mod workers;
