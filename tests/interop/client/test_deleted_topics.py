"""Topics that are deleted, and created again, under a consumer that reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.faults import hold
from kip848_client.journal import MemoryJournal
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, drive, keys_of, producer_for

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


@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.crash], ids=["stop", "crash"])
def test_a_topic_that_is_created_again_after_a_restart_of_the_broker_is_read(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce, end: Callable[[EmbeddedBroker], None]
) -> None:
    """librdkafka keeps the leader epoch of the old topic, and refuses the smaller one of the new topic for ever."""
    broker.create_topic("kept")
    produce("orders", 5)
    produce("kept", 5, partitions=[0])
    journal = MemoryJournal()
    consumer = make_consumer(journal=journal).subscribe("orders", "kept")
    drive(consumer, until=lambda: len(consumer.delivered) == 25)
    end(broker)
    broker.start()
    with producer_for(broker.bootstrap_servers) as write:
        write("orders", 1)
        drive(consumer, until=lambda: len(consumer.delivered) == 29)  # it has seen the new leader epoch
        broker.recreate_topic("orders")

    with producer_for(broker.bootstrap_servers) as write:  # another one: a producer keeps the old epoch as well
        write("orders", 3)
        write("kept", 1, partitions=[0])
        drive(consumer, until=lambda: len(consumer.delivered) == 29 + 13, what="the records of the new topic")

    assert consumer.delivered[-13:].count(("kept", 0, 5)) == 1
    assert {one for one in consumer.delivered[-13:] if one[0] == "orders"} == keys_of("orders", 3)
    [told] = journal.named("data_plane_renewed")
    assert told.fields["topics"] == ["orders"]
