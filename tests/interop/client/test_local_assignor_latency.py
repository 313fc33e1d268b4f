"""How long from a change of metadata to the new assignment in force, in heartbeats that the broker counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip848_client import EmbeddedBroker, MemberState
from kip848_client.testing.broker.net.logged_request import LoggedRequest
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.local_assignors import Weighing
from tests.support.driving import DrivenConsumer, drive

MEMBERS = 10
PARTITIONS = 40
INTERVAL_MS = 2_000
"""Long beside what polling ten consumers in turns takes, so that a busy machine does not count as a slow protocol."""
CONFIG = {"group.consumer.heartbeat.interval.ms": str(INTERVAL_MS), "group.consumer.session.timeout.ms": "60000"}

pytestmark = pytest.mark.kip848_broker(topics={"orders": PARTITIONS}, config=CONFIG)


def _drive(consumers: list[DrivenConsumer], *, until: Callable[[], bool]) -> None:
    """Poll all, quickly: an application that is slow to poll would be measured otherwise."""

    def turn() -> bool:
        for consumer in consumers[1:]:
            consumer.take(0)
        return until()

    drive(consumers[0], until=turn)


def _waited_for_the_interval(logged: LoggedRequest) -> bool:
    """Whether this heartbeat came because an interval was over, and not because there was something to say."""
    request = logged.request
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    return request.topic_partitions is None and request.client_assignors is None


@pytest.mark.slow
@pytest.mark.parametrize("asked", [False, True], ids=["metadata changes", "reassignment requested"])
def test_a_change_is_acknowledged_by_ten_members_within_three_heartbeat_intervals(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, asked: bool
) -> None:
    """A hot member waits for relief. One interval to notice, one until others give up partitions, one to get them."""
    assignors = [Weighing(4) for _ in range(MEMBERS)]
    # Without early heartbeats, which would count as intervals.
    consumers = [make_consumer(group_local_assignors=one, heartbeat_early_enable=False) for one in assignors]
    for consumer in consumers:
        consumer.subscribe("orders")

    def sizes() -> list[int]:
        return [len(consumer.partitions) for consumer in consumers]

    def settled() -> bool:
        group = broker.groups.get("g")
        return (
            group is not None
            and group.state == "Stable"
            and len(group.members) == MEMBERS
            and all(consumer.raw.state is MemberState.STABLE for consumer in consumers)
        )

    _drive(consumers, until=lambda: sizes() == [4] * MEMBERS and settled())
    group = broker.wait_for_group("g")
    epoch = group.group_epoch
    mark = broker.requests.mark()
    assignors[0].weight = 0
    if asked:
        consumers[0].raw.request_reassignment(1)

    def acknowledged() -> bool:
        now = broker.groups.get("g")
        return (
            now is not None
            and now.group_epoch > epoch
            and now.state == "Stable"
            and sorted(sizes()) == [0, *[4] * 5, *[5] * 4]
            and all(consumer.raw.state is MemberState.STABLE for consumer in consumers)
        )

    _drive(consumers, until=acknowledged)
    assert sizes()[0] == 0
    for consumer in consumers:
        beats = broker.requests.of(ApiKey.CONSUMER_GROUP_HEARTBEAT, member=consumer.raw.member_id, since=mark)
        assert sum(map(_waited_for_the_interval, beats)) <= 3, [str(logged) for logged in beats]
