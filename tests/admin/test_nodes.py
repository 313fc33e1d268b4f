"""`Admin` and a cluster of three nodes: nodes that die, move what they have, or do not answer."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

from kip848_client import Admin, EmbeddedBroker


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    """Offsets of groups whose coordinators are all three nodes."""
    with EmbeddedBroker({"orders": 3}, nodes=3, config={"default.replication.factor": "3"}) as broker:
        for number in range(12):
            conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"group-{number}"}
            foreign = confluent_kafka.Consumer({**conf, "group.protocol": "classic"})
            foreign.commit(offsets=[confluent_kafka.TopicPartition("orders", number % 3, 0)], asynchronous=False)
            foreign.close()
        yield broker


def test_groups_of_all_coordinators_come_together(cluster: EmbeddedBroker) -> None:
    """A program must not know which node coordinates which group, nor miss those of one node."""
    names = [f"group-{number}" for number in range(12)]
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        assert {cluster.nodes.coordinator(group=name) for name in names} == {1, 2, 3}
        assert [one.group_id for one in admin.list_groups().found] == sorted(names)
        assert sorted(admin.lag(names).values) == sorted(names)


def test_a_coordinator_that_moves_is_found_again(cluster: EmbeddedBroker) -> None:
    """Brokers are restarted while monitors run; open connections still lead to the old node."""
    names = [f"group-{number}" for number in range(12)]
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.lag(names).raise_errors()
        for name in names:
            cluster.nodes.move_coordinator(group=name, to=1)
        cluster.nodes.kill(3)
        found = admin.lag(names)

    assert sorted(found.values) == sorted(names)


def test_a_partition_without_a_leader_does_not_hold_up_the_lag_of_groups(cluster: EmbeddedBroker) -> None:
    """One broken disk would blind a monitor of all groups."""
    cluster.topics.create("broken", replication_factor=1)
    leader = cluster.nodes.leader("broken", 0)
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "group-0", "group.protocol": "classic"}
    foreign = confluent_kafka.Consumer(conf)
    foreign.commit(offsets=[confluent_kafka.TopicPartition("broken", 0, 0)], asynchronous=False)
    foreign.close()
    cluster.nodes.kill(leader)
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        lag = admin.lag(["group-0"], timeout_s=300)["group-0"]

    assert {str(one.partition): one.lag for one in lag.progress} == {"broken-0": None, "orders-0": 0}


def test_a_node_that_is_silent_does_not_hide_the_others(cluster: EmbeddedBroker) -> None:
    """Nine of ten answers are what an operator needs while the tenth node hangs."""
    names = [f"group-{number}" for number in range(12)]
    with Admin({"bootstrap.servers": cluster.nodes[1].bootstrap_server}) as admin:
        silent = {name for name in names if cluster.nodes.coordinator(group=name) == 2}
        cluster.nodes.pause(2)
        found = admin.committed_offsets(names, timeout_s=2)
        listed = admin.list_groups(timeout_s=2)
        cluster.nodes.resume(2)

    assert found.errors.keys() == silent
    assert found.values.keys() == set(names) - silent
    assert list(listed.errors) == [2]
    assert {one.group_id for one in listed.found} == set(names) - silent
