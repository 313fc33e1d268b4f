"""Read a topic in an event loop: partitions side by side, each in order, and commit what is done.

    python examples/async_consumer.py localhost:9092 orders           # asyncio
    python examples/async_consumer.py localhost:9092 orders trio

A batch is divided by partition, and each part has a task of its own. When all of them are through, the offsets are
committed, and the next batch is read; meanwhile librdkafka fetches it. Ctrl-C cancels the tasks and leaves the group:
the batch that was in hand is not committed, and the next owner of the partitions reads it again.
"""

import sys
from collections import defaultdict
from contextlib import suppress

import anyio

from kip848_client import AsyncConsumer, AsyncConsumerRebalanceListener, Message, TopicPartition


async def handle(messages: list[Message]) -> None:
    for message in messages:
        await anyio.sleep(0.001)  # your database, your HTTP call
        print(message.partition(), message.offset(), (message.value() or b"").decode(), flush=True)


class Announcer(AsyncConsumerRebalanceListener):
    async def on_partitions_assigned(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        print("assigned:", *(partition.partition for partition in partitions), flush=True)

    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        print("revoked:", *(partition.partition for partition in partitions), flush=True)


async def main(servers: str, topic: str) -> None:
    conf = {
        "bootstrap.servers": servers,
        "group.id": "async",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    async with AsyncConsumer(conf) as consumer:
        await consumer.subscribe([topic], Announcer())
        async for batch in consumer.batches(500):
            parts = defaultdict(list)
            for message in batch:
                parts[message.partition()].append(message)
            async with anyio.create_task_group() as tasks:
                for messages in parts.values():
                    tasks.start_soon(handle, messages)
            await consumer.commit()


if __name__ == "__main__":
    servers, topic, *loop = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        anyio.run(main, servers, topic, backend=loop[0] if loop else "asyncio")
