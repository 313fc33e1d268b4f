"""A property suite for client-side assignors: are its assignments always legal, and what do they cost?

`run_suite` is what ``kip848 assignor check`` prints and `assert_sound` is for a test. Pure: groups are drawn from a
seed, and the clock is handed in. The groups themselves are in `suite_groups`.

*Required* checks fail the suite: the result can be applied, is the same in every member, comes to rest, and is there in
time. *Measured* ones only tell: whether partitions are even, and how many move beyond what had to, is the assignor's
business.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from kip848_client.assignors.client.check import violations
from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, PartitionAssignor
from kip848_client.assignors.client.suite_groups import (
    describe,
    extreme_groups,
    grown,
    held_by,
    joined,
    large_group,
    left,
)
from kip848_client.assignors.client.suite_groups import random_group as draw_group
from kip848_client.common.model import TopicIdPartition

_REST_AFTER: Final = 3
"""How many runs on its own result an assignor may need until nothing moves."""


class CheckResult(msgspec.Struct, frozen=True):
    """One line of the report.

    Args:
        required: whether the suite fails with it.
        groups: how many groups were tried.
        detail: a figure, or the first group that broke the rule.
    """

    name: str
    passed: bool
    required: bool
    groups: int
    detail: str


class SuiteReport(msgspec.Struct, frozen=True):
    """The whole report of one assignor."""

    assignor: str
    seed: int
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether all required checks passed."""
        return all(result.passed for result in self.results if result.required)


class _Broken(Exception):
    """A group on which a check fails; the text says how."""


def run_suite(
    make: Callable[[], PartitionAssignor],
    *,
    seed: int = 0,
    groups: int = 200,
    members: int = 10_000,
    now_ms: Callable[[], float] | None = None,
    limit_ms: float = 30_000,
    on_check: Callable[[str], None] | None = None,
) -> SuiteReport:
    """Run all checks.

    Args:
        make: makes an assignor; called several times, because members are different processes.
        seed: of the random groups.
        groups: how many for each check.
        members: of the large group, each with ten partitions. 0 leaves it out.
        now_ms: a clock in milliseconds for the large group; without one it is only checked for being right.
        limit_ms: how long the large group may take (``group.local.assignors.timeout.ms``).
        on_check: told the name of each check when it begins.
    """
    suite = _Suite(make, seed=seed, groups=groups)
    told = on_check or (lambda name: None)
    results = []
    for name, check, required in (
        ("the result can be applied", suite.valid, True),
        ("extreme groups are served", suite.extremes, True),
        ("two members compute the same", suite.deterministic, True),
        ("it comes to rest", suite.rests, True),
        ("a topic may grow", suite.grows, True),
        ("members may come and go", suite.survives_change, True),
        ("foreign metadata does no harm", suite.foreign_metadata, True),
        ("partitions are even", suite.balance, False),
        ("what need not move stays", suite.stickiness, False),
    ):
        told(name)
        results.append(_run(name, check, required=required, groups=groups))
    if members:
        name = f"{members:,} members in time"
        told(name)
        results.append(
            _run(name, lambda: suite.large(members, now_ms=now_ms, limit_ms=limit_ms), required=True, groups=1)
        )
    return SuiteReport(make().name, seed, tuple(results))


def assert_sound(make: Callable[[], PartitionAssignor], *, seed: int = 0, groups: int = 100) -> SuiteReport:
    """Fail a test, with the whole report, if a required check fails. The large group is left out.

    Raises:
        AssertionError: the message is the report.
    """
    report = run_suite(make, seed=seed, groups=groups, members=0)
    if not report.passed:
        raise AssertionError("\n".join(report_lines(report)))
    return report


def report_lines(report: SuiteReport) -> Iterator[str]:
    """The report as lines of text."""
    yield f"assignor {report.assignor!r}, seed {report.seed}"
    for result in report.results:
        sign = "ok  " if result.passed else ("FAIL" if result.required else "note")
        yield f"  {sign}  {result.name}: {result.detail}"


def _run(name: str, check: Callable[[], str], *, required: bool, groups: int) -> CheckResult:
    try:
        detail = check()
    except _Broken as broken:
        return CheckResult(name, False, required, groups, str(broken))
    return CheckResult(name, True, required, groups, detail)


class _Suite:
    def __init__(self, make: Callable[[], PartitionAssignor], *, seed: int, groups: int) -> None:
        self._make = make
        self._seed = seed
        self._groups = groups

    def valid(self) -> str:
        """Every partition to exactly one subscriber."""
        for spec in self._random("valid"):
            self._assign(spec)
        return f"{self._groups} random groups"

    def extremes(self) -> str:
        """Groups at the edge."""
        count = 0
        for spec in extreme_groups(self._told()):
            self._assign(spec)
            count += 1
        return f"{count} groups: one member, no partitions, more members than partitions, ..."

    def deterministic(self) -> str:
        """The result does not depend on the member that computes, or on its earlier results."""
        veteran = self._make()
        for spec in self._random("deterministic"):
            first = _plain(self._assign(spec))
            if _plain(self._assign(spec)) != first:
                raise _Broken(f"another member gets another result for {describe(spec)}")
            if _plain(self._assign(spec, by=veteran)) != first:
                raise _Broken(f"a member that assigned other groups before gets another result for {describe(spec)}")
        return f"{self._groups} random groups, fresh and after others"

    def rests(self) -> str:
        """Partitions must stop moving after a few runs on the assignor's own result."""
        most = 0
        for spec in self._random("rests"):
            current = self._assign(spec)
            for run in range(1, _REST_AFTER + 2):
                again = self._assign(held_by(spec, current))
                if _plain(again) == _plain(current):
                    most = max(most, run - 1)
                    break
                current = again
            else:
                raise _Broken(f"still moves partitions after {_REST_AFTER} runs on its own result: {describe(spec)}")
        return "a second run moves nothing" if most == 0 else f"after {most} more runs nothing moves"

    def grows(self) -> str:
        """More partitions, a new topic, a topic that is gone."""
        for spec in self._random("grows"):
            self._assign(grown(held_by(spec, self._assign(spec))))
        return f"{self._groups} random groups"

    def survives_change(self) -> str:
        """A member that leaves or joins."""
        for spec in self._random("changes"):
            before = held_by(spec, self._assign(spec))
            for after in (left(before), joined(before)):
                if after is not None:
                    self._assign(after)
        return f"{self._groups} random groups"

    def foreign_metadata(self) -> str:
        """For unexpected bytes an assignor may raise ValueError, which the group reports, and nothing else."""
        refused = 0
        for junk in (b"", b"\x00", b"\xff\xfe", b"null", b"[]", b'{"a":', b"7" * 1000):
            for spec in extreme_groups(junk):
                try:
                    self._assign(spec, passes=ValueError)
                except ValueError:
                    refused += 1
        return f"{refused} refused with ValueError" if refused else "all are served"

    def balance(self) -> str:
        """The balance of an assignment, if all members subscribe alike."""
        worst, where = 0, ""
        for spec in self._random("balance", alike=True):
            counts = [len(tuple(member.partitions)) for member in self._assign(spec).members.values()]
            spread = max(counts) - min(counts) if len(counts) == len(spec.members) else max(counts, default=0)
            if spread > worst:
                worst, where = spread, describe(spec)
        if worst > 1:
            raise _Broken(f"the fullest and the emptiest member differ by up to {worst}: {where}")
        return "members that subscribe alike differ by at most one"

    def stickiness(self) -> str:
        """Moves between members that stayed, where none was needed."""
        extra, where = 0, ""
        for spec in self._random("sticky", alike=True):
            first = self._assign(spec)
            after = left(held_by(spec, first))
            if after is None:
                continue
            owner = _owners(self._assign(after))
            before = _owners(first)
            moved = sum(1 for p, m in before.items() if m in after.members and owner[p] != m)
            if moved > extra:
                extra, where = moved, describe(spec)
        if extra:
            raise _Broken(f"when a member leaves, up to {extra} partitions of others move too: {where}")
        return "when a member leaves, only its partitions move"

    def large(self, members: int, *, now_ms: Callable[[], float] | None, limit_ms: float) -> str:
        """One large group, fresh and after a join."""
        spec = large_group(members, self._told())
        clock = now_ms or (lambda: 0.0)
        began_ms = clock()
        assignment = self._assign(spec, checked=False)
        fresh_ms = clock() - began_ms
        self._check(spec, assignment)
        after = joined(held_by(spec, assignment))
        assert after is not None
        began_ms = clock()
        again = self._assign(after, checked=False)
        join_ms = clock() - began_ms
        self._check(after, again)
        detail = f"fresh {fresh_ms / 1000:.2f} s, one more member {join_ms / 1000:.2f} s"
        if max(fresh_ms, join_ms) > limit_ms:
            raise _Broken(f"{detail}; the limit is {limit_ms / 1_000:g} s (group.local.assignors.timeout.ms)")
        return detail if now_ms is not None else "right"

    def _told(self) -> bytes:
        return self._make().metadata().metadata

    def _random(self, check: str, *, alike: bool = False) -> Iterator[AssignmentSpec]:
        rng = random.Random(f"{self._seed} {check}")
        told = self._told()
        for _ in range(self._groups):
            yield draw_group(rng, told, alike=alike)

    def _assign(
        self,
        spec: AssignmentSpec,
        *,
        by: PartitionAssignor | None = None,
        passes: type[Exception] | None = None,
        checked: bool = True,
    ) -> GroupAssignment:
        try:
            found: object = (by or self._make()).assign(spec)
        except Exception as error:
            if passes is not None and isinstance(error, passes):
                raise
            raise _Broken(f"assign raised {type(error).__name__}: {error} for {describe(spec)}") from error
        if checked:
            self._check(spec, found)
        if not isinstance(found, GroupAssignment):
            raise _Broken(f"assign returned {type(found).__name__}, not a GroupAssignment")
        if found.error:
            raise _Broken(f"assign returned error {found.error} for {describe(spec)}")
        return found

    @staticmethod
    def _check(spec: AssignmentSpec, found: object) -> None:
        if wrong := violations(spec, found):
            raise _Broken("; ".join(violation.text for violation in wrong[:3]) + f"; for {describe(spec)}")


def _plain(assignment: GroupAssignment) -> dict[str, tuple[list[str], bytes]]:
    return {
        member_id: (sorted(map(_name, member.partitions)), member.metadata)
        for member_id, member in assignment.members.items()
        if tuple(member.partitions) or member.metadata
    }


def _owners(assignment: GroupAssignment) -> dict[str, str]:
    return {_name(p): member_id for member_id, member in assignment.members.items() for p in member.partitions}


def _name(partition: object) -> str:
    if isinstance(partition, TopicIdPartition):
        return str(partition.topic_partition)
    if isinstance(partition, tuple):
        return f"{partition[0]}-{partition[1]}"
    return f"{getattr(partition, 'topic', '?')}-{getattr(partition, 'partition', '?')}"


def names(partitions: Iterable[object]) -> list[str]:
    """Partitions however an assignor names them, as ``topic-index``."""
    return [_name(partition) for partition in partitions]
