//! Delegation (rules A, H and C): what agents hand to others, and what becomes of it.

mod calls;
mod rejected;
mod support;
