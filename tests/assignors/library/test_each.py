"""What each ready-made assignor is for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    ConsumerGroupMetadata,
    GroupAssignment,
    MemberAssignment,
)
from kip848_client.assignors.library import Buckets, CoPartitioned, Priority, RackAware, Standby, Weighted
from kip848_client.assignors.library.buckets import divide
from kip848_client.assignors.library.metadata_json import encode
from kip848_client.common.model import NamedPartition
from tests.support.assignor_specs import counts, group, partitions_of, tip


def _with_racks(spec: AssignmentSpec, racks: dict[str, str]) -> AssignmentSpec:
    members = {m: replace(member, rack_id=racks.get(m)) for m, member in spec.members.items()}
    return replace(spec, members=members)


def _topic_counts(assignment: GroupAssignment, member_id: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for partition in partitions_of(assignment, member_id):
        found[partition.topic] = found.get(partition.topic, 0) + 1
    return found


def test_weighted_gives_in_proportion() -> None:
    """A machine with three times the cores reads three times the partitions."""
    spec = group(
        {"big": ["t"], "small": ["t"]}, {"t": 12}, metadata={"big": Weighted(3).metadata().metadata, "small": b""}
    )
    assert counts(Weighted().assign(spec)) == {"big": 9, "small": 3}


def test_weighted_drains_a_member_of_weight_zero() -> None:
    """Before a machine is taken down its partitions go elsewhere, and it still is a member."""
    spec = group({"a": ["t"], "b": ["t"]}, {"t": 5}, metadata={"a": Weighted(0).metadata().metadata})
    assert counts(Weighted().assign(spec)) == {"a": 0, "b": 5}


def test_weighted_asks_a_function_each_time() -> None:
    """The weight may change while the program runs."""
    weights = iter([1.0, 2.5, None])
    assignor = Weighted(lambda: next(weights))
    assert [assignor.metadata().metadata for _ in range(3)] == [b'{"weight":1.0}', b'{"weight":2.5}', b'{"weight":1.0}']


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weighted_refuses_a_weight_that_means_nothing(weight: float) -> None:
    """At construction, where it was written, and not in another member's assignment."""
    with pytest.raises(ValueError, match="weights are finite and not negative"):
        Weighted(weight)


def test_priority_spreads_the_important_topic_by_itself() -> None:
    """With a plain spread one member could have all partitions of the busy topic and still be 'balanced'."""
    held = {"a": [tip("busy", 0), tip("busy", 1), tip("busy", 2)], "b": [tip("idle", i) for i in range(3)]}
    spec = group({"a": ["busy", "idle"], "b": ["busy", "idle"]}, {"busy": 3, "idle": 3}, held=held)
    found = Priority({"busy": 1}).assign(spec)
    assert sorted(_topic_counts(found, m).get("busy", 0) for m in ("a", "b")) == [1, 2]
    assert counts(found) == {"a": 3, "b": 3}


def test_buckets_keep_premium_partitions_to_their_members() -> None:
    """Records of gold customers must not wait behind those of all others."""
    gold = {f"g{i}": Buckets({"gold": 70, "rest": 30}, "gold").metadata().metadata for i in range(2)}
    rest = {"r": Buckets({"gold": 70, "rest": 30}, "rest").metadata().metadata}
    spec = group({m: ["t"] for m in (*gold, *rest)}, {"t": 10}, metadata={**gold, **rest})
    found = Buckets({"gold": 70, "rest": 30}).assign(spec)
    assert [p.partition for p in partitions_of(found, "r")] == [7, 8, 9]
    assert sorted(len(partitions_of(found, m)) for m in gold) == [3, 4]


def test_a_bucket_without_members_is_served_by_all() -> None:
    """Nothing is left unread because the last gold consumer went away."""
    rest = Buckets({"gold": 1, "rest": 1}, "rest").metadata().metadata
    spec = group({"a": ["t"], "b": ["t"]}, {"t": 8}, metadata={"a": rest, "b": rest})
    assert counts(Buckets({"gold": 1, "rest": 1}).assign(spec)) == {"a": 4, "b": 4}


@pytest.mark.parametrize(
    ("shares", "count", "sizes"),
    [
        ({"a": 70, "b": 30}, 10, [7, 3]),
        ({"a": 1, "b": 1, "c": 1}, 10, [4, 3, 3]),
        ({"a": 7, "b": 3}, 1, [1, 0]),
        ({"a": 1, "b": 2}, 0, [0, 0]),
        ({"a": 0.1, "b": 0.2, "c": 0.7}, 7, [1, 1, 5]),
    ],
)
def test_partitions_are_divided_by_share(shares: dict[str, float], count: int, sizes: list[int]) -> None:
    """Producers and consumers must agree on which partitions are whose: largest remainders round up."""
    runs = divide(shares, count)
    assert [len(run) for run in runs.values()] == sizes
    assert [index for run in runs.values() for index in run] == list(range(count))


def test_co_partitioned_topics_are_read_by_one_member_and_stay_with_it() -> None:
    """A join by key needs both sides, and the state that it built."""
    topics = {"orders": 6, "payments": 6}
    before = CoPartitioned().assign(group({"a": list(topics), "b": list(topics)}, topics))
    after = CoPartitioned().assign(group({m: list(topics) for m in "abc"}, topics, target=before))
    for member_id in "abc":
        numbers = [p.partition for p in partitions_of(after, member_id) if p.topic == "orders"]
        assert numbers == [p.partition for p in partitions_of(after, member_id) if p.topic == "payments"]
        assert len(numbers) == 2
    for member_id in "ab":
        assert {*partitions_of(after, member_id)} < {*partitions_of(before, member_id)}


def test_co_partitioned_topics_of_different_size_are_refused_by_name() -> None:
    """Assigning them anyway would make every join of the two topics silently wrong."""
    spec = group({"a": ["x", "y"]}, {"x": 2, "y": 3})
    with pytest.raises(ValueError, match="x has 2, y has 3"):
        CoPartitioned([["x", "y"]]).assign(spec)


def test_rack_aware_reads_in_the_own_rack_where_balance_allows() -> None:
    """Traffic between zones is paid for by the byte."""
    racks = {"t": [["r1"], ["r2"], ["r1"], ["r2"]]}
    spec = _with_racks(group({"a": ["t"], "b": ["t"]}, {"t": 4}), {"a": "r2", "b": "r1"})
    found = RackAware(racks).assign(spec)
    assert [p.partition for p in partitions_of(found, "a")] == [1, 3]
    assert [p.partition for p in partitions_of(RackAware(lambda _, i: racks["t"][i]).assign(spec), "b")] == [0, 2]


def _standbys(found: GroupAssignment, member_id: str) -> set[NamedPartition]:
    assignor = Standby()
    group_metadata = ConsumerGroupMetadata("g", member_id, 1)
    assignor.on_assignment(0, found.members[member_id], group_metadata)
    return {*assignor.standby}


def _reported(found: GroupAssignment, member_ids: str) -> dict[str, bytes]:
    """What the members tell after *found*: that they have the copies that it asked for."""
    return {m: found.members[m].metadata for m in member_ids}


def test_a_lost_owner_is_followed_by_a_standby_of_each_partition() -> None:
    """The copy of the state is there already: that is the point of a standby."""
    before = Standby().assign(group({m: ["t"] for m in "abcd"}, {"t": 12}))
    lost = {p.topic_partition for p in partitions_of(before, "a")}
    standby_of = {p: m for m in "bcd" for p in _standbys(before, m) if p in lost}
    assert standby_of.keys() == lost
    rest = group({m: ["t"] for m in "bcd"}, {"t": 12}, target=before, metadata=_reported(before, "bcd"))
    after = Standby().assign(rest)
    new_owner = {p.topic_partition: m for m in "bcd" for p in partitions_of(after, m)}
    assert {p: new_owner[p] for p in lost} == standby_of


def test_copies_that_are_there_are_kept() -> None:
    """A copy takes long to make: a member that joins takes over some, and the others stay where they are."""
    before = Standby().assign(group({m: ["t"] for m in "abc"}, {"t": 12}))
    spec = group({m: ["t"] for m in "abcd"}, {"t": 12}, target=before, metadata=_reported(before, "abc"))
    after = Standby().assign(spec)
    for member_id in "abc":
        assert len(_standbys(before, member_id) & _standbys(after, member_id)) >= 3
    again = group({m: ["t"] for m in "abcd"}, {"t": 12}, target=after, metadata=_reported(after, "abcd"))
    assert {m: _standbys(Standby().assign(again), m) for m in "abcd"} == {m: _standbys(after, m) for m in "abcd"}


def test_no_member_stands_by_for_what_it_owns_and_all_stand_by_for_a_fair_share() -> None:
    """Copies beside the original, or all in one place, protect nothing."""
    spec = group({m: ["t"] for m in "abcd"}, {"t": 40})
    found = Standby(copies=2).assign(spec)
    for member_id in "abcd":
        own = {p.topic_partition for p in partitions_of(found, member_id)}
        standby = _standbys(found, member_id)
        assert not own & standby
        assert 18 <= len(standby) <= 22
    assert sum(len(_standbys(found, m)) for m in "abcd") == 80


def test_standbys_are_in_another_rack_if_there_is_one() -> None:
    """A rack that burns takes the owner and its copy."""
    spec = _with_racks(group({m: ["t"] for m in "abcd"}, {"t": 8}), {"a": "r1", "b": "r1", "c": "r2", "d": "r2"})
    found = Standby().assign(spec)
    rack_of_owner = {p.topic_partition: spec.members[m].rack_id for m in "abcd" for p in partitions_of(found, m)}
    for member_id in "abcd":
        for partition in _standbys(found, member_id):
            assert rack_of_owner[partition] != spec.members[member_id].rack_id


def test_the_application_hears_of_a_change_of_standbys_once() -> None:
    """Copying state is expensive; being told twice would start it twice."""
    heard: list[tuple[NamedPartition, ...]] = []
    assignor = Standby(on_standby=heard.append)
    told = MemberAssignment((), encode({"standby": {"t": [1, 2]}}).metadata)
    for _ in range(2):
        assignor.on_assignment(0, told, ConsumerGroupMetadata("g", "m", 1))
    assignor.on_assignment(-1, MemberAssignment(), ConsumerGroupMetadata("g", "m", 2))
    assert heard == [(NamedPartition("t", 1), NamedPartition("t", 2))]
