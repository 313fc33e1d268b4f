"""The rules of docs/protocol.md, section Errors of heartbeats."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.errors import BrokerError, FatalGroupError, ProtocolError, TopicAuthorizationError
from kip848_client.member.core.error_tables import (
    FATAL_ADVICE,
    HEARTBEAT_CODES,
    HeartbeatErrorClass,
    heartbeat_error_class,
)
from kip848_client.member.core.events import Fail, FailureKind, LeaveDone, SurfaceError
from kip848_client.member.core.states import MemberState
from tests.spec.arrange import fence, joining, stable
from tests.support.member_harness import GROUP, INTERVAL_MS, MemberHarness


def of_class(error_class: HeartbeatErrorClass) -> list[ErrorCode]:
    return [ErrorCode(code) for code, its_class in HEARTBEAT_CODES.items() if its_class is error_class]


FATAL = of_class(HeartbeatErrorClass.FATAL)


@pytest.mark.parametrize("code", of_class(HeartbeatErrorClass.RETRY), ids=lambda code: code.name)
def test_r47_a_passing_error_is_waited_out(code: ErrorCode) -> None:
    """Partitions must not move because a coordinator restarts."""
    member = stable()
    fence(member, code)
    assert member.owned == ["t-0"]
    member.expect_no_heartbeat()
    member.advance(100)
    member.expect_heartbeat(epoch=1, full=True)


@pytest.mark.parametrize("code", of_class(HeartbeatErrorClass.REDISCOVER), ids=lambda code: code.name)
def test_r48_a_moved_coordinator_is_looked_up_and_told_at_once(code: ErrorCode) -> None:
    """After a failover the session is running already; a backoff would eat it."""
    member = stable()
    fence(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(100)
    member.coordinator_found = False
    fence(member, code)
    assert member.member.snapshot().coordinator is None
    member.find_coordinator(node_id=2)
    member.expect_heartbeat(epoch=1, full=True)
    fence(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(100)
    member.expect_heartbeat()  # the backoff begins anew with the new coordinator


def test_r49_missing_permission_is_told_and_survived() -> None:
    """Giving everything up because of one topic would stop the others."""
    member = stable()
    fence(member, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, TopicAuthorizationError)
    assert surfaced.error.topics == ("t",)
    assert member.owned == ["t-0"]
    member.advance(100)
    member.answer_heartbeat(epoch=1)
    assert member.state() is MemberState.STABLE


@pytest.mark.parametrize(("interval_ms", "limit_ms"), [(INTERVAL_MS, 5000), (7000, 7000)])
def test_r49_it_is_not_told_with_every_heartbeat(interval_ms: int, limit_ms: int) -> None:
    """One error per retry would fill the application's log."""
    member = joining(max_poll_interval_ms=300_000)
    member.answer_heartbeat(interval_ms=interval_ms)
    member.advance(interval_ms)
    told_ms = member.now_ms
    while member.now_ms < told_ms + limit_ms:
        if member.state() is MemberState.STABLE and member.sent:
            member.answer_heartbeat(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert len(member.emitted(SurfaceError)) == 1
        member.advance(100)
    member.advance(1000)
    member.answer_heartbeat(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert len(member.emitted(SurfaceError)) == 2


@pytest.mark.parametrize("code", FATAL, ids=lambda code: code.name)
def test_r50_one_error_and_then_silence(code: ErrorCode) -> None:
    """An error that no retry cures must reach the application once, and must not flood the cluster."""
    member = joining()
    member.answer_heartbeat(error=code)
    member.advance(10 * INTERVAL_MS)
    member.leave(closing=True)
    member.advance(10 * INTERVAL_MS)
    assert len(member.emitted(Fail)) == 1
    assert len(member.emitted(LeaveDone)) == 1
    assert not member.emitted(SurfaceError)
    assert not member.calls
    assert not member.sent


@pytest.mark.parametrize("code", sorted({*FATAL} - {ErrorCode.GROUP_ID_NOT_FOUND}), ids=lambda code: code.name)
def test_r51_a_fatal_member_loses_what_it_owns(code: ErrorCode) -> None:
    """The coordinator does not count it any more: a commit in the callback would be refused."""
    member = stable()
    fence(member, code)
    assert member.readable == []
    assert member.member.snapshot().member_epoch == 0
    member.finish_call("lost", "t-0")
    assert member.owned == []
    assert member.state() is MemberState.FATAL


@pytest.mark.parametrize("code", FATAL, ids=lambda code: code.name)
def test_r52_a_fatal_error_names_group_reason_and_way_out(code: ErrorCode) -> None:
    """The text is all that a user sees."""
    member = joining()
    member.answer_heartbeat(error=code, message="because of that")
    (failure,) = member.emitted(Fail)
    for part in (GROUP, "because of that", FATAL_ADVICE[code], code.name):
        assert part in str(failure.error)
    assert isinstance(failure.error, BrokerError)
    assert failure.error.fatal
    assert ("needs READ on group" in str(failure.error)) is (code is ErrorCode.GROUP_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, 9999])
def test_r52_any_code_can_be_caught_as_a_fatal_group_error(code: int) -> None:
    """An application that restarts on it must not miss a code that is newer than this library."""
    member = joining()
    member.answer_heartbeat(error=code)
    (failure,) = member.emitted(Fail)
    assert isinstance(failure.error, FatalGroupError)
    assert failure.error.code == code


def test_r355_a_group_that_was_deleted_is_joined_anew() -> None:
    """Its only member was suspended for longer than its session; an operator or Kafka's clean-up deleted the group."""
    member = stable()
    fence(member, ErrorCode.GROUP_ID_NOT_FOUND)
    member.finish_call("lost", "t-0")
    assert not member.emitted(Fail)
    member.poll()
    member.expect_heartbeat(epoch=0)


def test_r52_a_refused_pattern_is_quoted() -> None:
    """A program may have built the pattern, so the error must show it."""
    member = MemberHarness()
    member.subscribe(pattern="(t")
    member.poll()
    member.answer_heartbeat(error=ErrorCode.INVALID_REGULAR_EXPRESSION)
    (failure,) = member.emitted(Fail)
    assert "'(t'" in str(failure.error)


@pytest.mark.parametrize("code", [*(code for code in ErrorCode if code and code not in HEARTBEAT_CODES), 9999])
def test_r53_a_code_without_a_row_is_retried_only_if_that_can_help(code: int) -> None:
    """A code that is newer than this library must neither kill a healthy member nor be retried for ever."""
    member = stable()
    fence(member, code)
    assert (member.state() is MemberState.STABLE) is (code in RETRIABLE)
    retried = heartbeat_error_class(code) is HeartbeatErrorClass.RETRY
    assert retried is (code in RETRIABLE)


@pytest.mark.parametrize("kind", [FailureKind.TIMED_OUT, FailureKind.DISCONNECTED])
def test_r54_a_lost_answer_is_not_told(kind: FailureKind) -> None:
    """Networks lose packets, and applications cannot help it."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat(kind)
    assert member.state() is MemberState.STABLE
    assert not member.emitted(SurfaceError)
    member.advance(100)
    member.expect_heartbeat(epoch=1)


def test_r54_an_unreadable_answer_is_told_and_repeated() -> None:
    """A proxy or a network between client and broker is broken; the operator must learn of it."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat(FailureKind.MALFORMED)
    assert [type(effect.error) for effect in member.emitted(SurfaceError)] == [ProtocolError]
    member.advance(200)
    member.expect_heartbeat(epoch=1, full=True)


@pytest.mark.parametrize("kind", [FailureKind.AUTHENTICATION_FAILED, FailureKind.UNSUPPORTED_VERSION])
def test_r54_refused_credentials_and_versions_are_fatal(kind: FailureKind) -> None:
    """A wrong password does not get better by waiting."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat(kind)
    assert member.state() is MemberState.FATAL


def test_r55_a_fatal_error_ends_a_leave() -> None:
    """close() must not wait for an answer that is not coming, and nothing is lost that is being revoked."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.leave()
    member.answer_heartbeat(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert len(member.emitted(LeaveDone)) == 1
    assert member.state() is MemberState.FATAL
    assert isinstance(member.member.snapshot().fatal_error, BrokerError)
    assert member.owned == []
    member.finish_call("revoked", "t-0")
    assert not member.calls
    assert not member.sent


@pytest.mark.parametrize("code", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_MEMBER_ID])
def test_r56_nothing_matters_once_the_leave_was_sent(code: ErrorCode) -> None:
    """The last member of a group may find the group gone; that is no error."""
    member = stable({})
    member.advance(INTERVAL_MS)
    member.leave()
    member.answer_heartbeat(error=code)
    member.answer_heartbeat(error=code)
    assert member.state() is MemberState.UNJOINED
    assert not member.emitted(Fail)
    assert [type(effect.error) for effect in member.emitted(SurfaceError)] == []
    assert len(member.emitted(LeaveDone)) == 1
    assert not isinstance(member.member.snapshot().fatal_error, BrokerError)
