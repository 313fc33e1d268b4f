"""A transactional producer by raw requests: one method per request, each in a version of the caller's choice."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.end_txn import EndTxnResponse
from kip848_client.wire.messages.fetch import FetchRequest, PartitionData
from kip848_client.wire.messages.produce import PartitionProduceResponse
from kip848_client.wire.record_batch import Record, batches_of, build_batch, records_of

TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
TOPIC: Final = "foo"


class RawProducer:
    """One producer: what it believes to be its id and epoch, and requests that carry them.

    Attributes:
        connection: to the broker, or to the node with that address; `connect` leads to another one.
        topic: where it writes.
        sequence: of the next batch to partition 0 of the topic.
    """

    def __init__(self, broker: EmbeddedBroker | str, transactional_id: str = "tx", *, topic: str = TOPIC) -> None:
        self.connection = RawConnection(broker if isinstance(broker, str) else broker.bootstrap_servers)
        self.name: Final = transactional_id
        self.topic: Final = topic
        self.producer_id = -1
        self.epoch = -1
        self.sequence = 0

    def begin(self, **fields: Any) -> tuple[int, int]:
        """InitProducerId that must succeed; remembers the id and epoch, and returns them."""
        error, producer_id, epoch = self.init(**fields)
        assert error == 0, error
        self.producer_id, self.epoch, self.sequence = producer_id, epoch, 0
        return producer_id, epoch

    def init(
        self, *, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000, version: int = 5
    ) -> tuple[int, int, int]:
        """InitProducerId; error, producer id and epoch."""
        claimed = {"transactional_id": self.name, "producer_id": producer_id, "producer_epoch": epoch}
        answer = self.connection.call(ApiKey.INIT_PRODUCER_ID, version, **claimed, transaction_timeout_ms=timeout_ms)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def produce(
        self,
        *values: bytes,
        partition: int = 0,
        attributes: int = TRANSACTIONAL,
        sequence: int | None = None,
        epoch: int | None = None,
        transactional_id: str | None = "",
        version: int = 12,
    ) -> PartitionProduceResponse:
        """Produce one batch to its topic; counts the sequence on if none is given and it succeeds."""
        now_ms = int(time.time() * 1000)
        batch = build_batch(
            [Record(value, timestamp=now_ms) for value in values or (b"v",)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=self.sequence if sequence is None else sequence,
            attributes=attributes,
        )
        data = {"name": self.topic, "partition_data": [{"index": partition, "records": batch}]}
        name = self.name if transactional_id == "" else transactional_id
        response = self.connection.call(
            ApiKey.PRODUCE, version, transactional_id=name, acks=-1, timeout_ms=1_000, topic_data=[data]
        )
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        if sequence is None and not answer.error_code:
            self.sequence += len(values) or 1
        return answer

    def add(self, *partitions: int, topic: str | None = None, version: int = 3) -> list[int]:
        """AddPartitionsToTxn; one error per partition, the lowest first."""
        answer = self.connection.call(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": topic or self.topic, "partitions": partitions}],
        )
        results = [
            (result.partition_index, result.partition_error_code)
            for added in answer.results_by_topic_v3_and_below
            for result in added.results_by_partition
        ]
        return [error for _, error in sorted(results)]

    def add_offsets(self, group: str) -> int:
        """AddOffsetsToTxn; the error."""
        answer = self.connection.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, **self._claimed(), group_id=group)
        return int(answer.error_code)

    def commit_offset(
        self,
        group: str,
        offset: int,
        *,
        partition: int = 0,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        version: int = 5,
    ) -> int:
        """TxnOffsetCommit of one partition of its topic; the error."""
        position = {"partition_index": partition, "committed_offset": offset}
        named = {"topic_id": self._topic_id()} if version >= 6 else {"name": self.topic}
        answer = self.connection.call(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            **self._claimed(),
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[named | {"partitions": [position]}],
        )
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool, version: int = 5, epoch: int | None = None) -> EndTxnResponse:
        """EndTxn; a producer of version 5 goes on with the epoch of the answer."""
        answer: EndTxnResponse = self.connection.call(ApiKey.END_TXN, version, **self._claimed(epoch), committed=commit)
        if epoch is None and version >= 5 and not answer.error_code:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer

    def _topic_id(self) -> uuid.UUID:
        found: uuid.UUID = self.connection.call(ApiKey.METADATA, 12, topics=[{"name": self.topic}]).topics[0].topic_id
        return found

    def _claimed(self, epoch: int | None = None) -> dict[str, Any]:
        """What it says of itself."""
        epoch = self.epoch if epoch is None else epoch
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": epoch}

    def connect(self, bootstrap_server: str) -> None:
        """Go on over a connection to another node."""
        self.connection.close()
        self.connection = RawConnection(bootstrap_server)

    def close(self) -> None:
        self.connection.close()


MakeProducer = Callable[..., RawProducer]


@contextmanager
def begun(broker: EmbeddedBroker | str, transactional_id: str = "tx", **fields: Any) -> Iterator[RawProducer]:
    """A producer with its id and epoch, for the time of the block."""
    with closing(RawProducer(broker, transactional_id)) as producer:
        producer.begin(**fields)
        yield producer


def fetch_request(
    offset: int = 0, *, partition: int = 0, isolation: int = 1, topic: str = TOPIC, **fields: Any
) -> FetchRequest:
    """A Fetch of one partition, by name; it does not wait unless *fields* say so."""
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
    wanted = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10_000_000, "isolation_level": isolation} | fields
    return build(FetchRequest, topics=[{"topic": topic, "partitions": [asked]}], **wanted)


def fetched(connection: RawConnection, offset: int = 0, **fields: Any) -> PartitionData:
    """What a Fetch of one partition is answered; see `fetch_request`."""
    return connection.ask(fetch_request(offset, **fields), version=12).responses[0].partitions[0]


def values_in(data: PartitionData) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record but markers, aborted ones included."""
    content = data.records or b""
    return [
        (record.offset, record.value)
        for position, header in batches_of(content)
        if not header.is_control
        for record in records_of(content, position)
    ]


def aborted_in(data: PartitionData) -> list[tuple[int, int]]:
    """Producer id and first offset of every transaction that the answer calls aborted."""
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]


def end_offset(
    connection: RawConnection, *, isolation: int, partition: int = 0, timestamp: int = -1, topic: str = TOPIC
) -> int:
    """What ListOffsets answers."""
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp}]}]
    answer = connection.call(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=isolation, topics=topics)
    return int(answer.topics[0].partitions[0].offset)


def committed(
    connection: RawConnection, group: str, *, stable: bool = False, partition: int = 0, topic: str = TOPIC
) -> tuple[int, int]:
    """Offset and error of what a group has committed."""
    group_asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}]}
    response = connection.call(ApiKey.OFFSET_FETCH, 8, groups=[group_asked], require_stable=stable)
    answer = response.groups[0].topics[0].partitions[0]
    return answer.committed_offset, answer.error_code
