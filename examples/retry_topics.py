"""An API that is down for a while: orders wait in topics, longer each time, and the others go on.

    python examples/retry_topics.py BOOTSTRAP TOPIC [GROUP]

Ends with Ctrl-C or SIGTERM. What the API refuses for good goes to TOPIC-dead at once, what still fails after the last
delay then. ``kip848 retries list TOPIC-retry TOPIC-dead`` shows what waits. Guarantees: docs/processing.md.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from confluent_kafka import Producer

from kip848_client import AsyncConsumer, DeadLetters, Message, RetryTopics, processing_attempt


async def handle(order: Message) -> None:
    """Stands for a call of the API, which is down for some orders until the third attempt."""
    attempt = processing_attempt()
    if order.value() == b"refused":
        raise ValueError("no such customer")
    if order.value() == b"later" and attempt.number < 3:
        raise ConnectionRefusedError
    print("handled", order.topic(), order.offset(), order.value(), "attempt", attempt.number, flush=True)


async def main(bootstrap: str, topic: str, group: str = "retry-topics") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    retries = RetryTopics(
        f"{topic}-retry", ["1s", "2s", "1m", "1h"], producer=producer, errors=(OSError, TimeoutError), partitions=3
    )
    conf = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    async with AsyncConsumer(conf) as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, consumer.hand_over)
        await consumer.subscribe([topic, *retries.topics])
        await consumer.process(
            handle,
            concurrency=100,
            timeout_s=30,
            retry_later=retries,
            dead_letter=DeadLetters(producer, f"{topic}-dead"),
        )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
