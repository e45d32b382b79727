//! The contract of the storage, on every backend: `sqlite::commit::a_key_is_stored_once`.

mod admit;
mod at_once;
mod beat;
mod channel;
mod clock;
mod commit;
mod fence;
mod inbox;
mod instance;
pub mod kit;
mod letter;
pub mod outcome;
mod prune;
mod recount;
mod registry;
mod replica;
mod statistics;
mod tidy;
mod token;
pub mod told;

/// Every case as a test of a backend, and of a file of version 0.1 that was brought up to date. A
/// case that is not listed is dead code, which clippy reports.
macro_rules! cases {
    (on $backend:ident: $($topic:ident { $($case:ident)* })*) => {
        mod $backend {
            $(mod $topic { $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    if let Some(place) = crate::place::Place::$backend().await {
                        crate::storage::$topic::$case(place).await;
                    }
                }
            )* })*
        }
    };
    ($($cases:tt)*) => {
        cases! { on sqlite: $($cases)* }
        cases! { on postgres: $($cases)* }
        cases! { on sqlite_v0_1: $($cases)* }
    };
}

cases! {
    commit {
        a_plain_life
        a_key_is_stored_once
        a_key_comes_twice_in_a_group
        a_key_comes_twice_in_a_submission
        another_handle_recognises_a_key
        a_key_with_another_payload_is_counted
        content_of_the_hour_before_is_the_same_event
        content_of_the_hour_before_in_the_same_group
        what_was_stored_is_there_after_opening_again
        positions_follow_submissions_and_items
        positions_have_no_gaps_among_writers
        a_group_in_any_order_of_keys
        a_refused_group_stores_nothing
        times_are_of_the_store
        everything_that_text_can_hold
        nothing_to_store
    }
    fence {
        an_older_epoch_stores_nothing
        another_instance_at_the_same_epoch_stores_nothing
        the_same_hold_passes_again
        a_newer_epoch_passes_and_is_remembered
        an_epoch_is_announced_without_items
        the_newest_of_a_group_counts_first
        of_two_at_one_epoch_the_first_counts
        duties_are_apart
        a_neighbour_of_what_is_fenced_is_stored
        a_reset_forgets_and_is_noted
        fences_are_listed_by_name
        a_token_reaches_the_fences_of_its_own_source
        a_fence_without_a_source_counts_for_every_one
        an_epoch_that_no_store_grants_is_refused
        the_fences_of_a_source_are_bounded
    }
    channel {
        the_list_begins_with_what_is_published
        a_channel_is_replaced_as_it_was_seen
    }
    inbox {
        a_message_has_everything
        pages_lead_to_the_end
        an_exact_page_is_at_the_end
        each_filter_filters
        filters_go_together
        a_bounded_number_is_looked_at
        a_page_ends_with_its_bytes
        behind_the_end
        found_trimmed_or_nothing
        readers_see_positions_in_order
        a_cursor_names_its_message
        a_cursor_outlives_its_message
        a_restore_is_noticed_by_the_cursor
        an_adopted_inbox_goes_on_far_above
    }
    letter {
        a_letter_is_kept_once
        a_letter_as_it_was_posted
        a_letter_needs_its_token
        a_letter_needs_its_fence
        a_letter_remembers_its_fence
        a_letter_ends_once
        letters_are_listed_oldest_first
        letters_of_one_source
        letters_by_error_and_time
        a_letter_that_is_refused_again_stays_pending
        pending_letters_are_counted
    }
    token {
        a_token_as_it_was_made
        a_token_takes_over_from_one_that_is_there
        a_hash_has_one_token
        a_token_is_revoked_once
        an_expired_token_is_revoked_for_good
        tokens_that_ended_open_nothing
        an_ended_token_stores_nothing
        an_ended_token_moves_no_fence
        an_ended_token_decides_nothing
        an_ended_token_keeps_nobody_else_out
        usage_adds_up
        the_trail_is_newest_first
        another_handle_sees_tokens_at_once
    }
    admit {
        a_good_token_is_admitted
        an_ended_token_is_told_and_not_counted
        the_limit_is_exact_for_one_after_another
        the_limit_is_exact_for_many_at_once
        the_window_ends
        failures_never_keep_out_good_tokens_of_the_address
        addresses_are_apart
    }
    prune {
        bodies_and_keys_apart
        positions_go_on_after_everything_is_gone
        a_key_lives_on_while_it_is_seen
        a_key_past_its_retention_is_new
        a_key_outlives_its_message
        only_letters_that_ended
        addresses_whose_window_is_over
        a_step_is_bounded
        nothing_to_take
    }
    beat {
        the_first_beat_registers
        beats_add_what_was_done_since
        names_are_apart
        a_late_beat_changes_nothing
        what_is_newer_in_one_way_is_not_late
        a_clock_that_was_ahead_silences_nobody
        a_clock_that_is_always_ahead_makes_nothing_newer
        the_first_and_the_last_time
        a_counter_that_goes_down_begins_again
        a_jump_by_a_unix_time_is_left_out
        sums_end_where_numbers_do
        what_could_not_be_written_is_owed
        a_checkpoint_stays_until_another_is_told
        what_an_instance_can_do_stays
        the_interval_follows_the_gaps
        an_ended_token_beats_for_nobody
        a_token_registers_a_few
        a_token_registers_a_few_at_once
    }
    instance {
        the_one_that_started_later_stands
        the_earliest_start_counts
        equal_starts_change_nobody
        a_silent_instance_gives_way
        a_slow_instance_may_be_silent_for_longer
        a_stopping_instance_gives_way
        ten_instances_at_once
    }
    at_once {
        everything_at_once
    }
    registry {
        the_history_page_by_page
        an_operator_registers
        pages_are_in_the_order_of_bytes
        connectors_of_one_endpoint
        archived_connectors_are_apart
        a_beat_takes_it_back
        a_deleted_connector_leaves_nothing
        names_in_the_trail_are_apart
        the_types_of_an_endpoint
        today_is_of_the_stores_clock
        a_hundred_instances_are_shown
        fields_of_a_newer_version_stay
        a_damaged_more_is_an_error
    }
    statistics {
        the_first_interval_of_an_hour_counts
        a_restart_never_gives_a_negative_hour
        hours_and_days_by_arrival
        late_beats_count_nowhere
        the_uptime_of_a_day
        each_beat_counts_once
        a_step_of_counting_is_bounded
        an_older_epoch_counts_nothing
        a_clock_that_steps_freezes_nothing
        periods_grow_and_shrink
        sums_are_of_everybody
        counting_does_not_overflow
        a_connector_is_counted_again
        two_count_at_once
    }
    outcome {
        outcomes_are_noted_once
        fanout_counts_who_has_acknowledged
        a_deleted_connector_fans_out_no_more
        outcomes_alone_are_counted
    }
    tidy {
        what_is_not_counted_is_kept
        beats_are_kept_for_whole_days
        hours_days_and_the_rest_have_their_time
        an_outcome_is_as_old_as_its_last_news
        periods_shrink_by_what_was_kept
        a_step_of_tidying_is_bounded
    }
    clock {
        the_clock_follows_at_twice_the_speed
        the_clock_is_moved_by_one_at_a_time
        a_clock_that_is_ahead_deletes_nothing
        what_arrives_under_a_clock_that_is_behind_is_not_old
        a_clock_that_is_behind_changes_nothing
        what_came_before_an_old_message_goes_unless_it_is_young
        a_clock_that_was_ahead_keeps_nobody_alive
    }
    recount {
        statistics_equal_a_recount
    }
    replica {
        a_replica_is_found_until_it_ends
        a_replica_that_is_not_seen_is_gone
        a_replica_of_an_older_version_is_refused
    }
}
