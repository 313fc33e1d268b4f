"""A slow handler, exactly once: a thousand orders at once, and one invoice for each, despite crashes and rebalances.

    python examples/exactly_once_parallel.py localhost:9092 orders invoices worker-1

As `exactly_once.py`, for handlers that wait. Start several, each with its own name, and one that died again under its
name. A consumer with ``isolation.level=read_committed`` sees each invoice once. Ends with Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from confluent_kafka import Producer

from kip848_client import AsyncConsumer, HandlerTransaction, Message


async def main(servers: str, source: str, sink: str, name: str, group: str = "invoicing") -> None:
    async def handle(order: Message, tx: HandlerTransaction) -> None:
        await asyncio.sleep(0.01)  # stands for a call of an API
        tx.produce(sink, b"invoice for " + (order.value() or b""), order.key())

    conf = {"bootstrap.servers": servers, "group.id": group, "client.id": name, "auto.offset.reset": "earliest"}
    transactions = {
        "bootstrap.servers": servers,
        "transactional.id": f"{group}-{name}",
        "transaction.timeout.ms": 10_000,
        # By default librdkafka 2.16 forgets its brokers when none answers, and may then wait for ever.
        "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 1_000,  # by default it may connect 10 s after a broker is back
    }
    async with AsyncConsumer(conf) as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, consumer.hand_over)
        await consumer.subscribe([source])
        await consumer.process(handle, concurrency=1000, transactional=Producer(transactions))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
