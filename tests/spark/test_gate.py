"""The gate between membership and batches, move by move and for all orders of moves."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kip848_client.common.model import NamedPartition, OffsetRange
from kip848_client.spark.group.gate import Gate

P = [NamedPartition("orders", number) for number in range(4)]
some = st.frozensets(st.sampled_from(P), min_size=1)


def reading(gate: Gate, rows: int = 10) -> tuple[OffsetRange, ...]:
    """Begin a batch over everything that may be read."""
    return gate.plan(OffsetRange(p, at, at + rows) for p, at in gate.readable.items())


def test_a_revocation_waits_for_the_batch_that_reads_the_partition() -> None:
    """Letting go earlier would let two read the same records."""
    gate = Gate()
    gate.assign({P[0]: 0, P[1]: 0})
    reading(gate)
    gate.begin_revocation([P[0]])

    waiting = not gate.may_revoke
    gate.finish()

    assert waiting
    assert gate.may_revoke
    assert gate.uncommitted == {P[0]: 10, P[1]: 10}
    assert gate.readable == {P[1]: 10}


def test_a_revocation_of_others_waits_for_nothing() -> None:
    """A batch over p1 is no reason to keep p0."""
    gate = Gate()
    gate.assign({P[0]: 0, P[1]: 0})
    gate.plan([OffsetRange(P[1], 0, 5)])
    gate.begin_revocation([P[0]])

    assert gate.may_revoke


def test_what_was_lost_in_mid_batch_is_not_committed() -> None:
    """It may be ahead of us already in other hands."""
    gate = Gate()
    gate.assign({P[0]: 0, P[1]: 0})
    reading(gate)
    gate.lose([P[0]])
    gate.finish()

    assert gate.uncommitted == {P[1]: 10}
    assert gate.progress == {P[0]: 10, P[1]: 10}, "the rows were written all the same"


def test_lost_and_assigned_again_in_mid_batch() -> None:
    """The batch counts for this query, and what it read is not read again; the commit is left to a later batch."""
    gate = Gate()
    gate.assign({P[0]: 0})
    reading(gate)
    gate.lose([P[0]])
    gate.assign({P[0]: 0})
    gate.finish()

    assert gate.readable == {P[0]: 10}
    assert gate.uncommitted == {}


def test_nothing_is_read_below_what_was_read() -> None:
    """The group may be behind: its commit was lost with a process."""
    gate = Gate()
    gate.restore({P[0]: 50})
    gate.assign({P[0]: 30, P[1]: 7})

    assert gate.readable == {P[0]: 50, P[1]: 7}
    assert gate.progress == {P[0]: 50}, "p1 was not read yet: where it begins is not progress"


def test_a_range_of_before_a_rebalance_is_not_accepted() -> None:
    """Between asking for offsets and planning a partition may go, or come back further on."""
    gate = Gate()
    gate.assign({P[0]: 0, P[1]: 0})
    planned = [OffsetRange(P[0], 0, 5), OffsetRange(P[1], 0, 5)]
    gate.begin_revocation([P[0]])
    gate.end_revocation([P[0]])
    assert [each.partition for each in gate.plan(planned)] == [P[1]]


class Life(RuleBasedStateMachine):
    """Any order of what membership and batches do."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.revoking: frozenset[NamedPartition] = frozenset()
        self.written: dict[NamedPartition, list[tuple[int, int]]] = {p: [] for p in P}

    @rule(partitions=some, committed=st.integers(0, 40))
    def assign(self, partitions: frozenset[NamedPartition], committed: int) -> None:
        new = partitions - self.gate.owned
        self.gate.assign(dict.fromkeys(new, committed))

    @precondition(lambda self: not self.gate.in_flight)
    @rule(rows=st.integers(1, 9))
    def plan(self, rows: int) -> None:
        before = self.gate.readable
        accepted = reading(self.gate, rows)
        assert {each.partition for each in accepted} == before.keys()

    @rule()
    def finish(self) -> None:
        for each in self.gate.in_flight:
            self.written[each.partition].append((each.start, each.end))
        self.gate.finish()

    @rule()
    def abandon(self) -> None:
        self.gate.abandon()

    @precondition(lambda self: not self.revoking)
    @rule(partitions=some)
    def begin_revocation(self, partitions: frozenset[NamedPartition]) -> None:
        self.revoking = partitions & self.gate.owned
        self.gate.begin_revocation(partitions)

    @precondition(lambda self: self.gate.may_revoke)
    @rule()
    def end_revocation(self) -> None:
        owed = self.gate.uncommitted
        for partition in self.revoking & owed.keys():
            assert owed[partition] == self.written[partition][-1][1]
        self.gate.committed({p: offset for p, offset in owed.items() if p in self.revoking})
        self.gate.end_revocation(self.revoking)
        self.revoking = frozenset()

    @rule(partitions=some)
    def lose(self, partitions: frozenset[NamedPartition]) -> None:
        self.gate.lose(partitions)
        self.revoking -= partitions

    @invariant()
    def nothing_is_written_twice(self) -> None:
        for ranges in self.written.values():
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))

    @invariant()
    def what_may_be_read_is_ours(self) -> None:
        assert self.gate.readable.keys() <= self.gate.owned - self.revoking
        assert self.gate.uncommitted.keys() <= self.gate.owned


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
