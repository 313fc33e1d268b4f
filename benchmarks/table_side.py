"""One side of one row of `table.py`, in a process of its own that imports little else; prints one JSON object."""

import importlib
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

BATCH = 500


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def consumer(side: str, servers: str, topic: str, **settings: object) -> Any:
    """A subscribed consumer of ours or librdkafka's, in a new group."""
    config = {
        "bootstrap.servers": servers,
        "group.id": f"{side}-{time.time_ns()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **settings,
    }
    made: Any
    if side == "ours":
        import kip848_client

        made = kip848_client.Consumer(config)
    else:
        import confluent_kafka

        made = confluent_kafka.Consumer(config | {"group.protocol": "consumer"})
    made.subscribe([topic])
    return made


def bare() -> dict[str, float]:
    """Python alone."""
    return {"mb": resident_mb()}


def first(side: str, servers: str, topic: str, records: int) -> dict[str, float]:
    """Until the first record, once everything is imported, and the memory when *records* have been read."""
    if side == "aiokafka":
        return first_by_aiokafka(servers, topic, records)
    imported = importlib.import_module("kip848_client" if side == "ours" else "confluent_kafka")
    assert imported.Consumer is not None
    began, cpu = time.perf_counter(), time.process_time()
    reader = consumer(side, servers, topic)
    while reader.poll(5) is None:
        pass
    found = {"ms": (time.perf_counter() - began) * 1_000, "cpu_ms": (time.process_time() - cpu) * 1_000}
    for _ in range(records - 1):
        assert reader.poll(5) is not None
    found["mb"] = resident_mb()
    reader.close()
    return found


def first_by_aiokafka(servers: str, topic: str, records: int) -> dict[str, float]:
    """The same with aiokafka, which speaks the classic protocol."""
    import asyncio

    from aiokafka import AIOKafkaConsumer

    async def read() -> dict[str, float]:
        began, cpu = time.perf_counter(), time.process_time()
        reader = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=f"aiokafka-{time.time_ns()}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await reader.start()
        await reader.getone()
        found = {"ms": (time.perf_counter() - began) * 1_000, "cpu_ms": (time.process_time() - cpu) * 1_000}
        for _ in range(records - 1):
            await reader.getone()
        found["mb"] = resident_mb()
        await reader.stop()
        return found

    return asyncio.run(read())


def fetched(side: str, servers: str, topic: str, records: int, call: str) -> dict[str, float]:
    """Nanoseconds of the reading thread's CPU for a record that librdkafka has fetched already."""
    reader = consumer(side, servers, topic, **{"queued.min.messages": 10**6, "fetch.queue.backoff.ms": 10})
    while reader.poll(5) is None:
        pass
    time.sleep(3)
    left = records - BATCH
    count, cpu = 0, time.thread_time()
    if call == "batches":
        for batch in reader.batches(BATCH):
            count += len(batch)
            if count >= left:
                break
    else:
        while count < left:
            count += len(reader.consume(BATCH, 1))
    cpu = time.thread_time() - cpu
    reader.close()
    return {"ns": cpu * 1e9 / count}


def read(servers: str, topic: str, records: int) -> dict[str, float]:
    """Read all of four partitions with librdkafka, without a group."""
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": servers, "group.id": "read", "fetch.queue.backoff.ms": 10})
    reader.assign([TopicPartition(topic, number, 0) for number in range(4)])
    count, began = 0, time.perf_counter()
    while count < records:
        count += len(reader.consume(BATCH, 1))
    return {"s": time.perf_counter() - began}


def closing(side: str, servers: str, topic: str, partitions: int) -> dict[str, float]:
    """Seconds of close() with so many partitions."""
    reader = consumer(side, servers, topic)
    while len(reader.assignment()) < partitions:
        reader.poll(0.1)
    reader.poll(1)
    began = time.perf_counter()
    reader.close()
    return {"s": time.perf_counter() - began}


def away(side: str, servers: str, seconds: float) -> dict[str, float]:
    """CPU, in ms a second, of a consumer whose only broker is away."""
    reader = consumer(side, servers, "t", log_level=0)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        reader.poll(0.2)
    cpu, began = time.process_time(), time.monotonic()
    while time.monotonic() < began + seconds:
        reader.poll(0.2)
    return {"cpu_ms": (time.process_time() - cpu) * 1_000 / (time.monotonic() - began)}


if __name__ == "__main__":
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(globals()[name](**arguments)))
