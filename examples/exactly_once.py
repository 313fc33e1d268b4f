"""Read, transform, write: the result of each record exactly once, despite crashes and rebalances.

    python examples/exactly_once.py localhost:9092 orders invoices worker-1

Start several, each with its own name, against Apache Kafka or the embedded broker. Results and the offsets of their
source records are written in one transaction, so both are there or neither. A consumer with
``isolation.level=read_committed`` sees each result once.

`transaction` does what makes it right: the offsets go into the transaction and never to `commit()`, with the member's
present epoch, so that the coordinator can refuse a member that lost its partitions. What was aborted is read again.

Start a worker that died again *under the same name*: its producer then ends the transaction that it left open.
Otherwise readers wait until ``transaction.timeout.ms`` is over.
"""

import signal
import sys
import threading

from confluent_kafka import Producer

from kip848_client import Consumer, transaction
from kip848_client.errors import TransactionAbortedError


def transform(order: bytes) -> bytes:
    return b"invoice for " + order


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
            "reconnect.backoff.max.ms": 1_000,  # by default it may connect 10 s after a broker is back
        }
    )
    producer.init_transactions()  # before anything is read: it ends what a killed process left open
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with Consumer(conf) as consumer:
        consumer.subscribe([source])
        while not stopped.is_set():
            batch = consumer.consume(1_000, timeout=0.2)
            try:
                with transaction(producer, consumer):
                    for message in batch:
                        producer.produce(sink, key=message.key(), value=transform(message.value() or b""))
            except TransactionAbortedError as error:
                print("aborted:", error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
