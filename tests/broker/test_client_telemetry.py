"""KIP-714 at the broker: which metrics clients are asked for, which pushes are taken, and how a test reads them."""

from __future__ import annotations

import socket
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import BrokerError, ConfigError, ErrorCode, ProtocolError
from kip848_client.testing import ManualClock
from kip848_client.testing.broker.client_telemetry import metric_names_of
from kip848_client.testing.broker.dispatch import Dispatcher
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey

ENABLED: Final = {"kip848.client.telemetry.enable": "true", "telemetry.max.bytes": "1000"}
GZIP, UNKNOWN_CODEC = 1, 9
INTERVAL_MS: Final = 1000


def field(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def metrics(*names: str) -> bytes:
    """A ``MetricsData`` as OpenTelemetry's SDKs write it, with fields that are passed over."""
    of_scope = field(1, b"scope") + b"".join(field(2, field(1, name.encode()) + field(3, b"unit")) for name in names)
    return field(1, field(1, b"resource") + field(2, of_scope + b"\x18\x01" + b"\x25" + bytes(4) + b"\x29" + bytes(8)))


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=ENABLED, clock=ManualClock(now_ms=1_000_000)) as running:
        yield running


class Client:
    """A client that pushes by hand."""

    def __init__(self, broker: EmbeddedBroker, client_id: str = "shop") -> None:
        self.connection: Final = RawConnection(broker.bootstrap_servers, client_id=client_id)
        self.connection.call(ApiKey.API_VERSIONS, 3, client_software_name="a-client", client_software_version="1.0")
        self.instance_id = uuid.UUID(int=0)
        self.subscription_id = 0

    def subscribe(self) -> Any:
        answer = self.connection.call(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=self.instance_id)
        if not answer.error_code:
            self.instance_id, self.subscription_id = answer.client_instance_id, answer.subscription_id
        return answer

    def push(self, content: bytes = b"", *, codec: int = 0, terminating: bool = False) -> int:
        fields = {"client_instance_id": self.instance_id, "subscription_id": self.subscription_id, "metrics": content}
        answer = self.connection.call(
            ApiKey.PUSH_TELEMETRY, 0, compression_type=codec, terminating=terminating, **fields
        )
        return int(answer.error_code)


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    made = Client(broker)
    yield made
    made.connection.close()


def test_a_test_reads_what_a_client_pushed(broker: EmbeddedBroker, client: Client) -> None:
    """A service promises metrics to those who run the cluster; its test must see their names and bytes."""
    broker.telemetry.subscribe("ours", ["org.apache.kafka."], interval_ms=INTERVAL_MS)
    assert client.subscribe().requested_metrics == ("org.apache.kafka.",)
    content = metrics("org.apache.kafka.consumer.lag", "org.apache.kafka.consumer.rate")
    packed = zlib.compressobj(wbits=31)
    assert client.push(packed.compress(content) + packed.flush(), codec=GZIP) == ErrorCode.NONE
    push = broker.telemetry.wait_for("org.apache.kafka.consumer.", client_id="shop")
    assert push.metric_names == ("org.apache.kafka.consumer.lag", "org.apache.kafka.consumer.rate")
    assert (push.client_instance_id, push.otlp, push.terminating) == (client.instance_id, content, False)
    assert list(broker.telemetry) == [push]


def test_a_client_is_asked_for_what_its_subscriptions_name(broker: EmbeddedBroker) -> None:
    """Metrics that were not asked for cost every client; the shortest interval of all subscriptions counts."""
    broker.telemetry.subscribe("a", ["x."], interval_ms=5000)
    broker.telemetry.subscribe("b", ["y."], interval_ms=2000, match="client_id=shop.*,client_software_name=a-client")
    broker.telemetry.subscribe("c", ["z."], match="client_software_version=2.*")
    broker.telemetry.subscribe("d", ["*", "w."], match="client_id=everything,client_source_address=127.0.0.1")
    asked = {}
    for name in ("shop-1", "other", "everything"):
        client = Client(broker, name)
        asked[name] = client.subscribe()
        client.connection.close()
    assert {name: (each.requested_metrics, each.push_interval_ms) for name, each in asked.items()} == {
        "shop-1": (("x.", "y."), 2000),
        "other": (("x.",), 5000),
        "everything": (("*",), 5000),
    }


def test_without_a_subscription_a_client_pushes_nothing(client: Client) -> None:
    """Clients take an empty list for "no metrics", and ask again after five minutes."""
    answer = client.subscribe()
    assert (answer.requested_metrics, answer.push_interval_ms, answer.telemetry_max_bytes) == ((), 300_000, 1000)


def test_pushes_that_are_not_taken_say_why(broker: EmbeddedBroker, client: Client) -> None:
    """Each code makes a client do something else: wait, ask again, pack otherwise, send less."""
    broker.telemetry.subscribe("ours", ["*"], interval_ms=INTERVAL_MS)
    client.subscribe()
    codes = [client.push(), client.push()]
    for content, codec in ((bytes(1001), 0), (b"x", UNKNOWN_CODEC), (b"no gzip", GZIP), (b"no protobuf", 0)):
        broker.clock.advance(INTERVAL_MS)
        codes.append(client.push(content, codec=codec))
    broker.clock.advance(INTERVAL_MS)
    client.subscription_id += 1
    codes.append(client.push())
    client.subscription_id -= 1
    codes.extend([client.push(terminating=True), client.push()])
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.TELEMETRY_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert not list(broker.telemetry)


def test_a_client_learns_of_a_changed_subscription_at_its_next_push(broker: EmbeddedBroker, client: Client) -> None:
    """An operator asks for more during an incident, and does not wait for the clients' restart."""
    broker.telemetry.subscribe("ours", ["x."], interval_ms=INTERVAL_MS)
    client.subscribe()
    assert client.subscribe().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.telemetry.subscribe("ours", ["y."], interval_ms=INTERVAL_MS)
    assert client.push() == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert client.subscribe().requested_metrics == ("y.",)
    assert client.push() == ErrorCode.NONE


def test_an_instance_begins_anew_with_its_connection(broker: EmbeddedBroker, client: Client) -> None:
    """A client that connects again asks at once, and must not be sent away as too early."""
    broker.telemetry.subscribe("ours", ["x."], interval_ms=INTERVAL_MS)
    first = client.subscribe().client_instance_id
    client.connection.socket.shutdown(socket.SHUT_WR)
    assert client.connection.is_closed_by_peer()
    again = Client(broker)
    again.instance_id = first
    assert again.subscribe().client_instance_id == first
    again.connection.close()


def test_subscriptions_are_resources_that_outlive_the_broker(tmp_path: Path) -> None:
    """kafka-client-metrics.sh makes them; a restart must not end what an operator asked for."""
    settings = {"metrics": "x.", "interval.ms": "200"}
    configs = [{"name": key, "config_operation": 0, "value": value} for key, value in settings.items()]
    with EmbeddedBroker(data_dir=tmp_path) as broker, RawConnection(broker.bootstrap_servers) as connection:
        resource = {"resource_type": 16, "resource_name": "ours", "configs": configs}
        answer = connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        assert answer.responses[0].error_code == ErrorCode.NONE
    with EmbeddedBroker(data_dir=tmp_path) as broker, RawConnection(broker.bootstrap_servers) as connection:
        listed = connection.call(ApiKey.LIST_CONFIG_RESOURCES, 0).config_resources
        asked = {"resource_type": 16, "resource_name": "ours", "configuration_keys": None}
        shown = connection.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked]).results[0]
    assert [each.resource_name for each in listed] == ["ours"]
    assert {each.name: (each.value, each.config_source) for each in shown.configs} == {
        "interval.ms": ("200", 7),
        "match": ("", 5),
        "metrics": ("x.", 7),
    }


def test_a_subscription_that_makes_no_sense_is_refused(broker: EmbeddedBroker) -> None:
    """It would match no client, and the metrics would be missed in the incident that they are for."""
    with pytest.raises(BrokerError, match="between 100 and 3600000"):
        broker.telemetry.subscribe("ours", ["*"], interval_ms=99)
    for match in ("colour=red", "client_id", "client_id=[", "client_id=a=b"):
        with pytest.raises(ConfigError, match="Illegal client matching pattern"):
            broker.telemetry.subscribe("ours", ["*"], match=match)


def test_names_of_metrics_are_a_list_as_in_kafka(broker: EmbeddedBroker, client: Client) -> None:
    """An empty name would be the beginning of every metric."""
    broker.telemetry.subscribe("ours", [" a.", "b.", "a."])
    assert client.subscribe().requested_metrics == ("a.", "b.")
    for metrics in (["a.", "", "b."], ["", ""]):
        with pytest.raises(ConfigError, match="values must not be empty"):
            broker.telemetry.subscribe("ours", metrics)


def test_a_pattern_takes_no_longer_than_its_text(broker: EmbeddedBroker) -> None:
    """Python's own `re` takes longer than the universe lasts for this one, and the broker would serve nobody."""
    pytest.importorskip("re2")
    broker.telemetry.subscribe("ours", ["a."], match="client_id=(x+x+)+y")
    client = Client(broker, "x" * 60)
    assert client.subscribe().requested_metrics == ()
    client.connection.close()


def test_clients_are_not_asked_unless_the_broker_takes_metrics() -> None:
    """As on Kafka without a receiver: clients see from ApiVersions that there is nothing to ask."""
    with EmbeddedBroker() as broker, RawConnection(broker.bootstrap_servers) as connection:
        answer = connection.call(ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="1")
    assert not {each.api_key for each in answer.api_keys} & {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }


@pytest.mark.parametrize(
    "damaged", [b"\x0a\x05ab", b"\x0a", b"\x0b", b"\x80" * 11, metrics("\xff").replace(b"\xc3", b"\xff")]
)
def test_damaged_metrics_are_no_names(damaged: bytes) -> None:
    """Any bytes are names or a ProtocolError: a broker that stumbles over them closes the connection."""
    with pytest.raises(ProtocolError):
        list(metric_names_of(damaged))


def test_a_large_push_is_read_in_slices(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 14 KB of gzip come 15 MB: it took two seconds, in which no member could send its heartbeat."""
    monkeypatch.setattr("kip848_client.testing.broker.dispatch._SLICE_S", 0.0)
    client.subscribe()
    packed = zlib.compressobj(9, wbits=31)
    content = packed.compress(bytes(2**19)) + packed.flush()
    turns = 0
    read_on = Dispatcher._go_on

    def counted(*arguments: Any) -> None:
        nonlocal turns
        turns += 1
        read_on(*arguments)

    monkeypatch.setattr(Dispatcher, "_go_on", counted)
    assert client.push(content, codec=GZIP) == ErrorCode.NONE
    assert turns == 2**18 // 4096
    assert [push.metric_names for push in broker.telemetry] == [()]


def test_pushes_are_kept_up_to_a_number_of_bytes(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand pushes of 16 MiB are more than a machine has; a wait must still find the newest ones."""
    monkeypatch.setattr("kip848_client.testing.broker.controls.telemetry._BYTES_MAX", 100)
    client.subscribe()
    for name in ("a", "b", "c", "d"):
        assert client.push(metrics(name * 20), terminating=name == "d") == ErrorCode.NONE
        assert broker.telemetry.wait_for(name).metric_names == (name * 20,)
        broker.clock.advance(300_000)
    assert [push.metric_names for push in broker.telemetry] == [("d" * 20,)]
