"""A cluster is upgraded in place, to a version with KIP-848, under members that chose the classic protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client import Consumer
from kip848_client.errors import UnsupportedGroupProtocolError
from tests.interop.classic.conftest import Scene, scene_on
from tests.interop.conftest import require_kafka
from tests.interop.embedded.holding import Member, overlaps
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.kafka_libs import kafka_version
from tests.support.waiting import wait_until

LAST_WITHOUT_KIP_848 = "3.9.1"
OUTAGE_MS_MAX = 120_000
"""As long as a broker may take to stop and to start."""

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]
# The time limit leaves room for the first download of the jars.


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    require_kafka()
    with KafkaBroker(version=LAST_WITHOUT_KIP_848) as started:
        yield started


@pytest.fixture
def scene(request: pytest.FixtureRequest, broker: KafkaBroker) -> Iterator[Scene]:
    with scene_on(request, broker.bootstrap_servers) as made:
        yield made


def assert_kip_848_is_refused(scene: Scene) -> None:
    settings = {"bootstrap.servers": scene.bootstrap_servers, "group.id": scene.group_id, "log_level": 0}
    with Consumer(settings) as consumer:
        consumer.subscribe([scene.topic])
        with pytest.raises(UnsupportedGroupProtocolError, match=r"classic.*--feature group\.version=1"):
            wait_until(lambda: consumer.poll(0.1), what="the refusal")


def test_classic_members_live_on_and_move_to_kip_848_when_its_feature_is_raised(
    scene: Scene, broker: KafkaBroker
) -> None:
    """The way of most clusters to KIP-848: new jars first, the feature some day, then the clients."""
    # librdkafka's member joins again by itself after an outage as long as its session, which revokes all partitions; a
    # busy machine takes long to start a broker.
    ours = [scene.ours(partition_assignment_strategy="range", session_timeout_ms=OUTAGE_MS_MAX) for _ in range(2)]
    members: list[Member] = [*ours, scene.theirs("librdkafka range", session_ms=OUTAGE_MS_MAX)]
    scene.wait_for_owned(*members, shares=(2, 2, 2))
    assert_kip_848_is_refused(scene)
    told = [list(member.told) for member in ours]
    with scene.records_flowing():
        scene.wait_for_reading()
        broker.upgrade(kafka_version())
        scene.wait_for_reading()
        assert_kip_848_is_refused(scene)
        broker.finalize_features("metadata.version", "group.version")
        scene.wait_for_reading()
        assert [member.told for member in ours] == told
        for number in range(3):
            scene.leave(members[number])
            members[number] = scene.start("ours consumer")
            scene.wait_for_owned(*members, shares=(2, 2, 2))
            scene.wait_for_reading()
    scene.wait_until_all_is_read()
    assert not overlaps(scene.members)
    assert set(scene.read.values()) == {1}
