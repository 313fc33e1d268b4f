"""A member that falls behind sheds partitions, and the group comes to rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment
from kip848_client.assignors.library import LagAware
from kip848_client.assignors.library.lag_aware import REASON_BEHIND, REASON_FORGOTTEN, level_of
from kip848_client.common.model import NamedPartition
from tests.support.assignor_specs import counts, group, partitions_of, tip


@pytest.mark.parametrize(
    ("lag", "level"), [(-1, 0), (0, 0), (999, 0), (1_000, 1), (3_999, 1), (4_000, 2), (16_000, 3), (10**12, 8)]
)
def test_levels_grow_fourfold(lag: int, level: int) -> None:
    """A lag that goes up and down by a tenth is no news."""
    assert level_of(lag, 1_000) == level


def test_the_member_with_a_hot_partition_sheds_the_others() -> None:
    """The hot one cannot be split; what is beside it can go."""
    spec = group({m: ["t"] for m in "abc"}, {"t": 9})
    before = LagAware().assign(spec)
    hot = partitions_of(before, "a")[0]
    assignor = LagAware()
    assignor.report(dict.fromkeys(partitions_of(before, "a"), 0) | {hot: 20_000})
    spec = group({m: ["t"] for m in "abc"}, {"t": 9}, target=before, metadata={"a": assignor.metadata().metadata})
    after = LagAware().assign(spec)
    assert partitions_of(after, "a") == (hot,)
    assert sorted(counts(after).values()) == [1, 4, 4]


def test_two_hot_partitions_of_one_member_are_parted() -> None:
    """One stays, one goes to a member without any."""
    held = {"a": [tip("t", 0), tip("t", 1)], "b": [tip("t", 2), tip("t", 3)]}
    assignor = LagAware()
    assignor.report({("t", 0): 5_000, ("t", 1): 5_000})
    spec = group({m: ["t"] for m in "ab"}, {"t": 4}, held=held, metadata={"a": assignor.metadata().metadata})
    after = LagAware().assign(spec)
    hot = {tip("t", 0), tip("t", 1)}
    assert [len(hot & {*partitions_of(after, m)}) for m in "ab"] == [1, 1]


def test_what_a_member_told_stays_the_same_while_its_lag_swings() -> None:
    """Each change of metadata is a new assignment of the whole group."""
    assignor = LagAware(at_least=1_000)
    assignor.report({NamedPartition("t", 0): 5_000})
    told = assignor.metadata()
    assert told.reason == REASON_BEHIND
    for lag in (6_000, 900, 0, 15_999, 4_000, -1):
        assignor.report({NamedPartition("t", 0): lag})
        assert assignor.metadata() == told
    assignor.report({NamedPartition("t", 0): 16_000})
    assert assignor.metadata() != told


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=3, max_size=3), max_size=200))
def test_however_the_load_swings_a_member_asks_only_so_often(history: list[list[int]]) -> None:
    """At most once for each level of each partition: that is why the group must come to rest."""
    assignor = LagAware()
    last, asked = assignor.metadata(), 0
    for lags in history:
        assignor.report({("t", index): lag for index, lag in enumerate(lags)})
        now = assignor.metadata()
        asked += now != last
        last = now
    assert asked <= 3 * 8


def test_calm_is_believed_after_a_while_and_later_each_time() -> None:
    """A load that comes and goes with the hours may be followed, but less and less often."""
    assignor = LagAware(at_least=100, forget_after=3)

    def calm_until_forgotten() -> int:
        for beats in range(1, 100):
            assignor.report({("t", 0): 10})
            if assignor.metadata().reason == REASON_FORGOTTEN:
                return beats
        raise AssertionError("it never forgot")

    waited = []
    for _ in range(3):
        assignor.report({("t", 0): 1_000})
        assert assignor.metadata().reason == REASON_BEHIND
        waited.append(calm_until_forgotten())
    assert waited == [3, 6, 12]


def test_forget_tells_what_lags_now() -> None:
    """The operator knows that the night's batch is over."""
    assignor = LagAware(at_least=100)
    assignor.report({("t", 0): 1_000, ("t", 1): 100})
    assert assignor.metadata().metadata == b'{"levels":{"t":{"0":2,"1":1}}}'
    assignor.report({("t", 0): 0, ("t", 1): 100})
    assignor.forget()
    assert assignor.metadata().metadata == b'{"levels":{"t":{"1":1}}}'


def test_what_a_former_owner_told_counts_until_the_new_owner_speaks() -> None:
    """A hot partition that moved is not taken for an idle one for a heartbeat, and packed among others."""
    assignor = LagAware()
    assignor.report({("t", 0): 20_000})
    spec = group(
        {m: ["t"] for m in "ab"},
        {"t": 4},
        held={"b": [tip("t", 0)], "a": [tip("t", i) for i in (1, 2, 3)]},
        metadata={"a": assignor.metadata().metadata},
    )
    assert partitions_of(LagAware().assign(spec), "b") == (tip("t", 0),)


def test_within_the_tolerance_nothing_moves() -> None:
    """A move costs a pause; a small gain is not worth it."""
    held = {"a": [tip("t", i) for i in range(3)], "b": [tip("t", i) for i in range(3, 7)]}
    assignor = LagAware()
    assignor.report({("t", i): 1_000 for i in range(3)})
    mine = assignor.metadata().metadata
    assignor = LagAware()
    assignor.report({("t", i): 1_000 for i in range(3, 6)})
    theirs = assignor.metadata().metadata
    spec = group({m: ["t"] for m in "ab"}, {"t": 7}, held=held, metadata={"a": mine, "b": theirs})
    assert _held(LagAware(tolerance=0.25).assign(spec)) == held


def _held(assignment: GroupAssignment) -> dict[str, list[object]]:
    return {m: list(partitions_of(assignment, m)) for m in assignment.members}


@given(st.lists(st.integers(0, 40_000), min_size=12, max_size=12), st.integers(2, 5))
def test_a_group_under_constant_load_settles_in_two_assignments(lags: list[int], members: int) -> None:
    """One to spread what was told, one for what new owners tell; then no member has news."""
    assignors = {f"m{i}": LagAware() for i in range(members)}
    spec = _group(assignors, None)
    current = LagAware().assign(spec)
    assignments = 0
    for _ in range(10):
        before = {m: a.metadata().metadata for m, a in assignors.items()}
        for m, assignor in assignors.items():
            assignor.report({p: lags[p.partition] for p in partitions_of(current, m)})
        if {m: a.metadata().metadata for m, a in assignors.items()} == before:
            break
        assignments += 1
        current = LagAware().assign(_group(assignors, current))
    assert assignments <= 2


def _group(assignors: dict[str, LagAware], target: GroupAssignment | None) -> AssignmentSpec:
    return group(
        {m: ["t"] for m in assignors},
        {"t": 12},
        target=target,
        metadata={m: assignor.metadata().metadata for m, assignor in assignors.items()},
    )
