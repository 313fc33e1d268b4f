"""Classic groups over the wire of the embedded broker: late answers, and what a test may do to such a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ErrorCode, IllegalStateError
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.consumer_protocol import TopicPartition as Assigned
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tests.broker.conftest import FullDisk

pytestmark = pytest.mark.kip848_broker(topics={"orders": 2})

FOO = encode_subscription(ConsumerProtocolSubscription(topics=("orders",), rack_id="r"))
ALL = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=(Assigned("orders", (0, 1)),)))


class Client:
    """A classic member that says what the test tells it to say."""

    def __init__(self, broker: EmbeddedBroker, client_id: str) -> None:
        self.connection = RawConnection(broker.bootstrap_servers, client_id=client_id)
        self.member_id = ""
        self.generation = -1
        self._request = JoinGroupRequest()

    def send_join(self) -> None:
        """Send a JoinGroup; the round for the member id comes before."""
        if not self.member_id:
            answer = self.connection.ask(self._join(), version=9)
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.member_id = answer.member_id
        self._request = self._join()
        self.connection.send(self._request, version=9)

    def read_join(self) -> JoinGroupResponse:
        """Read the answer to it."""
        answer = self.connection.read(self._request)
        self.generation = answer.generation_id
        return answer

    def join(self) -> JoinGroupResponse:
        """Join where the answer comes at once."""
        self.send_join()
        return self.read_join()

    def sync(self, assignment: bytes = ALL) -> Any:
        """Take all partitions, as the leader of a group of one."""
        given = [{"member_id": self.member_id, "assignment": assignment}]
        return self.connection.call(
            ApiKey.SYNC_GROUP, 5, **self._said, protocol_type="consumer", protocol_name="range", assignments=given
        )

    def enter(self) -> Client:
        """Join and sync, alone."""
        self.join()
        self.sync()
        return self

    def heartbeat(self) -> int:
        """The code of a Heartbeat."""
        return int(self.connection.call(ApiKey.HEARTBEAT, 4, **self._said).error_code)

    @property
    def _said(self) -> dict[str, Any]:
        return {"group_id": "g", "generation_id": self.generation, "member_id": self.member_id}

    def _join(self) -> JoinGroupRequest:
        return build(
            JoinGroupRequest,
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": FOO}],
        )


Connect = Callable[[str], Client]


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Connect]:
    with ExitStack() as stack:

        def connect(client_id: str) -> Client:
            made = Client(broker, client_id)
            stack.enter_context(made.connection)
            return made

        yield connect


def test_a_classic_group_is_seen_with_what_its_members_read(broker: EmbeddedBroker, client: Connect) -> None:
    """A test of a classic application asserts on the same snapshots as one of a KIP-848 application."""
    a = client("a").enter()
    group = broker.wait_for_group("g", state="stable", members=1, assignor="range", epoch=1)
    (member,) = group.members
    assert (group.type, group.leader, member.classic) == ("classic", a.member_id, True)
    assert (member.client_id, member.rack_id, member.subscribed_topics) == ("a", "r", frozenset({"orders"}))
    assert group.assigned == {NamedPartition("orders", 0), NamedPartition("orders", 1)}
    assert broker.metrics()["kafka.group_coordinator.group.completed.rebalance.count"] == 1
    assert str(group) == "classic group 'g' is Stable at generation 1: a@1 [orders-0, orders-1]"


def test_assignments_in_a_format_of_their_own_are_shown_as_none(broker: EmbeddedBroker, client: Connect) -> None:
    """Whatever an assignor writes, the group can be looked at."""
    a = client("a")
    a.join()
    a.sync(b"\xff")
    assert broker.wait_for_group("g", state="Stable").assigned == frozenset()


def test_a_join_waits_for_the_others_without_holding_up_other_connections(
    broker: EmbeddedBroker, client: Connect
) -> None:
    """The answer comes when the last member has joined, on the connection that asked."""
    a, b = client("a").enter(), client("b")
    b.send_join()
    broker.wait_for_group("g", state="PreparingRebalance")
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    a.send_join()
    assert a.read_join().leader == b.read_join().leader == a.member_id
    assert a.generation == b.generation == 2


def test_a_join_whose_connection_is_gone_is_answered_into_nothing(broker: EmbeddedBroker, client: Connect) -> None:
    """The others go on; the member stays until its session ends, or it comes back."""
    a, b = client("a").enter(), client("b")
    b.send_join()
    broker.wait_for_group("g", state="PreparingRebalance")
    b.connection.close()
    assert a.join().generation_id == 2
    assert len(broker.wait_for_group("g").members) == 2
    b.connection = RawConnection(broker.bootstrap_servers)
    with b.connection:
        assert b.join().generation_id == 2


def test_requests_that_wait_are_answered_when_the_broker_stops(broker: EmbeddedBroker, client: Connect) -> None:
    """Clients look for a coordinator at once, and find it after the restart."""
    client("a").enter()
    b = client("b")
    b.send_join()
    broker.wait_for_group("g", state="PreparingRebalance")
    broker.stop()
    assert b.read_join().error_code == ErrorCode.NOT_COORDINATOR
    broker.start()
    assert broker.wait_for_group("g").state == "Stable"


def test_a_test_lets_a_session_run_out_and_removes_a_member(broker: EmbeddedBroker, client: Connect) -> None:
    """A test controls members of classic groups as it controls those of consumer groups."""
    a = client("a")
    a.join()
    broker.groups.expire_session("g", "a")
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    a.member_id = ""
    a.join()
    broker.groups.remove_member("g", "a")
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(IllegalStateError, match="no members"):
        broker.groups.force_rebalance("g")


def test_a_test_lets_a_classic_group_rebalance(broker: EmbeddedBroker, client: Connect) -> None:
    """How an application takes a rebalance is tested without a second member of it."""
    a = client("a").enter()
    generation = broker.wait_for_group("g", state="Stable").group_epoch
    assert broker.groups.force_rebalance("g") == generation + 1
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert broker.groups.force_rebalance("g") == generation + 1  # it is on its way
    a.join()
    a.sync()
    after = broker.wait_for_group("g", state="Stable", members=1)
    assert after.group_epoch == generation + 1


def test_an_assignment_that_cannot_be_kept_is_handed_in_again(client: Connect, full_disk: FullDisk) -> None:
    """A full disk must not give partitions out that a restart would not know of."""
    a = client("a")
    a.join()
    full_disk.set()
    assert a.sync().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    full_disk.clear()
    assert a.join().generation_id == 1
    assert a.sync().assignment == ALL
