//! The same tests with every guest in a process of its own: where a run is makes no difference to what the rules say of it.

use crate::delegation::{accepted, budgets, calls};
use crate::start::{Result, apart};
use crate::{agents_on_the_wire, charges, faults, hostile, limits, parking, stops};

/// Each test of the list once more.
macro_rules! again {
    ($($module:ident { $($name:ident),* $(,)? })*) => {$($(
        #[test]
        fn $name() -> Result {
            apart($module::$name)
        }
    )*)*};
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
        a_hard_stop_keeps_what_was_reported,
        a_stop_keeps_the_results_of_a_batch_that_had_come_back,
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
        nonsense_that_a_guest_returns_ends_its_own_run,
        a_panic_in_a_host_function_ends_that_run_only,
    }
    limits {
        many_memories_count_together,
        fuel_is_bounded,
        door_bytes_are_bounded_over_the_whole_run,
        call_bytes_are_bounded_in_both_directions,
        output_bytes_are_bounded,
        log_bytes_are_bounded_however_they_are_written,
        calls_in_flight_are_bounded,
        results_come_in_the_order_of_the_calls,
        model_tokens_are_bounded,
        model_tokens_count_whatever_becomes_of_the_answer,
        open_files_are_bounded,
        handles_are_bounded,
    }
    charges {
        requests_that_give_no_answer_are_charged_with_an_estimate,
        a_task_that_is_too_large_ends_the_run_with_the_limit,
    }
    hostile {
        a_guest_that_spins_after_it_reported_a_result,
        many_guests_that_spin,
        a_guest_that_ignores_soft_stops_and_retries_every_failure_for_ever,
        a_guest_that_sleeps_for_hours,
        a_flood_of_empty_calls_runs_until_it_is_stopped,
        a_guest_that_fills_all_its_memory_again_and_again,
        environment_and_secrets_are_those_that_were_given,
    }
    parking {
        an_agent_is_stopped_in_every_import_of_its_world,
    }
    agents_on_the_wire {
        a_tool_call_goes_out_and_its_result_comes_back_in_both_dialects,
        a_soft_stop_in_the_middle_of_a_stream_wraps_up_and_closes_the_connection,
    }
    accepted {
        an_accepted_unit_keeps_its_owner,
        a_persons_stop_reaches_the_turn_and_the_background,
        one_child_and_one_unit_can_be_stopped_by_name,
        an_agent_follows_its_own_units,
        a_wait_for_a_unit_can_be_interrupted,
        a_soft_stop_leaves_children_inside_the_call_their_time,
    }
    budgets {
        a_tree_of_runs_burns_no_more_fuel_than_its_root_was_given,
        fuel_that_was_not_burnt_comes_back,
        a_tree_of_runs_uses_no_more_tokens_than_its_root_was_given,
    }
    calls {
        children_inside_the_call_give_a_result_each,
        a_background_unit_outlives_its_turn_and_comes_back_as_one,
        a_run_learns_what_it_may_hand_out,
        a_child_sees_nothing_of_the_conversation,
    }
}
