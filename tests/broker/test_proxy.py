"""The fault proxy before a cluster: an embedded broker plays the real one, and cannot tell."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from kip848_client import EmbeddedBroker
from kip848_client.errors import ConfigError, ErrorCode, IllegalStateError
from kip848_client.testing.broker.proxy.fault_proxy import FaultProxy
from kip848_client.testing.broker.proxy.stand_ins import behind_proxy
from kip848_client.testing.faults import (
    ALWAYS,
    delay,
    duplicate,
    error,
    rewrite,
    rewrite_request,
)
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_response, frame
from kip848_client.wire.messages.api_versions import ApiVersionsResponse
from kip848_client.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kip848_client.wire.messages.fetch import FetchResponse
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kip848_client.wire.messages.produce import ProduceRequest, ProduceResponse
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from kip848_client.wire.messages.share_fetch import ShareFetchResponse
from kip848_client.wire.record_batch import Record, build_batch
from tests.support.group_requests import join
from tests.support.open_files import sockets_of_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kip848_broker(topics={"orders": 2})


@pytest.fixture
def proxy(broker: EmbeddedBroker) -> Iterator[FaultProxy]:
    with FaultProxy(broker.bootstrap_servers) as running:
        yield running


@pytest.fixture
def connection(proxy: FaultProxy) -> Iterator[RawConnection]:
    with RawConnection(proxy.bootstrap_servers) as opened:
        yield opened


# --- behind the proxy


def test_a_client_never_hears_of_the_real_address(
    broker: EmbeddedBroker, proxy: FaultProxy, connection: RawConnection
) -> None:
    """One answer with the broker's own address, and the client is past the proxy and no fault reaches it."""
    here = ("127.0.0.1", int(proxy.bootstrap_servers.rpartition(":")[2]))
    metadata = connection.ask(MetadataRequest(topics=None), version=12)
    assert [(item.host, item.port) for item in metadata.brokers] == [here]
    assert metadata.topics[0].name == "orders"
    cluster = connection.ask(DescribeClusterRequest(), version=1)
    assert [(item.host, item.port) for item in cluster.brokers] == [here]
    old = connection.ask(FindCoordinatorRequest(key="g"), version=2)
    assert (old.host, old.port) == here
    (new,) = connection.ask(FindCoordinatorRequest(coordinator_keys=("g",)), version=4).coordinators
    assert (new.host, new.port) == here
    assert len(broker.requests) == len(proxy.requests) == 4


def test_every_broker_of_a_cluster_gets_a_listener(broker: EmbeddedBroker, proxy: FaultProxy) -> None:
    """Leaders and coordinators are other brokers than the bootstrap one; the proxy stands in for each."""
    with EmbeddedBroker({"users": 1}, node_id=2) as second:
        other = MetadataResponseBroker(node_id=2, host="127.0.0.1", port=second.port)
        broker.faults.on(
            "Metadata",
            rewrite(lambda response: replace(response, brokers=(*response.brokers, other))),
            times=ALWAYS,
        )
        with RawConnection(proxy.bootstrap_servers) as connection:
            brokers = connection.ask(MetadataRequest(topics=()), version=12).brokers
            again = connection.ask(MetadataRequest(topics=()), version=12).brokers
        assert brokers == again
        assert len({item.port for item in brokers} | {broker.port, second.port}) == 4
        rule = proxy.faults.on("Metadata", error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), node_id=2)
        with RawConnection(f"127.0.0.1:{brokers[1].port}") as connection:
            (topic,) = connection.ask(MetadataRequest(topics=None), version=12).topics
        assert (topic.name, topic.error_code) == ("users", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert rule.hits == 1


def test_hints_about_new_leaders_are_replaced_too() -> None:
    """Produce and Fetch tell where the leader went (KIP-951): the newest way past a proxy."""

    def stand_in(node_id: int, host: str, port: int) -> tuple[str, int]:
        assert (host, port) == ("real", 9)
        return "proxy", 100 + node_id

    real, proxy = {"host": "real", "port": 9}, {"host": "proxy", "port": 101}
    for answer, array, node in (
        (ProduceResponse, "node_endpoints", {"node_id": 1, "rack": "r"}),
        (FetchResponse, "node_endpoints", {"node_id": 1}),
        (ShareFetchResponse, "node_endpoints", {"node_id": 1}),
        (ShareAcknowledgeResponse, "node_endpoints", {"node_id": 1}),
        (DescribeClusterResponse, "brokers", {"broker_id": 1}),
    ):
        assert behind_proxy(build(answer, **{array: [node | real]}), stand_in) == build(
            answer, **{array: [node | proxy]}
        )
    untouched = FetchResponse()
    assert behind_proxy(untouched, stand_in) is untouched
    assert behind_proxy(MetadataResponse(), stand_in) == MetadataResponse()


def test_versions_that_the_proxy_cannot_read_are_not_offered() -> None:
    """A Metadata answer of a version to come would carry the real addresses to the client."""
    apis = {ApiKey.METADATA: 99, ApiKey.STREAMS_GROUP_DESCRIBE: 5, ApiKey.SHARE_FETCH: 99}
    offered = build(ApiVersionsResponse, api_keys=[{"api_key": key, "max_version": last} for key, last in apis.items()])
    seen = behind_proxy(offered, lambda *_: ("", 0))
    assert isinstance(seen, ApiVersionsResponse)
    assert [(api.api_key, api.max_version) for api in seen.api_keys] == [
        (ApiKey.METADATA, 13),
        (ApiKey.STREAMS_GROUP_DESCRIBE, 5),
        (ApiKey.SHARE_FETCH, 2),
    ]


def test_a_client_from_the_future_asks_again_in_a_version_that_we_know(proxy: FaultProxy) -> None:
    """It shall negotiate with the proxy as it would with an older broker."""
    with socket.create_connection(("127.0.0.1", int(proxy.bootstrap_servers.rpartition(":")[2])), timeout=60) as raw:
        raw.sendall(frame(bytes.fromhex("0012 0063 00000007 ffff 00")))
        size = int.from_bytes(raw.recv(4))
        _, response = decode_response(ApiKey.API_VERSIONS, raw.recv(size), api_version=99)
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.max_version) for api in response.api_keys] == [(ApiKey.API_VERSIONS, 5)]


def test_a_produce_request_without_an_answer_passes(
    broker: EmbeddedBroker, proxy: FaultProxy, connection: RawConnection
) -> None:
    """With acks=0 nothing comes back; what is asked behind it must not wait for that."""
    batch = build_batch([Record(value=b"tea")])
    data = {"name": "orders", "partition_data": [{"index": 0, "records": batch}]}
    connection.send(build(ProduceRequest, acks=0, topic_data=[data]), version=9)
    with RawConnection(proxy.bootstrap_servers) as other:
        wait_until(lambda: broker.topics.offsets("orders")[0] == (0, 1))
        assert other.ask(MetadataRequest(topics=()), version=12).topics == ()
    assert [logged.outcome for logged in proxy.requests] == ["no_answer", "answered"]


def test_an_api_that_we_do_not_know_passes(broker: EmbeddedBroker, proxy: FaultProxy) -> None:
    """Here the broker does not know it either, and hangs up: so does the proxy."""
    with RawConnection(proxy.bootstrap_servers) as connection:
        connection.socket.sendall(frame(bytes.fromhex("270f 0000 00000007 ffff")))
        assert connection.is_closed_by_peer()
    assert [str(logged.api) for logged in proxy.requests] == ["9999"]
    assert broker.running


# --- faults


def test_topics_are_known_by_id_once_a_client_asked_for_them(proxy: FaultProxy, connection: RawConnection) -> None:
    """The proxy learns names from the answers that pass."""
    topic_id = connection.ask(MetadataRequest(topics=None), version=12).topics[0].topic_id
    rule = proxy.faults.on("Fetch", error(ErrorCode.NOT_LEADER_OR_FOLLOWER), topic="orders")
    response = connection.call(ApiKey.FETCH, 16, topics=[{"topic_id": topic_id, "partitions": [{"partition": 0}]}])
    assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rule.hits == 1


def test_delays_duplicates_and_rewriting(broker: EmbeddedBroker, proxy: FaultProxy, connection: RawConnection) -> None:
    """The whole vocabulary works here as in the embedded broker."""
    proxy.faults.on(
        "heartbeat",
        delay(5),
        delay(5, applied=True),
        duplicate(),
        rewrite(lambda response: replace(response, heartbeat_interval_ms=7)),
        rewrite_request(lambda request: replace(request, member_id="other")),
    )
    answers = [connection.ask(join(), version=1) for _ in range(5)]
    assert [answer.error_code for answer in answers] == [0] * 5
    assert answers[3].heartbeat_interval_ms == 7
    assert answers[4].member_id == "other"
    assert len(broker.requests.of("heartbeat")) == 6


# --- life and death


def test_a_cluster_that_is_away_closes_the_clients_connection(proxy: FaultProxy, broker: EmbeddedBroker) -> None:
    """The proxy does not pretend: no broker, no connection; and it works again when the broker is back."""
    with RawConnection(proxy.bootstrap_servers) as connection:
        connection.ask(MetadataRequest(topics=()), version=12)
        broker.crash()
        assert connection.is_closed_by_peer()
    with RawConnection(proxy.bootstrap_servers) as connection:
        connection.send(MetadataRequest(topics=()), version=12)
        assert connection.is_closed_by_peer()
    broker.start()
    with RawConnection(proxy.bootstrap_servers) as connection:
        assert connection.ask(MetadataRequest(topics=()), version=12).topics == ()


def test_disconnect_cuts_everybody_off_once(proxy: FaultProxy, connection: RawConnection) -> None:
    """A test simulates a short network failure: all connections break, and new ones work."""
    connection.ask(MetadataRequest(topics=()), version=12)
    proxy.disconnect()
    assert connection.is_closed_by_peer()
    with RawConnection(proxy.bootstrap_servers) as again:
        assert again.ask(MetadataRequest(topics=()), version=12).topics == ()


def test_a_stopped_proxy_leaves_nothing(broker: EmbeddedBroker) -> None:
    """A thread or an open port that stays behind would disturb the next test of a suite."""
    before = set(threading.enumerate())
    proxy = FaultProxy(broker.bootstrap_servers).start()
    port = int(proxy.bootstrap_servers.rpartition(":")[2])
    with RawConnection(proxy.bootstrap_servers) as connection:
        connection.ask(MetadataRequest(topics=()), version=12)
        with pytest.raises(IllegalStateError, match="is already running"):
            proxy.start()
        proxy.stop()
        assert connection.is_closed_by_peer()
    proxy.stop()
    assert [one for one in threading.enumerate() if one.name == "kip848-proxy" and one not in before] == []
    assert sockets_of_port(port) == 0
    with pytest.raises(IllegalStateError, match="is not running"):
        _ = proxy.bootstrap_servers


@pytest.mark.parametrize("address", ["", ":9092", "localhost:x", "localhost:70000"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """A wrong address fails in the line that has it, and not when the first client connects."""
    with pytest.raises(ConfigError, match="host:port"):
        FaultProxy(address)


# --- its own listeners


@pytest.mark.kip848_broker(nodes=2)
def test_connections_to_different_brokers_have_different_numbers(broker: EmbeddedBroker, proxy: FaultProxy) -> None:
    """What was said on one connection must not be taken for what was said on another, to another broker."""
    first, second = proxy.bootstrap_servers.split(",")
    with RawConnection(first) as one, RawConnection(second) as other:
        one.ask(MetadataRequest(), version=12)
        other.ask(MetadataRequest(), version=12)
    asked = proxy.requests.of(ApiKey.METADATA)
    assert len(asked) == len({one.connection_id for one in asked}) == 2


def test_a_port_that_is_taken_is_said(broker: EmbeddedBroker) -> None:
    """Clients of a compose file or a CI job are told a fixed port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            FaultProxy(broker.bootstrap_servers, port=port).start()
