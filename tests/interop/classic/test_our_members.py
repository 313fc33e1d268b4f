"""Members of ours on the classic protocol: among themselves, and beside those of other libraries."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kip848_client import EmbeddedBroker
from kip848_client.assignors import AssignmentSpec, GroupAssignment, PartitionAssignor
from kip848_client.assignors.library import Weighted
from tests.interop.classic.conftest import PARTITIONS, Scene
from tests.interop.classic.members import CLASSIC, OurMember
from tests.interop.conftest import create_topic
from tests.interop.embedded.classic_members import LIBRARIES
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")]

CLIENTS = ("ours", "librdkafka", "java")
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
OURS = ("ours range", "ours roundrobin", "ours cooperative-sticky", "ours range,cooperative-sticky")


@pytest.mark.parametrize(
    ("scene", "name"),
    [
        *(("embedded", name) for name in (*OURS, *LIBRARIES)),
        *(pytest.param("kafka", name, marks=pytest.mark.kafka) for name in OURS),
    ],
    indirect=["scene"],
)
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(scene: Scene, name: str) -> None:
    """Scaling out and in, which is what groups are for: no record is lost, and none is read twice."""
    members = scene.scale_out_and_in(name, name)
    assert all(kind != "lost" for one in members if isinstance(one, OurMember) for kind, _ in one.told)


def test_members_of_three_libraries_share_one_group(embedded_scene: Scene) -> None:
    """Whichever of them leads, the others read what it has assigned."""
    embedded_scene.produce(60)
    members = [embedded_scene.start(library) for library in LIBRARIES if "cooperative" not in library]
    embedded_scene.wait_for_owned(*members, shares=(2, 2, 2))
    embedded_scene.produce(600)
    embedded_scene.wait_until_all_is_read()
    embedded_scene.leave(members.pop())
    embedded_scene.wait_for_owned(*members, shares=(3, 3))


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)  # the first run fetches jars
@pytest.mark.parametrize(
    ("scene", "leader", "strategy"),
    [
        *(("embedded", leader, strategy) for leader in CLIENTS for strategy in STRATEGIES),
        # No broker looks at what a leader assigns, so that one strategy of each is enough.
        *(("kafka", leader, strategy) for leader, strategy in zip(CLIENTS, STRATEGIES, strict=True)),
    ],
    indirect=["scene"],
)
def test_each_of_three_clients_leads_a_group_of_all_three(scene: Scene, strategy: str, leader: str) -> None:
    """A service is moved one process at a time, and the first member of a group leads it.

    When the leader goes, another client takes over: it has to give the others what they had, or everything moves.
    """
    first = scene.start(f"{leader} {strategy}")
    scene.wait_for_owned(first, shares=(PARTITIONS,))
    others = [scene.start(f"{client} {strategy}") for client in CLIENTS if client != leader]
    scene.wait_for_owned(first, *others, shares=(2, 2, 2))
    scene.produce(60)
    scene.wait_until_all_is_read()
    before = [member.owned for member in others]
    scene.leave(first)
    scene.wait_for_owned(*others, shares=(3, 3))
    assert strategy != "cooperative-sticky" or all(
        had <= member.owned for had, member in zip(before, others, strict=True)
    )
    scene.produce(60)
    scene.wait_until_all_is_read()
    assert set(scene.read.values()) == {1}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_joins_and_leaves_a_group_that_librdkafka_leads(embedded_scene: Scene, strategy: str) -> None:
    """The shortest test of a mixed group: it needs no Java."""
    first = embedded_scene.start(f"librdkafka {strategy}")
    embedded_scene.wait_for_owned(first, shares=(PARTITIONS,))
    second = embedded_scene.start(f"ours {strategy}")
    embedded_scene.wait_for_owned(first, second, shares=(3, 3))
    embedded_scene.leave(second)
    embedded_scene.wait_for_owned(first, shares=(PARTITIONS,))


@pytest.mark.parametrize("library", ["kafka-python", "aiokafka"])
def test_a_group_with_a_python_library_works(scene: Scene, library: str) -> None:
    """These write the oldest layout of a subscription, and no user data."""
    first = scene.ours()
    scene.wait_for_owned(first, shares=(PARTITIONS,))
    second = scene.theirs(library)
    scene.wait_for_owned(first, shares=(3,))
    scene.produce(60)
    scene.wait_until_all_is_read()
    assert second.delivered
    scene.leave(first)
    scene.produce(60)
    scene.wait_until_all_is_read()


class Raises(PartitionAssignor):
    name = "raises"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        if len(spec.members) > 1:
            raise RuntimeError("a bug of the user's")
        return GroupAssignment.of({next(iter(spec.members)): spec.partitions})


def test_an_assignor_of_ones_own_assigns(scene: Scene) -> None:
    """A machine of twice the size gets twice as many partitions, which librdkafka cannot do."""
    big = scene.ours(group_local_assignors=Weighted(8))
    scene.wait_for_owned(big, shares=(PARTITIONS,))
    small = scene.ours(group_local_assignors=Weighted(4))
    scene.wait_for_owned(big, small, shares=(4, 2))
    scene.produce(60)
    scene.wait_until_all_is_read()
    assert set(scene.read.values()) == {1}


def test_an_assignor_that_raises_moves_nothing(scene: Scene) -> None:
    """A bug in user code costs the new member its share, and no other member anything."""
    first = scene.ours(group_local_assignors=Raises())
    scene.wait_for_owned(first, shares=(PARTITIONS,))
    second = scene.ours(group_local_assignors=Raises())
    wait_until(lambda: second.told, what="an assignment of the second", timeout_s=60)
    scene.produce(60)
    scene.wait_until_all_is_read()
    assert (len(first.owned), len(second.owned)) == (PARTITIONS, 0)


@pytest.mark.kafka
def test_the_example_runs_on_apache_kafka(kafka_scene: Scene) -> None:
    """The first page about assignors promises it; nothing but the address differs."""
    example = Path(__file__).parents[3] / "examples" / "custom_assignor.py"
    command = [sys.executable, str(example), kafka_scene.bootstrap_servers, kafka_scene.topic, "8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = next(line for line in process.stdout if line.startswith("epoch"))
        process.send_signal(signal.SIGINT)
    assert told.endswith("6 partitions, error 0\n")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_get_partitions_with_a_replica_in_their_rack(strategy: str) -> None:
    """Traffic between zones is paid for; Java's leaders see to it, so ours have to."""
    racks = ("r1", "r2", "r3")
    with EmbeddedBroker(nodes=3, racks=racks) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        create_topic(admin, "orders", partitions=PARTITIONS)  # with one replica for each partition
        conf = CLASSIC | {"partition.assignment.strategy": strategy}
        with ExitStack() as stack:
            members = {
                rack: stack.enter_context(
                    OurMember(broker.bootstrap_servers, "orders", conf | {"client.rack": rack}, group_id="g")
                )
                for rack in reversed(racks)
            }
            described = admin.list_topics("orders", timeout=30)
            wanted = {rack: set[tuple[str, int]]() for rack in racks}
            for index, partition in described.topics["orders"].partitions.items():
                (replica,) = partition.replicas
                wanted[racks[sorted(described.brokers).index(replica)]].add(("orders", index))
            wait_until(
                lambda: {rack: set(member.owned) for rack, member in members.items()} == wanted,
                what=f"partitions in the racks of their replicas: {wanted}",
            )


def test_partitions_that_are_added_are_read(scene: Scene) -> None:
    """The broker does not tell a classic group that a topic has grown: its leader has to look."""
    first = scene.ours(partition_assignment_strategy="cooperative-sticky")
    scene.wait_for_owned(first, shares=(PARTITIONS,))
    scene.grow(8)
    scene.wait_for_owned(first, shares=(8,), partitions=8)


def test_a_pattern_is_matched_by_the_member(scene: Scene) -> None:
    """In a classic group no broker knows patterns."""
    scene.produce(60)
    first = scene.ours(topic=f"^{scene.topic[:3]}.*{scene.topic[-2:]}")
    scene.wait_for_owned(first, shares=(PARTITIONS,))
    scene.wait_until_all_is_read()
