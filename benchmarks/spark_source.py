"""Rows a second of ``format("kip848")`` against Spark's own Kafka source: same Spark, same broker, same records.

::

    python benchmarks/spark_source.py                 # every case, five rounds of each, in turns
    python benchmarks/spark_source.py --case "200 partitions" --rounds 2
    python -m benchmarks spark_source                 # the same, kept in benchmarks/results
    python benchmarks/spark_source.py --jars DIR      # the connector's jars are here already

A real Kafka broker is started (Java 17 and Maven), and both sources read the same topic: as a batch, and as a stream
with Trigger.AvailableNow in four micro-batches, into Spark's ``noop`` sink. The first side changes from round to
round; the ratio is ours over theirs, of medians. 0.3 is the gate, 1.0 the goal: our rows cross from Python to the JVM
as Arrow, and theirs are there already; but theirs are read one by one. With 200 partitions what a task costs decides:
ours reads several partitions in one task by default.

The connector is ``spark-sql-kafka-0-10``, fetched by Maven in the version of the installed PySpark, or the newest older
one that can be had; ``--connector`` takes another one. ``--jars`` (or KIP848_SPARK_CONNECTOR_JARS) is a folder that has
it, with kafka-clients, the token provider and commons-pool2. The result says which jars were used.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the broker of the tests

import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from report_file import keep, machine, median, options, table, versions

from kip848_client.spark import register, spark_session
from tests.interop.conftest import create_topic
from tests.interop.kafka_broker import KafkaBroker

CASES = {
    "100 B": (100, 800_000, 8),
    "1 KiB": (1_024, 200_000, 8),
    "4 partitions": (100, 800_000, 4),
    "4 partitions, 1 KiB": (1_024, 200_000, 4),
    "200 partitions": (100, 800_000, 200),
    "200 partitions, 1 KiB": (1_024, 100_000, 200),
}
"""Bytes and number of records, and partitions."""

QUICK_SHARE = 8
GATE, GOAL = 0.3, 1.0

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kip848_client</groupId><artifactId>spark-connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
NEEDED = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
"""Of what Maven copies; the rest comes with PySpark."""


OLDER = ("4.2.0", "4.1.1", "4.0.0")


def connector(version: str, folder: Path) -> None:
    """Fetch Spark's connector into *folder*, in *version* or the newest older one that is there with all it needs."""
    older = [each for each in OLDER if each < version]
    for each in (version, *older):
        try:
            fetch(each, folder)
            return
        except subprocess.CalledProcessError:
            if each == [version, *older][-1]:
                raise
            print(f"the connector of {each} cannot be fetched; trying an older one", file=sys.stderr)


def fetch(version: str, folder: Path) -> None:
    """Fetch this version of it."""
    pom = folder / "pom.xml"
    pom.write_text(POM.format(version=version), encoding="utf-8")
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def fill(bootstrap_servers: str, topic: str, *, size: int, count: int, partitions: int) -> None:
    """Produce records that differ, so that nothing is smaller on the wire than it looks."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "batch.size": 262_144, "log_level": 0}
    )
    tail = b"x" * (size - 12)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, b"%012d" % number + tail, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError("the broker did not take the records")


class Rounds:
    """Both sources over one topic."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, topic: str, count: int, settings: dict[str, str]):
        self._spark = spark
        self._common = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
        self._count = count
        self._settings = settings
        self._round = 0

    def batch(self, source: str) -> float:
        """Rows a second of one batch."""
        frame = self._spark.read.format(source).options(**self._options(source), startingOffsets="earliest").load()
        began_s = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return self._count / (time.perf_counter() - began_s)

    def stream(self, source: str) -> float:
        """Rows a second of a stream in four micro-batches, from its start to its end."""
        self._round += 1
        more: dict[str, str] = {"maxOffsetsPerTrigger": str(-(-self._count // 4)), "startingOffsets": "earliest"}
        if source == "kip848":
            more["kafka.group.id"] = f"benchmark-{self._round}-{time.time_ns()}"
        frame = self._spark.readStream.format(source).options(**self._options(source), **more).load()
        with tempfile.TemporaryDirectory() as checkpoint:
            began_s = time.perf_counter()
            query = _noop(frame, checkpoint)
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if "failed to connect back" not in str(error):
                    raise
                # Spark gives a worker ten seconds to start, which a busy machine may not have.
                return self.stream(source)
            took_s = time.perf_counter() - began_s
            rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        if rows != self._count:
            raise RuntimeError(f"{source} read {rows} of {self._count} rows")
        return self._count / took_s

    def _options(self, source: str) -> dict[str, str]:
        return {**self._common, **self._settings} if source == "kip848" else self._common


def _noop(frame: DataFrame, checkpoint: str) -> Any:
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def compare(rounds: Rounds, *, count: int) -> dict[str, Any]:
    """Run both kinds in turns; the first round of each warms up and does not count."""
    result: dict[str, Any] = {}
    for kind, run in (("batch", rounds.batch), ("stream", rounds.stream)):
        rates: dict[str, list[float]] = {"kip848": [], "kafka": []}
        for number in range(count + 1):
            for source in list(rates) if number % 2 else list(reversed(rates)):
                rate = run(source)
                print(f"{kind} {source} {rate:,.0f} rows/s", file=sys.stderr, flush=True)
                if number:
                    rates[source].append(rate)
        ours, theirs = median(rates["kip848"], 0), median(rates["kafka"], 0)
        result[kind] = {
            "kip848_rows_per_s": ours,
            "kafka_rows_per_s": theirs,
            "ratio": round(ours / theirs, 3),
            "rates": {source: [round(rate) for rate in each] for source, each in rates.items()},
        }
    return result


def main() -> int:
    parser = options(__doc__)
    there = os.environ.get("KIP848_SPARK_CONNECTOR_JARS")
    parser.add_argument(
        "--jars",
        type=Path,
        default=Path(there) if there else None,
        help="folder with the connector's jars; fetched by Maven if not given",
    )
    parser.add_argument("--connector", default=pyspark.__version__, help="version of spark-sql-kafka-0-10 to fetch")
    parser.add_argument("--rounds", type=int, default=5, help="of each kind, beside one that warms up (5)")
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; may be given again")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="option of our source")
    arguments: argparse.Namespace = parser.parse_args()
    settings = dict(item.split("=", 1) for item in arguments.set)
    with ExitStack() as stack:
        jars = arguments.jars
        if jars is None:
            jars = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            connector(arguments.connector, jars)
        needed = sorted(path for path in jars.glob("*.jar") if path.name.startswith(NEEDED))
        broker = stack.enter_context(KafkaBroker())
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Spark's Python processes would compile this package each time
        spark = spark_session("benchmark", config={"spark.jars": ",".join(map(str, needed))})
        register(spark)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"})
        result: dict[str, Any] = {
            "machine": machine(),
            "versions": versions("pyspark", "pyarrow", "confluent-kafka"),
            "jars": [path.name for path in needed],
            "kafka": broker.version,
            "settings": settings,
            "gate": GATE,
            "goal": GOAL,
            "cases": {},
        }
        rows: list[list[object]] = [["", "kip848 rows/s", "kafka rows/s", "ratio"]]
        for name in arguments.case or CASES:
            size, count, partitions = CASES[name]
            count //= QUICK_SHARE if arguments.quick else 1
            topic = f"records-{size}-{partitions}"
            create_topic(admin, topic, partitions=partitions)
            fill(broker.bootstrap_servers, topic, size=size, count=count, partitions=partitions)
            rounds = Rounds(spark, broker.bootstrap_servers, topic, count, settings)
            measured = compare(rounds, count=1 if arguments.quick else arguments.rounds)
            result["cases"][name] = {"records": count, **measured}
            for kind, found in measured.items():
                rows.append(
                    [
                        f"{name} {kind}",
                        f"{found['kip848_rows_per_s']:,.0f}",
                        f"{found['kafka_rows_per_s']:,.0f}",
                        found["ratio"],
                    ]
                )
        spark.stop()
    table(rows)
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
