"""enable.auto.commit: on the interval, before a revocation, and when the consumer closes."""

from __future__ import annotations

from kip848_client.error_codes import ErrorCode
from kip848_client.errors import (
    CommitFailedError,
)
from kip848_client.member.events import (
    AUTOMATIC_COMMIT_ID,
    CommitDone,
    CommitKind,
)
from kip848_client.member.states import Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions

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


def test_the_interval_commit_asks_for_a_poll_and_commits_inside_it() -> None:
    """Positions are safe only at the beginning of poll(): before, records may be in the middle of their work."""
    member = auto_committing()
    pass_interval(member, AUTO_MS - 1)
    assert not member.member.view().poll_wanted
    pass_interval(member, 1)
    assert member.member.view().poll_wanted
    assert not member.requests(OffsetCommitRequest)
    member.poll(positions(t_0=50))
    assert committed_offsets(only_commit(member)) == {"t-0": 50}
    assert not member.member.view().poll_wanted


def test_one_interval_commit_at_a_time() -> None:
    """Two could arrive in either order, and move the position back."""
    member = auto_committing()
    pass_interval(member)
    member.poll(positions(t_0=50))
    pass_interval(member)
    assert not member.member.view().poll_wanted
    member.answer_commit()
    assert member.member.view().poll_wanted
    member.poll(positions(t_0=60))
    assert committed_offsets(only_commit(member)) == {"t-0": 60}


def test_nothing_consumed_means_nothing_committed() -> None:
    """And the next one, with positions, is not blocked by that."""
    member = auto_committing()
    pass_interval(member)
    member.poll()
    assert not member.requests(OffsetCommitRequest)
    pass_interval(member)
    member.poll(positions(t_0=5))
    assert committed_offsets(only_commit(member)) == {"t-0": 5}


def test_positions_that_are_committed_already_are_not_committed_again() -> None:
    """An idle consumer sends heartbeats, and nothing else."""
    member = auto_committing()
    pass_interval(member)
    member.poll(positions(t_0=5))
    member.answer_commit()
    pass_interval(member)
    member.poll(positions(t_0=5))
    assert not member.requests(OffsetCommitRequest)
    pass_interval(member)
    member.poll(positions(t_0=6))
    assert member.requests(OffsetCommitRequest)


def test_a_revocation_commits_although_an_interval_commit_is_under_way() -> None:
    """The older one does not contain the newest position."""
    member = auto_committing()
    pass_interval(member)
    member.poll(positions(t_0=50))
    member.assign_more({})
    member.poll(positions(t_0=51))
    assert [committed_offsets(item) for item in member.requests(OffsetCommitRequest)] == [{"t-0": 50}, {"t-0": 51}]
    member.answer_commit()
    assert not member.calls
    member.answer_commit()
    assert [call.kind for call in member.calls] == ["revoked"]


def test_a_revocation_retries_with_the_newest_positions_and_epoch() -> None:
    """The application goes on with the partitions it keeps while the commit is retried."""
    member = stable({"t": [0, 1]}, auto_commit_interval_ms=AUTO_MS)
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=5, t_1=10))
    member.advance(INTERVAL_MS)
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.answer_heartbeat(epoch=7)
    assert member.member.view().poll_wanted
    member.poll(positions(t_0=5, t_1=20))
    member.advance(100)
    commit = only_commit(member)
    assert (commit.generation_id_or_member_epoch, committed_offsets(commit)) == (7, {"t-0": 5, "t-1": 20})
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(200)
    member.answer_commit()
    member.finish_call("revoked", "t-0")


def test_a_revocation_does_not_wait_longer_than_the_coordinator_does() -> None:
    """Past the rebalance timeout the member is evicted, committed or not."""
    member = stable(auto_commit_interval_ms=AUTO_MS, rebalance_timeout_ms=3000, max_poll_interval_ms=60_000)
    member.assign_more({})
    member.poll(positions(t_0=5))
    for _ in range(3):
        member.advance(1000)
        member.answer_heartbeat(epoch=2)
    assert [call.kind for call in member.calls] == ["revoked"]


def test_without_auto_commit_nothing_is_committed() -> None:
    """enable.auto.commit=false means that the application owns its positions."""
    member = stable()
    member.assign_more({})
    member.poll(positions(t_0=5))
    member.finish_call("revoked", "t-0")
    pass_interval(member, 60_000)
    assert not [word for word in member.history if word.startswith("commit")]


def test_a_member_that_leaves_starts_no_interval_commit() -> None:
    """close() commits by itself, once."""
    member = auto_committing()
    pass_interval(member)
    member.leave(closing=True)
    assert not member.member.view().poll_wanted


def test_a_run_restarts_the_interval() -> None:
    """It committed just now."""
    member = auto_committing()
    pass_interval(member, 4000)
    member.assign_more({"t": [0, 1]})
    member.reconcile()
    pass_interval(member, AUTO_MS - 1)
    assert not member.member.view().poll_wanted


def test_a_close_whose_commit_is_stale_until_the_end_returns() -> None:
    """The records are read again by the next consumer, but close() keeps its word."""
    member = auto_committing()
    call = member.commit(positions(t_0=5), kind=CommitKind.AUTO_CLOSE, timeout_ms=20_000)
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.answer_heartbeat(epoch=1)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=2)
    member.answer_commit(ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(member.commit_error(call), CommitFailedError)
    member.leave(closing=True)
    assert member.phase() is Phase.LEAVE_REVOKING


def test_the_application_hears_of_automatic_commits_too() -> None:
    """on_commit of the configuration, and the journal, want to know that positions are safe, or are not."""
    member = auto_committing()
    pass_interval(member)
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
    member = auto_committing()
    pass_interval(member)
    member.poll(positions(t_0=5))
    member.answer_commit()
    for assignment in ({}, {"t": [0]}):
        member.assign_more(assignment)
        member.reconcile()
        member.answer_heartbeat(epoch=2)
    pass_interval(member)
    member.poll(positions(t_0=5))
    assert committed_offsets(only_commit(member)) == {"t-0": 5}


def test_a_revocation_commits_again_while_another_commit_is_under_way() -> None:
    """An older offset that is still on its way would be the last word."""
    member = auto_committing()
    pass_interval(member)
    member.poll(positions(t_0=50))
    member.answer_commit()
    member.commit(positions(t_0=20), kind=CommitKind.ASYNC)
    member.assign_more({})
    member.poll(positions(t_0=50))
    assert [committed_offsets(item) for item in member.requests(OffsetCommitRequest)] == [{"t-0": 20}, {"t-0": 50}]
