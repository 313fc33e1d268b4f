"""A slow handler: a thousand records at once, in order by key, nothing committed too early.

    python examples/parallel.py BOOTSTRAP TOPIC [GROUP]

Ends with Ctrl-C or SIGTERM: running handlers end, what is done is committed, and other members take over without a gap.
Records that fail five times go to TOPIC-dead. Guarantees: docs/processing.md.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import tenacity
from confluent_kafka import Producer

from kip848_client import AsyncConsumer, DeadLetters, Message

RETRY = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type((OSError, TimeoutError)),
    wait=tenacity.wait_random_exponential(max=10),
    stop=tenacity.stop_after_attempt(5),
)


async def handle(message: Message) -> None:
    """Stands for a call of an API or a database."""
    await asyncio.sleep(0.1)
    print("handled", message.partition(), message.offset(), message.key(), flush=True)


async def main(bootstrap: str, topic: str, group: str = "parallel") -> None:
    letters = DeadLetters(Producer({"bootstrap.servers": bootstrap}), f"{topic}-dead")
    conf = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    async with AsyncConsumer(conf) as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, consumer.hand_over)
        await consumer.subscribe([topic])
        await consumer.process(handle, concurrency=1000, retry=RETRY, timeout_s=30, dead_letter=letters)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
