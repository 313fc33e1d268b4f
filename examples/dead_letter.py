"""Records that cannot be opened go to a dead-letter topic; work that fails is tried again after a delay.

    python examples/dead_letter.py BOOTSTRAP TOPIC [GROUP]

Ends with Ctrl-C. Values must be JSON; what is not goes to TOPIC-dead with the reason in a header. If that fails, the
program ends: the record is not committed, and read again by the next start. A record whose work fails is tried again
after a second, while the other partitions are read on: its partition is paused meanwhile.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from kip848_client import Consumer, Message, TopicPartition
from kip848_client.errors import ValueDeserializationError

RETRY_AFTER_S = 1.0


def handle(order: Any) -> None:
    """The work; raises if it cannot be done now."""
    print("handled", order["id"], flush=True)


def main(bootstrap: str, topic: str, group: str = "orders") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 30_000, "enable.idempotence": True})
    waiting: dict[int, float] = {}  # paused partition -> when to go on

    def bury(record: Message, error: ValueDeserializationError) -> None:
        reason = {"reason": str(error).encode(), "from": f"{record.topic()}-{record.partition()}".encode()}
        reports: list[KafkaError | None] = []
        producer.produce(
            f"{topic}-dead",
            record.value(),
            record.key(),
            headers=list(reason.items()),
            on_delivery=lambda failure, _: reports.append(failure),
        )
        producer.flush()  # it reports a failure only to on_delivery
        if reports[0] is not None:
            raise KafkaException(reports[0])  # poll() raises it, and the position does not pass the record
        consumer.store_offsets(record)
        print("buried", record.offset(), flush=True)

    conf = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        "value.deserializer": lambda data, context: json.loads(data),
        "on_deserialization_error": bury,
    }
    with Consumer(conf) as consumer:
        consumer.subscribe([topic])
        while True:
            record = consumer.poll(0.1)
            for paused in [one for one, at in waiting.items() if time.monotonic() >= at]:
                del waiting[paused]
                consumer.resume([TopicPartition(topic, paused)])
            if record is None:
                continue
            partition, offset = record.partition(), record.offset()
            try:
                handle(record.value())
            except Exception as error:  # noqa: BLE001  the work may raise anything
                print("again soon:", error, flush=True)
                consumer.seek(TopicPartition(topic, partition, offset))
                consumer.pause([TopicPartition(topic, partition)])
                waiting[partition] = time.monotonic() + RETRY_AFTER_S
            else:
                consumer.store_offsets(record)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        print("closed", flush=True)
