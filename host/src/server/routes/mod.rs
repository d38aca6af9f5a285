//! The routes, one file for each thing that they are about.

mod control;
mod delegations;
mod events;
mod health;
mod profiles;
mod sessions;
mod stops;
mod tree;
mod turns;

use super::api::Route;

/// All routes, in the order in which the description shows them.
pub(super) fn all() -> Vec<Route> {
    [
        health::routes(),
        profiles::routes(),
        sessions::routes(),
        turns::routes(),
        events::routes(),
        stops::routes(),
        delegations::routes(),
        tree::routes(),
        control::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
