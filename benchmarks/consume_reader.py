"""One measurement of `consume.py`, in a process of its own: read every record once, print one JSON line.

Both sides get the same librdkafka properties, subscribe to the same topics in a group that did not exist before, and do
nothing with the records. The clock runs from the first record to the last.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import uuid
from typing import Any

BATCH_RECORDS = 500
POLL_S = 0.2
IDLE_LIMIT_S = 30.0


def make_consumer(side: str, conf: dict[str, Any]) -> Any:
    """``ours``, or ``theirs-consumer`` / ``theirs-classic``: confluent_kafka by group protocol."""
    if side == "ours":
        from kip848_client import Consumer

        return Consumer(conf)
    from confluent_kafka import Consumer as Theirs

    return Theirs(conf | {"group.protocol": side.removeprefix("theirs-")})


def read_by_consume(consumer: Any, records: int) -> tuple[float, int]:
    """Read by ``consume(500, 0.2)``; the last call asks for what is left, or both sides would wait."""
    consume, clock = consumer.consume, time.perf_counter
    count, first_s, idle_since_s = 0, 0.0, clock()
    while count < records:
        batch = consume(min(BATCH_RECORDS, records - count), POLL_S)
        if batch:
            if not count:
                first_s = clock()
            count += len(batch)
            idle_since_s = clock()
        elif clock() - idle_since_s > IDLE_LIMIT_S:
            raise RuntimeError(f"only {count} of {records} records came")
    return clock() - first_s, count


def read_by_batches(consumer: Any, records: int) -> tuple[float, int]:
    """Read by ``batches(500)``, which confluent_kafka has not: it reads by ``consume``."""
    if not hasattr(consumer, "batches"):
        return read_by_consume(consumer, records)
    count, first_s = 0, 0.0
    for batch in consumer.batches(BATCH_RECORDS):
        if not count:
            first_s = time.perf_counter()
        count += len(batch)
        if count >= records:
            break
    return time.perf_counter() - first_s, count


def read_by_poll(consumer: Any, records: int) -> tuple[float, int]:
    """Read by ``poll(0.2)``, one record at a time."""
    poll, clock = consumer.poll, time.perf_counter
    count, first_s, idle_since_s = 0, 0.0, clock()
    while count < records:
        message = poll(POLL_S)
        if message is not None:
            if not count:
                first_s = clock()
            count += 1
        elif not count or clock() - idle_since_s > IDLE_LIMIT_S:
            if clock() - idle_since_s > IDLE_LIMIT_S:
                raise RuntimeError(f"only {count} of {records} records came")
        else:
            idle_since_s = clock()
    return clock() - first_s, count


def main() -> None:
    """Measure as told by the JSON object in the first argument."""
    task = json.loads(sys.argv[1])
    conf = {
        "bootstrap.servers": task["bootstrap_servers"],
        "group.id": f"bench-{uuid.uuid4().hex[:8]}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **task["properties"],
    }
    consumer = make_consumer(task["side"], conf)
    consumer.subscribe(task["topics"])
    calls = {"consume": read_by_consume, "batches": read_by_batches, "poll": read_by_poll}
    read = calls[task["call"]]
    before = resource.getrusage(resource.RUSAGE_SELF)
    seconds, records = read(consumer, task["records"])
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    print(json.dumps({"records": records, "seconds": seconds, "cpu_s": cpu_s}), flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
