"""Read a topic as a member of a group, and commit each record when it is done.

    python examples/quickstart.py localhost:9092 orders

Start it twice and watch the partitions being shared; Ctrl-C leaves the group.
"""

import sys
from contextlib import suppress

from kip848_client import Consumer, TopicPartition

servers, topic = sys.argv[1:]


def show(_consumer: object, partitions: list[TopicPartition]) -> None:
    print("assigned:", *(f"{partition.topic}-{partition.partition}" for partition in partitions), flush=True)


conf = {"bootstrap.servers": servers, "group.id": "quickstart", "auto.offset.reset": "earliest"}
with suppress(KeyboardInterrupt), Consumer(conf) as consumer:
    consumer.subscribe([topic], on_assign=show)
    for message in consumer:
        print(message.topic(), message.partition(), message.offset(), message.value(), flush=True)
        consumer.commit(message)
