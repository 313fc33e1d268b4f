"""Topics that are deleted, and created again, under a consumer that reads them."""

from __future__ import annotations

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.faults import hold
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, drive

pytestmark = pytest.mark.interop


def test_a_topic_that_vanishes_before_its_offsets_are_looked_up_is_no_error(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A service subscribes to many topics, and one of them is deleted while it starts: poll() must not raise."""
    broker.create_topic("gone")
    produce("orders", 5)
    rule = broker.faults.on("OffsetFetch", hold(), group="g")
    consumer = make_consumer().subscribe("orders", "gone")
    drive(consumer, until=lambda: rule.hits)

    broker.delete_topic("gone")
    rule.release()

    drive(consumer, until=lambda: len(consumer.delivered) == 20)
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
