//! Tests of the stores: one contract for all of them, and what each has of its own.

mod contract;
mod crash;
mod export;
mod failures;
mod migrations;
mod model;
mod talk;
mod tidy;
