"""Finding the coordinator and keeping in touch with it: what no rule of docs/protocol.md says."""

from __future__ import annotations

import random

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.core.events import (
    ConnectCoordinator,
    CoordinatorDisconnected,
    FailureKind,
    RequestFailed,
    SurfaceError,
)
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.spec.arrange import looking, stable


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
    assert member.member.coordinator == coordinator
    assert coordinator.node_id == 2


def test_a_refusal_is_not_told_with_every_attempt() -> None:
    """One a second would fill the application's log; one in five seconds reminds."""
    member = looking()
    for _ in range(6):
        member.find_coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        member.advance(1000)
    assert len(member.emitted(SurfaceError)) == 2


def test_an_answer_without_our_group_is_read_the_old_way() -> None:
    """Versions below 4 answer in the fields of the response itself."""
    member = looking()
    answer = member.coordinator_answer().__class__(node_id=3, host="127.0.0.1", port=9092)
    member.answer(FindCoordinatorRequest, answer)
    assert member.take_waiting(ConnectCoordinator).node.node_id == 3


def test_a_coordinator_that_talks_nonsense_is_looked_up_again() -> None:
    """It may be a load balancer in front of nothing; the next one may be right."""
    member = looking()
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    connect = member.take_waiting(ConnectCoordinator)
    member.step(RequestFailed(connect.request_id, FailureKind.MALFORMED, "garbage"))
    assert len(member.emitted(SurfaceError)) == 1
    member.advance(200)
    assert member.requests(FindCoordinatorRequest)


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


@pytest.mark.parametrize(("initial_ms", "max_ms", "wait_ms"), [(500, 100, 100), (100, 100, 100), (0, 0, 1), (0, 5, 1)])
def test_odd_limits_still_give_a_wait(initial_ms: int, max_ms: int, wait_ms: int) -> None:
    """A wait of zero after a failure is a core at 100 %."""
    assert Backoff(initial_ms=initial_ms, max_ms=max_ms, rng=random.Random(7)).wait_ms(3) == wait_ms


def test_another_brokers_connection_does_not_matter() -> None:
    """Data connections break all the time; each would otherwise cost a lookup of the coordinator."""
    member = stable()
    member.coordinator_found = False
    member.step(CoordinatorDisconnected(node_id=2))
    member.tick()
    assert not member.requests(FindCoordinatorRequest)
