"""Apache Kafka's own clients (Java) on the embedded broker. Needs a JDK; Maven, too, for the first download."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.model import NamedPartition
from kip848_client.testing.broker.coordinators.snapshots import GroupSnapshot
from tests.interop.embedded.clients import MemberThread, all_keys, continues_a_session, produce
from tests.interop.embedded.java_member import JavaMember
from tests.support.driving import Key
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [
    pytest.mark.kip848_broker(topics={"orders": 2}),
    pytest.mark.interop,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]
# The time limit leaves room for the first download of the jars.

Run = Callable[..., list[str]]
Join = Callable[..., JavaMember]


@pytest.fixture
def run(java: list[str], broker: EmbeddedBroker) -> Run:
    """Run one task to its end and return what it said."""

    def run_task(task: str, *arguments: str) -> list[str]:
        command = [*java, task, broker.bootstrap_servers, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return run_task


@pytest.fixture
def join(java: list[str], broker: EmbeddedBroker) -> Iterator[Join]:
    """Start a member; whatever still runs in the end is killed."""
    members = []

    def join_group(topic: str, *properties: str) -> JavaMember:
        members.append(JavaMember(java, broker.bootstrap_servers, "g", topic, *properties))
        return members[-1]

    yield join_group
    for member in members:
        member.kill()


def test_the_idempotent_producer_writes_and_a_member_reads_commits_and_leaves(
    broker: EmbeddedBroker, run: Run, join: Join
) -> None:
    """Apache Kafka's client is the reference: what it takes for granted must be there."""
    assert len([fact for fact in run("produce", "orders", "50", "2") if fact.startswith("acked ")]) == 50
    member = join("orders")
    wait_until(lambda: member.keys() == all_keys("orders", 50, partitions=2), TIMEOUT_S, "50 records")
    group = broker.wait_for_group("g", state="Stable", members=1)
    assert len(group.assigned) == 2
    broker.requests.wait_for("Fetch", when=continues_a_session)  # records come by fetch sessions
    member.leave()
    assert member.facts[-2:] == ["revoked [0, 1]", "closed"]
    assert broker.wait_for_group("g", state="Empty", members=0).group_epoch == 2


def test_a_java_member_and_a_librdkafka_member_share_a_group(broker: EmbeddedBroker, join: Join) -> None:
    """Two implementations reconcile with each other: nothing twice, nothing lost."""
    produce(broker.bootstrap_servers, "orders", 40, partitions=2)
    java_member = join("orders", "client.id=java")
    wait_until(lambda: java_member.keys() == all_keys("orders", 40, partitions=2), TIMEOUT_S, "40 records")
    with MemberThread(broker.bootstrap_servers, ["orders"], client_id="librdkafka") as other:
        group = broker.wait_for_group("g", state="Stable", members=2, timeout_s=TIMEOUT_S)
        assert [len(member.assigned) for member in group.members] == [1, 1]
        produce(broker.bootstrap_servers, "orders", 40, partitions=2)
        wait_until(
            lambda: java_member.keys() | other.keys() == all_keys("orders", 80, partitions=2),
            TIMEOUT_S,
            "80 records",
        )
        assert not java_member.keys() & other.keys()
    broker.groups.wait_for("g", lambda group: group.state == "Stable" and len(group.assigned) == 2, timeout_s=TIMEOUT_S)


def test_a_pattern_of_the_java_client_is_matched_by_the_coordinator(broker: EmbeddedBroker, join: Join) -> None:
    """SubscriptionPattern sends the expression as it is (heartbeat version 1)."""
    broker.topics.create("audit", 1)
    join("^ord.*")
    group = broker.groups.wait_for(
        "g", lambda group: group.state == "Stable" and len(group.assigned) == 2, timeout_s=TIMEOUT_S
    )
    assert {partition.topic for partition in group.assigned} == {"orders"}


CLASSIC: Final = ("group.protocol=classic", "session.timeout.ms=45000", "heartbeat.interval.ms=200")
ASSIGNORS: Final = "partition.assignment.strategy=org.apache.kafka.clients.consumer."


@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_classic_java_members_share_a_group_and_take_over_from_one_that_dies(
    broker: EmbeddedBroker, join: Join, assignor: str
) -> None:
    """Java's default protocol is what most consumers in the world speak."""
    one = join("orders", *CLASSIC, ASSIGNORS + assignor, "client.id=one")
    broker.groups.wait_for("g", lambda group: group.state == "Stable" and len(group.assigned) == 2, timeout_s=TIMEOUT_S)
    two = join("orders", *CLASSIC, ASSIGNORS + assignor, "client.id=two", "session.timeout.ms=3000")
    shared = broker.groups.wait_for(
        "g",
        lambda group: group.state == "Stable" and [len(member.assigned) for member in group.members] == [1, 1],
        timeout_s=TIMEOUT_S,
    )
    assert (shared.type, len(shared.assigned)) == ("classic", 2)
    produce(broker.bootstrap_servers, "orders", 40, partitions=2)
    everything = all_keys("orders", 40, partitions=2)
    wait_until(lambda: one.keys() | two.keys() == everything, TIMEOUT_S, "40 records")
    two.kill()
    broker.groups.wait_for("g", lambda group: group.state == "Stable" and len(group.members) == 1, timeout_s=TIMEOUT_S)
    produce(broker.bootstrap_servers, "orders", 40, partitions=2)
    everything = all_keys("orders", 80, partitions=2)
    wait_until(lambda: one.keys() | two.keys() == everything, TIMEOUT_S, "80 records")


@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_java_members_move_to_kip_848_and_back_one_by_one(broker: EmbeddedBroker, join: Join, assignor: str) -> None:
    """The migration that Kafka's own users will do; Java's cooperative members are upgraded, too."""
    classic = (*CLASSIC, ASSIGNORS + assignor)

    def are_shared(kind: str) -> Callable[[GroupSnapshot], bool]:
        return lambda group: (
            (group.type, group.state, [len(member.assigned) for member in group.members]) == (kind, "Stable", [1, 1])
        )

    def have_read(count: int) -> bool:
        return set[Key]().union(*(member.keys() for member in every)) == all_keys("orders", count, partitions=2)

    members = [join("orders", *classic) for _ in range(2)]
    every = list(members)
    broker.groups.wait_for("g", are_shared("classic"), what="two classic members", timeout_s=TIMEOUT_S)
    rolls = [(0, (), "consumer"), (1, (), "consumer"), (0, classic, "consumer"), (1, classic, "classic")]
    for count, (number, properties, kind) in enumerate(rolls, 1):
        produce(broker.bootstrap_servers, "orders", 40, partitions=2)
        members[number].leave()
        members[number] = join("orders", *properties)
        every.append(members[number])
        broker.groups.wait_for("g", are_shared(kind), what=f"a {kind} group of two", timeout_s=TIMEOUT_S)
        wait_until(partial(have_read, 40 * count), TIMEOUT_S, "every record")
    assert sum(len(member.keys()) for member in every) == 160


def test_a_static_java_member_that_restarts_moves_nothing(broker: EmbeddedBroker, join: Join) -> None:
    """It leads the group, and is told not to assign again (KIP-814)."""
    produce(broker.bootstrap_servers, "orders", 40, partitions=2)
    static = (*CLASSIC, "group.instance.id=i", "session.timeout.ms=300000")  # a Java process takes seconds to start
    first = join("orders", *static)
    wait_until(lambda: first.keys() == all_keys("orders", 40, partitions=2), TIMEOUT_S, "40 records")
    before = broker.wait_for_group("g", state="Stable", members=1)
    first.kill()
    second = join("orders", *static)
    after = broker.groups.wait_for(
        "g", lambda group: group.members != before.members and group.state == "Stable", timeout_s=TIMEOUT_S
    )
    produce(broker.bootstrap_servers, "orders", 40, partitions=2)
    everything = all_keys("orders", 80, partitions=2)
    wait_until(lambda: first.keys() | second.keys() == everything, TIMEOUT_S, "80 records")
    assert (after.group_epoch, after.assigned) == (before.group_epoch, before.assigned)


@pytest.mark.parametrize(("level", "end_version", "adds_partitions"), [(2, 5, False), (1, 4, True)])
def test_java_producers_commit_abort_and_are_fenced_in_both_versions_of_transactions(
    java: list[str], level: int, end_version: int, adds_partitions: bool
) -> None:
    """Java's producer is the only one here that speaks the version of KIP-890, by what the broker has finalised."""
    config = {"kip848.transaction.version": level}
    with EmbeddedBroker({"orders": 2}, config=config) as broker:
        command = [*java, "transact", broker.bootstrap_servers, "orders"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.stdout.splitlines() == ["refused ProducerFencedException", "read [kept, last]"], done.stderr
        assert broker.groups.committed("g") == {NamedPartition("orders", 0): 5}
        assert [record.value for record in broker.records("orders", partition=1)] == [b"kept"]
        assert {request.version for request in broker.requests.of("EndTxn")} == {end_version}
        assert bool(broker.requests.of("AddPartitionsToTxn")) == adds_partitions


def test_the_administrator_does_its_daily_work(broker: EmbeddedBroker, run: Run) -> None:
    """Topics, cluster, offsets, group settings, groups: through the newest version of each API."""
    produce(broker.bootstrap_servers, "orders", 20, partitions=2)
    with MemberThread(broker.bootstrap_servers, ["orders"]) as member:
        wait_until(lambda: len(member.delivered) == 20, what="20 records")
    assert run("admin") == [
        "topics [orders, users]",
        "partitions 3",
        "nodes 1",
        "end 10",
        "session 700",
        "group g Consumer Empty",
        "described Empty 0 uniform",
        "offsets 10",
        "topics [orders]",
    ]
    assert broker.topics == {"orders": 2}
    assert broker.groups.ids() == ()
