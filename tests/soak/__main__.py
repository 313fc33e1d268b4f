"""``python -m tests.soak``: one group on a real Kafka, for minutes, with everything going wrong that can.

Eight processes of ours and two of librdkafka share a group. A topic grows; another one is deleted and created again;
processes are killed, stopped for longer than their session and restarted; the broker is restarted and killed. Then the
faults end, everything has to be read and committed, and the evidence is judged.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from kip848_client.common.model import NamedPartition
from tests.interop.conftest import create_topic
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.real.administrator import Administrator
from tests.interop.real.fleet import Fleet, Stream
from tests.interop.real.ledger import Findings, judge
from tests.support.waiting import outlast, wait_until

REPOSITORY: Final = Path(__file__).parents[2]
RESULTS: Final = REPOSITORY / "benchmarks" / "results" / "soak.json"
GROUP: Final = "soak"
STABLE_TOPIC: Final = "orders"
"""It grows, and is never deleted. All members read it."""
FRESH_TOPIC: Final = "events"
"""It is deleted and created again. Only our consumers read it: librdkafka's do not go on after that."""
FRESH_PARTITIONS: Final = 4
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


class Soak:
    """The group, its broker, and what is done to them."""

    def __init__(self, broker: KafkaBroker, fleet: Fleet, rng: random.Random, arguments: argparse.Namespace) -> None:
        self._broker: Final = broker
        self._fleet: Final = fleet
        self._rng: Final = rng
        self._arguments: Final = arguments
        self._life = 0
        self._partitions = 12
        self._admin: Final = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        self._administrator: Final = Administrator(broker.bootstrap_servers, GROUP)
        self._streams: Final[dict[str, Stream]] = {}
        self._committed: Final[dict[NamedPartition, int]] = {}
        self._backwards: Final[list[str]] = []
        self.done: Final = dict.fromkeys(FAULTS, 0)

    @property
    def written(self) -> dict[NamedPartition, int]:
        """How many records each partition has, of topics as they are now."""
        return {place: count for stream in self._streams.values() for place, count in stream.written.items()}

    def run(self) -> Findings:
        """Play it, and judge it."""
        create_topic(self._admin, STABLE_TOPIC, partitions=self._partitions)
        try:
            self._write_to(STABLE_TOPIC, self._partitions)
            self._create_fresh_topic()
            for client, count in (("ours", self._arguments.ours), ("librdkafka", self._arguments.librdkafka)):
                for _ in range(count):
                    self._start(client)
            self._do_harm()
        finally:
            for stream in self._streams.values():
                stream.stop()
        try:
            wait_until(self._all_is_committed, HEAL_S, "the last commits", every_s=0.5)
        except AssertionError as error:
            self._backwards.append(f"{error}; behind: {self._behind()}")
        for worker in list(self._fleet.running):
            self._fleet.stop(worker)
        findings = judge(self._fleet.ledger(), written=self.written, zombies=True)
        findings.wrong += self._backwards
        return findings

    def _do_harm(self) -> None:
        began = time.monotonic()
        kinds, weights = list(FAULTS), list(FAULTS.values())
        while time.monotonic() < began + self._arguments.minutes * 60:
            self._let_it_run(self._rng.uniform(2, 12))
            fault = self._rng.choices(kinds, weights)[0]
            self._say(began, fault)
            self._harm(fault)
            self.done[fault] += 1
        self._say(began, "the faults are over; everything has to be read and committed")

    # --- what is done

    def _harm(self, fault: str) -> None:
        match fault:
            case "kill a process":
                worker = self._rng.choice(self._fleet.running)
                self._fleet.kill(worker)
                self._start(worker.client)
            case "stop a process for longer than its session":
                process = self._rng.choice(self._fleet.running).process
                process.send_signal(signal.SIGSTOP)
                self._let_it_run(SESSION_S + self._rng.uniform(1, 6))
                process.send_signal(signal.SIGCONT)
            case "restart a process":
                worker = self._rng.choice(self._fleet.running)
                self._fleet.stop(worker)
                self._start(worker.client)
            case "grow the topic":
                self._partitions += 1
                self._administrator.add_partitions(STABLE_TOPIC, self._partitions)
                self._let_it_run(2)
                self._streams[STABLE_TOPIC].grow(self._partitions)
            case "delete a topic and create it again":
                # Records that were not read by then do not count as lost, and offsets start again.
                self._streams.pop(FRESH_TOPIC).stop()
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
                create_topic(self._admin, FRESH_TOPIC, partitions=FRESH_PARTITIONS)
            except Exception:  # the deletion is not over yet, or the broker is away
                return False
            return True

        wait_until(created, 60, "the topic that was created again", every_s=0.5)
        self._life += 1
        self._write_to(FRESH_TOPIC, FRESH_PARTITIONS, life=str(self._life))

    def _write_to(self, topic: str, partitions: int, *, life: str | None = None) -> None:
        servers, rate = self._broker.bootstrap_servers, self._arguments.rate
        stream = Stream(servers, topic, partitions=partitions, records_per_second=rate, life=life)
        self._streams[topic] = stream
        stream.start()

    def _start(self, client: str) -> None:
        self._fleet.start(client, topics=STABLE_TOPIC if client == "librdkafka" else None)

    # --- what is seen

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

    def _committed_now(self) -> dict[NamedPartition, int]:
        real = {NamedPartition(place.topic.partition("#")[0], place.partition): place for place in self.written}
        try:
            found = self._administrator.committed(real)
        except (OSError, AssertionError, KeyError):  # the broker is away, or loads its groups
            return {}
        return {real[place]: offset for place, offset in found.items()}

    def _behind(self) -> dict[str, str]:
        now = self._committed_now()
        return {
            str(place): f"committed {now.get(place, 0)} of {end}"
            for place, end in sorted(self.written.items())
            if now.get(place, 0) < end
        }

    def _all_is_committed(self) -> bool:
        self._compare_commits()
        return not self._behind()

    def _say(self, began: float, text: str) -> None:
        written = sum(self.written.values())
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
        conf = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        with Fleet(Path(folder), f"{STABLE_TOPIC},{FRESH_TOPIC}", conf) as fleet:
            soak = Soak(broker, fleet, random.Random(seed), arguments)
            findings = soak.run()
            ledger = fleet.ledger()
        result = {
            "kafka": broker.version,
            "minutes": arguments.minutes,
            "seed": seed,
            "processes": {"ours": arguments.ours, "librdkafka": arguments.librdkafka},
            "faults": soak.done,
            "wrong": findings.wrong,
            "written": sum(soak.written.values()),
            "read": ledger.count(),
            "repeated": findings.repeated,
            "errors": Counter(text.split(": ")[1] for text in ledger.errors()),
        }
    print(json.dumps(result, indent=1))
    if arguments.keep:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print("everything was read, and nothing was committed backwards" if not findings.wrong else "WRONG, see above")
    return 1 if findings.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
