"""How long a partition that moves has no reader: ours beside librdkafka and Java, on a real Apache Kafka.

::

    python benchmarks/handover.py                     # an hour; Java and Maven fetch and run the broker
    python benchmarks/handover.py --events kill "restart in place"
    python benchmarks/handover.py --quick             # two joins and leaves at an interval of one second
    python benchmarks/handover.py --plot docs/images/handover.png
    python benchmarks/handover.py --members 9 --events "rolling restart" "rolling restart, handed over"

Twenty-four partitions are written to at a steady rate. Four members, each a process, read them (--members). In every
round another one joins; then one of the five leaves, hands over and leaves, or is killed. All of it happens at random
moments (--seed), and before each round the members' heartbeats are set to random phases, as in groups that live long.
librdkafka's classic members begin in step, since a new one sends its first heartbeat when the rebalance ends; their
timers part within minutes. Each group lives for at most five rounds, and the sides take turns.
Or all five are replaced one by one: the new one first, or in the place of the old one (a StatefulSet), where a side
that is static keeps its ``group.instance.id``. With a pool of slots the new one stands by until the old one leaves.
Or all but two leave at once.
A partition moved if another process reads it now. Its gap is the time from the last record that one process read to the
first that the other read; the longest, if it moved more than once. The gap of a partition that stayed is the longest
time between two records of it around the time of the event; it shows how long the whole machine halts at times.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).parents[1]))  # the broker is started as the tests start it

from report_file import keep, machine, options, table, versions

from tests.interop.kafka_broker import KafkaBroker
from tests.interop.kafka_libs import kafka_libs

PARTITIONS = 24
RATE_PER_PARTITION = 33
SESSION_MS = 20_000
GROUP_ROUNDS = 5
"""Of one group; then another side has its turn."""
TOPIC = "t"
JAVA = "org.apache.kafka.common"
PROTOCOLS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, early off": {"heartbeat.early.enable": False},
    "ours, static": {"group.instance.id": "slot"},
    "ours, pool": {"group.instance.id.pool": "slot-{0..%d}"},
    "ours, pool, process()": {"group.instance.id.pool": "slot-{0..%d}"},
    "ours, pool, AsyncConsumer": {"group.instance.id.pool": "slot-{0..%d}"},
    "ours, process()": {},
    "ours, AsyncConsumer": {},
    "librdkafka consumer": {"group.protocol": "consumer"},
    "librdkafka consumer, static": {"group.protocol": "consumer", "group.instance.id": "slot"},
    "librdkafka cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
    },
    "librdkafka range": {"partition.assignment.strategy": "range", "session.timeout.ms": SESSION_MS},
    "java consumer": {"group.protocol": "consumer"},
    "java cooperative": {
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "session.timeout.ms": SESSION_MS,
    },
    "java range": {
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
        "session.timeout.ms": SESSION_MS,
    },
    "java consumer, static": {"group.protocol": "consumer", "group.instance.id": "slot"},
}
LEAVES = ("leave", "leave, handed over", "kill")
EVENTS = (
    *LEAVES,
    *("rolling restart", "rolling restart, handed over", "restart in place", "restart in place, handed over"),
    *("scale-down", "scale-down, handed over"),
)
"""Only our consumer can hand over. A join comes before each leave."""
SIDES = (
    *("ours", "ours, static", "ours, pool", "librdkafka consumer", "librdkafka consumer, static"),
    *("librdkafka cooperative", "librdkafka range", "java consumer", "java consumer, static"),
)

Reads = dict[int, list[tuple[float, int, str]]]
"""Partition -> (time in s, offset, reader), in order of time."""


def read_for_ever(path: str, side: str, conf: dict[str, Any]) -> None:
    """One member: writes down what it reads, leaves on SIGTERM."""
    standby = conf.pop("standby.file", None)
    with Path(path).open("a", buffering=1, encoding="utf-8") as file:
        if side.endswith("process()"):
            process_for_ever(file, conf, standby)
            return
        if side.endswith("AsyncConsumer"):
            asyncio.run(read_in_a_task(file, conf, standby))
            return
        if side.startswith("ours"):
            from kip848_client import Consumer
        else:
            from confluent_kafka import Consumer  # type: ignore[assignment]
        consumer: Any = Consumer(conf)
        stopping = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
        signal.signal(signal.SIGUSR1, lambda *_: consumer.hand_over())
        consumer.subscribe([TOPIC])
        while not stopping.is_set() and not getattr(consumer, "handed_over", False):
            if standby is not None and consumer.health().standing_by:
                Path(standby).touch()
            messages = consumer.consume(1, 0.05)
            messages += consumer.consume(99, 0) if messages else []
            now = time.monotonic()
            lines = [f"{now} {m.partition()} {m.offset()}\n" for m in messages if m.error() is None]
            if lines:
                file.write("".join(lines))
        consumer.close()


def process_for_ever(file: TextIO, conf: dict[str, Any], standby: str | None) -> None:
    """The same with ``process()``; it only hands over."""
    from kip848_client import Consumer

    with Consumer(conf) as consumer:
        signal.signal(signal.SIGUSR1, lambda *_: consumer.hand_over())
        consumer.subscribe([TOPIC])
        if standby is not None:
            threading.Thread(target=tell_standby, args=(consumer, standby), daemon=True).start()
        consumer.process(lambda m: file.write(f"{time.monotonic()} {m.partition()} {m.offset()}\n"))


async def read_in_a_task(file: TextIO, conf: dict[str, Any], standby: str | None) -> None:
    """The same with `AsyncConsumer`; it only hands over."""
    from kip848_client import AsyncConsumer

    async with AsyncConsumer(conf) as consumer:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, consumer.hand_over)
        await consumer.subscribe([TOPIC])
        if standby is not None:
            threading.Thread(target=tell_standby, args=(consumer, standby), daemon=True).start()
        async for message in consumer:
            file.write(f"{time.monotonic()} {message.partition()} {message.offset()}\n")


def tell_standby(consumer: Any, standby: str) -> None:
    """Tell the bench that this process is up and waits for a slot."""
    while not consumer.health().standing_by:
        time.sleep(0.05)
    Path(standby).touch()


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
            if "group.protocol" not in conf:
                conf["heartbeat.interval.ms"] = interval_ms if interval_ms < SESSION_MS / 3 else 3_000
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

    def tell(self, *, hand_over: bool) -> None:
        """Have it leave in good order."""
        self.process.send_signal(signal.SIGUSR1 if hand_over else signal.SIGTERM)

    def stop(self, *, hand_over: bool) -> None:
        """Leave in good order."""
        self.tell(hand_over=hand_over)
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


class RestlessError(Exception):
    """A group did not come to rest, on a machine that is far too busy."""


class Observer:
    """What the members of a group read, by the files that they write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reads: defaultdict[int, list[tuple[float, int, str]]] = defaultdict(list)
        self._seen: dict[Path, int] = {}

    def reads(self) -> Reads:
        """All of it, in order of time."""
        for path in self.folder.iterdir():
            with path.open("rb") as file:
                file.seek(self._seen.get(path, 0))
                whole, _, _ = file.read().rpartition(b"\n")
            if not whole:
                continue
            self._seen[path] = self._seen.get(path, 0) + len(whole) + 1
            for line in whole.decode().splitlines():
                at, partition, offset = line.split()
                self._reads[int(partition)].append((float(at), int(offset), path.name))
        for found in self._reads.values():
            found.sort()
        return self._reads

    def all_are_read(self, members: list[Member]) -> bool:
        """Whether the living members read all partitions now, and each of them its share."""
        since = time.monotonic() - 1
        latest = [found[-1] for found in self.reads().values()]
        shares = Counter(reader for at, _, reader in latest if at > since)
        fair = PARTITIONS // len(members)
        return shares.total() == PARTITIONS and all(shares[member.name] >= fair for member in members)

    def settle(self, members: list[Member]) -> None:
        """Wait until all members read, and everything is read."""
        deadline = time.monotonic() + 90
        while not self.all_are_read(members):
            if time.monotonic() > deadline:
                raise RestlessError(f"{self.folder.name} did not come to rest")
            time.sleep(0.1)


Start = Callable[..., Member]


def members_of(side: str, broker: KafkaBroker, interval_ms: int, folder: Path, *, slots: int) -> Start:
    """A function that starts the next member of a group."""
    numbers = itertools.count()

    def start(slot: int | None = None) -> Member:
        number = next(numbers)
        place = number if slot is None else slot
        return Member(f"m{number}", side, broker, interval_ms, folder, slot=place, slots=slots)

    return start


def come_and_go(
    start: Start, leave: str, observer: Observer, interval_ms: int, chance: random.Random, *, size: int, rounds: int
) -> Iterator[tuple[str, float, float]]:
    """A member joins and one leaves, *rounds* times, at random moments; yields each event and the window to look at."""
    interval_s = interval_ms / 1000
    members: list[Member] = []
    try:
        for _ in range(size):
            members.append(start())
            time.sleep(chance.uniform(0, interval_s))
        for event in ("join", leave) * rounds:
            if event == "join":
                observer.settle(members)
                spread(members, interval_s, chance)
                observer.settle(members)
            time.sleep(1 + chance.uniform(0, interval_s))
            began = time.monotonic()
            if event == "join":
                members.append(start())
            else:
                member = members.pop(chance.randrange(len(members)))
                if event == "kill":
                    member.process.kill()
                else:
                    member.stop(hand_over=event.endswith("handed over"))
            observer.settle(members)
            time.sleep(1)
            yield event, began - 0.2, time.monotonic()
    finally:
        end(members)


def spread(members: list[Member], interval_s: float, chance: random.Random) -> None:
    """Freeze the processes until all heartbeats are due, and let each go on at a random moment of an interval."""
    now = time.monotonic()
    for member in members:
        member.process.send_signal(signal.SIGSTOP)
    for at, member in sorted(
        ((now + chance.uniform(1, 2) * interval_s, member) for member in members), key=itemgetter(0)
    ):
        time.sleep(max(0, at - time.monotonic()))
        member.process.send_signal(signal.SIGCONT)


def replace_all(
    start: Start, event: str, observer: Observer, *, size: int, pool: bool
) -> Iterator[tuple[str, float, float]]:
    """Replace the members of a group one by one, or end all but two; yields the event and the window to look at."""
    members = [start() for _ in range(size)]
    hand_over = event.endswith("handed over")
    try:
        observer.settle(members)
        time.sleep(6)
        began = time.monotonic()
        if event.startswith("scale-down"):
            leavers, members = members[:-2], members[-2:]
            for leaver in leavers:
                leaver.tell(hand_over=hand_over)
            for leaver in leavers:
                leaver.process.wait(60)
            observer.settle(members)
        for _ in range(0 if event.startswith("scale-down") else size):
            if event.startswith("restart in place"):
                old = members.pop(0)
                old.stop(hand_over=hand_over)
                members.append(start(old.slot))
            else:
                members.append(start())
                if pool:
                    await_standby(members[-1])
                else:
                    observer.settle(members)
                members.pop(0).stop(hand_over=hand_over)
            observer.settle(members)
            time.sleep(1)
        time.sleep(5)
        yield event, began - 0.2, time.monotonic()
    finally:
        end(members)


def end(members: list[Member]) -> None:
    """End their processes."""
    for member in members:
        member.process.kill()
    for member in members:
        member.process.wait()


def await_standby(member: Member) -> None:
    """Wait until a process is up and waits for a slot."""
    deadline = time.monotonic() + 90
    while not member.standby.exists():
        if time.monotonic() > deadline:
            raise RestlessError(f"{member.name} does not stand by")
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
    """How many, median, 90th percentile and largest."""
    if not gaps:
        return {}
    ordered = sorted(gaps)
    p90 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]
    largest = round(ordered[-1])
    return {"n": len(gaps), "median_ms": round(statistics.median(gaps)), "p90_ms": round(p90), "largest_ms": largest}


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
    parser.add_argument("--sides", nargs="+", choices=list(PROTOCOLS), default=list(SIDES))
    parser.add_argument("--events", nargs="+", choices=EVENTS, default=[*LEAVES[:2], *EVENTS[3:5]])
    parser.add_argument("--intervals", nargs="+", type=int, default=[5_000], metavar="MS")
    parser.add_argument(
        "--rounds", type=int, default=5, help="joins and leaves of each side (5); a fifth as many restarts"
    )
    parser.add_argument("--members", type=int, default=4, help="of the group that another one joins (4)")
    parser.add_argument("--seed", type=int, default=848, help="of the moments of joins and leaves")
    parser.add_argument(
        "--assignment-interval-ms",
        type=int,
        default=0,
        metavar="MS",
        help="least time between two targets, group.consumer.assignment.interval.ms (0; Kafka's default is 1000)",
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the last join of each side")
    arguments = parser.parse_args()
    if arguments.task:
        read_for_ever(**json.loads(arguments.task))
        return 0
    if arguments.quick:
        arguments.events, arguments.intervals, arguments.rounds = ["leave"], [1_000], 2
    found: defaultdict[tuple[int, str, str], dict[str, Any]] = defaultdict(
        lambda: {"moved": [], "stayed": [], "moves": 0, "twice": 0, "loads": []}
    )
    plots: dict[str, tuple[Reads, float, float]] = {}
    for interval_ms in arguments.intervals:
        properties = {
            "group.consumer.heartbeat.interval.ms": str(interval_ms),
            "group.consumer.session.timeout.ms": str(SESSION_MS),
            "group.consumer.assignment.interval.ms": str(arguments.assignment_interval_ms),
            "group.initial.rebalance.delay.ms": "0",
        }
        with KafkaBroker(properties=properties) as broker, tempfile.TemporaryDirectory() as place:
            if any(side.startswith("java") for side in arguments.sides):
                source = Path(__file__).with_name("GroupReader.java")
                subprocess.run(["javac", "-cp", f"{kafka_libs(broker.version)}/*", "-d", place, source], check=True)
            create_topic(broker)
            writer = Writer(broker.bootstrap_servers)
            writer.start()
            for event, number, side in turns(arguments):
                name = f"{event}-{side}-{number}".translate(str.maketrans(" ", "-", ",()"))
                observer = Observer(Path(place) / name)
                observer.folder.mkdir()
                rounds = min(GROUP_ROUNDS, arguments.rounds - number)
                start = members_of(side, broker, interval_ms, observer.folder, slots=arguments.members + 1)
                windows: Iterator[tuple[str, float, float]]
                if event in LEAVES:
                    chance = random.Random(f"{arguments.seed} {event} {number}")
                    windows = come_and_go(
                        start, event, observer, interval_ms, chance, size=arguments.members, rounds=rounds
                    )
                else:
                    size = arguments.members + 1
                    windows = replace_all(start, event, observer, size=size, pool="pool" in side)
                for what, began, ended in at_rest(windows):
                    reads = observer.reads()
                    gaps = gaps_of(reads, began, ended)
                    case = found[interval_ms, what, side]
                    for key, value in gaps.items():
                        case[key] += value
                    case["loads"].append(round(os.getloadavg()[0], 1))
                    if what == "join":
                        plots[side] = (reads, began, min(ended, began + 2 * interval_ms / 1000 + 2))
                    told = f"{summary(gaps['moved'])}, {gaps['moves']} moves, {gaps['twice']} read twice"
                    print(f"  {interval_ms} ms, {what}, {side}: {told}", flush=True)
            writer.stop()
    if arguments.plot:
        draw(plots, arguments.plot)
    rows: list[list[object]] = [
        [
            "interval, event",
            "side",
            "moved: n",
            "median ms",
            "90 %",
            "largest",
            "stayed: 90 %",
            "largest",
            "moves",
            "twice",
        ]
    ]
    results = []
    for (interval_ms, event, side), case in sorted(found.items()):
        moved, stayed = summary(case["moved"]), summary(case["stayed"])
        loads = [min(case["loads"]), max(case["loads"])]
        counts = {"moves": case["moves"], "read_twice": case["twice"], "loads": loads}
        results.append(
            {"interval_ms": interval_ms, "event": event, "side": side, "moved": moved, "stayed": stayed, **counts}
        )
        rows.append(
            [
                *(f"{interval_ms} ms, {event}", side),
                *(moved.get(key, "-") for key in ("n", "median_ms", "p90_ms", "largest_ms")),
                *(stayed.get(key, "-") for key in ("p90_ms", "largest_ms")),
                *(case["moves"], case["twice"]),
            ]
        )
    result = {
        "benchmark": "handover",
        "machine": machine(),
        "versions": {**versions("confluent-kafka"), "kafka": broker.version},
        "rounds": arguments.rounds,
        "partitions": PARTITIONS,
        "members": arguments.members,
        "assignment_interval_ms": arguments.assignment_interval_ms,
        "seed": arguments.seed,
        "results": results,
    }
    table(rows)
    keep(result, arguments)
    return 0


def at_rest(windows: Iterator[tuple[str, float, float]]) -> Iterator[tuple[str, float, float]]:
    """All of them, until a group does not come to rest: the others have their turns all the same."""
    try:
        yield from windows
    except RestlessError as error:
        print(f"  {error}", flush=True)


def turns(arguments: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    """Event, number of the first round and side of each group, so that the sides take turns."""
    for event in arguments.events:
        for number in range(0, arguments.rounds, GROUP_ROUNDS):
            for side in arguments.sides:
                if event.endswith("handed over"):
                    fits = side.startswith("ours") and ("leave" not in event or side in {"ours", "ours, pool"})
                else:
                    fits = not side.endswith(("process()", "AsyncConsumer"))
                if fits and (not side.endswith("static") or event == "restart in place"):
                    yield event, number, side


def create_topic(broker: KafkaBroker) -> None:
    """Create the topic."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
