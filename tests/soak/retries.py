"""``python -m tests.soak.retries``: an API that is down for a while, on a real Kafka, with processes that are killed.

Some processes handle orders with `AsyncConsumer.process()`, retry topics and outputs: each order that is done has an
invoice. The API refuses a part of the orders until its outage is over, so that these wait in the tiers; others are
handled meanwhile. Processes get SIGKILL. At the end every order must have its invoice or be in the dead letters: a
commit before the acknowledgement would lose some. An order may have been done twice only if a process was killed, and
with it the commit. Prints the figures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

import anyio
import confluent_kafka

from kip848_client import AsyncConsumer, DeadLetters, EmbeddedBroker, HandlerOutputs, RetryTopics, processing_attempt
from kip848_client.member.processing.tiers import read_failed
from tests.interop.kafka_broker import KafkaBroker

kit: Any = importlib.import_module("confluent_kafka.admin")  # its stubs do not export what it has

REPOSITORY: Final = Path(__file__).parents[2]
TOPIC: Final = "orders"
DEAD: Final = "orders-dead"
INVOICES: Final = "invoices"
GROUP: Final = "soak-retries"
QUIET_S: Final = 90


def work(options: argparse.Namespace) -> None:
    """One process: handles orders until SIGTERM."""
    ledger = os.open(options.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def main() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": options.work, "linger.ms": 5})
        retries = RetryTopics("orders-retry", options.delays, producer=producer, partitions=3, replication_factor=1)
        conf = {"bootstrap.servers": options.work, "group.id": GROUP, "auto.offset.reset": "earliest"}
        async with (
            AsyncConsumer({**conf, "auto.commit.interval.ms": 500}) as consumer,
            anyio.create_task_group() as tasks,
        ):
            await consumer.subscribe([TOPIC, *retries.topics])

            async def stop() -> None:
                with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                    async for _ in signals:
                        consumer.hand_over()
                        return

            async def handle(message: Any, outputs: HandlerOutputs) -> None:
                await anyio.sleep(options.order_s)
                number = int(message.value() or b"")
                if number % 1_000 == 7 or (number % 100 == 5 and time.time() < options.down_until):
                    raise ConnectionRefusedError(f"order {number}")
                line = f"{time.time():.4f} {number} {processing_attempt().number} {message.topic()}\n"
                os.write(ledger, line.encode())
                outputs.produce(INVOICES, message.value(), message.key())

            tasks.start_soon(stop)
            await consumer.process(
                handle,
                concurrency=options.concurrency,
                retry_later=retries,
                dead_letter=DeadLetters(producer, DEAD),
                outputs=producer,
            )
            tasks.cancel_scope.cancel()

    anyio.run(main)


class Fleet:
    """The processes of one run."""

    def __init__(self, servers: str, folder: Path, options: argparse.Namespace, down_until: float) -> None:
        self._given: Final = [
            *("--work", servers, "--concurrency", str(options.concurrency), "--order-s", str(options.order_s)),
            *("--down-until", str(down_until), "--delays", *options.delays),
        ]
        self._folder: Final = folder
        self._number = 0
        self.killed = 0
        self.running: Final[dict[str, subprocess.Popen[bytes]]] = {}

    def start(self) -> None:
        """Start one more."""
        self._number += 1
        name = f"process-{self._number}"
        command = [sys.executable, "-m", "tests.soak.retries", *self._given, "--ledger", str(self._folder / name)]
        self.running[name] = subprocess.Popen(command, cwd=REPOSITORY)

    def kill(self, rng: random.Random) -> None:
        """Kill one, and start another."""
        process = self.running.pop(rng.choice(sorted(self.running)))
        process.kill()
        process.wait()
        self.killed += 1
        self.start()

    def end(self) -> list[int]:
        """Let all end; their exit statuses."""
        for process in self.running.values():
            process.terminate()
        return [process.wait(60) for process in self.running.values()]

    def done(self) -> dict[int, list[tuple[float, int]]]:
        """Order -> when it was done, and in which attempt."""
        found: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        for path in self._folder.iterdir():
            for line in path.read_text().splitlines():
                at, number, attempt, topic = line.split()
                assert topic == TOPIC, "the handler sees a record as it was"
                found[int(number)].append((float(at), int(attempt)))
        return found


class Follower:
    """Reads what is in a topic, and goes on there."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._consumer: Final = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "auditor"})
        self._consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
        self.orders: Final[Counter[int]] = Counter()
        self.messages: Final[list[Any]] = []

    def read(self, wait_s: float = 0.0) -> Counter[int]:
        """How often each order is there, after a wait for more."""
        while found := self._consumer.consume(1_000, wait_s):
            self.messages.extend(found)
            self.orders.update(int(message.value() or b"") for message in found if message.error() is None)
        return self.orders


def play(servers: str, options: argparse.Namespace) -> bool:
    """One run; whether all went well."""
    admin = kit.AdminClient({"bootstrap.servers": servers})
    topics = [kit.NewTopic(TOPIC, options.partitions, 1), kit.NewTopic(DEAD, 1, 1), kit.NewTopic(INVOICES, 3, 1)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for number in range(options.orders):
        producer.produce(TOPIC, str(number), key=str(number % 500))
        producer.poll(0)
    assert producer.flush(60) == 0
    dead, invoices = Follower(servers, DEAD, 1), Follower(servers, INVOICES, 3)
    rng = random.Random(options.seed)
    began_s = time.time()
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(servers, Path(folder), options, down_until=began_s + options.down_s)
        for _ in range(options.processes):
            fleet.start()
        kills = sorted(rng.uniform(0.05, 1.2) * options.down_s for _ in range(options.kills))
        others_s = math.inf
        refused = {number for number in range(options.orders) if number % 1_000 == 7 or number % 100 == 5}
        last, last_s = 0, time.monotonic()
        while True:
            done = fleet.done()
            if others_s == math.inf and len(done.keys() - refused) == options.orders - len(refused):
                others_s = time.time() - began_s
            count = len(done)
            if count > last:
                last, last_s = count, time.monotonic()
            over = len(invoices.read().keys() | dead.read().keys()) == options.orders
            if (over and not kills) or time.monotonic() - last_s > QUIET_S + options.down_s:
                break
            while kills and time.time() - began_s >= kills[0]:
                kills.pop(0)
                fleet.kill(rng)
            time.sleep(0.2)
        took_s = time.time() - began_s
        codes = fleet.end()
        invoices.read(5.0)
        dead.read(5.0)
        return report(fleet, options, invoices, dead, others_s=others_s, took_s=took_s, codes=codes)


def report(
    fleet: Fleet,
    options: argparse.Namespace,
    invoices: Follower,
    letters: Follower,
    *,
    others_s: float,
    took_s: float,
    codes: list[int],
) -> bool:
    """Print what came of it; whether every order has its invoice or is in the dead letters."""
    done, dead = fleet.done(), letters.orders
    assert all(read_failed(message.headers()) is not None for message in letters.messages), "its headers say why"
    missing = [number for number in range(options.orders) if number not in done and number not in dead]
    without = [number for number in range(options.orders) if number not in invoices.orders and number not in dead]
    twice = [number for number, found in done.items() if len(found) > 1]
    print(
        json.dumps(
            {
                "orders": options.orders,
                "processes": options.processes,
                "kills": fleet.killed,
                "done": len(done),
                "dead letters": len(dead),
                "missing": len(missing),
                "done twice": len(twice),
                "done and dead": len(done.keys() & dead.keys()),
                "invoices": invoices.orders.total(),
                "without an invoice": len(without),
                "with two or more": sum(1 for count in invoices.orders.values() if count > 1),
                "waited in a tier": sum(1 for found in done.values() if found[-1][1] > 1),
                "the others were done after, s": round(others_s, 1),
                "all after, s": round(took_s, 1),
                "exit statuses": codes,
            }
        )
    )
    twice += [number for number, count in invoices.orders.items() if count > 1]
    clean = all(code in {0, -signal.SIGTERM} for code in codes)  # the signal may come before a process has begun
    return not missing and not without and clean and (fleet.killed > 0 or not twice)


def main() -> int:
    """Play the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--order-s", type=float, default=0.02)
    parser.add_argument("--down-s", type=float, default=60.0)
    parser.add_argument("--delays", nargs="+", default=["1s", "5s", "20s", "60s"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", help="of a Kafka that runs; else one is started")
    parser.add_argument("--embedded", action="store_true", help="use the embedded broker")
    parser.add_argument("--work", metavar="SERVERS", help="be one process")
    parser.add_argument("--down-until", type=float, default=0.0)
    parser.add_argument("--ledger")
    options = parser.parse_args()
    if options.work:
        work(options)
        return 0
    if options.servers:
        return 0 if play(options.servers, options) else 1
    if options.embedded:
        with EmbeddedBroker() as broker:
            return 0 if play(broker.bootstrap_servers, options) else 1
    with KafkaBroker() as kafka:
        return 0 if play(kafka.bootstrap_servers, options) else 1


if __name__ == "__main__":
    sys.exit(main())
