"""How long a partition that moves has no reader: ours beside librdkafka and Java, on a real Apache Kafka.

::

    python benchmarks/handover.py                     # half an hour; Java and Maven fetch and run the broker
    python benchmarks/handover.py --quick             # joins and leaves only, once, at an interval of one second
    python benchmarks/handover.py --plot docs/images/handover.png
    python benchmarks/handover.py --members 10 --events "rolling restart" --intervals 5000

Twenty-four partitions are written to at a steady rate. Four members, each a process, read them (--members). Another
joins; or one of five leaves, hands over and leaves, or is killed; or all five are replaced one by one: the new one
first, or in the place of the old one (a StatefulSet), where a side that is static keeps its ``group.instance.id``. With
a pool of slots the new one stands by until the old one leaves.
A partition moved if another process reads it now. Its gap is the time from the last record that one process read to the
first that the other read; the longest, if it moved more than once. The gap of a partition that stayed is the longest
time between two records of it around the time of the event; it shows how long the whole machine halts at times.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the broker is started as the tests start it

from report_file import keep, machine, options, table, versions

from tests.interop.kafka_broker import KafkaBroker
from tests.interop.kafka_libs import kafka_libs

PARTITIONS = 24
RATE_PER_PARTITION = 33
SESSION_MS = 10_000
TOPIC = "t"
JAVA = "org.apache.kafka.common"
PROTOCOLS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, early off": {"heartbeat.early.enable": False},
    "ours, static": {"group.instance.id": "slot"},
    "ours, pool": {"group.instance.id.pool": "slot-{0..%d}"},
    "librdkafka consumer": {"group.protocol": "consumer"},
    "librdkafka consumer, static": {"group.protocol": "consumer", "group.instance.id": "slot"},
    "librdkafka cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
    },
    "librdkafka range": {"partition.assignment.strategy": "range", "session.timeout.ms": SESSION_MS},
    "java consumer": {"group.protocol": "consumer"},
    "java consumer, static": {"group.protocol": "consumer", "group.instance.id": "slot"},
}
EVENTS = (
    *("join", "leave", "leave, handed over", "kill", "rolling restart", "rolling restart, handed over"),
    *("restart in place", "restart in place, handed over"),
)
"""Only our consumer can hand over."""

Reads = dict[int, list[tuple[float, int, str]]]
"""Partition -> (time in s, offset, reader), in order of time."""


def read_for_ever(path: str, side: str, conf: dict[str, Any]) -> None:
    """One member: writes down what it reads, leaves on SIGTERM."""
    if side.startswith("ours"):
        from kip848_client import Consumer
    else:
        from confluent_kafka import Consumer  # type: ignore[assignment]
    consumer: Any = Consumer({key: value for key, value in conf.items() if key != "standby.file"})
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGUSR1, lambda *_: consumer.hand_over())
    consumer.subscribe([TOPIC])
    with Path(path).open("a", buffering=1, encoding="utf-8") as file:
        while not stopping.is_set() and not getattr(consumer, "handed_over", False):
            if "group.instance.id.pool" in conf and consumer.health().standing_by:
                Path(conf["standby.file"]).touch()
            messages = consumer.consume(1, 0.05)
            messages += consumer.consume(99, 0) if messages else []
            now = time.monotonic()
            lines = [f"{now} {m.partition()} {m.offset()}\n" for m in messages if m.error() is None]
            if lines:
                file.write("".join(lines))
    consumer.close()


class Member:
    """A member's process."""

    def __init__(
        self, name: str, side: str, broker: KafkaBroker, interval_ms: int, folder: Path, *, slot: int, slots: int
    ) -> None:
        self.name = name
        self.slot = slot
        self.standby = folder.parent / f"{folder.name}-{name}.standby"
        self.path = folder / name
        conf: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": folder.name,
            "client.id": name,
            "auto.offset.reset": "latest",
            **PROTOCOLS[side],
        }
        if "group.instance.id" in conf:
            conf["group.instance.id"] = f"slot-{slot}"
        if "group.instance.id.pool" in conf:
            conf["group.instance.id.pool"] %= slots - 1
            conf["standby.file"] = str(self.standby)
        if side.startswith("java"):
            conf["fetch.max.wait.ms"] = 20
            conf["key.deserializer"] = conf["value.deserializer"] = f"{JAVA}.serialization.ByteArrayDeserializer"
            properties = folder.parent / f"{folder.name}-{name}.properties"
            properties.write_text("".join(f"{key}={value}\n" for key, value in conf.items()), encoding="utf-8")
            classpath = f"{kafka_libs(broker.version)}/*:{folder.parent}"
            command = ["java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", classpath, "GroupReader"]
            self.process = subprocess.Popen([*command, self.path, properties], stderr=subprocess.DEVNULL)
            return
        conf |= {"fetch.wait.max.ms": 20, "log_level": 0}
        if not side.startswith("ours") and "group.protocol" not in conf:
            conf["heartbeat.interval.ms"] = interval_ms if interval_ms < SESSION_MS / 3 else 3_000
        task = json.dumps({"path": str(self.path), "side": side, "conf": conf})
        self.process = subprocess.Popen([sys.executable, __file__, "--task", task])

    def stop(self, *, hand_over: bool) -> None:
        """Leave in good order."""
        self.process.send_signal(signal.SIGUSR1 if hand_over else signal.SIGTERM)
        self.process.wait(60)


class Writer(threading.Thread):
    """Writes to every partition at a steady rate."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(daemon=True)
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "log_level": 0})
        self._stopping = threading.Event()

    def run(self) -> None:
        """Write until stopped."""
        while not self._stopping.wait(1 / RATE_PER_PARTITION):
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, b"x", partition=partition)
            self._producer.poll(0)

    def stop(self) -> None:
        """Stop."""
        self._stopping.set()
        self.join()


def reads_of(folder: Path) -> Reads:
    """What all members read."""
    reads: defaultdict[int, list[tuple[float, int, str]]] = defaultdict(list)
    for path in folder.iterdir():
        whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
        for line in whole.splitlines():
            at, partition, offset = line.split()
            reads[int(partition)].append((float(at), int(offset), path.name))
    return {partition: sorted(found) for partition, found in reads.items()}


def all_are_read(folder: Path, members: list[Member]) -> bool:
    """Whether the living members read all partitions now, and each of them reads some."""
    since = time.monotonic() - 1
    seen: dict[int, str] = {}
    for partition, found in reads_of(folder).items():
        if found[-1][0] > since:
            seen[partition] = found[-1][2]
    return len(seen) == PARTITIONS and set(seen.values()) == {member.name for member in members}


def play(
    side: str, event: str, broker: KafkaBroker, interval_ms: int, folder: Path, *, size: int
) -> tuple[Reads, float, float]:
    """Let *event* happen to a group at rest; returns what was read, and the window to look at."""
    numbers = itertools.count()

    def start(slot: int | None = None) -> Member:
        number = next(numbers)
        place = number if slot is None else slot
        return Member(f"m{number}", side, broker, interval_ms, folder, slot=place, slots=begin)

    begin = size + (event != "join")
    members = [start() for _ in range(begin)]
    hand_over = event.endswith("handed over")
    try:
        settle(folder, members)
        time.sleep(interval_ms / 1000 + 1)
        began = time.monotonic()
        if event == "join":
            members.append(start())
        elif event.startswith("leave"):
            members.pop(0).stop(hand_over=hand_over)
        elif event == "kill":
            member = members.pop(0)
            member.process.kill()
        elif event.startswith("restart in place"):
            for _ in range(len(members)):
                old = members.pop(0)
                old.stop(hand_over=hand_over)
                members.append(start(old.slot))
                settle(folder, members)
                time.sleep(1)
        else:
            for _ in range(len(members)):
                members.append(start())
                if "pool" in side:
                    await_standby(members[-1])
                else:
                    settle(folder, members)
                members.pop(0).stop(hand_over=hand_over)
                settle(folder, members)
                time.sleep(1)
        settle(folder, members)
        time.sleep(2 * interval_ms / 1000 + 1)
        ended = time.monotonic()
    finally:
        for member in members:
            member.process.kill()
        for member in members:
            member.process.wait()
    return reads_of(folder), began - 0.2, ended


def await_standby(member: Member) -> None:
    """Wait until a process is up and waits for a slot."""
    deadline = time.monotonic() + 90
    while not member.standby.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{member.name} does not stand by")
        time.sleep(0.1)


def settle(folder: Path, members: list[Member]) -> None:
    """Wait until all members read, and everything is read."""
    deadline = time.monotonic() + 90
    while not all_are_read(folder, members):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{folder.name} did not come to rest")
        time.sleep(0.1)


def gaps_of(reads: Reads, began: float, ended: float) -> dict[str, Any]:
    """Gaps in ms of the partitions that moved and of those that stayed, and how many records were read twice."""
    moved: list[float] = []
    stayed: list[float] = []
    twice = moves_in_all = 0
    for found in reads.values():
        inside = [read for read in found if began <= read[0] <= ended]
        pairs = list(itertools.pairwise(inside))
        moves = [pair for pair in pairs if pair[0][2] != pair[1][2]]
        moves_in_all += len(moves)
        gap_ms = max((later[0] - earlier[0]) * 1000 for earlier, later in moves or pairs)
        (moved if moves else stayed).append(gap_ms)
        twice += len(inside) - len({offset for _, offset, _ in inside})
    return {"moved": moved, "stayed": stayed, "moves": moves_in_all, "twice": twice}


def summary(gaps: list[float]) -> dict[str, float]:
    """Median, 99th percentile and largest."""
    if not gaps:
        return {}
    ordered = sorted(gaps)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"median_ms": round(statistics.median(gaps)), "p99_ms": round(p99), "largest_ms": round(ordered[-1])}


def draw(plots: dict[str, tuple[Reads, float, float]], path: str) -> None:
    """One panel for each side, one row for each partition; a gap is where nothing is drawn."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(plots), 1, figsize=(9, 2.2 * len(plots)), sharex=True)
    for axis, (side, (reads, began, ended)) in zip([axes] if len(plots) == 1 else axes, plots.items(), strict=True):
        readers = sorted({reader for found in reads.values() for _, _, reader in found})
        colours = dict(zip(readers, ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9"], strict=False))
        for partition, found in reads.items():
            for earlier, later in itertools.pairwise([read for read in found if began <= read[0] <= ended]):
                if later[0] - earlier[0] < 0.2:
                    axis.plot(
                        [earlier[0] - began, later[0] - began],
                        [partition, partition],
                        color=colours.get(later[2], "#000000"),
                        linewidth=2.5,
                        solid_capstyle="butt",
                    )
        axis.set_title(side, loc="left", fontsize=10)
        axis.set_ylabel("partition")
        axis.set_yticks([0, 8, 16, 23])
    (axes if len(plots) == 1 else axes[-1]).set_xlabel("seconds; each colour is one member, white: no reader")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--sides", nargs="+", choices=list(PROTOCOLS), default=list(PROTOCOLS))
    parser.add_argument("--events", nargs="+", choices=EVENTS, default=list(EVENTS))
    parser.add_argument("--intervals", nargs="+", type=int, default=[1_000, 5_000], metavar="MS")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--members", type=int, default=4, help="of the group that another one joins (4)")
    parser.add_argument("--plot", metavar="FILE", help="draw the joins of the last interval")
    arguments = parser.parse_args()
    if arguments.task:
        read_for_ever(**json.loads(arguments.task))
        return 0
    if arguments.quick:
        arguments.events, arguments.intervals, arguments.rounds = ["join", "leave"], [1_000], 1
    results = []
    plots: dict[str, tuple[Reads, float, float]] = {}
    rows: list[list[object]] = [
        ["interval, event", "side", "moved: median ms", "p99", "largest", "stayed: largest ms", "moves", "read twice"]
    ]
    for interval_ms in arguments.intervals:
        properties = {
            "group.consumer.heartbeat.interval.ms": str(interval_ms),
            "group.consumer.session.timeout.ms": str(SESSION_MS),
            "group.initial.rebalance.delay.ms": "0",
        }
        with KafkaBroker(properties=properties) as broker, tempfile.TemporaryDirectory() as place:
            if any(side.startswith("java") for side in arguments.sides):
                source = Path(__file__).with_name("GroupReader.java")
                subprocess.run(["javac", "-cp", f"{kafka_libs(broker.version)}/*", "-d", place, source], check=True)
            create_topic(broker)
            writer = Writer(broker.bootstrap_servers)
            writer.start()
            for event, side in itertools.product(arguments.events, arguments.sides):
                if (event.endswith("handed over") and side not in {"ours", "ours, pool"}) or (
                    side.endswith("static") and event != "restart in place"
                ):
                    continue
                if side == "ours, pool" and not event.startswith("rolling restart"):
                    continue
                found: dict[str, Any] = {"moved": [], "stayed": [], "moves": 0, "twice": 0}
                for number in range(arguments.rounds):
                    name = f"{event}-{side}-{number}".replace(" ", "-").replace(",", "")
                    folder = Path(place) / name
                    folder.mkdir()
                    reads, began, ended = play(side, event, broker, interval_ms, folder, size=arguments.members)
                    gaps = gaps_of(reads, began, ended)
                    found = {key: found[key] + gaps[key] for key in found}
                    if event == "join":
                        plots[side] = (reads, began, min(ended, began + 2 * interval_ms / 1000 + 2))
                moved, stayed = summary(found["moved"]), summary(found["stayed"])
                results.append(
                    {
                        "interval_ms": interval_ms,
                        "event": event,
                        "side": side,
                        "moved": moved,
                        "stayed": stayed,
                        "moves": found["moves"],
                        "read_twice": found["twice"],
                    }
                )
                rows.append(
                    [
                        *(f"{interval_ms} ms, {event}", side),
                        *moved.values(),
                        *(stayed.get("largest_ms", "-"), found["moves"], found["twice"]),
                    ]
                )
                print(f"  {interval_ms} ms, {event}, {side} done: {moved}", flush=True)
            writer.stop()
    if arguments.plot:
        draw(plots, arguments.plot)
    result = {
        "benchmark": "handover",
        "machine": machine(),
        "versions": {**versions("confluent-kafka"), "kafka": broker.version},
        "rounds": arguments.rounds,
        "partitions": PARTITIONS,
        "members": arguments.members,
        "results": results,
    }
    table(rows)
    keep(result, arguments)
    return 0


def create_topic(broker: KafkaBroker) -> None:
    """Create the topic."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
