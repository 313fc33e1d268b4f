"""What crosses from the event loop to the consumer's thread and back, with the tests of the synchronous `Consumer`.

The two consumers share everything behind that crossing: membership, commits, reading and their rules are not tested
again. What crosses is in `CROSSING`: records, positions, calls from inside of listeners, callbacks, errors and the end.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Final

import pytest

from tests.interop.client import (
    test_closing,
    test_committing,
    test_consuming,
    test_handing_over,
    test_lifecycle,
    test_logs,
    test_pausing,
    test_porting,
    test_rebalancing,
    test_values,
)

pytestmark = pytest.mark.interop

CROSSING: Final[dict[ModuleType, tuple[str, ...]]] = {
    # Records go to the task that asks, in order, and come back when their partition goes.
    test_consuming: (
        "one_consumer_reads_every_record_in_order",
        "poll_hands_out_the_same_records_one_by_one",
        "iteration_ends_when_the_consumer_is_closed",
        "a_manual_assignment_reads_without_a_group",
        "seek_inside_assigned_decides_where_to_start",
        "assign_inside_assigned_means_start_there",
        "seek_while_reading_moves_the_position",
        "lag_and_positions_tell_how_far_behind",
        "without_a_reset_policy_the_application_is_told",
        "poll_without_a_subscription_says_what_is_missing",
    ),
    test_logs: ("the_log_of_a_new_user_on_a_full_topic_answers_why_nothing_is_read",),
    test_pausing: ("records_of_a_resumed_partition_keep_their_order",),
    test_values: (
        "a_failing_deserialiser_raises_and_keeps_the_position",
        "a_callable_gets_what_cannot_be_opened",
    ),
    # Commits: arguments, results, callbacks, time limits.
    test_committing: (
        "a_message_and_explicit_offsets_are_committed_as_given",
        "an_asynchronous_commit_reports_to_its_callback",
        "an_asynchronous_commit_that_is_refused_for_good_is_raised_later",
        "on_commit_of_the_configuration_hears_of_every_commit",
        "a_synchronous_commit_gives_up_at_its_time",
        "records_in_the_prefetch_buffer_are_not_committed",
        "close_commits_what_was_consumed_unless_told_otherwise",
        "group_metadata_carries_the_epoch_of_now",
    ),
    test_porting: (
        "a_commit_without_arguments_commits_what_is_stored",
        "pausing_what_is_not_assigned_is_left_out",
        "credentials_can_only_be_replaced_where_there_are_some",
        "the_cluster_has_an_id",
    ),
    # Listeners: they run inside of a call, and may call in turn.
    test_rebalancing: (
        "calls_from_inside_a_listener_never_hang",
        "a_commit_inside_revoked_counts_and_one_inside_lost_fails",
        "an_error_in_assigned_comes_out_of_poll_and_is_tried_again",
        "no_record_is_delivered_between_lost_and_assigned",
        "a_slow_listener_does_not_cost_the_membership",
        "a_consumer_that_does_not_poll_leaves_and_comes_back",
        "a_poll_that_waits_longer_than_the_poll_interval_is_a_poll",
        "taking_records_from_the_buffer_counts_as_polling",
        "unsubscribe_gives_everything_back_and_subscribe_joins_again",
        "close_returns_in_time_although_the_broker_is_gone",
        "close_without_time_still_leaves",
        "nothing_of_a_revoked_partition_is_delivered_after_the_run_began",
        "without_a_listener_one_poll_is_a_whole_run",
    ),
    # The end: of a membership, of a consumer, of a process.
    test_closing: (
        "a_second_close_does_nothing",
        "subscribing_to_nothing_is_unsubscribing",
        "a_closed_consumer_says_that_it_is",
        "close_with_asynchronous_commits_and_no_coordinator",
        "unsubscribe_without_a_coordinator_returns",
        "a_slow_revoked_callback_at_close_keeps_its_place_in_the_group",
    ),
    test_handing_over: ("a_consumer_reads_on_until_the_others_are_ready_and_then_gives_up_everything",),
    test_lifecycle: (
        "no_thread_and_no_socket_is_left_after_close",
        "after_fork_the_prefetch_buffer_is_not_handed_out_twice",
    ),
}
"""Module of the synchronous tests -> names of those that are run again, without their ``test_``."""

for _module, _names in CROSSING.items():
    for _name in _names:
        _test = getattr(_module, f"test_{_name}")
        assert "make_consumer" in inspect.signature(_test).parameters, f"{_name} makes its own"
        globals()[f"test_{_name}"] = _test
del _module, _test
