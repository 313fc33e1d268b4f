"""Clusters that have the protocol switched off, or groups that belong to the protocol before."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from kip848_client import MemberState
from kip848_client.errors import UnsupportedGroupProtocolError
from tests.interop.conftest import StartKafkaBroker, create_topic
from tests.interop.real.conftest import MakeOurs
from tests.interop.real.members import (
    take_turns,
)

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def test_a_cluster_without_the_protocol_says_so_at_once_and_what_to_do(
    start_kafka_broker: StartKafkaBroker, ours: MakeOurs
) -> None:
    """An upgraded cluster whose group.version was never raised: waiting for ever would help nobody."""
    broker = start_kafka_broker(format_arguments=("--feature", "group.version=0"))
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}), "orders")
    member = ours("a", at=broker.bootstrap_servers).subscribe("orders")

    with pytest.raises(UnsupportedGroupProtocolError, match=r"consumer group protocol.*classic") as caught:
        take_turns(member, until=lambda: False, what="the error")

    assert caught.value.fatal
    assert member.consumer.state is MemberState.FATAL
    member.close()
