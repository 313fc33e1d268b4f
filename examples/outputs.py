"""Orders in, totals out, at least once: an order is committed when the brokers have its total.

    python examples/outputs.py BOOTSTRAP ORDERS TOTALS [GROUP]

Ends with Ctrl-C or SIGTERM. What `handle` produces is sent when it returns, and a refused total is a failure of its
order. A process that is killed repeats orders, and loses no total. Guarantees: docs/processing.md.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from confluent_kafka import Producer

from kip848_client import AsyncConsumer, HandlerOutputs, Message


async def main(bootstrap: str, orders: str, totals: str, group: str = "totals") -> None:
    async def handle(order: Message, outputs: HandlerOutputs) -> None:
        prices = (order.value() or b"").split()
        await asyncio.sleep(0.05)  # stands for a call of an API or a database
        outputs.produce(totals, key=order.key(), value=str(sum(map(int, prices))))

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    conf = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    async with AsyncConsumer(conf) as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, consumer.hand_over)
        await consumer.subscribe([orders])
        await consumer.process(handle, concurrency=100, outputs=producer)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
