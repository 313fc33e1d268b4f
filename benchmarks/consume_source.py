"""Where the records of `consume.py` come from: the embedded broker in a process of its own, or a running Kafka.

Run as a program it fills an embedded broker, prints one JSON line with its address, and serves until its standard input
ends. `drain` measures what the source can deliver when the records are not read.

(librdkafka's mock cluster would be faster still, but its OffsetFetch ends at version 6, which cannot carry a member
epoch: only librdkafka itself can be a member of a group there.)
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

import msgspec

TOPIC = "bench"
PARTITIONS = 48
FILL_TIMEOUT_S = 120.0


class Source(msgspec.Struct, frozen=True):
    """A cluster whose topic `TOPIC` has `PARTITIONS` partitions with *records* records in all."""

    bootstrap_servers: str
    records: int
    value_bytes: int


@contextmanager
def embedded_broker(*, records: int, value_bytes: int) -> Iterator[Source]:
    """Run a filled embedded broker in another process."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(records), str(value_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the broker did not start; see its messages above")
        yield Source(json.loads(line)["bootstrap_servers"], records, value_bytes)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


@contextmanager
def running_cluster(bootstrap_servers: str, *, records: int, value_bytes: int) -> Iterator[Source]:
    """Fill the topic of a running Kafka; it is deleted afterwards."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    try:
        fill(bootstrap_servers, records=records, value_bytes=value_bytes)
        yield Source(bootstrap_servers, records, value_bytes)
    finally:
        admin.delete_topics([TOPIC])[TOPIC].result(30)


def fill(bootstrap_servers: str, *, records: int, value_bytes: int) -> None:
    """Produce *records* evenly to all partitions."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "queue.buffering.max.messages": 1_000_000,
            "batch.num.messages": 10_000,
            "linger.ms": 50,
        }
    )
    value = os.urandom(value_bytes)
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number // 1000 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(FILL_TIMEOUT_S):
        raise RuntimeError("the cluster did not take all records in time")


def serve(records: int, value_bytes: int) -> None:
    """Be the source: fill an embedded broker, say where it is, serve until standard input ends."""
    from kip848_client import EmbeddedBroker

    with EmbeddedBroker({TOPIC: PARTITIONS}) as broker:
        fill(broker.bootstrap_servers, records=records, value_bytes=value_bytes)
        print(json.dumps({"bootstrap_servers": broker.bootstrap_servers}), flush=True)
        sys.stdin.read()


def drain(source: Source) -> float:
    """Read everything in plain fetches and count records by batch headers; returns records per second.

    A lower bound of what the source can deliver: one connection, one request at a time. Needs all leaders on one node.
    """
    from kip848_client.wire.api_keys import ApiKey
    from kip848_client.wire.codec import decode_response, encode_request, frame
    from kip848_client.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

    version = 11
    host, _, port = source.bootstrap_servers.partition(",")[0].rpartition(":")
    positions = dict.fromkeys(range(PARTITIONS), 0)
    counted = 0
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as answers:
        began_s = time.perf_counter()
        while counted < source.records:
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=50 * 1024 * 1024,
                topics=(
                    FetchTopic(
                        topic=TOPIC,
                        partitions=tuple(
                            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1024 * 1024)
                            for number, offset in positions.items()
                        ),
                    ),
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
                        positions[data.partition_index] = end
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
    serve(int(sys.argv[1]), int(sys.argv[2]))
