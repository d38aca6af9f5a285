//! Delegation (rules A, H and C): what agents hand to others, and what becomes of it.

pub(crate) mod accepted;
pub(crate) mod budgets;
pub(crate) mod calls;
pub(crate) mod capacity;
pub(crate) mod rejected;
mod schedules;
mod support;
