//! The same tests with every guest in a process of its own: where a run is makes no difference to what the rules say of it.
//! Each test of this program is in one of two lists: it is repeated, or it is left out for the reason that stands beside it.

use std::collections::BTreeSet;
use std::process::Command;

use crate::start::Result;

/// Each test of the list once more, and the names of all of them.
macro_rules! again {
    ($($module:ident { $($name:ident),* $(,)? })*) => {
        $(mod $module {$(
            #[test]
            fn $name() -> crate::start::Result {
                crate::start::apart(super::modules::$module::$name)
            }
        )*})*

        fn repeated() -> Vec<&'static str> {
            vec![$($(std::any::type_name_of_val(&modules::$module::$name)),*),*]
        }
    };
}

/// Where they are.
mod modules {
    pub(super) use crate::delegation::{accepted, budgets, calls, capacity, rejected};
    pub(super) use crate::hostile::{files, network};
    pub(super) use crate::parking::wasi;
    pub(super) use crate::profiles::{retiring, schedules, shutting_down};
    pub(super) use crate::{
        agents_on_the_wire, charges, faults, hostile, limits, metrics, ownership, parking,
        side_runs, stops,
    };
}

again! {
    stops {
        each_call_that_waits_tells_of_a_soft_stop_once,
        the_first_call_that_waits_tells_of_a_stop_that_came_while_the_guest_computed,
        a_guest_that_asks_for_its_stop_has_observed_it,
        a_stop_before_the_start_is_visible_from_the_first_instruction,
        a_soft_stop_becomes_hard_when_its_grace_period_ends,
        a_guest_wraps_up_within_its_grace_period,
        a_tool_that_is_called_during_the_grace_period_answers_for_itself,
        a_grace_period_never_reaches_the_next_turn,
        the_first_message_of_a_kind_stays_and_hard_never_falls_back,
        a_stop_for_an_older_execution_is_refused_as_stale,
        a_prompt_to_a_busy_session_stops_nobody,
        a_hard_stop_keeps_what_was_reported,
        a_stop_keeps_the_results_of_a_batch_that_had_come_back,
        a_hard_stop_ends_the_model_request_and_keeps_its_text,
        a_soft_stop_ends_the_model_request_and_the_model_can_be_asked_again,
        what_a_stop_ends_is_ended_in_the_events_too,
        a_soft_stop_ends_the_tool_calls_that_the_guest_waits_for,
        shutting_down_stops_everything_and_nothing_new_begins,
        a_waiter_that_gives_up_stops_nobody,
    }
    faults {
        a_guest_that_traps_ends_its_own_run,
        a_guest_that_overflows_its_stack_ends_its_own_run,
        a_guest_that_runs_out_of_memory_ends_its_own_run,
        a_guest_that_exits_has_not_returned,
        a_failure_of_the_guest_is_not_a_fault,
        nonsense_that_a_guest_returns_ends_its_own_run,
        a_trap_in_any_place_ends_the_run,
        a_trap_in_any_place_of_a_tool_is_a_result_of_its_call,
        a_panic_in_a_host_function_ends_that_run_only,
        many_faults_at_one_time_leave_the_host_as_it_was,
    }
    limits {
        memory_is_the_sum_of_all_that_the_guest_has,
        many_memories_count_together,
        table_elements_are_bounded,
        fuel_is_bounded,
        wall_time_is_bounded_whatever_the_guest_does,
        door_bytes_are_bounded_over_the_whole_run,
        call_bytes_are_bounded_in_both_directions,
        output_bytes_are_bounded,
        log_bytes_are_bounded_however_they_are_written,
        calls_in_flight_are_bounded,
        results_come_in_the_order_of_the_calls,
        model_tokens_are_bounded,
        a_request_asks_for_no_more_tokens_than_are_left,
        model_tokens_count_whatever_becomes_of_the_answer,
        open_files_are_bounded,
        a_failure_that_a_refused_file_led_to_names_the_limit,
        handles_are_bounded,
        a_manifest_can_only_lower_a_ceiling,
    }
    charges {
        every_log_line_is_charged_with_a_frame,
        a_trap_is_put_down_to_a_limit_only_when_it_follows_from_it,
        the_end_of_the_time_after_a_soft_stop_is_an_interruption,
        requests_that_give_no_answer_are_charged_with_an_estimate,
        the_text_of_a_failure_is_bounded,
        a_task_that_is_too_large_ends_the_run_with_the_limit,
    }
    hostile {
        a_guest_that_spins,
        a_guest_that_spins_after_it_reported_a_result,
        many_guests_that_spin,
        a_guest_that_ignores_soft_stops_and_retries_every_failure_for_ever,
        a_guest_that_sleeps_for_hours,
        a_flood_of_empty_calls_runs_until_it_is_stopped,
        a_guest_that_recurses_without_end,
        bombs_of_memory_and_tables,
        huge_strings_and_lists_in_both_directions,
        arguments_that_make_no_sense,
        deeply_nested_values,
        a_guest_that_fills_all_its_memory_again_and_again,
        a_guest_that_spins_in_any_place,
        a_tool_that_spins_in_any_place,
        a_tool_that_spins_while_it_is_asked_what_it_is,
        a_guest_that_returns_to_a_run_that_was_stopped,
        environment_and_secrets_are_those_that_were_given,
    }
    files {
        a_guest_that_opens_every_file_it_can,
        paths_that_lead_out_of_the_folder,
        a_folder_that_was_given_for_reading_stays_as_it_is,
        fifos_and_devices_hold_nobody,
        devices_are_no_files,
        a_file_without_an_end,
    }
    network {
        private_addresses_are_out_of_reach_by_any_name,
        a_redirect_leads_no_further_than_the_grants,
        an_endless_body_ends_at_the_limit,
        a_server_that_does_not_go_on_holds_nobody,
    }
    parking {
        an_agent_is_stopped_in_every_import_of_its_world,
        a_tool_is_stopped_in_every_import_of_its_world,
    }
    wasi {
        a_guest_is_stopped_in_every_call_of_a_file,
        a_guest_is_stopped_in_a_loop_over_every_interface,
    }
    side_runs {
        a_side_run_is_stopped_with_its_session_and_not_with_the_turn,
        the_result_of_a_side_run_enters_the_conversation_when_somebody_says_so,
        an_aside_knows_the_conversation_and_changes_nothing,
        an_aside_that_nobody_waits_for_is_stopped_and_says_nothing,
        a_question_to_a_model_is_cancelled_with_whoever_asked_it,
        a_model_is_asked_about_the_conversation,
        a_side_run_that_dies_leaves_the_tree_and_is_reported_as_that,
        a_side_run_that_was_going_on_when_the_host_died_is_unknown,
        side_runs_leave_nothing_behind,
    }
    accepted {
        an_accepted_unit_keeps_its_owner,
        a_session_without_background_work_has_nothing_to_stop,
        a_persons_stop_reaches_the_turn_and_the_background,
        one_child_and_one_unit_can_be_stopped_by_name,
        the_stop_of_a_tree_reaches_every_level,
        an_agent_follows_its_own_units,
        a_wait_for_a_unit_can_be_interrupted,
        the_failure_of_a_background_child_is_told_at_once,
        a_unit_that_ignores_the_stop_of_its_agent_is_cut,
        a_shutdown_ends_background_units,
        a_soft_stop_leaves_children_inside_the_call_their_time,
    }
    budgets {
        a_tree_of_runs_burns_no_more_fuel_than_its_root_was_given,
        fuel_that_was_not_burnt_comes_back,
        a_task_names_its_own_limits,
        a_tree_of_runs_uses_no_more_tokens_than_its_root_was_given,
        a_tree_of_runs_has_no_more_time_than_its_root,
        a_tree_of_runs_starts_no_more_children_than_its_root_may,
        permissions_only_narrow,
    }
    calls {
        children_inside_the_call_give_a_result_each,
        a_background_unit_outlives_its_turn_and_comes_back_as_one,
        a_completion_wakes_its_session,
        what_a_person_has_stopped_wakes_nobody,
        a_session_does_not_keep_itself_awake_for_ever,
        a_session_that_cannot_receive_later_runs_everything_inside,
        a_run_learns_what_it_may_hand_out,
        a_run_learns_that_there_is_no_background,
        a_child_sees_nothing_of_the_conversation,
        refusals_come_before_anything_is_built,
        long_failures_are_cut_and_no_result_is_lost,
        a_unit_that_is_named_many_times_is_answered_once,
        a_soft_stop_ends_the_search_for_an_agent,
    }
    capacity {
        units_wait_in_line_in_order,
        a_unit_in_line_can_be_cancelled,
        nobody_in_the_background_waits_in_line,
        refused_children_use_up_nothing,
        a_unit_in_line_can_run_out_of_time,
        a_full_house_answers_by_its_policy,
        the_units_of_a_call_share_a_slot,
        a_failure_at_any_point_of_admission_gives_everything_back,
        a_rejected_first_unit_decides_for_the_whole_call,
    }
    rejected {
        capacity_running_soft,
        capacity_running_hard,
        capacity_admission_soft,
        capacity_admission_hard,
        scheduler_running_soft,
        scheduler_running_hard,
        scheduler_admission_soft,
        scheduler_admission_hard,
        partial_running_soft,
        partial_running_hard,
        partial_admission_soft,
        partial_admission_hard,
    }
    ownership {
        a_host_that_goes_says_so_to_whoever_wants_to_begin,
        a_stop_of_the_background_leaves_the_turn_alone,
        a_stop_of_a_session_brings_back_what_there_was,
    }
    metrics {
        runs_are_counted_by_how_they_ended,
        fuel_is_that_of_the_reports,
        stops_are_counted_where_they_arrive_and_timed_where_they_end,
        models_and_tools_are_counted_by_what_they_answered,
        admissions_and_refusals_are_counted_with_their_reasons,
        no_name_can_leave_its_label,
    }
    retiring {
        a_profile_is_released_when_its_work_has_physically_ended_and_not_before,
        a_stuck_profile_holds_up_none_of_the_others,
        a_profile_whose_side_runs_have_died_is_released_at_once,
    }
    shutting_down {
        a_drain_waits_for_every_kind_of_work,
        a_turn_that_was_admitted_and_not_started_ends_interrupted,
    }
    schedules {
        a_scheduled_run_is_a_turn_that_counts_and_can_be_stopped,
        a_run_that_was_cut_is_interrupted_and_comes_once,
        a_run_whose_background_was_cut_is_no_success,
        runs_do_not_overlap_unless_asked_to,
        a_standing_session_is_the_same_each_time,
        a_reload_starts_nothing_twice,
    }
    agents_on_the_wire {
        a_tool_call_goes_out_and_its_result_comes_back_in_both_dialects,
        a_stream_that_breaks_stalls_or_makes_no_sense_fails_the_turn_and_keeps_its_text,
        a_call_that_is_no_json_is_answered_and_the_turn_goes_on,
        an_answer_that_breaks_off_is_billed,
        a_stream_that_breaks_in_the_second_round_leaves_the_account_of_the_first,
        a_hard_stop_in_the_middle_of_a_stream_closes_the_connection,
        a_soft_stop_in_the_middle_of_a_stream_wraps_up_and_closes_the_connection,
        a_key_that_the_endpoint_sends_back_is_told_to_nobody,
        a_model_without_its_key_is_asked_nothing,
    }
}

/// Modules and tests that are not repeated, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "api",
        "the daemon is another process; which of its guests have processes its configuration says, as in `load`",
    ),
    (
        "charges::fuel_is_seen_to_burn_while_a_guest_spins",
        "a process tells what it has burnt with its next call, and one that spins makes none",
    ),
    (
        "churn",
        "counts threads, files and memory of this process; `load` kills processes of guests at random",
    ),
    (
        "command",
        "tests what the command reads and prints; `workers::settings` has what it reads of isolation",
    ),
    (
        "delegation::schedules",
        "looks at the tree after every step, as fast as it can: it is about orders of events, and those of processes are slower",
    ),
    ("doctor", "runs no guest"),
    (
        "durable",
        "what is recorded is said by the host; a host that dies takes its processes along, for which `workers::crashes` has a real one",
    ),
    (
        "first_party",
        "its agents and tools have no import that the guests of the other tests have not",
    ),
    (
        "hostile::a_compilation_without_an_end_is_stopped",
        "a component is compiled before it has a place, in a process of its own anyway",
    ),
    (
        "hostile::a_component_that_lies_about_its_sdk_version",
        "a component is compiled before it has a place, in a process of its own anyway",
    ),
    (
        "hostile::a_component_that_takes_for_ever_to_compile",
        "a component is compiled before it has a place, in a process of its own anyway",
    ),
    (
        "hostile::a_component_with_thousands_of_imports",
        "a component is compiled before it has a place, in a process of its own anyway",
    ),
    (
        "hostile::components_with_a_few_wrong_bytes",
        "a component is compiled before it has a place, in a process of its own anyway",
    ),
    (
        "hostile::floods_end_at_their_limits",
        "takes a minute; `limits` has each of its limits once more",
    ),
    ("hostile::kit::alone_in_its_process", "counts threads, files and memory of this process"),
    (
        "hostile::kit::nothing_is_left_after_any_hostile_guest",
        "counts threads, files and memory of this process",
    ),
    (
        "hostile::network::a_name_that_is_public_and_private_is_only_what_is_public",
        "has names looked up by the test, which a process does itself",
    ),
    ("killed", "has a profile whose guests have processes itself"),
    ("languages", "compiles for minutes, and the imports are the same"),
    (
        "limits::arguments_are_checked_before_a_call_takes_a_place",
        "fills the places of this process; `workers::settings` fills those for processes",
    ),
    ("load", "has a profile whose guests have processes itself"),
    (
        "metrics::live_work_is_what_the_tree_holds",
        "names each node, of which a process is one more; `workers::counted` counts those",
    ),
    ("model_wire", "asks models without a guest"),
    (
        "ownership::a_turn_and_a_worker_of_one_session_are_one_piece_of_work",
        "has its processes itself",
    ),
    (
        "ownership::the_ids_of_a_turn_and_its_tools_outlive_them",
        "names each node, of which a process is one more; `workers::counted` counts those",
    ),
    (
        "ownership::work_has_one_owner_and_what_is_counted_is_listed_and_stopped",
        "names each node, of which a process is one more; `workers::counted` counts those",
    ),
    (
        "parking::an_agent_with_fuel_is_stopped_in_every_import_of_its_world",
        "its imports are those of the one without fuel, which is repeated",
    ),
    (
        "parking::wasi::a_guest_is_stopped_wherever_it_waits_for_others",
        "has names looked up by the test, which a process does itself",
    ),
    ("parking::wasi::every_function_of_wasi_has_a_place", "runs no guest"),
    ("parking::wasi::what_of_wasi_is_absent_is_refused", "runs no guest"),
    ("profiles::dropped", "stops what is in a profile as retiring it does, which is repeated"),
    ("profiles::late", "holds the threads for blocking calls of this process"),
    ("profiles::processes", "has its processes itself"),
    ("profiles::reloading", "is about what the host reads and loads, which no process does"),
    (
        "profiles::retiring::a_home_is_served_by_one_process",
        "starts a process of the test that holds a lock",
    ),
    ("profiles::retiring::a_ticket_is_good_once_and_for_a_profile_that_is_served", "runs no guest"),
    (
        "profiles::retiring::the_count_in_the_home_follows_the_work",
        "names each kind of node, of which a process is one more; `workers::counted` counts those",
    ),
    ("profiles::schedules::a_run_that_cannot_start_is_refused_with_the_reason", "runs no guest"),
    ("profiles::schedules::a_wrong_schedule_is_refused_with_its_place", "runs no guest"),
    ("profiles::service", "has its processes itself"),
    (
        "profiles::shutting_down::what_never_ends_is_named_and_left_alone",
        "names each node that is left, of which a process is one more; `profiles::service` leaves one",
    ),
    (
        "profiles::shutting_down::what_outlives_the_drain_is_cut_with_the_callers_reason",
        "names each kind of node, of which a process is one more; `profiles::service` drains one",
    ),
    ("profiles::started", "is about the service, and runs no guest"),
    ("recorded", "is about the command and its home"),
    (
        "side_runs::a_closed_or_full_session_lets_no_side_run_in",
        "counts nodes, of which a process is one more; `workers::counted` counts those",
    ),
    (
        "side_runs::what_is_recorded_has_the_ends_of_side_runs",
        "is about what the host records once a run is gone, wherever that was",
    ),
    (
        "stops::a_stop_reaches_the_tool_calls_of_the_turn_and_nothing_outside",
        "names each node, of which a process is one more; `workers::counted` counts those",
    ),
    ("telemetry", "is about what the host sends of a run"),
    ("tokens", "runs no guest"),
    ("workers", "has its processes itself"),
];

/// Whether a name is that of a test or of the module that it is in.
fn is_in(test: &str, of: &str) -> bool {
    test.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[test]
fn every_test_is_repeated_or_left_out_for_a_reason() -> Result {
    let listed =
        Command::new(std::env::current_exe()?).args(["--list", "--format", "terse"]).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let tests: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let repeated: BTreeSet<&str> =
        repeated().into_iter().filter_map(|name| Some(name.split_once("::")?.1)).collect();
    anyhow::ensure!(tests.is_superset(&repeated), "{:?}", repeated.difference(&tests));
    for test in tests.into_iter().filter(|test| !is_in(test, "apart")) {
        let reasons = LEFT_OUT.iter().filter(|(of, _)| is_in(test, of)).count();
        let again = usize::from(repeated.contains(test));
        anyhow::ensure!(reasons + again == 1, "{test} is in {again} and {reasons} lists");
    }
    Ok(())
}
