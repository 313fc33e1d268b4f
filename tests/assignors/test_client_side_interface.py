"""The interface of client-side assignors: what may be said, and what is refused with which words."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

import kip848_client
import kip848_client.assignors
from kip848_client.assignors.client.check import checked, violations
from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    AssignorMetadata,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignor,
    PartitionRef,
)
from kip848_client.assignors.client.plan import AssignmentPlan
from kip848_client.assignors.client.spread import Weight, keep_held, spread_by_weight, spread_evenly
from kip848_client.common.model import NamedPartition, TopicIdPartition
from kip848_client.errors import InvalidAssignmentError
from tests.support.assignor_specs import counts, group, held_after, tip, topic_id


class FirstTakesAll(PartitionAssignor):
    name = "first-takes-all"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        first = next(iter(spec.members))
        return GroupAssignment({first: MemberAssignment(spec.partitions)})


def test_an_assignor_needs_no_more_than_a_name_and_assign() -> None:
    """A first assignor that needs fifteen methods is never written."""
    assignor = FirstTakesAll()
    assert (assignor.minimum_version, assignor.maximum_version) == (0, 0)
    assert assignor.metadata() == AssignorMetadata()
    spec = group({"a": ["t"], "b": ["t"]}, {"t": 2})
    assert counts(checked(spec, assignor.assign(spec), assignor="x")) == {"a": 2, "b": 0}


def test_everything_an_author_needs_is_a_public_name() -> None:
    """Authors of assignors must not have to import from modules that may move."""
    for name in ("PartitionAssignor", "AssignorMetadata", "GroupAssignment", "MemberAssignment", "spread_by_weight"):
        assert getattr(kip848_client.assignors, name).__name__ == name


@pytest.mark.parametrize(
    "ref",
    [
        NamedPartition("t", 1),
        TopicIdPartition("t", 1, topic_id("t")),
        ("t", 1),
        (topic_id("t"), 1),
        kip848_client.TopicPartition("t", 1),
    ],
)
def test_a_partition_may_be_named_by_topic_or_by_id(ref: PartitionRef) -> None:
    """An author has partitions in whatever shape the rest of the program uses."""
    spec = group({"a": ["t"]}, {"t": 2})
    result = checked(spec, GroupAssignment({"a": MemberAssignment([("t", 0), ref])}), assignor="x")
    assert result.members["a"].partitions == (tip("t", 0), tip("t", 1))


def test_a_member_that_is_left_out_gets_nothing() -> None:
    """A member without an entry would keep what it has, if the coordinator were not told otherwise."""
    spec = group({"a": ["t"], "b": ["t"]}, {"t": 1})
    result = checked(spec, GroupAssignment.of({"a": [("t", 0)]}), assignor="x")
    assert result.members["b"] == MemberAssignment()


@pytest.mark.parametrize(
    ("assignment", "said", "partitions", "members"),
    [
        (GroupAssignment.of({"a": [("t", 0)]}), "not assigned: t-1, u-0", ["t-1", "u-0"], []),
        (
            GroupAssignment.of({"a": [("t", 0), ("t", 1)], "b": [("t", 0), ("u", 0)]}),
            "assigned more than once: t-0 ('a', 'b')",
            ["t-0"],
            ["a", "b"],
        ),
        (
            GroupAssignment.of({"a": [("t", 0), ("t", 1), ("u", 0)]}),
            "member 'a' does not subscribe to the topics of u-0",
            ["u-0"],
            ["a"],
        ),
        (
            GroupAssignment.of({"ghost": [("t", 0)], "b": [("t", 0), ("t", 1), ("u", 0)]}),
            "'ghost' is not a member of the group",
            [],
            ["ghost"],
        ),
        (
            GroupAssignment.of({"b": [("t", 0), ("t", 1), ("u", 0), ("u", 7), ("v", 0)]}),
            "these do not exist, or no member subscribes to their topic: u-7, v-0",
            [],
            [],
        ),
        (
            GroupAssignment({"b": MemberAssignment([("t", 0), ("t", 1), ("u", 0), "t-0"])}),  # type: ignore[list-item]
            "these name no partition: 't-0'",
            [],
            [],
        ),
        (GroupAssignment({"b": MemberAssignment("t-0")}), "and not a collection", [], ["b"]),  # type: ignore[arg-type]
        (GroupAssignment({"b": [("t", 0)]}), "and not a MemberAssignment", [], ["b"]),  # type: ignore[dict-item]
        ({"b": []}, "and not a GroupAssignment", [], []),
        (None, "it is None, and not a GroupAssignment", [], []),
    ],
)
def test_a_bad_result_is_refused_by_the_names_of_what_is_wrong_with_it(
    assignment: object, said: str, partitions: list[str], members: list[str]
) -> None:
    """'Invalid assignment' without the partition costs an author a day."""
    spec = group({"a": ["t"], "b": ["t", "u"]}, {"t": 2, "u": 1})
    with pytest.raises(
        InvalidAssignmentError, match="assignor 'mine' returned an assignment for group epoch 7"
    ) as info:
        checked(spec, assignment, assignor="mine")
    assert said in str(info.value)
    assert [*info.value.partitions] == partitions or set(partitions) <= set(info.value.partitions)
    assert set(members) <= set(info.value.members)


def test_a_long_complaint_is_cut() -> None:
    """Ten thousand forgotten partitions must not become a log line of a megabyte."""
    spec = group({"a": ["t"]}, {"t": 10_000})
    (found,) = violations(spec, GroupAssignment())
    assert found.text.endswith("and 9980 more")
    assert len(found.text) < 400
    assert len(found.partitions) == 10_000


def test_an_error_needs_no_partitions() -> None:
    """An assignor that cannot compute says so; the group keeps what it has."""
    spec = group({"a": ["t"]}, {"t": 1})
    assert checked(spec, GroupAssignment(error=3), assignor="x").error == 3


def test_values_that_do_not_fit_the_wire_are_refused_where_they_are_made() -> None:
    """Later, on the heartbeat thread, the line that made them is unknown."""
    with pytest.raises(ValueError, match="reason is 200"):
        AssignorMetadata(reason=200)
    with pytest.raises(ValueError, match="version is 40000"):
        AssignorMetadata(version=40_000)
    with pytest.raises(TypeError, match="metadata must be bytes, got str"):
        AssignorMetadata(metadata="cpu=4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="error is -1"):
        GroupAssignment(error=-1)
    with pytest.raises(TypeError, match="metadata must be bytes"):
        MemberAssignment([], metadata=None)  # type: ignore[arg-type]


def test_a_topic_is_found_by_name_and_by_id() -> None:
    """An author of an assignor may keep topics by name or by id, and looks them up by either."""
    spec = group({"a": ["t"]}, {"t": 3})
    assert spec.topic("t") is spec.topic(topic_id("t"))
    assert spec.subscribers("t") == ("a",)
    with pytest.raises(KeyError):
        spec.topic(UUID(int=99))


# --- spread


def test_an_even_spread_differs_by_one_at_most_and_moves_no_more_than_that_needs() -> None:
    """Twelve partitions, a third member: each of the two gives up two, and no partitions are swapped."""
    before = spread_evenly(group({"a": ["t"], "b": ["t"]}, {"t": 12}))
    spec = group({"a": ["t"], "b": ["t"], "c": ["t"]}, {"t": 12}, target=before)
    after = checked(spec, spread_evenly(spec), assignor="x")
    assert counts(after) == {"a": 4, "b": 4, "c": 4}
    assert held_after(before, after) == 8


def test_weights_decide_who_gets_how_many() -> None:
    """A machine with three times the cores is given three times the partitions."""
    spec = group({"a": ["t"], "b": ["t"]}, {"t": 8})
    assert counts(spread_by_weight(spec, {"a": 3, "b": 1})) == {"a": 6, "b": 2}
    assert counts(spread_by_weight(spec, lambda member: 3 if member.member_id == "b" else 1)) == {"a": 2, "b": 6}
    assert counts(spread_by_weight(spec, {"a": 0})) == {"a": 0, "b": 8}
    assert counts(spread_by_weight(spec, {"a": 0, "b": 0})) == {"a": 4, "b": 4}


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_makes_no_sense_is_refused_with_the_member(weight: float) -> None:
    """A division by a wrong number would give everything to one member in silence."""
    with pytest.raises(ValueError, match="member 'b' has the weight"):
        spread_by_weight(group({"a": ["t"], "b": ["t"]}, {"t": 8}), {"b": weight})


def test_keep_held_moves_nothing_for_balance() -> None:
    """If moving state costs more than imbalance, a newcomer waits for free partitions."""
    before = spread_evenly(group({"a": ["t"], "b": ["t"]}, {"t": 6}))
    spec = group({"a": ["t"], "b": ["t"], "c": ["t"]}, {"t": 7}, target=before)
    after = checked(spec, keep_held(spec), assignor="x")
    assert counts(after) == {"a": 3, "b": 3, "c": 1}
    assert held_after(before, after) == 6


def _random_group(rng: random.Random) -> tuple[AssignmentSpec, dict[str, float]]:
    topics = {f"t{index}": rng.randrange(1, 12) for index in range(rng.randrange(1, 6))}
    alike = rng.random() < 0.5
    members = {
        f"m{index:02}": sorted(topics if alike else rng.sample(sorted(topics), rng.randrange(len(topics) + 1)))
        for index in range(rng.randrange(1, 9))
    }
    weights = {member_id: rng.choice([0.0, 0.5, 1.0, 2.0, 3.7]) for member_id in members}
    subscribed = {topic for wanted in members.values() for topic in wanted}
    spec = group(members, {topic: count for topic, count in topics.items() if topic in subscribed})
    return spec, weights


@pytest.mark.parametrize("seed", range(200))
def test_no_single_move_would_lighten_the_busiest_member(seed: int) -> None:
    """Balance that can be improved by one move is no balance; and a second run must move nothing."""
    rng = random.Random(seed)
    spec, weights = _random_group(rng)
    result = checked(spec, spread_by_weight(spec, weights), assignor="x")
    used = weights if any(weights.values()) else dict.fromkeys(weights, 1.0)
    size = counts(result)
    for giver, assignment in result.members.items():
        for partition in assignment.partitions:
            assert isinstance(partition, TopicIdPartition)
            for taker in spec.subscribers(partition.topic):
                if taker != giver and used[taker] > 0:
                    assert used[giver] > 0, f"{giver} has no capacity, and {taker} could take {partition}"
                    assert size[giver] / used[giver] <= (size[taker] + 1) / used[taker] + 1e-9
    again = group(
        {member_id: list(member.subscribed_topics) for member_id, member in spec.members.items()},
        {topic.name: topic.partition_count for topic in spec.topics.values()},
        target=result,
    )
    assert checked(again, spread_by_weight(again, weights), assignor="x") == result


@pytest.mark.parametrize("weight", [{}, {"a": 2.0}])
def test_a_group_without_members_or_topics_is_assigned_nothing(weight: Weight) -> None:
    """Groups are empty while they start and end; an assignor that divides by zero there stops them."""
    assert spread_by_weight(group({}, {}), weight) == GroupAssignment()
    assert counts(spread_by_weight(group({"a": [], "b": []}, {}), weight)) == {"a": 0, "b": 0}
    assert counts(keep_held(group({"a": []}, {}))) == {"a": 0}


# --- plan


def test_a_plan_gives_each_partition_to_one_member_only() -> None:
    """Giving it again moves it; otherwise a small mistake assigns a partition twice."""
    spec = group({"a": ["t"], "b": ["t"]}, {"t": 2})
    plan = AssignmentPlan(spec)
    plan.give(tip("t", 0), "a")
    plan.give(tip("t", 0), "b")
    assert plan.owner(tip("t", 0)) == "b"
    assert (plan.count("a"), plan.count("b")) == (0, 1)
    assert plan.unassigned == (tip("t", 1),)
    with pytest.raises(KeyError):
        plan.give(tip("t", 1), "ghost")
    assert plan.unassigned == (tip("t", 1),)


def test_keeping_what_is_held_drops_what_cannot_be_held_any_more() -> None:
    """A topic that was made again, or unsubscribed, or shrunk, must not be kept by name."""
    spec = group({"a": ["t"], "b": ["t", "u"]}, {"t": 2, "u": 1})
    held = {
        "a": [tip("t", 0), tip("t", 5), TopicIdPartition("t", 1, UUID(int=77)), tip("u", 0)],
        "b": [tip("t", 0), tip("gone", 0)],
    }
    spec = group({"a": ["t"], "b": ["t", "u"]}, {"t": 2, "u": 1}, held=held)
    plan = AssignmentPlan(spec)
    plan.keep_held()
    assert plan.given("a") == (tip("t", 0),)
    assert plan.given("b") == ()


def test_keeping_can_be_limited() -> None:
    """An assignor that knows capacities keeps up to them, and deals the rest."""
    held = {"a": [tip("t", index) for index in range(4)]}
    spec = group({"a": ["t"], "b": ["t"]}, {"t": 4}, held=held)
    plan = AssignmentPlan(spec)
    plan.keep_held(lambda member: 2, only=lambda member, partition: partition.partition != 0)
    assert plan.given("a") == (tip("t", 1), tip("t", 2))
    plan.give_all(plan.unassigned, "b")
    told = plan.to_assignment({"b": b"hello"}, version=2)
    assert told.members["b"] == MemberAssignment((tip("t", 0), tip("t", 3)), b"hello", 2)
