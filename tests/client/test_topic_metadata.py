"""`topic_metadata.py` and `requests.py`: names, offsets by leader, and one event for each request."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from uuid import UUID

import anyio
import pytest

from kip848_client.common.clock import ManualClock
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import BrokerNode, NamedPartition, OffsetAndMetadata
from kip848_client.errors import (
    AuthenticationError,
    ConnectionLostError,
    Kip848Error,
    MessageValueError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kip848_client.journal import NullJournal
from kip848_client.member.core.events import (
    ConnectCoordinator,
    CoordinatorConnected,
    Destination,
    FailureKind,
    MetadataUpdated,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    SendRequest,
    TopicDescription,
)
from kip848_client.network.observer import MemberObserver
from kip848_client.network.request_sender import RequestSender
from kip848_client.network.requests import NetworkPerformer, failure_kind
from kip848_client.network.topic_metadata import ListedOffsets, TopicMetadataRequestManager
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataResponse
from kip848_client.wire.schema import Request, Response
from tests.client.fakes import VERSIONS, FakeConnection, FakeNetwork

ResultT = TypeVar("ResultT")

ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)
CLUSTER = build(
    MetadataResponse,
    brokers=[{"node_id": 1, "host": "a", "port": 1}, {"node_id": 2, "host": "b", "port": 2}],
    topics=[
        {
            "name": "orders",
            "topic_id": ORDERS,
            "partitions": [
                {"partition_index": index, "leader_id": leader, "leader_epoch": 5}
                for index, leader in enumerate((1, 2, -1))
            ],
        },
        {"name": None, "topic_id": PAYMENTS, "error_code": ErrorCode.UNKNOWN_TOPIC_ID},
    ],
)


def broker(offset: int) -> Callable[[Request[Response]], Response | Kip848Error]:
    """A broker of `CLUSTER` whose every partition ends at *offset*."""

    def answer(request: Request[Response]) -> Response | Kip848Error:
        match request:
            case ListOffsetsRequest(topics=[topic]):
                indexes = [one.partition_index for one in topic.partitions]
                ends = [{"partition_index": index, "offset": offset, "leader_epoch": 5} for index in indexes]
                return build(ListOffsetsResponse, topics=[{"name": topic.name, "partitions": ends}])
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(node_id=1, host="a", port=1)
            case _:
                return CLUSTER

    return answer


def on(network: FakeNetwork, use: Callable[[RequestSender, anyio.abc.TaskGroup], Awaitable[ResultT]]) -> ResultT:
    """Run *use* with a sender on *network*."""
    results: list[ResultT | Kip848Error] = []

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            sender = RequestSender(
                bootstrap=[("a", 1)], open_connection=network, tasks=tasks, clock=ManualClock(), rng=random.Random(1)
            )
            try:
                results.append(await use(sender, tasks))
            except Kip848Error as error:
                results.append(error)  # the task group would wrap it
            tasks.cancel_scope.cancel()

    anyio.run(main)
    [result] = results
    if isinstance(result, Kip848Error):
        raise result
    return result


def metadata(sender: RequestSender) -> TopicMetadataRequestManager:
    """Without transactions in the way."""
    return TopicMetadataRequestManager(sender, clock=ManualClock(), isolation_level=1)


def test_names_are_asked_by_id_where_the_broker_can() -> None:
    """Asking for every topic of a large cluster at each rebalance would be felt by the brokers."""
    connection = FakeConnection(broker(0))

    names = on(
        FakeNetwork({("a", 1): connection}), lambda s, _: metadata(s).names({PAYMENTS, ORDERS}, timeout_ms=1_000)
    )

    assert names == {ORDERS: "orders"}
    [request] = connection.sent
    assert isinstance(request, MetadataRequest)
    assert [topic.topic_id for topic in request.topics or ()] == [ORDERS, PAYMENTS]
    assert not request.allow_auto_topic_creation


def test_a_broker_may_send_its_clients_back_to_the_bootstrap_servers() -> None:
    """KIP-1102: its metadata is of another cluster, so no topic of it may be believed."""
    answers = iter([MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED), broker(0)(MetadataRequest())])
    connection = FakeConnection(lambda _: next(answers))

    async def ask_twice(sender: RequestSender, _: anyio.abc.TaskGroup) -> dict[UUID, str]:
        with pytest.raises(ConnectionLostError, match="new start from the bootstrap servers"):
            await metadata(sender).names({ORDERS}, timeout_ms=1_000)
        return await metadata(sender).names({ORDERS}, timeout_ms=1_000)

    network = FakeNetwork({("a", 1): connection})
    assert on(network, ask_twice) == {ORDERS: "orders"}
    assert network.dialled == [("a", 1)] * 2


def test_an_older_broker_is_asked_for_every_topic() -> None:
    """Before version 12 a request without names kills the connection."""
    connection = FakeConnection(broker(0), versions={ApiKey.METADATA: (0, 11)})

    on(FakeNetwork({("a", 1): connection}), lambda s, _: metadata(s).names({ORDERS}, timeout_ms=1_000))

    [request] = connection.sent
    assert isinstance(request, MetadataRequest)
    assert request.topics is None


def test_topics_are_described_by_name_or_by_a_pattern_for_the_whole_name() -> None:
    """On the classic protocol members match; a pattern for a part of the name would take in topics of others.

    The racks of replicas are for assignors, and replicas that lag behind count, as for the Java client.
    """
    near = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1, 2]}
    far = {"partition_index": 1, "leader_id": 2, "replica_nodes": [2, 7], "isr_nodes": [2]}
    cluster = build(
        MetadataResponse,
        brokers=[
            {"node_id": node, "host": host, "port": node, "rack": rack}
            for node, host, rack in ((1, "a", "r1"), (2, "b", "r2"))
        ],
        topics=[
            {"name": name, "topic_id": ORDERS, "partitions": [far, near], "is_internal": name.startswith("__")}
            for name in ("orders", "orders-old", "__orders")
        ],
    )

    def describe(*topics: str, pattern: str | None) -> Mapping[str, TopicDescription]:
        network = FakeNetwork({("a", 1): FakeConnection(lambda _: cluster)})
        found = on(network, lambda s, _: metadata(s).describe(topics, pattern=pattern, timeout_ms=1_000))
        return found.topics

    known = TopicDescription(ORDERS, 2, (frozenset({"r1", "r2"}), frozenset({"r2"})))
    assert describe(pattern="_*orders") == {"orders": known}
    assert describe("orders-old", pattern="rder") == {"orders-old": known}
    assert describe("orders", pattern=None) == {"orders": known}


def list_latest(network: FakeNetwork, *partitions: int) -> ListedOffsets:
    """Ask for the ends of some partitions of ``orders``."""
    timestamps = {NamedPartition("orders", partition): -1 for partition in partitions}
    return on(network, lambda s, _: metadata(s).list_offsets(timestamps, timeout_ms=1_000))


def test_each_leader_is_asked_for_its_own_partitions() -> None:
    """Others would answer NOT_LEADER_OR_FOLLOWER, and the consumer would wait for a retry."""
    a, b = FakeConnection(broker(100)), FakeConnection(broker(200))

    listed = list_latest(FakeNetwork({("a", 1): a, ("b", 2): b}), 0, 1)

    assert listed.offsets == {
        NamedPartition("orders", 0): OffsetAndMetadata(100, 5),
        NamedPartition("orders", 1): OffsetAndMetadata(200, 5),
    }
    assert listed.errors == {}
    asked = [request for request in (*a.sent, *b.sent) if isinstance(request, ListOffsetsRequest)]
    assert [request.isolation_level for request in asked] == [1, 1]
    assert [one.current_leader_epoch for request in asked for one in request.topics[0].partitions] == [5, 5]


def test_a_dead_leader_costs_only_its_own_partitions() -> None:
    """One broker down must not stop the reset of partitions that live elsewhere."""
    listed = list_latest(FakeNetwork({("a", 1): FakeConnection(broker(100))}), 0, 1)

    assert listed.offsets == {NamedPartition("orders", 0): OffsetAndMetadata(100, 5)}
    assert listed.errors == {NamedPartition("orders", 1): ErrorCode.NETWORK_EXCEPTION}


def test_partitions_without_a_leader_or_a_topic_have_their_code() -> None:
    """The member decides by the code whether to try again."""
    listed = list_latest(FakeNetwork({("a", 1): FakeConnection(broker(100))}), 2, 9)

    assert listed.errors == {
        NamedPartition("orders", 2): ErrorCode.LEADER_NOT_AVAILABLE,
        NamedPartition("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_refused_password_is_not_mistaken_for_a_dead_leader() -> None:
    """It never passes; hidden behind a retriable code the consumer would try for ever."""
    network = FakeNetwork({("a", 1): FakeConnection(broker(100)), ("b", 2): AuthenticationError("no")})

    with pytest.raises(AuthenticationError):
        list_latest(network, 1)


def performed(network: FakeNetwork, effect: SendRequest | ConnectCoordinator | RequestMetadata) -> object:
    """The event that *effect* becomes."""

    async def use(sender: RequestSender, tasks: anyio.abc.TaskGroup) -> object:
        observer = MemberObserver(group_id="g", client_id="c", clock=ManualClock(), journal=NullJournal())
        performer = NetworkPerformer(
            sender=sender, metadata=metadata(sender), tasks=tasks, observer=observer, report=lambda _: None
        )
        event = await performer.perform(effect)
        await performer.aclose()
        return event

    return on(network, use)


def find_coordinator() -> SendRequest:
    request = FindCoordinatorRequest(key="", key_type=0, coordinator_keys=("g",))
    return SendRequest(7, Destination.ANY_BROKER, request, 1_000)


@pytest.mark.parametrize(("versions", "key"), [(VERSIONS, ""), ({ApiKey.FIND_COORDINATOR: (0, 3)}, "g")])
def test_an_old_broker_is_asked_for_one_key(versions: Mapping[int, tuple[int, int]], key: str) -> None:
    """Version 3 has another field for it; without the change no coordinator would be found."""
    connection = FakeConnection(broker(0), versions=versions)

    event = performed(FakeNetwork({("a", 1): connection}), find_coordinator())

    assert isinstance(event, ResponseReceived)
    assert event.request_id == 7
    [request] = connection.sent
    assert isinstance(request, FindCoordinatorRequest)
    assert (request.key, request.coordinator_keys) == (key, ("g",) if not key else ())


def test_each_request_becomes_one_event() -> None:
    """An answer that gets lost on the way leaves the member waiting for ever."""
    network = FakeNetwork({("a", 1): FakeConnection(broker(0))})

    assert performed(network, ConnectCoordinator(1, BrokerNode(1, "a", 1), 1_000)) == CoordinatorConnected(1, VERSIONS)
    assert performed(network, ConnectCoordinator(2, BrokerNode(3, "nowhere", 1), 1)) == RequestFailed(
        2, FailureKind.DISCONNECTED, "no broker listens on nowhere:1"
    )
    assert performed(network, RequestMetadata(3, frozenset({ORDERS}), 1_000)) == MetadataUpdated({ORDERS: "orders"}, 3)
    request = SendRequest(4, Destination.COORDINATOR, MetadataRequest(topics=None), 1_000)
    failed = performed(network, request)
    assert isinstance(failed, RequestFailed)
    assert failed.kind is FailureKind.DISCONNECTED


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RequestTimeoutError("x"), FailureKind.TIMED_OUT),
        (AuthenticationError("x"), FailureKind.AUTHENTICATION_FAILED),
        (ConnectionLostError("x"), FailureKind.DISCONNECTED),
        (UnsupportedVersionError("x"), FailureKind.UNSUPPORTED_VERSION),
        (ProtocolError("x"), FailureKind.MALFORMED),
        (MessageValueError("x"), FailureKind.MALFORMED),
    ],
)
def test_each_kind_of_failure_is_told_apart(error: Kip848Error, kind: FailureKind) -> None:
    """The member retries some, rediscovers after others, and stops at the rest."""
    assert failure_kind(error) is kind
