"""Totals of orders in SQLite files, one for each partition, with a copy on another process, and queries over HTTP.

    python examples/local_state.py BOOTSTRAP FOLDER PORT [consumer|classic]
    curl -L http://127.0.0.1:PORT/PARTITION/CUSTOMER

The topics `orders` (key: customer, value: amount) and `orders-totals` (compacted) must exist, with equally many
partitions. Start it twice, with folders and ports of their own: the second process copies the files by way of
`orders-totals`, and half of the tasks move to it when it has caught up. Each process answers for the partitions that it
has, and sends the others on.

A total is written with the offset of its last order, so that an order that is read twice counts once: first the file,
then the changelog, then the commit.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered

from kip848_client import Consumer, KafkaException, Message, TopicPartition
from kip848_client.assignors.streams import StreamsAssignor, Task, TaskRunner, Topology

TOPOLOGY = Topology().subtopology("totals", sources=["orders"], changelogs=["orders-totals"])
SAVE_EVERY_S = 1.0


class Store:
    """The file of one partition."""

    def __init__(self, folder: Path, partition: int) -> None:
        self.db = sqlite3.connect(folder / f"{partition}.sqlite", isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS totals (customer TEXT PRIMARY KEY, total INT, order_offset INT)")
        self.db.execute("CREATE TABLE IF NOT EXISTS copied (one INT PRIMARY KEY CHECK (one = 1), next INT)")

    def add(self, customer: str, amount: int, order_offset: int) -> tuple[int, int]:
        """The customer's total, and the offset of the last order in it. An order counts once."""
        row = self.db.execute("SELECT total, order_offset FROM totals WHERE customer = ?", (customer,)).fetchone()
        total, last = row or (0, -1)
        if order_offset <= last:
            return total, last
        self.put(customer, total + amount, order_offset)
        return total + amount, order_offset

    def put(self, customer: str, total: int, order_offset: int) -> None:
        """Write a total, unless the file has a newer one."""
        self.db.execute(
            "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET total = excluded.total, "
            "order_offset = excluded.order_offset WHERE excluded.order_offset > order_offset",
            (customer, total, order_offset),
        )

    @property
    def next_copied(self) -> int:
        """The next offset of the changelog."""
        row = self.db.execute("SELECT next FROM copied").fetchone()
        return row[0] if row else 0

    @next_copied.setter
    def next_copied(self, offset: int) -> None:
        self.db.execute("INSERT OR REPLACE INTO copied VALUES (1, ?)", (offset,))


class Totals:
    """What this process does with its tasks; see `TaskHandler`."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.folder = folder
        self.stores: dict[int, Store] = {}
        self.copies: set[int] = set()
        self.done: dict[int, int] = {}  # partition -> next order
        self.consumer: Consumer | None = None
        self.producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self.failure: KafkaError | None = None  # of a total that is not in the changelog
        # Reads the changelog by hand, as a member of no group.
        self.reader = Consumer({"bootstrap.servers": servers, "group.id": "-", "enable.auto.commit": False})

    def start(self, task: Task) -> None:
        store = self.store(task.partition)
        self.reader.assign([TopicPartition("orders-totals", task.partition, store.next_copied)])
        while self.lag(task.partition):  # little is missing, or there would have been a warm-up before
            self.copy(0.1)
        self.read_copies()
        print("runs", task, flush=True)

    def stop(self, task: Task) -> None:
        self.save()
        self.done.pop(task.partition, None)
        print("stops", task, flush=True)

    def restore(self, task: Task, changelogs: Mapping[str, tuple[int, ...]]) -> None:
        self.copies.add(task.partition)
        self.read_copies()
        print("copies", task, flush=True)

    def stop_restoring(self, task: Task) -> None:
        self.copies.discard(task.partition)
        self.read_copies()

    def store(self, partition: int) -> Store:
        if partition not in self.stores:
            self.stores[partition] = Store(self.folder, partition)
        return self.stores[partition]

    def count(self, order: Message) -> None:
        """Add an order to its customer's total."""
        partition, offset = order.partition(), order.offset()
        customer = (order.key() or b"").decode()
        total = self.store(partition).add(customer, int(order.value() or 0), offset)
        # Also if it was counted before: the process may have ended before this was written.
        self.producer.produce("orders-totals", json.dumps(total), customer, partition, on_delivery=self.written)
        self.producer.poll(0)
        self.done[partition] = offset + 1

    def written(self, error: KafkaError | None, record: Delivered) -> None:
        """The changelog has a total of this process, which need not copy that one; or it could not be written."""
        if error is not None:
            self.failure = error
            return
        partition, offset = record.partition(), record.offset()
        assert partition is not None
        assert offset is not None
        self.store(partition).next_copied = offset + 1

    def save(self) -> None:
        """Commit orders whose totals are in the changelog.

        Raises:
            KafkaException: one could not be written there. The next start reads its order again, and tries again.
        """
        self.producer.flush()
        if self.failure is not None:
            raise KafkaException(self.failure)
        if self.done and self.consumer is not None:
            offsets = [TopicPartition("orders", partition, offset) for partition, offset in self.done.items()]
            try:
                self.consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:  # the partitions are lost; who has them reads these orders again
                print("not committed:", error, flush=True)

    def read_copies(self) -> None:
        places = [TopicPartition("orders-totals", each, self.store(each).next_copied) for each in sorted(self.copies)]
        self.reader.assign(places)

    def copy(self, timeout_s: float = 0.0) -> None:
        """Take over what other processes wrote to the changelog."""
        while self.reader.assignment():
            record = self.reader.poll(timeout_s)
            if record is None or record.error():
                return
            partition, offset = record.partition(), record.offset()
            self.store(partition).put((record.key() or b"").decode(), *json.loads(record.value() or b""))
            self.store(partition).next_copied = offset + 1

    def lag(self, partition: int) -> int:
        _, end = self.reader.get_watermark_offsets(TopicPartition("orders-totals", partition), timeout=10)
        return max(end - self.store(partition).next_copied, 0)


def serve(assignor: StreamsAssignor, folder: Path, endpoint: str) -> ThreadingHTTPServer:
    """Answer queries on threads of their own."""

    class Query(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            partition, _, customer = self.path.strip("/").partition("/")
            owner = assignor.owner_of("orders", int(partition))
            if owner is None or owner.endpoint is None:
                self.send_error(503, "no process has this partition yet")
            elif owner.endpoint != endpoint:
                self.send_response(307)
                self.send_header("Location", f"http://{owner.endpoint}{self.path}")
                self.end_headers()
            else:
                db = sqlite3.connect(folder / f"{partition}.sqlite")
                row = db.execute("SELECT total FROM totals WHERE customer = ?", (customer,)).fetchone()
                db.close()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"total": row[0] if row else 0, "from": endpoint}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", int(endpoint.rpartition(":")[2])), Query)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main(servers: str, folder: str, port: str, protocol: str = "classic") -> None:
    place, endpoint = Path(folder), f"127.0.0.1:{port}"
    place.mkdir(parents=True, exist_ok=True)
    mine = place / "process-id"  # the same after a restart: this process has the files
    if not mine.exists():
        mine.write_text(str(uuid.uuid4()))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())

    totals = Totals(servers, place)
    assignor = StreamsAssignor(TOPOLOGY, process_id=uuid.UUID(mine.read_text()), endpoint=endpoint, standbys=1)
    has_state = [int(file.stem) for file in place.glob("*.sqlite")]
    assignor.report_lag({Task("totals", each): totals.lag(each) for each in has_state})
    runner = TaskRunner(assignor, totals)
    conf = {
        "bootstrap.servers": servers,
        "group.id": "totals",
        "group.protocol": protocol,
        "group.local.assignors": assignor,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    server = serve(assignor, place, endpoint)
    with Consumer(conf) as consumer:
        totals.consumer = consumer
        consumer.subscribe(list(TOPOLOGY.topics), **runner.callbacks)
        due = time.monotonic()
        while not stopped.is_set():
            order = consumer.poll(0.1)
            if order is not None and order.error() is None:
                totals.count(order)
            runner.update()  # standbys and warm-ups come without a rebalance of partitions
            totals.copy()
            if time.monotonic() >= due:
                due = time.monotonic() + SAVE_EVERY_S
                totals.save()
                assignor.report_lag({task: totals.lag(task.partition) for task in runner.restoring})
    totals.reader.close()
    server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
