//! The routes, one file for each thing that they are about.

mod carry;
mod control;
mod delegations;
mod events;
mod health;
mod metrics;
mod profiles;
mod schedules;
mod sessions;
mod sides;
mod stops;
mod tickets;
mod tree;
mod turns;

use super::api::Route;

/// All routes, in the order in which the description shows them.
pub(super) fn all() -> Vec<Route> {
    [
        health::routes(),
        metrics::routes(),
        profiles::routes(),
        schedules::routes(),
        sessions::routes(),
        carry::routes(),
        turns::routes(),
        sides::routes(),
        events::routes(),
        tickets::routes(),
        stops::routes(),
        delegations::routes(),
        tree::routes(),
        control::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
