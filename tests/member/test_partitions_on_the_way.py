"""Nothing is added while a heartbeat is on its way that says the member does not have it."""

from __future__ import annotations

from kip848_client.member.events import FailureKind
from tests.support.member_harness import INTERVAL_MS, MemberHarness


def _empty_acknowledgement_on_its_way() -> MemberHarness:
    """A member whose first, empty assignment is acknowledged while t-0 was given to it already."""
    harness = MemberHarness()
    harness.join({})
    harness.poll()
    harness.advance(INTERVAL_MS)
    harness.answer_heartbeat(epoch=1, assignment={"t": [0]})
    harness.finish_call("assigned")
    acknowledgement = harness.expect_heartbeat()
    assert acknowledgement.topic_partitions == ()
    return harness


def test_a_partition_is_not_taken_while_an_acknowledgement_without_it_is_on_its_way() -> None:
    """Else two members read one partition: should the target move before the acknowledgement arrives, the coordinator
    reads it as "I do not have it" and gives the partition to somebody else at once.
    """
    harness = _empty_acknowledgement_on_its_way()
    harness.poll()
    assert harness.calls == []


def test_the_answer_to_the_acknowledgement_lets_the_next_run_begin() -> None:
    """The wait is one round trip, not an interval."""
    harness = _empty_acknowledgement_on_its_way()
    harness.answer_heartbeat(epoch=1)
    harness.poll()
    harness.finish_call("assigned", "t-0")
    assert harness.owned == ["t-0"]


def test_what_the_answer_takes_away_is_never_taken() -> None:
    """The partition went to another member meanwhile; our application must not hear of it."""
    harness = _empty_acknowledgement_on_its_way()
    harness.answer_heartbeat(epoch=2, assignment={})
    harness.poll()
    assert harness.calls == []
    assert harness.owned == []


def test_a_lost_acknowledgement_does_not_block_for_ever() -> None:
    """After a failure the next heartbeat is full and on its way as well; its answer lets the run begin."""
    harness = _empty_acknowledgement_on_its_way()
    harness.fail_heartbeat(FailureKind.TIMED_OUT)
    harness.advance(INTERVAL_MS)
    harness.answer_heartbeat(epoch=1, assignment={"t": [0]})
    harness.poll()
    harness.finish_call("assigned", "t-0")
    assert harness.owned == ["t-0"]


def _run_waiting_for_its_listener_while_a_full_heartbeat_left(*, revoke: bool) -> MemberHarness:
    """Owns t-0; a run towards more waits for a listener, the heartbeat fails, and a full one without t-1 is sent."""
    harness = MemberHarness()
    harness.become_stable({"t": [0]})
    target = {"t": [1]} if revoke else {"t": [0, 1]}
    harness.advance(INTERVAL_MS)
    harness.answer_heartbeat(epoch=2, assignment=target)
    harness.poll()
    harness.advance(INTERVAL_MS)
    harness.fail_heartbeat(FailureKind.TIMED_OUT)
    harness.advance(INTERVAL_MS)
    harness.expect_heartbeat(full=True)
    return harness


def test_a_run_that_was_contradicted_starts_over_before_it_adds() -> None:
    """The full heartbeat said that t-1 is not ours; the coordinator may have given it away by now."""
    harness = _run_waiting_for_its_listener_while_a_full_heartbeat_left(revoke=True)
    harness.finish_call("revoked", "t-0")
    harness.poll()
    assert harness.calls == []
    harness.answer_heartbeat(epoch=2, assignment={"t": [1]})
    harness.poll()
    harness.finish_call("assigned", "t-1")
    assert harness.owned == ["t-1"]


def test_a_partition_in_doubt_is_read_only_once_the_coordinator_answered() -> None:
    """Its callback ran already, but nobody reads it before it is certain whose it is."""
    harness = _run_waiting_for_its_listener_while_a_full_heartbeat_left(revoke=False)
    harness.finish_call("assigned", "t-1")
    assert harness.readable == ["t-0"]
    harness.answer_heartbeat(epoch=2, assignment={"t": [0, 1]})
    assert harness.readable == ["t-0", "t-1"]


def test_a_partition_that_the_answer_leaves_out_is_not_read_when_its_callback_returns() -> None:
    """The callback took long: meanwhile a full heartbeat without t-1 was answered, and t-1 belongs to somebody else."""
    harness = _run_waiting_for_its_listener_while_a_full_heartbeat_left(revoke=False)
    harness.answer_heartbeat(epoch=3, assignment={"t": [0]})
    harness.finish_call("assigned", "t-1")
    assert harness.readable == ["t-0"]
    harness.poll()
    harness.finish_call("revoked", "t-1")
    assert harness.owned == ["t-0"]


def test_a_failed_heartbeat_leaves_the_doubt() -> None:
    """It may have arrived: whose t-1 is, only the answer to a later one tells."""
    harness = _run_waiting_for_its_listener_while_a_full_heartbeat_left(revoke=False)
    harness.finish_call("assigned", "t-1")
    harness.fail_heartbeat(FailureKind.TIMED_OUT)
    assert harness.readable == ["t-0"]
    harness.advance(INTERVAL_MS)
    harness.answer_heartbeat(epoch=2, assignment={"t": [0, 1]})
    assert harness.readable == ["t-0", "t-1"]


def test_nothing_is_added_between_a_failed_acknowledgement_and_the_next_answer() -> None:
    """The failed one may have arrived, and t-0 may have been given away because of it."""
    harness = _empty_acknowledgement_on_its_way()
    harness.fail_heartbeat(FailureKind.TIMED_OUT)
    harness.poll()
    assert harness.calls == []


def test_a_second_try_of_a_callback_waits_for_the_answer_too() -> None:
    """The first on_partitions_assigned raised; a full heartbeat without t-1 left in between."""
    harness = _run_waiting_for_its_listener_while_a_full_heartbeat_left(revoke=False)
    harness.finish_call("assigned", "t-1", error=RuntimeError("no"))
    harness.poll()
    assert harness.calls == []
    harness.answer_heartbeat(epoch=2, assignment={"t": [0, 1]})
    harness.poll()
    harness.finish_call("assigned", "t-1")
    assert harness.readable == ["t-0", "t-1"]
