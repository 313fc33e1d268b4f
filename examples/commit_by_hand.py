"""Commit by hand: sum in memory, save once a second, and lose or repeat nothing when the group rebalances.

    python examples/commit_by_hand.py localhost:9092 payments

The rule is always the same: first the result is safe, then the offsets are committed. A crash in between repeats the
records since the last commit (at-least-once). A rebalance repeats none, because `on_partitions_revoked` saves and
commits while the partitions are still ours; closing does the same. When they are *lost*, another member may read them
already: what was not saved is dropped, and the new owner sums it again.
"""

import signal
import sys
import threading
import time
from collections import Counter

from kip848_client import Consumer, ConsumerRebalanceListener, Message, TopicPartition

SAVE_INTERVAL_S = 1.0


class Totals(ConsumerRebalanceListener):
    """Payments by customer that are summed but not saved yet."""

    def __init__(self) -> None:
        self.unsaved: Counter[str] = Counter()

    def add(self, message: Message) -> None:
        customer = (message.key() or b"somebody").decode()
        self.unsaved[customer] += int(message.value() or 0)

    def save_and_commit(self, consumer: Consumer) -> None:
        if self.unsaved:
            print("saved", dict(self.unsaved), flush=True)  # your database
            self.unsaved.clear()
            consumer.commit(asynchronous=False)

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.save_and_commit(consumer)

    def on_partitions_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        print("dropped", dict(self.unsaved), flush=True)
        self.unsaved.clear()


def main(servers: str, topic: str) -> None:
    conf = {
        "bootstrap.servers": servers,
        "group.id": "totals",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    totals = Totals()
    stopped = threading.Event()  # Ctrl-C as an exception could strike between saving and committing
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with Consumer(conf) as consumer:
        consumer.subscribe([topic], listener=totals)
        save_due = time.monotonic() + SAVE_INTERVAL_S
        while not stopped.is_set():
            for message in consumer.consume(500, timeout=0.2):
                totals.add(message)
            if time.monotonic() >= save_due:
                totals.save_and_commit(consumer)
                save_due = time.monotonic() + SAVE_INTERVAL_S


if __name__ == "__main__":
    main(*sys.argv[1:])
