"""How soon the first record comes: from the answer that assigns partitions, and from the assigned callback.

::

    python benchmarks/arrival.py             # a minute
    python benchmarks/arrival.py --quick

One consumer after the other joins a group of its own on one embedded broker in another process, reads one record and
closes. So each sample pays for everything that is new: librdkafka's connections, its metadata, the offsets.

* ``committed``: the group has committed offsets.
* ``reset``: it has none, so that the leader is asked for the earliest offset as well.
* ``librdkafka's sockets``: as ``committed``, with Nagle and 100 ms before a second connection, librdkafka's defaults.

From callback to record there are two round trips and several changes of thread. ``two bare round trips`` are measured
in turns, in the same process: their tail is due to the other programs on the machine.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from broker_process import broker_process
from report_file import in_a_process, keep, machine, median, options, table, versions

GOAL_MS = 5.0
SIDES: dict[str, tuple[bool, dict[str, object]]] = {
    "committed": (True, {}),
    "reset": (False, {}),
    "librdkafka's sockets": (True, {"socket.nagle.disable": False, "reconnect.backoff.ms": 100}),
}
"""Name -> whether offsets are committed, and other settings."""
STEPS = (
    "answer to callback",
    "callback to start",
    "start",
    "start to record",
    "answer to record",
    "callback to record",
    "two bare round trips",
)


@contextmanager
def noted(times: dict[str, float]) -> Iterator[None]:
    """Note when an assignment is answered, and when fetching is started, in this process."""
    from kip848_client.consumer.records.fetcher import Fetcher
    from kip848_client.network.observer import MemberObserver
    from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

    answered, start = MemberObserver.answered, Fetcher.start

    def noting_answered(self: MemberObserver, response: object, *, ms: float) -> None:
        if isinstance(response, ConsumerGroupHeartbeatResponse) and response.assignment is not None:
            times.setdefault("answer", time.perf_counter())
        answered(self, response, ms=ms)

    def noting_start(self: Fetcher, positions: Any) -> None:
        times["start"] = time.perf_counter()
        start(self, positions)
        times["started"] = time.perf_counter()

    MemberObserver.answered, Fetcher.start = noting_answered, noting_start  # type: ignore[method-assign]
    try:
        yield
    finally:
        MemberObserver.answered, Fetcher.start = answered, start  # type: ignore[method-assign]


def bare_round_trips(connection: socket.socket) -> float:
    """Seconds for two questions to the broker that need no thinking, one after the other."""
    from kip848_client.wire.codec import encode_request, frame
    from kip848_client.wire.messages.api_versions import ApiVersionsRequest

    request = frame(encode_request(ApiVersionsRequest(), api_version=0, correlation_id=1, client_id="bare"))
    begun = time.perf_counter()
    for _ in range(2):
        connection.sendall(request)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        connection.recv(size, socket.MSG_WAITALL)
    return time.perf_counter() - begun


def joins(bootstrap_servers: str, samples: int, *, committed: bool, settings: dict[str, Any]) -> list[dict[str, float]]:
    """Milliseconds of each step, for each consumer."""
    from confluent_kafka import Producer, TopicPartition

    from kip848_client import Consumer

    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(400):
        producer.produce("t", b"x" * 100, partition=number % 4)
    assert producer.flush(30) == 0
    rows = []
    times: dict[str, float] = {}

    def on_assign(_consumer: Any, _partitions: Any) -> None:
        times["callback"] = time.perf_counter()

    host, port = bootstrap_servers.split(":")
    with noted(times), socket.create_connection((host, int(port))) as bare:
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(samples):
            config = {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"g{committed}{len(settings)}{number}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
            if committed:
                with Consumer(config) as first:
                    first.assign([TopicPartition("t", index) for index in range(4)])
                    first.commit(offsets=[TopicPartition("t", index, 10) for index in range(4)], asynchronous=False)
            with Consumer(config) as consumer:
                times.clear()
                consumer.subscribe(["t"], on_assign=on_assign)
                while consumer.poll(5.0) is None:
                    pass
                record = time.perf_counter()
                at = times
                spans = [
                    at["callback"] - at["answer"],
                    at["start"] - at["callback"],
                    at["started"] - at["start"],
                    record - at["started"],
                    record - at["answer"],
                    record - at["callback"],
                    bare_round_trips(bare),
                ]
                rows.append({name: span * 1_000 for name, span in zip(STEPS, spans, strict=True)})
    return rows


def percentile(values: list[float], part: float) -> float:
    """The value that *part* of all do not exceed."""
    return round(sorted(values)[math.ceil(part * len(values)) - 1], 2)


def main() -> int:
    """Measure and print; the status says whether it could be done, not how it came out."""
    parser = options(__doc__)
    arguments = parser.parse_args()
    if arguments.task:
        task = json.loads(arguments.task)
        print(json.dumps(joins(**task)))
        return 0
    result: dict[str, Any] = {
        "benchmark": "arrival",
        "machine": machine(),
        "versions": versions("confluent-kafka"),
    }
    rows: list[list[object]] = [["ms", "median", "90 %", "99 %", "largest"]]
    with broker_process({"t": 4}, heartbeat_interval_ms=1_000) as broker:
        for name, (committed, settings) in SIDES.items():
            task = {
                "bootstrap_servers": broker.bootstrap_servers,
                "samples": 20 if arguments.quick else 200,
                "committed": committed,
                "settings": settings,
            }
            samples = in_a_process(__file__, task)
            result[name] = {}
            for step in STEPS:
                values = [sample[step] for sample in samples]
                figures = [median(values, 2), percentile(values, 0.9), percentile(values, 0.99), round(max(values), 2)]
                result[name][step] = dict(zip(("median", "p90", "p99", "max"), figures, strict=True))
                rows.append([f"{name}: {step}", *figures])
    table(rows)
    print(f"goal: callback to record at most {GOAL_MS} ms at the 99th percentile")
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
