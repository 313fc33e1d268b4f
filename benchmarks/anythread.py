"""What it costs that any thread may call: of each record that another thread reads, and until such a call returns.

::

    python benchmarks/anythread.py
    python benchmarks/anythread.py --against ../other-checkout    # the records of that one in turns with these
    python benchmarks/anythread.py --quick

* Records: CPU time of the thread that reads, for each record that is at hand, through ``poll()`` and through
  ``batches()`` of 20; alone, and while another thread asks for ``position()`` again and again.
* Calls: how long ``position()``, ``pause()`` and ``commit(asynchronous=False)`` take while another thread waits in
  ``poll(0.2)``: the longest of five, a twentieth of a second apart. With confluent-kafka 2.16 nine such calls did
  not end within a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_process import broker_process
from report_file import in_a_process, keep, machine, median, options, table, versions

RECORDS = 200_000
BATCH = 20
CALLS = 5


def settings(servers: str, group: str) -> dict[str, Any]:
    """Of either client."""
    own = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    return {**own, "enable.auto.commit": False, "queued.min.messages": RECORDS, "fetch.wait.max.ms": 10}


def records(servers: str, way: str, beside: bool) -> float:
    """Nanoseconds of CPU for each record."""
    from kip848_client import Consumer, TopicPartition

    consumer = Consumer(settings(servers, "records"))
    consumer.assign([TopicPartition("t", 0, 0)])
    while consumer.poll(1.0) is None:
        pass
    time.sleep(2.0)  # until librdkafka has them all
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.001):
            consumer.position([TopicPartition("t", 0)])

    if beside:
        threading.Thread(target=ask, daemon=True).start()
    read, batches = 1, consumer.batches(BATCH, 1.0)
    began_ns = time.thread_time_ns()
    while read < RECORDS:
        read += consumer.poll(1.0) is not None if way == "poll" else len(next(batches))
    took_ns = time.thread_time_ns() - began_ns
    over.set()
    consumer.close()
    return took_ns / read


def calls(servers: str) -> dict[str, float]:
    """Milliseconds of each call: the longest."""
    from kip848_client import Consumer, TopicPartition

    consumer = Consumer(settings(servers, "calls"))
    consumer.subscribe(["t"])
    got, over = threading.Event(), threading.Event()

    def read() -> None:
        while not over.is_set():
            if consumer.poll(0.2) is not None:
                got.set()

    reader = threading.Thread(target=read)
    reader.start()
    got.wait()
    place = [TopicPartition("t", 0, 1)]
    asked: dict[str, Callable[[], object]] = {
        "position()": lambda: consumer.position(place),
        "pause()": lambda: consumer.pause(place),
        "commit(), and wait": lambda: consumer.commit(offsets=place, asynchronous=False),
    }
    took: dict[str, float] = {}
    for name, call in asked.items():
        times = []
        for _ in range(CALLS):
            began_s = time.perf_counter()
            call()
            times.append((time.perf_counter() - began_s) * 1_000)
            time.sleep(0.05)
        took[name] = round(max(times), 1)
    over.set()
    reader.join()
    consumer.close()
    return took


def produce(servers: str) -> None:
    """The records that are read."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 2 * RECORDS, "log_level": 0})
    for _ in range(RECORDS + 1_000):
        producer.produce("t", b"x" * 20, partition=0)
    producer.flush()


def main(arguments: argparse.Namespace) -> None:
    rounds = 1 if arguments.quick else 5
    checkouts = {"this": None} | ({"against": arguments.against} if arguments.against else {})
    cases = [(way, beside) for way in ("poll", "batches") for beside in (False, True)]
    found: dict[tuple[str, bool, str], list[float]] = {}
    with broker_process(topics={"t": 1}) as broker:
        servers = broker.bootstrap_servers
        produce(servers)
        for _ in range(rounds):
            for way, beside in cases:
                for name, folder in checkouts.items():
                    if beside and folder is not None:
                        continue  # it may know nothing of other threads
                    os.environ["PYTHONPATH"] = "" if folder is None else str(folder.resolve())
                    task = {"servers": servers, "way": way, "beside": beside}
                    found.setdefault((way, beside, name), []).append(in_a_process(__file__, task))
        os.environ["PYTHONPATH"] = ""
        waits = in_a_process(__file__, {"servers": servers, "calls": True})
    costs = {f"{way}{', asked' if beside else ''}, {name}": median(ns, 1) for (way, beside, name), ns in found.items()}
    table([["records", "ns each"], *map(list, costs.items())])
    table([["the longest call", "ms"], *map(list, waits.items())])
    result = {"benchmark": "anythread", "machine": machine(), "versions": versions("confluent-kafka")}
    keep({**result, "records_ns": costs, "calls_ms": waits}, arguments)


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--against", type=Path, help="the folder of another checkout of this package")
    chosen = parser.parse_args()
    if chosen.task:
        task = json.loads(chosen.task)
        one = calls(task["servers"]) if "calls" in task else records(*task.values())
        json.dump(one, sys.stdout)
    else:
        main(chosen)
