"""``python -m tests.soak``: one group on a real Kafka, for minutes, with everything going wrong that can.

Eight processes of ours and two of librdkafka share a group. A topic grows; another one is deleted and created again;
processes are killed, stopped for longer than their session and restarted; the broker is restarted and killed. Then the
faults end, everything has to be read and committed, and the evidence is judged.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from kip848_client.model import TopicPartition
from tests.interop.conftest import create_topic
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.real.administrator import Administrator
from tests.soak.evidence import Place, Verdict, judge, lines_of
from tests.support.waiting import outlast, wait_until

REPOSITORY: Final = Path(__file__).parents[2]
RESULTS: Final = REPOSITORY / "benchmarks" / "results" / "soak.json"
GROUP: Final = "soak"
STABLE_TOPIC: Final = "orders"
"""It grows, and is never deleted. All members read it."""
FRESH_TOPIC: Final = "events"
"""It is deleted and created again. Only our consumers read it: librdkafka's do not go on after that."""
SESSION_S: Final = 6
HEAL_S: Final = 180.0
PROPERTIES: Final = {
    "group.consumer.session.timeout.ms": str(SESSION_S * 1_000),
    "group.consumer.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
FAULTS: Final = {
    "kill a process": 5,
    "stop a process for longer than its session": 4,
    "restart a process": 4,
    "grow the topic": 1,
    "delete a topic and create it again": 2,
    "restart the broker": 1,
    "kill the broker": 1,
}
"""Fault -> how often, relative to the others."""


class Worker:
    """One process."""

    def __init__(self, name: str, client: str, folder: Path, conf: dict[str, object]) -> None:
        self.name: Final = name
        self.client: Final = client
        self.path: Final = folder / f"{name}.jsonl"
        self.path.touch()
        topics = STABLE_TOPIC if client == "librdkafka" else f"{STABLE_TOPIC},{FRESH_TOPIC}"
        own = {"client.id": name, "group.protocol": "consumer"}
        command = [
            sys.executable,
            "-m",
            "tests.soak.worker",
            client,
            str(self.path),
            topics,
            json.dumps({**conf, **own}),
        ]
        self.process: Final = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stderr=self.path.with_suffix(".err").open("wb")
        )


class Writer(threading.Thread):
    """Writes records that carry the generation of their topic, and knows which were acknowledged."""

    def __init__(self, bootstrap_servers: str, records_per_second: int) -> None:
        super().__init__(name="writer", daemon=True)
        self._producer: Final = Producer(
            {"bootstrap.servers": bootstrap_servers, "log_level": 0, "linger.ms": 5, "message.timeout.ms": 60_000}
        )
        self._interval_s: Final = 1 / records_per_second
        self._places: Final[dict[str, tuple[int, int]]] = {}
        self._lock: Final = threading.Lock()
        self._stopping: Final = threading.Event()
        self.acknowledged: Final[dict[Place, int]] = {}
        self.not_written = 0

    def write_to(self, topic: str, *, generation: int, partitions: int) -> None:
        """From now on write to these partitions; none: to none of this topic."""
        with self._lock:
            self._places[topic] = (generation, partitions)

    def run(self) -> None:
        """Write until stopped."""
        turn = itertools.count()
        while not self._stopping.wait(self._interval_s):
            number = next(turn)
            with self._lock:
                places = list(self._places.items())
                for topic, (generation, partitions) in places:
                    if partitions:
                        self._write(topic, generation, number % partitions)
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until nothing is under way."""
        with self._lock:
            self._producer.flush(90)

    def stop(self) -> None:
        """Stop, and wait until everything written is acknowledged or given up."""
        self._stopping.set()
        self.join()
        self._producer.flush(90)

    def _write(self, topic: str, generation: int, partition: int) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.not_written += 1
                return
            place = Place(topic, generation, partition)
            offset = message.offset()
            assert offset is not None
            self.acknowledged[place] = max(self.acknowledged.get(place, 0), offset + 1)

        try:
            self._producer.produce(topic, str(generation).encode(), partition=partition, on_delivery=delivered)
        except (BufferError, KafkaException):  # the broker is away, or the new topic is not known to the producer yet
            self.not_written += 1


class Soak:
    """The group, its broker, and what is done to them."""

    def __init__(self, broker: KafkaBroker, folder: Path, rng: random.Random, arguments: argparse.Namespace) -> None:
        self._broker: Final = broker
        self._folder: Final = folder
        self._rng: Final = rng
        self._arguments: Final = arguments
        self._numbers: Final = itertools.count()
        self._workers: Final[list[Worker]] = []
        self._all: Final[list[Worker]] = []
        self._generation = 0
        self._partitions = 12
        self._admin: Final = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        self._administrator: Final = Administrator(broker.bootstrap_servers, GROUP)
        self._writer: Final = Writer(broker.bootstrap_servers, arguments.rate)
        self._committed: Final[dict[Place, int]] = {}
        self._backwards: Final[list[str]] = []
        self.done: Final = dict.fromkeys(FAULTS, 0)

    def run(self) -> Verdict:
        """Play it, and judge it."""
        create_topic(self._admin, STABLE_TOPIC, partitions=self._partitions)
        self._writer.write_to(STABLE_TOPIC, generation=0, partitions=self._partitions)
        self._create_fresh_topic()
        for client, count in (("ours", self._arguments.ours), ("librdkafka", self._arguments.librdkafka)):
            for _ in range(count):
                self._start(client)
        self._writer.start()
        began = time.monotonic()
        last_s = began + self._arguments.minutes * 60
        kinds, weights = list(FAULTS), list(FAULTS.values())
        while time.monotonic() < last_s:
            self._let_it_run(self._rng.uniform(2, 12))
            fault = self._rng.choices(kinds, weights)[0]
            self._say(began, fault)
            self._harm(fault)
            self.done[fault] += 1
            self._replace_the_dead()
        assert self._writer.is_alive(), "the writer died: what it would have written was not tested"
        self._say(began, "the faults are over; everything has to be read and committed")
        self._writer.stop()
        try:
            wait_until(self._all_is_committed, HEAL_S, "the last commits", every_s=0.5)
        except AssertionError as error:
            self._backwards.append(f"{error}; behind: {self._behind()}")
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.wait(60)
        return judge(
            {worker.name: lines_of(worker.path) for worker in self._all},
            acknowledged=self._living(),
            backwards=self._backwards,
        )

    # ---------------------------------------------------------------------------------------------------- what is done

    def _harm(self, fault: str) -> None:
        match fault:
            case "kill a process":
                self._rng.choice(self._workers).process.kill()
            case "stop a process for longer than its session":
                worker = self._rng.choice(self._workers)
                worker.process.send_signal(signal.SIGSTOP)
                self._let_it_run(SESSION_S + self._rng.uniform(1, 6))
                worker.process.send_signal(signal.SIGCONT)
            case "restart a process":
                worker = self._rng.choice(self._workers)
                worker.process.terminate()
                worker.process.wait(60)
            case "grow the topic":
                self._partitions += 1
                self._administrator.add_partitions(STABLE_TOPIC, self._partitions)
                self._let_it_run(2)
                self._writer.write_to(STABLE_TOPIC, generation=0, partitions=self._partitions)
            case "delete a topic and create it again":
                self._writer.write_to(FRESH_TOPIC, generation=self._generation, partitions=0)
                self._writer.flush()
                self._forget_fresh_topic()
                self._admin.delete_topics([FRESH_TOPIC])[FRESH_TOPIC].result(60)
                self._let_it_run(self._rng.uniform(0, 5))
                self._create_fresh_topic()
            case "restart the broker":
                self._broker.restart()
            case _:
                self._broker.kill()
                self._let_it_run(self._rng.uniform(0, 4))
                self._broker.start()

    def _create_fresh_topic(self) -> None:
        def created() -> bool:
            try:
                create_topic(self._admin, FRESH_TOPIC, partitions=4)
            except Exception:  # the deletion is not over yet, or the broker is away
                return False
            return True

        wait_until(created, 60, "the topic that was created again", every_s=0.5)
        self._generation += 1
        self._writer.write_to(FRESH_TOPIC, generation=self._generation, partitions=4)

    def _forget_fresh_topic(self) -> None:
        """Records that were not read before a topic is deleted do not count as lost, and its offsets start again."""
        for place in [place for place in self._writer.acknowledged if place.topic == FRESH_TOPIC]:
            del self._writer.acknowledged[place]
        for place in [place for place in self._committed if place.topic == FRESH_TOPIC]:
            del self._committed[place]

    def _start(self, client: str) -> None:
        conf: dict[str, object] = {
            "bootstrap.servers": self._broker.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        worker = Worker(f"{client}-{next(self._numbers)}", client, self._folder, conf)
        self._workers.append(worker)
        self._all.append(worker)

    def _replace_the_dead(self) -> None:
        for worker in [worker for worker in self._workers if worker.process.poll() is not None]:
            self._workers.remove(worker)
            self._start(worker.client)

    # ----------------------------------------------------------------------------------------------------- what is seen

    def _let_it_run(self, for_s: float) -> None:
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            self._compare_commits()
            outlast(min(1.0, max(0.0, until_s - time.monotonic())))

    def _compare_commits(self) -> None:
        """Committed offsets never go down. A topic's deletion is the one thing that may take them away."""
        for place, offset in self._committed_now().items():
            before = self._committed.get(place, 0)
            if offset < before:
                self._backwards.append(f"{place}: the committed offset went from {before} back to {offset}")
            self._committed[place] = offset

    def _committed_now(self) -> dict[Place, int]:
        places = [TopicPartition(STABLE_TOPIC, index) for index in range(self._partitions)]
        places += [TopicPartition(FRESH_TOPIC, index) for index in range(4)]
        try:
            found = self._administrator.committed(places)
        except (OSError, AssertionError, KeyError):  # the broker is away, or loads its groups
            return {}
        return {
            Place(place.topic, 0 if place.topic == STABLE_TOPIC else self._generation, place.partition): offset
            for place, offset in found.items()
        }

    def _living(self) -> dict[Place, int]:
        wanted = {STABLE_TOPIC: 0, FRESH_TOPIC: self._generation}
        return {
            place: end for place, end in self._writer.acknowledged.items() if wanted[place.topic] == place.generation
        }

    def _behind(self) -> dict[str, str]:
        now = self._committed_now()
        return {
            str(place): f"committed {now.get(place, 0)} of {end}"
            for place, end in sorted(self._living().items())
            if now.get(place, 0) < end
        }

    def _all_is_committed(self) -> bool:
        self._compare_commits()
        return not self._behind()

    def _say(self, began: float, text: str) -> None:
        written = sum(self._writer.acknowledged.values())
        print(f"{time.monotonic() - began:6.0f} s  {written:>9,} records  {text}", flush=True)


def main() -> int:
    """Run a soak; the exit code says whether everything was as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=None, help="of the order of faults (default: a new one)")
    parser.add_argument("--ours", type=int, default=8, help="processes with our consumer")
    parser.add_argument("--librdkafka", type=int, default=2, help="processes with librdkafka's consumer")
    parser.add_argument("--rate", type=int, default=200, help="records a second for each topic")
    parser.add_argument("--keep", action="store_true", help=f"write the result to {RESULTS.relative_to(REPOSITORY)}")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"soak of {arguments.minutes:g} minutes, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kip848-soak-") as folder, KafkaBroker(properties=PROPERTIES) as broker:
        soak = Soak(broker, Path(folder), random.Random(seed), arguments)
        verdict = soak.run()
        result = {
            "kafka": broker.version,
            "minutes": arguments.minutes,
            "seed": seed,
            "processes": {"ours": arguments.ours, "librdkafka": arguments.librdkafka},
            "faults": soak.done,
            **msgspec.to_builtins(verdict),
        }
    print(json.dumps(result, indent=1))
    if arguments.keep:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print("everything was read, and nothing was committed backwards" if not verdict.wrong else "WRONG, see above")
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
