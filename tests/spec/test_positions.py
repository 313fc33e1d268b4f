"""The rules of docs/protocol.md, section Where a partition starts."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.errors import (
    BrokerError,
    FencedError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    TopicAuthorizationError,
    error_for_code,
)
from kip848_client.member.core.error_tables import FetchErrorClass, fetch_error_class
from kip848_client.member.core.events import (
    DescribeTopics,
    FailureKind,
    ListOffsets,
    MemberEvent,
    OffsetsListed,
    PositionLost,
    PositionSet,
    RequestFailed,
    StartFetching,
    SurfaceError,
    TopicDescription,
    TopicsDescribed,
)
from kip848_client.member.core.settings import ByDuration, ResetPolicy
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from tests.spec.arrange import ONE, TWO, Partitions, answer_heartbeats, fence, fetches, looking_up
from tests.support.member_harness import GROUP, INTERVAL_MS, MEMBER_ID, TOPIC_IDS, MemberHarness

T0 = NamedPartition("t", 0)
CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]


def test_r90_a_seek_comes_before_the_committed_offset() -> None:
    """Applications that keep their own offsets seek in the assigned callback."""
    member = MemberHarness()
    member.join(TWO)
    member.poll()
    member.step(PositionSet(T0, OffsetAndMetadata(500)))
    member.finish_call("assigned", "t-0", "t-1")
    assert "fetch(t-0@500)" in member.history
    assert fetches(member) == [["t-1"]]
    member.answer_fetch({"t-1": 42})
    told = [{str(item) for item in effect.committed} for effect in member.emitted(StartFetching)]
    assert told == [set(), {"t-1"}], "only what the group committed counts as committed"


def test_r90_the_committed_offset_comes_before_the_policy() -> None:
    """Starting anywhere else would skip records or read them twice."""
    member = looking_up()
    member.answer_fetch({"t-0": 42})
    assert member.history == ["fetch(t-0@42)"]


@pytest.mark.parametrize(("policy", "timestamp"), [(ResetPolicy.EARLIEST, -2), (ResetPolicy.LATEST, -1)])
def test_r90_without_either_the_policy_decides(policy: ResetPolicy, timestamp: int) -> None:
    """A group without committed offsets starts where ``auto.offset.reset`` says."""
    member = looking_up(auto_offset_reset=policy)
    member.answer_fetch()
    listing = member.take_waiting(ListOffsets)
    assert listing.timestamps == {T0: timestamp}
    member.step(OffsetsListed(listing.request_id, {T0: OffsetAndMetadata(17)}, {}))
    assert member.history[-1] == "fetch(t-0@17)"
    assert member.emitted(StartFetching)[-1].committed == frozenset()


def test_r90_a_duration_is_a_policy_too() -> None:
    """by_duration:PT1H reads the last hour of a partition without a committed offset."""
    member = looking_up(auto_offset_reset=ByDuration(3_600_000))
    member.answer_fetch()
    listing = member.take_waiting(ListOffsets)
    assert (listing.timestamps, listing.durations_ms) == ({}, {T0: 3_600_000})
    member.step(OffsetsListed(listing.request_id, {T0: OffsetAndMetadata(17)}, {}))
    assert member.history[-1] == "fetch(t-0@17)"


def listening(assignment: Partitions) -> tuple[MemberHarness, DescribeTopics]:
    """A member that reads new partitions from the beginning and others from the end, and its first look at topics."""
    policies = {
        "auto_offset_reset": ResetPolicy.LATEST,
        "auto_offset_reset_new_partitions": ResetPolicy.EARLIEST,
    }
    member = MemberHarness(settings=dict(policies))
    member.join(assignment)
    member.reconcile()
    member.answer_heartbeat()
    (asked,) = member.emitted(DescribeTopics)
    return member, asked


def test_r270_a_partition_that_appeared_meanwhile_has_its_own_policy() -> None:
    """With latest, the records between the growth of a topic and the assignment would be skipped."""
    member, asked = listening(TWO)
    member.answer_fetch()
    assert not member.waiting, "what there was at first is not known yet"
    assert asked.topics == {"t"}
    member.step(TopicsDescribed(asked.request_id, {"t": TopicDescription(TOPIC_IDS["t"], 1)}))
    assert member.take_waiting(ListOffsets).timestamps == {T0: -1, NamedPartition("t", 1): -2}


def test_r271_the_committed_offset_of_a_deleted_topic_does_not_count_for_a_new_one() -> None:
    """A topic that is created again is read from its beginning, though the old offset was still committed."""
    member, asked = listening(ONE)
    member.step(TopicsDescribed(asked.request_id, {"t": TopicDescription(UUID(int=99), 1)}))
    member.answer_fetch({"t-0": 500})
    member.step(PositionLost(T0, OffsetAndMetadata(500)))
    listing = member.take_waiting(ListOffsets)
    assert listing.timestamps == {T0: -2}
    member.step(OffsetsListed(listing.request_id, {T0: OffsetAndMetadata(0)}, {}))
    member.step(PositionLost(T0, OffsetAndMetadata(9)))
    assert member.take_waiting(ListOffsets).timestamps == {T0: -1}, "later losses are as of any partition"


def test_r91_the_fetch_names_the_member_and_asks_for_stable_offsets() -> None:
    """The epoch keeps a removed member from positions that it must not act on."""
    member = looking_up()
    (request,) = member.requests(OffsetFetchRequest)
    group = request.groups[0]
    assert (group.group_id, group.member_id, group.member_epoch) == (GROUP, MEMBER_ID, 1)
    assert request.require_stable


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_r92_a_failed_fetch_is_repeated(code: ErrorCode) -> None:
    """Starting at the reset policy because a fetch failed skips or repeats a whole partition."""
    member = looking_up()
    member.answer_fetch(error=code)
    told = fetch_error_class(code) is FetchErrorClass.FAIL and not isinstance(error_for_code(code, ""), FencedError)
    assert bool(member.emitted(SurfaceError)) is told
    member.advance(200)
    assert not member.waiting
    member.answer_fetch({"t-0": 77})
    assert member.history[-1] == "fetch(t-0@77)"


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_r92_a_failed_partition_is_repeated(code: ErrorCode) -> None:
    """If only one partition of an answer failed, it must still get its committed offset."""
    member = looking_up(TWO)
    member.answer_fetch({"t-1": 5}, errors={"t-0": code})
    member.advance(200)
    assert not member.waiting
    member.answer_fetch({"t-0": 77, "t-1": 5})
    assert "t-0@77" in member.history[-1]


@pytest.mark.parametrize("group", [GROUP, "another"])
def test_r92_a_partition_that_the_answer_leaves_out_is_repeated(group: str) -> None:
    """Absent is not "no offset"; nor is an answer about another group."""
    member = looking_up()
    member.answer(OffsetFetchRequest, OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group, ()),)))
    member.advance(200)
    assert not member.waiting
    assert fetches(member) == [["t-0"]]


def test_r92_what_failed_together_is_asked_for_again_together() -> None:
    """With a back-off each, one refusal would make as many requests as there are partitions."""
    member = MemberHarness(rng=random.Random(1))
    member.join({"t": range(20)})
    member.reconcile()
    member.answer_heartbeat()
    every = [f"t-{index}" for index in range(20)]
    for _ in range(3):
        member.answer_fetch(errors=dict.fromkeys(every, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        while not fetches(member):
            member.advance(10)
        assert fetches(member) == [every]
    member.answer_fetch()
    member.step(RequestFailed(member.take_waiting(ListOffsets).request_id, FailureKind.TIMED_OUT, "late"))
    while not member.waiting:
        member.advance(10)
    assert [len(listing.timestamps) for listing in member.waiting if isinstance(listing, ListOffsets)] == [20]


def test_r93_a_stale_fetch_is_repeated_with_the_newest_epoch() -> None:
    """The old one can only be stale again."""
    member = looking_up()
    for epoch in (2, 3, 4):
        member.answer_fetch(error=ErrorCode.STALE_MEMBER_EPOCH)
        member.answer_heartbeat(epoch=epoch)
        member.advance(1000)
        answer_heartbeats(member)
        (request,) = member.requests(OffsetFetchRequest)
        assert request.groups[0].member_epoch == epoch
    member.answer_fetch({"t-0": 1234})
    assert member.history[-1] == "fetch(t-0@1234)"


@pytest.mark.parametrize("heartbeat_first", [True, False])
def test_r93_a_stale_fetch_is_repeated_as_soon_as_the_newer_epoch_is_known(*, heartbeat_first: bool) -> None:
    """In a group that moves, a new partition stayed unread for one backoff after the other: 100, 200, 400 ms."""
    member = looking_up()
    if heartbeat_first:
        member.advance(INTERVAL_MS)
        member.answer_heartbeat(epoch=2)
    member.answer_fetch(error=ErrorCode.STALE_MEMBER_EPOCH)
    if not heartbeat_first:
        assert not member.requests(OffsetFetchRequest)
        member.answer_heartbeat(epoch=2)
    assert [request.groups[0].member_epoch for request in member.requests(OffsetFetchRequest)] == [2]
    member.answer_fetch(error=ErrorCode.STALE_MEMBER_EPOCH)
    assert not member.requests(OffsetFetchRequest), "without news it waits for the backoff"


def test_r93_a_stale_fetch_of_a_consumer_that_left_fails() -> None:
    """No newer epoch will come, so waiting for one would block ``committed()`` for ever."""
    member = looking_up({})
    call = member.committed("t-0")
    member.leave()
    member.answer_fetch(error=ErrorCode.STALE_MEMBER_EPOCH)
    assert isinstance(member.fetch_result(call).error, FencedError)


def test_r94_a_removed_member_hears_of_it_through_its_heartbeat() -> None:
    """An application must not be told of one removal twice, by an error and by on_lost."""
    member = looking_up()
    member.answer_fetch(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert not member.emitted(SurfaceError)
    fence(member)
    member.finish_call("lost", "t-0")


def test_r95_a_pending_transaction_is_waited_for() -> None:
    """Its outcome decides the committed offset; starting earlier would read records twice."""
    member = looking_up(TWO)
    member.answer_fetch({"t-1": 5}, errors={"t-0": ErrorCode.UNSTABLE_OFFSET_COMMIT})
    assert member.history == []
    assert member.member.deadline_ms() == member.now_ms + 100
    member.advance(100)
    assert fetches(member) == [["t-0", "t-1"]]


def test_r96_partitions_added_during_a_lookup_get_their_own() -> None:
    """Otherwise they take the reset path, and lose their committed offsets."""
    member = looking_up()
    member.assign_more(TWO)
    member.reconcile()
    assert fetches(member) == [["t-0"], ["t-1"]]
    member.answer_fetch({"t-0": 5})
    member.answer_fetch({"t-1": 6})
    assert member.history[-2:] == ["fetch(t-0@5)", "fetch(t-1@6)"]
    assert not member.waiting


def test_r97_a_result_for_a_partition_that_is_gone_is_dropped() -> None:
    """Fetching it would deliver records of another member."""
    member = looking_up(TWO)
    member.assign_more({"t": [1]})
    member.reconcile()
    member.answer_fetch({"t-0": 5, "t-1": 6})
    assert [word for word in member.history if word.startswith("fetch(")] == ["fetch(t-1@6)"]


def test_r97_a_result_for_a_partition_that_was_sought_is_dropped() -> None:
    """The application called seek() later, so its offset counts and not the committed one."""
    member = looking_up(TWO)
    member.step(PositionSet(T0, OffsetAndMetadata(99)))
    member.answer_fetch({"t-0": 5, "t-1": 6})
    assert member.history == ["fetch(t-0@99)", "fetch(t-1@6)"]


@pytest.mark.parametrize("first_fails", [False, True])
def test_r97_a_second_seek_is_answered_by_its_own_lookup(*, first_fails: bool) -> None:
    """seek_to_beginning(), then seek_to_end(): the answer to the first is not where it wants to be."""
    member = looking_up()
    member.answer_fetch({"t-0": 5})
    member.step(PositionSet(T0, OffsetAndMetadata(-2)))
    beginning = member.take_waiting(ListOffsets)
    member.step(PositionSet(T0, OffsetAndMetadata(-1)))
    end = member.take_waiting(ListOffsets)
    member.forget_history()
    if first_fails:
        member.step(RequestFailed(beginning.request_id, FailureKind.TIMED_OUT, "scripted"))
    else:
        member.step(OffsetsListed(beginning.request_id, {T0: OffsetAndMetadata(0)}, {}))
    assert member.history == []
    member.step(OffsetsListed(end.request_id, {T0: OffsetAndMetadata(90)}, {}))
    assert member.history == ["fetch(t-0@90)"]


@pytest.mark.parametrize(
    ("event", "timestamp"),
    [(PositionSet(T0, OffsetAndMetadata(-1)), -1), (PositionLost(T0, OffsetAndMetadata(80)), -2)],
    ids=["seek", "lost"],
)
def test_r97_a_position_that_is_looked_up_outlives_a_revocation_that_failed(event: MemberEvent, timestamp: int) -> None:
    """The partition stays: the application wanted its end, or its position was lost; what it committed is neither."""
    member = looking_up()
    member.answer_fetch({"t-0": 5})
    member.step(event)
    late = member.take_waiting(ListOffsets)
    member.assign_more({})
    member.poll()
    member.finish_call("revoked", "t-0", error=ValueError("scripted"))
    member.step(OffsetsListed(late.request_id, {T0: OffsetAndMetadata(7)}, {}))
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=3, assignment=ONE)
    member.poll()
    member.finish_call("assigned")
    assert member.take_waiting(ListOffsets).timestamps == {T0: timestamp}
    assert fetches(member) == []


@pytest.mark.parametrize("refused_first", [True, False])
def test_r97_a_partition_that_is_given_up_is_not_looked_up_any_more(*, refused_first: bool) -> None:
    """The question would be asked over and over for a position that is of no use."""
    member = looking_up()
    if refused_first:
        member.answer_fetch(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.leave()
    member.finish_call("revoked", "t-0")
    if not refused_first:
        member.answer_fetch(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert not member.member.view().news_expected
    member.advance(1000)
    assert fetches(member) == []


def test_r98_equal_calls_share_one_request() -> None:
    """Ten threads that call committed() are one request, and a retry is not lost on any of them."""
    member = looking_up({})
    first, second = member.committed("t-0"), member.committed("t-0")
    assert fetches(member) == [["t-0"]]
    member.answer_fetch(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(100)
    member.answer_fetch({"t-0": 3})
    assert {len(member.fetch_result(call).offsets) for call in (first, second)} == {1}


def test_r98_a_new_owner_never_uses_an_older_answer() -> None:
    """The former owner may have committed between the question and our assignment."""
    member = looking_up({})
    member.committed("t-0")
    member.assign_more(ONE)
    member.reconcile()
    assert fetches(member) == [["t-0"], ["t-0"]]
    member.answer_fetch({"t-0": 5})
    member.answer_fetch({"t-0": 500})
    assert member.history[-1] == "fetch(t-0@500)"


@pytest.mark.parametrize("cure", ["seek", "commit"])
def test_r99_without_a_policy_the_application_decides(cure: str) -> None:
    """It is told which partitions wait, once, and either call starts them."""
    member = looking_up(auto_offset_reset=ResetPolicy.NONE)
    member.answer_fetch()
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, NoOffsetForPartitionError)
    assert surfaced.error.partitions == (("t", 0),)
    if cure == "seek":
        member.step(PositionSet(T0, OffsetAndMetadata(9)))
    else:
        member.advance(200)
        member.answer_fetch({"t-0": 9})
    assert member.history[-1] == "fetch(t-0@9)"
    assert len(member.emitted(SurfaceError)) == 1


def test_r100_a_position_without_a_record_follows_the_policy() -> None:
    """The log was truncated, or a seek went too far."""
    member = looking_up()
    member.answer_fetch({"t-0": 5})
    member.step(PositionLost(T0, OffsetAndMetadata(5)))
    assert member.take_waiting(ListOffsets).timestamps == {T0: -2}


def test_r100_a_late_report_about_it_is_ignored() -> None:
    """The application has sought meanwhile, or the partition is gone."""
    member = looking_up()
    member.step(PositionLost(T0, OffsetAndMetadata(5)))
    member.step(PositionLost(NamedPartition("t", 7), OffsetAndMetadata(5)))
    assert not member.waiting
    assert fetches(member) == [["t-0"]]


def test_r100_without_a_policy_it_is_an_error() -> None:
    """The application decides what to do about the gap."""
    member = looking_up(auto_offset_reset=ResetPolicy.NONE)
    member.answer_fetch({"t-0": 5})
    member.step(PositionLost(T0, OffsetAndMetadata(5)))
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, OffsetOutOfRangeError)
    assert (surfaced.error.partition, surfaced.error.offset) == (("t", 0), 5)
    assert surfaced.error.librdkafka_code == NoOffsetForPartitionError.librdkafka_code
    member.step(PositionSet(T0, OffsetAndMetadata(8)))
    assert member.history[-1] == "fetch(t-0@8)"


@pytest.mark.parametrize("way", ["disconnected", "leader moved", "no record", "wrong password"])
def test_r101_a_lookup_of_the_beginning_is_repeated(way: str) -> None:
    """A partition whose leader is being elected starts a little later, not never."""
    member = looking_up()
    member.answer_fetch()
    listing = member.take_waiting(ListOffsets)
    match way:
        case "disconnected":
            member.step(RequestFailed(listing.request_id, FailureKind.DISCONNECTED, "scripted"))
        case "leader moved":
            member.step(OffsetsListed(listing.request_id, {}, {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}))
        case "wrong password":
            member.step(RequestFailed(listing.request_id, FailureKind.AUTHENTICATION_FAILED, "scripted"))
        case _:
            member.step(OffsetsListed(listing.request_id, {T0: OffsetAndMetadata(-1)}, {}))
    member.advance(100)
    member.answer_list_offsets(0)
    assert member.history[-1] == "fetch(t-0@0)"
    assert bool(member.emitted(SurfaceError)) is (way == "wrong password"), "only what the user can cure is told"


def test_r101_missing_permission_is_told_and_retried() -> None:
    """A permission that is added later starts the partition without a restart."""
    member = looking_up()
    member.answer_fetch()
    listing = member.take_waiting(ListOffsets)
    member.step(OffsetsListed(listing.request_id, {}, {T0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}))
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, TopicAuthorizationError)
    assert surfaced.error.topics == ("t",)
    member.advance(100)
    member.answer_list_offsets(3)
    assert member.history[-1] == "fetch(t-0@3)"


def test_r154_committed_ends_at_its_deadline_with_the_last_error() -> None:
    """A time-out alone does not say what to cure."""
    member = looking_up({})
    call = member.committed("t-0", timeout_ms=250)
    member.answer_fetch(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(250)
    error = member.fetch_result(call).error
    assert isinstance(error, RequestTimeoutError)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
    assert isinstance(error.__cause__, BrokerError)
    member.answer_fetch(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(1000)
    assert member.fetch_result(call).error is error
    assert fetches(member) == []


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_r177_a_topic_that_vanished_before_its_offsets_were_looked_up_is_no_error(code: ErrorCode) -> None:
    """Topics are deleted while consumers start; poll() raised, although the next assignment cures it."""
    member = looking_up(TWO)
    member.answer_fetch({"t-0": 42}, errors={"t-1": code})
    assert member.emitted(SurfaceError) == []
    assert member.history[-1] == "fetch(t-0@42)"
