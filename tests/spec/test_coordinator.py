"""The rules of docs/protocol.md, section The coordinator."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import (
    AuthenticationError,
    GroupAuthorizationError,
    Kip848Error,
    OtherClusterError,
    UnsupportedGroupProtocolError,
)
from kip848_client.member.core.events import (
    ConnectCoordinator,
    CoordinatorDisconnected,
    Destination,
    Fail,
    FailureKind,
    RequestFailed,
    RequestMetadata,
    SurfaceError,
)
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from tests.spec.arrange import fence, looking, looking_up, stable
from tests.support.member_harness import GROUP, INTERVAL_MS, MemberHarness, positions


def test_r20_a_coordinator_is_looked_up_only_when_it_is_needed() -> None:
    """A consumer that waits to be used causes no traffic."""
    member = MemberHarness(coordinator_found=False)
    member.advance(10_000)
    assert not member.sent
    member.subscribe("t")
    (lookup,) = member.requests(FindCoordinatorRequest)
    assert lookup.coordinator_keys == (GROUP,)
    assert member.take(FindCoordinatorRequest).destination is Destination.ANY_BROKER


def test_r20_a_consumer_that_left_does_not_look() -> None:
    """After unsubscribe() the consumer does not need the coordinator."""
    member = stable({})
    member.leave()
    member.coordinator_found = False
    member.fail_heartbeat()
    member.advance(10 * INTERVAL_MS)
    assert not member.sent


def test_r20_nothing_is_due_once_the_last_commit_that_waits_for_a_coordinator_has_ended() -> None:
    """A process with thousands of consumers is woken for each needless deadline."""
    member = MemberHarness(coordinator_found=False)
    call = member.commit(positions(t_0=7), timeout_ms=50)
    member.fail(FindCoordinatorRequest)
    member.clock.advance(50)
    member.tick()
    assert isinstance(member.commit_error(call), Kip848Error)
    assert member.member.deadline_ms() is None


@pytest.mark.parametrize("kind", [FailureKind.TIMED_OUT, FailureKind.DISCONNECTED])
def test_r21_a_lookup_is_repeated_for_ever(kind: FailureKind) -> None:
    """A cluster that is down for a night must find its consumers alive in the morning."""
    member = looking(max_poll_interval_ms=10**9)
    for wait_ms in (100, 200, 400, 800, 1000, 1000):
        member.fail(FindCoordinatorRequest, kind)
        member.advance(wait_ms - 1)
        assert not member.sent
        member.advance(1)
    assert not member.emitted(SurfaceError)
    assert member.requests(FindCoordinatorRequest)


def test_r199_a_member_does_not_wait_a_session_for_a_silent_broker() -> None:
    """A firewall that forgot the connections closes none: the heartbeat times out, and so does the look-up after it."""
    member = stable({})
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.fail_heartbeat(FailureKind.TIMED_OUT)
    waits = []
    for wait_ms in (100, 200, 400, 800, 1000, 1000):
        (lookup,) = [item for item in member.sent if isinstance(item.request, FindCoordinatorRequest)]
        waits.append(lookup.timeout_ms)
        member.fail(FindCoordinatorRequest, FailureKind.TIMED_OUT)
        member.advance(wait_ms)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000]


def test_r199_nor_for_the_coordinator_that_was_found() -> None:
    """A machine that is gone refuses no connection; another lookup may name its successor."""
    member = stable({})
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.fail_heartbeat(FailureKind.TIMED_OUT)
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    assert member.take_waiting(ConnectCoordinator).timeout_ms == 1_000


def test_r199_a_lookup_that_worked_has_its_failures_forgotten() -> None:
    """After the next loss the first attempt must be short again."""
    member = looking()
    for wait_ms in (100, 200):
        member.fail(FindCoordinatorRequest, FailureKind.TIMED_OUT)
        member.advance(wait_ms)
    member.find_coordinator()
    member.answer_heartbeat(epoch=1, assignment={})
    member.reconcile()
    fence(member, ErrorCode.NOT_COORDINATOR)
    assert member.take(FindCoordinatorRequest).timeout_ms == 1_000


def test_r199_a_consumer_that_is_no_member_has_more_time() -> None:
    """No session runs, and its first connection may take a while: TLS, a login, a token to fetch."""
    (lookup,) = looking().sent
    assert lookup.timeout_ms == 5_000


def test_r199_names_of_topics_are_asked_for_elsewhere_too() -> None:
    """Partitions that were assigned would wait for their names as long as for a dead connection."""
    member = MemberHarness(metadata_answered=False)
    member.become_stable({})
    member.assign_more({"t": [0]})
    assert member.take_waiting(RequestMetadata).timeout_ms == 1_000


def test_r22_a_refused_lookup_is_told_and_fails_what_waits() -> None:
    """A consumer without permission on the group must not wait in silence."""
    member = MemberHarness(coordinator_found=False)
    fetch, commit = member.committed("t-0"), member.commit(positions(t_0=1))
    member.find_coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, GroupAuthorizationError)
    assert "needs READ on group 'orders-group'" in str(surfaced.error)
    assert not surfaced.error.fatal
    assert member.fetch_result(fetch).error is member.commit_error(commit) is surfaced.error
    assert member.state() is MemberState.UNJOINED
    member.advance(10_000)
    assert not member.sent
    other = MemberHarness(coordinator_found=False)
    call = other.commit(positions(t_0=1))
    other.find_coordinator(error_code=ErrorCode.INVALID_GROUP_ID)
    assert "READ" not in str(other.commit_error(call))


def test_r22_the_position_of_a_partition_waits_all_the_same() -> None:
    """A permission that is added later starts it; one error tells of the refusal, not two."""
    member = looking_up()
    member.coordinator_found = False
    member.fail(OffsetFetchRequest)
    member.find_coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert len(member.emitted(SurfaceError)) == 1
    member.advance(100)
    member.find_coordinator()
    member.answer_fetch({"t-0": 7})
    assert member.history[-1] == "fetch(t-0@7)"


def test_r22_what_was_sent_before_still_gets_its_answer() -> None:
    """The former coordinator may have written the commit; the application would read its records again."""
    member = stable()
    fetch, commit = member.committed("t-0"), member.commit(positions(t_0=1))
    member.coordinator_found = False
    fence(member, ErrorCode.NOT_COORDINATOR)
    member.find_coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.answer_fetch({"t-0": 7})
    member.answer_commit()
    assert member.fetch_result(fetch).error is member.commit_error(commit) is None


def test_r22_the_next_lookup_starts_afresh() -> None:
    """A permission that is added later is all it takes."""
    member = looking()
    member.find_coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.advance(100)
    member.find_coordinator()
    member.expect_heartbeat(epoch=0, full=True)
    assert len(member.emitted(SurfaceError)) == 1


@pytest.mark.parametrize("kind", [FailureKind.TIMED_OUT, FailureKind.DISCONNECTED, None])
def test_r23_a_broken_connection_is_a_lost_coordinator(kind: FailureKind | None) -> None:
    """The coordinator may have moved together with the connection, also one that was idle."""
    member = stable()
    member.coordinator_found = False
    if kind is None:
        member.step(CoordinatorDisconnected(node_id=1))
    else:
        member.advance(INTERVAL_MS)
        member.fail_heartbeat(kind)
    assert member.member.snapshot().coordinator is None
    member.find_coordinator(node_id=2)
    member.advance(100 if kind else INTERVAL_MS)
    member.expect_heartbeat(epoch=1, full=True)


def test_r24_a_late_answer_does_not_lose_the_new_coordinator() -> None:
    """Throwing away what was just found would repeat the lookup for every request that was under way."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    late = member.take(ConsumerGroupHeartbeatRequest)
    member.commit(positions(t_0=1))
    member.fail(OffsetCommitRequest)
    member.find_coordinator(node_id=2)
    member.sent.insert(0, late)
    member.answer_heartbeat(error=ErrorCode.NOT_COORDINATOR)
    coordinator = member.member.snapshot().coordinator
    assert coordinator is not None
    assert coordinator.node_id == 2


@pytest.mark.parametrize(
    ("kind", "error_type"),
    [
        (FailureKind.AUTHENTICATION_FAILED, AuthenticationError),
        (FailureKind.UNSUPPORTED_VERSION, UnsupportedGroupProtocolError),
    ],
)
def test_r25_a_refused_connection_stops_a_member(kind: FailureKind, error_type: type[Kip848Error]) -> None:
    """Heartbeats go over that connection: no retry makes it work."""
    member = looking()
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    member.step(RequestFailed(member.take_waiting(ConnectCoordinator).request_id, kind, "refused"))
    assert [type(failure.error) for failure in member.emitted(Fail)] == [error_type]
    assert not member.emitted(SurfaceError)
    assert member.state() is MemberState.FATAL


def test_r25_refused_credentials_stop_a_member_at_the_first_broker() -> None:
    """Trying a wrong password for ever locks accounts, and the coordinator would take no other."""
    member = looking()
    member.fail(FindCoordinatorRequest, FailureKind.AUTHENTICATION_FAILED)
    assert [type(failure.error) for failure in member.emitted(Fail)] == [AuthenticationError]
    assert member.state() is MemberState.FATAL
    member.advance(10_000)
    assert not member.sent


def test_r25_another_cluster_at_the_same_addresses_stops_a_member() -> None:
    """Its offsets and topic ids mean nothing there: it would read anything from anywhere."""
    member = looking()
    member.fail(FindCoordinatorRequest, FailureKind.OTHER_CLUSTER)
    assert [type(failure.error) for failure in member.emitted(Fail)] == [OtherClusterError]
    assert member.state() is MemberState.FATAL


def test_r25_a_refused_connection_fails_only_the_calls_of_others() -> None:
    """A tool that reads committed offsets gets its error, and may try again."""
    member = MemberHarness(coordinator_found=False)
    call = member.committed("t-0")
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    connect = member.take_waiting(ConnectCoordinator)
    member.step(RequestFailed(connect.request_id, FailureKind.AUTHENTICATION_FAILED, "refused"))
    assert isinstance(member.fetch_result(call).error, AuthenticationError)
    assert member.state() is MemberState.UNJOINED
    assert not member.emitted(Fail)
    at_the_first_broker = MemberHarness(coordinator_found=False)
    call = at_the_first_broker.committed("t-0")
    at_the_first_broker.fail(FindCoordinatorRequest, FailureKind.AUTHENTICATION_FAILED)
    assert isinstance(at_the_first_broker.fetch_result(call).error, AuthenticationError)


def test_r26_a_coordinator_that_moves_is_looked_up_at_once() -> None:
    """Kafka clusters roll: a member must not lose a backoff each time, however short it has been at this one."""
    member = stable()
    for _ in range(3):
        lookups_before = len(member.emitted(ConnectCoordinator))
        member.advance(INTERVAL_MS)
        member.answer_heartbeat(error=ErrorCode.NOT_COORDINATOR)
        assert len(member.emitted(ConnectCoordinator)) == lookups_before + 1
        member.answer_heartbeat()


def test_r26_a_coordinator_that_moves_before_it_worked_is_looked_up_after_a_backoff() -> None:
    """Also the first one of several that each name another."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.NOT_COORDINATOR)
    lookups_before = len(member.emitted(ConnectCoordinator))
    member.answer_heartbeat(error=ErrorCode.NOT_COORDINATOR)
    assert len(member.emitted(ConnectCoordinator)) == lookups_before
    member.advance(120)
    assert len(member.emitted(ConnectCoordinator)) == lookups_before + 1


def test_r26_brokers_that_disagree_are_not_asked_in_a_loop() -> None:
    """Each says that the other is the coordinator: a lookup costs a connection, too."""
    member = stable()
    member.advance(INTERVAL_MS)
    lookups_before = len(member.emitted(ConnectCoordinator))
    for _ in range(20):
        while member.requests(ConsumerGroupHeartbeatRequest):
            member.answer_heartbeat(error=ErrorCode.NOT_COORDINATOR)
        member.advance(10)
    assert len(member.emitted(ConnectCoordinator)) - lookups_before <= 4
