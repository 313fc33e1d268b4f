"""One step of one member: every row of the table, and what holds for all inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.coordinator.current_assignment import MustRejoinError, OwnedPartitions, Target, is_subset, reconcile
from kip848_client.coordinator.group_member import Current, CurrentAssignment, MemberState, PartitionEpochs

ValueT = TypeVar("ValueT")

T1, T2 = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS
SAME = None
"""The row leaves the member as it is."""


class Row(msgspec.Struct, frozen=True):
    """One row: what the member is, what it shall have, and what comes out. Epochs of partitions are values."""

    before: CurrentAssignment
    epoch: int
    target: Mapping[UUID, tuple[int, ...]]
    after: CurrentAssignment | None
    owned: OwnedPartitions | None = None
    taken: frozenset[tuple[UUID, int]] = frozenset()
    subscribed: frozenset[UUID] = frozenset({T1, T2})
    subscription_changed: bool = False


def _at(
    epoch: int,
    previous: int,
    state: MemberState,
    assigned: PartitionEpochs,
    pending: PartitionEpochs | None = None,
) -> CurrentAssignment:
    return CurrentAssignment(epoch, previous, state, assigned, pending or {})


ROWS: dict[str, Row] = {
    "stable_at_the_target": Row(_at(5, 4, STABLE, {T1: {0: 5}}), 5, {T1: (0,)}, SAME),
    "stable_to_a_new_epoch_with_the_same_partitions": Row(
        _at(5, 4, STABLE, {T1: {0: 3}}), 6, {T1: (0,)}, _at(6, 5, STABLE, {T1: {0: 3}})
    ),
    "stable_gets_free_partitions": Row(
        _at(5, 4, STABLE, {T1: {0: 3}}), 6, {T1: (0, 1), T2: (4,)}, _at(6, 5, STABLE, {T1: {0: 3, 1: 6}, T2: {4: 6}})
    ),
    "stable_gets_some_and_waits_for_others": Row(
        _at(5, 4, STABLE, {T1: {0: 3}}),
        6,
        {T1: (0, 1, 2)},
        _at(6, 5, UNRELEASED, {T1: {0: 3, 1: 6}}),
        taken=frozenset({(T1, 2)}),
    ),
    "stable_waits_for_others": Row(
        _at(5, 4, STABLE, {T1: {0: 3}}),
        6,
        {T1: (0, 1)},
        _at(6, 5, UNRELEASED, {T1: {0: 3}}),
        taken=frozenset({(T1, 1)}),
    ),
    "stable_must_revoke_and_does_not_say_what_it_owns": Row(
        _at(5, 4, STABLE, {T1: {0: 3, 1: 4}}), 6, {T1: (0, 2)}, _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4}})
    ),
    "stable_must_revoke_and_still_owns_it": Row(
        _at(5, 4, STABLE, {T1: {0: 3, 1: 4}}),
        6,
        {T1: (0,)},
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4}}),
        owned={T1: frozenset({0, 1})},
    ),
    "stable_must_revoke_and_has_done_so": Row(
        _at(5, 4, STABLE, {T1: {0: 3, 1: 4}}),
        6,
        {T1: (0, 2)},
        _at(6, 5, STABLE, {T1: {0: 3, 2: 6}}),
        owned={T1: frozenset({0})},
    ),
    "stable_loses_a_whole_topic": Row(
        _at(5, 4, STABLE, {T1: {0: 3}, T2: {0: 3}}),
        6,
        {T1: (0,)},
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T2: {0: 3}}),
    ),
    "stable_unsubscribed_and_still_owns_it": Row(
        _at(5, 4, STABLE, {T1: {0: 3}, T2: {0: 3}}),
        5,
        {T1: (0,), T2: (0,)},
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T2: {0: 3}}),
        subscribed=frozenset({T1}),
        subscription_changed=True,
    ),
    "stable_unsubscribed_and_owns_it_no_more": Row(
        _at(5, 4, STABLE, {T1: {0: 3}, T2: {0: 3}}),
        5,
        {T1: (0,), T2: (0,)},
        _at(5, 5, STABLE, {T1: {0: 3}}),
        owned={T1: frozenset({0})},
        subscribed=frozenset({T1}),
        subscription_changed=True,
    ),
    "stable_with_a_changed_subscription_that_takes_nothing_away": Row(
        _at(5, 4, STABLE, {T1: {0: 3}}), 5, {T1: (0,)}, SAME, subscription_changed=True
    ),
    "stable_target_of_an_unsubscribed_topic_is_ignored": Row(
        _at(5, 4, STABLE, {T1: {0: 3}}),
        6,
        {T1: (0,), T2: (0,)},
        _at(6, 5, STABLE, {T1: {0: 3}}),
        subscribed=frozenset({T1}),
    ),
    "unrevoked_that_does_not_say": Row(_at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4}}), 6, {T1: (0,)}, SAME),
    "unrevoked_that_still_owns": Row(
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4, 2: 4}}), 6, {T1: (0,)}, SAME, owned={T1: frozenset({0, 2})}
    ),
    "unrevoked_that_unsubscribed_from_more": Row(
        _at(5, 5, UNREVOKED, {T1: {0: 3}, T2: {0: 3}}, {T1: {1: 4}}),
        6,
        {T1: (0,), T2: (0,)},
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4}, T2: {0: 3}}),
        subscribed=frozenset({T1}),
        subscription_changed=True,
    ),
    "unrevoked_that_unsubscribed_from_more_and_lists_only_what_it_had_to_give_up": Row(
        _at(5, 5, UNREVOKED, {T1: {0: 3}, T2: {0: 3}}, {T1: {1: 4}}),
        6,
        {T1: (0,), T2: (0,)},
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4}, T2: {0: 3}}),
        owned={T1: frozenset({0, 1})},
        subscribed=frozenset({T1}),
        subscription_changed=True,
    ),
    "unrevoked_that_unsubscribed_from_more_and_acknowledged": Row(
        _at(5, 5, UNREVOKED, {T1: {0: 3}, T2: {0: 3}}, {T1: {1: 4}}),
        6,
        {T1: (0,), T2: (0,)},
        _at(6, 5, STABLE, {T1: {0: 3}}),
        owned={T1: frozenset({0})},
        subscribed=frozenset({T1}),
        subscription_changed=True,
    ),
    "unrevoked_that_acknowledged": Row(
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4}}),
        6,
        {T1: (0,)},
        _at(6, 5, STABLE, {T1: {0: 3}}),
        owned={T1: frozenset({0})},
    ),
    "unrevoked_that_acknowledged_and_gets_new_ones": Row(
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4}}),
        6,
        {T1: (0, 2)},
        _at(6, 5, STABLE, {T1: {0: 3, 2: 6}}),
        owned={T1: frozenset({0})},
    ),
    "unrevoked_that_acknowledged_and_waits": Row(
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4}}),
        6,
        {T1: (0, 2)},
        _at(6, 5, UNRELEASED, {T1: {0: 3}}),
        owned={T1: frozenset({0})},
        taken=frozenset({(T1, 2)}),
    ),
    "unrevoked_that_acknowledged_and_must_revoke_again": Row(
        _at(5, 5, UNREVOKED, {T1: {0: 3, 3: 3}}, {T1: {1: 4}}),
        7,
        {T1: (0,)},
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {3: 3}}),
        owned={T1: frozenset({0, 3})},
    ),
    "unrevoked_that_acknowledged_and_gets_the_partition_back": Row(
        _at(5, 5, UNREVOKED, {T1: {0: 3}}, {T1: {1: 4}}),
        7,
        {T1: (0, 1)},
        _at(7, 5, STABLE, {T1: {0: 3, 1: 7}}),
        owned={T1: frozenset({0})},
    ),
    "unreleased_that_still_waits": Row(
        _at(6, 6, UNRELEASED, {T1: {0: 3}}), 6, {T1: (0, 1)}, SAME, taken=frozenset({(T1, 1)})
    ),
    "unreleased_that_waits_for_the_first_time": Row(
        _at(6, 5, UNRELEASED, {T1: {0: 3}}),
        6,
        {T1: (0, 1)},
        _at(6, 6, UNRELEASED, {T1: {0: 3}}),
        taken=frozenset({(T1, 1)}),
    ),
    "unreleased_that_gets_one": Row(
        _at(6, 6, UNRELEASED, {T1: {0: 3}}),
        6,
        {T1: (0, 1, 2)},
        _at(6, 6, UNRELEASED, {T1: {0: 3, 1: 6}}),
        taken=frozenset({(T1, 2)}),
    ),
    "unreleased_that_gets_the_last_one": Row(
        _at(6, 6, UNRELEASED, {T1: {0: 3}}), 6, {T1: (0, 1)}, _at(6, 6, STABLE, {T1: {0: 3, 1: 6}})
    ),
    "unreleased_that_must_revoke": Row(
        _at(6, 6, UNRELEASED, {T1: {0: 3}}), 7, {T1: (1,)}, _at(6, 6, UNREVOKED, {}, {T1: {0: 3}})
    ),
    "unreleased_to_a_new_epoch": Row(
        _at(6, 6, UNRELEASED, {T1: {0: 3}}), 7, {T1: (0,)}, _at(7, 6, STABLE, {T1: {0: 3}})
    ),
    "unknown_that_owns_nothing": Row(
        _at(5, 4, MemberState.UNKNOWN, {T1: {0: 3}}, {T1: {1: 3}}),
        6,
        {T1: (0, 1)},
        _at(6, 5, STABLE, {T1: {0: 3, 1: 6}}),
        owned={},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(name: str) -> None:
    """The table of KIP-848's reconciliation as Kafka 4.3 has it; a wrong row double-owns or loses a partition."""
    row = ROWS[name]
    after = _step(row)
    if row.after is SAME:
        assert after is row.before
    else:
        assert after == row.after


@pytest.mark.parametrize("owned", [None, {T1: frozenset({0})}])
def test_a_member_in_an_unknown_state_must_rejoin(owned: OwnedPartitions | None) -> None:
    """What a newer coordinator meant is not guessed."""
    row = Row(_at(5, 4, MemberState.UNKNOWN, {T1: {0: 3}}), 6, {T1: (0,)}, SAME, owned=owned)
    with pytest.raises(MustRejoinError):
        _step(row)


def test_a_subset_is_judged_by_topic() -> None:
    """A lost answer is accepted only from a member that owns no more than it was given."""
    assigned = {T1: {0: 1, 1: 1}}
    assert is_subset({}, assigned)
    assert is_subset({T1: frozenset({1})}, assigned)
    assert not is_subset({T1: frozenset({1, 2})}, assigned)
    assert not is_subset({T2: frozenset({0})}, assigned)


_numbers = st.sets(st.integers(0, 4), max_size=5)
_topics = st.sampled_from([T1, T2])


@st.composite
def _rows(draw: st.DrawFn) -> Row:
    every = [(topic, number) for topic in (T1, T2) for number in range(5)]
    places = draw(st.lists(st.sampled_from("apto-"), min_size=len(every), max_size=len(every)))
    held: dict[str, dict[UUID, dict[int, int]]] = {"a": {}, "p": {}}
    for (topic, number), place in zip(every, places, strict=True):
        if place in held:
            held[place].setdefault(topic, {})[number] = draw(st.integers(1, 5))
    state = draw(st.sampled_from([STABLE, UNREVOKED, UNRELEASED]))
    if state is UNREVOKED and not held["p"]:
        state = STABLE
    target_numbers = draw(st.lists(st.booleans(), min_size=len(every), max_size=len(every)))
    target: dict[UUID, tuple[int, ...]] = {}
    for (topic, number), wanted in zip(every, target_numbers, strict=True):
        if wanted:
            target[topic] = (*target.get(topic, ()), number)
    owned = draw(st.none() | st.dictionaries(_topics, _numbers.filter(bool).map(frozenset)))
    return Row(
        before=_at(5, 5, state, held["a"], held["p"] if state is UNREVOKED else {}),
        epoch=draw(st.integers(5, 7)),
        target=target,
        after=SAME,
        owned=owned,
        taken=frozenset(part for part, place in zip(every, places, strict=True) if place == "t"),
        subscribed=frozenset(draw(st.sets(_topics))),
        subscription_changed=draw(st.booleans()),
    )


@given(_rows())
def test_no_step_gives_and_takes_at_once_nor_gives_what_others_hold(row: Row) -> None:
    """Whatever a client sends, two members never hold one partition and no epoch runs backwards."""
    before, after = row.before, _step(row)
    given = _flat(after.assigned) - _flat(before.assigned)
    assert not given & row.taken
    assert given <= {(topic, number) for topic, numbers in row.target.items() for number in numbers}
    assert not (given and after.pending_revocation)
    assert not _flat(after.assigned) & _flat(after.pending_revocation)
    assert after.member_epoch in (before.member_epoch, row.epoch)
    assert (after.state is UNREVOKED) == bool(after.pending_revocation)
    if after.state is STABLE and after.member_epoch == row.epoch and not row.subscription_changed:
        assert after is before or _flat(after.assigned) == {
            (topic, number) for topic, numbers in row.target.items() if topic in row.subscribed for number in numbers
        }
    lost = (_flat(before.assigned) | _flat(before.pending_revocation)) - (
        _flat(after.assigned) | _flat(after.pending_revocation)
    )
    asked = _flat(before.pending_revocation)
    if row.owned is None or any(number in row.owned.get(topic, ()) for topic, number in asked):
        assert not lost, "nothing is taken from a member that has not confirmed"
    else:
        assert not {(t, n) for t, n in lost if n in row.owned.get(t, ())}


@given(_rows())
def test_a_step_repeated_with_the_same_heartbeat_comes_to_rest(row: Row) -> None:
    """A member that sends the same heartbeat again and again is not moved for ever."""
    state = row.before
    for _ in range(4):
        after = _step(Row(state, row.epoch, row.target, SAME, row.owned, row.taken, row.subscribed))
        if after is state:
            return
        state = after
    raise AssertionError(f"still moving: {state}")


@given(_rows())
def test_names_in_place_of_topic_ids_lead_to_the_same_step(row: Row) -> None:
    """The engine serves consumer groups and connect groups alike; scenario 26 of connect groups."""

    def named(partitions: Mapping[UUID, ValueT]) -> dict[str, ValueT]:
        return {str(topic): numbers for topic, numbers in partitions.items()}

    def renamed(current: CurrentAssignment) -> Current[str]:
        return Current(
            current.member_epoch,
            current.previous_member_epoch,
            current.state,
            named(current.assigned),
            named(current.pending_revocation),
        )

    subscribed, taken = set(map(str, row.subscribed)), {(str(topic), number) for topic, number in row.taken}
    step = reconcile(
        renamed(row.before),
        Target(
            row.epoch,
            named(row.target),
            lambda name, numbers: numbers if name in subscribed else (),
            lambda name, number: (name, number) not in taken,
        ),
        owned=None if row.owned is None else named(row.owned),
        subscription_changed=row.subscription_changed,
    )

    assert step == renamed(_step(row))


def _step(row: Row) -> CurrentAssignment:
    return reconcile(
        row.before,
        Target(
            row.epoch,
            row.target,
            lambda topic, numbers: numbers if topic in row.subscribed else (),
            lambda topic, number: (topic, number) not in row.taken,
        ),
        owned=row.owned,
        subscription_changed=row.subscription_changed,
    )


def _flat(partitions: PartitionEpochs) -> set[tuple[UUID, int]]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}
