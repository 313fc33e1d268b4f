"""A cluster that has the protocol switched off."""

from __future__ import annotations

import pytest

from kip848_client import MemberState
from kip848_client.errors import UnsupportedGroupProtocolError
from tests.interop.conftest import StartKafkaBroker
from tests.interop.real.group import group_of
from tests.support.driving import drive

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def test_a_cluster_without_the_protocol_says_so_at_once_and_what_to_do(start_kafka_broker: StartKafkaBroker) -> None:
    """An upgraded cluster whose group.version was never raised: waiting for ever would not help."""
    broker = start_kafka_broker(format_arguments=("--feature", "group.version=0"))
    with group_of(broker.bootstrap_servers) as group:
        member = group.ours("a").subscribe(group.topic())
        with pytest.raises(UnsupportedGroupProtocolError, match=r"classic.*--feature group\.version=1") as caught:
            drive(member, until=lambda: False, what="the error")
        assert caught.value.fatal
        assert member.raw.state is MemberState.FATAL
