"""One step of one member: every row of the table, and what holds for all inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.testing.coordinator.consumer.consumer_member import (
    CurrentAssignment,
    OwnedPartitions,
    PartitionEpochs,
)
from kip848_client.testing.coordinator.modern.current_assignment import MustRejoinError, Target, is_subset, reconcile
from kip848_client.testing.coordinator.modern.member_record import Current, ReconciliationState

ValueT = TypeVar("ValueT")

T1, T2 = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = (
    ReconciliationState.STABLE,
    ReconciliationState.UNREVOKED_PARTITIONS,
    ReconciliationState.UNRELEASED_PARTITIONS,
)


class Row(msgspec.Struct, frozen=True):
    """One row: what the member is, what it shall have, and what comes out. Epochs of partitions are values.

    Args:
        after: None if the member stays as it is.
    """

    before: CurrentAssignment
    epoch: int
    target: Mapping[UUID, tuple[int, ...]]
    after: CurrentAssignment | None
    owned: OwnedPartitions | None = None
    taken: frozenset[tuple[UUID, int]] = frozenset()
    subscribed: frozenset[UUID] = frozenset({T1, T2})
    subscription_changed: bool = False


TABLE = """
before                       | owns | reads | target    | after
5/4 stable 0@5               | ?    | ab    | 5: 0      | same                         | at its target
5/4 stable 0@3               | ?    | ab    | 6: 0      | 6/5 stable 0@3               | a newer epoch
5/4 stable 0@3               | ?    | ab    | 6: 0 1 b4 | 6/5 stable 0@3 1@6 b4@6      | gets free ones
5/4 stable 0@3               | ?    | ab    | 6: 0 1 2* | 6/5 unreleased 0@3 1@6       | gets one, waits for one
5/4 stable 0@3               | ?    | ab    | 6: 0 1*   | 6/5 unreleased 0@3           | waits
5/4 stable 0@3 1@4           | ?    | ab    | 6: 0 2    | 5/5 unrevoked 0@3 - 1@4      | must revoke, says nothing
5/4 stable 0@3 1@4           | 0 1  | ab    | 6: 0      | 5/5 unrevoked 0@3 - 1@4      | must revoke, still owns
5/4 stable 0@3 1@4           | 0    | ab    | 6: 0 2    | 6/5 stable 0@3 2@6           | has revoked
5/4 stable 0@3 b0@3          | ?    | ab    | 6: 0      | 5/5 unrevoked 0@3 - b0@3     | loses a topic
5/4 stable 0@3 b0@3          | ?    | a!    | 5: 0 b0   | 5/5 unrevoked 0@3 - b0@3     | unsubscribed, still owns
5/4 stable 0@3 b0@3          | 0    | a!    | 5: 0 b0   | 5/5 stable 0@3               | unsubscribed, has revoked
5/4 stable 0@3               | ?    | ab!   | 5: 0      | same                         | other names, same topics
5/4 stable 0@3               | ?    | a     | 6: 0 b0   | 6/5 stable 0@3               | target of an unread topic
5/5 unrevoked 0@3 - 1@4      | ?    | ab    | 6: 0      | same                         | says nothing
5/5 unrevoked 0@3 - 1@4 2@4  | 0 2  | ab    | 6: 0      | same                         | still owns one
5/5 unrevoked 0@3 b0@3 - 1@4 | ?    | a!    | 6: 0 b0   | 5/5 unrevoked 0@3 - 1@4 b0@3 | unsubscribed from more
5/5 unrevoked 0@3 b0@3 - 1@4 | 0 1  | a!    | 6: 0 b0   | 5/5 unrevoked 0@3 - 1@4 b0@3 | lists what it owed only
5/5 unrevoked 0@3 b0@3 - 1@4 | 0    | a!    | 6: 0 b0   | 6/5 stable 0@3               | unsubscribed, acknowledges
5/5 unrevoked 0@3 - 1@4      | 0    | ab    | 6: 0      | 6/5 stable 0@3               | acknowledges
5/5 unrevoked 0@3 - 1@4      | 0    | ab    | 6: 0 2    | 6/5 stable 0@3 2@6           | acknowledges, gets others
5/5 unrevoked 0@3 - 1@4      | 0    | ab    | 6: 0 2*   | 6/5 unreleased 0@3           | acknowledges, waits
5/5 unrevoked 0@3 3@3 - 1@4  | 0 3  | ab    | 7: 0      | 5/5 unrevoked 0@3 - 3@3      | acknowledges, owes again
5/5 unrevoked 0@3 - 1@4      | 0    | ab    | 7: 0 1    | 7/5 stable 0@3 1@7           | acknowledges, gets it back
6/6 unreleased 0@3           | ?    | ab    | 6: 0 1*   | same                         | still waits
6/5 unreleased 0@3           | ?    | ab    | 6: 0 1*   | 6/6 unreleased 0@3           | waits for the first time
6/6 unreleased 0@3           | ?    | ab    | 6: 0 1 2* | 6/6 unreleased 0@3 1@6       | gets one
6/6 unreleased 0@3           | ?    | ab    | 6: 0 1    | 6/6 stable 0@3 1@6           | gets the last one
6/6 unreleased 0@3           | ?    | ab    | 7: 1      | 6/6 unrevoked - 0@3          | must revoke
6/6 unreleased 0@3           | ?    | ab    | 7: 0      | 7/6 stable 0@3               | a newer epoch
5/4 unknown 0@3 - 1@3        | -    | ab    | 6: 0 1    | 6/5 stable 0@3 1@6           | owns nothing
"""
"""Partitions of topic a are numbers, those of b have its letter; the epoch since which one is held follows @.

before, after: epoch/previous epoch, state, assigned partitions, and after a dash those to be revoked.
owns:          what the heartbeat says; ? if it does not say.
reads:         the topics that the member subscribes to; ! if the heartbeat changed that.
target:        its epoch and partitions; * if another member still holds it.
"""


def _row(line: str) -> tuple[str, Row]:
    before, owns, reads, target, after, name = map(str.strip, line.split("|"))
    epoch, _, wanted = target.partition(": ")
    places = [_place(word.rstrip("*")) for word in wanted.split()]
    row = Row(
        before=_current(before),
        epoch=int(epoch),
        target={topic: tuple(number for one, number in places if one == topic) for topic, _ in places},
        after=None if after == "same" else _current(after),
        owned=None if owns == "?" else _owned(owns),
        taken=frozenset(_place(word[:-1]) for word in wanted.split() if word.endswith("*")),
        subscribed=frozenset({"a": T1, "b": T2}[letter] for letter in reads.rstrip("!")),
        subscription_changed=reads.endswith("!"),
    )
    return f"{before.split()[1]}: {name}", row


def _current(text: str) -> CurrentAssignment:
    held, _, pending = text.partition(" - ")
    epochs, state, *assigned = held.split()
    epoch, previous = map(int, epochs.split("/"))
    (state_,) = [each for each in ReconciliationState if each.name.lower().startswith(state)]
    return CurrentAssignment(epoch, previous, state_, _epochs(assigned), _epochs(pending.split()))


def _epochs(words: Iterable[str]) -> PartitionEpochs:
    found: dict[UUID, dict[int, int]] = {}
    for word in words:
        place, _, epoch = word.partition("@")
        topic, number = _place(place)
        found.setdefault(topic, {})[number] = int(epoch)
    return found


def _owned(text: str) -> OwnedPartitions:
    places = [_place(word) for word in text.split() if word != "-"]
    return {topic: frozenset(number for one, number in places if one == topic) for topic, _ in places}


def _place(word: str) -> tuple[UUID, int]:
    return (T2, int(word[1:])) if word.startswith("b") else (T1, int(word))


ROWS = dict(map(_row, TABLE.strip().splitlines()[1:]))


@pytest.mark.parametrize("name", ROWS)
def test_row(name: str) -> None:
    """The table of KIP-848's reconciliation as Kafka 4.3 has it; a wrong row double-owns or loses a partition."""
    row = ROWS[name]
    after = _step(row)
    if row.after is None:
        assert after is row.before
    else:
        assert after == row.after


@pytest.mark.parametrize("owned", [None, {T1: frozenset({0})}])
def test_a_member_in_an_unknown_state_must_rejoin(owned: OwnedPartitions | None) -> None:
    """A state written by a newer coordinator is not guessed."""
    row = Row(_current("5/4 unknown 0@3"), 6, {T1: (0,)}, None, owned=owned)
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
        before=CurrentAssignment(5, 5, state, held["a"], held["p"] if state is UNREVOKED else {}),
        epoch=draw(st.integers(5, 7)),
        target=target,
        after=None,
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
        after = _step(Row(state, row.epoch, row.target, None, row.owned, row.taken, row.subscribed))
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
