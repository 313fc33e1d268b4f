"""Read, transform, write: the result of each record exactly once, despite crashes and rebalances.

    python examples/exactly_once.py localhost:9092 orders invoices worker-1

Start several, each with its own name, against Apache Kafka or the embedded broker. Results and the offsets of their
source records are written in one transaction, so both are there or neither. A consumer with
``isolation.level=read_committed`` sees each result once.

Three things make it right. The offsets go into the transaction (`send_offsets_to_transaction`), never to `commit()`.
`group_metadata()` is asked for then and not earlier, so that the coordinator can refuse a member that lost its
partitions meanwhile. And what was aborted is read again: `go_back`. No listener is needed: rebalances happen inside
`consume()`, between two transactions.

Start a worker that died again *under the same name*: its producer then ends the transaction that it left open.
Otherwise readers wait until ``transaction.timeout.ms`` is over.
"""

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaException, Producer

from kip848_client import Consumer, IllegalStateError, Message, TopicPartition


def transform(order: bytes) -> bytes:
    return b"invoice for " + order


def place_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition(), message.offset())


def insist(call: Callable[..., object], *args: object) -> None:
    """Repeat what timed out: whether the broker did it is not known until it answers."""
    while True:
        try:
            call(*args)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def write(consumer: Consumer, producer: Producer, batch: list[Message], sink: str) -> bool:
    """The results of one batch and its offsets; returns whether they were written."""
    producer.begin_transaction()
    ends = {}
    for message in batch:
        producer.produce(sink, key=message.key(), value=transform(message.value() or b""))
        at = place_of(message)
        ends[at.topic, at.partition] = TopicPartition(at.topic, at.partition, at.offset + 1)
    try:
        insist(producer.send_offsets_to_transaction, list(ends.values()), consumer.group_metadata())
        insist(producer.commit_transaction)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise  # another process took our name: this one must end
        insist(producer.abort_transaction)
        print("aborted:", error.args[0].str(), flush=True)
        return False
    return True


def go_back(consumer: Consumer, batch: list[Message]) -> None:
    """Read the batch again, where its partitions are still ours; elsewhere their new owner does."""
    for message in reversed(batch):  # so that the first of each partition has the last word
        with suppress(IllegalStateError):
            consumer.seek(place_of(message))


def main(servers: str, source: str, sink: str, name: str, group: str = "invoicing") -> None:
    conf = {
        "bootstrap.servers": servers,
        "group.id": group,
        "client.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"{group}-{name}",
            "transaction.timeout.ms": 10_000,
            "linger.ms": 5,
            # By default librdkafka 2.16 forgets its brokers when none answers, and may then wait for ever.
            "metadata.recovery.strategy": "none",
        }
    )
    try:
        insist(producer.init_transactions)
    except KafkaException as error:
        sys.exit(f"no transactions at {servers}: {error.args[0].str()}")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with Consumer(conf) as consumer:
        consumer.subscribe([source])
        while not stopped.is_set():
            batch = consumer.consume(1_000, timeout=0.2)
            if batch and not write(consumer, producer, batch, sink):
                go_back(consumer, batch)


if __name__ == "__main__":
    main(*sys.argv[1:])
