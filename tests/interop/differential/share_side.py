"""One of the two brokers in a conversation of a share group: its workers, producers and operator, by raw requests.

Sends what it is told in shared names, and puts answers into a form that can be compared; which requests, and whether
two answers agree, is decided elsewhere.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.side import GROUP_RESOURCE, Side, rows
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.record_batch import BatchHeader, Record, batches_of, build_batch, records_of
from tests.interop.kafka_wire import Json, WireConnection
from tests.support.transactions import RawProducer, end_offset, fetched
from tests.support.waiting import TIMEOUT_S, wait_until

GROUP: Final = "workers"
TOPICS: Final = ("t0", "t1")
TOPIC_RESOURCE: Final = 2
LENGTH_AT, LENGTH_END = 8, 12
"""Where the length of a batch stands in it."""
TRANSACTION: Final = 1
"""What FindCoordinator calls the key of a transaction."""

Place = tuple[str, int]
"""A topic by its shared name, and a partition."""
Said = Mapping[Place, Sequence[Mapping[str, Any]]]
"""Acknowledgements by partition."""


class Sharing:
    """One broker, and the connections of its workers."""

    def __init__(self, side: Side, address: str) -> None:
        self.side: Final = side
        self.address: Final = address
        self.control: Final = RawConnection(address)
        self.workers: Final[dict[str, RawConnection]] = {}
        self.producer: RawProducer | None = None
        self.dead = ""
        """The dead-letter topic, if there is one."""

    # --- a worker

    def fetch(self, worker: str, epoch: int, said: Said, forgotten: Iterable[Place] = (), **limits: Any) -> Any:
        answer = self._of(worker).call(
            ApiKey.SHARE_FETCH,
            2,
            **self._worker(worker, epoch),
            topics=self._topics(said),
            forgotten_topics_data=[
                {"topic_id": self._topic_id(topic), "partitions": [partition]} for topic, partition in forgotten
            ],
            **limits,
        )
        return answer.error_code, answer.acquisition_lock_timeout_ms, self._sorted(answer, _told_of_records)

    def acknowledge(self, worker: str, epoch: int, said: Said, *, renews: bool = False) -> Any:
        fields = {**self._worker(worker, epoch), "topics": self._topics(said), "is_renew_ack": renews}
        answer = self._of(worker).call(ApiKey.SHARE_ACKNOWLEDGE, 2, **fields)
        return answer.error_code, answer.acquisition_lock_timeout_ms, self._sorted(answer, _error_of)

    def drop(self, worker: str) -> None:
        if (connection := self.workers.pop(worker, None)) is not None:
            connection.close()

    def is_read(self, place: Place) -> bool:
        """Whether the broker has a partition of the group in memory; asked by one more worker without a record."""
        said = {place: [{"first_offset": 1 << 40, "last_offset": 1 << 40, "acknowledge_types": [1]}]}
        self.fetch("probe", 0, {place: []}, max_records=0, max_bytes=1, min_bytes=1, max_wait_ms=0, batch_size=1)
        _, _, told = self.acknowledge("probe", 1, said)
        self.drop("probe")
        return [code for _, _, code in told] != [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def beat(self, epoch: int) -> Any:
        names = [self.side.topic_name(topic) for topic in TOPICS]
        fields = {"group_id": self.side.group_id(GROUP), "member_id": "m", "member_epoch": epoch}
        topics = names if epoch == 0 else None
        return self.control.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **fields, subscribed_topic_names=topics).error_code

    # --- records

    def produce(self, place: Place, count: int) -> Any:
        record = Record(key=b"key", value=b"x" * 10, timestamp=int(time.time() * 1000), headers=(("trace", b"17"),))
        batch = build_batch([record] * count)
        data = {"name": self.side.topic_name(place[0]), "partition_data": [{"index": place[1], "records": batch}]}
        answer = self.control.call(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=[data])
        (told,) = answer.responses[0].partition_responses
        return told.error_code, told.base_offset

    def produce_in_transaction(self, place: Place, count: int) -> Any:
        if self.producer is None:
            producer = RawProducer(self.address, self.side.group_id("tx"), topic=self.side.topic_name(place[0]))
            asked = {"key_type": TRANSACTION, "coordinator_keys": [producer.name]}  # Kafka makes the topic when asked
            self.control.call(ApiKey.FIND_COORDINATOR, 4, **asked)
            wait_until(lambda: not producer.init()[0], TIMEOUT_S, "a producer id")
            producer.begin()
            self.producer = producer
        told = self.producer.produce(*[b"x" * 10] * count, partition=place[1])
        return told.error_code, told.base_offset

    def end_transaction(self, *, commits: bool) -> Any:
        assert self.producer is not None
        code = self.producer.end(commit=commits).error_code
        self.producer.connection.close()
        self.producer = None
        return code

    def end_of(self, place: Place) -> int:
        return end_offset(self.control, isolation=1, partition=place[1], topic=self.side.topic_name(place[0]))

    def delete_records(self, place: Place, before: int) -> Any:
        data = {
            "name": self.side.topic_name(place[0]),
            "partitions": [{"partition_index": place[1], "offset": before}],
        }
        answer = self.control.call(ApiKey.DELETE_RECORDS, 2, topics=[data], timeout_ms=10_000)
        return answer.topics[0].partitions[0].error_code

    # --- an operator

    def configure(self, **settings: object) -> None:
        for name, value in settings.items():
            self.configure_group(f"share.{name.replace('_', '.')}", str(value))

    def configure_group(self, name: str, value: str) -> None:
        self._configure(GROUP_RESOURCE, self.side.group_id(GROUP), name, value)

    def create_dead_letter_topic(self, prefix: str) -> None:
        self.dead = prefix + self.side.topic_name("dead")
        topic = {"name": self.dead, "num_partitions": 2, "replication_factor": 1}
        self.control.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=20_000)
        for partition in (0, 1):
            wait_until(lambda partition=partition: not self._read_dead(partition).error_code, TIMEOUT_S, "the topic")  # type: ignore[misc]
        self._configure(TOPIC_RESOURCE, self.dead, "errors.deadletterqueue.group.enable", "true")

    def _read_dead(self, partition: int) -> Any:
        return fetched(self.control, partition=partition, topic=self.dead)

    def _configure(self, kind: int, resource_name: str, name: str, value: str) -> None:
        configs = [{"name": name, "config_operation": 0, "value": value}]
        resource = {"resource_type": kind, "resource_name": resource_name, "configs": configs}
        answer = self.side.ask("incremental_alter_configs", 1, {"resources": [resource]})
        assert not rows(answer["responses"])[0]["error_code"], answer

    def dead_letters(self) -> list[tuple[Any, ...]]:
        """Partition, key, value and headers, in the shared names."""
        found = []
        for partition in (0, 1):
            data = self._read_dead(partition).records or b""
            for at, _ in batches_of(data):
                for record in records_of(data, at):
                    headers = {key: self.side.label((value or b"").decode()) for key, value in record.headers}
                    found.append((partition, record.key, record.value, headers))
        return found

    def alter(self, place: Place, offset: int) -> Any:
        partition = {"partition_index": place[1], "start_offset": offset}
        topics = [{"topic_name": self.side.topic_name(place[0]), "partitions": [partition]}]
        answer = self.side.ask(
            "alter_share_group_offsets", 0, {"group_id": self.side.group_id(GROUP), "topics": topics}
        )
        told = [each["error_code"] for row in rows(answer["responses"]) for each in rows(row["partitions"])]
        return answer["error_code"], told

    def delete_offsets(self, topic: str) -> Any:
        topics = [{"topic_name": self.side.topic_name(topic)}]
        answer = self.side.ask(
            "delete_share_group_offsets", 0, {"group_id": self.side.group_id(GROUP), "topics": topics}
        )
        return answer["error_code"], [row["error_code"] for row in rows(answer["responses"])]

    def delete_group(self) -> Any:
        answer = self.side.ask("delete_groups", 2, {"groups_names": [self.side.group_id(GROUP)]})
        return [row["error_code"] for row in rows(answer["results"])]

    def lags(self) -> list[tuple[Any, ...]]:
        asked = {"group_id": self.side.group_id(GROUP), "topics": None}
        (found,) = rows(self.side.ask("describe_share_group_offsets", 1, {"groups": [asked]})["groups"])
        return sorted(
            (self.side.label(str(topic["topic_id"])), each["partition_index"], each["lag"])
            for topic in rows(found["topics"])
            for each in rows(topic["partitions"])
        )

    def close(self) -> None:
        if self.producer is not None:
            self.end_transaction(commits=True)
        for worker in tuple(self.workers):
            self.drop(worker)
        self.delete_group()
        if self.dead:
            self.control.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": self.dead}], timeout_ms=20_000)
        self.control.close()

    # --- internals

    def _of(self, worker: str) -> RawConnection:
        if worker not in self.workers:
            self.workers[worker] = RawConnection(self.address)
        return self.workers[worker]

    def _worker(self, worker: str, epoch: int) -> dict[str, object]:
        return {"group_id": self.side.group_id(GROUP), "member_id": worker, "share_session_epoch": epoch}

    def _topic_id(self, topic: str) -> uuid.UUID:
        return uuid.UUID(self.side.topic_id(topic))

    def _topics(self, said: Said) -> list[dict[str, object]]:
        found: dict[str, list[dict[str, object]]] = {}
        for (topic, partition), batches in said.items():
            found.setdefault(topic, []).append({"partition_index": partition, "acknowledgement_batches": batches})
        return [{"topic_id": self._topic_id(topic), "partitions": partitions} for topic, partitions in found.items()]

    def _sorted(self, answer: Any, told: Callable[[Any], tuple[object, ...]]) -> list[tuple[object, ...]]:
        return sorted(
            (self.side.label(str(topic.topic_id)), each.partition_index, *told(each))
            for topic in answer.responses
            for each in topic.partitions
        )


def _told_of_records(each: Any) -> tuple[object, ...]:
    acquired = [
        tuple(getattr(of, name) for name in ("first_offset", "last_offset", "delivery_count"))
        for of in each.acquired_records
    ]
    whole = [(header.base_offset, header.last_offset_delta) for _, header in whole_batches(each.records or b"")]
    return each.error_code, each.acknowledge_error_code, acquired, whole


def whole_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """The batches of an answer of which Kafka has not cut off the end."""
    end = 0
    while end + LENGTH_END <= len(data):
        size = LENGTH_END + int.from_bytes(data[end + LENGTH_AT : end + LENGTH_END])
        if end + size > len(data):
            break
        end += size
    return batches_of(data[:end])


def _error_of(each: Any) -> tuple[object, ...]:
    return (each.error_code,)


class Kept(NamedTuple):
    """What a broker has kept of a partition."""

    state_epoch: int
    start_offset: int
    batches: list[tuple[int, int, int, int]]


def kept_by_kafka(connection: WireConnection, side: Side, place: Place) -> Kept | None:
    partition: Json = {"partition": place[1], "leader_epoch": 0}
    topic: Json = {"topic_id": side.topic_id(place[0]), "partitions": [partition]}
    fields: dict[str, Json] = {"group_id": side.group_id(GROUP), "topics": [topic]}
    answer = connection.exchange("read_share_group_state", 0, fields).response
    (found,) = rows(rows(answer["results"])[0]["partitions"])
    if found["error_code"]:
        return None
    batches = [
        (each["first_offset"], each["last_offset"], each["delivery_state"], each["delivery_count"])
        for each in rows(found["state_batches"])
    ]
    return Kept(found["state_epoch"], found["start_offset"], batches)  # type: ignore[arg-type]


def kept_by_ours(broker: EmbeddedBroker, side: Side, place: Place) -> Kept | None:
    topic_id = uuid.UUID(side.topic_id(place[0]))
    state = broker._on_loop(lambda state: state.shares.summary(side.group_id(GROUP), topic_id, place[1]))
    if state is None:
        return None
    return Kept(state.state_epoch, state.start_offset, [tuple(map(int, batch)) for batch in state.batches])  # type: ignore[misc]
