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
