"""Commits: what no rule of docs/protocol.md says about commit() and auto-commit."""

from __future__ import annotations

import gc
from functools import partial
from uuid import UUID

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.errors import AuthenticationError, CommitFailedError, RequestTimeoutError, RetriableCommitFailedError
from kip848_client.member.core.events import (
    AUTOMATIC_COMMIT_ID,
    CommitDone,
    CommitKind,
    CoordinatorDisconnected,
    FailureKind,
)
from kip848_client.member.core.states import Phase
from kip848_client.member.offsets.commit_requests import CommitResult, read_commit, read_fetch
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.spec.arrange import AUTO_MS, ONE, auto_committing, commits, fence, pass_time, stable, without_coordinator
from tests.support.member_harness import INTERVAL_MS, positions
from tests.support.work import lines_run


def test_leader_epoch_and_metadata_travel_with_the_offset() -> None:
    """The next owner needs the first against truncated logs, and the application wrote the second."""
    member = stable()
    member.commit({NamedPartition("t", 0): OffsetAndMetadata(5, leader_epoch=3, metadata="half")})
    (commit,) = member.requests(OffsetCommitRequest)
    entry = commit.topics[0].partitions[0]
    assert (entry.committed_offset, entry.committed_leader_epoch, entry.committed_metadata) == (5, 3, "half")


def test_authentication_that_fails_ends_a_commit() -> None:
    """A wrong password does not get better by waiting."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.fail(OffsetCommitRequest, FailureKind.AUTHENTICATION_FAILED)
    assert isinstance(member.commit_error(call), AuthenticationError)


def test_a_broken_connection_fails_an_asynchronous_commit_and_loses_the_coordinator() -> None:
    """It is unknown whether the commit was applied, so the callback must be told that it failed."""
    member = stable()
    member.coordinator_found = False
    member.advance(500)
    call = member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    member.fail(OffsetCommitRequest)
    assert isinstance(member.commit_error(call), RetriableCommitFailedError)
    assert member.requests(FindCoordinatorRequest)


def test_an_asynchronous_commit_waits_for_the_coordinator() -> None:
    """It is one attempt, not one that is thrown away during a failover."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.NOT_COORDINATOR)
    call = member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    member.find_coordinator()
    member.answer_commit()
    assert member.commit_error(call) is None


def test_a_coordinator_that_cannot_write_is_looked_up_again() -> None:
    """Its replicas did not answer in time, so another broker may lead the offsets by now."""
    member = stable()
    member.coordinator_found = False
    member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.REQUEST_TIMED_OUT)
    assert member.requests(FindCoordinatorRequest)


def test_an_interval_commit_of_a_consumer_that_gave_everything_up_is_forgotten() -> None:
    """An automatic commit without offsets must not make a consumer look for a coordinator."""
    member = without_coordinator(auto_committing())
    member.advance(AUTO_MS)
    member.poll(positions(t_0=5))
    member.leave()
    member.finish_call("revoked", "t-0")
    member.find_coordinator()
    assert commits(member) == []
    member.step(CoordinatorDisconnected(1))
    member.advance(1000)
    assert not member.requests(FindCoordinatorRequest)


@pytest.mark.parametrize(
    ("kind", "closing", "urgent"),
    [(CommitKind.SYNC, False, False), (CommitKind.SYNC, True, True), (CommitKind.AUTO_CLOSE, False, True)],
)
def test_a_commit_of_a_consumer_that_closes_is_urgent(kind: CommitKind, *, closing: bool, urgent: bool) -> None:
    """The pause that a throttling coordinator asked for would be longer than close() may take."""
    member = stable()
    if closing:
        member.leave(closing=True)
    member.commit(positions(t_0=5), kind=kind)
    assert member.take(OffsetCommitRequest).urgent is urgent


def test_a_barrier_ends_at_its_deadline() -> None:
    """An asynchronous commit that hangs must not hang commit(timeout_s=1)."""
    member = stable()
    member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    second = member.commit(positions(t_0=6), timeout_ms=300)
    hanging = member.take(OffsetCommitRequest)
    member.answer_commit()
    member.advance(300)
    assert member.commit_error(second) is None
    third = member.commit(positions(t_0=7), timeout_ms=300)
    member.advance(300)
    assert isinstance(member.commit_error(third), RequestTimeoutError)
    member.sent.append(hanging)


def test_a_resent_commit_of_which_nothing_is_left_fails() -> None:
    """Everything moved to another member while the commit was refused as stale."""
    member = stable({"t": [0, 1]})
    call = member.commit(positions(t_1=6))
    member.assign_more({"t": [0]})
    member.poll()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    assert isinstance(member.commit_error(call), CommitFailedError)
    assert not member.requests(OffsetCommitRequest)


def test_a_close_whose_commit_is_stale_until_the_end_returns() -> None:
    """The records are read again by the next consumer, but close() keeps its word."""
    member = auto_committing(max_poll_interval_ms=300_000)
    call = member.commit(positions(t_0=5), kind=CommitKind.AUTO_CLOSE, timeout_ms=20_000)
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.answer_heartbeat(epoch=1)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=2)
    member.answer_commit(ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(member.commit_error(call), CommitFailedError)
    member.leave(closing=True)
    assert member.phase() is Phase.LEAVE_REVOKING


def test_a_close_that_loses_its_coordinator_gives_up_a_commit_that_waits_for_an_epoch() -> None:
    """R116: no coordinator is looked up any more, so no new epoch comes, and close() would wait for its time-out."""
    member = stable()
    call = member.commit(positions(t_0=5), timeout_ms=20_000)
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.leave(closing=True)
    assert not member.emitted(CommitDone)
    member.step(CoordinatorDisconnected(1))
    assert isinstance(member.commit_error(call), CommitFailedError)


def test_the_application_hears_of_automatic_commits_too() -> None:
    """on_commit of the configuration, and the journal, want to know that positions are safe, or are not."""
    member = auto_committing(max_poll_interval_ms=300_000)
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=50))
    member.answer_commit(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    (done,) = member.emitted(CommitDone)
    assert done.commit_id == AUTOMATIC_COMMIT_ID
    assert {str(key): value.offset for key, value in done.offsets.items()} == {"t-0": 50}
    assert done.error is not None


def test_an_interval_of_zero_lets_records_through() -> None:
    """auto.commit.interval.ms=0 means "with every poll", not "only polls"."""
    member = stable(auto_commit_interval_ms=0)
    member.advance(10)
    assert member.member.view().poll_wanted
    member.poll(positions(t_0=1))
    assert not member.member.view().poll_wanted


def test_a_position_is_committed_again_after_the_partition_came_back() -> None:
    """In between another member may have committed something else."""
    member = auto_committing(max_poll_interval_ms=300_000)
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=5))
    member.answer_commit()
    for assignment in ({}, {"t": [0]}):
        member.assign_more(assignment)
        member.reconcile()
        member.answer_heartbeat(epoch=2)
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=5))
    assert [offsets for _, offsets in commits(member)] == [{"t-0": 5}]


def test_a_position_is_committed_again_after_a_removal() -> None:
    """Meanwhile the topic may have been created again, or an administrator reset the offsets of the group."""
    member = auto_committing(max_poll_interval_ms=300_000)
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=5))
    member.answer_commit()
    fence(member)
    member.reconcile()
    member.answer_heartbeat(epoch=2, assignment=ONE)
    member.reconcile()
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=5))
    assert [offsets for _, offsets in commits(member)] == [{"t-0": 5}]


def test_the_first_failure_of_a_commit_counts_and_topics_are_named_by_id() -> None:
    """Version 10 answers with ids only; the application reads names, and an error that it can look up."""
    known, unknown = UUID(int=1), UUID(int=9)
    denied, first, second = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NOT_COORDINATOR, ErrorCode.INVALID_REQUEST
    request = build(OffsetCommitRequest, group_id="g", topics=[{"topic_id": known, "name": "t"}])
    codes = [denied, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, first, second]
    partitions = [{"partition_index": index, "error_code": code} for index, code in enumerate(codes)]
    topics = [{"topic_id": topic_id, "partitions": partitions} for topic_id in (known, unknown)]

    result = read_commit(request, build(OffsetCommitResponse, topics=topics), without_gone=True)

    gone = {NamedPartition(name, 2) for name in ("t", str(unknown))}
    refused = {NamedPartition(name, 3) for name in ("t", str(unknown))}
    assert result == CommitResult(first, frozenset({"t", str(unknown)}), frozenset(gone), frozenset(refused))


def test_the_error_of_a_commit_names_only_what_was_refused() -> None:
    """One topic of a thousand was deleted: the error must say which one, and not that all were refused."""
    member = stable()
    call = member.commit(positions(t_0=5, t_1=6))
    member.answer_commit({"t-1": ErrorCode.INVALID_COMMIT_OFFSET_SIZE})
    assert str(member.commit_error(call)) == "INVALID_COMMIT_OFFSET_SIZE(28): commit of t-1"


def test_an_answer_about_offsets_counts_for_what_was_asked_only() -> None:
    """A broker that mixes answers up must not move a consumer to an offset of another group or partition."""
    asked = frozenset({NamedPartition("t", 0), NamedPartition("t", 1), NamedPartition("t", 2), NamedPartition("t", 3)})
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),))

    def group(group_id: str, offset: int) -> OffsetFetchResponseGroup:
        found = ((0, offset, 0), (1, -1, 0), (2, 5, ErrorCode.UNSTABLE_OFFSET_COMMIT), (7, 9, 0))
        return OffsetFetchResponseGroup(
            group_id=group_id,
            topics=(
                OffsetFetchResponseTopics(
                    name="t",
                    partitions=tuple(
                        OffsetFetchResponsePartitions(
                            partition_index=index, committed_offset=at, error_code=error, metadata="half"
                        )
                        for index, at, error in found
                    ),
                ),
            ),
        )

    result = read_fetch(request, OffsetFetchResponse(groups=(group("g", 0), group("other", 90))), asked)

    assert result.code == ErrorCode.NONE
    assert result.offsets == {NamedPartition("t", 0): OffsetAndMetadata(0, metadata="half")}
    assert result.failed == {
        NamedPartition("t", 2): ErrorCode.UNSTABLE_OFFSET_COMMIT,
        NamedPartition("t", 3): ErrorCode.UNKNOWN_SERVER_ERROR,
    }
    refused = read_fetch(request, OffsetFetchResponse(error_code=ErrorCode.NOT_COORDINATOR), asked)
    assert (refused.code, refused.offsets, refused.failed) == (ErrorCode.NOT_COORDINATOR, {}, {})


def test_a_step_does_not_look_at_each_commit_in_flight() -> None:
    """A loop that commits each record with a callback stood for seconds after a crash of its broker."""
    member = stable()

    def work() -> int:
        commit = partial(member.commit, positions(t_0=1), kind=CommitKind.ASYNC)
        return lines_run(commit, "kip848_client.member.offsets.commits")

    first = work()
    for _ in range(500):
        member.commit(positions(t_0=1), kind=CommitKind.ASYNC)
    assert work() < first + 50


def test_commits_that_a_later_one_replaces_take_no_memory() -> None:
    """While no coordinator was there, a loop that commits each record kept all of them."""
    member = without_coordinator(stable())

    def kept() -> int:
        return sum(type(each).__module__ == "kip848_client.member.offsets.commits" for each in gc.get_objects())

    before = kept()
    for at in range(100):
        member.commit(positions(t_0=at), kind=CommitKind.ASYNC, without_callback=True)
    assert kept() < before + 10
