"""Consumers that are not closed, forks, and processes that die; on the embedded broker."""

from __future__ import annotations

import gc
import threading
import warnings

import pytest

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.errors import ForkedProcessError
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce
from tests.support.driving import QUIET, drive
from tests.support.open_files import sockets_of_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


def test_no_thread_and_no_socket_is_left_after_close(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Services open and close consumers for months; each leak would add up."""
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    consumer.raw.close()
    before = sockets_of_port(broker.port)

    for _ in range(6):
        again = make_consumer().subscribe("orders")
        drive(again, until=lambda: len(again.partitions) == 4)  # noqa: B023  used before the next round
        again.raw.close()

    assert [thread.name for thread in threading.enumerate() if "heartbeat" in thread.name] == []
    # The broker's ends are in this process as well, and closed when its thread gets to it; the producer of the test may
    # open another connection. One leak a round would be six.
    wait_until(lambda: sockets_of_port(broker.port) < before + 6, what="the sockets are closed")


def test_a_consumer_that_was_dropped_leaves_its_group(broker: EmbeddedBroker, produce: Produce) -> None:
    """Notebooks run a cell again without close(): the old member must not keep its partitions for a session."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of sockets that other clients' tests left in this process
        gc.collect()
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**QUIET, **conf})
    consumer.subscribe(["orders"], on_revoke=lambda *_: pytest.fail("a listener ran on a thread of ours"))
    while not consumer.assignment():
        consumer.poll(0.05)

    del consumer
    gc.collect()

    broker.groups.wait_for("g", lambda group: not group.members, what="the dropped consumer to leave")


def test_after_fork_the_prefetch_buffer_is_not_handed_out_twice(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """The fast path of poll() must notice the fork as well, or parent and child process the same records."""
    produce("orders", 50)
    consumer = make_consumer().subscribe("orders")
    assert consumer.raw.poll(10.0) is not None
    assert consumer.raw._core.ready, "nothing is prefetched, so this test proves nothing"

    consumer.raw._core.gate.owner = -1  # what the hook after fork() does in the child
    with pytest.raises(ForkedProcessError):
        consumer.raw.poll(0)
    del consumer.raw._core.gate.owner

    assert consumer.raw.poll(0) is not None
