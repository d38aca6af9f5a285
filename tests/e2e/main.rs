//! End-to-end tests: the library and the command as their users meet them, with real components.

mod command;
mod faults;
mod hostile;
mod languages;
mod limits;
mod model_wire;
mod start;
mod stops;
