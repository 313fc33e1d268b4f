"""Which node leads what: the pure placement of partitions and coordinators."""

from __future__ import annotations

import uuid

import pytest

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.metadata.placement import (
    GROUP_OFFSETS,
    NO_LEADER,
    PlacedPartition,
    Placement,
    coordinator_partition,
)

FOO = uuid.UUID(int=1)


def placed(factor: int = 2, *, partitions: int = 3, nodes: int = 3) -> Placement:
    placement = Placement(tuple(range(1, nodes + 1)), replication_factor=factor)
    placement.place(FOO, partitions)
    return placement


@pytest.mark.parametrize(
    ("key", "partition"),
    [("g", 3), ("orders", 31), ("payments", 13), ("polygenelubricants", 0), ("é", 33), ("😀", 49), ("tx-1", 20)],
)
def test_a_coordinator_is_found_by_javas_hash(key: str, partition: int) -> None:
    """A group would move when a test cluster takes the place of Kafka, and logs of both could not be compared.

    Source: measured on Apache Kafka 4.3.1. The hash of "polygenelubricants" is the lowest number.
    """
    assert coordinator_partition(key) == partition


def test_leaders_and_replicas_are_spread_over_the_nodes() -> None:
    """One node would have all the load, and its death would move everything."""
    placement = placed()
    assert [(each.leader, each.replicas) for each in placement.of(FOO)] == [(1, (1, 2)), (2, (2, 3)), (3, (3, 1))]
    other = uuid.UUID(int=2)
    placement.place(other, 1)
    assert placement.get(other, 0).leader == 2
    assert {len(placement.led_by(GROUP_OFFSETS, node)) for node in (1, 2, 3)} == {16, 17}


def test_a_dead_node_hands_over_what_it_led_and_nothing_else() -> None:
    """An epoch that grew for a dead follower would fence consumers of partitions that nothing happened to."""
    placement = placed()
    changes = [change for change in placement.node_died(2) if change.topic == FOO]
    assert [(change.partition, change.old, change.new) for change in changes] == [(1, 2, 3)]
    assert [(each.leader, each.epoch) for each in placement.of(FOO)] == [(1, 0), (3, 1), (3, 0)]
    assert [placement.in_sync(each) for each in placement.of(FOO)] == [(1,), (3,), (3, 1)]
    assert [placement.offline(each) for each in placement.of(FOO)] == [(2,), (2,), ()]


def test_a_node_that_comes_back_leads_what_has_no_leader_and_on_demand_what_it_prefers() -> None:
    """A rolling restart would end with dead partitions, or each return of a node would disturb everybody again."""
    placement = placed(factor=1)
    placement.node_died(2)
    assert placement.get(FOO, 1) == PlacedPartition((2,), NO_LEADER, 1)
    placement.node_back(2, preferred=False)
    assert placement.get(FOO, 1) == PlacedPartition((2,), 2, 2)
    spread = placed()
    spread.node_died(2)
    spread.node_back(2, preferred=False)
    assert spread.get(FOO, 1).leader == 3
    spread.node_died(2)
    spread.node_back(2, preferred=True)
    assert spread.get(FOO, 1) == PlacedPartition((2, 3), 2, 2)


def test_a_leader_is_moved_to_a_replica_or_takes_its_replica_along() -> None:
    """A test that moves a leader somewhere would find a leader that is no replica, which clients do not understand."""
    placement = placed()
    assert placement.move(FOO, 0, 1) is None
    placement.move(FOO, 0, 2)
    assert placement.get(FOO, 0) == PlacedPartition((1, 2), 2, 1)
    placement.move(FOO, 0, 3)
    assert placement.get(FOO, 0) == PlacedPartition((1, 3), 3, 2)
    placement.node_died(1)
    with pytest.raises(ValueError, match="node 1 is not running"):
        placement.move(FOO, 0, 1)


def test_a_restart_leads_everything_where_it_was_with_the_next_epoch() -> None:
    """A test that restarts its cluster would see a fail-over that it did not cause."""
    before = placed()
    before.move(FOO, 0, 2)
    after = Placement((1, 2, 3), replication_factor=2)
    assert after.restore(FOO, before.of(FOO))
    assert [(each.leader, each.epoch) for each in after.of(FOO)] == [(2, 2), (2, 1), (3, 1)]
    assert not Placement((1, 2), replication_factor=2).restore(FOO, before.of(FOO)), "node 3 is not there"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"assignments": [(1, 4)]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(1, 1)]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(1, 2), (3,)]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_replicas_on_nodes_that_are_not_there_are_refused(arguments: dict[str, object], code: ErrorCode) -> None:
    """A topic would be created whose partitions no node can ever lead."""
    with pytest.raises(BrokerError) as refused:
        Placement((1, 2, 3)).place(FOO, 1, **arguments)  # type: ignore[arg-type]
    assert refused.value.code == code
