"""commit(): epochs, order, retries and deadlines. What auto-commit does is in `test_auto_commit`."""

from __future__ import annotations

import pytest

from kip848_client.error_codes import ErrorCode
from kip848_client.errors import (
    AuthenticationError,
    CommitFailedError,
    FencedInstanceIdError,
    RequestTimeoutError,
    RetriableCommitFailedError,
    TopicAuthorizationError,
)
from kip848_client.member.events import (
    CallAbandoned,
    CommitDone,
    CommitKind,
    FailureKind,
    SurfaceError,
)
from kip848_client.member.states import MemberState
from kip848_client.model import ZERO_UUID
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.support.member_harness import INTERVAL_MS, MEMBER_ID, MemberHarness, positions

AUTO_MS = 5000


def stable(assignment: dict[str, list[int]] | None = None, **settings: object) -> MemberHarness:
    member = MemberHarness(settings=settings)
    member.become_stable(assignment or {"t": [0]})
    return member


def only_commit(member: MemberHarness) -> OffsetCommitRequest:
    (commit,) = member.requests(OffsetCommitRequest)
    return commit


def committed_offsets(commit: OffsetCommitRequest) -> dict[str, int]:
    return {
        f"{topic.name}-{entry.partition_index}": entry.committed_offset
        for topic in commit.topics
        for entry in topic.partitions
    }


def auto_committing() -> MemberHarness:
    return stable(auto_commit_interval_ms=AUTO_MS, max_poll_interval_ms=300_000)


def pass_interval(member: MemberHarness, ms: int = AUTO_MS) -> None:
    member.advance(ms)
    while member.requests(ConsumerGroupHeartbeatRequest):
        member.answer_heartbeat(epoch=member.member.snapshot().member_epoch)


# ------------------------------------------------------------------------------------------------------------ fields


def test_a_commit_carries_the_epoch_of_the_moment_it_is_sent() -> None:
    """One that waited through an epoch bump would be refused as stale."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.NOT_COORDINATOR)
    call = member.commit(positions(t_0=5))
    assert not member.requests(OffsetCommitRequest)
    member.advance(100)
    member.find_coordinator()
    commit = only_commit(member)
    assert (commit.generation_id_or_member_epoch, commit.member_id) == (1, MEMBER_ID)
    member.answer_heartbeat(epoch=6)
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(100)
    assert only_commit(member).generation_id_or_member_epoch == 6
    member.answer_commit()
    assert member.commit_error(call) is None


def test_a_consumer_without_a_group_commits_without_an_epoch() -> None:
    """assign() and tools after unsubscribe(): the coordinator accepts that while the group is empty."""
    member = MemberHarness()
    member.commit(positions(t_0=5))
    commit = only_commit(member)
    assert (commit.generation_id_or_member_epoch, commit.member_id) == (-1, "")
    assert commit.topics[0].topic_id == ZERO_UUID
    assert member.take(OffsetCommitRequest).max_version == 9


def test_a_topic_whose_id_is_known_is_named_both_ways() -> None:
    """Version 10 carries ids only; a topic created again under its name must not get the old positions."""
    member = stable()
    member.commit(positions(t_0=5))
    assert only_commit(member).topics[0].topic_id == member.topic_ids["t"]
    assert member.take(OffsetCommitRequest).max_version is None


def test_leader_epoch_and_metadata_travel_with_the_offset() -> None:
    """The next owner needs the first against truncated logs, and the application wrote the second."""
    member = stable()
    member.commit(positions(t_0=5))
    entry = only_commit(member).topics[0].partitions[0]
    assert (entry.committed_leader_epoch, entry.committed_metadata) == (-1, "")


# ----------------------------------------------------------------------------------------------------------- retries


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_synchronous_commit_is_retried_until_its_deadline(code: int) -> None:
    """The last error belongs into the message: a timeout alone says nothing."""
    member = stable()
    call = member.commit(positions(t_0=5), timeout_ms=2000)
    for _ in range(40):
        if member.requests(OffsetCommitRequest):
            member.answer_commit(code)
        member.advance(50)
        while member.requests(ConsumerGroupHeartbeatRequest):
            member.answer_heartbeat()
    error = member.commit_error(call)
    assert isinstance(error, RequestTimeoutError)
    assert ErrorCode(code).name in str(error)
    assert error.__cause__ is not None
    assert member.now_ms <= 2000 + 50


def test_retries_of_a_commit_wait_longer_and_longer() -> None:
    """A coordinator that loads its log is not helped by a hundred commits a second."""
    member = stable()
    member.commit(positions(t_0=5))
    for wait_ms in (100, 200, 400):
        member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        member.advance(wait_ms - 1)
        assert not member.requests(OffsetCommitRequest)
        member.advance(1)
        assert member.requests(OffsetCommitRequest)


def test_a_commit_without_an_answer_ends_at_its_deadline() -> None:
    """commit(timeout_s=1) keeps its word although the request is still under way."""
    member = stable()
    call = member.commit(positions(t_0=5), timeout_ms=500)
    member.advance(500)
    assert isinstance(member.commit_error(call), RequestTimeoutError)
    member.answer_commit()
    assert isinstance(member.commit_error(call), RequestTimeoutError)


def test_a_commit_that_expired_before_it_was_sent_is_tried_once() -> None:
    """commit(timeout_s=0) is how some applications say "best effort"."""
    member = stable()
    call = member.commit(positions(t_0=5), timeout_ms=0)
    assert member.requests(OffsetCommitRequest)
    assert isinstance(member.commit_error(call), RequestTimeoutError)


def test_a_member_that_is_gone_fails_its_commit_and_asks_why() -> None:
    """The commit is refused for good; the next heartbeat tells what happened, so it goes out now."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(member.commit_error(call), CommitFailedError)
    assert member.state() is MemberState.STABLE
    member.expect_heartbeat(epoch=1)


def test_a_stale_epoch_is_cured_by_the_next_heartbeat() -> None:
    """The epoch moved while the commit was on its way: that is nothing a user can do anything about."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.answer_heartbeat(epoch=2)
    commit = only_commit(member)
    assert commit.generation_id_or_member_epoch == 2
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.answer_heartbeat(epoch=3)
    assert only_commit(member).generation_id_or_member_epoch == 3
    member.answer_commit()
    assert member.commit_error(call) is None


def test_a_stale_epoch_without_a_newer_one_fails_at_the_deadline() -> None:
    """The same epoch is not tried again and again."""
    member = stable()
    call = member.commit(positions(t_0=5), timeout_ms=3000)
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    for _ in range(4):
        member.answer_heartbeat(epoch=1)
        member.advance(INTERVAL_MS)
    assert isinstance(member.commit_error(call), CommitFailedError)
    assert not member.requests(OffsetCommitRequest)


def test_a_resent_commit_leaves_out_what_moved() -> None:
    """With the new epoch the coordinator would accept an offset for a partition of somebody else."""
    member = stable({"t": [0, 1]})
    call = member.commit(positions(t_0=5, t_1=6))
    member.assign_more({"t": [0]})
    member.poll()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    assert committed_offsets(only_commit(member)) == {"t-0": 5}
    member.answer_commit()
    error = member.commit_error(call)
    assert isinstance(error, CommitFailedError)
    assert "t-1" in str(error)


def test_a_commit_that_waited_through_a_removal_fails() -> None:
    """Its partitions may have a new owner, who has gone further."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    sent = member.take(ConsumerGroupHeartbeatRequest)
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.NOT_COORDINATOR)
    member.sent.append(sent)
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    assert isinstance(member.commit_error(call), CommitFailedError)


def test_a_subscribed_consumer_that_is_no_member_commits_nothing() -> None:
    """The group may be empty for a moment, and the commit would overwrite a successor's."""
    member = MemberHarness()
    member.subscribe("t")
    waiting = member.commit(positions(t_0=5))
    member.poll()
    joining = member.commit(positions(t_0=5))
    for call in (waiting, joining):
        assert isinstance(member.commit_error(call), CommitFailedError)
    assert not member.requests(OffsetCommitRequest)


def test_authentication_that_fails_ends_a_commit() -> None:
    """A wrong password does not get better by waiting."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.fail(OffsetCommitRequest, FailureKind.AUTHENTICATION_FAILED)
    assert isinstance(member.commit_error(call), AuthenticationError)


def test_missing_permission_names_every_topic() -> None:
    """One error for two topics, so that one ticket cures both."""
    member = MemberHarness()
    member.join({"t": [0], "u": [0]}, topics=("t", "u"))
    member.reconcile()
    call = member.commit(positions(t_0=1, u_0=2))
    member.answer_commit(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = member.commit_error(call)
    assert isinstance(error, TopicAuthorizationError)
    assert error.topics == ("t", "u")


def test_the_first_other_error_decides() -> None:
    """A partition that can be retried must not hide behind a permission, nor the reverse."""
    member = stable({"t": [0, 1]})
    call = member.commit(positions(t_0=1, t_1=2))
    member.answer_commit({"t-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-1": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    member.advance(100)
    member.answer_commit()
    assert member.commit_error(call) is None


def test_two_failing_partitions_are_one_failed_attempt() -> None:
    """Counted twice, the backoff would grow twice as fast."""
    member = stable({"t": [0, 1]})
    member.commit(positions(t_0=1, t_1=2))
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(100)
    assert member.requests(OffsetCommitRequest)


# ------------------------------------------------------------------------------------------------------ asynchronous


def test_an_asynchronous_commit_reports_a_passing_error_as_retriable() -> None:
    """The application decides; a newer commit may be on its way already."""
    member = stable()
    call = member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert isinstance(member.commit_error(call), RetriableCommitFailedError)


def test_a_broken_connection_fails_an_asynchronous_commit_and_loses_the_coordinator() -> None:
    """Whether it was applied is unknown."""
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


def test_a_synchronous_commit_is_reported_after_earlier_asynchronous_ones() -> None:
    """Their callbacks run first, so that commit() is a barrier."""
    member = stable()
    first = member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    empty = member.commit({})
    second = member.commit(positions(t_0=6))
    earlier, later = member.take(OffsetCommitRequest), member.take(OffsetCommitRequest)
    member.sent += [later, earlier]
    member.answer_commit()
    assert not member.emitted(CommitDone)
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert [effect.commit_id for effect in member.emitted(CommitDone)] == [first, empty, second]
    assert member.commit_error(empty) is None
    assert member.commit_error(second) is None


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


def test_a_commit_of_nothing_succeeds_without_a_request() -> None:
    """commit() before the first record."""
    member = stable()
    for kind in (CommitKind.SYNC, CommitKind.ASYNC):
        assert member.commit_error(member.commit({}, kind=kind)) is None
    assert not member.requests(OffsetCommitRequest)


def test_a_fenced_instance_is_raised_by_the_next_poll() -> None:
    """Another process runs with our identity: a lost callback would hide that."""
    member = stable(instance_id="host-1")
    call = member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    member.answer_commit(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(member.commit_error(call), FencedInstanceIdError)
    assert [type(effect.error) for effect in member.emitted(SurfaceError)] == [FencedInstanceIdError]


def test_an_abandoned_commit_is_not_reported() -> None:
    """The caller was interrupted; its number means nothing any more."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.step(CallAbandoned(call))
    member.answer_commit()
    assert not member.emitted(CommitDone)


def test_commits_in_the_revoked_callback_work_and_in_the_lost_callback_fail() -> None:
    """That is what the two callbacks are for."""
    member = stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll()
    working = member.commit(positions(t_1=9))
    member.answer_commit()
    assert member.commit_error(working) is None
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    failing = member.commit(positions(t_0=9))
    assert isinstance(member.commit_error(failing), CommitFailedError)


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


def test_a_retry_after_a_removal_leaves_out_what_is_not_owned_any_more() -> None:
    """The commit was under way while the member was removed and joined again."""
    member = stable({"t": [0, 1]})
    call = member.commit(positions(t_0=5, t_1=6))
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.finish_call("lost", "t-0", "t-1")
    member.answer_heartbeat(epoch=7, assignment={"t": [0]})
    member.reconcile()
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(100)
    assert committed_offsets(only_commit(member)) == {"t-0": 5}
    member.answer_commit()
    assert "t-1" in str(member.commit_error(call))
