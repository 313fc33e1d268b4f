"""Finding the coordinator: only when somebody needs it, for ever, and without hammering."""

from __future__ import annotations

import pytest

from kip848_client.error_codes import ErrorCode
from kip848_client.errors import (
    AuthenticationError,
    GroupAuthorizationError,
    Kip848Error,
    UnsupportedGroupProtocolError,
)
from kip848_client.member.events import (
    ConnectCoordinator,
    Destination,
    Fail,
    FailureKind,
    RequestFailed,
    SurfaceError,
)
from kip848_client.member.states import MemberState
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.support.member_harness import GROUP, INTERVAL_MS, MemberHarness, positions


def looking(**settings: object) -> MemberHarness:
    member = MemberHarness(coordinator_found=False, settings=settings)
    member.subscribe("t")
    member.poll()
    return member


def test_nobody_looks_before_somebody_needs_it() -> None:
    """A consumer that was only constructed causes no traffic."""
    member = MemberHarness(coordinator_found=False)
    member.subscribe("t")
    member.advance(10_000)
    assert not member.sent


def test_any_broker_is_asked() -> None:
    """The coordinator is what we are looking for."""
    member = looking()
    assert member.take(FindCoordinatorRequest).destination is Destination.ANY_BROKER


def test_a_broker_that_does_not_answer_is_not_the_end() -> None:
    """Lookups go on for as long as the consumer lives."""
    member = looking(max_poll_interval_ms=300_000)
    lookups = 0
    for _ in range(100):
        if member.requests(FindCoordinatorRequest):
            lookups += 1
            member.fail(FindCoordinatorRequest, FailureKind.TIMED_OUT)
        member.advance(100)
    assert 10 <= lookups <= 16


def test_a_coordinator_that_refuses_the_connection_is_looked_up_again() -> None:
    """It may have died between the two steps; the lookup then names another."""
    member = looking()
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    connect = member.take_waiting(ConnectCoordinator)
    member.step(RequestFailed(connect.request_id, FailureKind.DISCONNECTED, "refused"))
    member.expect_no_heartbeat()
    member.advance(200)
    member.find_coordinator(node_id=2)
    member.expect_heartbeat(epoch=0)
    coordinator = member.member.snapshot().coordinator
    assert coordinator is not None
    assert coordinator.node_id == 2


def test_a_refusal_is_told_and_fails_what_waits() -> None:
    """A consumer without permission on the group must not wait in silence (KAFKA-18034)."""
    member = MemberHarness(coordinator_found=False)
    commit = member.commit(positions(t_0=1))
    fetch = member.committed("t-0")
    member.find_coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, GroupAuthorizationError)
    assert GROUP in str(surfaced.error)
    assert member.commit_error(commit) is surfaced.error
    assert member.fetch_result(fetch).error is surfaced.error


def test_a_refusal_is_forgotten_once_told() -> None:
    """An ACL that is added later is all it takes."""
    member = looking()
    member.find_coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.advance(100)
    member.find_coordinator()
    member.expect_heartbeat(epoch=0, full=True)


def test_a_refusal_is_not_told_with_every_attempt() -> None:
    """One a second would fill the application's log."""
    member = looking()
    for _ in range(4):
        member.find_coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        member.advance(1000)
    assert len(member.emitted(SurfaceError)) == 1


def test_wrong_credentials_are_final() -> None:
    """The coordinator takes the same ones, and a password that is tried for ever locks the account."""
    member = looking()
    member.fail(FindCoordinatorRequest, FailureKind.AUTHENTICATION_FAILED)
    assert [type(effect.error) for effect in member.emitted(Fail)] == [AuthenticationError]
    assert not member.emitted(SurfaceError)
    member.advance(10_000)
    assert not member.requests(FindCoordinatorRequest)


def test_an_answer_without_our_group_is_read_the_old_way() -> None:
    """Versions below 4 answer in the fields of the response itself."""
    member = looking()
    answer = member.coordinator_answer().__class__(node_id=3, host="127.0.0.1", port=9092)
    member.answer(FindCoordinatorRequest, answer)
    assert member.take_waiting(ConnectCoordinator).node.node_id == 3


def test_an_idle_consumer_does_not_look_for_a_lost_coordinator() -> None:
    """After unsubscribe() nobody needs it."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.leave()
    member.finish_call("revoked", "t-0")
    member.coordinator_found = False
    member.fail_heartbeat()
    member.advance(10 * INTERVAL_MS)
    assert not member.sent


@pytest.mark.parametrize(
    ("kind", "error_type"),
    [
        (FailureKind.AUTHENTICATION_FAILED, AuthenticationError),
        (FailureKind.UNSUPPORTED_VERSION, UnsupportedGroupProtocolError),
    ],
)
def test_a_coordinator_that_refuses_the_member_is_final(kind: FailureKind, error_type: type[Kip848Error]) -> None:
    """Heartbeats go over that connection: no retry makes it work, and the application must know."""
    member = looking()
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    connect = member.take_waiting(ConnectCoordinator)
    member.step(RequestFailed(connect.request_id, kind, "refused"))
    assert [type(effect.error) for effect in member.emitted(Fail)] == [error_type]
    assert not member.emitted(SurfaceError)
    assert member.state() is MemberState.FATAL


def test_a_coordinator_that_talks_nonsense_is_looked_up_again() -> None:
    """It may be a load balancer in front of nothing; the next one may be right."""
    member = looking()
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    connect = member.take_waiting(ConnectCoordinator)
    member.step(RequestFailed(connect.request_id, FailureKind.MALFORMED, "garbage"))
    assert len(member.emitted(SurfaceError)) == 1
    member.advance(200)
    assert member.requests(FindCoordinatorRequest)


def test_a_refused_connection_without_membership_fails_the_calls_that_wait() -> None:
    """A tool that only reads committed offsets gets its error, and nothing is FATAL."""
    member = MemberHarness(coordinator_found=False)
    call = member.committed("t-0")
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    connect = member.take_waiting(ConnectCoordinator)
    member.step(RequestFailed(connect.request_id, FailureKind.AUTHENTICATION_FAILED, "refused"))
    assert isinstance(member.fetch_result(call).error, AuthenticationError)
    assert member.state() is MemberState.UNJOINED


def test_a_coordinator_that_stays_unreachable_is_tried_less_and_less_often() -> None:
    """Lookups that succeed must not reset the wait for a broker that is down."""
    member = looking()
    for wait_ms in (100, 200, 400):
        member.answer(FindCoordinatorRequest, member.coordinator_answer())
        connect = member.take_waiting(ConnectCoordinator)
        member.step(RequestFailed(connect.request_id, FailureKind.DISCONNECTED, "refused"))
        member.advance(wait_ms - 1)
        assert not member.requests(FindCoordinatorRequest)
        member.advance(1)
        assert member.requests(FindCoordinatorRequest)
