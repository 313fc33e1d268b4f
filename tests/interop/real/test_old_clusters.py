"""Clusters that have the protocol switched off, or groups that belong to the protocol before."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from kip848_client import MemberState
from kip848_client.errors import UnsupportedGroupProtocolError
from tests.interop.conftest import CreateTopic, StartKafkaBroker, create_topic
from tests.interop.real.administrator import Administrator
from tests.interop.real.conftest import MakeOurs, MakeTheirs
from tests.interop.real.ledger import Ledger
from tests.interop.real.members import Feed, assert_read_once, everything_is_read, take_turns

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def test_a_cluster_without_the_protocol_says_so_at_once_and_what_to_do(
    start_kafka_broker: StartKafkaBroker, ours: MakeOurs
) -> None:
    """An upgraded cluster whose group.version was never raised: waiting for ever would not help."""
    broker = start_kafka_broker(format_arguments=("--feature", "group.version=0"))
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}), "orders")
    member = ours("a", at=broker.bootstrap_servers).subscribe("orders")

    with pytest.raises(UnsupportedGroupProtocolError, match=r"consumer group protocol.*classic") as caught:
        take_turns(member, until=lambda: False, what="the error")

    assert caught.value.fatal
    assert member.consumer.state is MemberState.FATAL
    member.close()


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_we_join_a_classic_group_while_it_works_and_leave_it_again(
    kafka_topic: CreateTopic,
    feed: Feed,
    ours: MakeOurs,
    theirs: MakeTheirs,
    administrator: Administrator,
    ledger: Ledger,
    group_id: str,
    strategy: str,
) -> None:
    """The upgrade without downtime: the coordinator converts the group, old members stay, and nothing is read twice."""
    topic = kafka_topic(partitions=4)
    feed.write(topic, 20, partitions=4)
    classic = theirs(
        "classic", group_protocol="classic", partition_assignment_strategy=strategy, heartbeat_interval_ms=200
    ).subscribe(topic)
    take_turns(classic, until=everything_is_read(ledger, feed), what="all records")

    our = ours("ours").subscribe(topic)
    take_turns(
        classic, our, until=lambda: len(classic.partitions) == len(our.partitions) == 2, what="two partitions each"
    )
    feed.write(topic, 20, partitions=4)
    take_turns(classic, our, until=everything_is_read(ledger, feed), what="all records")
    converted = administrator.group(group_id)
    our.close()
    take_turns(classic, until=lambda: len(classic.partitions) == 4, what="everything back to the classic member")
    feed.write(topic, 20, partitions=4)
    take_turns(classic, until=everything_is_read(ledger, feed), what="all records")

    assert {member.client_id for member in converted.members} == {"classic", "ours"}
    assert administrator.group(group_id).members == ()  # it is a classic group again
    assert "lost" not in our.kinds()
    assert_read_once(ledger, feed)
