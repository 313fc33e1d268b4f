"""Where the records of `consume.py` come from: librdkafka's mock cluster in a process of its own, filled once.

Run as a program it fills a mock cluster, prints one JSON line with its address and topics, and serves until its
standard input ends. `drain` measures what the source can deliver when nobody looks at the records.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PARTITIONS_PER_TOPIC = 4  # the mock's own number for a topic that it creates
MOCK_PARTITION_BYTES_MAX = 5 * 1024 * 1024  # rdkafka_mock.c: older records are dropped beyond this ...
MOCK_PARTITION_RECORDS_MAX = 100_000  # ... or this
RECORD_OVERHEAD_BYTES = 34
FILL_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Source:
    """A cluster to read from.

    Args:
        topics: every partition of each is filled.
        records: in all topics together.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    records: int
    value_bytes: int


@contextmanager
def mock_cluster(*, records: int, value_bytes: int) -> Iterator[Source]:
    """Run a filled mock cluster in another process."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(records), str(value_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the mock cluster did not start; see its messages above")
        ready = json.loads(line)
        yield Source(ready["bootstrap_servers"], tuple(ready["topics"]), ready["records"], value_bytes)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


@contextmanager
def existing_cluster(*, bootstrap_servers: str, records: int, value_bytes: int) -> Iterator[Source]:
    """Fill topics of a running Kafka; they are deleted afterwards."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = topics_for(records, value_bytes)
    for created in admin.create_topics([NewTopic(topic, PARTITIONS_PER_TOPIC) for topic in topics]).values():
        created.result(30)
    try:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50})
        fill(producer, topics, records=records, value_bytes=value_bytes)
        yield Source(bootstrap_servers, tuple(topics), records, value_bytes)
    finally:
        for deleted in admin.delete_topics(topics).values():
            deleted.result(30)


def topics_for(records: int, value_bytes: int) -> list[str]:
    """Names of as many topics as the mock's limits ask for."""
    per_partition = min(MOCK_PARTITION_RECORDS_MAX, MOCK_PARTITION_BYTES_MAX // (value_bytes + RECORD_OVERHEAD_BYTES))
    return [f"bench-{number:03}" for number in range(max(1, -(-records // (per_partition * PARTITIONS_PER_TOPIC))))]


def fill(producer: Any, topics: list[str], *, records: int, value_bytes: int) -> None:
    """Produce *records* evenly to all partitions of *topics*."""
    value = os.urandom(value_bytes)
    targets = [(topic, partition) for topic in topics for partition in range(PARTITIONS_PER_TOPIC)]
    for number in range(records):
        topic, partition = targets[number // 1000 % len(targets)]
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(FILL_TIMEOUT_S):
        raise RuntimeError("the cluster did not take all records in time")


def serve_mock(records: int, value_bytes: int) -> None:
    """Be the mock cluster: fill it, say where it is, serve until standard input ends."""
    from confluent_kafka import Producer

    conf = {"test.mock.num.brokers": 1, "queue.buffering.max.messages": 1_000_000, "linger.ms": 50}
    producer = Producer(conf | {"batch.num.messages": 10_000, "log_level": 4})  # its life is the cluster's
    topics = topics_for(records, value_bytes)
    for topic in topics:
        producer.list_topics(topic, timeout=10)  # creates it
    fill(producer, topics, records=records, value_bytes=value_bytes)
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    ready = {"bootstrap_servers": f"{broker.host}:{broker.port}", "topics": topics, "records": records}
    print(json.dumps(ready), flush=True)
    sys.stdin.read()


def drain(source: Source) -> float:
    """Read everything in plain fetches and count records by batch headers; returns records per second.

    A lower bound of what the source can deliver: one connection, one request at a time.
    """
    from kip848_client.wire.api_keys import ApiKey
    from kip848_client.wire.codec import decode_response, encode_request, frame
    from kip848_client.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

    version = 11
    host, _, port = source.bootstrap_servers.partition(":")
    positions = {(topic, number): 0 for topic in source.topics for number in range(PARTITIONS_PER_TOPIC)}
    counted = 0
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as answers:
        began_s = time.perf_counter()
        while counted < source.records:
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=50 * 1024 * 1024,
                topics=tuple(
                    FetchTopic(
                        topic=topic,
                        partitions=tuple(
                            FetchPartition(
                                partition=number, fetch_offset=positions[topic, number], partition_max_bytes=1024 * 1024
                            )
                            for number in range(PARTITIONS_PER_TOPIC)
                        ),
                    )
                    for topic in source.topics
                ),
            )
            connection.sendall(frame(encode_request(request, api_version=version, correlation_id=1, client_id="drain")))
            (size,) = struct.unpack(">i", answers.read(4))
            _, answer = decode_response(ApiKey.FETCH, answers.read(size), api_version=version)
            assert isinstance(answer, FetchResponse)
            for topic in answer.responses:
                for data in topic.partitions:
                    end, records = _batches(data.records or b"")
                    if records:
                        counted += records
                        positions[topic.topic, data.partition_index] = end
        return counted / (time.perf_counter() - began_s)


def _batches(data: bytes) -> tuple[int, int]:
    """The offset after the last whole batch, and how many records they hold."""
    at = records = end = 0
    while at + 61 <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break
        (last_delta,) = struct.unpack_from(">i", data, at + 23)
        end = base_offset + last_delta + 1
        records += last_delta + 1
        at += 12 + length
    return end, records


if __name__ == "__main__":
    serve_mock(int(sys.argv[1]), int(sys.argv[2]))
