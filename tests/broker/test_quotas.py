"""Quotas: which one counts, how long a client that exceeds it is throttled, and what it gets meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing import ALWAYS, ClientQuota, ManualClock, rewrite
from kip848_client.testing.broker.quotas.client_quotas import PRODUCER_BYTE_RATE, ClientQuotas, Entity
from kip848_client.testing.broker.quotas.rates import Rate, TokenBucket
from kip848_client.testing.broker.storage.config_store import ConfigStore
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import message
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import encode_request
from kip848_client.wire.messages.metadata import MetadataRequest
from kip848_client.wire.record_batch import Record, build_batch
from kip848_client.wire.schema import Request

BYTES: Final = 20_000
RATE: Final = 1_000
MINUTE_MS: Final = 60_000
NEW_SESSION: Final = 0


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 1}, clock=ManualClock()) as running:
        yield running


def connect(broker: EmbeddedBroker, client_id: str = "shop") -> RawConnection:
    return RawConnection(broker.bootstrap_servers, client_id=client_id)


def produce(size: int = BYTES, *, acks: int = 1) -> dict[str, Any]:
    data = [{"index": 0, "records": build_batch([Record(bytes(size), None)])}]
    return {"acks": acks, "timeout_ms": 1000, "topic_data": [{"name": "orders", "partition_data": data}]}


def fetch(offset: int = 0, **session: int) -> Request[Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 10**6}
    asked = [{"topic": "orders", "partitions": [partition]}] if session.get("session_epoch", 0) <= 0 else []
    return message(ApiKey.FETCH, {"max_bytes": 10**6, "min_bytes": 1, "topics": asked, **session})


def encoded_size(request: Request[Any], *, version: int) -> int:
    return len(encode_request(request, api_version=version, correlation_id=0, client_id="shop"))


def is_read(broker: EmbeddedBroker, connection: RawConnection) -> bool:
    """Whether the broker reads a further request of *connection*; it gets the time in which it serves another."""
    mark = broker.requests.mark()
    connection.send(MetadataRequest(topics=()), version=12)
    with connect(broker, "another") as other:
        other.call(ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="1")
    return bool(broker.requests.of("Metadata", since=mark))


def test_rates_are_those_of_kafka() -> None:
    """A throttle time that differs teaches a service the wrong pace. Kafka 4.4's ``Rate`` computed these rows."""
    expected = [
        (1_000_201, 595, 59.5, 0),
        (1_001_064, 1602, 202.246, 0),
        (1_001_754, 1696, 368.900, 5_804),
        (1_003_885, 2701, 617.185, 17_022),
        (1_004_488, 1117, 749.587, 22_112),
        (1_016_128, 69, 69 / 10, 0),
    ]
    rate = Rate(window_ms=1000, windows=11, now_ms=1_000_201)
    measured = []
    for now_ms, value, *_ in expected:
        rate.record(value, now_ms)
        measured.append((now_ms, value, round(rate.per_second(now_ms), 3), rate.delay_ms(238, now_ms)))
    assert measured == expected


def test_a_token_bucket_allows_bursts() -> None:
    """A script that creates its topics at once must pass, and one that goes on must wait, as on Kafka."""
    bucket = TokenBucket(window_ms=1000, windows=10)
    bucket.take(25, 2.0, 5_000)
    assert (bucket.tokens(2.0, 5_000), bucket.delay_ms(2.0, 5_000), bucket.tokens(2.0, 10_000)) == (-5, 2_500, 5)


@pytest.mark.parametrize(
    ("dropped", "shared_by"),
    list(enumerate([("u", "c"), ("u", "c"), ("u", ""), ("u", "c"), ("u", "c"), ("u", ""), ("", "c"), ("", "c"), None])),
)
def test_the_most_specific_quota_counts(dropped: int, shared_by: tuple[str, str] | None) -> None:
    """With another order an operator throttles the wrong service. The rows are in Kafka's order."""
    users, clients = ("user", "u"), ("client-id", "c")
    some_user, some_client = ("user", None), ("client-id", None)
    entities: list[Entity] = [
        (clients, users),
        (some_client, users),
        (users,),
        (clients, some_user),
        (some_client, some_user),
        (some_user,),
        (clients,),
        (some_client,),
    ]
    quotas = ClientQuotas(ConfigStore("client_quota"))
    for number, entity in enumerate(entities[dropped:], start=dropped):
        quotas.alter(entity, {PRODUCER_BYTE_RATE: number + 1.0})
    expected = None if shared_by is None else (shared_by, dropped + 1.0)
    assert quotas.limit(PRODUCER_BYTE_RATE, user="u", client_id="c") == expected


def test_a_producer_beyond_its_quota_is_told_and_not_read_until_the_time_is_over(broker: EmbeddedBroker) -> None:
    """A client that ignores the throttle time must wait all the same, and others must not."""
    broker.quotas.set(client_id="shop", producer_byte_rate=RATE)
    with connect(broker) as connection:
        answer = connection.call(ApiKey.PRODUCE, 9, **produce())
        size = encoded_size(message(ApiKey.PRODUCE, produce()), version=9)
        assert answer.throttle_time_ms == size - 10 * RATE  # bytes over a second's rate of 1,000, in ms
        assert not is_read(broker, connection)
        broker.clock.advance(answer.throttle_time_ms - 1)
        assert not broker.requests.of("Metadata")
        broker.clock.advance(1)
        assert connection.read(MetadataRequest()).throttle_time_ms == 0
    with connect(broker, "another") as other:
        assert other.call(ApiKey.PRODUCE, 9, **produce()).throttle_time_ms == 0


def test_a_producer_without_answers_is_throttled_by_silence(broker: EmbeddedBroker) -> None:
    """acks=0 has no answer that could carry a throttle time; only the broker can slow it down."""
    broker.quotas.set(client_id="shop", producer_byte_rate=RATE)
    with connect(broker) as connection:
        connection.send(message(ApiKey.PRODUCE, produce(acks=0)), version=9)
        broker.wait_for_records("orders", 1)
        assert not is_read(broker, connection)


@pytest.mark.parametrize("session", [{"session_epoch": -1}, {"session_epoch": NEW_SESSION}], ids=["plain", "session"])
def test_a_consumer_beyond_its_quota_gets_its_records_later(broker: EmbeddedBroker, session: dict[str, int]) -> None:
    """The throttled answer is empty, as on Kafka; a record that is skipped there would be lost."""
    for _ in range(3):
        broker.produce("orders", bytes(BYTES // 4))
    broker.quotas.set(client_id="shop", consumer_byte_rate=RATE)
    with connect(broker) as connection:
        first = connection.ask(fetch(**session), version=11)
        assert (first.throttle_time_ms, len(first.responses)) == (0, 1)
        session_id = first.session_id
        second = connection.ask(
            fetch(1, session_epoch=1, session_id=session_id) if session_id else fetch(1, **session), version=11
        )
        assert second.throttle_time_ms > 0
        assert (second.responses, second.session_id) == ((), session_id)
        broker.clock.advance(MINUTE_MS)
        third = connection.ask(
            fetch(1, session_epoch=2, session_id=session_id) if session_id else fetch(1, **session), version=11
        )
    assert (third.throttle_time_ms, bool(third.responses[0].partitions[0].records)) == (0, True)


def test_any_request_counts_for_the_share_of_time(broker: EmbeddedBroker) -> None:
    """Services that ask for metadata in a loop are throttled by this quota alone; a window is the longest pause."""
    broker.quotas.set(user="<default>", request_percentage=1e-9)
    with connect(broker) as connection:
        assert connection.ask(MetadataRequest(topics=()), version=12).throttle_time_ms == 1000
        assert not is_read(broker, connection)


def test_who_creates_too_many_partitions_is_refused_or_slowed_down(broker: EmbeddedBroker) -> None:
    """Admin clients repeat what is refused with this code; older versions do not know it."""
    broker.quotas.set(client_id="shop", controller_mutation_rate=1)

    def create(connection: RawConnection, version: int, name: str) -> tuple[int, int]:
        asked = [{"name": name, "num_partitions": 12, "replication_factor": 1}]
        answer = connection.call(ApiKey.CREATE_TOPICS, version, topics=asked, timeout_ms=1000)
        return answer.topics[0].error_code, answer.throttle_time_ms

    with connect(broker) as connection:
        assert create(connection, 7, "within the burst") == (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)
        assert create(connection, 7, "a") == (0, 0)  # 11 tokens are there, and the last request may take more
        assert create(connection, 7, "b") == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 1000)
        broker.clock.advance(1000)
        assert create(connection, 5, "c") == (0, 12_000)
        broker.clock.advance(12_000)
    assert set(broker.topics) == {"orders", "a", "c"}


def test_a_fault_rule_leaves_the_throttle_time(broker: EmbeddedBroker) -> None:
    """A client that is refused without a time to wait asks again at once, and for ever."""
    broker.quotas.set(client_id="shop", controller_mutation_rate=1)
    broker.faults.on("CreateTopics", rewrite(lambda answer: answer), times=ALWAYS)
    answers = []
    with connect(broker) as connection:
        for name in "ab":
            topic = {"name": name, "num_partitions": 12, "replication_factor": 1}
            answers.append(connection.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000))
    assert [answer.throttle_time_ms for answer in answers] == [0, 1000]


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "folder"])
def test_quotas_outlive_the_end_of_the_broker(tmp_path: Path, durable: bool) -> None:
    """A restart that forgets them lets a service flood the cluster."""
    asked = {
        "entity": [{"entity_type": "user", "entity_name": None}, {"entity_type": "client-id", "entity_name": "c"}],
        "ops": [{"key": "request_percentage", "value": 12.5}],
    }
    running = EmbeddedBroker(data_dir=tmp_path if durable else None)
    with running, connect(running) as connection:
        answer = connection.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[asked])
        assert answer.entries[0].error_code == 0
        running.quotas.set(user="ann", consumer_byte_rate=5)
    again = EmbeddedBroker(data_dir=tmp_path) if durable else running
    with again:
        found = list(again.quotas)
        again.quotas.clear()
        assert not list(again.quotas)
    assert found == [
        ClientQuota(user="<default>", client_id="c", ip=None, limits={"request_percentage": 12.5}),
        ClientQuota(user="ann", client_id=None, ip=None, limits={"consumer_byte_rate": 5.0}),
    ]


def test_a_filter_finds_the_entities_that_have_its_types(broker: EmbeddedBroker) -> None:
    """kafka-configs.sh shows what the filter returns; `strict` leaves out users with a client id."""
    broker.quotas.set(user="ann", producer_byte_rate=1)
    broker.quotas.set(user="ann", client_id="c", producer_byte_rate=2)
    broker.quotas.set(client_id="<default>", producer_byte_rate=3)

    def values(*components: tuple[str, int, str | None], strict: bool = False) -> list[float]:
        asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        with connect(broker) as connection:
            answer = connection.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=asked, strict=strict)
        return sorted(entry.values[0].value for entry in answer.entries)

    assert values() == [1, 2, 3]
    assert values(("user", 0, "ann")) == [1, 2]
    assert values(("user", 0, "ann"), strict=True) == [1]
    assert values(("client-id", 1, None)) == [3]
    assert values(("client-id", 2, None)) == [2, 3]


def test_a_quota_that_makes_no_sense_is_refused(broker: EmbeddedBroker) -> None:
    """A limit of 0 would stop a service for ever, and one without an entity means no client."""
    with pytest.raises(BrokerError, match="must be greater than 0"):
        broker.quotas.set(user="ann", producer_byte_rate=0)
    with pytest.raises(BrokerError, match="fractional"):
        broker.quotas.set(user="ann", producer_byte_rate=0.5)
    with pytest.raises(BrokerError, match="empty client quota entity"):
        broker.quotas.set(producer_byte_rate=1)


def test_quotas_are_described_in_the_order_of_kafka(broker: EmbeddedBroker) -> None:
    """Suites that were written for Kafka compare lists."""
    broker.quotas.set(client_id="c", producer_byte_rate=1, consumer_byte_rate=2, request_percentage=3)
    with connect(broker) as connection:
        (entry,) = connection.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False).entries
    assert [each.key for each in entry.values] == ["consumer_byte_rate", "request_percentage", "producer_byte_rate"]
