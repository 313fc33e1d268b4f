"""group_metadata() of a member that is no longer one, on the embedded broker."""

from __future__ import annotations

import pytest

from kip848_client import Consumer, EmbeddedBroker, Kip848Error, TopicPartition
from kip848_client.consumer.records import data_plane
from kip848_client.consumer.records.data_plane import group_metadata_bytes
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.waiting import wait_until


def test_a_member_that_was_removed_goes_on_naming_itself_in_transactions() -> None:
    """Offsets without a member id are never refused: a zombie would book again what its successor has booked."""
    with EmbeddedBroker({"orders": 1}) as broker:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
        with Consumer(conf) as consumer:
            nobody = consumer.group_metadata()
            consumer.subscribe(["orders"])
            wait_until(lambda: consumer.poll(0.02) is None and consumer.assignment(), what="the assignment")
            member = consumer.group_metadata()

            with RawConnection(broker.bootstrap_servers) as connection:
                leave = ConsumerGroupHeartbeatRequest(group_id="g", member_id=consumer.member_id, member_epoch=-1)
                assert connection.ask(leave, version=1).error_code == 0
            wait_until(lambda: consumer.member_epoch <= 0, what="the removal, which heartbeats notice without poll()")
            zombie = consumer.group_metadata()
            consumer.unsubscribe()
            left = consumer.group_metadata()
            consumer.assign([TopicPartition("orders", 0, 0)])
            by_hand = consumer.group_metadata()

    anonymous = group_metadata_bytes(group_id="g", member_epoch=-1, member_id="", instance_id=None)
    assert nobody == by_hand == anonymous
    assert zombie == left == member != anonymous


def test_a_librdkafka_with_another_layout_is_found_out_before_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout is librdkafka's own; bytes that it misreads could let a zombie's transaction pass."""
    monkeypatch.setattr(data_plane, "_CGMD_MAGIC", b"CGMDv3:")
    with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}) as consumer:
        with pytest.raises(Kip848Error, match="lays out group metadata in a way that this version does not know"):
            consumer.group_metadata()
        monkeypatch.undo()
        assert consumer.group_metadata().startswith(b"CGMDv2:")
