"""Stories that no single rule tells: several things go wrong, or change, at once."""

from __future__ import annotations

from kip848_client.error_codes import ErrorCode
from kip848_client.member.events import MetadataUpdated, RequestMetadata
from kip848_client.member.states import Phase
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions


def committing() -> MemberHarness:
    """It owned t-0, is to have t-1 and u-0, and commits; the name of u is not known yet."""
    member = MemberHarness(settings={"auto_commit_interval_ms": 5000})
    member.become_stable({"t": [0]})
    member.metadata_answered = False
    member.assign_more({"t": [1], "u": [0]})
    member.step(MetadataUpdated({}, member.take_waiting(RequestMetadata).request_id))
    member.poll(positions(t_0=5))
    assert member.phase() is Phase.COMMITTING
    return member


def test_a_fatal_error_while_a_run_commits_loses_everything_and_revokes_nothing() -> None:
    """The commit was not confirmed: a revoked callback would promise that it was."""
    member = committing()
    late = member.take(OffsetCommitRequest)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.INVALID_REQUEST)
    member.finish_call("lost", "t-0")
    member.sent.append(late)
    member.answer_commit()
    assert not [word for word in member.history if word.startswith("revoked")]
    assert member.phase() is Phase.FATAL_DONE


def test_leaving_while_a_run_commits_revokes_everything_once() -> None:
    """close() in the middle of a rebalance."""
    member = committing()
    member.leave(closing=True)
    member.answer_commit()
    member.finish_call("revoked", "t-0")
    member.expect_heartbeat(epoch=-1)
    assert [word for word in member.history if word.startswith("revoked")] == ["revoked(t-0)"]
