"""The classic protocol on the oldest Apache Kafka that starts here: most clusters are older than KIP-848."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client import Admin, Consumer
from kip848_client.admin import GroupDescription
from kip848_client.assignors.library import Weighted
from kip848_client.errors import UnsupportedByBrokerError, UnsupportedGroupProtocolError, UnsupportedVersionError
from tests.interop.classic.conftest import PARTITIONS, Scene, scene_on
from tests.interop.conftest import require_kafka
from tests.interop.old_kafka import OldKafka
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]
# The time limit leaves room for the first download of the jars.


@pytest.fixture(scope="module")
def old_kafka() -> Iterator[OldKafka]:
    require_kafka()
    with OldKafka() as broker:
        yield broker


@pytest.fixture
def old_scene(request: pytest.FixtureRequest, old_kafka: OldKafka) -> Iterator[Scene]:
    with scene_on(request, old_kafka.bootstrap_servers) as made:
        yield made


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_share_a_group_with_librdkafka(old_scene: Scene, strategy: str) -> None:
    """Records, commits, rebalances and leaving need no API that came after 2019."""
    old_scene.scale_out_and_in(f"ours {strategy}", f"librdkafka {strategy}")


def test_an_assignor_of_ones_own_assigns(old_scene: Scene) -> None:
    """The reason to use the classic protocol of this library on a cluster that offers nothing else."""
    big, small = (old_scene.ours(group_local_assignors=Weighted(weight)) for weight in (8, 4))
    old_scene.wait_for_owned(big, small, shares=(4, 2))
    old_scene.produce(60)
    old_scene.wait_until_all_is_read()
    assert (len(big.owned), len(small.owned)) == (4, 2)


def test_kip_848_is_refused_with_the_line_to_change(old_scene: Scene) -> None:
    """The default protocol of this library is not there; the user is told at once, and how to go on."""
    settings = {"bootstrap.servers": old_scene.bootstrap_servers, "group.id": old_scene.group_id, "log_level": 0}
    with Consumer(settings) as consumer:
        consumer.subscribe([old_scene.topic])
        with pytest.raises(UnsupportedGroupProtocolError, match=r"group\.protocol=classic"):
            wait_until(lambda: consumer.poll(0.1), what="the refusal")


def test_an_administrator_asks_what_an_old_cluster_can_answer(old_scene: Scene) -> None:
    """Lag and resets need no API that came after 2019; what does is named."""
    member = old_scene.ours(partition_assignment_strategy="range")
    old_scene.wait_for_owned(member, shares=(PARTITIONS,))
    old_scene.produce(60)
    old_scene.wait_until_all_is_read()
    group_id = old_scene.group_id
    with Admin({"bootstrap.servers": old_scene.bootstrap_servers}) as admin:
        assert group_id in {one.group_id for one in admin.list_groups().found}
        described = admin.describe_groups([group_id, "unheard-of"])
        lag = admin.lag([group_id])[group_id]
        admin.commit_offsets(f"{group_id}-copy", {one.partition: 4 for one in lag.progress})
        admin.apply_reset(admin.plan_reset(f"{group_id}-copy", "latest"))
        copied = admin.lag([f"{group_id}-copy"])[f"{group_id}-copy"]
        with pytest.raises(UnsupportedByBrokerError, match="does not serve ListTransactions"):
            admin.list_transactions()
        with pytest.raises(UnsupportedVersionError):
            admin.list_groups(types=["consumer"])

    group = described[group_id]
    assert isinstance(group, GroupDescription)
    assert {one.owner for one in lag.progress} == {one.client_id for one in group.members}
    assert sum(one.end or 0 for one in lag.progress) == 60
    assert copied.lag == 0
    assert list(described.errors) == ["unheard-of"]
