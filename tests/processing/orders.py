"""A topic of orders, and the settings of who handles them."""

from __future__ import annotations

from typing import Any

from kip848_client.testing import EmbeddedBroker, NewRecord


def member_conf(broker: EmbeddedBroker, **settings: Any) -> dict[str, Any]:
    """Of a member of ``g`` that begins with the first record, and commits often."""
    base = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    return {**base, "auto.commit.interval.ms": 50, **settings}


def fill(broker: EmbeddedBroker, count: int, *, keys: int = 10, partitions: int = 1) -> None:
    """Make the topic ``orders``, with records of the values 0, 1, 2, ..."""
    broker.topics.create("orders", partitions)
    broker.produce_many("orders", [NewRecord(str(number), key=str(number % keys)) for number in range(count)])
