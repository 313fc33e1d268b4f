"""Committed offsets and starting positions: cases that no rule of docs/protocol.md names."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.errors import AuthenticationError, TopicAuthorizationError
from kip848_client.member.core.events import FailureKind, ListOffsets, PositionSet, RequestFailed, SurfaceError
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.spec.arrange import fetches, looking_up
from tests.support.member_harness import GROUP, MemberHarness, partition

T0, T1 = (NamedPartition("t", index) for index in range(2))


@pytest.mark.parametrize("timestamp", [-1, -2])
def test_a_seek_to_the_beginning_or_the_end_is_looked_up(timestamp: int) -> None:
    """At once, though an earlier question failed: the fetcher is only ever given offsets that exist."""
    member = looking_up()
    member.answer_fetch(errors={"t-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    member.step(PositionSet(T0, OffsetAndMetadata(timestamp)))
    assert member.take_waiting(ListOffsets).timestamps == {T0: timestamp}


def test_a_seek_on_a_partition_that_is_not_owned_is_ignored() -> None:
    """It was revoked while the call was on its way."""
    member = looking_up()
    member.step(PositionSet(NamedPartition("t", 7), OffsetAndMetadata(5)))
    assert member.history == []


def test_missing_permission_is_told_and_retried() -> None:
    """An ACL that is added later starts the partition without a restart."""
    member = looking_up()
    member.answer_fetch(errors={"t-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, TopicAuthorizationError)
    assert surfaced.error.topics == ("t",)
    assert member.member.deadline_ms() == member.now_ms + 100
    member.advance(100)
    member.answer_fetch({"t-0": 1})
    assert member.history[-1] == "fetch(t-0@1)"


def test_each_error_names_the_partitions_that_it_is_about() -> None:
    """An administrator who grants what the error names must not be sent to other topics."""
    member = looking_up({"t": [0], "u": [0]})
    codes = {"t-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "u-0": ErrorCode.UNKNOWN_SERVER_ERROR}
    member.answer_fetch(errors=codes)
    unknown, denied = (effect.error for effect in member.emitted(SurfaceError))
    assert isinstance(denied, TopicAuthorizationError)
    assert denied.topics == ("t",)
    assert "t-0" not in str(unknown)
    call = member.committed("t-0", "u-0")
    member.answer_fetch({"u-0": 5}, errors={"t-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert member.fetch_result(call).offsets == {}


def test_a_partition_that_joins_others_waits_as_long_as_they() -> None:
    """With a back-off of its own it would make them two requests again."""
    member = looking_up()
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.answer_fetch(errors={"t-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    member.clock.advance(100)
    member.finish_call("assigned", "t-1")
    assert fetches(member) == [["t-0", "t-1"]]
    member.answer_fetch(errors=dict.fromkeys(("t-0", "t-1"), ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert member.member.deadline_ms() == member.now_ms + 200


def test_partitions_without_a_commit_are_left_out() -> None:
    """A partition without a commit must not look like one that is committed at offset 0."""
    member = looking_up()
    member.answer_fetch({"t-0": 1})
    call = member.committed("t-0", "t-1")
    member.answer_fetch({"t-1": 4})
    assert member.fetch_result(call).offsets == {partition("t-1"): OffsetAndMetadata(4)}


def test_committed_of_nothing_needs_no_request() -> None:
    """``committed([])`` returns at once, even while no coordinator is known."""
    member = MemberHarness(coordinator_found=False)
    call = member.committed()
    assert member.fetch_result(call).offsets == {}
    assert not member.sent


def test_authentication_that_fails_ends_committed() -> None:
    """A wrong password does not get better by waiting."""
    member = looking_up()
    member.answer_fetch({"t-0": 1})
    call = member.committed("t-0")
    member.fail(OffsetFetchRequest, FailureKind.AUTHENTICATION_FAILED)
    assert isinstance(member.fetch_result(call).error, AuthenticationError)


def test_a_consumer_without_a_group_fetches_without_an_epoch() -> None:
    """``committed()`` works before the first poll(), when there is no member epoch yet."""
    member = MemberHarness()
    member.committed("t-0")
    (request,) = member.requests(OffsetFetchRequest)
    assert (request.groups[0].member_id, request.groups[0].member_epoch) == (None, -1)
    assert member.take(OffsetFetchRequest).max_version == 9


def test_a_broken_connection_is_retried_by_committed() -> None:
    """The coordinator moved in the middle of the call."""
    member = looking_up()
    member.answer_fetch({"t-0": 1})
    member.advance(500)
    call = member.committed("t-0")
    member.fail(OffsetFetchRequest)
    assert fetches(member) == []
    member.advance(100)
    member.answer_fetch({"t-0": 2})
    assert member.fetch_result(call).error is None


def test_an_answer_by_topic_id_is_understood() -> None:
    """OffsetFetch version 10 names topics by id only; their offsets would be lost."""
    member = looking_up()
    partitions = (OffsetFetchResponsePartitions(0, 15), OffsetFetchResponsePartitions(9, 99))
    topic = OffsetFetchResponseTopics("", member.topic_ids["t"], partitions)
    member.answer(OffsetFetchRequest, OffsetFetchResponse(groups=(OffsetFetchResponseGroup(GROUP, (topic,)),)))
    assert member.history[-1] == "fetch(t-0@15)"


def test_partitions_that_failed_apart_are_asked_for_apart() -> None:
    """The first must not wait for the last."""
    member = looking_up({"t": [0, 1]})
    member.step(PositionSet(T1, OffsetAndMetadata(-1)))
    member.answer_fetch(errors={"t-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    member.advance(50)
    member.step(RequestFailed(member.take_waiting(ListOffsets).request_id, FailureKind.TIMED_OUT, "scripted"))
    assert member.member.deadline_ms() == member.now_ms + 50


def test_a_lookup_without_callers_is_not_retried() -> None:
    """After a seek() the committed offset is not needed any more, and not asked for again."""
    member = looking_up()
    member.step(PositionSet(T0, OffsetAndMetadata(99)))
    member.answer_fetch(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(500)
    assert not member.requests(OffsetFetchRequest)


def test_a_kept_partition_with_a_new_position_starts_there() -> None:
    """``assign()`` with an offset moves a partition that is already being read to that offset."""
    member = MemberHarness()
    member.assign({T0: OffsetAndMetadata(5)})
    member.forget_history()
    member.assign({T0: OffsetAndMetadata(50)})
    assert member.history == ["stop(t-0)", "fetch(t-0@50)"]


def test_unassign_and_unsubscribe_stop_everything() -> None:
    """A lookup that goes on would start to fetch a partition that was given up."""
    for end in ("unassign", "unsubscribe"):
        member = MemberHarness()
        member.assign({T0: OffsetAndMetadata(5), T1: None})
        if end == "unassign":
            member.assign({})
        else:
            member.leave()
            assert member.history[-1] == "left"
        assert "stop(t-0,t-1)" in member.history
        assert member.owned == []
        if member.requests(OffsetFetchRequest):
            member.answer_fetch({"t-1": 5})
        assert "fetch(t-1@5)" not in member.history


def test_a_seek_after_assign_is_the_position() -> None:
    """assign(), then seek(), before the committed offset is known."""
    member = MemberHarness()
    member.assign({T0: None})
    member.step(PositionSet(T0, OffsetAndMetadata(33)))
    assert member.history[-1] == "fetch(t-0@33)"
