"""hand_over(): leaving without a gap; on the embedded broker."""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client import EmbeddedBroker, IllegalStateError
from kip848_client.common.error_codes import ErrorCode
from kip848_client.journal import MemoryJournal
from kip848_client.testing.faults.actions import error
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, delivered_once
from tests.support.driving import drive

pytestmark = pytest.mark.interop


def test_a_consumer_reads_on_until_the_others_are_ready_and_then_gives_up_everything(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A rolling restart that calls hand_over() on SIGTERM leaves no partition without a reader for an interval."""
    leaver, stayer = make_consumer().subscribe("orders"), make_consumer().subscribe("orders")
    drive(leaver, stayer, until=lambda: len(leaver.partitions) == len(stayer.partitions) == 2)
    produce("orders", 5)

    leaver.raw.hand_over(timeout_s=60)
    drive(leaver, stayer, until=lambda: len(leaver.delivered) == 10)  # it still reads what it has
    drive(leaver, stayer, until=lambda: leaver.raw.handed_over and len(stayer.partitions) == 4)

    assert leaver.kinds[-2:] == ["revoked", "assigned"]
    assert list(leaver.raw) == []
    assert leaver.raw.poll() is None
    leaver.raw.close()
    leaver.raw.hand_over()  # a second SIGTERM, which must not raise in the middle of the program's end
    produce("orders", 5)
    drive(stayer, until=lambda: len(leaver.delivered) + len(stayer.delivered) == 40)
    assert len(delivered_once([leaver, stayer])) == 40


def test_a_group_that_cannot_be_described_is_left_all_the_same(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """Without rights on the group hand_over() is a plain revocation, and the event log says why."""
    broker.faults.on("ConsumerGroupDescribe", error(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=None)
    journal = MemoryJournal()
    leaver = make_consumer(journal=journal).subscribe("orders")
    stayer = make_consumer().subscribe("orders")
    drive(leaver, stayer, until=lambda: len(leaver.partitions) == len(stayer.partitions) == 2)

    leaver.raw.hand_over(timeout_s=60)
    drive(leaver, stayer, until=lambda: leaver.raw.handed_over)

    (event,) = [event for event in journal.events if event.event == "hand_over_failed"]
    assert "cannot be described" in str(event.fields["reason"])


def test_a_signal_handler_that_closes_ends_the_poll_that_it_interrupts(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """confluent_kafka's RuntimeError "Consumer closed" came out of poll(), which no handler of exceptions expects."""
    consumer = make_consumer().raw
    consumer.subscribe(["orders"])
    fetcher = consumer._fetcher
    read = fetcher.read

    def interrupted(count: int, *, timeout_s: float) -> Any:
        consumer.close()
        return read(count, timeout_s=timeout_s)

    monkeypatch.setattr(fetcher, "read", interrupted)
    assert consumer.poll(10) is None
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll(0)
