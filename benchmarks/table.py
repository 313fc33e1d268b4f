"""What a reader of docs/performance.md decides by, each beside its peer in the same run, as one table of Markdown.

::

    python -m benchmarks table                          # about ten minutes on a quiet machine
    python benchmarks/table.py --only heartbeats close  # these sections
    python benchmarks/table.py --quick                  # one short round of each: to see that it works

Each side is a process of its own, and the sides take turns; each figure is a median. Peers that need Go (kfake) or Java
and Maven (Apache Kafka and its assignors) are left out where these are not there. How long partitions that move have no
reader: `handover.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from broker_process import BrokerProcess, broker_process, cpu_clock
from report_file import in_a_process, keep, machine, median, options, versions

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # Kafka is started as in the tests

Row = tuple[str, str, float, str, float]
"""What, unit, ours, who the peer is, and its figure; a peer that is not there has a NaN."""
NAN = float("nan")
HEARTBEAT_SHAPES = ((1, 1), (10, 1), (100, 1), (1, 16))


def side(call: str, /, **arguments: object) -> dict[str, float]:
    """What one side of a row says: `table_side.py`."""
    command = [sys.executable, str(HERE / "table_side.py"), call, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def in_turns(rounds: int, sides: Mapping[str, Callable[[], dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Medians of all that each side says, who begins alternating."""
    said: dict[str, defaultdict[str, list[float]]] = {name: defaultdict(list) for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 == 0 else -1]:
            for key, value in sides[name]().items():
                said[name][key].append(value)
    return {name: {key: median(values, 4) for key, values in each.items()} for name, each in said.items()}


def fill(servers: str, topic: str, records: int, size: int = 100) -> None:
    """Write *records* to four partitions."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": records + 1, "log_level": 0}
    )
    value = bytes(size)
    for number in range(records):
        producer.produce(topic, value, partition=number % 4)
    if producer.flush(60):
        raise RuntimeError("not all records were written")


@contextmanager
def kafka_or_embedded() -> Iterator[tuple[str, str]]:
    """Addresses and name of a broker with the topic ``t`` of four partitions: Kafka if Java is there."""
    from tests.interop.kafka_libs import KafkaUnavailableError, kafka_libs

    try:
        kafka_libs()
    except KafkaUnavailableError:
        with broker_process({"t": 4}, heartbeat_interval_ms=1_000) as broker:
            yield broker.bootstrap_servers, "embedded broker, as there is no Java"
        return
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from tests.interop.kafka_broker import KafkaBroker

    properties = {"group.consumer.heartbeat.interval.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
    with KafkaBroker(properties=properties) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(30)
        yield kafka.bootstrap_servers, f"Kafka {kafka.version}"


def start(quick: bool) -> Iterator[Row]:
    """First record, and memory."""
    with kafka_or_embedded() as (servers, where):
        fill(servers, "t", 2_000)
        sides = {
            name: partial(side, "first", side=name, servers=servers, topic="t", records=2_000)
            for name in ("ours", "librdkafka", "aiokafka")
        }
        in_turns(1, sides)  # the broker is cold
        found = in_turns(1 if quick else 9, sides)
    bare_mb = median([side("bare")["mb"] for _ in range(3)])
    for peer in ("librdkafka", "aiokafka"):
        for what, unit, less in (
            (f"from `Consumer()` to the first record, {where}", "ms", 0.0),
            ("the same, CPU", "cpu_ms", 0.0),
            ("memory of a consumer that has read 2,000 records, over bare Python", "mb", bare_mb),
        ):
            yield (
                what,
                unit.replace("cpu_", "").replace("mb", "MB"),
                found["ours"][unit] - less,
                peer,
                found[peer][unit] - less,
            )


def imports(quick: bool) -> Iterator[Row]:
    """CPU of the imports, over an interpreter that imports nothing."""
    from imports import run_once

    statements = {
        "nothing": "pass",
        "ours": "import kip848_client; kip848_client.Consumer",
        "librdkafka": "import confluent_kafka",
        "aiokafka": "import aiokafka",
    }
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder

        def once(statement: str) -> dict[str, float]:
            return {"ms": run_once(statement, environment)[0]}

        sides = {name: partial(once, statement) for name, statement in statements.items()}
        in_turns(1, sides)  # compiles
        found = in_turns(3 if quick else 21, sides)
    nothing = found["nothing"]["ms"]
    for peer in ("librdkafka", "aiokafka"):
        yield "import of `Consumer`, CPU", "ms", found["ours"]["ms"] - nothing, peer, found[peer]["ms"] - nothing


def idle(quick: bool) -> Iterator[Row]:
    """A member that has nothing to read."""
    with broker_process({"idle-4": 4}, heartbeat_interval_ms=1_000) as broker:

        def once(name: str) -> dict[str, float]:
            task = {"side": name, "bootstrap_servers": broker.bootstrap_servers, "partitions": 4}
            found = in_a_process(str(HERE / "idle.py"), {**task, "seconds": 2.0 if quick else 15.0})
            return {"ms": found["cpu_ms"], "wake_ups": found["wake_ups"]}

        found = in_turns(1 if quick else 2, {name: partial(once, name) for name in ("poll", "librdkafka")})
    ours, theirs = found["poll"], found["librdkafka"]
    yield "idle member, heartbeats 1 s, CPU a second", "ms", ours["ms"], "librdkafka", theirs["ms"]
    yield "the same, wake-ups a second", "", ours["wake_ups"], "librdkafka", theirs["wake_ups"]


def outage(quick: bool) -> Iterator[Row]:
    """A consumer whose only broker is away: nothing listens on the port."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        found = in_turns(
            1 if quick else 2,
            {
                name: partial(side, "away", side=name, servers=servers, seconds=2 if quick else 8)
                for name in ("ours", "librdkafka")
            },
        )
    yield (
        "while the only broker is away, CPU a second",
        "ms",
        found["ours"]["cpu_ms"],
        "librdkafka",
        found["librdkafka"]["cpu_ms"],
    )


def reading(quick: bool) -> Iterator[Row]:
    """Records a second, and what a record costs the thread that reads it."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "consume.json"
        command = [sys.executable, str(HERE / "consume.py"), "--calls", "consume", "batches", "--pairs", "3"]
        command += ["--json-file", str(kept), *(["--quick"] if quick else [])]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for each in json.loads(kept.read_text(encoding="utf-8"))["comparisons"]:
            ours, theirs = (rate / 1e6 for rate in each["records_per_s"].values())
            yield f"`{each['call']}(500)`, records of 100 B", "million/s", ours, "raw `consume(500)`", theirs
    records = 100_000 if quick else 200_000
    with broker_process({"t": 4}) as broker:
        fill(broker.bootstrap_servers, "t", records)
        common = {"servers": broker.bootstrap_servers, "topic": "t", "records": records}
        found = in_turns(
            1 if quick else 5,
            {
                "consume": partial(side, "fetched", side="ours", call="consume", **common),
                "raw": partial(side, "fetched", side="librdkafka", call="consume", **common),
                "batches": partial(side, "fetched", side="ours", call="batches", **common),
            },
        )
    for call in ("consume", "batches"):
        what = f"`{call}(500)`, CPU of the reading thread a record that was fetched before"
        yield what, "ns", found[call]["ns"], "raw `consume(500)`", found["raw"]["ns"]


def assignors(quick: bool) -> Iterator[Row]:
    """One of 10,000 members joins."""
    from assignors import measure

    from tests.interop.kafka_libs import KafkaUnavailableError, java_command, kafka_libs

    cases = (
        ("`range`, 50,000 partitions, 10 topics", "range", 5, 10, 1),
        ("`range`, 500,000 partitions, 100 topics", "range", 50, 100, 1),
        ("`uniform`, 5 subscriptions, 50,000 partitions, 10 topics", "uniform", 5, 10, 5),
        ("`uniform`, 5 subscriptions, 50,000 partitions, 100 topics", "uniform", 5, 100, 5),
    )
    for what, name, per_member, topics, buckets in cases[: 1 if quick else None]:
        java = NAN
        try:
            command = [java_command(), "-cp", f"{kafka_libs()}/*", str(HERE / "AssignorTimes.java")]
            command += [name, *map(str, (per_member, topics, buckets))]
            java = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        except KafkaUnavailableError:
            pass
        cells = measure(name, members=10_000, per_member=per_member, topics=topics, heterogeneous=buckets > 1)
        yield f"{what}: one of 10,000 members joins, CPU", "ms", cells[1]["median_ms"], "Java", java


@cache
def kfake_folder() -> tempfile.TemporaryDirectory[str] | None:
    """Where franz-go's fake cluster is compiled to; none without Go."""
    if shutil.which("go") is None:
        return None
    folder = tempfile.TemporaryDirectory(prefix="kip848-kfake-")
    subprocess.run(["go", "build", "-o", folder.name, "."], cwd=HERE / "kfake", check=True)
    return folder


@contextmanager
def kfake_process(topics: dict[str, int]) -> Iterator[BrokerProcess]:
    """kfake with one topic."""
    ((topic, partitions),) = topics.items()
    folder = kfake_folder()
    assert folder is not None
    command = [f"{folder.name}/kfake_cluster", topic, str(partitions)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield BrokerProcess(process.stdout.readline().strip(), process.pid, process)
        process.stdin.close()


def brokers() -> dict[str, Callable[[dict[str, int]], AbstractContextManager[BrokerProcess]]]:
    """Ours, and kfake if Go is there."""
    return {"ours": broker_process} | ({} if kfake_folder() is None else {"kfake": kfake_process})


def heartbeats(quick: bool) -> Iterator[Row]:
    """Steady heartbeats, of members of ten groups."""
    for connections, pipelined in HEARTBEAT_SHAPES[: 1 if quick else None]:

        def once(serve: Any, connections: int = connections, pipelined: int = pipelined) -> dict[str, float]:
            with serve({"t": 30}) as broker:
                task = {"call": "heartbeats", "port": broker.port, "pid": broker.pid, "seconds": 2.0}
                task |= {"connections": connections, "pipelined": pipelined}
                found = in_a_process(str(HERE / "coordinator.py"), task)
            return {"rate": found["heartbeats"] / found["cpu_s"]}

        found = in_turns(1 if quick else 3, {name: partial(once, serve) for name, serve in brokers().items()})
        many = f"{connections} connection{'s' if connections > 1 else ''}"
        what = f"embedded broker: heartbeats a CPU second, {many}" + (f", {pipelined} in flight" * (pipelined > 1))
        yield what, "", found["ours"]["rate"], "kfake", found.get("kfake", {}).get("rate", NAN)


def records(quick: bool) -> Iterator[Row]:
    """Written and read by librdkafka, by the broker's CPU."""
    for size, count in ((100, 400_000), (1_024, 100_000)):

        def once(serve: Any, size: int = size, count: int = count) -> dict[str, float]:
            with serve({"t": 4}) as broker:
                clock = cpu_clock(broker.pid)
                began = time.clock_gettime(clock)
                fill(broker.bootstrap_servers, "t", count, size)
                written = time.clock_gettime(clock)
                side("read", servers=broker.bootstrap_servers, topic="t", records=count)
                read = time.clock_gettime(clock)
            return {"written": count / (written - began), "read": count / (read - written)}

        if quick:
            count = 50_000
        found = in_turns(1 if quick else 3, {name: partial(once, serve) for name, serve in brokers().items()})
        for key in ("written", "read"):
            what = f"embedded broker: records of {size:,} B {key}, a CPU second"
            yield what, "", found["ours"][key], "kfake", found.get("kfake", {}).get(key, NAN)


def close(quick: bool) -> Iterator[Row]:
    """A consumer of many partitions."""
    partitions = 500 if quick else 10_000
    with broker_process({"t": partitions}, heartbeat_interval_ms=1_000) as broker:
        common = {"servers": broker.bootstrap_servers, "topic": "t", "partitions": partitions}
        found = in_turns(
            1 if quick else 3,
            {name: partial(side, "closing", side=name, **common) for name in ("ours", "librdkafka")},
        )
    yield f"`close()` of {partitions:,} partitions", "s", found["ours"]["s"], "librdkafka", found["librdkafka"]["s"]


def transaction(quick: bool) -> Iterator[Row]:
    """Ten records in a transaction, against ten without."""
    from broker import compare_transactions, embedded, kafka

    from tests.interop.kafka_broker import KafkaBroker
    from tests.interop.kafka_libs import KafkaUnavailableError, kafka_libs

    rounds = 50 if quick else 300
    ours = compare_transactions({"ours": embedded}, rounds)["ours"]
    theirs: dict[str, Any] = {}
    try:
        kafka_libs()
    except KafkaUnavailableError:
        pass
    else:
        with KafkaBroker() as broker:
            theirs = compare_transactions({"Kafka": kafka(broker)}, rounds)["Kafka"]
    for key, what in (("one_request", "one request of ten records"), ("ten_requests", "ten requests")):
        found = f"ratio_{key}"
        yield (
            f"embedded broker: {what} in a transaction, times as long",
            "",
            ours[found],
            "Kafka",
            theirs.get(found, NAN),
        )


SECTIONS: tuple[Callable[[bool], Iterable[Row]], ...] = (
    start,
    imports,
    idle,
    outage,
    reading,
    assignors,
    heartbeats,
    records,
    close,
    transaction,
)


def shown(value: float, unit: str = "") -> str:
    """Three digits or so."""
    if value != value:
        return "not there"
    return (f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + f" {unit}".rstrip()


def main() -> int:
    """Measure and print; the status says whether it could be done, not how it came out."""
    parser = options(__doc__)
    names = [section.__name__ for section in SECTIONS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SECTION", help=", ".join(names))
    arguments: argparse.Namespace = parser.parse_args()
    result: dict[str, Any] = {
        "benchmark": "table",
        "machine": machine(),
        "versions": versions("confluent-kafka", "aiokafka"),
    }
    result["rows"] = rows = []
    print("| what | ours | compared with | ours / theirs |\n| --- | --- | --- | --- |", flush=True)
    for section in SECTIONS:
        if section.__name__ not in arguments.only:
            continue
        began = time.monotonic()
        for what, unit, ours, peer, theirs in section(arguments.quick):
            ratio = ours / theirs
            print(f"| {what} | {shown(ours, unit)} | {peer} {shown(theirs, unit)} | {shown(ratio)} |", flush=True)
            there = {} if theirs != theirs else {"theirs": theirs, "ratio": ratio}
            rows.append({"what": what, "unit": unit, "ours": ours, "peer": peer, **there})
        load = f"load average {os.getloadavg()[0]:.1f}"
        print(f"{section.__name__}: {time.monotonic() - began:.0f} s, {load}", file=sys.stderr, flush=True)
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
