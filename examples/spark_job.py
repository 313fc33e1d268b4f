"""Two Spark queries in one consumer group count delays of flights, and together count each flight once.

    make demo-spark                                     # or: python examples/spark_job.py --flights 50000

A producer writes the flights that left New York in 2013 to an embedded broker, in the order of their departure. A
streaming query keeps statistics of delays per carrier and hour, with a watermark, and appends finished hours to
Parquet. Half-way a second query joins the same group and takes half of the partitions: what each of them writes are
partial sums. At the end a marker in every partition moves the watermarks beyond the last flight, and the sums over both
outputs are compared with a batch computation over the data set itself.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from demo.flights import load_flights
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from kip848_client import EmbeddedBroker
from kip848_client.spark import register, spark_session

TOPIC, GROUP, PARTITIONS = "flights", "delays", 8
MARKER = "~~"
MARKER_TIME = "2014-03-01T00:00:00Z"
BATCH_ROWS = 20_000


def start_query(spark: SparkSession, bootstrap_servers: str, folder: Path) -> StreamingQuery:
    """One member of the group: flights in, statistics of finished hours out."""
    records = (
        spark.readStream.format("kip848")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.group.id", GROUP)
        .option("shareGroup", "true")
        .option("kafka.client.id", folder.name)
        .option("subscribe", TOPIC)
        .option("auto.offset.reset", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS)
        .load()
    )
    columns = f.split(f.col("value").cast("string"), ",")
    flights = records.select(
        columns[0].alias("carrier"), f.to_timestamp(columns[4]).alias("hour"), columns[5].try_cast("int").alias("delay")
    )
    # A week: partitions that change hands wait a while, and the hours they bring are behind.
    statistics = (
        flights.withWatermark("hour", "7 days")
        .groupBy("carrier", f.window("hour", "1 hour"))
        .agg(f.count("*").alias("flights"), f.count("delay").alias("departed"), f.sum("delay").alias("minutes"))
        .select("carrier", f.col("window.start").alias("hour"), "flights", "departed", "minutes")
    )
    writer = statistics.writeStream.format("parquet").outputMode("append").option("path", str(folder / "rows"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def produce(bootstrap_servers: str, values: list[tuple[bytes, bytes]], half_way: threading.Event) -> None:
    """Send the first half, wait until the second query is there, send the rest and the markers."""
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "on_delivery": lambda error, _: failed.append(error) if error is not None else None,
        }
    )
    for number, (key, value) in enumerate(values):
        if number == len(values) // 2:
            producer.flush(30)
            half_way.wait()
        while True:
            try:
                producer.produce(TOPIC, value, key)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(30)
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, f"{MARKER},0,,,{MARKER_TIME},0".encode(), partition=partition)
    if producer.flush(30) or failed:
        raise RuntimeError(f"not all flights were written: {failed[:1]}")


def expected(values: list[tuple[bytes, bytes]]) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Flights and minutes of delay per carrier and hour, counted without Kafka and without Spark."""
    flights: Counter[tuple[str, str]] = Counter()
    minutes: Counter[tuple[str, str]] = Counter()
    for _, value in values:
        carrier, _, _, _, hour, delay = value.decode().split(",")
        flights[carrier, hour] += 1
        minutes[carrier, hour] += 0 if delay in {"", "NA"} else int(delay)
    return flights, minutes


def totals(frame: DataFrame) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """The same from what the queries wrote: partial sums are added up."""
    rows = (
        frame.where(f.col("carrier") != MARKER)
        .groupBy("carrier", f.date_format("hour", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("hour"))
        .agg(f.sum("flights").alias("flights"), f.sum("minutes").alias("minutes"))
        .collect()
    )
    flights = Counter({(row.carrier, row.hour): row.flights for row in rows})
    minutes = Counter({(row.carrier, row.hour): row.minutes or 0 for row in rows})
    return flights, minutes


def say(began_s: float, text: str) -> None:
    print(f"{time.monotonic() - began_s:6.1f} s  {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, default=336_776, help="so many of the first flights of the year (all)")
    arguments = parser.parse_args()
    began_s = time.monotonic()
    chosen = sorted(load_flights(), key=lambda flight: flight.value.split(b",")[4])[: arguments.flights]
    values = [(flight.key, flight.value) for flight in chosen]
    say(began_s, f"{len(values):,} flights; starting Spark")
    spark = spark_session("flights")
    register(spark)
    half_way = threading.Event()
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker({TOPIC: PARTITIONS}) as broker:
        servers = broker.bootstrap_servers
        producing = threading.Thread(target=produce, args=(servers, values, half_way), daemon=True)
        producing.start()
        first = start_query(spark, servers, Path(folder, "query-1"))
        say(began_s, "query-1 started: it is the only member, and has every partition")
        while sum(broker.groups.committed(GROUP).values()) < len(values) // 2:
            if first.awaitTermination(1):
                raise RuntimeError("query-1 ended") from first.exception()
        say(began_s, f"half-way: {len(values) // 2:,} flights are counted and committed; query-2 joins the group")
        second = start_query(spark, servers, Path(folder, "query-2"))
        halves = [PARTITIONS // 2] * 2
        group = broker.groups.wait_for(GROUP, lambda g: [len(m.assigned) for m in g.members] == halves, timeout_s=300)
        for member in sorted(group.members, key=lambda member: member.client_id):
            numbers = ", ".join(str(partition.partition) for partition in sorted(member.assigned))
            say(began_s, f"{member.client_id} has partitions {numbers} at member epoch {member.member_epoch}")
        half_way.set()
        producing.join()
        for query in (first, second):
            query.processAllAvailable()
        ends = {partition: end for partition, (_, end) in broker.topics.offsets(TOPIC).items()}
        lag = sum(ends.values()) - sum(broker.groups.committed(GROUP).values())
        say(began_s, f"everything is read; lag of the group {lag}")
        first.stop()
        second.stop()
        broker.wait_for_group(GROUP, members=0)
        say(began_s, "both queries stopped, and left the group")
        outputs = [spark.read.parquet(str(Path(folder, name, "rows"))) for name in ("query-1", "query-2")]
        parts = [sum(totals(output)[0].values()) for output in outputs]
        flights, minutes = totals(outputs[0].unionByName(outputs[1]))
    spark.stop()
    wanted_flights, wanted_minutes = expected(values)
    by_carrier: Counter[str] = Counter()
    for (carrier, _), count in flights.items():
        by_carrier[carrier] += count
    say(began_s, f"query-1 counted {parts[0]:,} flights, query-2 {parts[1]:,}")
    say(began_s, "  ".join(f"{carrier} {count:,}" for carrier, count in by_carrier.most_common(6)))
    if flights != wanted_flights or minutes != wanted_minutes:
        say(began_s, f"WRONG: {len(values):,} flights were produced, {sum(flights.values()):,} are in the sums")
        return 1
    say(began_s, f"{len(flights):,} sums over carrier and hour equal those of the data set: none lost, none twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())
