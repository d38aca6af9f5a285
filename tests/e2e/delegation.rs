//! Delegation (rules A, H and C): what agents hand to others, and what becomes of it.

mod accepted;
mod budgets;
mod calls;
mod capacity;
mod rejected;
mod schedules;
mod support;
