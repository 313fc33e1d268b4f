"""Classic members of librdkafka, kafka-python and aiokafka in groups of the embedded broker."""

from __future__ import annotations

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.model import NamedPartition
from kip848_client.testing.broker.coordinators.snapshots import GroupSnapshot
from kip848_client.testing.broker.net.logged_request import LoggedRequest
from kip848_client.testing.faults import ALWAYS, close
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from tests.interop.embedded.classic_members import LIBRARIES, classic_member
from tests.interop.embedded.clients import all_keys, produce
from tests.interop.embedded.holding import Member
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [
    pytest.mark.kip848_broker(topics={"orders": 6}),
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # kafka-python; see PythonMember.leave
]

PARTITIONS = 6


def wait_for_shares(broker: EmbeddedBroker, *shares: int, group_id: str = "g") -> GroupSnapshot:
    """Wait until the group is stable, and so many partitions are with each of its members, in any order."""

    def are_shared(group: GroupSnapshot) -> bool:
        return (
            group.state == "Stable"
            and sorted(len(member.assigned) for member in group.members) == sorted(shares)
            and len(group.assigned) == PARTITIONS
        )

    return broker.groups.wait_for(group_id, are_shared, what=f"shares of {shares}", timeout_s=TIMEOUT_S)


def wait_for_heartbeat(broker: EmbeddedBroker, client_id: str, *, generation: int) -> None:
    """Wait until a member has heard that it is in *generation*."""

    def knows(request: LoggedRequest) -> bool:
        return isinstance(request.request, HeartbeatRequest) and request.request.generation_id == generation

    broker.requests.wait_for(ApiKey.HEARTBEAT, client_id=client_id, when=knows, answered=True, timeout_s=TIMEOUT_S)


def read(*members: Member) -> set[tuple[str, int, int]]:
    """What these members have read together."""
    return {key for member in members for key in tuple(member.delivered)}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_member_reads_everything_commits_and_leaves(broker: EmbeddedBroker, library: str) -> None:
    """The first thing that a user does with a group."""
    produce(broker.bootstrap_servers, "orders", 60, partitions=PARTITIONS)
    with classic_member(library, broker.bootstrap_servers) as member:
        wait_until(lambda: len(member.delivered) >= 60, what="60 records")
        group = wait_for_shares(broker, PARTITIONS)
    assert (group.type, group.leader) == ("classic", group.members[0].member_id)
    assert read(member) == all_keys("orders", 60, partitions=PARTITIONS)
    assert broker.wait_for_group("g", state="Empty", members=0).type == "classic"
    assert broker.groups.committed("g") == {NamedPartition("orders", n): 10 for n in range(PARTITIONS)}


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_partitions_of_a_member_that_died_go_to_the_others(broker: EmbeddedBroker, library: str) -> None:
    """A process is killed: it says nothing, and its session ends."""
    with classic_member(library, broker.bootstrap_servers, client_id="a") as a:
        wait_for_shares(broker, PARTITIONS)
        with classic_member(library, broker.bootstrap_servers, client_id="b", session_ms=3_000):
            wait_for_shares(broker, 3, 3)
            # What the coordinator does not hear of, has not been said.
            broker.faults.on(ApiKey.LEAVE_GROUP, close(), client_id="b", times=ALWAYS)
        wait_for_shares(broker, PARTITIONS)
        produce(broker.bootstrap_servers, "orders", 60, partitions=PARTITIONS)
        everything = all_keys("orders", 60, partitions=PARTITIONS)
        wait_until(lambda: read(a) == everything, what="60 records")


@pytest.mark.parametrize("library", [*LIBRARIES, "librdkafka consumer"])
def test_a_static_member_that_restarts_finds_its_partitions_without_a_rebalance(
    broker: EmbeddedBroker, library: str
) -> None:
    """A rolling restart does not stop the other members."""
    with classic_member(library, broker.bootstrap_servers, client_id="a", instance="ia") as a:
        wait_for_shares(broker, PARTITIONS)
        with classic_member(library, broker.bootstrap_servers, client_id="b", instance="ib") as b:
            before = wait_for_shares(broker, 3, 3)
        with classic_member(library, broker.bootstrap_servers, client_id="b", instance="ib") as again:
            old_id = before.member("b").member_id
            after = broker.groups.wait_for(
                "g",
                lambda group: group.member("b").member_id != old_id,
                what="the new process",
                timeout_s=TIMEOUT_S,
            )
            produce(broker.bootstrap_servers, "orders", 60, partitions=PARTITIONS)
            everything = all_keys("orders", 60, partitions=PARTITIONS)
            wait_until(lambda: read(a, b, again) == everything, what="60 records")
            assert (after.group_epoch, after.state) == (before.group_epoch, "Stable")
            assert after.member("b").assigned == before.member("b").assigned


@pytest.mark.parametrize("library", [*LIBRARIES, "librdkafka consumer"])
def test_members_go_on_after_a_crash_of_the_broker(broker: EmbeddedBroker, library: str) -> None:
    """The group is in the log: its members heartbeat on, and nothing moves."""
    with (
        classic_member(library, broker.bootstrap_servers, client_id="a") as a,
        classic_member(library, broker.bootstrap_servers, client_id="b") as b,
    ):
        group = wait_for_shares(broker, 3, 3)
        # kafka-python 3.0.12 does not join again if the connection is lost before it has the answer to the SyncGroup of
        # a rebalance that a change of metadata began: it stays "rebalancing" without heartbeats for ever.
        for client_id in ("a", "b") if group.type == "classic" else ():
            wait_for_heartbeat(broker, client_id, generation=group.group_epoch)
        broker.crash()
        broker.start()
        produce(broker.bootstrap_servers, "orders", 60, partitions=PARTITIONS)
        everything = all_keys("orders", 60, partitions=PARTITIONS)
        wait_until(lambda: read(a, b) == everything, what="60 records")
        assert wait_for_shares(broker, 3, 3).group_epoch == group.group_epoch
