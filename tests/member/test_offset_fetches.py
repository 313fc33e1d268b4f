"""Committed offsets and starting positions: a failure is never an offset, and nobody starts twice."""

from __future__ import annotations

import pytest

from kip848_client.error_codes import ErrorCode
from kip848_client.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    FencedError,
    NoOffsetForPartitionError,
    RequestTimeoutError,
    TopicAuthorizationError,
)
from kip848_client.member.events import (
    CallAbandoned,
    FailureKind,
    ListOffsets,
    OffsetsFetched,
    OffsetsListed,
    PositionLost,
    PositionSet,
    RequestFailed,
    SurfaceError,
)
from kip848_client.member.settings import ResetPolicy
from kip848_client.model import OffsetAndMetadata, TopicPartition
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.member_harness import GROUP, INTERVAL_MS, MEMBER_ID, MemberHarness, partition

T0 = TopicPartition("t", 0)


def assigned(assignment: dict[str, list[int]] | None = None, **settings: object) -> MemberHarness:
    """A member that just acknowledged its first assignment: its OffsetFetch is under way."""
    member = MemberHarness(settings=settings)
    member.join(assignment or {"t": [0]})
    member.reconcile()
    member.answer_heartbeat()
    member.forget_history()
    return member


def fetches(member: MemberHarness) -> list[list[str]]:
    return [
        [f"{topic.name}-{index}" for topic in request.groups[0].topics or () for index in topic.partition_indexes]
        for request in member.requests(OffsetFetchRequest)
    ]


# ---------------------------------------------------------------------------------------------------------- committed


def test_the_fetch_names_the_member_and_waits_for_transactions() -> None:
    """The epoch keeps a removed member from reading positions it must not act on; stable offsets are what counts."""
    member = assigned()
    (request,) = member.requests(OffsetFetchRequest)
    group = request.groups[0]
    assert (group.member_id, group.member_epoch, request.require_stable) == (MEMBER_ID, 1, True)


def test_a_committed_offset_is_the_start() -> None:
    """Nothing is skipped, nothing is read twice."""
    member = assigned()
    member.answer_fetch({"t-0": 42})
    assert member.history == ["fetch(t-0@42)"]


def test_the_metadata_of_the_application_comes_back() -> None:
    """committed() returns what commit() was given."""
    member = assigned()
    member.answer_fetch({"t-0": 42})
    call = member.committed("t-0")
    member.answer_fetch({"t-0": 42})
    assert member.fetch_result(call).offsets == {T0: OffsetAndMetadata(42)}


@pytest.mark.parametrize(("policy", "timestamp"), [(ResetPolicy.EARLIEST, -2), (ResetPolicy.LATEST, -1)])
def test_without_a_committed_offset_the_policy_decides(policy: ResetPolicy, timestamp: int) -> None:
    """A new group starts where auto.offset.reset says."""
    member = assigned(auto_offset_reset=policy)
    member.answer_fetch()
    assert member.take_waiting(ListOffsets).timestamps == {T0: timestamp}


def test_the_policy_none_asks_the_application() -> None:
    """It is raised by poll(); a commit or a seek cures it."""
    member = assigned(auto_offset_reset=ResetPolicy.NONE)
    member.answer_fetch()
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, NoOffsetForPartitionError)
    assert surfaced.error.partitions == ("t-0",)
    member.step(PositionSet(T0, OffsetAndMetadata(3)))
    assert member.history[-1] == "fetch(t-0@3)"


def test_a_commit_cures_the_policy_none_too() -> None:
    """The application commits a start in its error handler."""
    member = assigned(auto_offset_reset=ResetPolicy.NONE)
    member.answer_fetch()
    member.advance(1000)
    member.answer_fetch({"t-0": 9})
    assert member.history[-1] == "fetch(t-0@9)"
    assert len(member.emitted(SurfaceError)) == 1


def test_a_stale_epoch_never_leads_to_the_reset_policy() -> None:
    """Elsewhere this silently skipped millions of records when a group grew."""
    member = assigned()
    for _ in range(5):
        member.answer_fetch(error=ErrorCode.STALE_MEMBER_EPOCH)
        member.advance(1000)
        while member.requests(ConsumerGroupHeartbeatRequest):
            member.answer_heartbeat()
    member.answer_fetch({"t-0": 1234})
    assert not member.waiting
    assert member.history[-1] == "fetch(t-0@1234)"


def test_a_stale_epoch_is_retried_with_the_epoch_of_that_moment() -> None:
    """The old one can only be stale again (KAFKA-20765)."""
    member = assigned()
    member.answer_fetch(error=ErrorCode.STALE_MEMBER_EPOCH)
    member.answer_heartbeat(epoch=8)
    member.advance(100)
    (request,) = member.requests(OffsetFetchRequest)
    assert request.groups[0].member_epoch == 8


def test_a_stale_fetch_of_a_consumer_that_left_fails() -> None:
    """There is no newer epoch to come."""
    member = assigned()
    member.answer_fetch({"t-0": 1})
    call = member.committed("t-0")
    late = member.take(OffsetFetchRequest)
    member.leave()
    member.finish_call("revoked", "t-0")
    member.sent.append(late)
    member.answer_fetch(error=ErrorCode.STALE_MEMBER_EPOCH)
    assert isinstance(member.fetch_result(call).error, FencedError)


def test_an_unknown_member_is_not_reset() -> None:
    """It will hear of its removal through the heartbeat, which goes out at once."""
    member = assigned()
    member.answer_fetch(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert not member.waiting
    assert not member.emitted(SurfaceError)
    member.expect_heartbeat()


def test_a_pending_transaction_is_waited_for() -> None:
    """Its outcome decides where to start."""
    member = assigned({"t": [0, 1]})
    member.answer_fetch({"t-1": 5}, errors={"t-0": ErrorCode.UNSTABLE_OFFSET_COMMIT})
    assert member.history == []
    member.advance(100)
    assert fetches(member) == [["t-0", "t-1"]]


def test_partitions_added_during_a_lookup_get_their_own() -> None:
    """Elsewhere they took the reset path, and lost their committed offsets (KAFKA-17674)."""
    member = assigned()
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.finish_call("assigned", "t-1")
    assert fetches(member) == [["t-0"], ["t-1"]]
    member.answer_fetch({"t-0": 5})
    member.answer_fetch({"t-1": 6})
    assert not member.waiting
    assert member.history[-2:] == ["fetch(t-0@5)", "fetch(t-1@6)"]


def test_an_answer_for_a_partition_that_is_gone_is_dropped() -> None:
    """Fetching it would deliver records of somebody else."""
    member = assigned({"t": [0, 1]})
    member.assign_more({"t": [1]})
    member.poll()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned")
    member.answer_fetch({"t-0": 5, "t-1": 6})
    assert [word for word in member.history if word.startswith("fetch(")] == ["fetch(t-1@6)"]


def test_a_lookup_of_a_former_life_is_not_reused() -> None:
    """Since then another owner may have gone further."""
    member = assigned()
    late = member.take(OffsetFetchRequest)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=4, assignment={"t": [0]})
    member.reconcile()
    assert fetches(member) == [["t-0"]]
    member.sent.insert(0, late)
    member.answer_fetch({"t-0": 5})
    assert "fetch(t-0@5)" not in member.history
    member.answer_fetch({"t-0": 500})
    assert member.history[-1] == "fetch(t-0@500)"


def test_a_seek_beats_a_lookup_under_way() -> None:
    """The application spoke last."""
    member = assigned()
    member.step(PositionSet(T0, OffsetAndMetadata(99)))
    assert member.history == ["fetch(t-0@99)"]
    if member.requests(OffsetFetchRequest):
        member.answer_fetch({"t-0": 5})
    assert member.history == ["fetch(t-0@99)"]


@pytest.mark.parametrize("timestamp", [-1, -2])
def test_a_seek_to_the_beginning_or_the_end_is_looked_up(timestamp: int) -> None:
    """The fetcher is only ever given offsets that exist."""
    member = assigned()
    member.step(PositionSet(T0, OffsetAndMetadata(timestamp)))
    assert member.take_waiting(ListOffsets).timestamps == {T0: timestamp}


def test_a_seek_on_a_partition_of_somebody_else_is_ignored() -> None:
    """It was revoked while the call was on its way."""
    member = assigned()
    member.step(PositionSet(TopicPartition("t", 7), OffsetAndMetadata(5)))
    assert member.history == []


def test_missing_permission_is_told_and_retried() -> None:
    """An ACL that is added later starts the partition without a restart."""
    member = assigned()
    member.answer_fetch(errors={"t-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, TopicAuthorizationError)
    assert surfaced.error.topics == ("t",)
    member.advance(100)
    member.answer_fetch({"t-0": 1})
    assert member.history[-1] == "fetch(t-0@1)"


# -------------------------------------------------------------------------------------------------------- ListOffsets


def test_leaders_that_moved_are_asked_again() -> None:
    """A partition whose leader is being elected starts a little later, not never."""
    member = assigned()
    member.answer_fetch()
    listing = member.take_waiting(ListOffsets)
    member.step(OffsetsListed(listing.request_id, {}, {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}))
    assert not member.emitted(SurfaceError)
    member.advance(100)
    member.answer_list_offsets(7)
    assert member.history[-1] == "fetch(t-0@7)"


@pytest.mark.parametrize("kind", [FailureKind.DISCONNECTED, FailureKind.AUTHENTICATION_FAILED])
def test_a_failed_listing_is_repeated(kind: FailureKind) -> None:
    """Only what the user can cure is raised."""
    member = assigned()
    member.answer_fetch()
    listing = member.take_waiting(ListOffsets)
    member.step(RequestFailed(listing.request_id, kind, "scripted"))
    assert bool(member.emitted(SurfaceError)) is (kind is FailureKind.AUTHENTICATION_FAILED)
    member.advance(100)
    member.answer_list_offsets(7)
    assert member.history[-1] == "fetch(t-0@7)"


def test_a_timestamp_without_a_record_is_asked_for_again() -> None:
    """An offset of -1 is no position."""
    member = assigned()
    member.answer_fetch()
    member.answer_list_offsets(-1)
    assert not [word for word in member.history if word.startswith("fetch(")]
    member.advance(100)
    member.answer_list_offsets(0)
    assert member.history[-1] == "fetch(t-0@0)"


def test_a_position_without_records_follows_the_policy() -> None:
    """Retention deleted what the application was about to read."""
    member = assigned()
    member.answer_fetch({"t-0": 5})
    member.step(PositionLost(T0, OffsetAndMetadata(5)))
    assert member.take_waiting(ListOffsets).timestamps == {T0: -2}


def test_a_position_without_records_and_without_a_policy_is_an_error() -> None:
    """The application decides what to do about the gap."""
    member = assigned(auto_offset_reset=ResetPolicy.NONE)
    member.answer_fetch({"t-0": 5})
    member.step(PositionLost(T0, OffsetAndMetadata(5)))
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, BrokerError)
    assert surfaced.error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    member.advance(5000)
    assert not member.waiting
    member.step(PositionSet(T0, OffsetAndMetadata(8)))
    assert member.history[-1] == "fetch(t-0@8)"


# --------------------------------------------------------------------------------------------------------- committed()


def test_equal_questions_are_asked_once() -> None:
    """Ten threads that call committed() are one request."""
    member = assigned()
    member.answer_fetch({"t-0": 1})
    first, second = member.committed("t-0"), member.committed("t-0")
    assert fetches(member) == [["t-0"]]
    member.answer_fetch(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(100)
    assert fetches(member) == [["t-0"]]
    member.answer_fetch({"t-0": 1})
    for call in (first, second):
        assert member.fetch_result(call).error is None


def test_partitions_without_a_commit_are_left_out() -> None:
    """Absent is not zero."""
    member = assigned()
    member.answer_fetch({"t-0": 1})
    call = member.committed("t-0", "t-1")
    member.answer_fetch({"t-1": 4})
    assert member.fetch_result(call).offsets == {partition("t-1"): OffsetAndMetadata(4)}


def test_committed_of_nothing_needs_no_request() -> None:
    """And no coordinator."""
    member = MemberHarness(coordinator_found=False)
    call = member.committed()
    assert member.fetch_result(call).offsets == {}
    assert not member.sent


def test_committed_ends_at_its_deadline() -> None:
    """With the last error in the message."""
    member = assigned()
    member.answer_fetch({"t-0": 1})
    call = member.committed("t-0", timeout_ms=150)
    member.answer_fetch(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(150)
    error = member.fetch_result(call).error
    assert isinstance(error, RequestTimeoutError)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)


def test_an_abandoned_fetch_is_not_reported() -> None:
    """The caller was interrupted."""
    member = assigned()
    member.answer_fetch({"t-0": 1})
    call = member.committed("t-0")
    member.step(CallAbandoned(call))
    member.answer_fetch({"t-0": 1})
    assert not member.emitted(OffsetsFetched)


def test_authentication_that_fails_ends_committed() -> None:
    """A wrong password does not get better by waiting."""
    member = assigned()
    member.answer_fetch({"t-0": 1})
    call = member.committed("t-0")
    member.fail(OffsetFetchRequest, FailureKind.AUTHENTICATION_FAILED)
    assert isinstance(member.fetch_result(call).error, AuthenticationError)


def test_a_consumer_without_a_group_fetches_without_an_epoch() -> None:
    """committed() works before the first poll()."""
    member = MemberHarness()
    member.committed("t-0")
    (request,) = member.requests(OffsetFetchRequest)
    assert (request.groups[0].member_id, request.groups[0].member_epoch) == (None, -1)
    assert member.take(OffsetFetchRequest).max_version == 9


def test_a_broken_connection_is_retried_by_committed() -> None:
    """The coordinator moved in the middle of the call."""
    member = assigned()
    member.answer_fetch({"t-0": 1})
    member.advance(500)
    call = member.committed("t-0")
    member.fail(OffsetFetchRequest)
    member.advance(100)
    member.answer_fetch({"t-0": 2})
    assert member.fetch_result(call).error is None


def test_a_closing_consumer_does_not_wait_for_a_coordinator() -> None:
    """committed() in another thread ends when close() begins."""
    member = MemberHarness(coordinator_found=False)
    call = member.committed("t-0")
    member.leave(closing=True)
    assert isinstance(member.fetch_result(call).error, ConnectionLostError)


def test_an_answer_that_leaves_a_partition_out_is_a_failure() -> None:
    """Absent from a coordinator's answer is not "no offset": the reset policy would skip records."""
    member = assigned()
    member.answer(OffsetFetchRequest, OffsetFetchResponse(groups=(OffsetFetchResponseGroup("another", ()),)))
    assert not member.waiting
    member.advance(100)
    member.answer_fetch({"t-0": 6})
    assert member.history[-1] == "fetch(t-0@6)"


def test_an_answer_by_topic_id_is_understood() -> None:
    """Version 10 names topics by id only."""
    member = assigned()
    partitions = (OffsetFetchResponsePartitions(0, 15), OffsetFetchResponsePartitions(9, 99))
    topic = OffsetFetchResponseTopics("", member.topic_ids["t"], partitions)
    member.answer(OffsetFetchRequest, OffsetFetchResponse(groups=(OffsetFetchResponseGroup(GROUP, (topic,)),)))
    assert member.history[-1] == "fetch(t-0@15)"


def test_a_lookup_does_not_share_a_question_that_was_asked_before() -> None:
    """committed() may have been read before the former owner's last commit."""
    member = MemberHarness()
    member.join({"t": [0]})
    member.poll()
    call = member.committed("t-0")
    member.finish_call("assigned", "t-0")
    assert fetches(member) == [["t-0"], ["t-0"]]
    member.answer_fetch({"t-0": 5})
    assert member.fetch_result(call).error is None
    member.answer_fetch({"t-0": 500})
    assert member.history[-1] == "fetch(t-0@500)"


def test_a_lookup_that_nobody_wants_any_more_is_not_retried() -> None:
    """A seek answered the question."""
    member = assigned()
    member.step(PositionSet(T0, OffsetAndMetadata(99)))
    member.answer_fetch(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(500)
    assert not member.requests(OffsetFetchRequest)
