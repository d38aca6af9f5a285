//! The kit of hostile guests as a whole: what there is, and that after each of them the process is as it was before.

use anyhow::ensure;
use checkrein_testkit::{Footprint, PATIENCE, alone};

use super::{files, network};
use crate::faults;
use crate::start::Result;

type Test = fn() -> Result;

/// Each kind of harm that is known, and the tests that do it beside a neighbour.
const KIT: [(&str, &[Test]); 26] = [
    ("spin", &[super::a_guest_that_spins, super::many_guests_that_spin]),
    ("spin after reporting a result", &[super::a_guest_that_spins_after_it_reported_a_result]),
    (
        "ignore soft stops; catch and retry every failure for ever",
        &[super::a_guest_that_ignores_soft_stops_and_retries_every_failure_for_ever],
    ),
    (
        "floods of log lines, events and output",
        &[
            super::floods_end_at_their_limits,
            super::a_flood_of_empty_calls_runs_until_it_is_stopped,
        ],
    ),
    ("recursion without bounds", &[super::a_guest_that_recurses_without_end]),
    ("bombs of memory, of many memories, of tables", &[super::bombs_of_memory_and_tables]),
    (
        "huge strings and lists in both directions",
        &[super::huge_strings_and_lists_in_both_directions],
    ),
    ("deeply nested values", &[super::deeply_nested_values]),
    (
        "memory.fill over all it may have",
        &[super::a_guest_that_fills_all_its_memory_again_and_again],
    ),
    (
        "a trap in every export, and in a destructor",
        &[
            faults::a_trap_in_any_place_ends_the_run,
            faults::a_trap_in_any_place_of_a_tool_is_a_result_of_its_call,
        ],
    ),
    (
        "spin in every place",
        &[super::a_guest_that_spins_in_any_place, super::a_tool_that_spins_in_any_place],
    ),
    ("return to a run that was stopped", &[super::a_guest_that_returns_to_a_run_that_was_stopped]),
    ("sleep for hours", &[super::a_guest_that_sleeps_for_hours]),
    ("open every file it can", &[files::a_guest_that_opens_every_file_it_can]),
    ("symlinks and `..` that lead out", &[files::paths_that_lead_out_of_the_folder]),
    (
        "FIFOs, devices and /proc",
        &[files::fifos_and_devices_hold_nobody, files::devices_are_no_files],
    ),
    ("a file that grows without end", &[files::a_file_without_an_end]),
    ("HTTP to private addresses", &[network::private_addresses_are_out_of_reach_by_any_name]),
    ("redirects to them", &[network::a_redirect_leads_no_further_than_the_grants]),
    (
        "dripping and endless bodies",
        &[
            network::an_endless_body_ends_at_the_limit,
            network::a_server_that_does_not_go_on_holds_nobody,
        ],
    ),
    (
        "names that resolve to both",
        &[network::a_name_that_is_public_and_private_is_only_what_is_public],
    ),
    (
        "probing of environment and secrets",
        &[super::environment_and_secrets_are_those_that_were_given],
    ),
    (
        "malformed UTF-8 and other nonsense",
        &[faults::nonsense_that_a_guest_returns_ends_its_own_run],
    ),
    (
        "a component that takes seconds to compile",
        &[
            super::a_component_that_takes_for_ever_to_compile,
            super::a_compilation_without_an_end_is_stopped,
        ],
    ),
    ("a component with thousands of imports", &[super::a_component_with_thousands_of_imports]),
    ("a lie about the SDK's version", &[super::a_component_that_lies_about_its_sdk_version]),
];

/// What is counted here is counted for a whole process, so the other tests must not be in it.
#[test]
fn nothing_is_left_after_any_hostile_guest() -> Result {
    alone("hostile::kit::alone_in_its_process")
}

#[ignore = "run by the test above, in a process of its own"]
#[test]
fn alone_in_its_process() -> Result {
    let bare = Footprint::now()?;
    // What is made once in a process is made here.
    for (_, tests) in KIT {
        tests[0]()?;
    }
    let before = settled(|now| now.threads <= bare.threads)?;
    let is_gone = |now: &Footprint| {
        now.threads <= before.threads
            && now.files <= before.files
            && now.mappings <= before.mappings + 100
            && now.resident <= before.resident + (24 << 20)
    };
    for (harm, tests) in KIT {
        for test in tests {
            test()?;
        }
        let after = settled(is_gone)?;
        println!("{harm}: {before:?} then {after:?}");
        ensure!(is_gone(&after), "{harm}: {before:?} {after:?}");
    }
    Ok(())
}

/// Waits for threads that were told to end, and for what goes with them.
fn settled(is_gone: impl Fn(&Footprint) -> bool) -> Result<Footprint> {
    let began = std::time::Instant::now();
    loop {
        let now = Footprint::now()?;
        if is_gone(&now) || began.elapsed() > PATIENCE / 6 {
            return Ok(now);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
