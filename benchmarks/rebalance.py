"""How long a group of 10 or 100 consumers takes to be at rest again after one joined, and after one left.

::

    python benchmarks/rebalance.py              # three minutes
    python benchmarks/rebalance.py --quick
    python benchmarks/rebalance.py --members 50
    python benchmarks/rebalance.py --protocol classic --sides ours librdkafka java

All members of a side live in one process and are polled in turn by one thread, against an embedded broker in another
process; ours and librdkafka's, turn by turn, and Java's if it is asked for (``KAFKA_LIBS`` names the folder with its
jars). The clock runs from subscribe() of the one that joins, or from the call of close() of the one that leaves, until
the coordinator has the group ``Stable`` with every member at its target.

The heartbeat interval decides: members learn of a new target by a heartbeat, so a rebalance in which partitions move
takes about two intervals with any client. Both sides are given the same one. On the classic protocol both are
``cooperative-sticky``, and one of the members computes what all of them get.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_process import BrokerProcess, broker_process
from report_file import keep, machine, median, options, table, versions

PARTITIONS_PER_MEMBER = 3
TIMEOUT_S = 180.0
SIDES = ("ours", "librdkafka", "java")
GOALS_S = {
    "1000 ms, 10 members": 5.0,
    "1000 ms, 100 members": 15.0,
    "100 ms, 10 members": 1.0,
    "100 ms, 100 members": 3.0,
}


def make_consumer(side: str, bootstrap_servers: str, *, protocol: str, interval_ms: int) -> Any:
    """One consumer, not subscribed."""
    conf: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": side,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "group.protocol": protocol,
    }
    if protocol == "classic":
        conf |= {
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": interval_ms,
            "session.timeout.ms": 30_000,
        }
    if side == "librdkafka":
        from confluent_kafka import Consumer as Theirs

        return Theirs(conf)
    from kip848_client import Consumer

    return Consumer(conf)


def hold_members(bootstrap_servers: str, *, side: str, members: int, protocol: str, interval_ms: int) -> None:
    """Hold a group; ``join`` and ``leave`` on standard input add and remove one and print when that began."""
    consumers = []
    for _ in range(members):
        consumer = make_consumer(side, bootstrap_servers, protocol=protocol, interval_ms=interval_ms)
        consumer.subscribe(["t"])
        consumers.append(consumer)
    commands: deque[str] = deque()
    ended = threading.Event()

    def read() -> None:
        for line in sys.stdin:
            commands.append(line.strip())
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    spare = make_consumer(side, bootstrap_servers, protocol=protocol, interval_ms=interval_ms)
    while not ended.is_set():
        began = time.monotonic()
        for consumer in consumers:
            consumer.poll(0)
        if commands:
            command = commands.popleft()
            moment = time.time()
            print(json.dumps(moment), flush=True)
            if command == "join":
                spare.subscribe(["t"])
                consumers.append(spare)
            else:
                leaving = consumers.pop()
                threading.Thread(target=leaving.close, daemon=True).start()
        time.sleep(max(0.0, 0.01 - (time.monotonic() - began)))
    # The process ends here: closing a hundred consumers one by one is not what is measured.
    sys.stdout.flush()
    os._exit(0)


@contextmanager
def held_members(broker: BrokerProcess, **kind: object) -> Iterator[subprocess.Popen[str]]:
    """A process that holds members; *kind* is what `hold_members` takes."""
    if kind["side"] == "java":
        source = Path(__file__).with_name("GroupMembers.java")
        command = ["java", "-cp", f"{os.environ['KAFKA_LIBS']}/*", str(source), broker.bootstrap_servers]
        command += [str(kind[name]) for name in ("side", "protocol", "interval_ms", "members")]
    else:
        task = json.dumps({"bootstrap_servers": broker.bootstrap_servers, **kind})
        command = [sys.executable, __file__, "--task", task]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        process.stdout.close()


def tell(process: subprocess.Popen[str], command: str) -> float:
    """Give a command; returns when it began."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(command + "\n")
    process.stdin.flush()
    moment: float = json.loads(process.stdout.readline())
    return moment


def measure(*, side: str, members: int, interval_ms: int, protocol: str) -> dict[str, float]:
    """Seconds until all members have joined, one more has, and one has left."""
    config = {"group.consumer.session.timeout.ms": "30000"}
    partitions = members * PARTITIONS_PER_MEMBER
    with (
        broker_process({"t": partitions}, heartbeat_interval_ms=interval_ms, config=config) as broker,
        held_members(broker, side=side, members=members - 1, protocol=protocol, interval_ms=interval_ms) as process,
    ):
        began = time.time()
        assembled = broker.wait_until_stable_s(side, members=members - 1, timeout_s=TIMEOUT_S) - began
        _let_pass(interval_ms)
        began = tell(process, "join")
        joined = broker.wait_until_stable_s(side, members=members, timeout_s=TIMEOUT_S) - began
        _let_pass(interval_ms)
        began = tell(process, "leave")
        left = broker.wait_until_stable_s(side, members=members - 1, timeout_s=TIMEOUT_S) - began
    return {"assembled_s": assembled, "join_s": joined, "leave_s": left}


def _let_pass(interval_ms: int) -> None:
    """Two intervals and a part of one: else heartbeats would always have the phase that the last rebalance left."""
    time.sleep((2 + random.random()) * interval_ms / 1000)


def shapes_of(arguments: argparse.Namespace) -> list[tuple[int, int]]:
    """(heartbeat interval in ms, members)."""
    members = [arguments.members] if arguments.members else [10] if arguments.quick else [10, 100]
    return [(interval_ms, count) for count in members for interval_ms in (100, 1_000)]


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--members", type=int, default=0)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["ours", "librdkafka"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--protocol", choices=("consumer", "classic"), default="consumer")
    arguments = parser.parse_args()
    if arguments.task:
        hold_members(**json.loads(arguments.task))
        return 0
    rounds = 1 if arguments.quick else arguments.rounds
    goals = GOALS_S if arguments.protocol == "consumer" else {}  # the classic goal is librdkafka's time
    results = []
    rows: list[list[object]] = [["interval, members", "side", "all joined s", "one joins s", "one leaves s", "goal s"]]
    for interval_ms, members in shapes_of(arguments):
        runs: dict[str, list[dict[str, float]]] = {side: [] for side in arguments.sides}
        for number in range(rounds):
            for side in arguments.sides[:: 1 if number % 2 == 0 else -1]:
                found = measure(side=side, members=members, interval_ms=interval_ms, protocol=arguments.protocol)
                runs[side].append(found)
        name = f"{interval_ms} ms, {members} members"
        print(f"  {name} done", flush=True)
        for side, rounds_of in runs.items():
            middle = {key: median([run[key] for run in rounds_of], 2) for key in rounds_of[0]}
            worst = {key: round(max(run[key] for run in rounds_of), 2) for key in rounds_of[0]}
            results.append(
                {"interval_ms": interval_ms, "members": members, "side": side, "median": middle, "worst": worst}
            )
            rows.append([name, side, *middle.values(), goals.get(name, "")])
            print("  ", *rows[-1], flush=True)
    result = {
        "benchmark": "rebalance",
        "machine": machine(),
        "versions": versions("confluent-kafka"),
        "rounds": rounds,
        "partitions_per_member": PARTITIONS_PER_MEMBER,
        "results": results,
        "protocol": arguments.protocol,
        "goals_s": goals,
    }
    table(rows)
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
