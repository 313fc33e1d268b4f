"""Headers, versions and broken handlers, asked over a real connection."""

from __future__ import annotations

import logging
import struct
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.journal import MemoryJournal
from kip848_client.testing.broker.apis import create_topics, describe_configs, find_coordinator, load_apis, metadata
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_response, frame
from kip848_client.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kip848_client.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kip848_client.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kip848_client.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.metadata import MetadataRequest

pytestmark = pytest.mark.kip848_broker(topics={"orders": 1}, connect_groups=True)

API_VERSIONS = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")


@pytest.mark.parametrize("version", range(6))
def test_api_versions_lists_exactly_what_has_a_file(connection: RawConnection, version: int) -> None:
    """A client that is promised an API or version that is not there fails later, and worse (librdkafka aborts)."""
    response = connection.ask(API_VERSIONS, version=version)
    assert response.error_code == ErrorCode.NONE
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [
        (api.api_key, api.version_min if api.api_key != ApiKey.PRODUCE else 0, api.version_max)
        for api in load_apis()
        if api.extension not in ("sasl", "telemetry")
    ]


@pytest.mark.parametrize("version", range(3))
def test_old_versions_of_produce_are_advertised_and_close_the_connection(
    connection: RawConnection, version: int
) -> None:
    """As on Kafka 4: librdkafka up to 2.10.1 compresses only for brokers that know them, and never sends them."""
    connection.socket.sendall(frame(struct.pack(">hhih", ApiKey.PRODUCE, version, 1, -1) + bytes(10)))
    assert connection.is_closed_by_peer()


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        (3, [("metadata.version", 7, 33)]),
        (
            4,
            [
                ("group.version", 0, 1),
                ("kraft.version", 0, 1),
                ("metadata.version", 7, 33),
                ("share.version", 0, 2),
                ("transaction.version", 0, 2),
            ],
        ),
    ],
)
def test_features_are_those_of_kafka_4_4(
    connection: RawConnection, version: int, supported: list[tuple[str, int, int]]
) -> None:
    """Java clients ask for some, tools for all; below version 4 they cannot read a minimum of 0 (KAFKA-17492)."""
    response = connection.ask(API_VERSIONS, version=version)
    assert [(item.name, item.min_version, item.max_version) for item in response.supported_features] == supported
    finalized = [(item.name, item.max_version_level) for item in response.finalized_features]
    assert finalized == [
        ("group.version", 1),
        ("kraft.version", 1),
        ("metadata.version", 33),
        ("share.version", 2),
        ("transaction.version", 2),
    ]


@pytest.mark.parametrize(("level", "finalized"), [(0, []), (1, [1])])
def test_an_older_level_of_transactions_can_be_finalised(level: int, finalized: list[int]) -> None:
    """Java chooses its protocol of transactions by it; both are in use."""
    with (
        EmbeddedBroker(config={"kip848.transaction.version": level}) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        response = connection.ask(API_VERSIONS, version=4)
    found = {item.name: item.max_version_level for item in response.finalized_features}
    assert [found[name] for name in found if name == "transaction.version"] == finalized


def test_a_newer_api_versions_is_answered_in_version_0_with_our_range(connection: RawConnection) -> None:
    """A client of the future has to learn which version to step down to, not to lose its connection (KIP-511)."""
    header = struct.pack(">hhih", ApiKey.API_VERSIONS, 9, 77, -1)
    connection.socket.sendall(frame(header + b"\x00whatever version nine has"))
    correlation_id, response = decode_response(ApiKey.API_VERSIONS, connection.read_frame(), api_version=0)
    assert isinstance(response, ApiVersionsResponse)
    assert correlation_id == 77
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (18, 0, 5) in [(api.api_key, api.min_version, api.max_version) for api in response.api_keys]
    again = frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 78, -1))
    connection.socket.sendall(again)  # the connection is still good
    assert decode_response(ApiKey.API_VERSIONS, connection.read_frame(), api_version=0)[0] == 78


@pytest.mark.parametrize(
    ("is_same_cluster", "node", "code"),
    [
        (True, 1, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        (False, 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (True, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        (True, -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_means_another_cluster_or_node_is_told_so(
    connection: RawConnection, is_same_cluster: bool | None, node: int, code: ErrorCode
) -> None:
    """KIP-1242: it must not read records of another cluster that got an address which it knows."""
    own = connection.ask(MetadataRequest(), version=12).cluster_id
    cluster_id = None if is_same_cluster is None else own if is_same_cluster else "another"

    response = connection.ask(replace(API_VERSIONS, cluster_id=cluster_id, node_id=node), version=5)

    assert response.error_code == code


def test_a_client_name_that_kafka_refuses_is_refused(connection: RawConnection) -> None:
    """Kafka answers INVALID_REQUEST to such names: a client tested here should learn it here."""
    response = connection.ask(ApiVersionsRequest(client_software_name="", client_software_version="1"), version=3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">hhih", 9999, 0, 1, -1), "API key 9999 is not served here"),
        (struct.pack(">hhih", ApiKey.LEADER_AND_ISR, 0, 1, -1), "LEADER_AND_ISR(4) is not served here"),
        (struct.pack(">hhih", ApiKey.METADATA, 99, 1, -1), "METADATA(3) version 99 is not served here"),
        (struct.pack(">hhih", ApiKey.API_VERSIONS, -1, 1, -1), "API_VERSIONS(18) version -1 is not served here"),
        (b"\x00", "too short for its header"),
        (b"GET / HTTP/1.1\r\n\r\n", "is not served here"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "the client speaks TLS"),
        (struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + b"\x7f\xff\xff\xff", "METADATA(3) version 1 cannot be read"),
        (struct.pack(">hhih", ApiKey.METADATA, 1, 1, 2) + b"\xff\xfe\x00\x00\x00\x00", "not UTF-8"),
    ],
    ids=[
        "unknown key",
        "key of servers",
        "newer version",
        "negative version",
        "one byte",
        "http",
        "tls",
        "lengths",
        "text",
    ],
)
def test_what_is_no_request_closes_its_connection_and_is_journaled(
    broker: EmbeddedBroker, journal: MemoryJournal, data: bytes, reason: str
) -> None:
    """There is no answer that such a peer could read; others must not notice, and a person must find out why."""
    with RawConnection(broker.bootstrap_servers) as bad, RawConnection(broker.bootstrap_servers) as good:
        bad.socket.sendall(data if data.startswith(b"\x16") else frame(data))
        assert bad.is_closed_by_peer()
        assert good.ask(API_VERSIONS, version=4).error_code == ErrorCode.NONE
    reasons = [str(event.fields["reason"]) for event in journal.named("connection_refused")]
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_requests_behind_a_parked_fetch_are_answered_after_it(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """One connection carries fetches and everything else; an answer that overtakes breaks it."""
    topic_id = connection.ask(MetadataRequest(topics=None), version=12).topics[0].topic_id
    fetch = FetchRequest(
        max_wait_ms=150,
        min_bytes=1,
        topics=(FetchTopic(topic_id=topic_id, partitions=(FetchPartition(partition=0, fetch_offset=0),)),),
    )
    connection.send(fetch, version=16)
    connection.send(API_VERSIONS, version=4)
    connection.send(MetadataRequest(topics=None), version=12)
    assert connection.read(fetch).error_code == ErrorCode.NONE
    assert connection.read(API_VERSIONS).error_code == ErrorCode.NONE
    assert connection.read(MetadataRequest()).topics[0].name == "orders"


def test_a_handler_that_raises_is_answered_with_unknown_server_error(
    connection: RawConnection,
    journal: MemoryJournal,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bug in one API must cost the caller an error, not the broker, and must be found in log and journal."""

    def broken(**_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("kip848_client.testing.broker.apis.find_coordinator.FindCoordinatorResponse", broken)
    with caplog.at_level(logging.ERROR, logger="kip848_client.broker"):
        response = connection.ask(FindCoordinatorRequest(key="g"), version=2)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert journal.named("request_failed")[0].fields == {
        "api": "FIND_COORDINATOR(10)",
        "error": "ZeroDivisionError: a bug",
    }
    assert "broker.request_failed" in caplog.text
    assert connection.ask(API_VERSIONS, version=4).error_code == ErrorCode.NONE


def test_a_broken_handler_without_room_for_an_error_loses_its_connection(
    broker: EmbeddedBroker, connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty answer would tell the client that there are no topics; a closed connection makes it ask again."""
    monkeypatch.setattr(metadata, "_topics", lambda *_: 1 // 0)
    connection.send(MetadataRequest(topics=None), version=12)
    assert connection.is_closed_by_peer()
    with RawConnection(broker.bootstrap_servers) as other:
        assert other.ask(API_VERSIONS, version=4).error_code == ErrorCode.NONE


def test_others_are_served_while_a_large_request_is_handled(
    broker: EmbeddedBroker, connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating a thousand topics on disk takes a second, in which no member may lose its session."""
    monkeypatch.setattr("kip848_client.testing.broker.dispatch._SLICE_S", 0.0)
    everything = MetadataRequest(topics=None)
    create = create_topics._create
    asked = threading.Event()
    with RawConnection(broker.bootstrap_servers) as other:
        other.ask(API_VERSIONS, version=4)  # the broker reads from it by now

        def create_after_question(*args: Any, **options: Any) -> Any:
            if not asked.is_set():
                other.send(everything, version=12)
                asked.set()
            return create(*args, **options)

        monkeypatch.setattr(create_topics, "_create", create_after_question)
        creating = CreateTopicsRequest(topics=tuple(CreatableTopic(f"t{n}", 1, 1) for n in range(50)))
        connection.send(creating, version=7)
        connection.send(everything, version=12)
        assert asked.wait(60)
        assert 1 < len(other.read(everything).topics) < 50
        assert len(connection.read(creating).topics) == 50
        assert len(connection.read(everything).topics) == 51, "the next request of the connection came too soon"


@pytest.mark.parametrize("slice_s", [0.0, 60.0], ids=["in slices", "in one"])
def test_a_large_request_that_fails_without_room_for_an_error_loses_its_connection(
    broker: EmbeddedBroker, connection: RawConnection, monkeypatch: pytest.MonkeyPatch, slice_s: float
) -> None:
    """Whether it fails at once or in a later turn: a client that heard nothing would wait until its time limit."""
    monkeypatch.setattr("kip848_client.testing.broker.dispatch._SLICE_S", slice_s)
    described = describe_configs._describe
    budgets: set[int] = set()

    def describe_once(state: Any, asked: Any, budget: Any, **options: Any) -> Any:
        assert id(budget) not in budgets, "a bug"
        budgets.add(id(budget))
        return described(state, asked, budget, **options)

    monkeypatch.setattr(describe_configs, "_describe", describe_once)
    topics = tuple(DescribeConfigsResource(resource_type=2, resource_name=name) for name in ("orders", "others"))
    connection.send(DescribeConfigsRequest(resources=topics), version=4)
    assert connection.is_closed_by_peer()
    with RawConnection(broker.bootstrap_servers) as other:
        assert other.ask(API_VERSIONS, version=4).error_code == ErrorCode.NONE


def test_an_answer_that_cannot_be_encoded_is_an_error_of_its_request_only(
    connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value out of range in one answer must not end the broker's loop."""
    monkeypatch.setattr(find_coordinator, "_KEY_TYPES", {2: "x" * 70_000})
    response = connection.ask(FindCoordinatorRequest(key="g", key_type=2), version=2)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
