"""The group coordinator: heartbeats a second alone and over TCP, a join among 10,000 members, loading a log, memory.

::

    python benchmarks/coordinator.py              # two minutes
    python benchmarks/coordinator.py --quick

* ``core``: steady heartbeats through `GroupCoordinator.handle`, `replay` and `apply`; no bytes, no network.
* ``tcp``: the same heartbeats from another process over loopback connections, to the embedded broker, to a bare
  `asyncio.Protocol` that answers as many bytes without looking (the floor of this design), and to librdkafka's mock
  cluster (C), turn by turn. What is compared is heartbeats per CPU second of the server's process: the rate of one core
  that it would have for itself. The rate by the wall clock is given as well; it shares the machine with the generator.
* ``join``: members join a group of 10,000 one after the other; target, records and replay included.
* ``load``: 100,000 records of a log, read from bytes and replayed.
* ``memory``: what an idle member costs in a group of 10,000, by `tracemalloc`.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import heartbeat_load
from broker_process import BrokerProcess, broker_process, echo_process, mock_process
from report_file import in_a_process, keep, machine, median, options, table, versions

from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMetadata, CurrentAssignment
from kip848_client.testing.coordinator.consumer.consumer_records import (
    current_record,
    group_epoch_record,
    member_metadata_record,
    target_epoch_record,
    target_record,
)
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.inputs import ApiRequest, GroupMessage, TopicsChanged
from kip848_client.testing.coordinator.core.result import CoordinatorRecord, CoordinatorResult
from kip848_client.testing.coordinator.core.topics_image import TopicInfo, TopicsImage
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownRecord,
    decode_record,
    encode_record_key,
    encode_record_value,
)

MEMBERS = 10_000
PARTITIONS_PER_MEMBER = 5
TOPICS = 10
LOAD_RECORDS = 100_000
SHAPES = ((1, 1), (1, 16), (10, 1), (100, 1))
"""(connections, heartbeats outstanding on each)."""
REQUEST_BYTES, ANSWER_BYTES = 78, 65
"""About those of a steady heartbeat with ids of 36 characters."""

GOALS = {"tcp_per_core": 20_000, "join_assignor_ms": 1.0, "load_s": 1.0, "bytes_per_idle_member": 4096}


class Coordinator:
    """A coordinator and what a shell does for it."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.core = GroupCoordinator(CoordinatorConfig(), rng=random.Random(0))
        self.topic_ids = {name: uuid.UUID(int=number + 1) for number, name in enumerate(topics)}
        image = TopicsImage(
            tuple(TopicInfo(name, self.topic_ids[name], count) for name, count in topics.items()), version=1
        )
        self.finish(self.core.handle(TopicsChanged(image), now_ms=0))

    def finish(self, result: CoordinatorResult) -> CoordinatorResult:
        """Replay and apply."""
        for record in result.records:
            self.core.replay(record)
        self.core.apply(result)
        return result

    def ask(self, message: GroupMessage, *, now_ms: int = 0) -> CoordinatorResult:
        """One request, all of it."""
        request = ApiRequest(1, 1, message, 0, "bench", "/127.0.0.1")
        return self.finish(self.core.handle(request, now_ms=now_ms))

    def join(self, number: int) -> CoordinatorResult:
        """The first heartbeat of a member that subscribes to all topics."""
        return self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id(number),
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=tuple(self.topic_ids),
                topic_partitions=(),
            )
        )

    def settle(self) -> None:
        """Let every member take its target."""
        for _ in range(10):
            snapshot = self.core.snapshot("g")
            assert snapshot is not None
            if snapshot.state == "Stable":
                return
            for member in snapshot.members.values():
                owned = tuple(
                    TopicPartitions(topic_id, tuple(sorted(numbers))) for topic_id, numbers in member.assigned.items()
                )
                self.ask(
                    ConsumerGroupHeartbeatRequest(
                        group_id="g",
                        member_id=member.member_id,
                        member_epoch=member.member_epoch,
                        topic_partitions=owned,
                    )
                )
        raise AssertionError("the group did not settle")


def member_id(number: int) -> str:
    """As long as a real one."""
    return f"5f2b1c1e-6f0f-4c5e-9d3f-{number:012d}"


def core_us(rounds: int) -> dict[str, float]:
    """Microseconds of one steady heartbeat; ``full`` repeats every field, as after an error."""
    coordinator = Coordinator({"t0": 30, "t1": 30})
    for number in range(3):
        coordinator.join(number)
    coordinator.settle()
    snapshot = coordinator.core.snapshot("g")
    assert snapshot is not None
    member = snapshot.members[member_id(1)]
    steady = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=member.member_epoch)
    full = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("t0", "t1"),
        topic_partitions=tuple(TopicPartitions(t, tuple(sorted(p))) for t, p in member.assigned.items()),
    )
    result = {}
    for name, message in (("steady", steady), ("full", full)):
        response = coordinator.ask(message).replies[0].response
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        assert not response.error_code
        result[name] = round(best_us(lambda message=message: coordinator.ask(message), rounds=rounds), 2)  # type: ignore[misc]
    return result


def best_us(work: Callable[[], object], *, rounds: int, turns: int = 5_000) -> float:
    """CPU microseconds of one turn, of the best round: other rounds were disturbed."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.thread_time()
        for _ in range(turns):
            work()
        best = min(best, time.thread_time() - begun)
    return best * 1e6 / turns


def tcp(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Every shape, every server, turn by turn."""
    servers: dict[str, Callable[[], AbstractContextManager[BrokerProcess]]] = {
        "ours": lambda: broker_process({heartbeat_load.TOPIC: 30}),
        "echo": lambda: echo_process(ANSWER_BYTES, REQUEST_BYTES),
        "mock": mock_process,
    }
    results = []
    for connections, pipelined in SHAPES:
        rates: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
        for number in range(rounds):
            for name in list(servers)[:: 1 if number % 2 == 0 else -1]:
                with servers[name]() as server:
                    task = {
                        "call": "echoes" if name == "echo" else "heartbeats",
                        "port": server.port,
                        "pid": server.pid,
                        "connections": connections,
                        "pipelined": pipelined,
                        "seconds": seconds,
                    }
                    rates[name].append(in_a_process(__file__, task))
        per_core = {name: [run["heartbeats"] / run["cpu_s"] for run in runs] for name, runs in rates.items()}
        wall = {name: [run["heartbeats"] / run["seconds"] for run in runs] for name, runs in rates.items()}
        ratios = {
            other: median([a / b for a, b in zip(per_core["ours"], per_core[other], strict=True)], 2)
            for other in ("echo", "mock")
        }
        results.append(
            {
                "connections": connections,
                "pipelined": pipelined,
                "per_cpu_s": {name: round(statistics.median(values)) for name, values in per_core.items()},
                "per_s": {name: round(statistics.median(values)) for name, values in wall.items()},
                "ratio_ours_to": ratios,
            }
        )
        print(f"  {connections} connections of {pipelined} done", flush=True)
    return results


def join_ms(members: int) -> dict[str, float]:
    """Members join one after the other where *members* - 10 are already: CPU milliseconds, median."""
    partitions = members * PARTITIONS_PER_MEMBER // TOPICS
    coordinator = Coordinator({f"t{number}": partitions for number in range(TOPICS)})
    replay_all(coordinator, settled_group(coordinator, members - 10, partitions=partitions))
    coordinator.core.loaded(now_ms=0)
    handle, whole = [], []
    gc.collect()
    gc.freeze()  # a collection over half a million objects would be the join's only pause, and is not its cost
    for number in range(members - 10, members):
        request = ApiRequest(
            1,
            1,
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id(number),
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=tuple(coordinator.topic_ids),
                topic_partitions=(),
            ),
            0,
            "bench",
            "/127.0.0.1",
        )
        begun = time.thread_time()
        result = coordinator.core.handle(request, now_ms=0)
        handle.append(time.thread_time() - begun)
        coordinator.finish(result)
        whole.append(time.thread_time() - begun)
        assert any(type(record.key).__name__ == "ConsumerGroupTargetAssignmentMemberKey" for record in result.records)
    gc.unfreeze()
    coordinator.core.check_invariants()
    return {"handle": median([value * 1000 for value in handle], 2), "all": median([v * 1000 for v in whole], 2)}


def settled_group(coordinator: Coordinator, members: int, *, partitions: int) -> Iterable[CoordinatorRecord]:
    """The records of a group in which every member has a share of every topic."""
    topic_ids = list(coordinator.topic_ids.values())
    per_topic = partitions // members if partitions >= members else 0
    metadata = ConsumerMetadata(
        client_id="bench",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=tuple(sorted(coordinator.topic_ids)),
    )
    shares = _shares(topic_ids, members=members, partitions=partitions, per_topic=per_topic)
    yield group_epoch_record("g", epoch=1, metadata_hash=0)
    for number in range(members):
        yield member_metadata_record("g", member_id=member_id(number), metadata=metadata)
    for number, share in enumerate(shares):
        yield target_record("g", member_id=member_id(number), target=share)
    yield target_epoch_record("g", epoch=1, timestamp_ms=0)
    for number, share in enumerate(shares):
        current = CurrentAssignment(
            member_epoch=1,
            previous_member_epoch=1,
            assigned={topic_id: dict.fromkeys(numbers, 1) for topic_id, numbers in share.items()},
        )
        yield current_record("g", member_id=member_id(number), current=current)


def _shares(
    topic_ids: list[uuid.UUID], *, members: int, partitions: int, per_topic: int
) -> list[dict[uuid.UUID, tuple[int, ...]]]:
    shares: list[dict[uuid.UUID, tuple[int, ...]]] = [{} for _ in range(members)]
    every = [(topic_id, number) for topic_id in topic_ids for number in range(partitions)]
    size, larger = divmod(len(every), members)
    start = 0
    for index, share in enumerate(shares):
        stop = start + size + (index < larger)
        for topic_id, number in every[start:stop]:
            share[topic_id] = (*share.get(topic_id, ()), number)
        start = stop
    return shares


def replay_all(coordinator: Coordinator, log: Iterable[CoordinatorRecord]) -> None:
    """Replay records."""
    for record in log:
        coordinator.core.replay(record)


def to_bytes(records: Iterable[CoordinatorRecord]) -> list[tuple[bytes, bytes | None]]:
    """As a log holds them."""
    return [
        (encode_record_key(record.key), None if record.value is None else encode_record_value(record.value))
        for record in records
    ]


def load(log: list[tuple[bytes, bytes | None]], coordinator: Coordinator) -> None:
    """What a broker does at its start."""
    for key, value in log:
        record = decode_record(key, value)
        assert not isinstance(record, UnknownRecord)
        coordinator.core.replay(record)
    coordinator.core.loaded(now_ms=0)


def log_of(records: int) -> list[tuple[bytes, bytes | None]]:
    """A log of about *records* records: a group of members, and offsets for the rest."""
    members = records // 10
    partitions = members * PARTITIONS_PER_MEMBER // TOPICS
    names = {f"t{number}": partitions for number in range(TOPICS)}
    log = to_bytes(settled_group(Coordinator(names), members, partitions=partitions))
    for number in range(records - len(log)):
        key = OffsetCommitKey(group="g", topic=f"t{number % TOPICS}", partition=number // TOPICS)
        value = OffsetCommitValue(offset=number, leader_epoch=1, metadata="", commit_timestamp=1_700_000_000_000)
        log.append((encode_record_key(key), encode_record_value(value)))
    return log


def load_s(rounds: int) -> dict[str, float]:
    """CPU seconds to load `LOAD_RECORDS` records."""
    log = log_of(LOAD_RECORDS)
    times = []
    for _ in range(rounds):
        coordinator = Coordinator({f"t{number}": LOAD_RECORDS // 10 * 5 // TOPICS for number in range(TOPICS)})
        gc.collect()
        begun = time.thread_time()
        load(log, coordinator)
        times.append(time.thread_time() - begun)
    coordinator.core.check_invariants()
    return {"records": len(log), "seconds": round(min(times), 3), "median_seconds": median(times)}


def bytes_per_member(members: int) -> dict[str, float]:
    """Memory of idle members that were loaded, and sent one heartbeat each."""
    partitions = members * PARTITIONS_PER_MEMBER // TOPICS
    coordinator = Coordinator({f"t{number}": partitions for number in range(TOPICS)})
    log = to_bytes(settled_group(coordinator, members, partitions=partitions))
    tracemalloc.start()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    load(log, coordinator)
    for number in range(members):
        coordinator.ask(
            ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id(number), member_epoch=1), now_ms=1
        )
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"members": members, "bytes_per_member": round((after - before) / members)}


def main() -> int:
    """Measure and print; the status says whether it could be done, not how it came out."""
    arguments = options(__doc__).parse_args()
    if arguments.task:
        task = json.loads(arguments.task)
        call = task.pop("call")
        if call == "echoes":
            task |= {"request_bytes": REQUEST_BYTES, "answer_bytes": ANSWER_BYTES}
        print(json.dumps(getattr(heartbeat_load, call)(**task)))
        return 0
    quick = arguments.quick
    core = core_us(3 if quick else 10)
    print(f"core: {core} us a heartbeat", flush=True)
    joins = {str(members): join_ms(members) for members in ((1_000,) if quick else (1_000, MEMBERS))}
    print(f"join among so many members: {joins} ms", flush=True)
    loaded = load_s(1 if quick else 3)
    print(f"load: {loaded} (goal {GOALS['load_s']} s)", flush=True)
    memory = bytes_per_member(1_000 if quick else MEMBERS)
    print(f"memory: {memory} (goal {GOALS['bytes_per_idle_member']})", flush=True)
    shapes = tcp(1 if quick else 3, 1.0 if quick else 2.0)
    result = {
        "benchmark": "coordinator",
        "machine": machine(),
        "versions": versions("confluent-kafka"),
        "core_us": core,
        "core_per_s": round(1e6 / core["steady"]),
        "join_ms": joins,
        "load": loaded,
        "memory": memory,
        "tcp": shapes,
        "goals": GOALS,
    }
    rows: list[list[object]] = [
        [
            "heartbeats a CPU second",
            "ours",
            "bare asyncio",
            "librdkafka's mock",
            "ours/bare",
            "ours/mock",
            "ours a second",
        ]
    ]
    rows += [
        [
            f"{shape['connections']} x {shape['pipelined']}",
            *shape["per_cpu_s"].values(),
            *shape["ratio_ours_to"].values(),
            shape["per_s"]["ours"],
        ]
        for shape in shapes
    ]
    table(rows)
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
