"""The lag-aware assignor with real records: a member with a hot partition sheds what it has beside it, and all rest."""

from __future__ import annotations

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.assignors.library import LagAware
from kip848_client.wire.api_keys import ApiKey
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import delivered_once, keys_of, producer_for
from tests.support.driving import DrivenConsumer, drive

PARTITIONS = 9
HOT = 400
BEATS = 20
"""So many heartbeats of the whole group without a change are rest."""

pytestmark = pytest.mark.kip848_broker(topics={"orders": PARTITIONS})


def shares(broker: EmbeddedBroker) -> list[int]:
    """How many partitions the members own, once the group is at rest."""
    group = broker.groups.get("g")
    if group is None or group.state != "Stable" or group.assignor != "lag-aware":
        return []
    return sorted(len(member.assigned) for member in group.members)


def epoch(broker: EmbeddedBroker) -> int:
    """The group's."""
    group = broker.wait_for_group("g")
    return group.group_epoch


def test_the_hot_member_sheds_load_and_the_group_settles(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """Other members take over the neighbours of a hot partition, in at most two more assignments, without loss."""
    assignors = [LagAware(at_least=20) for _ in range(3)]
    ours: list[DrivenConsumer] = [make_consumer(group_local_assignors=one).subscribe("orders") for one in assignors]

    def reported() -> bool:
        for assignor, consumer in zip(assignors, ours, strict=True):
            assignor.report(consumer.raw.lag())
        return True

    with producer_for(broker.bootstrap_servers) as produce:
        produce("orders", 10, partitions=range(PARTITIONS))
        drive(*ours, until=lambda: reported() and shares(broker) == [3, 3, 3])
        drive(*ours, until=lambda: sum(len(one.delivered) for one in ours) == 10 * PARTITIONS)
        hot = next(one for one in ours if 0 in one.numbers)
        hot.raw.pause([one for one in hot.raw.assignment() if one.partition == 0])  # it cannot keep up
        produce("orders", HOT, partitions=[0])
        drive(*ours, until=lambda: reported() and hot.numbers == [0] and shares(broker) == [1, 4, 4])

        constant_since = epoch(broker)
        beats = len(broker.requests.of(ApiKey.CONSUMER_GROUP_HEARTBEAT))
        drive(
            *ours,
            until=lambda: reported() and len(broker.requests.of(ApiKey.CONSUMER_GROUP_HEARTBEAT)) > beats + 3 * BEATS,
        )
        assert epoch(broker) - constant_since <= 2
        assert shares(broker) == [1, 4, 4]

        hot.raw.resume(hot.raw.assignment())
        rest = epoch(broker)
        wanted = keys_of("orders", 10, partitions=range(PARTITIONS)) | keys_of("orders", HOT + 10, partitions=[0])
        drive(*ours, until=lambda: reported() and {key for one in ours for key in one.delivered} == wanted)
        beats = len(broker.requests.of(ApiKey.CONSUMER_GROUP_HEARTBEAT))
        drive(
            *ours,
            until=lambda: reported() and len(broker.requests.of(ApiKey.CONSUMER_GROUP_HEARTBEAT)) > beats + 3 * BEATS,
        )
    assert epoch(broker) == rest, "going back to what was too much would bring the lag again"
    assert delivered_once(ours) == wanted
