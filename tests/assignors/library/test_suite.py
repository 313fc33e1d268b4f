"""The library's own assignors pass the suite that it offers to authors."""

from __future__ import annotations

import pytest

from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, PartitionAssignor
from kip848_client.assignors.client.suite import assert_sound, report_lines, run_suite
from tests.assignors.library.test_all import ALL

EVEN = ALL.keys() - {"range", "co-partitioned", "buckets"}
STICKY = ALL.keys() - {"range", "priority"}


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_assignor_of_the_library_is_sound(name: str) -> None:
    """Every ready-made assignor is even and sticky as its page says, also in a large group."""
    report = run_suite(ALL[name], groups=40, members=300)
    failed = {result.name for result in report.results if not result.passed}
    measured = {"partitions are even": name not in EVEN, "what need not move stays": name not in STICKY}
    assert failed <= {check for check, may_fail in measured.items() if may_fail}, "\n".join(report_lines(report))
    assert len(report.results) == 10


def test_a_failing_suite_is_an_assertion_with_the_report() -> None:
    """In a user's test the report is the message."""

    class Hoarder(PartitionAssignor):
        name = "hoarder"

        def assign(self, spec: AssignmentSpec) -> GroupAssignment:
            return GroupAssignment.of({next(iter(spec.members)): spec.partitions})

    with pytest.raises(AssertionError, match=r"FAIL  extreme groups are served: .*does not subscribe"):
        assert_sound(Hoarder, groups=5)


def test_the_same_seed_tries_the_same_groups() -> None:
    """A failure in CI can be repeated at home."""
    assert run_suite(ALL["range"], seed=3, groups=30, members=0) == run_suite(
        ALL["range"], seed=3, groups=30, members=0
    )
